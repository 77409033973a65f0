//! Integers and times from Python, with errors that say what was given and what was expected.

use crate::arguments::{items, refusal, shown};
use crate::ending;
use crate::slots::{list, room};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
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
            return Err(refusal(given, name, "an integer"));
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
        return Err(refusal(given, name, "a time in seconds"));
    }
    given.extract::<f64>().map_err(|error| {
        let py = given.py();
        if error.is_instance_of::<PyOverflowError>(py) {
            return no_time(name, &shown(given));
        }
        if error.is_instance_of::<PyTypeError>(py) {
            return refusal(given, name, "a time in seconds");
        }
        // What the object's own `__float__` raised, an interrupt perhaps.
        error
    })
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
        // More are not shown of any list.
        let given = self.given.iter().take(30).map(|given| given.clone_ref(py));
        list(py, given).map_or_else(|_| "a list".to_owned(), |list| shown(&list))
    }
}

/// Integers of at least one, from any iterable.
pub(crate) fn sizes(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Sizes> {
    let (py, given) = (given.py(), items(given, name)?);
    let mut numbers = room(given.len(), || format!("{} numbers of {name}", given.len()))?;
    for item in &given {
        numbers.push(at_least_one(item.bind(py), name)?.get());
    }
    Ok(Sizes { numbers, given })
}
