//! What a section costs, and the rule of when it pays.

use crate::arguments::{callable, instance, items, refusal, text};
use crate::attach;
use crate::ending;
use crate::numbers;
use crate::slots::room;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::time::Duration;
use threadteam::{DispatchCosts, DispatchKind, HostClass, WidthCosts};

/// A cost in seconds; infinity where there is nothing to dispatch.
pub(crate) fn seconds(cost: Duration) -> f64 {
    numbers::as_seconds(cost)
}

/// A serial estimate, given in seconds.
pub(crate) fn estimate(given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    numbers::time(given, "estimate")
}

/// Dispatch cost in seconds as a function of the width, from at most twelve measured widths.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> costs = tt.WidthCosts.from_anchors([(2, 1e-6), (4, 3e-6)])
/// >>> costs.at(3)
/// 2e-06
/// >>> tt.WidthCosts.flat(1e-6) == tt.WidthCosts.new(1e-6, 1e-6, 1e-6)
/// True
#[pyclass(frozen, eq, module = "threadteam", name = "WidthCosts")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PyWidthCosts(WidthCosts);

#[pymethods]
impl PyWidthCosts {
    /// Costs in seconds at widths 2, 4 and 6.
    #[staticmethod]
    #[pyo3(name = "new")]
    fn new_(at_2: &Bound<'_, PyAny>, at_4: &Bound<'_, PyAny>, at_6: &Bound<'_, PyAny>) -> PyResult<Self> {
        let [at_2, at_4, at_6] =
            [(at_2, "at_2"), (at_4, "at_4"), (at_6, "at_6")].map(|(cost, name)| numbers::time(cost, name));
        Ok(PyWidthCosts(WidthCosts::new([at_2?, at_4?, at_6?])))
    }

    /// One cost in seconds for all widths up to 6.
    #[staticmethod]
    fn flat(cost: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyWidthCosts(WidthCosts::flat(numbers::time(cost, "cost")?)))
    }

    /// Costs from (width, seconds) pairs.
    #[staticmethod]
    fn from_anchors(anchors: &Bound<'_, PyAny>) -> PyResult<Self> {
        let given = items(anchors, "anchors")?;
        let mut pairs = room(given.len(), || format!("{} anchors", given.len()))?;
        for pair in given {
            let pair = pair.into_bound(anchors.py());
            let (width, cost) = pair
                .extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()
                .map_err(|_| refusal(&pair, "an anchor", "a pair of a width and a time in seconds"))?;
            let width = numbers::at_least_one(&width, "the width of an anchor")?.get();
            pairs.push((width, numbers::time(&cost, "the cost of an anchor")?));
        }
        WidthCosts::from_anchors(&pairs).map(PyWidthCosts).ok_or_else(|| {
            let widths: Vec<usize> = pairs.iter().map(|&(width, _)| width).take(WidthCosts::MAX_ANCHORS + 1).collect();
            PyValueError::new_err(format!(
                "anchors must be 1 to {} pairs whose widths rise strictly from at least 2 to at most 65535, got {} with \
                 the widths {widths:?}",
                WidthCosts::MAX_ANCHORS,
                pairs.len(),
            ))
        })
    }

    /// The (width, seconds) pairs that the others follow from.
    #[getter]
    fn anchors(&self) -> Vec<(usize, f64)> {
        ending::watch();
        self.0.anchors().map(|(width, cost)| (width, seconds(cost))).collect()
    }

    /// The most pairs that one row has.
    #[classattr]
    const MAX_ANCHORS: usize = WidthCosts::MAX_ANCHORS;

    /// The cost in seconds of a section of `width` participants.
    fn at(&self, width: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(seconds(self.0.at(numbers::at_least_one(width, "width")?)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        (slf.as_any().get_type().getattr("from_anchors")?, (slf.get().anchors(),)).into_pyobject(slf.py())
    }

    fn __repr__(&self) -> String {
        let at = |width| NonZeroUsize::new(width).map_or(0.0, |width| seconds(self.0.at(width)) * 1e6);
        format!("<WidthCosts {:.2} us at width 2, {:.2} at 4, {:.2} at 6>", at(2), at(4), at(6))
    }
}

/// How a section reaches its participants.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> costs = tt.DispatchCosts.for_class(tt.HostClass("generic"))
/// >>> costs.cost(tt.DispatchKind.TEAM, 2) <= costs.cost(tt.DispatchKind.OUTSIDE, 2)
/// True
#[pyclass(frozen, eq, hash, module = "threadteam", name = "DispatchKind")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PyDispatchKind {
    #[pyo3(name = "TEAM")]
    Team,
    #[pyo3(name = "IN_POOL")]
    InPool,
    #[pyo3(name = "OUTSIDE")]
    Outside,
}

