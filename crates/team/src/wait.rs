//! The one waiting mechanism: poll for a bounded time, yield for a bounded time, then sleep.
//!
//! Idle members, joining leaders, participants at barriers and callers that acquire members all step a [`Waiter`]; they
//! differ in the limits and in what they sleep on.

use crate::inner::Inner;
use crate::policy::WaitPolicy;
use crate::slot::Tally;
use std::time::{Duration, Instant};

/// Polls between two looks at the clock, which costs about as much as one poll of a remote line.
pub(crate) const POLLS_PER_LOOK: u32 = 64;

/// Between two polls before the first look at the clock, so for half a microsecond. The next section, or the last share, comes
/// within that time where sections follow each other, and half a PAUSE of 25 to 45 ns would be a tenth of what one costs.
#[inline]
fn pause_briefly() {
    #[cfg(target_arch = "x86_64")]
    for _ in 0..4 {
        // SAFETY: SSE2, to which the instruction belongs, is part of x86-64.
        unsafe { std::arch::x86_64::_mm_lfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::spin_loop();
}

/// Yields of a waiter before it sleeps where more participants are awake than CPUs: each lets another participant run.
const CROWDED_YIELDS: u32 = 50;

/// How often a waiter calls its hook.
pub(crate) const HOOK_EVERY: Duration = Duration::from_millis(50);

/// Two looks so far apart mean that the waiter had lost its CPU in between: polls take microseconds.
const LOSS: Duration = Duration::from_millis(1);

/// The limits of one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// From here on the waiter yields between polls.
    pub(crate) spin: Duration,
    /// From here on it sleeps.
    pub(crate) park_after: Duration,
}

impl Pace {
    /// Of joins, barriers and acquisitions.
    pub(crate) fn of(policy: &WaitPolicy) -> Self {
        Pace { spin: policy.spin(), park_after: policy.park_after() }
    }
}

/// What waits of one kind did. Each has one writer at a time.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Episodes of [`POLLS_PER_LOOK`] polls.
    pub(crate) episodes: Tally,
    pub(crate) yields: Tally,
    pub(crate) sleeps: Tally,
}

impl Waits {
    pub(crate) fn new() -> Self {
        Waits { episodes: Tally::new(), yields: Tally::new(), sleeps: Tally::new() }
    }
}

/// What to do before the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Poll again.
    Poll,
    /// Poll again, after a look at rare things (a stop, a fork).
    Look,
    /// The limits are used up: sleep.
    Sleep,
}

/// One wait, from its first poll to its first sleep.
#[derive(Debug)]
pub(crate) struct Waiter {
    polls: u32,
    crowded_yields: u32,
    crowded: bool,
    pace: Pace,
    times: Option<Times>,
}

/// When a waiter looked at the clock.
#[derive(Clone, Copy, Debug)]
struct Times {
    first: Instant,
    last: Instant,
    hook: Instant,
    /// Whether the waiter lost its CPU before the last look.
    lost: bool,
}

impl Waiter {
    /// Costs nothing: the limits are asked for at looks at the clock.
    #[inline]
    pub(crate) fn new() -> Self {
        Waiter::amid(false)
    }

    /// The same; `crowded`: it yields from its first poll on, until a look finds no crowd. An episode of polls takes as long
    /// as the share of another participant that waits for this CPU.
    #[inline]
    pub(crate) fn amid(crowded: bool) -> Self {
        let pace = Pace { spin: Duration::MAX, park_after: Duration::MAX };
        Waiter { polls: 0, crowded_yields: 0, crowded, pace, times: None }
    }

    /// Whether its last look found a crowd.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Pauses or yields once and says what comes next. `pace` is asked at each look at the clock.
    #[inline]
    pub(crate) fn step(&mut self, inner: &Inner, waits: &Waits, pace: impl FnOnce() -> Pace) -> Step {
        if cfg!(loom) {
            // A model has no time: every wait goes the whole way to its sleep.
            return Step::Sleep;
        }
        if self.times.is_none() {
            pause_briefly();
        } else {
            std::hint::spin_loop();
        }
        self.polls += 1;
        if !self.crowded && !self.polls.is_multiple_of(POLLS_PER_LOOK) {
            return Step::Poll;
        }
        let step = self.look(Instant::now(), inner.is_crowded(), pace);
        waits.episodes.add(u64::from(self.polls / POLLS_PER_LOOK));
        self.polls %= POLLS_PER_LOOK;
        if self.should_yield(step) {
            waits.yields.add(1);
            std::thread::yield_now();
        }
        step
    }

    /// A look at the clock.
    #[cold]
    fn look(&mut self, now: Instant, crowded: bool, pace: impl FnOnce() -> Pace) -> Step {
        let times = match &mut self.times {
            Some(times) => {
                times.lost = now - times.last > LOSS;
                times.last = now;
                *times
            }
            None => *self.times.insert(Times { first: now, last: now, hook: now, lost: false }),
        };
        self.crowded = crowded;
        self.pace = pace();
        if now - times.first >= self.pace.park_after {
            return Step::Sleep;
        }
        if crowded {
            if self.crowded_yields == CROWDED_YIELDS {
                return Step::Sleep;
            }
            self.crowded_yields += 1;
        }
        Step::Look
    }

