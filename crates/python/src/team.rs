//! `Team`: a pool whose members stay reserved for its owner.

use crate::exec::PyExec;
use crate::home::Home;
use crate::numbers::at_least_one;
use crate::pool::PyPool;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A pool with reserved members, made by `Pool.into_team`.
#[pyclass(frozen, weakref, module = "threadteam", name = "Team")]
pub(crate) struct PyTeam {
    pool: Py<PyPool>,
    home: Arc<Home>,
    /// The move that made it: a later one means that the team is over.
    moves: u64,
    size: NonZeroUsize,
}

impl PyTeam {
    pub(crate) fn new(pool: Py<PyPool>, home: Arc<Home>, moves: u64, size: NonZeroUsize) -> PyTeam {
        PyTeam { pool, home, moves, size }
    }

    /// Mints the root token once the previous one is closed.
    pub(crate) fn exec(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>, wait: bool) -> PyResult<PyExec> {
        let budget = budget.filter(|given| !given.is_none()).map(|given| at_least_one(given, "budget")).transpose()?;
        Ok(PyExec { token: self.home.mint_lead(py, self.moves, budget, wait)? })
    }
}

#[pymethods]
impl PyTeam {
    #[getter]
    fn size(&self) -> usize {
        self.size.get()
    }

    #[getter]
    fn pool(&self, py: Python<'_>) -> Py<PyPool> {
        self.pool.clone_ref(py)
    }

    #[pyo3(name = "exec", signature = (budget = None))]
    fn exec_(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        self.exec(py, budget, true)
    }

    #[pyo3(signature = (budget = None))]
    fn try_exec(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        self.exec(py, budget, false)
    }

    fn into_pool(&self, py: Python<'_>) -> PyResult<Py<PyPool>> {
        self.home.into_pool(py, self.moves)?;
        Ok(self.pool.clone_ref(py))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A team that gave its pool back has nothing left to close.
        if self.home.check_team(py, self.moves, "Team.close()").is_err() {
            return Ok(());
        }
        self.home.close(py, "Team.close()")
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().home.check_team(slf.py(), slf.get().moves, "with Team")?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<Team of size {} on {}>", self.size, self.home.title())
    }

    fn __reduce_ex__(&self, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err("a Team cannot be copied or pickled: it owns threads; make one in each process"))
    }
}
