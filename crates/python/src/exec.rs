//! `Exec`: a token for a share of one pool.

use crate::attach;
use crate::body::{call, Body, Signature};
use crate::costs;
use crate::errors;
use crate::external::ExternalScope;
use crate::flow::Flow;
use crate::home::{room, Home};
use crate::numbers::{at_least_one, length as a_length};
use crate::pool::PyPool;
use crate::section::{lead, watched};
use crate::teamexec::{new_team_token, PyTeamExec, TeamScope};
use crate::token::{End, Entry, Token};
use crate::wait::override_of;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::mem;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use threadteam::Exec;

/// A token for `budget` slots of one pool.
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
        lead(py, entry, keep, |exec, flow| f(watched(exec), flow))
    }

    fn fork_body<'a>(&'a self, flow: &'a Flow, body: &'a Body) -> impl Fn(usize, Exec<'_>) + Sync + 'a {
        let home = self.token.home.as_ref();
        move |index, child| match body {
            Body::Python(function) => {
                flow.body(|py| {
                    with_child(py, child, index, home, flow, |token| {
                        call(py, function, (index, PyExec { token }).into_pyobject(py)?)
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

    /// The token of the calling thread alone.
    #[staticmethod]
    fn serial() -> PyExec {
        PyExec::alone()
    }

    #[getter]
    fn budget(&self) -> usize {
        self.token.budget.get()
    }

    #[getter(is_serial)]
    fn is_serial_(&self) -> bool {
        self.is_serial()
    }

    #[getter]
    fn carries_team(&self) -> bool {
        self.token.carries_team
    }

    fn reborrow(&self, py: Python<'_>) -> PyResult<PyExec> {
        self.loan(py, "Exec.reborrow()", self.token.budget)
    }

    fn limit(&self, py: Python<'_>, max: &Bound<'_, PyAny>) -> PyResult<PyExec> {
        self.loan(py, "Exec.limit()", at_least_one(max, "max")?)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.token.end(py, End::Closed, false)
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        // A dead or used token says so here rather than at its first section.
        drop(slf.get().token.enter(slf.py(), "with")?);
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

    fn fork(&self, py: Python<'_>, jobs: &Bound<'_, PyAny>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let jobs = a_length(jobs, "jobs")?;
        let body = Body::of(body, Signature::Index, "Exec.fork()")?;
        let mut entry = self.token.enter(py, "Exec.fork()")?;
        self.section(py, &mut entry, &body, |exec, flow| exec.fork(jobs, self.fork_body(flow, &body)))
    }

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
        let function = function.clone().unbind();
        let items: Vec<Py<PyAny>> =
            iterable.try_iter()?.map(|item| item.map(Bound::unbind)).collect::<PyResult<_>>()?;
        let results = Slots::new(items.len(), "results")?;
        let mut entry = self.token.enter(py, "Exec.map()")?;
        self.section(py, &mut entry, &body, |exec, flow| {
            exec.for_ranges(items.len(), grain, |range| {
                flow.body(|py| {
                    for index in range.take_while(|_| !flow.stopped()) {
                        let arguments = (&items[index],).into_pyobject(py)?;
                        results.put(index, attach::call(function.bind(py), &arguments)?.unbind());
                    }
                    Ok(())
                });
            });
        })?;
        PyList::new(py, results.take())
    }

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
        let map_body = map_body.clone().unbind();
        let chunks = length.div_ceil(grain);
        let partials = Slots::new(chunks, "partial results")?;
        let mut entry = self.token.enter(py, "Exec.reduce()")?;
        self.section(py, &mut entry, &body, |exec, flow| {
            exec.for_ranges(chunks, NonZeroUsize::MIN, |range| {
                flow.body(|py| {
                    for chunk in range.take_while(|_| !flow.stopped()) {
                        let start = chunk * grain;
                        let arguments = (start, length.min(start.saturating_add(grain))).into_pyobject(py)?;
                        partials.put(chunk, attach::call(map_body.bind(py), &arguments)?.unbind());
                    }
                    Ok(())
                });
            });
        })?;
        // In the order of the chunks, on the caller: the same association for every budget.
        partials.take().into_iter().try_fold(initial, |sum, partial| combine.call1((sum, partial)))
    }

    #[pyo3(signature = (function = None))]
    fn external<'py>(&self, py: Python<'py>, function: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let Some(function) = function else {
            return Ok(ExternalScope::open(py, &self.token)?.into_any());
        };
        if !function.is_callable() {
            let kind = function.get_type();
            return Err(PyTypeError::new_err(format!("Exec.external() needs a callable, got {}", kind.name()?)));
        }
        let _entry = self.token.enter(py, "Exec.external()")?;
        let within = py.import("threadteam.interop.limits")?.getattr("call_limited")?;
        attach::call(&within, &(function, self.token.budget.get()).into_pyobject(py)?)
    }

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

    fn can_broadcast(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.token.enter(py, "Exec.can_broadcast()")?.inner().can_broadcast())
    }

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
        let Body::Python(function) = &body else { return Err(PyTypeError::new_err("Exec.team() needs a callable")) };
        let result: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
        let mut entry = self.token.enter(py, "Exec.team()")?;
        let outcome = lead(py, &mut entry, false, |exec, flow| {
            watched(exec).team_with(over, |team| {
                flow.body(|py| {
                    // SAFETY: ended below, before `team` and `flow` end.
                    let token = unsafe { new_team_token(team, self.token.home.as_ref(), flow) };
                    let arguments = (PyTeamExec { token: Arc::clone(&token) },).into_pyobject(py)?;
                    let outcome = attach::call(function.bind(py), &arguments);
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

    fn dispatch_cost(&self, py: Python<'_>, width: &Bound<'_, PyAny>) -> PyResult<f64> {
        let width = at_least_one(width, "width")?;
        Ok(costs::seconds(self.token.enter(py, "Exec.dispatch_cost()")?.inner().dispatch_cost(width)))
    }

    #[pyo3(signature = (estimate, sections = 1, width = None))]
    fn pays(&self, py: Python<'_>, estimate: f64, sections: u32, width: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let estimate = costs::estimate(estimate)?;
        let width = width.map_or(Ok(self.token.budget), |width| at_least_one(width, "width"))?;
        Ok(self.token.enter(py, "Exec.pays()")?.inner().pays(estimate, sections, width))
    }

    #[pyo3(signature = (estimate, sections = 1))]
    fn width_for(&self, py: Python<'_>, estimate: f64, sections: u32) -> PyResult<usize> {
        let estimate = costs::estimate(estimate)?;
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

/// One result for each index, written once each by whoever has the interpreter.
struct Slots(Mutex<Vec<Option<Py<PyAny>>>>);

impl Slots {
    fn new(count: usize, what: &str) -> PyResult<Self> {
        let mut slots = room(count, what)?;
        slots.resize_with(count, || None);
        Ok(Slots(Mutex::new(slots)))
    }

    fn put(&self, index: usize, value: Py<PyAny>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(value);
    }

    /// All of them: a section that did not fail ran every index.
    fn take(self) -> Vec<Py<PyAny>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
    }
}
