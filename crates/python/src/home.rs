//! Where tokens come from: a runtime pool, in the hands of a `Pool` or moved into a `Team`, and the root tokens out now.

use crate::attach::attached;
use crate::errors::{self, raise};
use crate::flow;
use crate::life;
use crate::token::{End, Lender, Token};
use crate::trace::PyTrace;
use pyo3::prelude::*;
use std::mem;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::Duration;
use threadteam::trace::Trace;
use threadteam::{Bell, Exec, Pool, Refused, Stats, Team, WaitOverride};

/// A root token's place in the runtime.
pub(crate) type Root = Token<Exec<'static>>;

/// Who owns the workers now.
enum Owner {
    Pool(Box<Pool>),
    Team(Box<Team>),
    /// On the way from one to the other.
    Moving,
    Closed,
}

/// A pool's workers and everything that hangs on them. `Pool`, `Team` and every token share one.
pub(crate) struct Home {
    /// Never 0, which stands for "no pool".
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) width: NonZeroUsize,
    owner: Mutex<Owner>,
    /// The runtime pool, wherever it is; null when closed. Live tokens keep it valid.
    core: AtomicPtr<Pool>,
    closing: AtomicBool,
    /// Counts moves into teams, so that a team that gave its pool back knows that it did.
    moves: AtomicU64,
    roots: Mutex<Vec<Weak<Root>>>,
    lead: Mutex<Option<Holder>>,
    lead_given_up: Bell,
}

/// Who holds a team's root token.
struct Holder {
    thread: ThreadId,
    generation: u32,
    token: Weak<Root>,
}

/// Tells the home that a team's root token is dead.
struct Lease(Weak<Home>);

