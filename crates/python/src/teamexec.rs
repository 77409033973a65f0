//! `TeamExec`: authority over reserved members.

use crate::body::{Body, Signature};
use crate::callable::Callable;
use crate::errors::{raise, refused};
use crate::flow::{self, Flow};
use crate::home::Home;
use crate::life;
use crate::numbers::{self, length};
use crate::participant::{Meetings, PyParticipant};
use crate::section::{lead, off_interpreter, watched};
use crate::single::never_copied;
use crate::token::{End, Entry, Held, Token};
use crate::wait::{given_override, PyWaitPolicy};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::mem;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;
use threadteam::{Exec, ForkLock, Reserved, TeamExec, WaitOverride};

/// A team's token; the one of a `with exec.team()` block owns its reservation. Fields drop in this order.
pub(crate) struct HeldTeam {
    pub(crate) team: TeamExec<'static>,
    reserved: Option<Box<Reserved<'static>>>,
}

impl Drop for HeldTeam {
    fn drop(&mut self) {
        if life::closing() {
            // Members may sleep for good inside a body, and nobody claims them any more.
            mem::forget(self.reserved.take());
        }
    }
}

impl Held for HeldTeam {
    fn slots(&self) -> NonZeroUsize {
        self.team.size()
    }

    fn has_members(&self) -> bool {
        true
    }

    fn at_exit() -> Option<Self> {
        None
    }
}

/// The token that a body of `flow` is handed.
///
/// # Safety
///
/// What `team` borrows, and `flow`, must live until the caller has ended the token.
pub(crate) unsafe fn new_team_token(team: TeamExec<'_>, home: Option<&Arc<Home>>, flow: &Flow) -> Arc<Token<HeldTeam>> {
    let name = format!("TeamExec(size={})", team.size());
    // SAFETY: the caller's promise.
    unsafe {
        let team = mem::transmute::<TeamExec<'_>, TeamExec<'static>>(team);
        Token::of_body(HeldTeam { team, reserved: None }, home.cloned(), name, flow)
    }
}

/// Exclusive authority over the calling thread, participant 0, and the reserved members of a team.
///
/// Its sections are gangs: every participant runs at the same time, so they may wait for each other.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> order = []
/// >>> def phases(participant):
/// ...     order.append("first")
/// ...     participant.barrier()
/// ...     order.append("second")
/// >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
/// ...     team.run_with(phases)
/// >>> order
/// ['first', 'first', 'second', 'second']
#[pyclass(frozen, weakref, module = "threadteam", name = "TeamExec")]
pub(crate) struct PyTeamExec {
    pub(crate) token: Arc<Token<HeldTeam>>,
}

impl PyTeamExec {
    fn loan(&self, py: Python<'_>, operation: &'static str, wait: WaitOverride) -> PyResult<PyTeamExec> {
        let what = format!("the loan by {operation} from");
        let token = self.token.lend(py, operation, &what, |held: &'static mut HeldTeam| {
            Ok(HeldTeam { team: held.team.reborrow().with_wait(wait), reserved: None })
        })?;
        Ok(PyTeamExec { token })
    }

    fn section<R: Send>(
        &self,
        py: Python<'_>,
        entry: &mut Entry<'_, HeldTeam>,
        python: bool,
        f: impl FnOnce(TeamExec<'_>, &Flow) -> R + Send,
    ) -> PyResult<R> {
        let keep = python && self.token.budget == NonZeroUsize::MIN;
        lead(py, entry, keep, |held, flow| f(held.team.reborrow(), flow))
    }

    fn child_body<'a>(
        &'a self,
        flow: &'a Flow,
        body: &'a Callable,
    ) -> impl for<'c> Fn(usize, TeamExec<'c>) + Sync + 'a {
        let home = self.token.home.as_ref();
        move |index, team| {
            flow.body(|py| {
                // SAFETY: ended below, before `team` and `flow` end.
                let token = unsafe { new_team_token(team, home, flow) };
                let child = PyTeamExec { token: Arc::clone(&token) };
                let outcome = (index, child).into_pyobject(py).and_then(|arguments| body.run(py, flow, arguments));
                outcome.and(token.end_with_body(py))
            });
        }
    }
}

