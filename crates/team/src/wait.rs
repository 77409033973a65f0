//! The one waiting mechanism: spin a bounded time, yield when there are more participants than CPUs, then sleep.

use std::time::{Duration, Instant};

/// How long a joining leader or a participant at a barrier spins before it sleeps. A wake costs 10 to 50 us, so this is
/// a few wakes: spinning for as long as the thing waited for would cost is at most twice the best choice.
pub(crate) const JOIN_SPIN: Duration = Duration::from_micros(200);

/// Polls before the first yield of a waiter whose pool has more participants than CPUs.
const CROWDED_POLLS: u32 = 100;

/// Yields of such a waiter before it sleeps: each lets another participant run.
const CROWDED_YIELDS: u32 = 50;

/// Polls between two looks at the clock, which costs about as much as one poll of a remote line.
const POLLS_PER_LOOK: u32 = 64;

/// One wait, from its first poll to its first sleep.
pub(crate) struct Waiter {
    polls: u32,
    yields: u32,
    crowded: bool,
    budget: Duration,
    since: Option<Instant>,
}

/// What to do before the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Poll again.
    Poll,
    /// Poll again, after a look at rare things (a stop, a fork).
    Look,
    /// The budget is used up: sleep.
    Sleep,
}

impl Waiter {
    /// `crowded`: the pool has more participants than CPUs, so a spinning waiter may keep out the one it waits for.
    pub(crate) fn new(budget: Duration, crowded: bool) -> Self {
        Waiter { polls: 0, yields: 0, crowded, budget, since: None }
    }

    /// Pauses or yields once and says what comes next.
    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        if cfg!(loom) {
            // A model has no time: every wait goes the whole way to its sleep.
            return Step::Sleep;
        }
        std::hint::spin_loop();
        self.polls += 1;
        if self.crowded {
            return self.crowded_step();
        }
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) {
            return Step::Poll;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now - since >= self.budget {
            Step::Sleep
        } else {
            Step::Look
        }
    }

    #[cold]
    fn crowded_step(&mut self) -> Step {
        if self.polls < CROWDED_POLLS {
            return Step::Poll;
        }
        // Who asks for no spin gets no yields either: beside a busy process each costs a time slice.
        if self.yields == CROWDED_YIELDS || self.budget.is_zero() {
            return Step::Sleep;
        }
        self.yields += 1;
        std::thread::yield_now();
        Step::Look
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_waiter_polls_then_yields_then_sleeps() {
        let mut waiter = Waiter::new(Duration::MAX, true);
        let steps: Vec<Step> = (0..CROWDED_POLLS + CROWDED_YIELDS).map(|_| waiter.step()).collect();
        let polls = steps.iter().filter(|&&step| step == Step::Poll).count();
        assert_eq!(polls, CROWDED_POLLS as usize - 1);
        assert_eq!(steps.last(), Some(&Step::Sleep));
    }

    #[test]
    fn a_crowded_waiter_without_a_budget_sleeps_after_its_polls() {
        let mut waiter = Waiter::new(Duration::ZERO, true);
        let steps: Vec<Step> = (0..CROWDED_POLLS).map(|_| waiter.step()).collect();
        assert_eq!(steps.iter().position(|&step| step == Step::Sleep), Some(CROWDED_POLLS as usize - 1));
    }

    #[test]
    fn a_waiter_without_a_budget_sleeps_at_its_first_look_at_the_clock() {
        let mut waiter = Waiter::new(Duration::ZERO, false);
        let steps: Vec<Step> = (0..POLLS_PER_LOOK).map(|_| waiter.step()).collect();
        assert_eq!(steps.iter().position(|&step| step == Step::Sleep), Some(POLLS_PER_LOOK as usize - 1));
    }
}
