//! A team: reserved members that sections reach without claiming anybody.

use crate::acquire::Hook;
use crate::cost::{pays_at, width_for_by, DispatchCosts, DispatchKind};
use crate::domains::Domains;
use crate::error::{Cancelled, Error};
use crate::exec::{erase_share, Exec, JobCounter};
use crate::free::Claim;
use crate::idle::WaitScope;
use crate::inner::Inner;
use crate::ledger::{Ticket, NOBODY};
use crate::policy::{WaitOverride, WaitPolicy};
use crate::pool::Pool;
use crate::section::Leader;
use crate::share::{parts, Shares};
use crate::slot::Call;
use crate::sync::{at, fence, mutated, AtomicU64, Ordering};
use crate::trace::Kind;
use crate::wait::{Pace, Step, Waiter, Waits, HOOK_EVERY};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Exclusive authority over the calling thread (participant 0) and the reserved members of a team.
///
/// Its sections are gangs: every participant runs its share at the same time, so shares may wait for each other.
///
/// ```compile_fail
/// # use threadteam::TeamExec;
/// fn twice(team: TeamExec<'_>) {
///     team.run(|_, _| ());
///     team.run(|_, _| ()); // the first entry consumed it
/// }
/// ```
/// ```compile_fail
/// # use threadteam::TeamExec;
/// fn copy(team: TeamExec<'_>) -> (TeamExec<'_>, TeamExec<'_>) {
///     (team.clone(), team)
/// }
/// ```
/// ```compile_fail
/// # use threadteam::TeamExec;
/// fn lend(mut team: TeamExec<'_>) {
///     let lent = team.reborrow();
///     team.run(|_, _| ()); // lent
///     lent.run(|_, _| ());
/// }
/// ```
/// ```compile_fail
/// # use threadteam::TeamExec;
/// fn inside(team: TeamExec<'_>) {
///     team.split(&[1, 1], |_, _| team.run(|_, _| ())).unwrap(); // the split consumed the parent
/// }
/// ```
/// ```compile_fail
/// # use threadteam::TeamExec;
/// fn escape(team: TeamExec<'_>) {
///     let kept = std::sync::Mutex::new(None);
///     team.split(&[1, 1], |_, child| *kept.lock().unwrap() = Some(child)).unwrap(); // a child cannot leave its body
/// }
/// ```
pub struct TeamExec<'team> {
    /// `None`: a team of one without a pool.
    pool: Option<&'team Pool>,
    members: &'team [u16],
    policy: WaitPolicy,
    costs: &'team DispatchCosts,
    hook: Option<Hook<'team>>,
    /// Where its tasks are counted, in tests.
    ticket: &'team Ticket,
    /// Which workers the members were claimed from; `None` when they stay reserved in a forked child too.
    epoch: Option<u32>,
    /// An override of this scope, in the members' slots until it ends.
    scope: Option<WaitScope<'team>>,
}

/// What each participant of a gang section does; see [`TeamExec::run_share`].
pub trait Share: Sync {
    /// The share of participant `index` of `size`.
    fn run(&self, index: usize, size: usize);
}

impl<'team> TeamExec<'team> {
    pub(crate) fn new(pool: &'team Pool, members: &'team [u16], policy: WaitPolicy, hook: Option<Hook<'team>>) -> Self {
        let costs = pool.costs();
        TeamExec { pool: Some(pool), members, policy, costs, hook, ticket: &NOBODY, epoch: None, scope: None }
    }

    /// The same, for members that were claimed for this scope in `epoch`.
    pub(crate) fn claimed_in(mut self, epoch: u32) -> Self {
        self.epoch = Some(epoch);
        self
    }

    pub(crate) fn alone(policy: WaitPolicy, costs: &'team DispatchCosts) -> Self {
        TeamExec { pool: None, members: &[], policy, costs, hook: None, ticket: &NOBODY, epoch: None, scope: None }
    }