#[pymethods]
impl PyTeamExec {
    /// Participants, the leader included.
    #[getter]
    fn size(&self) -> usize {
        self.token.budget.get()
    }

    /// How members wait between the sections of this scope.
    #[getter]
    fn policy(&self, py: Python<'_>) -> PyResult<PyWaitPolicy> {
        Ok(PyWaitPolicy::from(self.token.enter(py, "TeamExec.policy")?.inner().team.policy()))
    }

    /// Lend the team with another waiting policy.
    ///
    /// Parameters
    /// ----------
    /// wait : WaitPolicy or WaitOverride
    ///     Holds until the loan is closed.
    ///
    /// Returns
    /// -------
    /// TeamExec
    ///     A loan, as of `reborrow`.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
    /// ...     with team.with_wait(tt.WaitOverride(idle_spin=0.001)) as patient:
    /// ...         patient.policy.idle_spin
    /// 0.001
    fn with_wait(&self, py: Python<'_>, wait: &Bound<'_, PyAny>) -> PyResult<PyTeamExec> {
        self.loan(py, "TeamExec.with_wait()", given_override(wait)?)
    }

    /// Lend the team, for a callee.
    ///
    /// Returns
    /// -------
    /// TeamExec
    ///     A loan. Until it is closed this one raises `TokenLent`.
    fn reborrow(&self, py: Python<'_>) -> PyResult<PyTeamExec> {
        self.loan(py, "TeamExec.reborrow()", WaitOverride::new())
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
        drop(slf.get().token.enter(slf.py(), "with")?);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Run ``body(index, size)`` on every participant at the same time.
    ///
    /// Parameters
    /// ----------
    /// body : callable or native code
    ///     Native code has the signature ``void (int64_t index, void *data)``.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> seen = set()
    /// >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
    /// ...     team.run(lambda index, size: seen.add((index, size)))
    /// >>> sorted(seen)
    /// [(0, 2), (1, 2)]
    fn run(&self, py: Python<'_>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let body = Body::of(body, Signature::Index, "TeamExec.run()")?;
        let mut entry = self.token.enter(py, "TeamExec.run()")?;
        self.section(py, &mut entry, body.is_python(), |team, flow| match &body {
            &Body::Native { code, .. } => team.run_share(flow.gang_of(code)),
            Body::Python(function) => team.run(|index, size| {
                flow.body(|py| function.run(py, flow, (index, size).into_pyobject(py)?));
            }),
        })
    }

    /// Run ``body(participant)`` on every participant at the same time.
    ///
    /// Parameters
    /// ----------
    /// body : callable
    ///     Is given a `Participant`, which can wait for its peers. When one fails, their barriers raise `Cancelled`.
    ///
    /// Raises
    /// ------
    /// ThreadteamError
    ///     A participant waits at a barrier that a peer returned without.
    fn run_with(&self, py: Python<'_>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let body = Callable::body(body, "body", "TeamExec.run_with()")?;
        let mut entry = self.token.enter(py, "TeamExec.run_with()")?;
        let meetings = Arc::new(Meetings::new());
        self.section(py, &mut entry, true, |team, flow| {
            team.run_with(|participant| {
                let succeeded = flow.body(|py| {
                    let handle = Bound::new(py, PyParticipant::new(participant, flow, &meetings))?;
                    let outcome = body.run(py, flow, (&handle,).into_pyobject(py)?);
                    handle.get().expire();
                    outcome.and_then(|()| handle.get().leave(py))
                });
                if !succeeded {
                    participant.cancel();
                }
            });
        })
    }

    /// Cut the team into children and run ``body(index, team)`` for all of them at the same time.
    ///
    /// Parameters
    /// ----------
    /// sizes : iterable of int
    ///     Participants of each child: at least 1 each, together at most the size.
    /// body : callable
    ///     Is given the child's number and its team.
    ///
    /// Raises
    /// ------
    /// SplitError
    ///     Sizes that do not fit; nothing ran.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> sizes = {}
    /// >>> with tt.Pool(3, acquire_timeout=10.0) as pool, pool.exec().team() as team:
    /// ...     team.split([2, 1], lambda child, part: sizes.update({child: part.size}))
    /// >>> sizes[0], sizes[1]
    /// (2, 1)
    fn split(&self, py: Python<'_>, sizes: &Bound<'_, PyAny>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = numbers::sizes(sizes, "sizes").map_err(|error| {
            let wrong = error.is_instance_of::<pyo3::exceptions::PyValueError>(py);
            if wrong {
                raise(py, "SplitError", error.value(py).to_string())
            } else {
                error
            }
        })?;
        let body = Callable::body(body, "body", "TeamExec.split()")?;
        let mut entry = self.token.enter(py, "TeamExec.split()")?;
        self.section(py, &mut entry, true, |team, flow| team.split(&given.numbers, self.child_body(flow, &body)))?
            .map_err(|_| {
                let message = format!(
                    "the sizes of child teams must not be empty and sum to at most the size of the team, {}; got {}",
                    self.token.budget,
                    given.shown(py)
                );
                raise(py, "SplitError", message)
            })
    }

    /// Run ``body(index, team)`` for `children` children of even size.
    ///
    /// Parameters
    /// ----------
    /// children : int
    ///     With more than there are participants, each takes the next when it is done with one, alone.
    /// body : callable
    ///     Is given the child's number and its team.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> children = []
    /// >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
    /// ...     team.fork(3, lambda child, part: children.append(child))
    /// >>> sorted(children)
    /// [0, 1, 2]
    fn fork(&self, py: Python<'_>, children: &Bound<'_, PyAny>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let children = length(children, "children")?;
        let body = Callable::body(body, "body", "TeamExec.fork()")?;
        let mut entry = self.token.enter(py, "TeamExec.fork()")?;
        self.section(py, &mut entry, true, |mut team, flow| {
            let run = self.child_body(flow, &body);
            flow::in_waves(flow, children, |wave| {
                team.reborrow().fork(wave.len(), |child, part| run(wave.start + child, part));
            });
        })
    }

    fn __repr__(&self) -> String {
        let dead = if self.token.is_dead() { ", dead" } else { "" };
        format!("<{}{dead}>", self.token.name)
    }
}

never_copied!(PyTeamExec, |team| &team.token.name);

/// What `with exec.team() as team:` opens: reserves on entering, gives back on leaving.
#[pyclass(frozen, module = "threadteam", name = "TeamScope")]
pub(crate) struct TeamScope {
    token: Arc<Token<Exec<'static>>>,
    over: WaitOverride,
    open: ForkLock<Option<Arc<Token<HeldTeam>>>>,
}

impl TeamScope {
    pub(crate) fn open<'py>(
        py: Python<'py>,
        token: &Arc<Token<Exec<'static>>>,
        over: WaitOverride,
    ) -> PyResult<Bound<'py, TeamScope>> {
        Bound::new(py, TeamScope { token: Arc::clone(token), over, open: ForkLock::new(None) })
    }
}

