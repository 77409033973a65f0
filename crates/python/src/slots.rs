//! Results that several participants fill in.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// One result for each index, written once each: participants share no lock, which a fork could find held.
pub(crate) struct Slots(Vec<OnceLock<Py<PyAny>>>);

impl Slots {
    pub(crate) fn new(count: usize, what: &str) -> PyResult<Self> {
        let mut slots = room(count, what)?;
        slots.resize_with(count, OnceLock::new);
        Ok(Slots(slots))
    }

    pub(crate) fn put(&self, index: usize, value: Py<PyAny>) {
        let earlier = self.0[index].set(value);
        debug_assert!(earlier.is_ok(), "every index is run once");
    }

    /// All of them: a section that did not fail ran every index.
    pub(crate) fn take(self) -> Vec<Py<PyAny>> {
        self.0.into_iter().filter_map(OnceLock::into_inner).collect()
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
