//! When a leader wakes sleeping members.
//!
//! A wake costs the waker several microseconds, so waking at every small section makes it slower than serial. The leader
//! adds up the time that it worked while members slept and wakes one when that debt exceeds the cost of a wake; it wakes
//! at once when the section is known to be long. Woken members wake further ones, so the leader pays for at most one.

use crate::inner::Inner;
use crate::slot::Slot;
use std::sync::atomic::Ordering;

/// What a wake costs in all: the waker's system call and the time until the sleeper runs.
pub(crate) const WAKE_NS: u64 = 30_000;

/// Serial time of a section from which a wake at its start gains.
const EAGER_NS: u64 = 2 * WAKE_NS;

/// One section led while some of its members sleep.
pub(crate) struct Alone<'a> {
    inner: &'a Inner,
    members: &'a [u16],
    home: &'a Slot,
    since: u64,
    debt: u64,
    woke: bool,
}

impl<'a> Alone<'a> {
    /// `None` when all `members` are awake. `estimate` is the serial time of the section in nanoseconds, 0 if unknown.
    #[inline]
    pub(crate) fn begin(inner: &'a Inner, members: &'a [u16], home: &'a Slot, estimate: u64) -> Option<Self> {
        inner.parking.any_parked(members).then(|| Alone::begin_beside_sleepers(inner, members, home, estimate))
    }

    #[inline(never)]
    fn begin_beside_sleepers(inner: &'a Inner, members: &'a [u16], home: &'a Slot, estimate: u64) -> Self {
        let since = inner.now_ns();
        let gap = since.saturating_sub(inner.debt.last_end.load(Ordering::Relaxed));
        let forget = u128::from(gap) > inner.settings.wait.idle_spin().as_nanos();
        let debt = if forget { 0 } else { inner.debt.ns.load(Ordering::Relaxed) };
        inner.debt.sections.store(inner.debt.sections.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let mut alone = Alone { inner, members, home, since, debt, woke: false };
        // Without an estimate the last section is the best guess at this one.
        let likely = if estimate > 0 { estimate } else { inner.debt.last_length.load(Ordering::Relaxed) };
        if debt >= WAKE_NS || likely >= EAGER_NS {
            alone.wake();
        }
        alone
    }

    /// Between two chunks.
    #[inline(never)]
    pub(crate) fn tick(&mut self) {
        if !self.woke && self.debt + self.elapsed() >= WAKE_NS {
            self.wake();
        }
    }

    /// After the join.
    #[inline(never)]
    pub(crate) fn end(self) {
        let elapsed = self.elapsed();
        let debt = &self.inner.debt;
        debt.ns.store(if self.woke { 0 } else { self.debt + elapsed }, Ordering::Relaxed);
        debt.last_end.store(self.since + elapsed, Ordering::Relaxed);
        debt.last_length.store(elapsed, Ordering::Relaxed);
    }

    fn elapsed(&self) -> u64 {
        self.inner.now_ns().saturating_sub(self.since)
    }

    fn wake(&mut self) {
        self.woke = true;
        // The kernel likes to start a woken thread where its waker runs: it moves away when it finds that so.
        self.members.iter().for_each(|&id| self.inner.slots[usize::from(id)].notice.leader_place.note());
        let woken = self.inner.wake_some(self.members, 1) as u64;
        self.home.leader.wakes.add(woken);
    }
}
