//! What a section of a token costs, and whether it pays: for `Exec` and `TeamExec`.

use crate::arguments::Optional;
use crate::costs;
use crate::exec::PyExec;
use crate::numbers::{at_least_one, small_count};
use crate::teamexec::{HeldTeam, PyTeamExec};
use crate::token::{Held, Token};
use pyo3::prelude::*;
use std::num::NonZeroUsize;
use std::time::Duration;
use threadteam::Exec;

/// A token that knows what its sections cost.
trait Priced: Held {
    /// The names of its methods.
    const DISPATCH_COST: &'static str;
    const PAYS: &'static str;
    const WIDTH_FOR: &'static str;

    fn dispatch_cost(&self, width: NonZeroUsize) -> Duration;
    fn pays(&self, estimate: Duration, sections: u32, width: NonZeroUsize) -> bool;
    fn width_for(&self, estimate: Duration, sections: u32) -> NonZeroUsize;
}

impl Priced for Exec<'static> {
    const DISPATCH_COST: &'static str = "Exec.dispatch_cost()";
    const PAYS: &'static str = "Exec.pays()";
    const WIDTH_FOR: &'static str = "Exec.width_for()";

    fn dispatch_cost(&self, width: NonZeroUsize) -> Duration {
        Exec::dispatch_cost(self, width)
    }

    fn pays(&self, estimate: Duration, sections: u32, width: NonZeroUsize) -> bool {
        Exec::pays(self, estimate, sections, width)
    }

    fn width_for(&self, estimate: Duration, sections: u32) -> NonZeroUsize {
        Exec::width_for(self, estimate, sections)
    }
}

impl Priced for HeldTeam {
    const DISPATCH_COST: &'static str = "TeamExec.dispatch_cost()";
    const PAYS: &'static str = "TeamExec.pays()";
    const WIDTH_FOR: &'static str = "TeamExec.width_for()";

    fn dispatch_cost(&self, width: NonZeroUsize) -> Duration {
        self.team.dispatch_cost(width)
    }

    fn pays(&self, estimate: Duration, sections: u32, width: NonZeroUsize) -> bool {
        self.team.pays(estimate, sections, width)
    }

    fn width_for(&self, estimate: Duration, sections: u32) -> NonZeroUsize {
        self.team.width_for(estimate, sections)
    }
}

/// How many sections a region enters: one by default.
fn count(sections: &Optional<'_>) -> PyResult<u32> {
    Ok(sections.read(|given| small_count(given, "sections"))?.unwrap_or(1))
}

fn dispatch_cost<T: Priced>(py: Python<'_>, token: &Token<T>, width: &Bound<'_, PyAny>) -> PyResult<f64> {
    let width = at_least_one(width, "width")?;
    Ok(costs::seconds(token.enter(py, T::DISPATCH_COST)?.inner().dispatch_cost(width)))
}

fn pays<T: Priced>(
    py: Python<'_>,
    token: &Token<T>,
    estimate: &Bound<'_, PyAny>,
    sections: &Optional<'_>,
    width: Option<&Bound<'_, PyAny>>,
) -> PyResult<bool> {
    let (estimate, sections) = (costs::estimate(estimate)?, count(sections)?);
    let width = width.map_or(Ok(token.budget), |width| at_least_one(width, "width"))?;
    Ok(token.enter(py, T::PAYS)?.inner().pays(estimate, sections, width))
}

fn width_for<T: Priced>(
    py: Python<'_>,
    token: &Token<T>,
    estimate: &Bound<'_, PyAny>,
    sections: &Optional<'_>,
) -> PyResult<usize> {
    let (estimate, sections) = (costs::estimate(estimate)?, count(sections)?);
    Ok(token.enter(py, T::WIDTH_FOR)?.inner().width_for(estimate, sections).get())
}

#[pymethods]
impl PyExec {
    /// Return what one section of `width` participants costs.
    ///
    /// Parameters
    /// ----------
    /// width : int
    ///     Clamped to the budget.
    ///
    /// Returns
    /// -------
    /// float
    ///     Seconds; infinity where there is nothing to dispatch.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> tt.Exec.serial().dispatch_cost(2)
    /// inf
    fn dispatch_cost(&self, py: Python<'_>, width: &Bound<'_, PyAny>) -> PyResult<f64> {
        dispatch_cost(py, &self.token, width)
    }

    /// Return whether a region gains from `width` participants: its estimate is at least `PAYS` times its dispatches.
    ///
    /// Parameters
    /// ----------
    /// estimate : float
    ///     Seconds that it takes on one thread.
    /// sections : int, default 1
    ///     Sections that it really enters.
    /// width : int, optional
    ///     The budget by default.
    ///
    /// Returns
    /// -------
    /// bool
    ///     Whether to run it in parallel.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> tt.Exec.serial().pays(1.0)
    /// False
    #[pyo3(
        signature = (estimate, sections = Optional::LeftOut, width = None),
        text_signature = "($self, estimate, sections=1, width=None)"
    )]
    fn pays(
        &self,
        py: Python<'_>,
        estimate: &Bound<'_, PyAny>,
        sections: Optional<'_>,
        width: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        pays(py, &self.token, estimate, &sections, width)
    }

    /// Return the width that makes a region shortest.
    ///
    /// Parameters
    /// ----------
    /// estimate : float
    ///     Seconds that it takes on one thread.
    /// sections : int, default 1
    ///     Sections that it really enters.
    ///
    /// Returns
    /// -------
    /// int
    ///     From 1, if no width pays, to the budget.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec().width_for(1.0), pool.exec().width_for(1e-9)
    /// (2, 1)
    #[pyo3(
        signature = (estimate, sections = Optional::LeftOut),
        text_signature = "($self, estimate, sections=1)"
    )]
    fn width_for(&self, py: Python<'_>, estimate: &Bound<'_, PyAny>, sections: Optional<'_>) -> PyResult<usize> {
        width_for(py, &self.token, estimate, &sections)
    }
}

#[pymethods]
impl PyTeamExec {
    /// Return what one section of `width` participants costs, in seconds; see `Exec.dispatch_cost`.
    fn dispatch_cost(&self, py: Python<'_>, width: &Bound<'_, PyAny>) -> PyResult<f64> {
        dispatch_cost(py, &self.token, width)
    }

    /// Return whether a region gains from `width` participants; see `Exec.pays`.
    #[pyo3(
        signature = (estimate, sections = Optional::LeftOut, width = None),
        text_signature = "($self, estimate, sections=1, width=None)"
    )]
    fn pays(
        &self,
        py: Python<'_>,
        estimate: &Bound<'_, PyAny>,
        sections: Optional<'_>,
        width: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        pays(py, &self.token, estimate, &sections, width)
    }

    /// Return the width that makes a region shortest; see `Exec.width_for`.
    #[pyo3(
        signature = (estimate, sections = Optional::LeftOut),
        text_signature = "($self, estimate, sections=1)"
    )]
    fn width_for(&self, py: Python<'_>, estimate: &Bound<'_, PyAny>, sections: Optional<'_>) -> PyResult<usize> {
        width_for(py, &self.token, estimate, &sections)
    }
}