#[pymethods]
impl PyDispatchKind {
    /// One of three constants: pickled and copied as the attribute that it is.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let name = match *slf.get() {
            PyDispatchKind::Team => "TEAM",
            PyDispatchKind::InPool => "IN_POOL",
            PyDispatchKind::Outside => "OUTSIDE",
        };
        (slf.py().import("builtins")?.getattr("getattr")?, (slf.as_any().get_type(), name)).into_pyobject(slf.py())
    }
}

impl From<PyDispatchKind> for DispatchKind {
    fn from(kind: PyDispatchKind) -> Self {
        match kind {
            PyDispatchKind::Team => DispatchKind::Team,
            PyDispatchKind::InPool => DispatchKind::InPool,
            PyDispatchKind::Outside => DispatchKind::Outside,
        }
    }
}

/// The kind that an argument is.
pub(crate) fn kind_of(given: &Bound<'_, PyAny>) -> PyResult<DispatchKind> {
    let kind = instance::<PyDispatchKind>(given, "kind", "a DispatchKind")?;
    Ok(DispatchKind::from(*kind.get()))
}

/// The row that an argument is.
fn width_costs(given: &Bound<'_, PyAny>, name: &str) -> PyResult<WidthCosts> {
    Ok(instance::<PyWidthCosts>(given, name, "a WidthCosts")?.get().0)
}

const CLASSES: [HostClass; 6] = [
    HostClass::X86_64Avx512,
    HostClass::X86_64Avx2,
    HostClass::X86_64Scalar,
    HostClass::Aarch64Apple,
    HostClass::Aarch64,
    HostClass::Generic,
];

/// The class of a machine, which chooses a row of measured costs.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> tt.HostClass("generic")
/// HostClass("generic")
/// >>> tt.HostClass.detect() == tt.HostClass(tt.HostClass.detect().name)
/// True
#[pyclass(frozen, eq, hash, module = "threadteam", name = "HostClass")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyHostClass(HostClass);

#[pymethods]
impl PyHostClass {
    #[new]
    fn new(name: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name = text(name, "name")?;
        CLASSES.into_iter().find(|class| class.name() == name).map(PyHostClass).ok_or_else(|| {
            let names: Vec<&str> = CLASSES.iter().map(|class| class.name()).collect();
            PyValueError::new_err(format!("no host class is called {name:?}; there are {}", names.join(", ")))
        })
    }

    /// The class of this machine.
    #[staticmethod]
    fn detect() -> Self {
        PyHostClass(HostClass::detect())
    }

    /// The name of the class, as in the tables of costs.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn __getnewargs__(&self) -> (&'static str,) {
        (self.name(),)
    }

    fn __repr__(&self) -> String {
        format!("HostClass({:?})", self.0.name())
    }
}

/// What one section costs for each kind of token.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> costs = tt.DispatchCosts(*[tt.WidthCosts.flat(1e-6)] * 3)
/// >>> costs = costs.with_costs(tt.DispatchKind.TEAM, tt.WidthCosts.flat(5e-7))
/// >>> costs.cost(tt.DispatchKind.TEAM, 2), costs.min_cost(tt.DispatchKind.OUTSIDE)
/// (5e-07, 1e-06)
/// >>> with tt.Pool(2, dispatch_costs=costs) as pool:
/// ...     pool.exec().pays(3e-6), pool.exec().pays(2e-6)
/// (True, False)
#[pyclass(frozen, eq, from_py_object, module = "threadteam", name = "DispatchCosts")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PyDispatchCosts(pub(crate) DispatchCosts);

#[pymethods]
impl PyDispatchCosts {
    #[new]
    fn new(team: &Bound<'_, PyAny>, in_pool: &Bound<'_, PyAny>, outside: &Bound<'_, PyAny>) -> PyResult<Self> {
        let [team, in_pool, outside] =
            [(team, "team"), (in_pool, "in_pool"), (outside, "outside")].map(|(row, name)| width_costs(row, name));
        Ok(PyDispatchCosts(DispatchCosts::new(team?, in_pool?, outside?)))
    }

