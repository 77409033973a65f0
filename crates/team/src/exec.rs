//! The token: `budget` slots of one pool.

use crate::acquire::Hook;
use crate::cost::{pays_at, width_for_by, DispatchCosts, DispatchKind};
use crate::error::{Error, Refused};
use crate::foreign::{dispatch_chunks, Foreign};
use crate::free::Claim;
use crate::idle::WaitScope;
use crate::inner::Inner;
use crate::ledger::Ticket;
use crate::pin::{self, Placed};
use crate::policy::{WaitOverride, WaitPolicy};
use crate::pool::Pool;
use crate::reserve::Lead;
use crate::section::{Chunks, Leader};
use crate::share::Shares;
use crate::slot::Call;
use crate::team::TeamExec;
use crate::trace::Trace;
use crate::word::MAX_CHUNKS;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Chunks that [`Exec::for_ranges`] makes for each participant when `grain` allows: with one, the slowest CPU gates the
/// section; a chunk costs about one locked instruction.
const CHUNKS_PER_PARTICIPANT: usize = 4;

/// Where a token's sections run.
#[derive(Clone, Copy)]
enum Place<'p> {
    /// On the calling thread.
    Here,
    /// On the calling thread and free workers of the pool.
    Pool(&'p Pool),
    /// On the calling thread and these reserved workers of the pool.
    Team(&'p Pool, &'p [u16]),
    /// On another execution system.
    Foreign(&'p dyn Foreign),
}

/// A token for `budget` slots of one pool, the calling thread's included.
///
/// It is neither `Clone` nor `Copy`, and every parallel entry consumes it, so at most `budget` tasks of a root token run at
/// once at every depth. [`reborrow`](Exec::reborrow) lends it when one token drives several sections in turn.
///
/// ```compile_fail
/// fn duplicate<T: Clone>(_: T) {}
/// duplicate(threadteam::Exec::serial());
/// ```
/// ```compile_fail
/// fn duplicate<T: Copy>(_: T) {}
/// duplicate(threadteam::Exec::serial());
/// ```
/// ```compile_fail
/// let exec = threadteam::Exec::serial();
/// exec.fork(2, |_, _| ());
/// exec.fork(2, |_, _| ()); // the first entry consumed it
/// ```
/// ```compile_fail
/// let mut exec = threadteam::Exec::serial();
/// let lent = exec.reborrow();
/// exec.fork(2, |_, _| ()); // lent
/// lent.fork(2, |_, _| ());
/// ```
/// ```compile_fail
/// let mut escaped = None;
/// threadteam::Exec::serial().fork(1, |_, child| escaped = Some(child)); // a child cannot leave its body
/// ```
pub struct Exec<'p> {
    place: Place<'p>,
    budget: NonZeroUsize,
    fork_child: bool,
    /// Whether a team scope of it is a root scope, when it carries a team.
    root: bool,
    hook: Option<Hook<'p>>,
    /// How its leader waits.
    wait: &'p WaitPolicy,
    /// Serial time of the next section in nanoseconds, 0 if unknown.
    estimate: u64,
    /// Where its tasks are counted, in tests.
    ticket: Ticket,
    /// Held by the root token of a [`Team`](crate::Team).
    _lead: Option<Lead<'p>>,
}

