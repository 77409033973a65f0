//! The interpreter's end and `fork`, as the workers see them.
//!
//! A thread that attaches to an interpreter under finalisation is ended in the middle of its stack (before CPython 3.14),
//! which Rust frames do not survive. So bodies announce themselves, the exit hook closes the door and waits briefly for
//! those inside, and a thread that comes later sleeps until the process ends. For threads in the middle of Python code: [`ending`](crate::ending).

use crate::attach;
use crate::{body, callable, deferred, errors, home, pending};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use threadteam::ForkLock;

static CLOSING: AtomicBool = AtomicBool::new(false);
/// Bodies that run; below zero when a fork's child leaves a body that its parent entered.
static INSIDE: AtomicIsize = AtomicIsize::new(0);
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread runs the finalisation, and may go on to use the interpreter.
    static ENDS_THE_INTERPRETER: Cell<bool> = const { Cell::new(false) };
}

/// How long the exit hook waits for bodies that run. Chunks not started are dropped at once, so only a body longer than
/// this meets the finalisation, where it is put to sleep the next time it wants the interpreter.
const PATIENCE: Duration = Duration::from_millis(200);

/// A body that may hold the interpreter.
pub(crate) struct Visit;

impl Visit {
    /// Counts the calling thread in, or puts it to sleep for good when the interpreter is ending.
    ///
    /// The count and the flag are both sequentially consistent: either the hook sees this visit, or this sees the flag.
    pub(crate) fn begin() -> Visit {
        Visit::begin_unless_closing().unwrap_or_else(|| sleep_for_good())
    }

    /// The same for a thread that can do without the interpreter.
    pub(crate) fn begin_unless_closing() -> Option<Visit> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let visit = Visit;
        // Dropped, it counts the thread out.
        (!CLOSING.load(Ordering::SeqCst) || ENDS_THE_INTERPRETER.get()).then_some(visit)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::Release);
    }
}

/// Whether the interpreter is ending: sections run on their caller alone, and no pool is joined any more.
///
/// Relaxed: a look that comes too early is one that [`Visit`] would have let pass too.
pub(crate) fn closing() -> bool {
    CLOSING.load(Ordering::Relaxed)
}

/// The number of forks between the first process and this one. It changes while the process has one thread.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The interpreter that the module belongs to: stored before any function of the module can be called.
static INTERPRETER: AtomicPtr<ffi::PyInterpreterState> = AtomicPtr::new(ptr::null_mut());
/// Taken around the making of thread states before CPython 3.12, whose child of a fork hangs when another thread was making one:
/// it takes the lock of the list of states before it makes that lock anew.
static MAKING_A_STATE: ForkLock<()> = ForkLock::new(());

/// Makes the state of a thread that has none, which is not attached then.
///
/// `PyGILState_Ensure` makes one too, but goes on to wait for the interpreter, which a forking thread may hold: the lock could not
/// be held around it.
pub(crate) fn new_thread_state() -> Option<NonNull<ffi::PyThreadState>> {
    // SAFETY: `Py_Version` is a constant.
    let alone = (unsafe { ffi::Py_Version } < 0x030c_0000).then(|| MAKING_A_STATE.lock());
    // SAFETY: the interpreter lives (the caller's visit), and needs not be attached for this.
    let state = unsafe { ffi::PyThreadState_New(INTERPRETER.load(Ordering::Relaxed)) };
    drop(alone);
    NonNull::new(state)
}

/// Blocks the calling thread until the process ends.
pub(crate) fn sleep_for_good() -> ! {
    loop {
        std::thread::park();
    }
}

#[pyfunction]
fn _at_exit(py: Python<'_>) -> PyResult<()> {
    ENDS_THE_INTERPRETER.set(true);
    CLOSING.store(true, Ordering::SeqCst);
    py.detach(|| {
        threadteam::keep_workers(0);
        let deadline = Instant::now() + PATIENCE;
        while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // Finalisers that run after the modules are gone may meet these.
    errors::keep(py)
}

#[pyfunction]
fn _after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // The threads whose bodies were counted do not exist here.
    INSIDE.store(0, Ordering::Relaxed);
    home::after_fork_in_child();
}

/// Bounds the threads that sleep for later pools by the CPU budget, at the first pool. A budget that cannot be read leaves the
/// runtime's own bound.
pub(crate) fn limit_kept_workers(py: Python<'_>) {
    static BOUNDED: AtomicBool = AtomicBool::new(false);
    if BOUNDED.swap(true, Ordering::Relaxed) || closing() {
        return;
    }
    let most = attach::call_function(py, "threadteam.cpus", "most_kept_workers", ()).and_then(|most| most.extract());
    if let Ok(most) = most {
        py.detach(|| threadteam::keep_workers(most));
    }
}

/// Workers attach to the interpreter that their process began with, so the package exists there alone.
fn refuse_subinterpreters(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached, so there is a current interpreter.
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match id {
        0 => {
            // SAFETY: as above.
            INTERPRETER.store(unsafe { ffi::PyInterpreterState_Get() }, Ordering::Relaxed);
            Ok(())
        }
        -1 => Err(PyErr::fetch(py)),
        _ => Err(PyImportError::new_err(
            "threadteam cannot be imported in subinterpreters: its workers attach to the main interpreter; use it there",
        )),
    }
}

/// Called first when the module is made.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    refuse_subinterpreters(py)?;
    // What sections look up once. Later, a fork could come in the middle, of which the child would wait for the end; or the
    // modules could be gone, at the end of the interpreter.
    body::is_function(py.None().bind(py));
    callable::copy_context(py)?;
    pending::register(py)?;
    deferred::register(py)?;
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(_at_exit, module)?,))?;
    let os = py.import("os")?;
    if os.hasattr("register_at_fork")? {
        let hooks = pyo3::types::PyDict::new(py);
        hooks.set_item("after_in_child", wrap_pyfunction!(_after_fork_in_child, module)?)?;
        os.call_method("register_at_fork", (), Some(&hooks))?;
    }
    Ok(())
}
