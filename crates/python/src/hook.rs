//! The start hook of a pool: a Python function that the workers call, and that the garbage collector sees.

use crate::attach;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// `on_start(index)` on each worker as it starts.
pub(crate) struct StartHook {
    /// `None` once the garbage collector has broken the cycle that the function was part of.
    function: Mutex<Option<Py<PyAny>>>,
}

impl StartHook {
    /// The hook that `given` is.
    pub(crate) fn new(given: Bound<'_, PyAny>) -> PyResult<Arc<StartHook>> {
        if !given.is_callable() {
            let kind = given.get_type();
            return Err(PyTypeError::new_err(format!("on_start must be callable, got {}", kind.name()?)));
        }
        Ok(Arc::new(StartHook { function: Mutex::new(Some(given.unbind())) }))
    }

    fn function<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner);
        function.as_ref().map(|function| function.bind(py).clone())
    }

    /// Calls it on a worker. Nobody waits for it, so its exception is reported, not raised.
    pub(crate) fn call(&self, index: usize) {
        attach::attached(|py| {
            let Some(function) = self.function(py) else { return };
            let called = (index,).into_pyobject(py).and_then(|arguments| attach::call(&function, &arguments));
            if let Err(error) = called {
                error.write_unraisable(py, Some(&function));
            }
        });
    }

    /// Shows the function to the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The lock is only held by a thread that holds the interpreter's, so it is free; if it is not, the function is
        // in use and not garbage.
        match self.function.try_lock() {
            Ok(function) => visit.call(&*function),
            Err(_) => Ok(()),
        }
    }

    /// Lets the function go.
    pub(crate) fn clear(&self) {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(function);
    }
}