impl<'p> Exec<'p> {
    /// The token of the calling thread alone.
    #[inline]
    pub const fn serial() -> Exec<'static> {
        Exec {
            place: Place::Here,
            budget: NonZeroUsize::MIN,
            fork_child: false,
            root: false,
            hook: None,
            wait: &WaitPolicy::DEFAULT,
            estimate: 0,
            ticket: Ticket::NONE,
            _lead: None,
        }
    }

    /// A root token of `pool`; `budget` is clamped to the pool's width.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroBudget`] for a budget of zero.
    pub fn new(pool: &'p Pool, budget: usize) -> Result<Exec<'p>, Error> {
        let budget = NonZeroUsize::new(budget).ok_or(Error::ZeroBudget)?.min(pool.width());
        let (wait, ticket) = (&pool.inner().settings.wait, Ticket::root(budget));
        Ok(Exec { place: Place::Pool(pool), budget, wait, ticket, ..Exec::serial() })
    }

    /// A token whose sections another execution system dispatches; `budget` is clamped to its width.
    pub fn foreign(system: &'p dyn Foreign, budget: NonZeroUsize) -> Exec<'p> {
        let width = NonZeroUsize::new(system.width()).unwrap_or(NonZeroUsize::MIN);
        let budget = budget.min(width);
        Exec { place: Place::Foreign(system), budget, ticket: Ticket::root(budget), ..Exec::serial() }
    }

    /// A root token of a persistent team.
    pub(crate) fn of_team(pool: &'p Pool, members: &'p [u16], wait: &'p WaitPolicy, lead: Lead<'p>) -> Exec<'p> {
        let budget = NonZeroUsize::MIN.saturating_add(members.len());
        let ticket = Ticket::root(budget);
        let place = Place::Team(pool, members);
        Exec { place, budget, root: true, wait, ticket, _lead: Some(lead), ..Exec::serial() }
    }

    /// The token of a team's members, for as long as the team's own is borrowed.
    pub(crate) fn of_members(
        pool: &'p Pool,
        members: &'p [u16],
        wait: &'p WaitPolicy,
        hook: Option<Hook<'p>>,
        ticket: Ticket,
    ) -> Exec<'p> {
        let budget = NonZeroUsize::MIN.saturating_add(members.len());
        Exec { place: Place::Team(pool, members), budget, wait, hook, ticket, ..Exec::serial() }
    }

    /// Where this token's tasks are counted.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The number of this token's root in the [`ledger`](crate::ledger), for tests. Tokens derived from a root have its
    /// number; [`Exec::serial`] has none.
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(1).build()?;
    /// let mut exec = Exec::new(&pool, 1)?;
    /// let root = exec.ledger_root();
    /// assert!(root.is_some() && exec.reborrow().ledger_root() == root);
    /// assert!(Exec::serial().ledger_root().is_none());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[cfg(feature = "ledger")]
    pub fn ledger_root(&self) -> Option<u64> {
        self.ticket.root_number()
    }

    /// What a reservation of this token's members starts from: its pool, and the members that it carries.
    #[allow(clippy::type_complexity)]
    pub(crate) fn to_reserve(&self) -> Result<(Option<&'p Pool>, Option<&'p [u16]>), Refused> {
        match self.place {
            Place::Here => Ok((None, None)),
            Place::Pool(pool) => Ok((Some(pool), None)),
            Place::Team(pool, members) => Ok((Some(pool), Some(members))),
            Place::Foreign(_) => Err(Refused::Unavailable),
        }
    }

    pub(crate) fn hook(&self) -> Option<Hook<'p>> {
        self.hook
    }

    /// How the leader of this token's sections waits.
    pub(crate) fn wait(&self) -> &'p WaitPolicy {
        self.wait
    }

    /// The slots of this token.
    #[inline]
    pub fn budget(&self) -> NonZeroUsize {
        self.budget
    }

    /// Whether a team scope of this token places its members: a root scope of a pool that asks for it.
    pub(crate) fn places_members(&self) -> bool {
        match self.place {
            Place::Pool(pool) => pool.pin_participants(),
            // Children, loans and sub-teams keep the placement of their root.
            Place::Team(pool, _) => pool.pin_participants() && self.root,
            Place::Here | Place::Foreign(_) => false,
        }
    }

    /// At the entry of a root scope, how many CPUs there are is decided anew. Children, loans and sub-teams keep that.
    pub(crate) fn enter_root_scope(&self, inner: &Inner) {
        let is_root = match self.place {
            Place::Pool(_) => !self.fork_child,
            Place::Team(..) => self.root,
            Place::Here | Place::Foreign(_) => false,
        };
        if is_root {
            inner.crowd.decide(inner);
        }
    }

    /// Whether everything runs on the calling thread.
    #[inline]
    pub fn is_serial(&self) -> bool {
        self.budget == NonZeroUsize::MIN
    }

    /// Whether the token was minted by, or derived from, a team: its sections go to reserved members.
    #[inline]
    pub fn carries_team(&self) -> bool {
        matches!(self.place, Place::Team(..))
    }

    /// Where this token's sections are recorded, if anywhere: programs label their steps there.
    pub fn trace(&self) -> Option<Arc<Trace>> {
        match self.place {
            Place::Here => None,
            Place::Pool(pool) | Place::Team(pool, _) => pool.inner().share_trace(),
            Place::Foreign(system) => system.trace().cloned(),
        }
    }

    /// The same slots for a callee while `self` is borrowed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use threadteam::{Exec, Pool};
    ///
    /// fn phase(exec: Exec<'_>) {
    ///     exec.for_ranges(100, NonZeroUsize::MIN, |_range| ());
    /// }
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let mut token = Exec::new(&pool, 2)?;
    /// phase(token.reborrow());
    /// phase(token); // the last phase may have the token itself
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[inline]
    pub fn reborrow(&mut self) -> Exec<'_> {
        Exec { root: false, ..self.for_an_entry() }
    }

    /// The same token for one entry: for owners that keep the token and cannot give it away, a language binding. Unlike a
    /// [`reborrow`](Self::reborrow), a team scope of it is a root scope if one of this token is.
    #[inline]
    pub fn for_an_entry(&mut self) -> Exec<'_> {
        Exec {
            place: self.place,
            budget: self.budget,
            fork_child: self.fork_child,
            root: self.root,
            hook: self.hook,
            wait: self.wait,
            estimate: self.estimate,
            ticket: self.ticket.clone(),
            _lead: None,
        }
    }

    /// At most `max` of the slots; the others stay unused.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// let exec = Exec::new(&pool, 4)?.limit(NonZeroUsize::new(2).unwrap());
    /// assert_eq!(exec.budget().get(), 2);
    /// assert!(exec.limit(NonZeroUsize::MIN).is_serial());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[inline]
    pub fn limit(mut self, max: NonZeroUsize) -> Exec<'p> {
        if max < self.budget {
            self.budget = max;
            self.ticket = self.ticket.derive("a limit", max);
        }
        if let Place::Team(pool, members) = self.place {
            self.place = Place::Team(pool, &members[..self.budget.get() - 1]);
        }
        self
    }

    /// Calls `hook` about every 50 ms while the calling thread waits: at a join of this token or of one lent from it, or for
    /// members of a team or a broadcast. `Break` gives such members up with [`Refused::Interrupted`]; a join has to wait for
    /// who is inside, whatever the hook says.
    #[inline]
    pub fn with_wait_hook<'q>(self, hook: &'q (dyn Fn() -> ControlFlow<()> + Sync)) -> Exec<'q>
    where
        'p: 'q,
    {
        Exec { hook: Some(hook), ..self }
    }

    /// Says how long the next section takes on one thread. Sleeping members are woken at once for a section that is much
    /// longer than a wake.
    #[inline]
    pub fn expecting(mut self, serial: Duration) -> Exec<'p> {
        self.estimate = u64::try_from(serial.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// The width that pays for a region of `serial` time in one section, with that time noted as in
    /// [`expecting`](Self::expecting): what a kernel calls first.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let mut token = Exec::new(&pool, 2)?;
    /// assert!(token.reborrow().sized_for(Duration::from_nanos(100)).is_serial());
    /// assert_eq!(token.sized_for(Duration::from_millis(1)).budget().get(), 2);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[inline]
    pub fn sized_for(self, serial: Duration) -> Exec<'p> {
        if self.is_serial() {
            return self;
        }
        let width = match self.place {
            Place::Pool(pool) | Place::Team(pool, _) if pool.costs().are_too_high_for(serial) => NonZeroUsize::MIN,
            _ => self.width_for(serial, 1),
        };
        self.limit(width).expecting(serial)
    }

    /// Runs `f(i, child)` for `i` in `0..jobs` on `min(jobs, budget)` tasks. The children's budgets add up to this one's;
    /// with more jobs than budget, tasks take jobs from a shared range and every child has one slot.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// let mut token = Exec::new(&pool, 4)?;
    /// // Two jobs: each child may use two of the four slots, in a `fork` of its own perhaps.
    /// token.reborrow().fork(2, |_, child| assert_eq!(child.budget().get(), 2));
    /// // A hundred jobs: four at a time, each on one slot.
    /// let ran = AtomicUsize::new(0);
    /// token.fork(100, |_, child| {
    ///     assert!(child.is_serial());
    ///     ran.fetch_add(1, Ordering::Relaxed);
    /// });
    /// assert_eq!(ran.into_inner(), 100);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn fork<F>(self, jobs: usize, f: F)
    where
        F: Fn(usize, Exec<'_>) + Sync,
    {
        let tasks = jobs.min(self.budget.get());
        if tasks == 0 {
            return;
        }
        let shares = Shares::even(self.budget.get(), tasks);
        self.fork_shares(jobs, shares, &f);
    }

    /// Runs `f(i, child)` for each share, where child `i` has `shares[i]` slots.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroBudget`] when a share is zero, [`Error::SharesExceedBudget`] when they add up to more than the budget.
    /// Nothing ran then.
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// // One job has three times the work of the other.
    /// Exec::new(&pool, 4)?.fork_sized(&[3, 1], |job, child| assert_eq!(child.budget().get(), [3, 1][job]))?;
    /// assert!(Exec::new(&pool, 4)?.fork_sized(&[3, 2], |_, _| ()).is_err());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn fork_sized<F>(self, shares: &[usize], f: F) -> Result<(), Error>
    where
        F: Fn(usize, Exec<'_>) + Sync,
    {
        if shares.contains(&0) {
            return Err(Error::ZeroBudget);
        }
        let sum = shares.iter().fold(0usize, |sum, &share| sum.saturating_add(share));
        if sum > self.budget.get() {
            return Err(Error::SharesExceedBudget { budget: self.budget.get(), sum });
        }
        if !shares.is_empty() {
            self.fork_shares(shares.len(), Shares::sized(shares), &f);
        }
        Ok(())
    }

    fn fork_shares<F>(self, jobs: usize, shares: Shares<'_>, f: &F)
    where
        F: Fn(usize, Exec<'_>) + Sync,
    {
        // Jobs are worth a wake unless their caller says how long they take: the leader looks at its debt between jobs
        // only, and the first may be the longest.
        let this = if self.estimate == 0 { self.expecting(Duration::MAX) } else { self };
        let (hook, wait) = (this.hook, this.wait);
        let ticket = this.ticket.clone();
        let _leads = ticket.lead();
        let child = move |place: Place<'_>, job: usize| {
            let (place, budget, hook) = if jobs > shares.count() {
                (without_members(place), 1, None)
            } else {
                let at = shares.start(job);
                let budget = shares.size(job);
                (with_members(place, at..at + budget - 1), budget, hook)
            };
            let budget = NonZeroUsize::new(budget).unwrap_or(NonZeroUsize::MIN);
            let ticket = ticket.derive("a job", budget);
            let _task = ticket.enter();
            f(job, Exec { place, budget, fork_child: true, hook, wait, ticket, ..Exec::serial() });
        };
        // A member takes the first chunk of its own block, so with as many jobs as tasks job `k` starts on the member that
        // leads its share.
        let place = this.place;
        let tasks = shares.count();
        if let Place::Team(pool, members) = place {
            let mut leads = Claim::empty();
            (1..tasks).for_each(|task| leads.push(usize::from(members[shares.start(task) - 1])));
            this.run_chunks(Some((pool, leads.ids())), tasks, jobs, |range| range.for_each(|job| child(place, job)));
        } else {
            this.run_chunks(None, tasks, jobs, |range| range.for_each(|job| child(place, job)));
        }
    }

    /// Calls `f` with disjoint ranges that cover `0..len`, each of at least `grain` items but the last, on at most `budget`
    /// participants. There may be more ranges than participants: those who finish early take what others have left.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let data: Vec<u64> = (0..10_000).collect();
    /// let total = AtomicU64::new(0);
    /// Exec::new(&pool, 2)?.for_ranges(data.len(), NonZeroUsize::new(1000).unwrap(), |range| {
    ///     total.fetch_add(data[range].iter().sum(), Ordering::Relaxed);
    /// });
    /// assert_eq!(total.into_inner(), 49_995_000);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn for_ranges<F>(self, len: usize, grain: NonZeroUsize, f: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        if len == 0 {
            return;
        }
        let ticket = self.ticket.clone();
        let _leads = ticket.lead();
        let f = |range| {
            let _task = ticket.enter();
            f(range);
        };
        let most = (len / grain).max(1);
        let tasks = most.min(self.budget.get());
        if tasks == 1 {
            return f(0..len);
        }
        let chunks = most.min(tasks * CHUNKS_PER_PARTICIPANT);
        self.run(None, tasks, Chunks::of(len, chunks), f);
    }

    /// `jobs` jobs, one a chunk (several beyond 2^30 jobs).
    fn run_chunks<F>(self, members: Option<(&Pool, &[u16])>, tasks: usize, jobs: usize, f: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        if tasks == 1 {
            return f(0..jobs);
        }
        self.run(members, tasks, Chunks::of(jobs, jobs.min(MAX_CHUNKS)), f);
    }

    /// One claimed section on at most `tasks >= 2` participants: `members` if given, else the token's own.
    fn run<F>(self, members: Option<(&Pool, &[u16])>, tasks: usize, chunks: Chunks, f: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        let whole = chunks.count * chunks.base + chunks.extra;
        match (members, self.place) {
            (_, Place::Here) => f(0..whole),
            (_, Place::Foreign(system)) => dispatch_chunks(system, tasks, chunks.count, &|chunk| {
                let start = chunk * chunks.base + chunk.min(chunks.extra);
                f(start..start + chunks.base + usize::from(chunk < chunks.extra));
            }),
            (Some((pool, members)), _) | (None, Place::Team(pool, members)) => {
                self.lead(pool.running(), &members[..tasks - 1], chunks, &f);
            }
            (None, Place::Pool(pool)) => {
                let inner = pool.running();
                let mut claim = Claim::empty();
                inner.claim(tasks - 1, &mut claim);
                if claim.ids().is_empty() {
                    return f(0..whole);
                }
                let held = Held { inner, ids: claim.ids(), epoch: inner.epoch() };
                self.lead(inner, held.ids, chunks, &f);
            }
        }
    }

    fn lead<F>(&self, inner: &Inner, members: &[u16], chunks: Chunks, f: &F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        let (call, data) = erase_range(f);
        let leader = Leader { inner, hook: self.hook, wait: self.wait, estimate: self.estimate };
        // SAFETY: `f` outlives the call and is `Sync`; `members` are claimed by this token and at least one; every caller
        // passes at least two chunks.
        unsafe { leader.claimed(members, chunks, call, data) };
    }

    /// Runs `f(index)` on all `budget` participants at the same time.
    ///
    /// # Errors
    ///
    /// [`Refused`] when they cannot be had; nothing ran then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use std::time::Duration;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(3).acquire_timeout(Duration::from_secs(10)).build()?;
    /// let seen = Mutex::new(Vec::new());
    /// Exec::new(&pool, 3)?.broadcast(|index| seen.lock().unwrap().push(index)).expect("nobody else uses this pool");
    /// let mut seen = seen.into_inner().unwrap();
    /// seen.sort();
    /// assert_eq!(seen, [0, 1, 2]);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn broadcast<F>(self, f: F) -> Result<(), Refused>
    where
        F: Fn(usize) + Sync,
    {
        self.refusal().inspect_err(|&reason| self.count_refusal(reason))?;
        let _leads = self.ticket.lead();
        let f = |index| {
            let _task = self.ticket.enter();
            f(index);
        };
        if self.is_serial() {
            f(0);
            return Ok(());
        }
        let gang = |inner: &Inner, members: &[u16]| {
            let share = |index, _size| f(index);
            let (call, data) = erase_share(&share);
            let leader = Leader { inner, hook: self.hook, wait: self.wait, estimate: 0 };
            // SAFETY: `share` outlives the call and is `Sync`; `members` are claimed and not empty.
            unsafe { leader.gang(members, call, data) };
        };
        match self.place {
            Place::Here => f(0),
            Place::Foreign(system) => system.dispatch(self.budget.get(), &f),
            Place::Team(pool, members) => gang(pool.running(), members),
            Place::Pool(pool) => {
                let inner = pool.running();
                let claim = inner.acquire(self.budget.get() - 1, self.wait, self.hook)?;
                let held = Held { inner, ids: claim.ids(), epoch: inner.epoch() };
                gang(inner, held.ids);
            }
        }
        Ok(())
    }

    /// Whether [`broadcast`](Self::broadcast) would be refused by rule on this thread now; both ask the same rule.
    pub fn can_broadcast(&self) -> bool {
        self.refusal().is_ok()
    }

    fn refusal(&self) -> Result<(), Refused> {
        match self.place {
            // The calling thread alone needs nobody.
            _ if self.is_serial() => Ok(()),
            Place::Pool(_) if self.fork_child => Err(Refused::ForkChild),
            Place::Pool(pool) if pool.is_worker() => Err(Refused::CallerInPool),
            _ => Ok(()),
        }
    }

    fn count_refusal(&self, reason: Refused) {
        if let Place::Pool(pool) = self.place {
            pool.inner().refuse(reason, self.budget.get());
        }
    }

    /// Reserves `budget - 1` members, hands them to `f` as a team, and gives them back.
    ///
    /// # Errors
    ///
    /// [`Refused::Unavailable`] when the members cannot all be had within the pool's acquisition timeout; `f` did not run.
    ///
    /// ```compile_fail
    /// let mut exec = threadteam::Exec::serial();
    /// let escaped = exec.team(|team| team); // the authority ends with the callback
    /// ```
    pub fn team<R>(&mut self, f: impl for<'team> FnOnce(TeamExec<'team>) -> R) -> Result<R, Refused> {
        self.team_with(WaitOverride::new(), f)
    }

    /// [`team`](Self::team) with a waiting policy of its own.
    ///
    /// # Errors
    ///
    /// As for [`team`](Self::team).
    pub fn team_with<R>(
        &mut self,
        over: WaitOverride,
        f: impl for<'team> FnOnce(TeamExec<'team>) -> R,
    ) -> Result<R, Refused> {
        match self.place {
            Place::Here => {
                let team = TeamExec::alone(WaitPolicy::DEFAULT.with(over), DispatchCosts::of_host());
                Ok(f(team.counted_by(&self.ticket)))
            }
            Place::Foreign(_) => Err(Refused::Unavailable),
            Place::Pool(pool) | Place::Team(pool, _) if self.is_serial() => {
                let team = TeamExec::alone(self.wait.with(over), pool.costs());
                Ok(f(team.counted_by(&self.ticket)))
            }
            Place::Team(pool, members) => {
                let inner = pool.running();
                self.enter_root_scope(inner);
                if self.places_members() {
                    pin::place_members(inner, members, self.hook);
                }
                let team = TeamExec::new(pool, members, *self.wait, self.hook);
                Ok(f(team.with_wait(over).counted_by(&self.ticket)))
            }
            Place::Pool(pool) => {
                let inner = pool.running();
                let claim = inner.acquire(self.budget.get() - 1, self.wait, self.hook)?;
                let held = Held { inner, ids: claim.ids(), epoch: inner.epoch() };
                self.enter_root_scope(inner);
                let policy = self.wait.with(over);
                // Dropped before `held`: members leave the reservation with their own masks.
                let _placed = self.places_members().then(|| Placed::enter(inner, held.ids, self.hook));
                // Dropped before `held`: the members' idle interval begins under this policy.
                let _scope = reserve_wait(inner, held.ids, &policy, over);
                let team = TeamExec::new(pool, held.ids, policy, self.hook);
                Ok(f(team.claimed_in(held.epoch).counted_by(&self.ticket)))
            }
        }
    }

    /// What one section of `width` participants costs this token; [`Duration::MAX`] when there is nothing to dispatch.
    pub fn dispatch_cost(&self, width: NonZeroUsize) -> Duration {
        let width = width.min(self.budget);
        if width == NonZeroUsize::MIN {
            return Duration::MAX;
        }
        match self.charges() {
            Some((costs, kind)) => costs.cost(kind, width),
            None => Duration::MAX,
        }
    }

    /// The costs of this token's sections and the kind of its dispatch; `None` when there is nothing to dispatch.
    fn charges(&self) -> Option<(&'p DispatchCosts, DispatchKind)> {
        match self.place {
            Place::Here => None,
            Place::Pool(pool) if pool.is_worker() => Some((pool.costs(), DispatchKind::InPool)),
            Place::Pool(pool) => Some((pool.costs(), DispatchKind::Outside)),
            Place::Team(pool, _) => Some((pool.costs(), DispatchKind::Team)),
            Place::Foreign(_) => Some((DispatchCosts::of_host(), DispatchKind::Outside)),
        }
    }

    /// Whether a region of `estimate` serial time in `sections` sections gains from `width` participants.
    pub fn pays(&self, estimate: Duration, sections: u32, width: NonZeroUsize) -> bool {
        pays_at(estimate, sections, self.dispatch_cost(width))
    }

    /// The width in `1..=budget` that makes such a region shortest, 1 if none pays.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::{DispatchCosts, Exec, Pool, WidthCosts};
    ///
    /// let costs = DispatchCosts::new(
    ///     WidthCosts::flat(Duration::from_micros(1)),
    ///     WidthCosts::flat(Duration::from_micros(1)),
    ///     WidthCosts::flat(Duration::from_micros(1)),
    /// );
    /// let pool = Pool::builder().threads(4).dispatch_costs(costs).build()?;
    /// let exec = Exec::new(&pool, 4)?;
    /// // Below three times a section's cost nothing is gained; far above it everybody helps.
    /// assert_eq!(exec.width_for(Duration::from_nanos(2900), 1).get(), 1);
    /// assert_eq!(exec.width_for(Duration::from_micros(100), 1).get(), 4);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn width_for(&self, estimate: Duration, sections: u32) -> NonZeroUsize {
        match self.charges() {
            Some((costs, kind)) => width_for_by(estimate, sections, self.budget, |width| costs.cost(kind, width)),
            None => NonZeroUsize::MIN,
        }
    }
}