    /// The same, with its tasks counted by `ticket`.
    pub(crate) fn counted_by(mut self, ticket: &'team Ticket) -> Self {
        self.ticket = ticket;
        self
    }

    /// Participants, the leader included.
    pub fn size(&self) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(self.members.len())
    }

    /// How members wait between the sections of this scope.
    pub fn policy(&self) -> WaitPolicy {
        self.policy
    }

    /// Overrides the waiting policy for this scope and its children; the parent's comes back when the scope ends.
    #[must_use]
    pub fn with_wait(mut self, over: WaitOverride) -> Self {
        let before = self.policy;
        self.policy = before.with(over);
        match (&self.scope, self.pool) {
            _ if self.policy == before || self.members.is_empty() => {}
            (Some(scope), _) => scope.change(&self.policy),
            (None, Some(pool)) => self.scope = Some(WaitScope::enter(pool.inner(), self.members, &self.policy)),
            (None, None) => {}
        }
        self
    }

    /// The same authority for a callee while `self` is borrowed.
    pub fn reborrow(&mut self) -> TeamExec<'_> {
        TeamExec { scope: None, ..*self }
    }

    /// The same authority as an [`Exec`], for kernels that take one; it carries the team.
    pub fn exec(&mut self) -> Exec<'_> {
        self.check_epoch();
        match self.pool {
            Some(pool) => Exec::of_members(pool, self.members, &self.policy, self.hook, self.ticket.clone()),
            None => Exec::serial(),
        }
    }

    /// Runs `f(index, size)` on every participant at the same time.
    pub fn run<F>(self, f: F)
    where
        F: Fn(usize, usize) + Sync,
    {
        let f = |index, size| {
            let _task = self.ticket.enter();
            f(index, size);
        };
        match self.pool.map(Pool::inner) {
            Some(inner) if !self.members.is_empty() => self.gang(inner, self.members, &f),
            _ => {
                let _leads = self.ticket.lead();
                f(0, 1);
            }
        }
    }

    /// [`run`](Self::run) of a [`Share`], which participants find right behind the post: a closure lies on the caller's stack, one cache
    /// line further on the way to what it captured by reference.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use std::time::Duration;
    /// use threadteam::{Exec, Pool, Share};
    ///
    /// struct Sum(AtomicUsize);
    ///
    /// impl Share for Sum {
    ///     fn run(&self, index: usize, _size: usize) {
    ///         self.0.fetch_add(index, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// let pool = Pool::builder().threads(3).acquire_timeout(Duration::from_secs(10)).build()?;
    /// let sum = Sum(AtomicUsize::new(0));
    /// Exec::new(&pool, 3)?.team(|team| team.run_share(&sum)).expect("nobody else uses this pool");
    /// assert_eq!(sum.0.into_inner(), 3);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn run_share<S: Share>(self, share: &S) {
        unsafe fn call<S: Share>(data: *const (), index: usize, size: usize) {
            // SAFETY: `data` is the `&S` below; the section keeps it alive.
            (unsafe { &*data.cast::<S>() }).run(index, size);
        }
        match self.pool.map(Pool::inner) {
            // Who counts tasks needs the ticket too.
            Some(inner) if !self.members.is_empty() && !cfg!(feature = "ledger") => {
                // SAFETY: `share` outlives the call and is `Sync`.
                unsafe { self.gang_of(inner, self.members, call::<S>, std::ptr::from_ref(share).cast()) };
            }
            _ => self.run(|index, size| share.run(index, size)),
        }
    }

    /// [`run`](Self::run) with a [`Participant`] that can wait for its peers.
    ///
    /// # Panics
    ///
    /// As [`Participant::barrier`] does, when a participant returns without a barrier at which a peer waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use std::time::Duration;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(2).acquire_timeout(Duration::from_secs(10)).build()?;
    /// let arrived = AtomicUsize::new(0);
    /// Exec::new(&pool, 2)?
    ///     .team(|team| {
    ///         team.run_with(|participant| {
    ///             arrived.fetch_add(1, Ordering::Relaxed);
    ///             if participant.barrier().is_err() {
    ///                 return; // another participant panicked, and its panic goes to the caller
    ///             }
    ///             assert_eq!(arrived.load(Ordering::Relaxed), participant.size());
    ///         });
    ///     })
    ///     .expect("nobody else uses this pool");
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn run_with<F>(self, f: F)
    where
        F: Fn(&Participant<'_>) + Sync,
    {
        let f = |participant: &Participant<'_>| {
            let _task = self.ticket.enter();
            f(participant);
        };
        match self.pool.map(Pool::inner) {
            Some(inner) if !self.members.is_empty() => {
                let tag = inner.next_barrier_tag();
                let members = self.members;
                self.gang(inner, members, &|index, _size| {
                    let participant = Participant::new(Some((inner, members)), index, tag, &self.policy);
                    participant.begin();
                    f(&participant);
                    participant.end();
                });
            }
            _ => {
                let _leads = self.ticket.lead();
                f(&Participant::new(None, 0, 0, &self.policy));
            }
        }
    }

    /// Cuts the team into contiguous children of `sizes` participants and runs `f(i, child)` for all of them at the same
    /// time: child 0 on the calling thread, the others on their first member. Members left over stay idle.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSplit`] when `sizes` is empty, contains a zero or adds up to more than the team; nothing ran.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(3).acquire_timeout(Duration::from_secs(10)).build()?;
    /// Exec::new(&pool, 3)?
    ///     .team(|team| {
    ///         // Two participants for one half of the work, one for the other; both halves run at once.
    ///         team.split(&[2, 1], |half, child| {
    ///             child.run(|_index, size| assert_eq!(size, [2, 1][half]));
    ///         })
    ///     })
    ///     .expect("nobody else uses this pool")?;
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn split<F>(self, sizes: &[usize], f: F) -> Result<(), Error>
    where
        F: for<'c> Fn(usize, TeamExec<'c>) + Sync,
    {
        let sum = sizes.iter().fold(0usize, |sum, &size| sum.saturating_add(size));
        if sizes.is_empty() || sizes.contains(&0) || sum > self.size().get() {
            return Err(Error::InvalidSplit);
        }
        self.split_shares(Shares::sized(sizes), &f);
        Ok(())
    }

    /// Runs `f(i, child)` for `i` in `0..children` on children of even size; with more children than participants, each
    /// participant takes the next child when it is done with one, and every child is alone. In a pool over
    /// [domains](crate::PoolBuilder::domains) children are cut at their boundaries first, and are even within one.
    pub fn fork<F>(self, children: usize, f: F)
    where
        F: for<'c> Fn(usize, TeamExec<'c>) + Sync,
    {
        let tasks = children.min(self.size().get());
        if tasks == 0 {
            return;
        }
        let shares = Shares::even(self.size().get(), tasks);
        if tasks == children {
            return match self.pool.map(Pool::inner).and_then(|inner| Some((inner, inner.domains.as_ref()?))) {
                Some((inner, domains)) => self.fork_over_domains(inner, domains, shares, &f),
                None => self.split_shares(shares, &f),
            };
        }
        let next = JobCounter::new();
        self.split_shares(shares, &|_, mut child: TeamExec<'_>| {
            while let Some(job) = next.next(children) {
                f(job, child.reborrow());
            }
        });
    }

    /// Children that have participants of one domain each where their number allows it.
    #[inline(never)]
    fn fork_over_domains<F>(self, inner: &Inner, domains: &Domains, even: Shares<'_>, f: &F)
    where
        F: for<'c> Fn(usize, TeamExec<'c>) + Sync,
    {
        let mut sizes = [0; Pool::MAX_THREADS];
        let Some(parts) = parts(domains.runs(inner.own_domain(domains), self.members), even) else {
            return self.split_shares(even, f);
        };
        for part in parts {
            (0..part.jobs.len()).for_each(|job| sizes[part.jobs.start + job] = part.shares.size(job));
        }
        self.split_shares(Shares::sized(&sizes[..even.count()]), f);
    }

    fn split_shares<F>(self, shares: Shares<'_>, f: &F)
    where
        F: for<'c> Fn(usize, TeamExec<'c>) + Sync,
    {
        let child = |part: usize| {
            let first = shares.start(part);
            let members = &self.members[first..first + shares.size(part) - 1];
            let ticket = self.ticket.derive("a child", NonZeroUsize::MIN.saturating_add(members.len()));
            let _task = ticket.enter();
            f(part, TeamExec { members, ticket: &ticket, scope: None, ..self });
        };
        match self.pool.map(Pool::inner) {
            Some(inner) if shares.count() > 1 => {
                let mut leads = Claim::empty();
                (1..shares.count()).for_each(|part| leads.push(usize::from(self.members[shares.start(part) - 1])));
                self.gang(inner, leads.ids(), &|part, _| child(part));
            }
            _ => child(0),
        }
    }

    /// One gang section of the leader and `members`.
    fn gang<F>(&self, inner: &Inner, members: &[u16], f: &F)
    where
        F: Fn(usize, usize) + Sync,
    {
        let (call, data) = erase_share(f);
        // SAFETY: `f` outlives the call and is `Sync`.
        unsafe { self.gang_of(inner, members, call, data) };
    }

    /// # Safety
    ///
    /// `call(data, ..)` may be called on several threads at once until this returns.
    #[inline]
    unsafe fn gang_of(&self, inner: &Inner, members: &[u16], call: Call, data: *const ()) {
        self.check_epoch();
        let _leads = self.ticket.lead();
        let leader = Leader { inner, hook: self.hook, wait: &self.policy, estimate: 0 };
        // SAFETY: the caller's promise; the members are reserved for this team and not empty.
        unsafe { leader.gang(members, call, data) };
    }

    /// In a forked child, members from before are not this scope's any more, also when it has started workers of its own.
    #[inline]
    fn check_epoch(&self) {
        let Some(inner) = self.pool.map(Pool::inner).filter(|_| !self.members.is_empty()) else { return };
        if !inner.is_ready() || self.epoch.is_some_and(|epoch| epoch != inner.epoch()) {
            std::panic::panic_any(crate::ForkedInside);
        }
    }

    /// What the pool says one section costs.
    pub fn dispatch_costs(&self) -> DispatchCosts {
        *self.costs
    }

    /// What one section of `width` participants costs; [`Duration::MAX`] when there is nothing to dispatch.
    pub fn dispatch_cost(&self, width: NonZeroUsize) -> Duration {
        let width = width.min(self.size());
        if width == NonZeroUsize::MIN {
            return Duration::MAX;
        }
        self.costs.cost(DispatchKind::Team, width)
    }

    /// Whether a region of `estimate` serial time in `sections` sections gains from `width` participants.
    pub fn pays(&self, estimate: Duration, sections: u32, width: NonZeroUsize) -> bool {
        pays_at(estimate, sections, self.dispatch_cost(width))
    }

    /// The width in `1..=size` that makes such a region shortest, 1 if none pays.
    pub fn width_for(&self, estimate: Duration, sections: u32) -> NonZeroUsize {
        width_for_by(estimate, sections, self.size(), |width| self.dispatch_cost(width))
    }
}

