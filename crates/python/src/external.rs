//! `external`, the scope in which other libraries use a token's budget, of `Exec` and `TeamExec`.

use crate::arguments::callable;
use crate::attach;
use crate::deferred;
use crate::exec::PyExec;
use crate::flow::{Flow, Within};
use crate::life;
use crate::pending;
use crate::section::{lead, off_interpreter, watched};
use crate::teamexec::{HeldTeam, PyTeamExec};
use crate::token::{Entry, GiveBack, Held, Loan, Token};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use threadteam::{Exec, External, ForkLock};

/// A token whose budget another library may use.
trait Usable: Held {
    /// Its `external`, in messages.
    const CALL: &'static str;
    const SCOPE: &'static str;

    fn external(&mut self) -> External<'_>;
}

impl Usable for Exec<'static> {
    const CALL: &'static str = "Exec.external()";
    const SCOPE: &'static str = "with Exec.external()";

    fn external(&mut self) -> External<'_> {
        watched(self).into_external()
    }
}

impl Usable for HeldTeam {
    const CALL: &'static str = "TeamExec.external()";
    const SCOPE: &'static str = "with TeamExec.external()";

    fn external(&mut self) -> External<'_> {
        self.team.exec().into_external()
    }
}

/// The members that a token's pool may use meanwhile; none when the token has none of its own.
struct Lending {
    external: Option<External<'static>>,
    /// The pool's number.
    pool: u64,
}

impl Lending {
    /// Must end before `entry`, and what the entry becomes.
    fn begin<T: Usable>(py: Python<'_>, entry: &mut Entry<'_, T>) -> PyResult<Lending> {
        // The other library may start threads from this one.
        threadteam::before_foreign_work();
        let pool = entry.home().map_or(0, |home| home.id);
        if !entry.has_members() {
            return Ok(Lending { external: None, pool });
        }
        lead(py, entry, false, |held, _| {
            // SAFETY: the token stays where it is and is nobody else's until the caller has ended this.
            let external = unsafe { mem::transmute::<External<'_>, External<'static>>(held.external()) };
            Lending { external: Some(external), pool }
        })
    }

