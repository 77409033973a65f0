//! Sections dispatched through an OpenMP runtime, so that a comparison differs in the execution system alone.
//!
//! `GOMP_parallel` is what GCC compiles `#pragma omp parallel` to; libgomp, libomp and libiomp5 all export it.

use std::any::Any;
use std::error::Error;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;

use libloading::Library;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use threadteam::trace::Trace;
use threadteam::{Foreign, ForkLock};

use crate::ending::Watched;
use crate::trace::PyTrace;

type Outlined = unsafe extern "C" fn(*mut c_void);
type Parallel = unsafe extern "C" fn(Outlined, *mut c_void, c_uint, c_uint);
type Query = unsafe extern "C" fn() -> c_int;
type Setting = unsafe extern "C" fn(c_int);

/// The functions of a loaded runtime.
#[derive(Clone, Copy)]
struct Symbols {
    parallel: Parallel,
    thread_number: Query,
    team_size: Query,
    set_threads: Setting,
    set_dynamic: Setting,
}

impl Symbols {
    fn of(library: &Library) -> Result<Symbols, libloading::Error> {
        // SAFETY: the OpenMP specification gives these functions these signatures, and GCC's ABI that of
        // `GOMP_parallel`; whoever exports a name promises its contract.
        unsafe {
            Ok(Symbols {
                parallel: *library.get::<Parallel>(c"GOMP_parallel")?,
                thread_number: *library.get::<Query>(c"omp_get_thread_num")?,
                team_size: *library.get::<Query>(c"omp_get_num_threads")?,
                set_threads: *library.get::<Setting>(c"omp_set_num_threads")?,
                set_dynamic: *library.get::<Setting>(c"omp_set_dynamic")?,
            })
        }
    }
}

/// An OpenMP runtime as an execution system: what `on=` accepts besides pools and tokens, for comparisons.
#[pyclass(frozen, module = "threadteam._native")]
pub(crate) struct OpenMp {
    symbols: Symbols,
    width: usize,
    path: String,
    trace: Option<Arc<Trace>>,
}

#[pymethods]
impl OpenMp {
    /// Loads the runtime at `path`, a file or a name that the loader finds; sections use up to `threads` threads of it
    /// and are recorded in `trace`.
    #[new]
    #[pyo3(signature = (path, threads, trace = None))]
    fn new(path: String, threads: Watched<usize>, trace: Option<&PyTrace>) -> PyResult<OpenMp> {
        let threads = threads.0;
        if threads == 0 || c_int::try_from(threads).is_err() {
            return Err(PyValueError::new_err(format!(
                "an OpenMP team has 1 to {} threads, not {threads}",
                c_int::MAX
            )));
        }
        let refuse = |error: libloading::Error| {
            let cause = error.source().map_or(error.to_string(), ToString::to_string);
            PyOSError::new_err(format!("{path} is no usable OpenMP runtime: {cause}"))
        };
        // SAFETY: loading runs the library's initialisers, as linking against it would.
        let library = unsafe { Library::new(&path) }.map_err(refuse)?;
        // Its workers outlive every section and run its code, so it is never unloaded.
        let library = ManuallyDrop::new(library);
        let symbols = Symbols::of(&library).map_err(refuse)?;
        Ok(OpenMp { symbols, width: threads, path, trace: trace.map(|trace| Arc::clone(trace.core())) })
    }

    /// Threads of a section, the caller included.
    #[getter]
    fn width(&self) -> usize {
        self.width
    }

    /// What was loaded.
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    fn __repr__(&self) -> String {
        format!("OpenMp({:?}, {})", self.path, self.width)
    }
}

/// One parallel region, as its outlined function sees it.
struct Region<'a> {
    share: &'a (dyn Fn(usize) + Sync),
    shares: usize,
    symbols: Symbols,
    panic: ForkLock<Option<Box<dyn Any + Send>>>,
}

impl Foreign for OpenMp {
    fn width(&self) -> usize {
        self.width
    }

    fn dispatch(&self, threads: usize, share: &(dyn Fn(usize) + Sync)) {
        let region = Region { share, shares: threads, symbols: self.symbols, panic: ForkLock::new(None) };
        let data = std::ptr::from_ref(&region).cast_mut().cast();
        let count = c_uint::try_from(threads).expect("checked against c_int when the object was made");
        // SAFETY: `GOMP_parallel` calls `outlined(data)` on each thread of a team and returns when all have returned, so
        // `region` outlives every use. The settings are the calling thread's own.
        unsafe {
            (self.symbols.set_dynamic)(0);
            (self.symbols.set_threads)(threads as c_int);
            (self.symbols.parallel)(outlined, data, count, 0);
        }
        if let Some(payload) = region.panic.into_inner() {
            resume_unwind(payload);
        }
    }

    fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }
}

/// The body of the region: the share of the calling thread's number.
///
/// # Safety
///
/// `data` must be the address of a live `Region`, and the caller a thread of its team.
unsafe extern "C" fn outlined(data: *mut c_void) {
    // SAFETY: the caller's contract.
    let region = unsafe { &*data.cast::<Region<'_>>() };
    // SAFETY: queries without arguments, on a thread of the team.
    let (number, size) = unsafe { ((region.symbols.thread_number)(), (region.symbols.team_size)()) };
    let (number, size) = (number.max(0) as usize, size.max(1) as usize);
    // A runtime may give fewer threads than were asked for; then some run several shares.
    let shares = (number..region.shares).step_by(size);
    // A panic must not unwind through the runtime's own frames.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| shares.for_each(|share| (region.share)(share)))) {
        region.panic.lock().get_or_insert(payload);
    }
}
