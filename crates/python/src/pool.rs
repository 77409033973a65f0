//! `Pool`: the only thing that starts threads.

use crate::arguments::{instance, items, shown, text, truth, Optional};
use crate::attach;
use crate::costs::PyDispatchCosts;
use crate::ending;
use crate::errors;
use crate::exec::PyExec;
use crate::home::Home;
use crate::hook::StartHook;
use crate::life;
use crate::numbers::{at_least_one, small_count, time};
use crate::single::{never_copied, refuse_copy_of_owner};
use crate::stack;
use crate::stats::PyPoolStats;
use crate::team::PyTeam;
use crate::trace::PyTrace;
use crate::wait::{override_of, policy_of, PyWaitPolicy};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyTuple};
use std::num::NonZeroUsize;
use std::sync::Arc;
use threadteam::{Pool, Qos};

/// A thread pool: the calling thread plus `width - 1` resident workers. The only thing that starts threads.
///
/// Workers start at the first section, spin for a bounded time when idle, then sleep without using any CPU.
///
/// Parameters
/// ----------
/// threads : int, optional
///     Participants, the calling thread included, 1025 at most; `cpu_budget().count` by default, or as many as `domains` has CPUs.
/// name : str, default "threadteam"
///     Prefix of the workers' thread names.
/// stack_size : int, optional
///     Bytes of stack of each worker: 8 MiB by default, 512 KiB at least.
/// on_start : callable, optional
///     Called as ``on_start(index)`` on each worker as it starts; its exceptions are reported, not raised. The workers are new
///     threads then, and end with the pool.
/// pin_participants : bool, default False
///     Place the members of a team on the caller's CPUs, or on those of their domains (Linux); the leader is never pinned.
/// wait : WaitPolicy or WaitOverride, optional
///     How idle workers wait; by default as ``THREADTEAM_SPIN`` says, or adaptively.
/// acquire_timeout : float, default 0.002
///     Seconds that a team or a broadcast waits for busy members before it is refused.
/// qos : str, optional
///     Scheduling class of the workers on Apple systems.
/// dispatch_costs : DispatchCosts, optional
///     What a section is said to cost; `DispatchCosts.host_default()` by default.
/// domains : iterable of sets of int, optional
///     Disjoint sets of CPUs that share a cache, as in `cpu_budget().domains`. Participants fill them in order, one a CPU; the
///     caller counts to the first and stays where it is, every worker keeps to the CPUs of its domain (Linux). `fork` cuts at
///     their boundaries first: a child that fits a domain has slots of one, and what it runs stays there. CPUs outside of the
///     caller's affinity mask do not count.
///
/// Raises
/// ------
/// ValueError
///     A width below 1 or above the CPUs of the domains, domains that are none, a time that is none, or an unusable environment
///     variable.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> with tt.Pool(2) as pool:
/// ...     pool.exec().map(abs, [-1, -2, -3])
/// [1, 2, 3]
///
/// One job for each last-level cache, with the CPUs that share it:
///
/// >>> budgets = []
/// >>> with tt.Pool(domains=tt.cpu_budget().domains) as pool:
/// ...     pool.exec().fork(len(pool.domains), lambda job, child: budgets.append(child.budget))
/// ...     sorted(budgets) == sorted(map(len, pool.domains))
/// True
#[pyclass(frozen, weakref, module = "threadteam", name = "Pool")]
pub(crate) struct PyPool {
    pub(crate) home: Arc<Home>,
    costs: PyDispatchCosts,
    policy: PyWaitPolicy,
    pinned: bool,
    domains: Option<Vec<Vec<usize>>>,
    hook: Option<Arc<StartHook>>,
}

impl PyPool {
    pub(crate) fn exec(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        let budget = match budget.filter(|given| !given.is_none()) {
            Some(given) => at_least_one(given, "budget")?,
            None => self.home.width,
        };
        Ok(PyExec { token: self.home.mint(py, budget)? })
    }
}