    /// Waits until the members have been given back. What a signal handler raises meanwhile is raised afterwards.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(external) = self.external.take() else { return Ok(()) };
        if life::closing() {
            // A borrower may sleep for good; nobody claims members any more.
            mem::forget(external);
            return Ok(());
        }
        let flow = Flow::new(self.pool, ptr::null(), None);
        off_interpreter(py, &flow, || drop(external));
        flow.finish(py)
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        if self.external.is_some() {
            Python::attach(|py| {
                if let Err(error) = self.end(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }
}

/// What `external()` returns: limits the other thread pools on entering, restores them on leaving.
#[pyclass(frozen, module = "threadteam", name = "ExternalScope")]
pub(crate) struct ExternalScope {
    token: Arc<dyn Opens>,
    open: ForkLock<Option<Arc<Open>>>,
}

impl ExternalScope {
    fn new(token: Arc<dyn Opens>) -> ExternalScope {
        ExternalScope { token, open: ForkLock::new(None) }
    }
}

/// A token of either kind.
trait Opens: Send + Sync {
    fn open(self: Arc<Self>, py: Python<'_>) -> PyResult<Arc<Open>>;

    fn width(&self) -> usize;
}

impl<T: Usable> Opens for Token<T> {
    fn open(self: Arc<Self>, py: Python<'_>) -> PyResult<Arc<Open>> {
        self.lend_to_scope(py, T::SCOPE, |entry, give_back| {
            let stage = ForkLock::new(Stage::Open(Lending::begin(py, entry)?));
            Ok(Open { limit: ForkLock::new(None), stage, give_back })
        })
    }

    fn width(&self) -> usize {
        self.budget.get()
    }
}

/// How far a scope is on its way to its end.
enum Stage {
    Open(Lending),
    /// A thread of this process (see [`life::generation`]) waits for the members.
    Ending(u32),
    Ended,
}

/// The open scope: a loan of the token.
struct Open {
    /// A `threadteam.interop.limits.Limit`.
    limit: ForkLock<Option<Py<PyAny>>>,
    stage: ForkLock<Stage>,
    give_back: GiveBack,
}

impl Open {
    /// Ends what is left of it, in steps that each happen once, whoever comes. False when another thread is at one now.
    fn restore(&self, py: Python<'_>) -> PyResult<bool> {
        let limit = self.limit.lock().take();
        let restored = limit.map_or(Ok(()), |limit| attach::call_method(limit.bind(py), "close", ()).map(drop));
        let now = life::generation();
        let mut stage = self.stage.lock();
        let outcome = match mem::replace(&mut *stage, Stage::Ending(now)) {
            Stage::Open(mut lending) => {
                drop(stage);
                lending.end(py)
            }
            // It stayed in the parent of a fork, and so did the members.
            Stage::Ending(generation) if generation != now => {
                drop(stage);
                Ok(())
            }
            other => {
                let ended = matches!(other, Stage::Ended);
                *stage = other;
                drop(stage);
                return restored.map(|()| ended);
            }
        };
        self.give_back.now();
        *self.stage.lock() = Stage::Ended;
        restored.and(outcome).map(|()| true)
    }
}

impl Loan for Open {
    fn end_loan(&self, py: Python<'_>, _wait: bool) -> PyResult<()> {
        while !self.restore(py)? {
            py.detach(|| std::thread::sleep(Duration::from_millis(1)));
            pending::run(py)?;
        }
        Ok(())
    }

    /// Whoever ends it here notices: see [`Stage::Ending`].
    fn lent_to(&self) -> Option<Arc<dyn Loan>> {
        None
    }

    fn leave_parent(&self) {}
}

impl Drop for Open {
    fn drop(&mut self) {
        // The last reference: nobody else is at its end.
        if !matches!(self.stage.get_mut(), Stage::Ended) {
            Python::attach(|py| {
                if let Err(error) = self.restore(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }
}

#[pymethods]
impl ExternalScope {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = Arc::clone(&self.token).open(py)?;
        let limit = attach::call_function(py, "threadteam.interop.limits", "Limit", (self.token.width(),))?;
        let width = limit.getattr("width")?;
        *open.limit.lock() = Some(limit.unbind());
        // One that was ended through its token.
        let earlier = self.open.lock().replace(open);
        drop(earlier);
        Ok(width)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let open = self.open.lock().take();
        open.map_or(Ok(()), |open| open.end_loan(py, true))
    }
}

/// `function(width)` with the token's budget, or the scope that hands it out.
fn external<'py, T: Usable>(
    py: Python<'py>,
    token: &Arc<Token<T>>,
    function: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(function) = function else {
        let token: Arc<dyn Opens> = Arc::clone(token) as Arc<dyn Opens>;
        return Ok(Bound::new(py, ExternalScope::new(token))?.into_any());
    };
    callable(function, format_args!("function of {}", T::CALL))?;
    let mut entry = token.enter(py, T::CALL)?;
    let mut lending = Lending::begin(py, &mut entry)?;
    let flow = entry.flow();
    let within = Within::enter(&flow);
    let limited = attach::part(py, "threadteam.interop.limits")?.getattr("call_limited")?;
    let outcome = attach::call(&limited, &(function, token.budget.get()).into_pyobject(py)?)
        .and_then(|result| deferred::refuse_awaitable(&result, function, T::CALL).map(|()| result));
    drop(within);
    match lending.end(py) {
        Ok(()) => outcome,
        Err(interrupt) => {
            interrupt.set_cause(py, outcome.err());
            Err(interrupt)
        }
    }
}

#[pymethods]
impl PyExec {
    /// Hand the budget to other libraries as a plain width, and limit their thread pools to it.
    ///
    /// Parameters
    /// ----------
    /// function : callable, optional
    ///     Called as ``function(width)``; without it, a context manager is returned that hands out the width.
    ///
    /// Returns
    /// -------
    /// object
    ///     The function's result, or a context manager. The width knows what is `limited` and what is `unlimited`.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     token = pool.exec()
    /// ...     token.external(lambda width: width + 1)
    /// ...     with token.external() as width:
    /// ...         int(width)
    /// 3
    /// 2
    #[pyo3(signature = (function = None))]
    fn external<'py>(&self, py: Python<'py>, function: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        external(py, &self.token, function)
    }
}

#[pymethods]
impl PyTeamExec {
    /// Hand the team's size to other libraries as a plain width, as `Exec.external` does, and lend its members.
    ///
    /// Meanwhile sections of the pool's other tokens may take the members. The end waits until each has been given back, and
    /// the team has them all again.
    ///
    /// Parameters
    /// ----------
    /// function : callable, optional
    ///     Called as ``function(width)``; without it, a context manager is returned that hands out the width.
    ///
    /// Returns
    /// -------
    /// object
    ///     The function's result, or a context manager.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team, team.external() as width:
    /// ...     pool.exec().broadcast(lambda index: None)  # on the lent member
    /// ...     int(width)
    /// 2
    #[pyo3(signature = (function = None))]
    fn external<'py>(&self, py: Python<'py>, function: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        external(py, &self.token, function)
    }
}
