//! The start hook of a pool: a Python function that the workers call, and that the garbage collector sees.

use crate::arguments::{callable, shown};
use crate::attach;
use crate::collectable::Collectable;
use crate::deferred;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

/// `on_start(index)` on each worker as it starts.
pub(crate) struct StartHook {
    pub(crate) function: Collectable,
}

impl StartHook {
    /// The hook that `given` is.
    pub(crate) fn new(given: Bound<'_, PyAny>) -> PyResult<Arc<StartHook>> {
        callable(&given, "on_start")?;
        // Each worker would report it; here the caller hears of it. What a `lambda` returns is seen when it has.
        if attach::call_function(given.py(), "inspect", "iscoroutinefunction", (&given,))?.is_truthy()? {
            return Err(PyTypeError::new_err(format!(
                "on_start must be a plain function, got the asynchronous {}, which nobody would await",
                shown(&given)
            )));
        }
        Ok(Arc::new(StartHook { function: Collectable::new(given.unbind()) }))
    }

    /// Calls it on a worker. Nobody waits for it, so its exception is reported, not raised.
    pub(crate) fn call(&self, index: usize) {
        attach::attached(|py| {
            let Some(function) = self.function.get(py) else { return };
            let called = (index,).into_pyobject(py).and_then(|arguments| attach::call(&function, &arguments));
            let called = called.and_then(|result| deferred::refuse(&result, &function, "Pool(on_start=)"));
            if let Err(error) = called {
                error.write_unraisable(py, Some(&function));
            }
        });
    }
}