#[pymethods]
impl PyPool {
    #[new]
    #[pyo3(signature = (
        threads = None, *, name = Optional::LeftOut, stack_size = None, on_start = None, pin_participants = Optional::LeftOut, wait = None,
        acquire_timeout = Optional::LeftOut, qos = None, dispatch_costs = None, domains = None
    ), text_signature = "(threads=None, *, name='threadteam', stack_size=None, on_start=None, pin_participants=False, \
        wait=None, acquire_timeout=0.002, qos=None, dispatch_costs=None, domains=None)")]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        threads: Option<&Bound<'_, PyAny>>,
        name: Optional<'_>,
        stack_size: Option<&Bound<'_, PyAny>>,
        on_start: Option<Bound<'_, PyAny>>,
        pin_participants: Optional<'_>,
        wait: Option<&Bound<'_, PyAny>>,
        acquire_timeout: Optional<'_>,
        qos: Option<&Bound<'_, PyAny>>,
        dispatch_costs: Option<&Bound<'_, PyAny>>,
        domains: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyPool> {
        ending::watch();
        let domains = domains.filter(|given| !given.is_none()).map(domains_of).transpose()?;
        let threads = threads.filter(|given| !given.is_none());
        let width = if domains.is_some() && threads.is_none() { None } else { Some(width_of(py, threads)?) };
        let title = name.read(|given| text(given, "name"))?.unwrap_or_else(|| "threadteam".to_owned());
        let worker_title = title.clone();
        let pinned = pin_participants.read(|given| truth(given, "pin_participants"))?.unwrap_or(false);
        let mut builder = Pool::builder()
            .lazy(true)
            .system_name(move |index| format!("{worker_title}-{index}"))
            .on_stop(|_| attach::let_go())
            .pin_participants(pinned)
            .wait(policy_of(wait)?);
        if let Some(timeout) = acquire_timeout.read(|given| time(given, "acquire_timeout"))? {
            builder = builder.acquire_timeout(timeout);
        }
        if let Some(width) = width {
            builder = builder.threads(width.get());
        }
        if let Some(domains) = domains {
            builder = builder.domains(domains);
        }
        let stack_size = stack_size.filter(|given| !given.is_none());
        builder = builder.stack_size(stack_size.map_or(Ok(stack::DEFAULT), stack_of)?);
        let costs = match dispatch_costs.filter(|given| !given.is_none()) {
            Some(given) => *instance::<PyDispatchCosts>(given, "dispatch_costs", "a DispatchCosts")?.get(),
            None => PyDispatchCosts::host_default(py)?,
        };
        builder = builder.dispatch_costs(costs.0);
        if let Some(qos) = qos.filter(|given| !given.is_none()) {
            builder = builder.qos(qos_of(qos)?);
        }
        let hook = on_start.filter(|given| !given.is_none()).map(StartHook::new).transpose()?;
        if let Some(hook) = &hook {
            let hook = Arc::clone(hook);
            builder = builder.on_start(move |index| hook.call(index));
        }
        life::limit_kept_workers(py);
        let pool = builder.build().map_err(|error| errors::from_core(py, &error))?;
        let policy = PyWaitPolicy::from(pool.wait_policy());
        let domains = pool.domains().map(|domains| domains.map(<[usize]>::to_vec).collect());
        Ok(PyPool { home: Home::new(pool, title), costs, policy, pinned, domains, hook })
    }

    /// Participants, the calling thread included.
    #[getter]
    fn width(&self) -> usize {
        self.home.width.get()
    }

    /// Prefix of the workers' thread names.
    #[getter]
    fn name(&self) -> &str {
        &self.home.name
    }

    /// How idle workers wait.
    #[getter]
    fn wait_policy(&self) -> PyWaitPolicy {
        self.policy
    }

    /// What a section is said to cost.
    #[getter]
    fn dispatch_costs(&self) -> PyDispatchCosts {
        self.costs
    }

    /// Whether members of teams are placed on CPUs of their own.
    #[getter]
    fn pin_participants(&self) -> bool {
        self.pinned
    }

    /// The CPUs of each cache domain that it was laid over, without those that it may not use; None without domains.
    #[getter]
    fn domains<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(domains) = &self.domains else { return Ok(None) };
        let sets: Vec<_> = domains.iter().map(|cpus| PyFrozenSet::new(py, cpus)).collect::<PyResult<_>>()?;
        PyTuple::new(py, sets).map(Some)
    }

    /// Workers that are awake now.
    #[getter]
    fn resident_members(&self) -> usize {
        self.home.ask(Pool::resident_members).unwrap_or(0)
    }

    /// Whether the pool is closed, or spent by `into_team`.
    #[getter]
    fn closed(&self) -> bool {
        !self.home.is_open()
    }

    /// Mint a root token.
    ///
    /// Parameters
    /// ----------
    /// budget : int, optional
    ///     Slots; clamped to the width, which is the default.
    ///
    /// Returns
    /// -------
    /// Exec
    ///     A token for so many slots of this pool.
    ///
    /// Raises
    /// ------
    /// PoolClosed
    ///     The pool is closed, or moved into a team, which the message names.
    /// ValueError
    ///     A budget below 1.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec(1).budget, pool.exec(100).budget
    /// (1, 2)
    #[pyo3(name = "exec", signature = (budget = None))]
    fn exec_(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyExec> {
        self.exec(py, budget)
    }

    /// Move the pool into a team whose members stay reserved.
    ///
    /// The pool is spent until `Team.into_pool` gives it back. Tokens minted before raise `PoolClosed`.
    ///
    /// Parameters
    /// ----------
    /// width : int, optional
    ///     Participants, clamped to the pool's width, which is the default.
    /// wait : WaitPolicy or WaitOverride, optional
    ///     How the members wait while they are reserved.
    ///
    /// Returns
    /// -------
    /// Team
    ///     The team, which closes the pool when it is closed.
    ///
    /// Raises
    /// ------
    /// IntoTeamError
    ///     Not all members can be had, or a token of the pool is in use; the pool stays usable.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2, acquire_timeout=10.0).into_team() as team, team.exec() as token:
    /// ...     token.carries_team
    /// True
    #[pyo3(signature = (width = None, *, wait = None))]
    fn into_team<'py>(
        slf: Bound<'py, Self>,
        width: Option<&Bound<'py, PyAny>>,
        wait: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<PyTeam> {
        let home = Arc::clone(&slf.get().home);
        let width = match width.filter(|given| !given.is_none()) {
            Some(given) => at_least_one(given, "width")?.min(home.width),
            None => home.width,
        };
        let moves = home.move_into_team(slf.py(), width, override_of(wait)?)?;
        Ok(PyTeam::new(slf.unbind(), moves, width))
    }

    /// Let idle workers sleep at once. Never blocks.
    fn release_idle(&self) {
        self.home.ask(Pool::release_idle);
    }

    /// Return the counters of this pool since it was made.
    ///
    /// Returns
    /// -------
    /// PoolStats
    ///     Reading them costs the workers nothing. Those of a closed pool are the last ones.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec().for_ranges(8, 4, lambda start, stop: None)
    /// ...     pool.stats().sections
    /// 1
    fn stats(&self) -> PyPoolStats {
        PyPoolStats::from(self.home.stats())
    }

    /// Records into `trace` from now on; None ends that.
    #[pyo3(signature = (trace))]
    fn _set_trace(&self, trace: Option<&PyTrace>) {
        self.home.set_trace(trace.map(|trace| Arc::clone(trace.core())));
    }

    /// End all tokens, wait for the entries that run, and let the workers go. Closing again does nothing.
    ///
    /// The workers are ended, or sleep until another pool takes them: fewer than `cpu_budget().count` in all.
    ///
    /// Raises
    /// ------
    /// ThreadteamError
    ///     Called from inside a body of this pool, which it would wait for.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.home.close(py, "Pool.close()")
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        if !slf.get().home.is_open() {
            return Err(slf.get().home.gone(slf.py(), "with Pool"));
        }
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.home.is_open() { "" } else { "closed or spent " };
        format!("<{state}{}>", self.home.title())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // While tokens or a team keep the workers, these may still call the hook, wherever the pool object is.
        match &self.hook {
            Some(hook) if Arc::strong_count(&self.home) == 1 => hook.function.traverse(&visit),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Some(hook) = &self.hook {
            hook.function.clear();
        }
    }
}

