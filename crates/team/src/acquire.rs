//! Callers that need several members at once and wait until others give them back.

use crate::domains::Reach;
use crate::error::Refused;
use crate::free::{Claim, FreeMask};
use crate::inner::Inner;
use crate::policy::WaitPolicy;
use crate::sync::{mutated, AtomicU64, Futex, Ordering};
use crate::wait::{Pace, Step, Waiter, Waits, HOOK_EVERY};
use crate::worker;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Called by a thread that waits, about every 50 ms.
pub(crate) type Hook<'a> = &'a (dyn Fn() -> ControlFlow<()> + Sync);

/// What callers sleep on until members are given back.
#[derive(Debug)]
pub(crate) struct Callers {
    /// How many sleep, or are about to. Read at the end of every section on a plain token, nearly always 0.
    waiting: AtomicU64,
    bed: Futex,
    /// What they did. Several callers may wait at once, so these are added up by read-modify-writes.
    episodes: std::sync::atomic::AtomicU64,
    yields: std::sync::atomic::AtomicU64,
    sleeps: std::sync::atomic::AtomicU64,
}

impl Callers {
    pub(crate) fn new() -> Self {
        Callers {
            waiting: AtomicU64::new(0),
            bed: Futex::new(0),
            episodes: std::sync::atomic::AtomicU64::new(0),
            yields: std::sync::atomic::AtomicU64::new(0),
            sleeps: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// After members were given back to the free mask.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.bed.fetch_add(1, Ordering::Release);
            self.bed.wake_all();
        }
    }

    /// Ends every sleep: what a test that broke the protocol recovers with.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn wake_anyway(&self) {
        self.bed.fetch_add(1, Ordering::Release);
        self.bed.wake_all();
    }

    /// Sleeps until members are given back, unless there are `enough`; may return early.
    ///
    /// The sleeper counts itself, then writes to every word of the free mask. Who gives members back writes to one of them
    /// and reads the count. Whichever of the two writes to that word comes second sees what the other thread did before.
    pub(crate) fn sleep(&self, free: &FreeMask, enough: impl Fn() -> bool, timeout: Option<Duration>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        free.meet_releases();
        let bed = self.bed.load(Ordering::Acquire);
        if mutated!(SkipCallerRecheck) || !enough() {
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            self.bed.wait(bed, timeout);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, waits: &Waits) {
        self.episodes.fetch_add(waits.episodes.get(), Ordering::Relaxed);
        self.yields.fetch_add(waits.yields.get(), Ordering::Relaxed);
    }

    /// Episodes of polls, yields, sleeps.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.episodes, &self.yields, &self.sleeps].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Inner {
    /// Claims exactly `want` workers within `reach`, waiting at most the pool's acquisition timeout; holds none while it
    /// waits, so two callers cannot wait for each other.
    pub(crate) fn acquire(
        &self,
        reach: Reach,
        want: usize,
        policy: &WaitPolicy,
        hook: Option<Hook<'_>>,
    ) -> Result<Claim, Refused> {
        let claimed = if want > 0 && worker::in_hook_of(self) {
            Err(Refused::CallerInPool)
        } else if let Some(claim) = self.try_claim(reach, want) {
            Ok(claim)
        } else {
            let waits = Waits::new();
            let outcome = self.wait_to_claim(reach, want, Pace::of(policy), hook, &waits);
            self.settings.callers.add(&waits);
            outcome
        };
        claimed.inspect_err(|&reason| self.refuse(reason, want))
    }

    fn try_claim(&self, reach: Reach, want: usize) -> Option<Claim> {
        if self.free_within(reach) < want {
            return None;
        }
        let mut claim = Claim::empty();
        self.claim(reach, want, &mut claim);
        if claim.ids().len() < want {
            self.release(claim.ids());
            return None;
        }
        Some(claim)
    }

    #[cold]
    fn wait_to_claim(
        &self,
        reach: Reach,
        want: usize,
        pace: Pace,
        hook: Option<Hook<'_>>,
        waits: &Waits,
    ) -> Result<Claim, Refused> {
        let since = Instant::now();
        let left = || self.settings.acquire_timeout.saturating_sub(since.elapsed());
        let mut waiter = Waiter::new();
        loop {
            let step = waiter.step(self, waits, || pace);
            if step != Step::Poll && !cfg!(loom) && left().is_zero() {
                return Err(Refused::Unavailable);
            }
            if step == Step::Sleep {
                let most = hook.map_or(Duration::MAX, |_| HOOK_EVERY).min(left());
                let timeout = (most < Duration::MAX).then_some(most);
                self.settings.callers.sleep(&self.free, || self.free_within(reach) >= want, timeout);
            }
            if step == Step::Sleep || waiter.is_hook_due() {
                if let Some(ControlFlow::Break(())) = hook.map(|hook| hook()) {
                    return Err(Refused::Interrupted);
                }
            }
            if let Some(claim) = self.try_claim(reach, want) {
                return Ok(claim);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn inner(timeout: Duration) -> Inner {
        let inner = Inner::new(2, WaitPolicy::DEFAULT, timeout);
        inner.crowd.start();
        inner
    }

    #[test]
    fn a_timeout_of_nothing_refuses_at_the_first_look() {
        let inner = inner(Duration::ZERO);
        assert_eq!(inner.acquire(Reach::ANYWHERE, 1, &WaitPolicy::DEFAULT, None).err(), Some(Refused::Unavailable));
        assert_eq!(inner.refused.get(Refused::Unavailable), 1);
    }

    #[test]
    fn a_hook_ends_an_acquisition_without_a_limit() {
        let inner = inner(Duration::MAX);
        let hook = || ControlFlow::Break(());
        let outcome = inner.acquire(Reach::ANYWHERE, 1, &WaitPolicy::DEFAULT, Some(&hook));
        assert_eq!(outcome.err(), Some(Refused::Interrupted));
        assert_eq!(inner.settings.callers.counts()[2], 1);
    }

    #[test]
    fn an_acquisition_that_sleeps_is_woken_by_a_release() {
        let inner = inner(Duration::MAX);
        std::thread::scope(|scope| {
            let caller =
                scope.spawn(|| inner.acquire(Reach::ANYWHERE, 2, &WaitPolicy::DEFAULT, None).unwrap().ids().len());
            inner.release(&[0]);
            while inner.settings.callers.counts()[2] == 0 {
                std::thread::yield_now();
            }
            inner.release(&[1]);
            assert_eq!(caller.join().unwrap(), 2);
        });
    }
}
