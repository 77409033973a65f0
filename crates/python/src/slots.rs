//! Results that several participants fill in.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// One result for each index, written once each: participants share no lock, which a fork could find held.
pub(crate) struct Slots(Vec<OnceLock<Py<PyAny>>>);

impl Slots {
    pub(crate) fn new(count: usize, what: &str) -> PyResult<Self> {
        let mut slots = room(count, || format!("{count} {what}; use larger chunks"))?;
        slots.resize_with(count, OnceLock::new);
        Ok(Slots(slots))
    }

    pub(crate) fn put(&self, index: usize, value: Py<PyAny>) {
        let earlier = self.0[index].set(value);
        debug_assert!(earlier.is_ok(), "every index is run once");
    }

    /// All of them, where a section did not fail.
    pub(crate) fn take(self) -> impl ExactSizeIterator<Item = Py<PyAny>> {
        self.0.into_iter().map(|slot| slot.into_inner().expect("a section that does not fail runs every index"))
    }
}

/// A list of objects. PyO3's own way panics when there is no memory for one.
pub(crate) fn list(py: Python<'_>, items: impl ExactSizeIterator<Item = Py<PyAny>>) -> PyResult<Bound<'_, PyAny>> {
    let length = items.len().try_into()?;
    // SAFETY: the thread is attached; the list is new, or null with an exception set.
    let list = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyList_New(length)) }?;
    for (at, item) in (0..length).zip(items) {
        // SAFETY: the list is this function's, and has an empty place at each index below its length.
        unsafe { ffi::PyList_SetItem(list.as_ptr(), at, item.into_ptr()) };
    }
    Ok(list)
}

/// Room for `count` items, or `MemoryError` with what there is no memory for: counts come from users, and an allocation that cannot
/// fail would end the process.
pub(crate) fn room<T>(count: usize, what: impl FnOnce() -> String) -> PyResult<Vec<T>> {
    let mut items = Vec::new();
    items.try_reserve_exact(count).map_err(|_| PyMemoryError::new_err(format!("no memory for {}", what())))?;
    Ok(items)
}