never_copied!(PyPool, |_owner| "a Pool", refuse_copy_of_owner);

/// The width that `threads` asks for; the CPU budget by default.
fn width_of(py: Python<'_>, threads: Option<&Bound<'_, PyAny>>) -> PyResult<NonZeroUsize> {
    let (given, name) = match threads {
        Some(given) => (given.clone(), "threads"),
        None => {
            let budget = attach::call_function(py, "threadteam.cpus", "cpu_budget", ())?;
            (budget.getattr("count")?, "cpu_budget().count")
        }
    };
    let width = at_least_one(&given, name)?;
    if width.get() > Pool::MAX_THREADS {
        return Err(PyValueError::new_err(format!(
            "{name} must be at most {}, got {}",
            Pool::MAX_THREADS,
            shown(&given)
        )));
    }
    Ok(width)
}

/// The sets of CPU ids that `domains` asks for.
fn domains_of(given: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<usize>>> {
    let iterate = |given: &Bound<'_, PyAny>| -> PyResult<Vec<Py<PyAny>>> {
        if given.hasattr("__iter__")? {
            return items(given, "domains");
        }
        Err(PyTypeError::new_err(format!(
            "domains must be an iterable of sets of CPU ids, as cpu_budget().domains is, got {} of type {}",
            shown(given),
            given.get_type().name()?
        )))
    };
    let py = given.py();
    let cpus = |set: Py<PyAny>| -> PyResult<Vec<usize>> {
        iterate(set.bind(py))?
            .iter()
            .map(|cpu| small_count(cpu.bind(py), "a CPU id in domains").map(|cpu| cpu as usize))
            .collect()
    };
    iterate(given)?.into_iter().map(cpus).collect()
}

/// Bytes of stack of a worker.
fn stack_of(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let bytes = at_least_one(given, "stack_size")?.get();
    if bytes < stack::LEAST {
        return Err(PyValueError::new_err(format!(
            "stack_size must be at least {} bytes for Python bodies, got {bytes}",
            stack::LEAST
        )));
    }
    if bytes > stack::MOST {
        return Err(PyValueError::new_err(format!("stack_size must be at most {} bytes, got {bytes}", stack::MOST)));
    }
    Ok(bytes)
}

fn qos_of(given: &Bound<'_, PyAny>) -> PyResult<Qos> {
    let name = text(given, "qos")?;
    match name.as_str() {
        "default" => Ok(Qos::Default),
        "utility" => Ok(Qos::Utility),
        "user_initiated" => Ok(Qos::UserInitiated),
        "user_interactive" => Ok(Qos::UserInteractive),
        _ => Err(PyValueError::new_err(format!(
            "qos must be 'default', 'utility', 'user_initiated' or 'user_interactive', got {name:?}"
        ))),
    }
}
