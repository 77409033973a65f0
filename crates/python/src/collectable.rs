//! A Python function held by Rust, where the garbage collector sees it.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A function that may be part of a cycle of garbage.
pub(crate) struct Collectable {
    /// `None` once the garbage collector has broken the cycle that the function was part of.
    function: Mutex<Option<Py<PyAny>>>,
}

impl Collectable {
    pub(crate) fn new(function: Py<PyAny>) -> Self {
        Collectable { function: Mutex::new(Some(function)) }
    }

    /// The function, unless it was collected.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner);
        function.as_ref().map(|function| function.bind(py).clone())
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
