//! Looking into capsules that other extensions made.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;

/// The name, the pointer and the context of a capsule, for `threadteam._bodies`.
#[pyfunction]
#[pyo3(name = "_capsule")]
pub(crate) fn capsule(capsule: &Bound<'_, PyCapsule>) -> PyResult<(Option<String>, usize, usize)> {
    let py = capsule.py();
    // SAFETY: `capsule` is a live capsule and the thread is attached; the name is a C string that lives as long as it.
    let (name, pointer, context) = unsafe {
        let name = ffi::PyCapsule_GetName(capsule.as_ptr());
        let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name);
        let context = ffi::PyCapsule_GetContext(capsule.as_ptr());
        let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
        (name, pointer as usize, context as usize)
    };
    match PyErr::take(py) {
        Some(error) => Err(error),
        None => Ok((name, pointer, context)),
    }
}