impl std::fmt::Debug for TeamExec<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TeamExec").field("size", &self.size()).field("policy", &self.policy).finish()
    }
}

/// In a barrier line: the participant, a leader, has returned.
const LEFT: u32 = 1 << 31;

/// One participant of [`TeamExec::run_with`].
pub struct Participant<'a> {
    /// `None` in a team of one.
    place: Option<(&'a Inner, &'a [u16])>,
    index: usize,
    /// Tells this section's barrier lines from what earlier sections left on them.
    tag: u32,
    reached: Cell<u32>,
    /// The cancellation of a team of one.
    cancelled: Cell<bool>,
    wait: &'a WaitPolicy,
}

impl<'a> Participant<'a> {
    pub(crate) fn new(place: Option<(&'a Inner, &'a [u16])>, index: usize, tag: u32, wait: &'a WaitPolicy) -> Self {
        Participant { place, index, tag, reached: Cell::new(0), cancelled: Cell::new(false), wait }
    }

    /// Its line says from now on that it is in this section. A member's tells its word, idle because it has left, from one
    /// whose captain has yet to post; the store also fetches the line for the first barrier.
    fn begin(&self) {
        self.note(0);
    }

    /// The body has returned. A member says so by leaving; a leader's word is not there, so its line does.
    fn end(&self) {
        if self.index == 0 {
            self.note(self.reached.get() | LEFT);
        }
    }

