//! A persistent team: a pool whose members stay reserved for one owner.

use crate::error::Refused;
use crate::exec::{reserve_wait, Exec};
use crate::fork::{self, Bell, ForkLock};
use crate::idle::WaitScope;
use crate::pin;
use crate::policy::{WaitOverride, WaitPolicy};
use crate::pool::Pool;
use crate::worker;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::thread::ThreadId;

/// A pool with reserved members. Tokens minted here carry the team: their sections go to these members.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
/// use threadteam::Pool;
///
/// let team = Pool::builder().threads(2).build()?.into_team(2).unwrap();
/// let mut exec = team.exec(2);
/// exec.reborrow().for_ranges(100, NonZeroUsize::new(50).unwrap(), |_| ());
/// exec.broadcast(|_| ()).unwrap(); // never refused
/// let pool = team.into_pool();
/// assert_eq!(pool.width().get(), 2);
/// # Ok::<(), threadteam::Error>(())
/// ```
pub struct Team {
    pool: Pool,
    members: Box<[u16]>,
    policy: WaitPolicy,
    leader: LeaderLock,
}

/// A pool that could not be made into a team.
pub struct IntoTeamError {
    reason: Refused,
    pool: Box<Pool>,
}

impl IntoTeamError {
    /// Why.
    pub fn reason(&self) -> Refused {
        self.reason
    }

    /// The pool, as it was.
    pub fn into_pool(self) -> Pool {
        *self.pool
    }
}

impl std::fmt::Debug for IntoTeamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntoTeamError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl std::fmt::Display for IntoTeamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the pool could not be made into a team: {}", self.reason)
    }
}

impl std::error::Error for IntoTeamError {}

impl Pool {
    /// Reserves `width - 1` members for as long as the returned team lives; `width` is clamped to `1..=` the pool's.
    ///
    /// # Errors
    ///
    /// [`IntoTeamError`] with the pool when the members cannot all be had within the acquisition timeout.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::Pool;
    ///
    /// let pool = Pool::builder().threads(2).acquire_timeout(Duration::from_secs(10)).build()?;
    /// let pool = match pool.into_team(2) {
    ///     Ok(team) => {
    ///         team.exec(2).fork(2, |_, _| ());
    ///         team.into_pool()
    ///     }
    ///     // Somebody uses the members: the pool is given back with the reason.
    ///     Err(refused) => refused.into_pool(),
    /// };
    /// assert_eq!(pool.width().get(), 2);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn into_team(self, width: usize) -> Result<Team, IntoTeamError> {
        self.into_team_with(width, WaitOverride::new())
    }

    /// [`into_team`](Self::into_team) with a waiting policy for the reservation.
    ///
    /// # Errors
    ///
    /// As for [`into_team`](Self::into_team).
    pub fn into_team_with(self, width: usize, over: WaitOverride) -> Result<Team, IntoTeamError> {
        self.into_team_unless(width, over, &|| ControlFlow::Continue(()))
    }

    /// [`into_team_with`](Self::into_team_with) that asks `hook` about every 50 ms while it waits, and gives up when that
    /// says [`Break`](ControlFlow::Break).
    ///
    /// # Errors
    ///
    /// As for [`into_team`](Self::into_team), with [`Refused::Interrupted`] when the hook ended the wait.
    pub fn into_team_unless(
        self,
        width: usize,
        over: WaitOverride,
        hook: &(dyn Fn() -> ControlFlow<()> + Sync),
    ) -> Result<Team, IntoTeamError> {
        let width = width.clamp(1, self.width().get());
        let claim = match self.running().acquire(self.reach(), width - 1, &self.wait_policy(), Some(hook)) {
            Ok(claim) => claim,
            Err(reason) => return Err(IntoTeamError { reason, pool: Box::new(self) }),
        };
        let members: Box<[u16]> = claim.ids().into();
        self.reserved().extend_from_slice(&members);
        let policy = self.wait_policy().with(over);
        // Stays in the slots until the members are released.
        std::mem::forget(reserve_wait(self.inner(), &members, &policy, over));
        if self.pin_participants() {
            pin::place_members(self.inner(), &members, None);
        }
        Ok(Team { pool: self, members, policy, leader: LeaderLock::default() })
    }
}

