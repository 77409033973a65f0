//! Results that several participants fill in.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// One result for each index, written once each by whoever has the interpreter.
pub(crate) struct Slots(Mutex<Vec<Option<Py<PyAny>>>>);

impl Slots {
    pub(crate) fn new(count: usize, what: &str) -> PyResult<Self> {
        let mut slots = room(count, what)?;
        slots.resize_with(count, || None);
        Ok(Slots(Mutex::new(slots)))
    }

    pub(crate) fn put(&self, index: usize, value: Py<PyAny>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(value);
    }

    /// All of them: a section that did not fail ran every index.
    pub(crate) fn take(self) -> Vec<Py<PyAny>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
    }
}

/// Room for `count` items, or `MemoryError`: counts come from users.
fn room<T>(count: usize, what: &str) -> PyResult<Vec<T>> {
    let mut items = Vec::new();
    items
        .try_reserve_exact(count)
        .map_err(|_| PyMemoryError::new_err(format!("no memory for {count} {what}; use larger chunks")))?;
    Ok(items)
}
