//! Results that stand for work which has not been done: what the call of an asynchronous function or of a generator returns.
//!
//! Looked at after the call, which runs nothing of such a function, because a look at every function before would cost each
//! section a tenth of its time, and would not see what a `lambda` or a `functools.partial` returns.

use crate::arguments::shown;
use crate::attach;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The type of one of `types`' names, looked up when the module is made.
fn generator<'py>(py: Python<'py>, asynchronous: bool) -> PyResult<&'py Bound<'py, PyType>> {
    static PLAIN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static ASYNCHRONOUS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if asynchronous {
        ASYNCHRONOUS.import(py, "types", "AsyncGeneratorType")
    } else {
        PLAIN.import(py, "types", "GeneratorType")
    }
}

/// Looks up what sections would otherwise look up at their first result.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    generator(py, false).and(generator(py, true)).map(drop)
}

/// Whether `result` can be awaited: a coroutine, a task, a future.
fn is_awaitable(result: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the type of a live object, and a slot that every version has; of an absent one the answer is null.
    !unsafe { ffi::PyType_GetSlot(ffi::Py_TYPE(result.as_ptr()), ffi::Py_am_await) }.is_null()
}

/// Refuses what nobody would await: the result of a function whose results are used.
pub(crate) fn refuse_awaitable(result: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>, operation: &str) -> PyResult<()> {
    if result.is_none() || !is_awaitable(result) {
        return Ok(());
    }
    Err(refusal(result, of, operation, "await"))
}

/// Refuses what nobody would await or iterate: the result of a body, whose results are dropped.
pub(crate) fn refuse(result: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>, operation: &str) -> PyResult<()> {
    if result.is_none() {
        return Ok(());
    }
    refuse_awaitable(result, of, operation)?;
    let kind = result.get_type();
    if kind.is(generator(result.py(), false)?) || kind.is(generator(result.py(), true)?) {
        return Err(refusal(result, of, operation, "iterate"));
    }
    Ok(())
}

#[cold]
fn refusal(result: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>, operation: &str, verb: &str) -> PyErr {
    let kind = result.get_type().name().map_or_else(|_| "a deferred result".to_owned(), |name| name.to_string());
    // A coroutine that is dropped as it is warns that it was never awaited; a future has no `close`.
    let _ = attach::call_method(result, "close", ());
    PyTypeError::new_err(format!(
        "{operation} got {}, which returned an object of type {kind} that nobody would {verb}; pass a plain function that does its \
         work before it returns (asyncio.run inside it runs what is asynchronous)",
        shown(of)
    ))
}
