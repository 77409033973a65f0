//! What a section of a token costs, and whether it pays: for `Exec` and `TeamExec`.

use super::PyExec;
use crate::costs;
use crate::numbers::at_least_one;
use pyo3::prelude::*;

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
        let width = at_least_one(width, "width")?;
        Ok(costs::seconds(self.token.enter(py, "Exec.dispatch_cost()")?.inner().dispatch_cost(width)))
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
    #[pyo3(signature = (estimate, sections = None, width = None), text_signature = "($self, estimate, sections=1, width=None)")]
    fn pays(
        &self,
        py: Python<'_>,
        estimate: &Bound<'_, PyAny>,
        sections: Option<&Bound<'_, PyAny>>,
        width: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let (estimate, sections) = (costs::estimate(estimate)?, costs::sections(sections)?);
        let width = width.map_or(Ok(self.token.budget), |width| at_least_one(width, "width"))?;
        Ok(self.token.enter(py, "Exec.pays()")?.inner().pays(estimate, sections, width))
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
    #[pyo3(signature = (estimate, sections = None), text_signature = "($self, estimate, sections=1)")]
    fn width_for(
        &self,
        py: Python<'_>,
        estimate: &Bound<'_, PyAny>,
        sections: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let (estimate, sections) = (costs::estimate(estimate)?, costs::sections(sections)?);
        Ok(self.token.enter(py, "Exec.width_for()")?.inner().width_for(estimate, sections).get())
    }
}
