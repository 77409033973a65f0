//! How long an idle member stays awake: by the gaps between sections that it has seen.
//!
//! A member that is awake when its next section comes saves a wake, and uses its CPU until then. It keeps the lengths of
//! its last gaps, coarsely, and stays awake for the time that would have cost the least over them: the time spent awake,
//! plus [`PRICE_NS`] for each gap that was longer. Gaps that all times would have bridged change nothing, so back-to-back
//! sections, the hot path, are never counted and read no clock.

/// The times that a member may stay awake. Times, not counts of polls: they mean the same on every processor.
const LIMITS_NS: [u64; 6] = [50_000, 100_000, 200_000, 400_000, 800_000, LONGEST_NS];

/// The longest that an adaptive member stays awake.
pub(crate) const LONGEST_NS: u64 = 1_600_000;

/// What missing a section is worth, in time awake: sections of a work loop, up to about a millisecond apart, are waited for.
const PRICE_NS: u64 = 2_000_000;

/// The same while something else wants the member's CPU.
const PRICE_WHEN_WANTED_NS: u64 = PRICE_NS / 8;

/// Where a member without any experience stands: a few wakes' worth.
const AT_FIRST: usize = 2;

/// The weight of a new gap; older ones lose an eighth of theirs with each.
const WEIGHT: u64 = 1024;
const FADE: u64 = 8;

/// For so long a member that lost its CPU while it was idle counts it as wanted by others.
const WANTED_FOR_NS: u64 = 100_000_000;

/// The recent gaps of one member. It lives on the member's stack: nothing about it is shared.
#[derive(Debug)]
pub(crate) struct Rhythm {
    /// Faded counts of gaps up to each limit, and of longer ones.
    gaps: [u64; LIMITS_NS.len() + 1],
    limit: usize,
    wanted_until: u64,
    wanted: bool,
}

impl Rhythm {
    pub(crate) fn new() -> Self {
        Rhythm { gaps: [0; LIMITS_NS.len() + 1], limit: AT_FIRST, wanted_until: 0, wanted: false }
    }

    /// How long to stay awake.
    pub(crate) fn limit_ns(&self) -> u64 {
        LIMITS_NS[self.limit]
    }

    /// A gap of `ns` is over, at `now`.
    pub(crate) fn note(&mut self, ns: u64, now: u64) {
        if ns <= LIMITS_NS[0] {
            return;
        }
        let length = LIMITS_NS.iter().position(|&limit| ns <= limit).unwrap_or(LIMITS_NS.len());
        self.gaps.iter_mut().for_each(|gaps| *gaps -= gaps.div_ceil(FADE));
        self.gaps[length] += WEIGHT;
        self.wanted = now < self.wanted_until;
        self.limit = (0..LIMITS_NS.len()).min_by_key(|&limit| self.cost(limit)).unwrap_or(AT_FIRST);
    }

    /// The member lost its CPU while it was idle.
    pub(crate) fn note_loss(&mut self, now: u64) {
        self.wanted_until = now + WANTED_FOR_NS;
        self.wanted = true;
        self.limit = self.limit.min(AT_FIRST);
    }

    /// What staying awake for a limit would have cost over the recent gaps.
    fn cost(&self, limit: usize) -> u64 {
        let price = if self.wanted { PRICE_WHEN_WANTED_NS } else { PRICE_NS };
        let bridged = (0..=limit).map(|length| self.gaps[length] * LIMITS_NS[length]);
        let missed = self.gaps[limit + 1..].iter().map(|gaps| gaps * (LIMITS_NS[limit] + price));
        bridged.chain(missed).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    fn after(gaps: impl IntoIterator<Item = u64>) -> Rhythm {
        let mut rhythm = Rhythm::new();
        gaps.into_iter().for_each(|gap| rhythm.note(gap, 0));
        rhythm
    }

    #[test]
    fn a_member_without_experience_stays_awake_for_a_few_wakes() {
        assert_eq!(Rhythm::new().limit_ns(), 200 * US);
        assert_eq!(after([10; 1000]).limit_ns(), 200 * US);
    }

    #[test]
    fn sections_up_to_a_millisecond_apart_are_waited_for() {
        for (gap, limit) in [(70, 100), (150, 200), (300, 400), (700, 800), (1000, 1600)] {
            assert_eq!(after([gap * US; 4]).limit_ns(), limit * US, "{gap} us");
        }
    }

    #[test]
    fn a_member_that_sees_long_gaps_parks_early() {
        assert_eq!(after([20 * MS; 4]).limit_ns(), 50 * US);
        assert_eq!(after([2 * MS; 4]).limit_ns(), 50 * US);
    }

    #[test]
    fn a_pause_now_and_then_does_not_end_the_wait_inside_a_loop() {
        let loops = (0..40).map(|gap| if gap % 10 == 9 { 50 * MS } else { 150 * US });
        assert_eq!(after(loops).limit_ns(), 200 * US);
    }

    #[test]
    fn it_follows_a_change_within_some_dozens_of_gaps() {
        let change = |from: u64, to: u64| {
            let mut rhythm = after([from; 100]);
            let before = rhythm.limit_ns();
            (1..).find(|_| {
                rhythm.note(to, 0);
                rhythm.limit_ns() != before
            })
        };
        assert!(change(100 * US, 20 * MS) < Some(40));
        assert!(change(20 * MS, 1000 * US) < Some(20));
    }

    #[test]
    fn a_member_whose_cpu_is_wanted_waits_less() {
        let mut rhythm = after([1000 * US; 4]);
        rhythm.note_loss(0);
        assert_eq!(rhythm.limit_ns(), 200 * US);
        (0..4).for_each(|_| rhythm.note(1000 * US, 1));
        assert_eq!(rhythm.limit_ns(), 50 * US);
        (0..4).for_each(|_| rhythm.note(1000 * US, WANTED_FOR_NS));
        assert_eq!(rhythm.limit_ns(), LONGEST_NS);
    }

    #[test]
    fn no_limit_exceeds_the_bound() {
        assert_eq!(LIMITS_NS.iter().max(), Some(&LONGEST_NS));
        assert!(LIMITS_NS.is_sorted());
    }
}
