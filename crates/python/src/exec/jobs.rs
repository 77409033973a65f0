//! The entries of `Exec` that run ranges and jobs: `for_ranges`, `fork`, `fork_sized`.

use super::PyExec;
use crate::body::{Body, Signature};
use crate::flow::{self, Flow};
use crate::home::Home;
use crate::numbers::{at_least_one, length as a_length, sizes};
use crate::token::Token;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::mem;
use std::sync::Arc;
use threadteam::Exec;

impl PyExec {
    fn fork_body<'a>(&'a self, flow: &'a Flow, body: &'a Body<'_>) -> impl Fn(usize, Exec<'_>) + Sync + 'a {
        let home = self.token.home.as_ref();
        move |index, child| match body {
            Body::Python(function) => {
                flow.body(|py| {
                    with_child(py, child, index, home, flow, |token| {
                        function.run(py, flow, (index, PyExec { token }).into_pyobject(py)?)
                    })
                });
            }
            Body::Native { code, .. } => {
                code.run_index(flow, index);
            }
        }
    }
}

/// Hands `child` out as a Python token for the time of `f`.
fn with_child(
    py: Python<'_>,
    child: Exec<'_>,
    index: usize,
    home: Option<&Arc<Home>>,
    flow: &Flow,
    f: impl FnOnce(Arc<Token<Exec<'static>>>) -> PyResult<()>,
) -> PyResult<()> {
    let name = format!("Exec(budget={}, child {index} of a fork)", child.budget());
    // SAFETY: the token is ended below, before `child` and `flow` end.
    let token = unsafe {
        let child = mem::transmute::<Exec<'_>, Exec<'static>>(child);
        Token::of_body(child, home.cloned(), name, flow)
    };
    let outcome = f(Arc::clone(&token));
    outcome.and(token.end_with_body(py))
}

#[pymethods]
impl PyExec {
    /// Run ``body(start, stop)`` over disjoint ranges that cover ``0..length``.
    ///
    /// Parameters
    /// ----------
    /// length : int
    ///     Items; at most ``2**63 - 1``.
    /// grain : int
    ///     The fewest items of a range, but for the last one.
    /// body : callable or native code
    ///     Runs on at most `budget` participants. Native code has the signature
    ///     ``void (int64_t start, int64_t stop, void *data)`` and runs without the interpreter.
    ///
    /// Raises
    /// ------
    /// Exception
    ///     The first exception of any body; ranges that had not started are dropped.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> squares = [0] * 6
    /// >>> def fill(start, stop):
    /// ...     for i in range(start, stop):
    /// ...         squares[i] = i * i
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec().for_ranges(6, 2, fill)
    /// >>> squares
    /// [0, 1, 4, 9, 16, 25]
    fn for_ranges(
        &self,
        py: Python<'_>,
        length: &Bound<'_, PyAny>,
        grain: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let length = a_length(length, "length")?;
        let grain = at_least_one(grain, "grain")?;
        let body = Body::of(body, Signature::Range, "Exec.for_ranges()")?;
        let mut entry = self.token.enter(py, "Exec.for_ranges()")?;
        self.section(py, &mut entry, body.is_python(), |exec, flow| match &body {
            &Body::Native { code, .. } => exec.for_ranges(length, grain, move |range| code.run_range(flow, range)),
            Body::Python(function) => exec.for_ranges(length, grain, |range| {
                flow.body(|py| function.run(py, flow, (range.start, range.end).into_pyobject(py)?));
            }),
        })
    }

    /// Run ``body(index, exec)`` for each of `jobs` jobs, on ``min(jobs, budget)`` tasks.
    ///
    /// The shares of the children add up to the budget, and are cut at the pool's `domains` first. With more jobs than budget,
    /// tasks take jobs one by one.
    ///
    /// Parameters
    /// ----------
    /// jobs : int
    ///     How many.
    /// body : callable or native code
    ///     Is given the job's number and its token, which dies when the body returns. Native code has the signature
    ///     ``void (int64_t index, void *data)``.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> shares = {}
    /// >>> with tt.Pool(3) as pool:
    /// ...     pool.exec().fork(2, lambda job, token: shares.update({job: token.budget}))
    /// >>> sorted(shares.values())
    /// [1, 2]
    fn fork(&self, py: Python<'_>, jobs: &Bound<'_, PyAny>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let jobs = a_length(jobs, "jobs")?;
        let body = Body::of(body, Signature::Index, "Exec.fork()")?;
        let mut entry = self.token.enter(py, "Exec.fork()")?;
        self.section(py, &mut entry, body.is_python(), |mut exec, flow| {
            let run = self.fork_body(flow, &body);
            flow::in_waves(flow, jobs, |wave| {
                exec.reborrow().fork(wave.len(), |job, child| run(wave.start + job, child))
            });
        })
    }

    /// Run one job for each share, with that many slots: `fork` for jobs of different size.
    ///
    /// Parameters
    /// ----------
    /// shares : iterable of int
    ///     At least 1 each, together at most the budget.
    /// body : callable or native code
    ///     As for `fork`.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     Shares that do not fit; nothing ran.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> shares = {}
    /// >>> with tt.Pool(3) as pool:
    /// ...     pool.exec().fork_sized([2, 1], lambda job, token: shares.update({job: token.budget}))
    /// >>> shares[0], shares[1]
    /// (2, 1)
    fn fork_sized(&self, py: Python<'_>, shares: &Bound<'_, PyAny>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let shares = sizes(shares, "shares")?;
        let body = Body::of(body, Signature::Index, "Exec.fork_sized()")?;
        let mut entry = self.token.enter(py, "Exec.fork_sized()")?;
        self.section(py, &mut entry, body.is_python(), |exec, flow| {
            exec.fork_sized(&shares.numbers, self.fork_body(flow, &body))
        })?
        .map_err(|_| {
            PyValueError::new_err(format!(
                "shares must be at least 1 each and at most the budget of {} together, got {}",
                self.token.budget,
                shares.shown(py)
            ))
        })
    }
}
