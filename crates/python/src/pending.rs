//! What the interpreter has left to a waiting thread: signal handlers, and the ends of objects.
//!
//! A free-threaded interpreter has an object ended by the thread that made it, the next time that this one runs Python code, even if
//! another one dropped the last reference. A thread that waits below its Python code runs none meanwhile, and what it waits for may be such
//! an end: of the token that leads a team, of the team that holds the workers.

use crate::attach;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// A function that does nothing, made when the module is.
static NOTHING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let nothing = py.eval(c"lambda: None", None, None)?;
    NOTHING.get_or_init(py, || nothing.unbind());
    Ok(())
}

/// Does what is left to the calling thread. Called about every 50 ms by whoever waits; signal handlers may raise.
pub(crate) fn run(py: Python<'_>) -> PyResult<()> {
    py.check_signals()?;
    if !cfg!(Py_GIL_DISABLED) {
        return Ok(());
    }
    // Python code looks for what is left to do before its first step.
    let Some(nothing) = NOTHING.get(py) else { return Ok(()) };
    attach::call(nothing.bind(py), &PyTuple::empty(py)).map(drop)
}

/// Does what is left to all threads, those included that sleep: a collection takes their part.
pub(crate) fn run_for_all(py: Python<'_>) -> PyResult<()> {
    if cfg!(Py_GIL_DISABLED) {
        attach::call_method(py.import("gc")?.as_any(), "collect", ())?;
    }
    Ok(())
}
