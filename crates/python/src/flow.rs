//! The control flow of one section: who failed first, and whether chunks not started are dropped.

use crate::attach::{self, attached};
use crate::body::Code;
use crate::errors;
use crate::ledger::{Account, Task};
use crate::pending;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadteam::{ForkLock, Share};

/// How often a leader looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// How long a participant polls before it waits for the interpreter's lock.
const POLITE: Duration = Duration::from_micros(2);

/// Jobs that are given out at once: a section that failed counts through the rest of them, some 20 ns each.
const WAVE: usize = 1 << 20;

/// Exceptions beyond this many are counted, not quoted.
const QUOTED: usize = 8;

thread_local! {
    /// The section whose body the thread runs.
    static CURRENT: Cell<*const Flow> = const { Cell::new(ptr::null()) };
    /// The section that the thread leads.
    static LED: Cell<*const Flow> = const { Cell::new(ptr::null()) };
    /// When the thread last looked for signals between native chunks.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// While it lives, the thread leads a section.
pub(crate) struct Leading(*const Flow);

impl Leading {
    pub(crate) fn enter(flow: &Flow) -> Leading {
        Leading(LED.replace(flow))
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        LED.set(self.0);
    }
}

/// Looks for signals for the innermost section that the calling thread leads.
pub(crate) fn look_for_signals_of_led_section() {
    // SAFETY: `Leading` resets the pointer before the section's flow ends.
    if let Some(flow) = unsafe { LED.get().as_ref() } {
        flow.look_for_signals();
    }
}

/// Whether the innermost section that the calling thread leads is being dropped.
pub(crate) fn led_section_stopped() -> bool {
    // SAFETY: as above.
    unsafe { LED.get().as_ref() }.is_some_and(Flow::stopped)
}

/// Lives on the leader's stack for the time of a section; every participant and every nested section reads it.
///
/// What a participant of a native section reads is in one cache line, and what the leader writes meanwhile in another.
#[repr(C, align(64))]
pub(crate) struct Flow {
    /// A hint between chunks. The join of the section orders it, and the exceptions, for who settles the outcome.
    stopped: AtomicBool,
    /// The process that it began in.
    process: u32,
    /// The section around this one. It ends later: its body waits for this section.
    parent: *const Flow,
    /// The leading thread.
    leader: usize,
    /// What each participant of a native gang runs: beside what it reads before that.
    code: Cell<Option<Code>>,
    /// Where its bodies count as tasks, while a ledger records.
    account: Option<Arc<Account>>,
    /// The pool whose threads run the bodies; 0 for none.
    pool: u64,
    led: Led,
    errors: ForkLock<Vec<PyErr>>,
    /// Whether one of its bodies has the interpreter, or is about to.
    attached: AtomicBool,
}

/// What the leader alone touches.
#[repr(align(64))]
struct Led {
    /// Native chunks that it has run, as far as it counts them.
    chunks: Cell<u32>,
}

// SAFETY: `parent` outlives this section (see the field), `led` is touched by the leader alone, `code` too until it begins the
// section and by nobody afterwards, the rest is `Sync`.
unsafe impl Sync for Flow {}

impl Flow {
    /// The flow of a section that the calling thread leads now. `inherited` is the section that handed out the token, whose
    /// account is `account`.
    pub(crate) fn new(pool: u64, inherited: *const Flow, account: Option<Arc<Account>>) -> Flow {
        let current = CURRENT.get();
        Flow {
            stopped: AtomicBool::new(false),
            code: Cell::new(None),
            parent: if current.is_null() { inherited } else { current },
            leader: mark(),
            process: threadteam::forks(),
            account,
            pool,
            led: Led { chunks: Cell::new(0) },
            errors: ForkLock::new(Vec::new()),
            attached: AtomicBool::new(false),
        }
    }

    /// The gang section in which each participant runs `code`, led by the calling thread.
    pub(crate) fn gang_of(&self, code: Code) -> &impl Share {
        debug_assert!(self.is_led_here());
        self.code.set(Some(code));
        self
    }

    /// Whether a body forked, and this is the child: the section is the parent's.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != threadteam::forks()
    }

    /// Whether chunks that have not started are to be dropped.
    pub(crate) fn stopped(&self) -> bool {
        if self.is_forked() {
            return true;
        }
        let mut flow = self;
        loop {
            if flow.stopped.load(Ordering::Relaxed) {
                return true;
            }
            // SAFETY: a section ends before the one around it.
            match unsafe { flow.parent.as_ref() } {
                Some(parent) => flow = parent,
                None => return false,
            }
        }
    }

    /// A participant failed: the first exception wins, chunks not started are dropped.
    pub(crate) fn fail(&self, py: Python<'_>, error: PyErr) {
        // A section inside a body that was dropped because this one failed says so with `Cancelled`: no news.
        let echo = self.stopped() && is_cancelled(py, &error);
        let mut errors = self.errors.lock();
        let news = !echo || errors.is_empty();
        // An echo is dropped without the lock: it may be the last reference to Python objects.
        let error = if news {
            errors.push(error);
            None
        } else {
            Some(error)
        };
        drop(errors);
        drop(error);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The account of the token whose section this is.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    /// Counts the calling thread as a task of this section's token until the guard is dropped.
    pub(crate) fn task(&self) -> Option<Task> {
        self.account.as_ref().map(|account| account.enter())
    }

    /// Whether the calling thread leads this section.
    pub(crate) fn is_led_here(&self) -> bool {
        self.leader == mark()
    }

    /// Called by the leader before each of its native chunks: looks for signals when its thread's last look is long ago. The
    /// chunks of a section that ends at once (its own and one that nobody took) cost no clock.
    pub(crate) fn before_native_chunk(&self) {
        debug_assert!(self.is_led_here());
        let chunks = self.led.chunks.get();
        if chunks < 2 {
            self.led.chunks.set(chunks + 1);
            return;
        }
        let now = Instant::now();
        if LOOKED.get().is_none_or(|looked| now - looked >= SIGNALS_EVERY) {
            LOOKED.set(Some(now));
            self.look_for_signals();
        }
    }

    /// Runs pending signal handlers; their exception fails the section. Only the main thread has any.
    pub(crate) fn look_for_signals(&self) {
        attached(|py| {
            if let Err(error) = pending::run(py) {
                self.fail(py, error);
            }
        });
    }

    /// Runs a body that needs the interpreter, unless the section is being dropped. Its exception fails the section.
    /// Returns whether it ran and succeeded.
    pub(crate) fn body(&self, f: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
        if self.stopped() {
            return false;
        }
        let _turn = Turn::take(self);
        attached(|py| {
            let _within = Within::enter(self);
            let _task = self.task();
            // It may have failed while this thread waited for the interpreter.
            if self.stopped() {
                return false;
            }
            let outcome = f(py);
            let succeeded = outcome.is_ok();
            if let Err(error) = outcome {
                self.fail(py, error);
            }
            succeeded
        })
    }

    /// The section's outcome: its first exception, with the others as notes.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        // Every exception is noted before the section stops, and every participant has left.
        if self.stopped() {
            return self.failed(py);
        }
        Ok(())
    }

    #[cold]
    fn failed(&self, py: Python<'_>) -> PyResult<()> {
        let mut errors = std::mem::take(&mut *self.errors.lock()).into_iter();
        let Some(first) = errors.next() else {
            return Err(errors::raise(
                py,
                "Cancelled",
                "the section around this one failed, so the chunks not started were dropped; let this exception pass",
            ));
        };
        let (mut quoted, mut left) = (0, 0);
        for other in errors {
            if quoted == QUOTED {
                left += 1;
                continue;
            }
            quoted += 1;
            note(py, &first, &format!("another participant raised {other}"));
        }
        if left > 0 {
            note(py, &first, &format!("and {left} more"));
        }
        Err(first)
    }
}

