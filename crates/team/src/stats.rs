//! What a pool did since it was built.

use crate::error::Refused;
use crate::inner::Inner;
use crate::wait::{Waits, POLLS_PER_LOOK};

/// Exact counters; reading them costs the workers nothing.
///
/// # Examples
///
/// ```
/// use threadteam::{Exec, Pool};
///
/// let pool = Pool::builder().threads(2).build()?;
/// Exec::new(&pool, 2)?.fork(2, |_, _| ());
/// let stats = pool.stats();
/// assert_eq!((stats.sections, stats.chunks), (1, 2));
/// assert_eq!(stats.worker_chunks + stats.claimed_back, 1);
/// # Ok::<(), threadteam::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Claimed sections that involved at least one worker (`for_ranges`, `fork`).
    pub sections: u64,
    /// Gang sections (`run`, `run_with`, `broadcast`, `split`).
    pub gangs: u64,
    /// Chunks that claimed sections handed out.
    pub chunks: u64,
    /// Chunks that workers ran.
    pub worker_chunks: u64,
    /// Entries of workers into sections.
    pub entered: u64,
    /// Chunks that leaders took back from workers that had not entered.
    pub claimed_back: u64,
    /// Those of them whose worker slept; the others were late, or had no CPU.
    pub claimed_back_asleep: u64,
    /// Workers left out of claimed sections, added up over the sections, because their CPU was busy.
    pub left_out: u64,
    /// Wakes that leaders paid for.
    pub wakes: u64,
    /// Further wakes by members that were woken themselves.
    pub wakes_passed_on: u64,
    /// Times a worker went to sleep: `idle.sleeps`.
    pub parks: u64,
    /// Times a leader went to sleep at a join: `joins.sleeps`.
    pub leader_sleeps: u64,
    /// Polls of all waits, in whole episodes of 64: a shorter wait counts as none.
    pub spins: u64,
    /// Yields of all waits.
    pub yields: u64,
    /// Waits of workers for their next section.
    pub idle: WaitStats,
    /// Waits of leaders at joins.
    pub joins: WaitStats,
    /// Waits of participants at barriers.
    pub barriers: WaitStats,
    /// Waits of callers for members that others had.
    pub acquisitions: WaitStats,
    /// Requests for participants that were refused, for whatever reason.
    pub refused: u64,
    /// Those for which not every member could be had in time.
    pub refused_unavailable: u64,
    /// Those of tokens of a `fork`.
    pub refused_fork_child: u64,
    /// Those from inside the pool.
    pub refused_caller_in_pool: u64,
    /// Those for a team's root token while another lived.
    pub refused_busy: u64,
    /// Those that the caller's own wait hook gave up.
    pub refused_interrupted: u64,
}

/// What waits of one kind did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitStats {
    /// Polls, in whole episodes of 64.
    pub spins: u64,
    /// Yields of the CPU between polls.
    pub yields: u64,
    /// Times the wait went on asleep.
    pub sleeps: u64,
}

impl WaitStats {
    fn add(&mut self, waits: &Waits) {
        self.spins += waits.episodes.get() * u64::from(POLLS_PER_LOOK);
        self.yields += waits.yields.get();
        self.sleeps += waits.sleeps.get();
    }
}

impl Stats {
    pub(crate) fn of(inner: &Inner) -> Self {
        let refused = |reason| inner.refused.get(reason);
        let [episodes, yields, sleeps] = inner.settings.callers.counts();
        let mut stats = Stats {
            acquisitions: WaitStats { spins: episodes * u64::from(POLLS_PER_LOOK), yields, sleeps },
            refused_unavailable: refused(Refused::Unavailable),
            refused_fork_child: refused(Refused::ForkChild),
            refused_caller_in_pool: refused(Refused::CallerInPool),
            refused_busy: refused(Refused::Busy),
            refused_interrupted: refused(Refused::Interrupted),
            ..Stats::default()
        };
        for slot in &inner.slots {
            stats.sections += slot.leader.sections.get();
            stats.gangs += slot.leader.gangs.get();
            stats.chunks += slot.leader.chunks.get();
            stats.claimed_back += slot.leader.claimed_back.get();
            stats.claimed_back_asleep += slot.leader.claimed_back_asleep.get();
            stats.left_out += slot.leader.left_out.get();
            stats.wakes += slot.leader.wakes.get();
            stats.worker_chunks += slot.owner.chunks.get();
            stats.entered += slot.post.entered.get();
            stats.wakes_passed_on += slot.owner.wakes.get();
            stats.idle.add(&slot.owner.idle);
            stats.joins.add(&slot.leader.joins);
            stats.barriers.add(&slot.owner.barriers);
            stats.barriers.add(&slot.desk.barrier.waits);
        }
        stats.parks = stats.idle.sleeps;
        stats.leader_sleeps = stats.joins.sleeps;
        let waits = [stats.idle, stats.joins, stats.barriers, stats.acquisitions];
        stats.spins = waits.iter().map(|waits| waits.spins).sum();
        stats.yields = waits.iter().map(|waits| waits.yields).sum();
        stats.refused = stats.refused_unavailable
            + stats.refused_fork_child
            + stats.refused_caller_in_pool
            + stats.refused_busy
            + stats.refused_interrupted;
        stats
    }
}
