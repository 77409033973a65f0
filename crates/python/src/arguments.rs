//! Arguments from Python that are no numbers, with errors that say what was given and what was expected.
//!
//! They come in as objects and are read here, because an error of PyO3's own conversion names the parameter in a note only. For
//! integers and times: [`numbers`](crate::numbers).

use crate::attach;
use crate::ending;
use crate::slots::room;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyString};
use pyo3::PyClass;
use std::fmt::Display;

/// An argument that may be left out, but not given as `None`.
pub(crate) enum Optional<'py> {
    LeftOut,
    Given(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Optional<'py> {
    type Error = std::convert::Infallible;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> Result<Self, Self::Error> {
        Ok(Optional::Given(given.to_owned()))
    }
}

impl<'py> Optional<'py> {
    /// What `read` makes of it, if it was given.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>) -> PyResult<Option<T>> {
        match self {
            Optional::LeftOut => Ok(None),
            Optional::Given(given) => read(given).map(Some),
        }
    }
}

/// `given` as an error shows it: the beginning of its `repr`.
pub(crate) fn shown(given: &Bound<'_, PyAny>) -> String {
    ending::watch();
    let repr = given.repr();
    let Some(text) = repr.as_ref().ok().and_then(|text| text.to_str().ok()) else { return "a value".to_owned() };
    if text.chars().nth(60).is_some() {
        return text.chars().take(57).chain("...".chars()).collect();
    }
    text.to_owned()
}

/// The error about an argument of the wrong type.
pub(crate) fn refusal(given: &Bound<'_, PyAny>, name: impl Display, expected: &str) -> PyErr {
    let kind = given.get_type().name().map_or_else(|_| "unknown".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{name} must be {expected}, got {} of type {kind}", shown(given)))
}

/// A string.
pub(crate) fn text(given: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let given = given.cast::<PyString>().map_err(|_| refusal(given, name, "a string"))?;
    // Half of a surrogate pair has no UTF-8.
    given.to_str().map(str::to_owned).map_err(|_| {
        PyValueError::new_err(format!("{name} must be a string of whole characters, got {}", shown(given)))
    })
}

/// Python's truth, or NumPy's.
pub(crate) fn truth(given: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    if let Ok(truth) = given.cast_exact::<PyBool>() {
        return Ok(truth.is_true());
    }
    ending::watch();
    given.extract::<bool>().map_err(|_| refusal(given, name, "True or False"))
}

/// An object of one of the package's classes.
pub(crate) fn instance<'a, 'py, T: PyClass>(
    given: &'a Bound<'py, PyAny>,
    name: &str,
    expected: &str,
) -> PyResult<&'a Bound<'py, T>> {
    given.cast::<T>().map_err(|_| refusal(given, name, expected))
}

/// Something to call.
pub(crate) fn callable(given: &Bound<'_, PyAny>, name: impl Display) -> PyResult<()> {
    if given.is_callable() {
        Ok(())
    } else {
        Err(refusal(given, name, "callable"))
    }
}

/// The items of any iterable.
pub(crate) fn items(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<Py<PyAny>>> {
    let py = given.py();
    ending::watch();
    // Asked first: a `TypeError` of the iteration itself is the caller's own.
    let iterator = given.try_iter().map_err(|error| match error.is_instance_of::<PyTypeError>(py) {
        true => refusal(given, name, "iterable"),
        false => error,
    })?;
    let list =
        attach::call(py.get_type::<PyList>().as_any(), &(iterator,).into_pyobject(py)?)?.cast_into::<PyList>()?;
    let mut items = room(list.len(), || format!("{} items of {name}", list.len()))?;
    items.extend(list.iter().map(Bound::unbind));
    Ok(items)
}
