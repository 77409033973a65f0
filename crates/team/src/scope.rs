//! A reservation as a value, for owners that cannot nest a callback: a language binding's scope object.

use crate::acquire::Hook;
use crate::cost::DispatchCosts;
use crate::error::Refused;
use crate::exec::{reserve_wait, Exec};
use crate::idle::WaitScope;
use crate::ledger::Ticket;
use crate::pin;
use crate::policy::{WaitOverride, WaitPolicy};
use crate::pool::Pool;
use crate::team::TeamExec;

/// Members reserved until this is dropped: what [`Exec::team_with`] holds around its callback.
///
/// # Examples
///
/// ```
/// use threadteam::{Exec, Pool, WaitOverride};
///
/// let pool = Pool::builder().threads(2).acquire_timeout(std::time::Duration::from_secs(10)).build()?;
/// let mut exec = Exec::new(&pool, 2)?;
/// let mut reserved = exec.reserve(WaitOverride::new()).expect("an idle pool");
/// reserved.team().run(|_index, size| assert_eq!(size, 2));
/// # Ok::<(), threadteam::Error>(())
/// ```
pub struct Reserved<'a> {
    members: Members<'a>,
    policy: WaitPolicy,
    costs: &'a DispatchCosts,
    hook: Option<Hook<'a>>,
    over: WaitOverride,
    ticket: Ticket,
}

enum Members<'a> {
    /// A team of one.
    Nobody,
    /// The token carried them already.
    Carried(&'a Pool, &'a [u16], &'a WaitPolicy),
    /// Given back on drop; claimed in this epoch, and placed on CPUs of their own or not.
    Claimed { pool: &'a Pool, members: Box<[u16]>, epoch: u32, placed: bool },
}

impl<'p> Exec<'p> {
    /// Reserves `budget - 1` members until the result is dropped; see [`team_with`](Exec::team_with).
    ///
    /// # Errors
    ///
    /// As for [`team_with`](Exec::team_with).
    pub fn reserve(&mut self, over: WaitOverride) -> Result<Reserved<'_>, Refused> {
        self.for_an_entry().into_reserved(over)
    }

    /// [`reserve`](Self::reserve) that takes the token with it.
    ///
    /// # Errors
    ///
    /// As for [`team_with`](Exec::team_with).
    pub fn into_reserved(self, over: WaitOverride) -> Result<Reserved<'p>, Refused> {
        let (pool, carried) = self.to_reserve()?;
        let hook = self.hook();
        let policy = self.wait().with(over);
        let costs = match pool {
            Some(pool) => pool.costs(),
            None => DispatchCosts::of_host(),
        };
        let members = match (pool, carried) {
            (Some(pool), Some(members)) if !self.is_serial() => {
                let inner = pool.running();
                self.enter_root_scope(inner);
                if self.places_members() {
                    pin::place_members(inner, members, hook);
                }
                Members::Carried(pool, members, self.wait())
            }
            (Some(pool), None) if !self.is_serial() => {
                let inner = pool.running();
                let claim = inner.acquire(self.reach(), self.budget().get() - 1, self.wait(), hook)?;
                self.enter_root_scope(inner);
                let members: Box<[u16]> = claim.ids().into();
                let placed = self.places_members();
                if placed {
                    pin::place_members(inner, &members, hook);
                }
                // Stays in the slots until the members are given back.
                std::mem::forget(reserve_wait(inner, &members, &policy, over));
                Members::Claimed { pool, members, epoch: inner.epoch(), placed }
            }
            _ => Members::Nobody,
        };
        Ok(Reserved { members, policy, costs, hook, over, ticket: self.ticket().clone() })
    }
}

impl Reserved<'_> {
    /// The authority over the reserved members, while `self` is borrowed.
    pub fn team(&mut self) -> TeamExec<'_> {
        let team = match &self.members {
            Members::Nobody => TeamExec::alone(self.policy, self.costs),
            Members::Carried(pool, members, wait) => {
                TeamExec::new(pool, members, **wait, self.hook).with_wait(self.over)
            }
            Members::Claimed { pool, members, epoch, .. } => {
                TeamExec::new(pool, members, self.policy, self.hook).claimed_in(*epoch)
            }
        };
        team.counted_by(&self.ticket)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Members::Claimed { pool, members, epoch, placed } = &self.members {
            if *placed {
                pin::restore_members(pool.inner(), members, *epoch);
            }
            if self.over != WaitOverride::new() {
                // The members' idle interval begins under this scope's policy.
                drop(WaitScope::of_reservation(pool.inner(), members, &self.policy));
            }
            pool.inner().give_back(members, *epoch);
        }
    }
}

impl std::fmt::Debug for Reserved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = match &self.members {
            Members::Nobody => 1,
            Members::Carried(_, members, _) => members.len() + 1,
            Members::Claimed { members, .. } => members.len() + 1,
        };
        f.debug_struct("Reserved").field("size", &size).finish_non_exhaustive()
    }
}
