//! The entries of a token that need all its participants at the same time: a broadcast, a team.

use super::{Exec, Held, Place};
use crate::cost::DispatchCosts;
use crate::error::Refused;
use crate::idle::WaitScope;
use crate::inner::Inner;
use crate::pin::{self, Placed};
use crate::policy::{WaitOverride, WaitPolicy};
use crate::section::Leader;
use crate::slot::Call;
use crate::team::TeamExec;

impl Exec<'_> {
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
                let claim = inner.acquire(self.reach, self.budget.get() - 1, self.wait, self.hook)?;
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
                let claim = inner.acquire(self.reach, self.budget.get() - 1, self.wait, self.hook)?;
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

/// The body of a gang section, erased: `f(index, size)`.
pub(crate) fn erase_share<F: Fn(usize, usize) + Sync>(f: &F) -> (Call, *const ()) {
    unsafe fn call<F: Fn(usize, usize)>(data: *const (), index: usize, size: usize) {
        // SAFETY: `data` is the `&F` that `erase_share` erased; the section keeps it alive.
        (unsafe { &*data.cast::<F>() })(index, size);
    }
    (call::<F>, std::ptr::from_ref(f).cast())
}
