//! The `on=` argument of numeric front ends: what a piece of native work runs on.

use crate::arguments::refusal;
use crate::attach::KeepsInterpreter;
use crate::exec::PyExec;
use crate::openmp::OpenMp;
use crate::pool::PyPool;
use crate::section::{lead, watched};
use crate::team::PyTeam;
use crate::teamexec::PyTeamExec;
use crate::token::{End, Token};
use pyo3::prelude::*;
use std::num::NonZeroUsize;
use std::sync::Arc;
use threadteam::Exec;

/// Runs `f` on what `on` stands for, off the interpreter: None for the calling thread alone, a pool or a team for all of
/// it, a token for its budget, an OpenMP runtime for its threads.
///
/// A token is entered for the time of `f`. An exception that a signal handler raised meanwhile is raised after it.
pub(crate) fn with_exec<R: Send>(
    py: Python<'_>,
    on: Option<&Bound<'_, PyAny>>,
    f: impl FnOnce(Exec<'_>) -> R + Send,
) -> PyResult<R> {
    let Some(on) = on.filter(|on| !on.is_none()) else {
        return on_token(py, &PyExec::alone().token, f);
    };
    if let Ok(exec) = on.cast::<PyExec>() {
        return on_token(py, &exec.get().token, f);
    }
    if let Ok(team) = on.cast::<PyTeamExec>() {
        let mut entry = team.get().token.enter(py, "on=")?;
        return lead(py, &mut entry, false, |held, _flow| f(held.team.exec()));
    }
    if let Ok(pool) = on.cast::<PyPool>() {
        return on_root(py, pool.get().exec(py, None)?, f);
    }
    if let Ok(team) = on.cast::<PyTeam>() {
        return on_root(py, team.get().exec(py, None, true)?, f);
    }
    if let Ok(system) = on.cast::<OpenMp>() {
        let system = system.get();
        let width = NonZeroUsize::new(threadteam::Foreign::width(system)).unwrap_or(NonZeroUsize::MIN);
        return Ok(py.detach(|| {
            let _attaches = KeepsInterpreter::set(false);
            f(Exec::foreign(system, width))
        }));
    }
    Err(refusal(on, "on", "None, a Pool, a Team, an Exec or a TeamExec"))
}

fn on_token<R: Send>(
    py: Python<'_>,
    token: &Token<Exec<'static>>,
    f: impl FnOnce(Exec<'_>) -> R + Send,
) -> PyResult<R> {
    let mut entry = token.enter(py, "on=")?;
    lead(py, &mut entry, false, |exec, _flow| f(watched(exec)))
}

/// A root token minted for this call alone.
fn on_root<R: Send>(py: Python<'_>, root: PyExec, f: impl FnOnce(Exec<'_>) -> R + Send) -> PyResult<R> {
    let token = Arc::clone(&root.token);
    let outcome = on_token(py, &token, f);
    outcome.and_then(|result| token.end(py, End::Closed, true).map(|()| result))
}