impl std::fmt::Debug for Exec<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec").field("budget", &self.budget).field("carries_team", &self.carries_team()).finish()
    }
}

fn without_members(place: Place<'_>) -> Place<'_> {
    with_members(place, 0..0)
}

/// The place narrowed to some of a team's members.
fn with_members(place: Place<'_>, members: Range<usize>) -> Place<'_> {
    match place {
        Place::Team(pool, all) => Place::Team(pool, &all[members]),
        // A section of another system inside one of its own is not dispatched again.
        Place::Foreign(_) => Place::Here,
        other => other,
    }
}

/// The policy of a reservation in its members' slots; without an override the pool's.
pub(crate) fn reserve_wait<'a>(
    inner: &'a Inner,
    members: &'a [u16],
    policy: &WaitPolicy,
    over: WaitOverride,
) -> Option<WaitScope<'a>> {
    if over == WaitOverride::new() {
        WaitScope::clear(inner, members);
        return None;
    }
    Some(WaitScope::of_reservation(inner, members, policy))
}

/// Claimed workers, given back on drop.
struct Held<'a> {
    inner: &'a Inner,
    ids: &'a [u16],
    epoch: u32,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.inner.give_back(self.ids, self.epoch);
    }
}

/// The body of a claimed section, erased.
fn erase_range<F: Fn(Range<usize>) + Sync>(f: &F) -> (Call, *const ()) {
    unsafe fn call<F: Fn(Range<usize>)>(data: *const (), start: usize, stop: usize) {
        // SAFETY: `data` is the `&F` that `erase_range` erased; the section keeps it alive.
        (unsafe { &*data.cast::<F>() })(start..stop);
    }
    (call::<F>, std::ptr::from_ref(f).cast())
}

/// The body of a gang section, erased: `f(index, size)`.
pub(crate) fn erase_share<F: Fn(usize, usize) + Sync>(f: &F) -> (Call, *const ()) {
    unsafe fn call<F: Fn(usize, usize)>(data: *const (), index: usize, size: usize) {
        // SAFETY: `data` is the `&F` that `erase_share` erased; the section keeps it alive.
        (unsafe { &*data.cast::<F>() })(index, size);
    }
    (call::<F>, std::ptr::from_ref(f).cast())
}

/// A counter that several leaders of one section pull job numbers from.
pub(crate) struct JobCounter(AtomicUsize);

impl JobCounter {
    pub(crate) fn new() -> Self {
        JobCounter(AtomicUsize::new(0))
    }

    /// The next of `jobs` job numbers.
    pub(crate) fn next(&self, jobs: usize) -> Option<usize> {
        let job = self.0.fetch_add(1, Ordering::Relaxed);
        (job < jobs).then_some(job)
    }
}
