//! How participants wait, as Python says it.

use crate::arguments::refusal;
use crate::numbers::{optional_time, time};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString, PyTuple};
use std::time::Duration;
use threadteam::{WaitOverride, WaitPolicy};

/// What lets idle members decide by the gaps that they see.
const ADAPTIVE: &str = "adaptive";

/// How participants wait: they poll, may then yield, and sleep in the end.
///
/// Without arguments it is the default: an idle member stays awake while its next section is expected soon, for at most 1.6
/// ms; a leader at a join, a participant at a barrier and a caller that waits for members sleep after 200 us. Wherever more
/// participants are awake than CPUs, everyone yields a few times and sleeps, whatever the policy.
///
/// Parameters
/// ----------
/// spin : float, optional
///     Seconds that any waiter polls before it yields its CPU between polls; by default it never yields.
/// park_after : float, optional
///     Seconds after which any waiter sleeps.
/// idle_spin : float or "adaptive", optional
///     The same for idle members alone, where they differ. ``0.2`` is what OpenMP runtimes do, ``0`` sleeps at once.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> with tt.Pool(2, wait=tt.WaitPolicy(idle_spin=0)) as pool:
/// ...     pool.wait_policy
/// WaitPolicy(idle_spin=0)
/// >>> tt.WaitPolicy().adaptive, tt.WaitPolicy(park_after=0.001).idle_spin
/// (True, 0.001)
#[pyclass(frozen, eq, hash, module = "threadteam", name = "WaitPolicy")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyWaitPolicy(WaitPolicy);

impl From<WaitPolicy> for PyWaitPolicy {
    fn from(policy: WaitPolicy) -> Self {
        PyWaitPolicy(policy)
    }
}

#[pymethods]
impl PyWaitPolicy {
    #[new]
    #[pyo3(signature = (spin = None, park_after = None, *, idle_spin = None))]
    fn new(
        spin: Option<&Bound<'_, PyAny>>,
        park_after: Option<&Bound<'_, PyAny>>,
        idle_spin: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let over = PyWaitOverride::new(spin, park_after, idle_spin)?.over();
        Ok(PyWaitPolicy(WaitPolicy::DEFAULT.with(over)))
    }

    /// Seconds that a waiter polls before it yields between polls, or None if it never does.
    #[getter]
    fn spin(&self) -> Option<f64> {
        (self.0.spin() < Duration::MAX).then(|| self.0.spin().as_secs_f64())
    }

    /// Seconds after which a leader, a participant at a barrier or a caller that waits for members sleeps.
    #[getter]
    fn park_after(&self) -> f64 {
        self.0.park_after().as_secs_f64()
    }

    /// Seconds that an idle member stays awake at most.
    #[getter]
    fn idle_spin(&self) -> f64 {
        self.0.idle_spin().as_secs_f64()
    }

    /// Whether an idle member sleeps earlier when its next section is not expected soon.
    #[getter]
    fn adaptive(&self) -> bool {
        self.0.is_adaptive()
    }

    fn __repr__(&self) -> String {
        let default = WaitPolicy::DEFAULT;
        let mut parts = Vec::new();
        if let Some(spin) = self.spin() {
            parts.push(format!("spin={spin}"));
        }
        if self.0.park_after() != default.park_after() {
            parts.push(format!("park_after={}", self.park_after()));
        }
        match self.adaptive() {
            // A `park_after` alone would hold for idle members too.
            true if parts.iter().any(|part| part.starts_with("park_after")) => {
                parts.push(format!("idle_spin='{ADAPTIVE}'"));
            }
            true => {}
            false => parts.push(format!("idle_spin={}", self.idle_spin())),
        }
        format!("WaitPolicy({})", parts.join(", "))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let positional = (self.spin(), self.park_after()).into_pyobject(py)?;
        let idle = if self.adaptive() {
            PyString::new(py, ADAPTIVE).into_any()
        } else {
            self.idle_spin().into_pyobject(py)?.into_any()
        };
        Ok((positional, [("idle_spin", idle)].into_py_dict(py)?))
    }
}

/// A partial `WaitPolicy`: what it leaves out stays as it was.
///
/// Parameters
/// ----------
/// spin, park_after : float, optional
///     As of `WaitPolicy`.
/// idle_spin : float or "adaptive", optional
///     As of `WaitPolicy`.
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
    spin: Option<Duration>,
    park_after: Option<Duration>,
    /// `Some(None)`: adaptive.
    idle_spin: Option<Option<Duration>>,
}

impl PyWaitOverride {
    fn over(&self) -> WaitOverride {
        let over = self.spin.map_or(WaitOverride::new(), |spin| WaitOverride::new().spin(spin));
        let over = self.park_after.map_or(over, |time| over.park_after(time));
        match self.idle_spin {
            None => over,
            Some(None) => over.adaptive(),
            Some(Some(spin)) => over.idle_spin(spin),
        }
    }
}

