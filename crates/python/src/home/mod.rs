//! Where tokens come from: a runtime pool, in the hands of a `Pool` or moved into a `Team`, and the root tokens out now.

mod lead;
mod moves;
mod state;

use crate::errors::raise;
use crate::pending;
use crate::token::{Lender, Loan, Token};
use crate::trace::PyTrace;
use pyo3::prelude::*;
use state::{Owner, State};
use std::mem;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use threadteam::trace::Trace;
use threadteam::{Bell, Exec, ForkGuard, ForkLock, Pool, Stats};

/// A root token's place in the runtime.
pub(crate) type Root = Token<Exec<'static>>;

/// A pool's workers and everything that hangs on them. `Pool`, `Team` and every token share one.
pub(crate) struct Home {
    /// Never 0, which stands for "no pool".
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) width: NonZeroUsize,
    state: ForkLock<State>,
    /// The runtime pool, wherever it is; null when closed. It changes only while no root token borrows.
    core: AtomicPtr<Pool>,
    /// Rings when the state has changed and somebody waits for that.
    changed: Bell,
}

static NEXT: AtomicU64 = AtomicU64::new(1);
static HOMES: ForkLock<Vec<Weak<Home>>> = ForkLock::new(Vec::new());
/// What new pools record into. Held while pools are told, so that each has the last word.
static TRACE: ForkLock<Option<Arc<Trace>>> = ForkLock::new(None);

impl Home {
    pub(crate) fn new(pool: Pool, name: String) -> Arc<Home> {
        let pool = Box::new(pool);
        let home = Arc::new(Home {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            width: pool.width(),
            core: AtomicPtr::new(ptr::from_ref(&*pool).cast_mut()),
            state: ForkLock::new(State::new(pool)),
            changed: Bell::new(),
        });
        let trace = TRACE.lock();
        home.set_trace(trace.clone());
        let mut homes = HOMES.lock();
        homes.retain(|known| known.strong_count() > 0);
        homes.push(Arc::downgrade(&home));
        home
    }

