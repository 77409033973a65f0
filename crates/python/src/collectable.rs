//! A Python function held by Rust, where the garbage collector sees it.

use crate::ending;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use threadteam::ForkLock;

/// A function that may be part of a cycle of garbage.
pub(crate) struct Collectable {
    /// `None` once the garbage collector has broken the cycle that the function was part of.
    function: ForkLock<Option<Py<PyAny>>>,
}

impl Drop for Collectable {
    fn drop(&mut self) {
        // Whatever thread drops it may run the function's finaliser.
        ending::watch();
    }
}

impl Collectable {
    pub(crate) fn new(function: Py<PyAny>) -> Self {
        Collectable { function: ForkLock::new(Some(function)) }
    }

    /// The function, unless it was collected.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let function = self.function.lock();
        function.as_ref().map(|function| function.bind(py).clone())
    }

    /// Shows the function to the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever has the lock is attached and about to give it up: it neither runs Python code nor detaches meanwhile, so a
        // collection that stopped the other threads did not stop it there.
        visit.call(&*self.function.lock())
    }

    /// Lets the function go.
    pub(crate) fn clear(&self) {
        let function = self.function.lock().take();
        drop(function);
    }
}