    fn should_yield(&self, step: Step) -> bool {
        step == Step::Look && (self.crowded || self.waited() >= self.pace.spin)
    }

    /// How long the wait has lasted, to within an episode; zero before the first look.
    pub(crate) fn waited(&self) -> Duration {
        self.times.map_or(Duration::ZERO, |times| times.last - times.first)
    }

    /// Whether the waiter lost its CPU to somebody before the last look.
    pub(crate) fn has_lost_its_cpu(&self) -> bool {
        self.times.is_some_and(|times| times.lost)
    }

    /// Whether 50 ms have passed since the first look, or since this last said so.
    pub(crate) fn is_hook_due(&mut self) -> bool {
        let Some(times) = &mut self.times else { return false };
        let due = times.last - times.hook >= HOOK_EVERY;
        if due {
            times.hook = times.last;
        }
        due
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn pace(spin: Duration, park_after: Duration) -> impl Fn() -> Pace + Copy {
        move || Pace { spin, park_after }
    }

    /// What a waiter does at looks that are `apart`: how often it polls on, yields, and that it sleeps then.
    fn until_asleep(crowded: bool, apart: Duration, pace: impl FnOnce() -> Pace + Copy) -> (u32, u32) {
        let mut waiter = Waiter::new();
        let (mut now, mut polls, mut yields) = (Instant::now(), 0, 0);
        loop {
            let step = waiter.look(now, crowded, pace);
            match step {
                Step::Sleep => return (polls, yields),
                _ if waiter.should_yield(step) => yields += 1,
                _ => polls += 1,
            }
            now += apart;
        }
    }

    #[test]
    fn a_waiter_polls_and_then_sleeps_without_a_yield() {
        assert_eq!(until_asleep(false, US, pace(Duration::MAX, 200 * US)), (200, 0));
    }

    #[test]
    fn a_waiter_with_a_spin_time_polls_then_yields_then_sleeps() {
        assert_eq!(until_asleep(false, US, pace(20 * US, 50 * US)), (20, 30));
    }

    #[test]
    fn a_crowded_waiter_yields_and_then_sleeps() {
        assert_eq!(until_asleep(true, US, pace(Duration::MAX, Duration::MAX)), (0, CROWDED_YIELDS));
    }

    #[test]
    fn a_wait_that_begins_in_a_crowd_looks_at_once_and_polls_on_when_the_crowd_is_gone() {
        let inner = Inner::new(1, WaitPolicy::DEFAULT, Duration::ZERO);
        let (mut waiter, waits) = (Waiter::amid(true), Waits::new());
        let steps: Vec<Step> =
            (0..3).map(|_| waiter.step(&inner, &waits, pace(Duration::MAX, Duration::MAX))).collect();
        assert_eq!(steps, [Step::Look, Step::Poll, Step::Poll]);
        assert!(!waiter.is_crowded());
    }

    #[test]
    fn a_waiter_without_a_time_sleeps_at_its_first_look() {
        assert_eq!(until_asleep(false, US, pace(Duration::MAX, Duration::ZERO)), (0, 0));
        assert_eq!(until_asleep(true, US, pace(Duration::MAX, Duration::ZERO)), (0, 0));
    }

    #[test]
    fn a_waiter_notices_that_it_lost_its_cpu() {
        let mut waiter = Waiter::new();
        let start = Instant::now();
        for (at, lost) in [(US, false), (2 * US, false), (3000 * US, true), (3001 * US, false)] {
            waiter.look(start + at, false, pace(Duration::MAX, Duration::MAX));
            assert_eq!(waiter.has_lost_its_cpu(), lost, "{at:?}");
        }
        assert_eq!(waiter.waited(), 3000 * US);
    }

    #[test]
    fn the_hook_is_due_every_fifty_milliseconds() {
        let mut waiter = Waiter::new();
        let start = Instant::now();
        let due = (0..20).filter(|step| {
            waiter.look(start + 10_000 * US * *step, false, pace(Duration::MAX, Duration::MAX));
            waiter.is_hook_due()
        });
        assert_eq!(due.count(), 3);
    }

    #[test]
    fn episodes_and_yields_are_counted_as_they_happen() {
        let inner = Inner::new(1, WaitPolicy::DEFAULT, Duration::ZERO);
        let (mut waiter, waits) = (Waiter::new(), Waits::new());
        for _ in 0..3 * POLLS_PER_LOOK {
            waiter.step(&inner, &waits, pace(Duration::ZERO, Duration::MAX));
        }
        assert_eq!((waits.episodes.get(), waits.yields.get(), waits.sleeps.get()), (3, 3, 0));
    }
}
