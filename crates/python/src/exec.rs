//! `Exec`: a token for a share of one pool.

use crate::attach;
use crate::body::{Body, Signature};
use crate::costs;
use crate::errors;
use crate::external::ExternalScope;
use crate::flow::{self, Flow, Within};
use crate::home::Home;
use crate::numbers::{at_least_one, length as a_length};
use crate::pool::PyPool;
use crate::section::{lead, watched};
use crate::slots::Slots;
use crate::teamexec::{new_team_token, PyTeamExec, TeamScope};
use crate::token::{End, Entry, Token};
use crate::wait::override_of;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::mem;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
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
        let name = format!("the loan by {operation} from {}", self.token.name);
        let token = self.token.lend(py, operation, name, |inner| Ok(inner.reborrow().limit(budget)))?;
        Ok(PyExec { token })
    }

    /// Runs a section of `body` on the entered token. Python bodies on a budget of one keep the interpreter.
    fn section<R: Send>(
        &self,
        py: Python<'_>,
        entry: &mut Entry<'_, Exec<'static>>,
        body: &Body,
        f: impl FnOnce(Exec<'_>, &Flow) -> R + Send,
    ) -> PyResult<R> {
        let keep = self.is_serial() && body.is_python();
        let python = body.is_python();
        lead(py, entry, keep, |exec, flow| {
            let exec = watched(exec);
            // A Python body may do anything, and one chunk may be all that the leader has: sleepers are woken at once.
            f(if python { exec.expecting(Duration::MAX) } else { exec }, flow)
        })
    }

    fn fork_body<'a>(&'a self, flow: &'a Flow, body: &'a Body) -> impl Fn(usize, Exec<'_>) + Sync + 'a {
        let home = self.token.home.as_ref();
        move |index, child| match body {
            Body::Python(function) => {
                flow.body(|py| {
                    with_child(py, child, index, home, flow, |token| {
                        function.call(py, flow, (index, PyExec { token }).into_pyobject(py)?).map(drop)
                    })
                });
            }
            Body::Native { .. } => {
                body.run_index(flow, index, |py| Ok(PyTuple::empty(py)));
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
    #[new]
    #[pyo3(signature = (pool, budget = None))]
    fn new(pool: &Bound<'_, PyPool>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        pool.get().exec(pool.py(), budget)
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
        self.section(py, &mut entry, &body, |exec, flow| {
            exec.for_ranges(length, grain, |range| body.run_range(flow, range));
        })
    }

    /// Run ``body(index, exec)`` for each of `jobs` jobs, on ``min(jobs, budget)`` tasks.
    ///
    /// The shares of the children add up to the budget. With more jobs than budget, tasks take jobs one by one.
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
        self.section(py, &mut entry, &body, |mut exec, flow| {
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
        self.section(py, &mut entry, &body, |exec, flow| exec.fork_sized(&shares, self.fork_body(flow, &body)))?
            .map_err(|_| {
                PyValueError::new_err(format!(
                    "shares must be at least 1 each and at most the budget of {} together, got {shares:?}",
                    self.token.budget
                ))
            })
    }

    /// Call `function` on every item and return the results in order.
    ///
    /// Parameters
    /// ----------
    /// function : callable
    ///     Called with one item.
    /// iterable : iterable
    ///     Read to its end first.
    /// grain : int, default 1
    ///     The fewest items that a participant takes at once.
    ///
    /// Returns
    /// -------
    /// list
    ///     One result for each item.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec().map(str.upper, "abc")
    /// ['A', 'B', 'C']
    #[pyo3(signature = (function, iterable, *, grain = None))]
    fn map<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        iterable: &Bound<'py, PyAny>,
        grain: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let grain = grain.map_or(Ok(NonZeroUsize::MIN), |grain| at_least_one(grain, "grain"))?;
        let body = Body::python(function, "Exec.map()")?;
        let items: Vec<Py<PyAny>> =
            iterable.try_iter()?.map(|item| item.map(Bound::unbind)).collect::<PyResult<_>>()?;
        let results = Slots::new(items.len(), "results")?;
        let mut entry = self.token.enter(py, "Exec.map()")?;
        self.section(py, &mut entry, &body, |exec, flow| {
            exec.for_ranges(items.len(), grain, |range| {
                flow.body(|py| {
                    for index in range.take_while(|_| !flow.stopped()) {
                        let arguments = (&items[index],).into_pyobject(py)?;
                        results.put(index, body.call(py, flow, arguments)?.unbind());
                    }
                    Ok(())
                });
            });
        })?;
        PyList::new(py, results.take())
    }

    /// Combine the results of fixed chunks in a fixed order: the same result for every budget.
    ///
    /// Parameters
    /// ----------
    /// length : int
    ///     Items.
    /// grain : int
    ///     Items of a chunk; the last may be smaller.
    /// map_body : callable
    ///     ``map_body(start, stop)`` is the result of a chunk.
    /// combine : callable
    ///     ``combine(so_far, chunk)``, called on the calling thread in the order of the chunks.
    /// initial : object
    ///     Comes first, once; it is the result for no items.
    ///
    /// Returns
    /// -------
    /// object
    ///     What the last `combine` returned.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec().reduce(10, 3, lambda a, b: sum(range(a, b)), lambda x, y: x + y, 0)
    /// 45
    #[pyo3(signature = (length, grain, map_body, combine, initial))]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        length: &Bound<'py, PyAny>,
        grain: &Bound<'py, PyAny>,
        map_body: &Bound<'py, PyAny>,
        combine: &Bound<'py, PyAny>,
        initial: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let length = a_length(length, "length")?;
        let grain = at_least_one(grain, "grain")?.get();
        let body = Body::python(map_body, "Exec.reduce()")?;
        if !combine.is_callable() {
            let kind = combine.get_type();
            return Err(PyTypeError::new_err(format!("combine must be callable, got {}", kind.name()?)));
        }
        let chunks = length.div_ceil(grain);
        let partials = Slots::new(chunks, "partial results")?;
        let mut entry = self.token.enter(py, "Exec.reduce()")?;
        self.section(py, &mut entry, &body, |exec, flow| {
            exec.for_ranges(chunks, NonZeroUsize::MIN, |range| {
                flow.body(|py| {
                    for chunk in range.take_while(|_| !flow.stopped()) {
                        let start = chunk * grain;
                        let arguments = (start, length.min(start.saturating_add(grain))).into_pyobject(py)?;
                        partials.put(chunk, body.call(py, flow, arguments)?.unbind());
                    }
                    Ok(())
                });
            });
        })?;
        let flow = entry.flow();
        let _within = Within::enter(&flow);
        // In the order of the chunks, on the caller: the same association for every budget.
        partials.take().into_iter().try_fold(initial, |sum, partial| combine.call1((sum, partial)))
    }

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
        let Some(function) = function else {
            return Ok(ExternalScope::open(py, &self.token)?.into_any());
        };
        if !function.is_callable() {
            let kind = function.get_type();
            return Err(PyTypeError::new_err(format!("Exec.external() needs a callable, got {}", kind.name()?)));
        }
        let entry = self.token.enter(py, "Exec.external()")?;
        let flow = entry.flow();
        let _within = Within::enter(&flow);
        let within = py.import("threadteam.interop.limits")?.getattr("call_limited")?;
        attach::call(&within, &(function, self.token.budget.get()).into_pyobject(py)?)
    }

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
        let outcome = self.section(py, &mut entry, &body, |exec, flow| {
            exec.broadcast(|index| {
                body.run_index(flow, index, |py| (index,).into_pyobject(py));
            })
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
        let body = Body::python(body, "Exec.team()")?;
        let result: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
        let mut entry = self.token.enter(py, "Exec.team()")?;
        let outcome = lead(py, &mut entry, false, |exec, flow| {
            watched(exec).team_with(over, |team| {
                flow.body(|py| {
                    // SAFETY: ended below, before `team` and `flow` end.
                    let token = unsafe { new_team_token(team, self.token.home.as_ref(), flow) };
                    let arguments = (PyTeamExec { token: Arc::clone(&token) },).into_pyobject(py)?;
                    let outcome = body.call(py, flow, arguments);
                    token.end_with_body(py)?;
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome?.unbind());
                    Ok(())
                });
            })
        })?;
        outcome.map_err(|reason| errors::refused(py, "Refused", "Exec.team()", reason))?;
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(result.map_or_else(|| py.None().into_bound(py), |result| result.into_bound(py)))
    }

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

    fn __repr__(&self) -> String {
        let dead = if self.token.is_dead() { "dead " } else { "" };
        format!("<{dead}{}>", self.token.name)
    }

    fn __copy__(&self) -> PyResult<()> {
        Err(no_copy(&self.token.name))
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyDict>) -> PyResult<()> {
        Err(no_copy(&self.token.name))
    }

    fn __reduce_ex__(&self, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(no_copy(&self.token.name))
    }
}

/// Why a token cannot be copied or pickled.
pub(crate) fn no_copy(name: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{name} cannot be copied or pickled: its slots would count twice; lend it with reborrow(), or take another token \
         from the pool"
    ))
}

/// Integers of at least one, from any iterable.
pub(crate) fn sizes(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<usize>> {
    given.try_iter()?.map(|item| at_least_one(&item?, name).map(NonZeroUsize::get)).collect()
}