    /// The open pools of this process.
    pub(crate) fn all() -> Vec<Arc<Home>> {
        HOMES.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What the pool is called in messages.
    pub(crate) fn title(&self) -> String {
        format!("pool {:?} of width {}", self.name, self.width)
    }

    /// Why the pool cannot be used, as the exception to raise.
    pub(crate) fn gone(&self, py: Python<'_>, operation: &str) -> PyErr {
        let title = self.title();
        let message = match &*self.state.lock() {
            State { closing: false, owner: Owner::Team(team), .. } => format!(
                "{operation}: {title} was moved into a Team of size {} by into_team(); use the team's tokens, or get the \
                 pool back with Team.into_pool()",
                team.size()
            ),
            State { closing: false, owner: Owner::Pool(_), .. } => format!(
                "{operation}: the token or team is from before {title} moved between Pool and Team; take a new token"
            ),
            State { closing: false, owner: Owner::Moving, .. } => {
                format!("{operation}: {title} is on its way between Pool and Team; wait until that call returns")
            }
            _ => format!("{operation}: {title} is closed; make a new Pool"),
        };
        raise(py, "PoolClosed", message)
    }

    /// Starts the workers unless they run. Their refusal is an exception once; then the pool runs with those it has.
    pub(crate) fn start(&self) -> Result<(), threadteam::Error> {
        // SAFETY: the caller has entered a live token, which borrows from the pool: it stays where it is, and entering
        // acquired what made the token, after the pointer was stored.
        match unsafe { self.core.load(Ordering::Relaxed).as_ref() } {
            Some(pool) => pool.start(),
            None => Ok(()),
        }
    }

    /// Mints a root token of the pool.
    pub(crate) fn mint(self: &Arc<Home>, py: Python<'_>, budget: NonZeroUsize) -> PyResult<Arc<Root>> {
        if let Some(token) = self.mint_now(budget) {
            return Ok(token);
        }
        // The workers of a team that nobody has may be on their way back.
        self.wait_for_arrival(py, "Pool.exec()")?;
        self.mint_now(budget).ok_or_else(|| self.gone(py, "Pool.exec()"))
    }

    fn mint_now(self: &Arc<Home>, budget: NonZeroUsize) -> Option<Arc<Root>> {
        let mut state = self.state.lock();
        let Owner::Pool(pool) = &state.owner else { return None };
        if state.closing {
            return None;
        }
        // SAFETY: counted below, under the lock: the pool stays in its box until `take_back` has counted it out.
        let exec = unsafe { root_of(pool, budget) };
        let name = format!("Exec(budget={}, {})", exec.budget(), self.title());
        // SAFETY: as above.
        let token = unsafe { Token::root(exec, Some(Arc::clone(self)), name, Some(self.clone())) };
        state.register(&token);
        Some(token)
    }

    /// Ends the lock, and wakes those who wait for what changed.
    fn announce(&self, state: ForkGuard<'_, State>) {
        let awaited = state.waiting > 0;
        drop(state);
        if awaited {
            self.changed.ring();
        }
    }

    /// Waits for a change after what the caller saw under the lock, which it gives up. May return early, at a signal.
    fn wait_after(&self, py: Python<'_>, mut state: ForkGuard<'_, State>) -> PyResult<()> {
        state.waiting += 1;
        let heard = self.changed.rings();
        drop(state);
        py.detach(|| self.changed.wait(heard, Some(Duration::from_millis(50))));
        let mut state = self.state.lock();
        state.waiting = state.waiting.saturating_sub(1);
        drop(state);
        pending::run(py)
    }

    /// Asks the runtime pool something short, wherever it is; none when it is closed or on its way.
    pub(crate) fn ask<R>(&self, question: impl FnOnce(&Pool) -> R) -> Option<R> {
        self.state.lock().owner.pool().map(question)
    }

    /// The counters, of a closed pool the last ones.
    pub(crate) fn stats(&self) -> Stats {
        self.state.lock().stats()
    }

    pub(crate) fn set_trace(&self, trace: Option<Arc<Trace>>) {
        self.ask(|pool| pool.set_trace(trace));
    }

    /// Whether the `Pool` object can mint tokens.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().is_open()
    }
}

impl Lender for Home {
    /// A root token holds nothing of the runtime any more.
    fn take_back(&self) {
        let mut state = self.state.lock();
        state.borrowing -= 1;
        // Of a team's tokens one at a time borrows; a pool has no lead.
        state.lead = None;
        let abandoned = state.abandoned;
        self.announce(state);
        if abandoned {
            self.take_home();
        }
    }

    fn take_back_and_end(self: Arc<Self>) -> Option<Arc<dyn Lender>> {
        self.take_back();
        None
    }
}

/// A root token of the runtime whose lifetime is erased.
///
/// # Safety
///
/// The pool must stay where it is as long as the token lives: whoever has it must be counted in `State::borrowing`.
unsafe fn root_of(pool: &Pool, budget: NonZeroUsize) -> Exec<'static> {
    let exec = Exec::new(pool, budget.get()).expect("the budget is not zero");
    // SAFETY: the caller's promise.
    unsafe { mem::transmute::<Exec<'_>, Exec<'static>>(exec) }
}

/// In the child of a fork, while it has one thread: other threads of the parent may have been at something.
pub(crate) fn after_fork_in_child() {
    for home in Home::all() {
        let mut state = home.state.lock();
        let roots = state.roots();
        state.leave_parent(&roots);
        drop(state);
        for root in roots {
            root.leave_parent();
        }
    }
}

/// Records what every pool does from now on, those made later included, or ends that.
#[pyfunction]
#[pyo3(name = "_trace_all", signature = (trace))]
fn trace_all(trace: Option<&PyTrace>) {
    let trace = trace.map(|trace| Arc::clone(trace.core()));
    let homes;
    let mut current = TRACE.lock();
    current.clone_from(&trace);
    homes = Home::all();
    for home in &homes {
        home.set_trace(trace.clone());
    }
    // Before the pools: ours may be the last reference to one.
    drop(current);
    drop(homes);
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
