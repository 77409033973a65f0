//! Members lent to their pool while their token runs another library's code.
//!
//! A token that carries a team has its members for itself. While [`Exec::external`](crate::Exec::external) runs, they are in
//! the free mask like anybody: sections of the pool's other callers, and of the code that runs, may claim them. The return
//! waits until each has been given back.

use crate::fork;
use crate::idle::WaitScope;
use crate::inner::Inner;
use crate::pin;
use crate::policy::WaitPolicy;
use crate::pool::Pool;
use crate::trace::Kind;
use crate::wait::{Pace, Step, Waiter, Waits};

/// Members that the pool's other callers may claim until this is dropped.
pub(crate) struct Lent<'a> {
    inner: &'a Inner,
    members: &'a [u16],
    wait: &'a WaitPolicy,
    epoch: u32,
    process: u32,
    /// The waiting policy that the slots held: borrowers leave their own there.
    _scope: WaitScope<'a>,
}

impl<'a> Lent<'a> {
    /// `members` are claimed by the caller, and none of them is in a section. `wait` is how the caller waits for them.
    pub(crate) fn begin(pool: &'a Pool, members: &'a [u16], wait: &'a WaitPolicy) -> Self {
        let inner = pool.running();
        let epoch = inner.epoch();
        if pool.pin_participants() {
            // A borrower's section is no part of the scope that they were placed for.
            pin::restore_members(inner, members, epoch);
        }
        let scope = WaitScope::enter(inner, members, &inner.settings.wait);
        inner.release(members);
        Lent { inner, members, wait, epoch, process: fork::generation(), _scope: scope }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // In the child of a fork the members are others, and were not lent.
        if self.inner.epoch() == self.epoch && fork::generation() == self.process {
            self.inner.recall(self.members, self.wait);
        }
    }
}

impl Inner {
    /// Claims just these `members`, one after the other, waiting for each as long as somebody else has it.
    ///
    /// Holding some while it waits for others cannot make a circle: an [acquisition](Self::acquire) holds nothing while it
    /// waits, and a section that has a lent member waits for no other.
    pub(crate) fn recall(&self, members: &[u16], wait: &WaitPolicy) {
        let waits = Waits::new();
        for &id in members {
            let mut waiter = Waiter::new();
            while !self.free.take(id) {
                if waiter.step(self, &waits, || Pace::of(wait)) == Step::Sleep {
                    self.settings.callers.sleep(&self.free, || self.free.has(id), None);
                }
            }
        }
        self.settings.callers.add(&waits);
        self.record(Kind::Reserve, members.len() as u64);
    }
}
