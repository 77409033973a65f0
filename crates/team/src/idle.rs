//! How a member waits between sections: the policy that scopes leave in its slot, and the member's own clock.

use crate::inner::Inner;
use crate::policy::WaitPolicy;
use crate::rhythm::Rhythm;
use crate::slot::{NoticeLine, Slot};
use crate::sync::Ordering;
use crate::wait::{Pace, Step, Waiter};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// In [`NoticeLine::idle`]: the pool's own policy.
pub(crate) const DEFAULT_IDLE: u64 = u64::MAX;

/// The policy ends with the idle interval that it governs.
const ENDS_WITH_INTERVAL: u64 = 1 << 63;

/// The time is a bound, inside which the member decides.
const ADAPTIVE: u64 = 1 << 62;

const TIME: u64 = ADAPTIVE - 1;

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl NoticeLine {
    fn set(&self, idle: u64, spin: u64) {
        self.spin.store(spin, Ordering::Relaxed);
        // Release: a worker that reads the new policy reads its spin time too. An old one beside a new spin time is
        // harmless: either is a hint for one wait.
        self.idle.store(idle, Ordering::Release);
    }

    /// The pool's policy governs again.
    pub(crate) fn reset(&self) {
        if self.idle.load(Ordering::Relaxed) != DEFAULT_IDLE {
            self.set(DEFAULT_IDLE, u64::MAX);
        }
    }

    /// The longest that the member stays awake, whether it decides inside that, and its spin time.
    fn policy(&self, pool: &WaitPolicy) -> (Duration, bool, Duration) {
        let idle = self.idle.load(Ordering::Acquire);
        if idle == DEFAULT_IDLE {
            return (pool.idle_spin(), pool.is_adaptive(), pool.spin());
        }
        let spin = Duration::from_nanos(self.spin.load(Ordering::Relaxed));
        (Duration::from_nanos(idle & TIME), idle & ADAPTIVE != 0, spin)
    }

    /// The owner parks: a policy that governed this interval only has done so.
    pub(crate) fn end_interval(&self) {
        let idle = self.idle.load(Ordering::Relaxed);
        if idle != DEFAULT_IDLE && idle & ENDS_WITH_INTERVAL != 0 {
            // A leader that claims the slot meanwhile has stored its own policy, which stays.
            let _ = self.idle.compare_exchange(idle, DEFAULT_IDLE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A waiting policy in the slots of some members while a scope lasts.
pub(crate) struct WaitScope<'a> {
    inner: &'a Inner,
    members: &'a [u16],
    after: (u64, u64),
}

impl<'a> WaitScope<'a> {
    /// Stores `policy` in the members' slots. When the scope ends the earlier policy comes back.
    pub(crate) fn enter(inner: &'a Inner, members: &'a [u16], policy: &WaitPolicy) -> Self {
        let before = members.first().map_or((DEFAULT_IDLE, u64::MAX), |&id| {
            let notice = &inner.slots[usize::from(id)].notice;
            (notice.idle.load(Ordering::Relaxed), notice.spin.load(Ordering::Relaxed))
        });
        let scope = WaitScope { inner, members, after: before };
        scope.store(words(policy));
        scope
    }

    /// The scope of a reservation: when it ends, the same policy governs the idle interval that follows.
    pub(crate) fn of_reservation(inner: &'a Inner, members: &'a [u16], policy: &WaitPolicy) -> Self {
        let (idle, spin) = words(policy);
        let mut scope = WaitScope::enter(inner, members, policy);
        scope.after = (idle | ENDS_WITH_INTERVAL, spin);
        scope
    }

    /// What an earlier scope of the same members left behind does not govern a reservation that names no policy.
    pub(crate) fn clear(inner: &Inner, members: &[u16]) {
        members.iter().for_each(|&id| inner.slots[usize::from(id)].notice.reset());
    }

    /// The same scope with another policy.
    pub(crate) fn change(&self, policy: &WaitPolicy) {
        self.store(words(policy));
    }

    fn store(&self, (idle, spin): (u64, u64)) {
        self.members.iter().for_each(|&id| self.inner.slots[usize::from(id)].notice.set(idle, spin));
    }
}

impl Drop for WaitScope<'_> {
    fn drop(&mut self) {
        self.store(self.after);
    }
}

fn words(policy: &WaitPolicy) -> (u64, u64) {
    let adaptive = if policy.is_adaptive() { ADAPTIVE } else { 0 };
    (nanoseconds(policy.idle_spin()).min(TIME - 1) | adaptive, nanoseconds(policy.spin()))
}

/// A member's clock: it starts at the end of the member's own last share, or at a wake, and nothing that others do moves it.
pub(crate) struct Idle {
    waiter: Waiter,
    rhythm: Rhythm,
    /// Releases that this member has obeyed.
    releases: u32,
    /// Whether the member was woken for the share that it takes next.
    pub(crate) woken: bool,
}

/// When a sleep began: the time, and how many sections leaders had run alone by then.
pub(crate) struct Nap(u64, u64);

impl Idle {
    pub(crate) fn new() -> Self {
        Idle { waiter: Waiter::new(), rhythm: Rhythm::new(), releases: 0, woken: false }
    }

    /// Pauses or yields once and says what comes next.
    #[inline]
    pub(crate) fn step(&mut self, inner: &Inner, slot: &Slot) -> Step {
        let Idle { waiter, rhythm, .. } = self;
        let step = waiter.step(inner, &slot.owner.idle, || {
            let (longest, adaptive, spin) = slot.notice.policy(&inner.settings.wait);
            let expected = Duration::from_nanos(rhythm.limit_ns());
            Pace { spin, park_after: if adaptive { longest.min(expected) } else { longest } }
        });
        if step == Step::Poll {
            return step;
        }
        if waiter.has_lost_its_cpu() {
            rhythm.note_loss(inner.now_ns());
        }
        if self.releases != inner.settings.releases.load(Relaxed) {
            return Step::Sleep;
        }
        step
    }

    /// The member goes to sleep.
    pub(crate) fn fall_asleep(&self, inner: &Inner) -> Nap {
        Nap(inner.now_ns().saturating_sub(nanoseconds(self.waiter.waited())), inner.debt.sections.load(Relaxed))
    }

    /// It woke up: its clock starts anew.
    pub(crate) fn wake(&mut self, inner: &Inner, Nap(since, sections): Nap) {
        // Leaders that worked alone did not wake this member at each of their sections.
        let alone = inner.debt.sections.load(Relaxed).saturating_sub(sections).max(1);
        let now = inner.now_ns();
        self.rhythm.note(now.saturating_sub(since) / alone, now);
        self.waiter = Waiter::new();
        self.releases = inner.settings.releases.load(Relaxed);
        self.woken = true;
    }

    /// The member ran a share: its clock starts anew. In a crowd it lets the others of a `gang` run at once.
    #[inline]
    pub(crate) fn restart(&mut self, inner: &Inner, gang: bool) {
        let waited = self.waiter.waited();
        if !waited.is_zero() {
            self.note_gap(inner, nanoseconds(waited));
        }
        self.waiter = Waiter::amid(gang && self.waiter.is_crowded());
        self.woken = false;
    }

    #[cold]
    fn note_gap(&mut self, inner: &Inner, waited: u64) {
        self.rhythm.note(waited, inner.now_ns());
    }
}
