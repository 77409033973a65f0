//! A Python callable as participants call it: in the context of the thread that started the section.

use crate::arguments;
use crate::attach;
use crate::body::NativeBody;
use crate::deferred;
use crate::ending;
use crate::flow::Flow;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// A callable, and the context variables that its caller had set.
///
/// Without them a worker would not see, for instance, the caller's `numpy.errstate` or decimal context.
pub(crate) struct Callable {
    function: Py<PyAny>,
    /// None when no variable is set, which is the usual case and costs a call nothing.
    context: Option<Py<PyAny>>,
    /// The entry that it is a body of.
    operation: &'static str,
}

/// `contextvars.copy_context`, looked up when the module is made.
pub(crate) fn copy_context(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FUNCTION.import(py, "contextvars", "copy_context")
}

impl Callable {
    pub(crate) fn new(function: &Bound<'_, PyAny>, operation: &'static str) -> PyResult<Callable> {
        ending::watch();
        let context = copy_context(function.py())?.call0()?;
        let context = (context.len()? > 0).then(|| context.unbind());
        Ok(Callable { function: function.clone().unbind(), context, operation })
    }

    /// The callable that the argument `name` is: for bodies that are handed Python objects.
    pub(crate) fn body(given: &Bound<'_, PyAny>, name: &str, operation: &'static str) -> PyResult<Callable> {
        if given.cast_exact::<NativeBody>().is_ok() {
            return Err(PyTypeError::new_err(format!(
                "{operation} hands its body Python objects, so native code cannot be one; pass a Python callable"
            )));
        }
        arguments::callable(given, format_args!("{name} of {operation}"))?;
        Callable::new(given, operation)
    }

    /// Calls it for a participant of `flow`, as a body that is done when the call returns.
    pub(crate) fn run(&self, py: Python<'_>, flow: &Flow, arguments: Bound<'_, PyTuple>) -> PyResult<()> {
        let result = self.call(py, flow, arguments)?;
        match deferred::refuse(&result, self.function.bind(py), self.operation) {
            // Every participant meets this: one says so.
            Err(_) if flow.stopped() => Ok(()),
            outcome => outcome,
        }
    }

    /// Calls it for a participant of `flow`, as a function that has done its work when its result is used.
    pub(crate) fn result<'py>(
        &self,
        py: Python<'py>,
        flow: &Flow,
        arguments: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let result = self.call(py, flow, arguments)?;
        deferred::refuse_awaitable(&result, self.function.bind(py), self.operation)?;
        Ok(result)
    }

    /// Calls it for a participant of `flow`, whatever it returns. The leader has its context already.
    pub(crate) fn call<'py>(
        &self,
        py: Python<'py>,
        flow: &Flow,
        arguments: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(py);
        let Some(context) = self.context.as_ref().filter(|_| !flow.is_led_here()) else {
            return attach::call(function, &arguments);
        };
        // A context is entered by one thread at a time, so each call has a copy (which shares its contents).
        let run = attach::call_method(context.bind(py), "copy", ())?.getattr("run")?;
        let with_function = PyTuple::new(py, std::iter::once(function.clone()).chain(&arguments).collect::<Vec<_>>())?;
        attach::call(&run, &with_function)
    }
}
