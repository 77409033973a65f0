//! Workers and the interpreter: attaching them cheaply, and calling Python from them.

use crate::{ending, life};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::Cell;
use std::ptr::NonNull;

thread_local! {
    /// The interpreter's state of a worker thread, kept from its first body to its end.
    ///
    /// Without it each attach would make a thread state and each detach destroy it, about a microsecond a body.
    static KEPT: Cell<Option<NonNull<ffi::PyThreadState>>> = const { Cell::new(None) };
    static ENDS: EndOfThread = const { EndOfThread };
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// Whether the section that the thread leads kept the interpreter.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, the bodies that this thread runs find it attached (or, after `false`, attach it themselves).
pub(crate) struct KeepsInterpreter(bool);

impl KeepsInterpreter {
    pub(crate) fn set(keeps: bool) -> Self {
        KeepsInterpreter(KEEPS.replace(keeps))
    }
}

impl Drop for KeepsInterpreter {
    fn drop(&mut self) {
        KEEPS.set(self.0);
    }
}

struct EndOfThread;

impl Drop for EndOfThread {
    fn drop(&mut self) {
        let_go();
    }
}

/// Gives the worker's state back to the interpreter: what Python code keeps for the thread ends with the pool, though the
/// thread may serve another one.
pub(crate) fn let_go() {
    let Ok(Some(kept)) = KEPT.try_with(Cell::take) else { return };
    IS_WORKER.set(false);
    // At its end the interpreter frees the states of all threads itself.
    let Some(_visit) = life::Visit::begin_unless_closing() else { return };
    // SAFETY: `keep` made the state for this thread, which is not attached; the release takes back the count of one that a new
    // state has, and so ends it.
    unsafe {
        ffi::PyEval_RestoreThread(kept.as_ptr());
        ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_UNLOCKED);
    }
}

/// Whether the calling thread is a pool's worker that has run a Python body.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Runs `f` with the interpreter, on any thread. Never returns once the interpreter is ending.
pub(crate) fn attached<R>(f: impl FnOnce(Python<'_>) -> R) -> R {
    if KEEPS.get() {
        // SAFETY: the section that this thread leads did not detach it, and nothing below it did: see `KeepsInterpreter`.
        return f(unsafe { Python::assume_attached() });
    }
    let _visit = life::Visit::begin();
    if !IS_WORKER.get() {
        ending::watch();
        // SAFETY: asks for the calling thread's own state; needs no interpreter lock.
        if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            keep();
        }
    }
    Python::attach(f)
}

#[cold]
fn keep() {
    KEPT.set(life::new_thread_state());
    IS_WORKER.set(true);
    ENDS.with(|_| ());
}

/// Calls a Python callable from any attached thread.
pub(crate) fn call<'py>(function: &Bound<'py, PyAny>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    ending::watch();
    function.call1(arguments)
}

/// Calls a method of a Python object.
pub(crate) fn call_method<'py, A>(object: &Bound<'py, PyAny>, name: &str, arguments: A) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>>,
    PyErr: From<A::Error>,
{
    ending::watch();
    call(&object.getattr(name)?, &arguments.into_pyobject(object.py())?)
}

/// Calls a function of a module of the package.
pub(crate) fn call_function<'py, A>(
    py: Python<'py>,
    module: &str,
    name: &str,
    arguments: A,
) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>>,
    PyErr: From<A::Error>,
{
    call_method(&part(py, module)?, name, arguments)
}

/// A module of the package, imported now if nobody needed it before: a fork waits for that.
pub(crate) fn part<'py>(py: Python<'py>, module: &str) -> PyResult<Bound<'py, PyAny>> {
    call_method(py.import("threadteam._forks")?.as_any(), "load", (module,))
}
