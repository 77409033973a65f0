//! Raising the exceptions that the Python half of the package defines.

use crate::attach;
use crate::ending;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use std::any::Any;
use threadteam::{Error, Refused};

/// The names of `threadteam.errors` from the exit hook on: finalisers still need them when the modules are gone.
static KEPT: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Keeps what the end of the interpreter takes from the modules.
pub(crate) fn keep(py: Python<'_>) -> PyResult<()> {
    let names = py.import("threadteam.errors")?.dict().copy()?;
    // Set once only: the hook runs once.
    let _ = KEPT.set(py, names.unbind());
    Ok(())
}

/// A class of `threadteam.errors`, looked up by name: errors are rare, so nothing is cached.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    ending::watch();
    match KEPT.get(py) {
        Some(names) => names.bind(py).as_any().get_item(name),
        None => py.import("threadteam.errors")?.getattr(name),
    }
}

/// An exception of `threadteam.errors`.
pub(crate) fn raise(py: Python<'_>, class: &str, message: impl Into<String>) -> PyErr {
    build(py, class, || (message.into(),).into_pyobject(py))
}

fn build<'py>(py: Python<'py>, class: &str, arguments: impl FnOnce() -> PyResult<Bound<'py, PyTuple>>) -> PyErr {
    let made = || Ok(PyErr::from_value(attach::call(&self::class(py, class)?, &arguments()?)?));
    made().unwrap_or_else(|error| error)
}

/// `Refused`, or another class that carries a reason.
pub(crate) fn refused(py: Python<'_>, class: &str, what: &str, reason: Refused) -> PyErr {
    let (member, advice) = match reason {
        Refused::ForkChild => ("FORK_CHILD", "take the path without barriers, or use a token of a Team"),
        Refused::CallerInPool => ("CALLER_IN_POOL", "call it from the thread that holds the root token"),
        Refused::Busy => ("BUSY", "wait until the token that leads the team is closed"),
        _ => ("UNAVAILABLE", "take the path without barriers, or try again when the pool is idle"),
    };
    reasoned(py, class, format!("{what} was refused: {reason}; {advice}"), member)
}

/// `IntoTeamError`, because a token of the pool is lent or inside an entry.
pub(crate) fn refused_by_tokens(py: Python<'_>, what: &str) -> PyErr {
    let message = format!(
        "{what} was refused: a token of the pool is lent or inside an entry; wait for the end of the entry, or close the loan"
    );
    reasoned(py, "IntoTeamError", message, "BUSY")
}

fn reasoned(py: Python<'_>, class: &str, message: String, member: &str) -> PyErr {
    build(py, class, || (message, self::class(py, "RefusedReason")?.getattr(member)?).into_pyobject(py))
}

/// What the runtime refused to do with its arguments or its threads.
pub(crate) fn from_core(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::ThreadStart { started, wanted, .. } => {
            let (started, wanted) = (*started, *wanted);
            let message = format!(
                "{error}; the pool goes on with {} participants: raise the process limit (ulimit -u), or make a narrower pool",
                started + 1
            );
            build(py, "ThreadStartError", || (message, started, wanted).into_pyobject(py))
        }
        Error::InvalidSplit => raise(py, "SplitError", error.to_string()),
        _ => pyo3::exceptions::PyValueError::new_err(error.to_string()),
    }
}

/// A panic of native code that crossed a section, as an exception.
pub(crate) fn from_panic(py: Python<'_>, payload: &(dyn Any + Send)) -> PyErr {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    raise(py, "InternalError", format!("threadteam's native code panicked: {text}; please report this"))
}
