//! Integers and times from Python, with errors that say what was given and what was expected.

use crate::attach;
use crate::ending;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList};
use std::num::NonZeroUsize;
use std::time::Duration;

/// An integer of any size, from an `int` or anything with `__index__`; beyond 64 bits it saturates.
fn integer(given: &Bound<'_, PyAny>, name: &str) -> PyResult<i64> {
    if let Ok(number) = given.cast_exact::<PyInt>() {
        return Ok(saturated(number));
    }
    ending::watch();
    let py = given.py();
    // SAFETY: `given` is a live reference and the thread is attached.
    let index: PyResult<Bound<'_, PyAny>> =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(given.as_ptr())) };
    let index = match index {
        Ok(index) => index,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            let kind = given.get_type();
            return Err(PyTypeError::new_err(format!(
                "{name} must be an integer, got {} of type {}",
                shown(given),
                kind.name()?
            )));
        }
        // What the object's own `__index__` raised, an interrupt perhaps.
        Err(error) => return Err(error),
    };
    Ok(saturated(index.cast::<PyInt>()?))
}

/// The nearest 64-bit number.
fn saturated(number: &Bound<'_, PyInt>) -> i64 {
    let mut beyond = 0;
    // SAFETY: a live reference to an integer on an attached thread, for which this call never raises.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &raw mut beyond) };
    match beyond {
        0 => value,
        1.. => i64::MAX,
        _ => i64::MIN,
    }
}

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
    let text = given.repr().map_or_else(|_| "a value".to_owned(), |text| text.to_string());
    if text.chars().count() > 60 {
        return text.chars().take(57).chain("...".chars()).collect();
    }
    text
}

/// A count of at least one; larger than the machine counts saturates.
pub(crate) fn at_least_one(given: &Bound<'_, PyAny>, name: &str) -> PyResult<NonZeroUsize> {
    usize::try_from(integer(given, name)?)
        .ok()
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| PyValueError::new_err(format!("{name} must be at least 1, got {}", shown(given))))
}

/// A count of at least zero, at most `2**63 - 1`.
pub(crate) fn length(given: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    let number = integer(given, name)?;
    if number == i64::MAX && given.gt(i64::MAX)? {
        return Err(PyOverflowError::new_err(format!("{name} must be at most 2**63 - 1, got {}", shown(given))));
    }
    usize::try_from(number)
        .map_err(|_| PyValueError::new_err(format!("{name} must not be negative, got {}", shown(given))))
}

/// A count of at least zero that fits 32 bits.
pub(crate) fn small_count(given: &Bound<'_, PyAny>, name: &str) -> PyResult<u32> {
    u32::try_from(integer(given, name)?).map_err(|_| {
        PyValueError::new_err(format!("{name} must be an integer from 0 to {}, got {}", u32::MAX, shown(given)))
    })
}

/// A time in seconds, of any Python number that is finite and not negative. Times come in through here alone.
pub(crate) fn time(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    seconds(float(given, name)?, name)
}

/// [`time`], unless it is left out.
pub(crate) fn optional_time(given: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<Duration>> {
    given.map(|given| time(given, name)).transpose()
}

/// [`time`], or infinity for "never", which is [`Duration::MAX`].
pub(crate) fn time_or_never(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    let number = float(given, name)?;
    if number == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    seconds(number, name)
}

fn seconds(given: f64, name: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given).map_err(|_| no_time(name, &given.to_string()))
}

fn float(given: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
    if let Ok(number) = given.cast_exact::<PyFloat>() {
        return Ok(number.value());
    }
    ending::watch();
    // Python's truth and NumPy's, both of which have a `__float__`.
    if given.extract::<bool>().is_ok() {
        return Err(no_number(given, name));
    }
    given.extract::<f64>().map_err(|error| {
        let py = given.py();
        if error.is_instance_of::<PyOverflowError>(py) {
            return no_time(name, &shown(given));
        }
        if error.is_instance_of::<PyTypeError>(py) {
            return no_number(given, name);
        }
        // What the object's own `__float__` raised, an interrupt perhaps.
        error
    })
}

fn no_number(given: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let kind = given.get_type().name().map_or_else(|_| "unknown".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{name} must be a time in seconds, got {} of type {kind}", shown(given)))
}

fn no_time(name: &str, given: &str) -> PyErr {
    PyValueError::new_err(format!("{name} must be a time in seconds, finite and zero or more, got {given}"))
}

/// `Duration` as Python's seconds; [`Duration::MAX`], "never", is infinity.
pub(crate) fn as_seconds(time: Duration) -> f64 {
    if time == Duration::MAX {
        return f64::INFINITY;
    }
    time.as_secs_f64()
}

/// Integers of at least one, and the objects that they were.
pub(crate) struct Sizes {
    pub(crate) numbers: Vec<usize>,
    given: Vec<Py<PyAny>>,
}

impl Sizes {
    /// What was given, for an error: a number beyond what the machine counts as itself.
    pub(crate) fn shown(&self, py: Python<'_>) -> String {
        PyList::new(py, &self.given).map_or_else(|_| "a list".to_owned(), |list| shown(&list))
    }
}

/// Integers of at least one, from any iterable.
pub(crate) fn sizes(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Sizes> {
    let (py, given) = (given.py(), items(given)?);
    let numbers =
        given.iter().map(|item| at_least_one(item.bind(py), name).map(NonZeroUsize::get)).collect::<PyResult<_>>()?;
    Ok(Sizes { numbers, given })
}

/// The items of any iterable.
pub(crate) fn items(given: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
    let py = given.py();
    let list = attach::call(py.get_type::<PyList>().as_any(), &(given,).into_pyobject(py)?)?.cast_into::<PyList>()?;
    Ok(list.iter().map(Bound::unbind).collect())
}
