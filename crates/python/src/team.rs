//! `Team`: a pool whose members stay reserved for its owner.

use crate::exec::PyExec;
use crate::home::Home;
use crate::numbers::at_least_one;
use crate::pool::PyPool;
use crate::single::{never_copied, refuse_copy_of_owner};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A pool with reserved members, made by `Pool.into_team`.
///
/// Its tokens carry the team: their sections go to the reserved members, and a broadcast is never refused. A team that nobody refers to
/// any more gives its pool back when its last token ends, as `into_pool` does.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> pool = tt.Pool(2, acquire_timeout=10.0)
/// >>> team = pool.into_team()
/// >>> with team.exec() as token:
/// ...     token.can_broadcast()
/// True
/// >>> team.into_pool() is pool
/// True
/// >>> pool.close()
#[pyclass(frozen, weakref, module = "threadteam", name = "Team")]
pub(crate) struct PyTeam {
    /// Through which it has the home: who holds a team's object alone keeps no workers.
    pool: Py<PyPool>,
    /// The move that made it: a later one means that the team is over.
    moves: u64,
    size: NonZeroUsize,
}

impl PyTeam {
    pub(crate) fn new(pool: Py<PyPool>, moves: u64, size: NonZeroUsize) -> PyTeam {
        PyTeam { pool, moves, size }
    }

    fn home(&self) -> &Arc<Home> {
        &self.pool.get().home
    }

    /// Mints the root token once the previous one is closed.
    pub(crate) fn exec(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>, wait: bool) -> PyResult<PyExec> {
        let budget = budget.filter(|given| !given.is_none()).map(|given| at_least_one(given, "budget")).transpose()?;
        Ok(PyExec { token: self.home().mint_lead(py, self.moves, budget, wait)? })
    }
}

impl Drop for PyTeam {
    fn drop(&mut self) {
        self.home().abandon_team(self.moves);
    }
}

#[pymethods]
impl PyTeam {
    /// Participants, the leader included.
    #[getter]
    fn size(&self) -> usize {
        self.size.get()
    }

    /// The pool object, spent while the team has its workers.
    #[getter]
    fn pool(&self, py: Python<'_>) -> Py<PyPool> {
        self.pool.clone_ref(py)
    }

    /// Mint the root token, waiting until the previous one is closed.
    ///
    /// Parameters
    /// ----------
    /// budget : int, optional
    ///     Slots, clamped to the size, which is the default.
    ///
    /// Returns
    /// -------
    /// Exec
    ///     A token that carries the team.
    ///
    /// Raises
    /// ------
    /// TokenBusy
    ///     This thread holds the previous root token and would wait for itself.
    /// PoolClosed
    ///     The team is over.
    #[pyo3(name = "exec", signature = (budget = None))]
    fn exec_(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        self.exec(py, budget, true)
    }

    /// Mint the root token without waiting.
    ///
    /// Parameters
    /// ----------
    /// budget : int, optional
    ///     Slots, clamped to the size, which is the default.
    ///
    /// Returns
    /// -------
    /// Exec
    ///     A token that carries the team.
    ///
    /// Raises
    /// ------
    /// Refused
    ///     Another root token leads the team; the reason is ``BUSY``.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2, acquire_timeout=10.0).into_team() as team, team.try_exec() as token:
    /// ...     token.budget
    /// 2
    #[pyo3(signature = (budget = None))]
    fn try_exec(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        self.exec(py, budget, false)
    }

    /// Give the members free and the pool back.
    ///
    /// Returns
    /// -------
    /// Pool
    ///     The pool that the team was made of, usable again.
    #[pyo3(name = "into_pool")]
    fn give_back(&self, py: Python<'_>) -> PyResult<Py<PyPool>> {
        self.home().move_into_pool(py, self.moves)?;
        Ok(self.pool.clone_ref(py))
    }

    /// Close the team and its pool. After `into_pool` it does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A team that gave its pool back has nothing left to close.
        if self.home().check_team(py, self.moves, "Team.close()").is_err() {
            return Ok(());
        }
        self.home().close(py, "Team.close()")
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().home().check_team(slf.py(), slf.get().moves, "with Team")?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<Team of size {} on {}>", self.size, self.home().title())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pool)
    }
}

never_copied!(PyTeam, |_owner| "a Team", refuse_copy_of_owner);
