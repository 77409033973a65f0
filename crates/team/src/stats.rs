//! What a pool did since it was built.

use crate::inner::Inner;
use std::sync::atomic::Ordering;

/// Exact counters; reading them costs the workers nothing.
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
    /// Times a worker went to sleep.
    pub parks: u64,
    /// Wakes that leaders paid for.
    pub wakes: u64,
    /// Times a leader went to sleep at a join.
    pub leader_sleeps: u64,
    /// Requests for participants that were refused.
    pub refused: u64,
}

impl Stats {
    pub(crate) fn of(inner: &Inner) -> Self {
        let mut stats = Stats { refused: inner.refused.load(Ordering::Relaxed), ..Stats::default() };
        for slot in &inner.slots {
            stats.sections += slot.leader.sections.get();
            stats.gangs += slot.leader.gangs.get();
            stats.chunks += slot.leader.chunks.get();
            stats.claimed_back += slot.leader.claimed_back.get();
            stats.wakes += slot.leader.wakes.get();
            stats.leader_sleeps += slot.leader.sleeps.get();
            stats.worker_chunks += slot.owner.chunks.get();
            stats.entered += slot.post.entered.get();
            stats.parks += slot.owner.parks.get();
        }
        stats
    }
}