    /// On the own line: barriers reached.
    fn note(&self, reached: u32) {
        if let Some((inner, members)) = self.place {
            let arrived = u64::from(self.tag) << 32 | u64::from(reached);
            line(inner, members, self.index).store(arrived, Ordering::Release);
        }
    }

    /// This participant's number, 0 for the leader.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many participants run this section.
    pub fn size(&self) -> usize {
        self.place.map_or(1, |(_, members)| members.len() + 1)
    }

    /// Whether some participant panicked or cancelled the section.
    pub fn is_cancelled(&self) -> bool {
        match self.place {
            None => self.cancelled.get(),
            Some((inner, members)) => desk(inner, members).is_cancelled(),
        }
    }

    /// Ends the section's barriers: every participant that waits at one, or comes to one, gets [`Cancelled`].
    pub fn cancel(&self) {
        match self.place {
            None => self.cancelled.set(true),
            Some((inner, members)) => desk(inner, members).cancel(),
        }
    }

    /// Waits until every participant has called it as often as this one.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] when a peer panicked or cancelled the section.
    ///
    /// # Panics
    ///
    /// When a peer's body has returned without this barrier, which nobody can then pass. A participant that waits notices within
    /// about 50 ms; its panic cancels the section and reaches the caller as that of any body does.
    pub fn barrier(&self) -> Result<(), Cancelled> {
        self.wait_at_barrier(None)
    }