    /// The row of a host class.
    #[staticmethod]
    #[pyo3(signature = (class_))]
    fn for_class(class_: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = instance::<PyHostClass>(class_, "class_", "a HostClass")?.get();
        Ok(PyDispatchCosts(DispatchCosts::for_class(class.0)))
    }

    /// The row of this machine: what `threadteam calibrate` measured here, else the row of its class.
    #[staticmethod]
    pub(crate) fn host_default(py: Python<'_>) -> PyResult<Self> {
        let calibrated = attach::call_function(py, "threadteam.calibrated", "host_row", ())?;
        let class_row = || PyDispatchCosts(DispatchCosts::host_default());
        Ok(calibrated.extract::<Option<PyDispatchCosts>>()?.unwrap_or_else(class_row))
    }

    /// These costs with one kind replaced.
    #[pyo3(name = "with_costs")]
    fn with_costs(&self, kind: &Bound<'_, PyAny>, costs: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyDispatchCosts(self.0.with(kind_of(kind)?, width_costs(costs, "costs")?)))
    }

    /// The costs of one kind, by width.
    fn row(&self, kind: &Bound<'_, PyAny>) -> PyResult<PyWidthCosts> {
        Ok(PyWidthCosts(*self.0.row(kind_of(kind)?)))
    }

    /// The cost in seconds of a section of `width` participants.
    fn cost(&self, kind: &Bound<'_, PyAny>, width: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(seconds(self.0.cost(kind_of(kind)?, numbers::at_least_one(width, "width")?)))
    }

    /// The lowest cost in seconds over all widths.
    fn min_cost(&self, kind: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(seconds(self.0.min_cost(kind_of(kind)?)))
    }

    fn __getnewargs__(&self) -> (PyWidthCosts, PyWidthCosts, PyWidthCosts) {
        let row = |kind| PyWidthCosts(*self.0.row(kind));
        (row(DispatchKind::Team), row(DispatchKind::InPool), row(DispatchKind::Outside))
    }

    fn __repr__(&self) -> String {
        let at = |kind| seconds(self.0.cost(kind, NonZeroUsize::MIN.saturating_add(1))) * 1e6;
        format!(
            "<DispatchCosts at width 2: team {:.2} us, in pool {:.2}, outside {:.2}>",
            at(DispatchKind::Team),
            at(DispatchKind::InPool),
            at(DispatchKind::Outside)
        )
    }
}

/// Whether a region of `estimate` serial seconds in `sections` sections of `cost` seconds each pays.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> tt.pays_at(3e-6, 1, 1e-6), tt.pays_at(3e-6, 2, 1e-6), tt.PAYS
/// (True, False, 3.0)
#[pyfunction]
pub(crate) fn pays_at(
    estimate: &Bound<'_, PyAny>,
    sections: &Bound<'_, PyAny>,
    cost: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let cost = numbers::time_or_never(cost, "cost")?;
    Ok(threadteam::pays_at(self::estimate(estimate)?, numbers::small_count(sections, "sections")?, cost))
}

/// The widest width that is looked at: more participants than any pool has.
const WIDEST: NonZeroUsize = NonZeroUsize::new(u16::MAX as usize).unwrap();

/// The width in `1..=budget` that makes a region shortest under the caller's cost function, 1 if none pays.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> tt.width_for_by(1e-3, 1, 8, lambda width: 1e-6 * width), tt.width_for_by(1e-6, 1, 8, lambda width: 1e-6)
/// (8, 1)
#[pyfunction]
pub(crate) fn width_for_by(
    estimate: &Bound<'_, PyAny>,
    sections: &Bound<'_, PyAny>,
    budget: &Bound<'_, PyAny>,
    cost: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let estimate = self::estimate(estimate)?;
    let sections = numbers::small_count(sections, "sections")?;
    let budget = numbers::at_least_one(budget, "budget")?.min(WIDEST);
    callable(cost, "cost")?;
    let failure = RefCell::new(None);
    let width = threadteam::width_for_by(estimate, sections, budget, |width| {
        if failure.borrow().is_some() {
            return Duration::MAX;
        }
        let asked = (width.get(),).into_pyobject(cost.py()).and_then(|width| attach::call(cost, &width));
        let asked = asked.and_then(|cost| numbers::time_or_never(&cost, "cost(width)"));
        match asked {
            Ok(cost) => cost,
            Err(error) => {
                *failure.borrow_mut() = Some(error);
                Duration::MAX
            }
        }
    });
    failure.into_inner().map_or(Ok(width.get()), Err)
}
