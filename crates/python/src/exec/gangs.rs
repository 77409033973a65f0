//! The entries of `Exec` that need all participants at the same time: `broadcast` and `team`.

use super::PyExec;
use crate::body::{Body, Signature};
use crate::callable::Callable;
use crate::errors;
use crate::section::{lead, watched};
use crate::teamexec::{new_team_token, PyTeamExec, TeamScope};
use crate::wait::override_of;
use pyo3::prelude::*;
use std::sync::Arc;

#[pymethods]
impl PyExec {
    /// Run ``body(index)`` on all `budget` participants at the same time.
    ///
    /// Parameters
    /// ----------
    /// body : callable or native code
    ///     May wait for the other participants. Native code has the signature ``void (int64_t index, void *data)``.
    ///
    /// Raises
    /// ------
    /// Refused
    ///     They cannot all be had at once; nothing ran. `reason` says why.
    ///
    /// Examples
    /// --------
    /// >>> import threading
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2, acquire_timeout=10.0) as pool:
    /// ...     meeting = threading.Barrier(2)
    /// ...     pool.exec().broadcast(lambda index: meeting.wait())
    fn broadcast(&self, py: Python<'_>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let body = Body::of(body, Signature::Index, "Exec.broadcast()")?;
        let mut entry = self.token.enter(py, "Exec.broadcast()")?;
        let outcome = self.section(py, &mut entry, body.is_python(), |exec, flow| match &body {
            &Body::Native { code, .. } => exec.broadcast(move |index| {
                code.run_index(flow, index);
            }),
            Body::Python(function) => exec.broadcast(|index| {
                flow.body(|py| function.run(py, flow, (index,).into_pyobject(py)?));
            }),
        })?;
        outcome.map_err(|reason| errors::refused(py, "Refused", "Exec.broadcast()", reason))
    }

    /// Whether `broadcast` would not be refused by rule on this thread now.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> may = []
    /// >>> with tt.Pool(4) as pool:
    /// ...     pool.exec().fork(1, lambda job, child: may.append(child.can_broadcast()))
    /// ...     pool.exec().can_broadcast(), may
    /// (True, [False])
    fn can_broadcast(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.token.enter(py, "Exec.can_broadcast()")?.inner().can_broadcast())
    }

    /// Reserve ``budget - 1`` members, so that sections may have barriers.
    ///
    /// Parameters
    /// ----------
    /// body : callable, optional
    ///     Called with the `TeamExec`; without it, a context manager is returned that hands it out.
    /// wait : WaitPolicy or WaitOverride, optional
    ///     How the members wait meanwhile.
    ///
    /// Returns
    /// -------
    /// object
    ///     The body's result, or a context manager.
    ///
    /// Raises
    /// ------
    /// Refused
    ///     Not all members can be had; nothing ran.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
    /// ...     team.size
    /// 2
    #[pyo3(signature = (body = None, *, wait = None))]
    fn team<'py>(
        &self,
        py: Python<'py>,
        body: Option<&Bound<'py, PyAny>>,
        wait: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let over = override_of(wait)?;
        let Some(body) = body else {
            return Ok(TeamScope::open(py, &self.token, over)?.into_any());
        };
        let body = Callable::body(body, "body", "Exec.team()")?;
        let mut result = None;
        let mut entry = self.token.enter(py, "Exec.team()")?;
        let outcome = lead(py, &mut entry, false, |exec, flow| {
            watched(exec).team_with(over, |team| {
                flow.body(|py| {
                    // SAFETY: ended below, before `team` and `flow` end.
                    let token = unsafe { new_team_token(team, self.token.home.as_ref(), flow) };
                    let arguments = (PyTeamExec { token: Arc::clone(&token) },).into_pyobject(py)?;
                    let outcome = body.result(py, flow, arguments);
                    token.end_with_body(py)?;
                    result = Some(outcome?.unbind());
                    Ok(())
                });
            })
        })?;
        outcome.map_err(|reason| errors::refused(py, "Refused", "Exec.team()", reason))?;
        Ok(result.map_or_else(|| py.None().into_bound(py), |result| result.into_bound(py)))
    }
}