#[pymethods]
impl TeamScope {
    fn __enter__(&self, py: Python<'_>) -> PyResult<PyTeamExec> {
        let home = self.token.home.clone();
        let over = self.over;
        let token =
            self.token.lend(py, "with Exec.team()", "the TeamExec of", |exec: &'static mut Exec<'static>| {
                // May wait for busy members, and starts the workers at first use.
                let flow = Flow::new(0, ptr::null(), None);
                let reserved = off_interpreter(py, &flow, || {
                    home.map_or(Ok(()), |home| home.start()).map(|()| watched(exec).into_reserved(over))
                });
                // A signal that came meanwhile.
                flow.finish(py)?;
                let reserved = reserved.map_err(|error| crate::errors::from_core(py, &error))?;
                let mut reserved = Box::new(reserved.map_err(|reason| refused(py, "Refused", "Exec.team()", reason))?);
                // SAFETY: the reservation stays in its box, which is dropped after the team that borrows it.
                let team = unsafe { mem::transmute::<TeamExec<'_>, TeamExec<'static>>(reserved.team()) };
                Ok(HeldTeam { team, reserved: Some(reserved) })
            })?;
        let earlier = self.open.lock().replace(Arc::clone(&token));
        drop(earlier);
        Ok(PyTeamExec { token })
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let open = self.open.lock().clone();
        open.map_or(Ok(()), |token| token.end(py, End::Closed, false))
    }
}
