//! Members lent to their pool while their token runs another library's code.
//!
//! A token that carries a team has its members for itself. While [`Exec::external`](crate::Exec::external) runs, they are in
//! the free mask like anybody: sections of the pool's other callers, and of the code that runs, may claim them. The return
//! waits until each has been given back.

use crate::acquire::Hook;
use crate::exec::Exec;
use crate::fork;
use crate::idle::WaitScope;
use crate::inner::Inner;
use crate::pin;
use crate::policy::WaitPolicy;
use crate::pool::Pool;
use crate::trace::Kind;
use crate::wait::{Pace, Step, Waiter, Waits, HOOK_EVERY};
use std::num::NonZeroUsize;

impl<'p> Exec<'p> {
    /// Hands the budget to another library as a plain width: the one place where a bare width exists.
    ///
    /// Members that the token carries are lent to their pool while `f` runs: sections of other tokens of the pool may claim
    /// them, those of `f` too. The call returns when it has them all again.
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// let team = Pool::builder().threads(2).acquire_timeout(std::time::Duration::from_secs(10)).build()?.into_team(2).unwrap();
    /// let width = team.exec(2).external(|width| {
    ///     Exec::new(team.pool(), width.get()).unwrap().broadcast(|_| ()).unwrap(); // on the lent member
    ///     width.get()
    /// });
    /// assert_eq!(width, 2);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    ///
    /// A member of a placed team gets its own affinity mask back first: see [`before_foreign_work`](crate::before_foreign_work).
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// let sum = Exec::new(&pool, 4)?.external(|width| {
    ///     // A library with threads of its own is told how many it may use.
    ///     assert_eq!(width.get(), 4);
    ///     42
    /// });
    /// assert_eq!(sum, 42);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn external<R: Send>(self, f: impl FnOnce(NonZeroUsize) -> R + Send) -> R {
        let external = self.into_external();
        let _task = external.exec.ticket().enter();
        f(external.width())
    }

    /// [`external`](Self::external) as a scope: the budget is the other library's until the result is dropped.
    pub fn into_external(self) -> External<'p> {
        pin::before_foreign_work();
        let lent = match self.to_reserve() {
            Ok((Some(pool), Some(members))) if !members.is_empty() => {
                Some(Lent::begin(pool, members, self.wait(), self.hook()))
            }
            _ => None,
        };
        External { _lent: lent, exec: self }
    }
}

/// A token's budget in the hands of another library; see [`Exec::external`].
///
/// A drop waits until the members that were lent have been given back, so a borrower must not wait for the thread that drops
/// it.
///
/// ```
/// use threadteam::{Exec, Pool};
///
/// let pool = Pool::builder().threads(4).build()?;
/// let external = Exec::new(&pool, 3)?.into_external();
/// assert_eq!(external.width().get(), 3);
/// # Ok::<(), threadteam::Error>(())
/// ```
pub struct External<'p> {
    /// Dropped before the token, whose members they are.
    _lent: Option<Lent<'p>>,
    exec: Exec<'p>,
}

impl External<'_> {
    /// The budget.
    pub fn width(&self) -> NonZeroUsize {
        self.exec.budget()
    }
}

impl std::fmt::Debug for External<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("External").field("width", &self.width()).finish_non_exhaustive()
    }
}

/// Members that the pool's other callers may claim until this is dropped.
pub(crate) struct Lent<'a> {
    inner: &'a Inner,
    members: &'a [u16],
    wait: &'a WaitPolicy,
    hook: Option<Hook<'a>>,
    epoch: u32,
    process: u32,
    /// The waiting policy that the slots held: borrowers leave their own there.
    _scope: WaitScope<'a>,
}

impl<'a> Lent<'a> {
    /// `members` are claimed by the caller, and none of them is in a section. `wait` is how the caller waits for them, and
    /// `hook` is called now and then meanwhile.
    pub(crate) fn begin(pool: &'a Pool, members: &'a [u16], wait: &'a WaitPolicy, hook: Option<Hook<'a>>) -> Self {
        let inner = pool.running();
        let epoch = inner.epoch();
        if pool.pin_participants() {
            // A borrower's section is no part of the scope that they were placed for.
            pin::restore_members(inner, members, epoch);
        }
        let scope = WaitScope::enter(inner, members, &inner.settings.wait);
        inner.release(members);
        Lent { inner, members, wait, hook, epoch, process: fork::generation(), _scope: scope }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // In the child of a fork the members are others, and were not lent.
        if self.inner.epoch() == self.epoch && fork::generation() == self.process {
            self.inner.recall(self.members, self.wait, self.hook);
        }
    }
}

impl Inner {
    /// Claims just these `members`, one after the other, waiting for each as long as somebody else has it.
    ///
    /// Holding some while it waits for others cannot make a circle: an [acquisition](Self::acquire) holds nothing while it
    /// waits, and a section that has a lent member waits for no other.
    ///
    /// `hook` is called now and then; it cannot end the wait, for the members' claimant goes on to use them.
    pub(crate) fn recall(&self, members: &[u16], wait: &WaitPolicy, hook: Option<Hook<'_>>) {
        let waits = Waits::new();
        for &id in members {
            let mut waiter = Waiter::new();
            while !self.free.take(id) {
                let step = waiter.step(self, &waits, || Pace::of(wait));
                if step == Step::Sleep {
                    self.settings.callers.sleep(&self.free, || self.free.has(id), hook.map(|_| HOOK_EVERY));
                }
                if step == Step::Sleep || waiter.is_hook_due() {
                    let _ = hook.map(|hook| hook());
                }
            }
        }
        self.settings.callers.add(&waits);
        self.record(Kind::Reserve, members.len() as u64);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::ops::ControlFlow;
    use std::time::Duration;

    #[test]
    fn a_hook_is_called_while_a_lender_waits_and_does_not_end_the_wait() {
        let inner = Inner::new(1, WaitPolicy::DEFAULT, Duration::MAX);
        inner.crowd.start();
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let hook = || {
            if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2 {
                inner.release(&[0]);
            }
            ControlFlow::Break(())
        };
        inner.recall(&[0], &WaitPolicy::DEFAULT, Some(&hook));
        assert_eq!(calls.into_inner(), 3);
        assert!(!inner.free.has(0));
    }
}
