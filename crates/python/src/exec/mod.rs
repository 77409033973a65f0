//! `Exec`: a token for a share of one pool. Its entries are in files of their own.

mod gangs;
mod jobs;
mod tasks;

use crate::arguments::instance;
use crate::flow::Flow;
use crate::numbers::at_least_one;
use crate::pool::PyPool;
use crate::section::{lead, watched};
use crate::single::never_copied;
use crate::token::{End, Entry, Token};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use threadteam::Exec;

/// A token for `budget` slots of one pool: the authority to run so many tasks at once.
///
/// It cannot be copied or pickled. One entry runs on it at a time; `reborrow` and `limit` lend it.
///
/// Parameters
/// ----------
/// pool : Pool
///     Where the slots are.
/// budget : int, optional
///     How many; clamped to the pool's width, which is the default.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> with tt.Pool(2) as pool:
/// ...     tt.Exec(pool, 2)
/// <Exec(budget=2, pool "threadteam" of width 2)>
#[pyclass(frozen, weakref, module = "threadteam", name = "Exec")]
pub(crate) struct PyExec {
    pub(crate) token: Arc<Token<Exec<'static>>>,
}

impl PyExec {
    /// The token of the calling thread alone.
    pub(crate) fn alone() -> PyExec {
        let name = "Exec.serial()".to_owned();
        // SAFETY: a serial token borrows nothing.
        PyExec { token: unsafe { Token::root(Exec::serial(), None, name, None) } }
    }

    fn is_serial(&self) -> bool {
        self.token.budget == NonZeroUsize::MIN
    }

    fn loan(&self, py: Python<'_>, operation: &'static str, budget: NonZeroUsize) -> PyResult<PyExec> {
        let what = format!("the loan by {operation} from");
        let token = self.token.lend(py, operation, &what, |inner| Ok(inner.reborrow().limit(budget)))?;
        Ok(PyExec { token })
    }

    /// Runs a section on the entered token; `python` says whether its bodies are Python's, which keep the interpreter on a
    /// budget of one.
    fn section<R: Send>(
        &self,
        py: Python<'_>,
        entry: &mut Entry<'_, Exec<'static>>,
        python: bool,
        f: impl FnOnce(Exec<'_>, &Flow) -> R + Send,
    ) -> PyResult<R> {
        lead(py, entry, python && self.is_serial(), |exec, flow| {
            let exec = watched(exec);
            // A Python body may do anything, and one chunk may be all that the leader has: sleepers are woken at once.
            f(if python { exec.expecting(Duration::MAX) } else { exec }, flow)
        })
    }
}

#[pymethods]
impl PyExec {
    #[new]
    #[pyo3(signature = (pool, budget = None))]
    fn new(pool: &Bound<'_, PyAny>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        instance::<PyPool>(pool, "pool", "a Pool")?.get().exec(pool.py(), budget)
    }

    /// Return the token of the calling thread alone.
    ///
    /// Returns
    /// -------
    /// Exec
    ///     A token of one slot that needs no pool.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> tt.Exec.serial().is_serial
    /// True
    #[staticmethod]
    fn serial() -> PyExec {
        PyExec::alone()
    }

    /// The slots of this token.
    #[getter]
    fn budget(&self) -> usize {
        self.token.budget.get()
    }

    /// Whether everything runs on the calling thread.
    #[getter(is_serial)]
    fn is_serial_(&self) -> bool {
        self.is_serial()
    }

    /// Whether the token was minted by, or derived from, a team.
    #[getter]
    fn carries_team(&self) -> bool {
        self.token.carries_team
    }

    /// Lend the token with its whole budget, for a callee.
    ///
    /// Returns
    /// -------
    /// Exec
    ///     A loan. Until it is closed (``with``, `close`, collection) this token raises `TokenLent`.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> token = tt.Exec.serial()
    /// >>> with token.reborrow() as lent:
    /// ...     lent.map(abs, [-1])
    /// [1]
    fn reborrow(&self, py: Python<'_>) -> PyResult<PyExec> {
        self.loan(py, "Exec.reborrow()", self.token.budget)
    }

    /// Lend at most `max` of the slots; the others stay unused meanwhile.
    ///
    /// Parameters
    /// ----------
    /// max : int
    ///     At least 1.
    ///
    /// Returns
    /// -------
    /// Exec
    ///     A loan, as of `reborrow`.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool, pool.exec() as token, token.limit(1) as narrow:
    /// ...     narrow.budget
    /// 1
    fn limit(&self, py: Python<'_>, max: &Bound<'_, PyAny>) -> PyResult<PyExec> {
        self.loan(py, "Exec.limit()", at_least_one(max, "max")?)
    }

    /// End the token, the loans taken from it first. Closing again does nothing.
    ///
    /// Raises
    /// ------
    /// TokenBusy
    ///     An entry is running on it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.token.end(py, End::Closed, false)
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        // A dead or used token says so here rather than at its first section.
        drop(slf.get().token.enter(slf.py(), "with")?);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let dead = if self.token.is_dead() { ", dead" } else { "" };
        format!("<{}{dead}>", self.token.name)
    }
}

never_copied!(PyExec, |exec| &exec.token.name);