    /// [`barrier`](Self::barrier) that asks `stop` about every 50 ms and cancels the section when it says so.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] also when `stop` said so.
    ///
    /// # Panics
    ///
    /// As for [`barrier`](Self::barrier).
    pub fn barrier_unless(&self, stop: &dyn Fn() -> bool) -> Result<(), Cancelled> {
        self.wait_at_barrier(Some(stop))
    }

    fn wait_at_barrier(&self, stop: Option<&dyn Fn() -> bool>) -> Result<(), Cancelled> {
        if self.is_cancelled() {
            return Err(Cancelled);
        }
        let Some((inner, members)) = self.place else { return Ok(()) };
        self.reached.set(self.reached.get() + 1);
        self.note(self.reached.get());
        // Pairs with the fence of a participant that goes to sleep: either it sees this arrival, or it is seen.
        if !mutated!(SkipBarrierFence) {
            fence(Ordering::SeqCst);
        }
        let desk = desk(inner, members);
        at!(Arrived);
        let sleepers = desk.barrier_waiters.load(Ordering::Relaxed);
        if sleepers != 0 && !mutated!(SkipBarrierWake) {
            at!(BeforeBarrierWake);
            desk.barrier_bed.fetch_add(1, Ordering::Release);
            desk.barrier_bed.wake_all();
            inner.record(Kind::Wake, sleepers as u64);
        }
        inner.record(Kind::BarrierBegin, desk.number());
        let peers = (0..self.size()).filter(|&peer| peer != self.index);
        let result = peers.map(|peer| self.wait_for(inner, members, peer, stop)).find(Result::is_err).unwrap_or(Ok(()));
        inner.record(Kind::BarrierEnd, desk.number());
        result
    }