impl Lender for Lease {
    fn take_back(&self) {
        if let Some(home) = self.0.upgrade() {
            *lock(&home.lead) = None;
            home.lead_given_up.ring();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static NEXT: AtomicU64 = AtomicU64::new(1);
static HOMES: Mutex<Vec<Weak<Home>>> = Mutex::new(Vec::new());
/// What new pools record into.
static TRACE: Mutex<Option<Arc<Trace>>> = Mutex::new(None);

impl Home {
    pub(crate) fn new(pool: Pool, name: String) -> Arc<Home> {
        let pool = Box::new(pool);
        let home = Arc::new(Home {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            width: pool.width(),
            core: AtomicPtr::new(ptr::from_ref(&*pool).cast_mut()),
            owner: Mutex::new(Owner::Pool(pool)),
            closing: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            roots: Mutex::new(Vec::new()),
            lead: Mutex::new(None),
            lead_given_up: Bell::new(),
        });
        home.set_trace(lock(&TRACE).clone());
        let mut homes = lock(&HOMES);
        homes.retain(|known| known.strong_count() > 0);
        homes.push(Arc::downgrade(&home));
        home
    }

    /// The open pools of this process.
    pub(crate) fn all() -> Vec<Arc<Home>> {
        lock(&HOMES).iter().filter_map(Weak::upgrade).collect()
    }

    /// What the pool is called in messages.
    pub(crate) fn title(&self) -> String {
        format!("pool {:?} of width {}", self.name, self.width)
    }

    /// Why the pool cannot be used, as the exception to raise.
    pub(crate) fn gone(&self, py: Python<'_>, operation: &str) -> PyErr {
        let title = self.title();
        let message = match &*lock(&self.owner) {
            Owner::Team(team) => format!(
                "{operation}: {title} was moved into a Team of size {} by into_team(); use the team's tokens, or get the \
                 pool back with Team.into_pool()",
                team.size()
            ),
            Owner::Pool(_) if !self.closing.load(Ordering::Relaxed) => format!(
                "{operation}: the token or team is from before {title} moved between Pool and Team; take a new token"
            ),
            _ => format!("{operation}: {title} is closed; make a new Pool"),
        };
        raise(py, "PoolClosed", message)
    }

    /// Starts the workers unless they run. Their refusal is an exception once; then the pool runs with those it has.
    pub(crate) fn start(&self) -> Result<(), threadteam::Error> {
        // SAFETY: the caller has entered a live token, which keeps the pool where it is.
        match unsafe { self.core.load(Ordering::Relaxed).as_ref() } {
            Some(pool) => pool.start(),
            None => Ok(()),
        }
    }

    /// Mints a root token of the pool.
    pub(crate) fn mint(self: &Arc<Home>, py: Python<'_>, budget: NonZeroUsize) -> PyResult<Arc<Root>> {
        let owner = lock(&self.owner);
        let Owner::Pool(pool) = &*owner else {
            drop(owner);
            return Err(self.gone(py, "Pool.exec()"));
        };
        if self.closing.load(Ordering::Relaxed) {
            drop(owner);
            return Err(self.gone(py, "Pool.exec()"));
        }
        let exec = Exec::new(pool, budget.get()).map_err(|error| errors::from_core(py, &error))?;
        let name = format!("Exec(budget={}, {})", exec.budget(), self.title());
        // SAFETY: the pool stays in its box until this home has ended the tokens it registers here.
        let exec = unsafe { mem::transmute::<Exec<'_>, Exec<'static>>(exec) };
        // SAFETY: as above.
        let token = unsafe { Token::root(exec, Some(Arc::clone(self)), name, None) };
        self.register(&token);
        Ok(token)
    }

    fn register(&self, token: &Arc<Root>) {
        let mut roots = lock(&self.roots);
        // Amortised: the list is swept whenever it would grow.
        if roots.len() == roots.capacity() {
            roots.retain(|root| root.upgrade().is_some_and(|root| !root.is_dead()));
        }
        roots.push(Arc::downgrade(token));
    }

    /// Mints the root token of the team; waits for the previous one, or raises `Refused`.
    pub(crate) fn mint_lead(
        self: &Arc<Home>,
        py: Python<'_>,
        moves: u64,
        budget: Option<NonZeroUsize>,
        wait: bool,
    ) -> PyResult<Arc<Root>> {
        let operation = if wait { "Team.exec()" } else { "Team.try_exec()" };
        loop {
            if self.closing.load(Ordering::Relaxed) || self.moves.load(Ordering::Relaxed) != moves {
                return Err(self.gone(py, operation));
            }
            let heard = self.lead_given_up.rings();
            let Some((holds, token)) = self.holder() else {
                return self.take_lead(py, operation, budget);
            };
            if let Some(stale) = token {
                // Led by a thread that stayed in the parent of a fork.
                stale.end(py, End::Forked, false)?;
                *lock(&self.lead) = None;
                continue;
            }
            if !wait {
                self.count_busy();
                return Err(errors::refused(py, "Refused", operation, Refused::Busy));
            }
            if holds {
                let message = format!(
                    "{operation}: this thread holds the team's root token and would wait for itself; close it, or lend it \
                     with reborrow()"
                );
                return Err(raise(py, "TokenBusy", message));
            }
            // No lock is held off the interpreter: a fork would leave it held in the child.
            py.detach(|| self.lead_given_up.wait(heard, Some(Duration::from_millis(50))));
            py.check_signals()?;
        }
    }

    /// The team counts the refusal of a root token: its own is out.
    fn count_busy(&self) {
        if let Owner::Team(team) = &*lock(&self.owner) {
            drop(team.try_exec(1));
        }
    }

    /// Whether the calling thread leads, and the token to end if its leader stayed in another process.
    fn holder(&self) -> Option<(bool, Option<Arc<Root>>)> {
        let lead = lock(&self.lead);
        let holder = lead.as_ref()?;
        let own = holder.thread == std::thread::current().id();
        let stale = holder.generation != life::generation() && !own;
        // A token that nobody has any more is being dropped, which gives the lead up.
        Some((own, stale.then(|| holder.token.upgrade()).flatten()))
    }

    fn take_lead(
        self: &Arc<Home>,
        py: Python<'_>,
        operation: &str,
        budget: Option<NonZeroUsize>,
    ) -> PyResult<Arc<Root>> {
        let owner = lock(&self.owner);
        let Owner::Team(team) = &*owner else {
            drop(owner);
            return Err(self.gone(py, operation));
        };
        let exec = team
            .try_exec(budget.unwrap_or(team.size()).get())
            .map_err(|reason| errors::refused(py, "Refused", operation, reason))?;
        let name = format!("Exec(budget={}, team of size {} on {})", exec.budget(), team.size(), self.title());
        // SAFETY: the team stays in its box until this home has ended the tokens it registers here.
        let exec = unsafe { mem::transmute::<Exec<'_>, Exec<'static>>(exec) };
        let lease: Arc<dyn Lender> = Arc::new(Lease(Arc::downgrade(self)));
        // SAFETY: as above.
        let token = unsafe { Token::root(exec, Some(Arc::clone(self)), name, Some(lease)) };
        self.register(&token);
        *lock(&self.lead) = Some(Holder {
            thread: std::thread::current().id(),
            generation: life::generation(),
            token: Arc::downgrade(&token),
        });
        Ok(token)
    }

    fn live_roots(&self) -> Vec<Arc<Root>> {
        lock(&self.roots).iter().filter_map(Weak::upgrade).filter(|root| !root.is_dead()).collect()
    }

    /// Ends every root token, waiting for the entries that run.
    fn end_roots(&self, py: Python<'_>) -> PyResult<()> {
        for root in self.live_roots() {
            root.end(py, End::PoolGone, true)?;
        }
        Ok(())
    }

    fn refuse_from_inside(&self, py: Python<'_>, operation: &str) -> PyResult<()> {
        // Native code that calls back into Python is inside a body too, as its leader or on a worker.
        if !flow::inside(self.id) && self.ask(Pool::is_worker) != Some(true) {
            return Ok(());
        }
        let message = format!(
            "{operation} was called from inside a body of {}, which it would wait for; call it after the section",
            self.title()
        );
        Err(raise(py, "ThreadteamError", message))
    }

    /// Ends the tokens, joins the workers. Idempotent.
    pub(crate) fn close(&self, py: Python<'_>, operation: &str) -> PyResult<()> {
        self.refuse_from_inside(py, operation)?;
        self.closing.store(true, Ordering::Relaxed);
        self.end_roots(py)?;
        let owner = mem::replace(&mut *lock(&self.owner), Owner::Closed);
        self.core.store(ptr::null_mut(), Ordering::Relaxed);
        // Workers give their thread states back as they end, for which they need the interpreter.
        py.detach(|| discard(owner));
        Ok(())
    }

    /// Moves the pool into a team. Returns the number of the move.
    pub(crate) fn move_into_team(&self, py: Python<'_>, width: NonZeroUsize, wait: WaitOverride) -> PyResult<u64> {
        let what = format!("Pool.into_team() on {}", self.title());
        if self.closing.load(Ordering::Relaxed) || !matches!(*lock(&self.owner), Owner::Pool(_)) {
            return Err(self.gone(py, "Pool.into_team()"));
        }
        let roots = self.live_roots();
        let frozen = roots.iter().take_while(|root| root.freeze()).count();
        if frozen < roots.len() {
            // SAFETY: exactly these were frozen; the pool did not move.
            roots[..frozen].iter().for_each(|root| unsafe { root.thaw(None) });
            return Err(errors::refused_by_tokens(py, &what));
        }
        let Owner::Pool(pool) = mem::replace(&mut *lock(&self.owner), Owner::Moving) else {
            return Err(self.gone(py, "Pool.into_team()"));
        };
        let interrupted = Mutex::new(None);
        let look = || {
            let outcome = attached(|py| py.check_signals());
            let ends = outcome.is_err();
            *lock(&interrupted) = outcome.err();
            if ends {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        match py.detach(|| pool.into_team_unless(width.get(), wait, &look)) {
            Ok(team) => {
                let team = Box::new(team);
                self.core.store(ptr::from_ref(team.pool()).cast_mut(), Ordering::Relaxed);
                *lock(&self.owner) = Owner::Team(team);
                for root in &roots {
                    // SAFETY: frozen above; ended before anybody can enter, for this thread has the interpreter.
                    unsafe { root.thaw(None) };
                    root.end(py, End::PoolGone, true)?;
                }
                Ok(self.moves.fetch_add(1, Ordering::Relaxed) + 1)
            }
            Err(error) => {
                let reason = error.reason();
                let pool = Box::new(error.into_pool());
                self.core.store(ptr::from_ref(&*pool).cast_mut(), Ordering::Relaxed);
                for root in &roots {
                    let exec = Exec::new(&pool, root.budget.get()).ok();
                    // SAFETY: as in `mint`, for the pool's new place; frozen above.
                    unsafe { root.thaw(exec.map(|exec| mem::transmute::<Exec<'_>, Exec<'static>>(exec))) };
                }
                *lock(&self.owner) = Owner::Pool(pool);
                let interrupted = lock(&interrupted).take();
                Err(interrupted.unwrap_or_else(|| errors::refused(py, "IntoTeamError", &what, reason)))
            }
        }
    }

    /// Moves the team back into a pool.
    pub(crate) fn move_into_pool(&self, py: Python<'_>, moves: u64) -> PyResult<()> {
        self.refuse_from_inside(py, "Team.into_pool()")?;
        self.check_team(py, moves, "Team.into_pool()")?;
        self.end_roots(py)?;
        let owner = mem::replace(&mut *lock(&self.owner), Owner::Moving);
        let Owner::Team(team) = owner else {
            *lock(&self.owner) = owner;
            return Err(self.gone(py, "Team.into_pool()"));
        };
        let pool = Box::new(py.detach(|| team.into_pool()));
        self.core.store(ptr::from_ref(&*pool).cast_mut(), Ordering::Relaxed);
        *lock(&self.owner) = Owner::Pool(pool);
        self.moves.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Raises unless the team of move `moves` still has the pool.
    pub(crate) fn check_team(&self, py: Python<'_>, moves: u64, operation: &str) -> PyResult<()> {
        if self.closing.load(Ordering::Relaxed) || self.moves.load(Ordering::Relaxed) != moves {
            return Err(self.gone(py, operation));
        }
        Ok(())
    }

    /// Asks the runtime pool something, wherever it is; none when it is closed.
    pub(crate) fn ask<R>(&self, question: impl FnOnce(&Pool) -> R) -> Option<R> {
        match &*lock(&self.owner) {
            Owner::Pool(pool) => Some(question(pool)),
            Owner::Team(team) => Some(question(team.pool())),
            Owner::Moving | Owner::Closed => None,
        }
    }

    pub(crate) fn stats(&self) -> Option<Stats> {
        self.ask(Pool::stats)
    }

    pub(crate) fn set_trace(&self, trace: Option<Arc<Trace>>) {
        self.ask(|pool| pool.set_trace(trace));
    }

    /// Whether the `Pool` object can mint tokens.
    pub(crate) fn is_open(&self) -> bool {
        !self.closing.load(Ordering::Relaxed) && matches!(*lock(&self.owner), Owner::Pool(_))
    }
}

/// Drops the workers' owner, off the interpreter.
fn discard(owner: Owner) {
    if life::closing() {
        // Workers may sleep for good inside a body; the end of the process takes them.
        mem::forget(owner);
    } else {
        drop(owner);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let owner = mem::replace(self.owner.get_mut().unwrap_or_else(PoisonError::into_inner), Owner::Closed);
        if matches!(owner, Owner::Closed) {
            return;
        }
        if life::closing() {
            mem::forget(owner);
            return;
        }
        Python::attach(|py| py.detach(|| discard(owner)));
    }
}

/// Records what every pool does from now on, those made later included, or ends that.
#[pyfunction]
#[pyo3(name = "_trace_all", signature = (trace))]
fn trace_all(trace: Option<&PyTrace>) {
    let trace = trace.map(|trace| Arc::clone(trace.core()));
    (*lock(&TRACE)).clone_from(&trace);
    for home in Home::all() {
        home.set_trace(trace.clone());
    }
}

/// The widest open pool, or 1.
#[pyfunction]
#[pyo3(name = "_widest")]
fn widest() -> usize {
    Home::all().iter().map(|home| home.width.get()).max().unwrap_or(1)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(trace_all, module)?)?;
    module.add_function(wrap_pyfunction!(widest, module)?)
}