#[pymethods]
impl PyWaitOverride {
    #[new]
    #[pyo3(signature = (*, spin = None, park_after = None, idle_spin = None))]
    fn new(
        spin: Option<&Bound<'_, PyAny>>,
        park_after: Option<&Bound<'_, PyAny>>,
        idle_spin: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(PyWaitOverride {
            spin: optional_time(spin, "spin")?,
            park_after: optional_time(park_after, "park_after")?,
            idle_spin: idle_spin.map(idle_spin_of).transpose()?,
        })
    }

    /// Seconds that a waiter polls before it yields between polls, or None to leave it as it was.
    #[getter]
    fn spin(&self) -> Option<f64> {
        self.spin.map(|spin| spin.as_secs_f64())
    }

    /// Seconds after which a waiter sleeps, or None to leave it as it was.
    #[getter]
    fn park_after(&self) -> Option<f64> {
        self.park_after.map(|time| time.as_secs_f64())
    }

    /// Seconds that an idle member stays awake, "adaptive", or None to leave it as it was.
    #[getter]
    fn idle_spin<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.idle_spin {
            None => Ok(None),
            Some(None) => Ok(Some(PyString::new(py, ADAPTIVE).into_any())),
            Some(Some(spin)) => Ok(Some(spin.as_secs_f64().into_pyobject(py)?.into_any())),
        }
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("spin", self.spin())?;
        named.set_item("park_after", self.park_after())?;
        named.set_item("idle_spin", self.idle_spin(py)?)?;
        Ok((PyTuple::empty(py), named))
    }

    fn __repr__(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.spin().map(|spin| format!("spin={spin}")));
        parts.extend(self.park_after().map(|time| format!("park_after={time}")));
        parts.extend(self.idle_spin.map(|spin| match spin {
            None => format!("idle_spin='{ADAPTIVE}'"),
            Some(spin) => format!("idle_spin={}", spin.as_secs_f64()),
        }));
        format!("WaitOverride({})", parts.join(", "))
    }
}

/// A time, or `None` for "adaptive".
fn idle_spin_of(given: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if let Ok(text) = given.cast::<PyString>() {
        if text == ADAPTIVE {
            return Ok(None);
        }
        return Err(PyValueError::new_err(format!(
            "idle_spin must be a time in seconds or \"{ADAPTIVE}\", got {}",
            text.repr()?
        )));
    }
    time(given, "idle_spin").map(Some)
}

/// The `wait=` of an operation: a policy, an override, or None.
pub(crate) fn override_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<WaitOverride> {
    given.filter(|given| !given.is_none()).map_or(Ok(WaitOverride::new()), given_override)
}

/// A policy, or an override.
pub(crate) fn given_override(given: &Bound<'_, PyAny>) -> PyResult<WaitOverride> {
    if let Ok(policy) = given.cast::<PyWaitPolicy>() {
        return Ok(WaitOverride::all_of(policy.get().0));
    }
    if let Ok(over) = given.cast::<PyWaitOverride>() {
        return Ok(over.get().over());
    }
    Err(refusal(given, "wait", "a WaitPolicy or a WaitOverride"))
}

/// The policy of a new pool: as `wait` says, else as `THREADTEAM_SPIN` says, else the default.
pub(crate) fn policy_of(wait: Option<&Bound<'_, PyAny>>) -> PyResult<WaitPolicy> {
    let over = if wait.is_none_or(|given| given.is_none()) { override_of_environment()? } else { override_of(wait)? };
    Ok(WaitPolicy::DEFAULT.with(over))
}

/// What `THREADTEAM_SPIN` sets for pools made without a `wait`.
fn override_of_environment() -> PyResult<WaitOverride> {
    let Some(value) = std::env::var_os("THREADTEAM_SPIN") else { return Ok(WaitOverride::new()) };
    value.to_str().and_then(parse_spin).ok_or_else(|| {
        PyValueError::new_err(format!(
            "the environment variable THREADTEAM_SPIN is {value:?}, expected 'adaptive' or a time: seconds, or a number \
             with us, ms or s"
        ))
    })
}

fn parse_spin(value: &str) -> Option<WaitOverride> {
    let value = value.trim();
    match value {
        "" => return Some(WaitOverride::new()),
        ADAPTIVE => return Some(WaitOverride::new().adaptive()),
        _ => {}
    }
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(suffix, unit)| Some((value.strip_suffix(suffix)?, *unit))).unwrap_or((value, 1.0));
    let number: f64 = number.trim().parse().ok()?;
    let spin = Duration::try_from_secs_f64(number * unit).ok()?;
    Some(WaitOverride::new().idle_spin(spin))
}