impl Team {
    /// The pool behind the team.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Releases the members and gives the pool back.
    pub fn into_pool(self) -> Pool {
        let Team { pool, members, .. } = self;
        if pool.pin_participants() {
            pin::restore_members(pool.inner(), &members, pool.inner().epoch());
        }
        pool.reserved().retain(|id| !members.contains(id));
        // The idle interval that begins is the pool's.
        WaitScope::clear(pool.inner(), &members);
        pool.inner().release(&members);
        pool
    }

    /// How members wait while they are reserved.
    pub fn policy(&self) -> WaitPolicy {
        self.policy
    }

    /// Participants, the leader included.
    pub fn size(&self) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(self.members.len())
    }

    /// Waits for the previous root token to be dropped and mints one of `budget` slots, clamped to `1..=` the size.
    ///
    /// # Panics
    ///
    /// When the calling thread holds the previous root token: it would wait for itself.
    pub fn exec(&self, budget: usize) -> Exec<'_> {
        let lead = self.leader.lock();
        self.mint(budget, lead)
    }

    /// [`exec`](Self::exec) without waiting.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`] when a root token lives, [`Refused::CallerInPool`] in a start hook of the pool.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::{Pool, Refused};
    ///
    /// let pool = Pool::builder().threads(2).acquire_timeout(Duration::from_secs(10)).build()?;
    /// let team = pool.into_team(2).expect("nobody else uses this pool");
    /// let token = team.exec(2);
    /// assert_eq!(team.try_exec(2).err(), Some(Refused::Busy));
    /// drop(token);
    /// assert!(team.try_exec(2).is_ok());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn try_exec(&self, budget: usize) -> Result<Exec<'_>, Refused> {
        if worker::in_hook_of(self.pool.inner()) {
            self.pool.inner().refuse(Refused::CallerInPool, budget);
            return Err(Refused::CallerInPool);
        }
        let Some(lead) = self.leader.try_lock() else {
            self.pool.inner().refuse(Refused::Busy, budget);
            return Err(Refused::Busy);
        };
        Ok(self.mint(budget, lead))
    }

    /// Whether the calling thread holds the root token.
    pub fn is_led_by_caller(&self) -> bool {
        self.leader.holder().is_some_and(|holder| holder.thread == std::thread::current().id())
    }

    fn mint<'t>(&'t self, budget: usize, lead: Lead<'t>) -> Exec<'t> {
        let budget = budget.clamp(1, self.size().get());
        let members = &self.members[..budget - 1];
        let exec = Exec::of_team(&self.pool, members, &self.policy, lead);
        exec.enter_root_scope(self.pool.inner());
        exec
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("size", &self.size()).finish_non_exhaustive()
    }
}

/// Who leads a team now.
#[derive(Default)]
struct LeaderLock {
    holder: ForkLock<Option<Holder>>,
    released: Bell,
}

#[derive(Clone, Copy)]
struct Holder {
    thread: ThreadId,
    /// A holder from before a fork lives in another process.
    generation: u32,
}

impl Holder {
    fn here() -> Holder {
        Holder { thread: std::thread::current().id(), generation: fork::generation() }
    }

    fn is_alive(&self) -> bool {
        self.generation == fork::generation()
    }
}

impl LeaderLock {
    fn holder(&self) -> Option<Holder> {
        self.holder.lock().filter(Holder::is_alive)
    }

    fn lock(&self) -> Lead<'_> {
        let own = std::thread::current().id();
        loop {
            let heard = self.released.rings();
            if let Some(lead) = self.try_lock() {
                return lead;
            }
            assert!(
                self.holder().is_none_or(|holder| holder.thread != own),
                "this thread holds the team's root token and would wait for itself: drop it, or lend it with reborrow()"
            );
            self.released.wait(heard, None);
        }
    }

    fn try_lock(&self) -> Option<Lead<'_>> {
        let mut holder = self.holder.lock();
        if holder.is_some_and(|holder| holder.is_alive()) {
            return None;
        }
        *holder = Some(Holder::here());
        Some(Lead { lock: self })
    }
}

/// The leadership of a team, given up on drop.
pub(crate) struct Lead<'a> {
    lock: &'a LeaderLock,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        *self.lock.holder.lock() = None;
        self.lock.released.ring();
    }
}