impl Share for Flow {
    fn run(&self, index: usize, _size: usize) {
        if let Some(code) = self.code.get() {
            code.run_index(self, index);
        }
    }
}

/// A body's turn to have the interpreter, among those of its section.
///
/// Waiting for the interpreter's lock costs its holder a system call and the waiter several microseconds, much more than a
/// short body. So a participant first polls for a moment, unless another one is longer than that (or lets others have the
/// lock meanwhile). Turns save time and exclude nobody. Without that lock, on free-threaded builds, there are none.
struct Turn<'a>(Option<&'a AtomicBool>);

impl<'a> Turn<'a> {
    fn take(flow: &'a Flow) -> Turn<'a> {
        if cfg!(Py_GIL_DISABLED) {
            return Turn(None);
        }
        let attached = &flow.attached;
        let free = || !attached.load(Ordering::Relaxed) && !attached.swap(true, Ordering::Acquire);
        if free() {
            return Turn(Some(attached));
        }
        let since = Instant::now();
        while since.elapsed() < POLITE {
            if free() {
                return Turn(Some(attached));
            }
            std::hint::spin_loop();
        }
        Turn(None)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(attached) = self.0 {
            attached.store(false, Ordering::Release);
        }
    }
}

/// Runs `0..jobs` in waves, so that a section of very many jobs ends soon after its failure. There are far more jobs in a
/// wave than slots in any pool, so a single wave has the shares of the whole.
pub(crate) fn in_waves(flow: &Flow, jobs: usize, mut run: impl FnMut(Range<usize>)) {
    let mut start = 0;
    while start < jobs && !flow.stopped() {
        // A rest of few jobs would be dealt out as shares of more than one slot.
        let stop = if jobs - start < 2 * WAVE { jobs } else { start + WAVE };
        run(start..stop);
        start = stop;
    }
}

fn is_cancelled(py: Python<'_>, error: &PyErr) -> bool {
    errors::class(py, "Cancelled").is_ok_and(|class| error.is_instance(py, &class))
}

fn note(py: Python<'_>, error: &PyErr, text: &str) {
    let value: &Bound<'_, PyBaseException> = error.value(py);
    // An exception class may refuse notes; the exception itself matters more.
    let _ = attach::call_method(value.as_any(), "add_note", (text,));
}

/// Whether the calling thread leads a section of this pool or runs a body of one, at any depth.
pub(crate) fn inside(pool: u64) -> bool {
    [CURRENT.get(), LED.get()].into_iter().any(|mut flow| {
        // SAFETY: the chain consists of sections that wait for the thread.
        while let Some(section) = unsafe { flow.as_ref() } {
            if section.pool == pool {
                return true;
            }
            flow = section.parent;
        }
        false
    })
}

/// While it lives, the thread counts as inside a body of the section: closing the pool would wait for itself.
pub(crate) struct Within(*const Flow);

impl Within {
    pub(crate) fn enter(flow: &Flow) -> Within {
        Within(CURRENT.replace(flow))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// A number that differs between threads that live at the same time.
pub(crate) fn mark() -> usize {
    CURRENT.with(|cell| ptr::from_ref(cell) as usize)
}