    fn wait_for(
        &self,
        inner: &Inner,
        members: &[u16],
        peer: usize,
        stop: Option<&dyn Fn() -> bool>,
    ) -> Result<(), Cancelled> {
        let desk = desk(inner, members);
        let line = line(inner, members, peer);
        let arrived = || {
            let seen = line.load(Ordering::Acquire);
            (seen >> 32) as u32 == self.tag && seen as u32 & !LEFT >= self.reached.get()
        };
        let waits = waits(inner, members, self.index);
        // In a model a sleep has no end, so who sleeps in vain there is a deadlock that it reports.
        let is_gone = || !cfg!(loom) && self.has_left(inner, members, peer) && !arrived() && !desk.is_cancelled();
        if arrived() {
            return Ok(());
        }
        let mut waiter = Waiter::amid(inner.is_crowded());
        while !arrived() {
            if desk.is_cancelled() {
                return Err(Cancelled);
            }
            let step = waiter.step(inner, waits, || Pace::of(self.wait));
            if step == Step::Sleep {
                at!(BeforeBarrierCount);
                desk.barrier_waiters.fetch_add(1, Ordering::Relaxed);
                at!(BarrierCounted);
                if !mutated!(SkipBarrierSleepFence) {
                    fence(Ordering::SeqCst);
                }
                let bed = desk.barrier_bed.load(Ordering::Acquire);
                if mutated!(SkipBarrierRecheck) || !arrived() && !desk.is_cancelled() {
                    at!(BeforeBarrierSleep);
                    waits.sleeps.add(1);
                    inner.record(Kind::ParkBegin, desk.number());
                    loop {
                        desk.barrier_bed.wait(bed, Some(HOOK_EVERY));
                        // Now and then for `stop`, and for a peer that has left, which wakes nobody.
                        let woken = desk.barrier_bed.load(Ordering::Acquire) != bed;
                        if woken || stop.is_some() || is_gone() {
                            break;
                        }
                    }
                    inner.record(Kind::ParkEnd, desk.number());
                }
                desk.barrier_waiters.fetch_sub(1, Ordering::Relaxed);
            }
            if step == Step::Sleep || waiter.is_hook_due() {
                if stop.is_some_and(|stop| stop()) {
                    desk.cancel();
                }
                if is_gone() {
                    self.give_up(peer);
                }
            }
        }
        Ok(())
    }

    /// Whether participant `peer` has returned. Its leave, or the leader's mark, comes after all that it did: its last barrier,
    /// and a cancellation if it failed.
    fn has_left(&self, inner: &Inner, members: &[u16], peer: usize) -> bool {
        let seen = line(inner, members, peer).load(Ordering::Acquire);
        let is_in_section = (seen >> 32) as u32 == self.tag;
        is_in_section
            && match peer.checked_sub(1) {
                None => seen as u32 & LEFT != 0,
                Some(member) => inner.slots[usize::from(members[member])].post.is_done(),
            }
    }

    #[cold]
    fn give_up(&self, peer: usize) -> ! {
        panic!(
            "participant {} waits at its barrier number {}, but participant {peer} returned without it: call \
             Participant::barrier equally often on every participant",
            self.index,
            self.reached.get(),
        );
    }
}

fn desk<'a>(inner: &'a Inner, members: &[u16]) -> &'a crate::desk::Desk {
    &inner.slots[usize::from(members[0])].desk
}

/// Where participant `index` says which barrier it reached.
fn line<'a>(inner: &'a Inner, members: &[u16], index: usize) -> &'a AtomicU64 {
    match index.checked_sub(1) {
        None => &desk(inner, members).barrier.reached,
        Some(member) => &inner.slots[usize::from(members[member])].owner.barrier,
    }
}

/// Where participant `index` counts what it does at barriers.
fn waits<'a>(inner: &'a Inner, members: &[u16], index: usize) -> &'a Waits {
    match index.checked_sub(1) {
        None => &desk(inner, members).barrier.waits,
        Some(member) => &inner.slots[usize::from(members[member])].owner.barriers,
    }
}
