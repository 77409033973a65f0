//! How members wait, as Python says it.

use crate::numbers::seconds;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::time::Duration;
use threadteam::{WaitOverride, WaitPolicy};

/// How idle members wait: spinning for `idle_spin` seconds, then parked.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> with tt.Pool(2, wait=tt.WaitPolicy(idle_spin=0)) as pool:
/// ...     pool.wait_policy
/// WaitPolicy(idle_spin=0)
#[pyclass(frozen, eq, hash, module = "threadteam", name = "WaitPolicy")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyWaitPolicy {
    idle_spin: Duration,
}

impl From<WaitPolicy> for PyWaitPolicy {
    fn from(policy: WaitPolicy) -> Self {
        PyWaitPolicy { idle_spin: policy.idle_spin() }
    }
}

#[pymethods]
impl PyWaitPolicy {
    #[new]
    #[pyo3(signature = (idle_spin = None))]
    fn new(idle_spin: Option<f64>) -> PyResult<Self> {
        let default = WaitPolicy::DEFAULT.idle_spin();
        Ok(PyWaitPolicy { idle_spin: idle_spin.map_or(Ok(default), |spin| seconds(spin, "idle_spin"))? })
    }

    /// Seconds that an idle member spins before it parks.
    #[getter]
    fn idle_spin(&self) -> f64 {
        self.idle_spin.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("WaitPolicy(idle_spin={})", self.idle_spin.as_secs_f64())
    }

    fn __getnewargs__(&self) -> (f64,) {
        (self.idle_spin(),)
    }
}

/// A partial `WaitPolicy`: what it leaves out stays as it was.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team(wait=tt.WaitOverride(idle_spin=0.005)) as team:
/// ...     team.policy
/// WaitPolicy(idle_spin=0.005)
#[pyclass(frozen, eq, hash, module = "threadteam", name = "WaitOverride")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyWaitOverride {
    idle_spin: Option<Duration>,
}

#[pymethods]
impl PyWaitOverride {
    #[new]
    #[pyo3(signature = (*, idle_spin = None))]
    fn new(idle_spin: Option<f64>) -> PyResult<Self> {
        Ok(PyWaitOverride { idle_spin: idle_spin.map(|spin| seconds(spin, "idle_spin")).transpose()? })
    }

    /// Seconds that an idle member spins before it parks, or None to leave it as it was.
    #[getter]
    fn idle_spin(&self) -> Option<f64> {
        self.idle_spin.map(|spin| spin.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        match self.idle_spin() {
            Some(spin) => format!("WaitOverride(idle_spin={spin})"),
            None => "WaitOverride()".to_owned(),
        }
    }
}

/// The `wait=` of an operation: a policy, an override, or None.
pub(crate) fn override_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<WaitOverride> {
    let Some(given) = given.filter(|given| !given.is_none()) else { return Ok(WaitOverride::new()) };
    if let Ok(policy) = given.cast::<PyWaitPolicy>() {
        return Ok(WaitOverride::new().idle_spin(policy.get().idle_spin));
    }
    if let Ok(over) = given.cast::<PyWaitOverride>() {
        return Ok(over.get().idle_spin.map_or(WaitOverride::new(), |spin| WaitOverride::new().idle_spin(spin)));
    }
    let kind = given.get_type();
    Err(PyTypeError::new_err(format!("wait must be a WaitPolicy, a WaitOverride or None, got {}", kind.name()?)))
}

/// The spin time that `THREADTEAM_SPIN` sets for pools made without a `wait`.
pub(crate) fn spin_of_environment() -> PyResult<Option<Duration>> {
    let Ok(value) = std::env::var("THREADTEAM_SPIN") else { return Ok(None) };
    parse_spin(&value).ok_or_else(|| {
        PyValueError::new_err(format!(
            "the environment variable THREADTEAM_SPIN is {value:?}, expected 'adaptive' or a time: seconds, or a number \
             with us, ms or s"
        ))
    })
}

/// `Some(None)` for the default.
#[allow(clippy::option_option)]
fn parse_spin(value: &str) -> Option<Option<Duration>> {
    let value = value.trim();
    if value.is_empty() || value == "adaptive" {
        return Some(None);
    }
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(suffix, unit)| Some((value.strip_suffix(suffix)?, *unit))).unwrap_or((value, 1.0));
    let number: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok().map(Some)
}
