//! What a pool did, for Python.

use pyo3::prelude::*;
use threadteam::Stats;

/// A class of counters, with each counter's name, meaning and source said once.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $source:expr;)+) => {
        /// Counters of a pool since it was made. Reading them costs the workers nothing.
        ///
        /// Examples
        /// --------
        /// >>> import threadteam as tt
        /// >>> with tt.Pool(2) as pool:
        /// ...     pool.exec().for_ranges(8, 4, lambda start, stop: None)
        /// ...     counted = pool.stats()
        /// >>> counted.chunks, counted.as_dict()["refused"]
        /// (2, 0)
        #[pyclass(frozen, get_all, eq, module = "threadteam", name = "PoolStats")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) struct PyPoolStats {
            $($(#[$doc])* $name: u64,)+
        }

        impl From<Stats> for PyPoolStats {
            fn from(stats: Stats) -> Self {
                PyPoolStats { $($name: $source(&stats),)+ }
            }
        }

        impl PyPoolStats {
            fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Claimed sections that involved at least one worker (`for_ranges`, `fork`, `map`, `reduce`).
    sections: |stats: &Stats| stats.sections;
    /// Gang sections (`run`, `run_with`, `broadcast`, `split`).
    gangs: |stats: &Stats| stats.gangs;
    /// Chunks that claimed sections handed out.
    chunks: |stats: &Stats| stats.chunks;
    /// Chunks that workers ran.
    worker_chunks: |stats: &Stats| stats.worker_chunks;
    /// Workers that really took part, added up over all sections.
    entered: |stats: &Stats| stats.entered;
    /// Chunks that leaders took back from workers that had not started.
    claimed_back: |stats: &Stats| stats.claimed_back;
    /// Those of them whose worker slept.
    claimed_back_asleep: |stats: &Stats| stats.claimed_back_asleep;
    /// Workers left out because their CPU was busy, added up over all sections.
    left_out: |stats: &Stats| stats.left_out;
    /// Wakes that leaders paid for.
    wakes: |stats: &Stats| stats.wakes;
    /// Further wakes by workers that were woken themselves.
    wakes_passed_on: |stats: &Stats| stats.wakes_passed_on;
    /// Times a worker went to sleep.
    parks: |stats: &Stats| stats.parks;
    /// Times a leader went to sleep at a join.
    leader_sleeps: |stats: &Stats| stats.leader_sleeps;
    /// Times a participant went to sleep at a barrier.
    barrier_sleeps: |stats: &Stats| stats.barriers.sleeps;
    /// Times a caller went to sleep until others gave members back.
    acquire_sleeps: |stats: &Stats| stats.acquisitions.sleeps;
    /// Polls of all waits, in whole episodes of 64.
    spins: |stats: &Stats| stats.spins;
    /// Those of workers for their next section.
    idle_spins: |stats: &Stats| stats.idle.spins;
    /// Those of leaders at joins.
    join_spins: |stats: &Stats| stats.joins.spins;
    /// Those of participants at barriers.
    barrier_spins: |stats: &Stats| stats.barriers.spins;
    /// Those of callers for members.
    acquire_spins: |stats: &Stats| stats.acquisitions.spins;
    /// Times that any of them yielded its CPU.
    yields: |stats: &Stats| stats.yields;
    /// Those of workers.
    idle_yields: |stats: &Stats| stats.idle.yields;
    /// Those of leaders at joins.
    join_yields: |stats: &Stats| stats.joins.yields;
    /// Those of participants at barriers.
    barrier_yields: |stats: &Stats| stats.barriers.yields;
    /// Those of callers for members.
    acquire_yields: |stats: &Stats| stats.acquisitions.yields;
    /// Requests for participants that were refused.
    refused: |stats: &Stats| stats.refused;
    /// Those for which not every member could be had in time.
    refused_unavailable: |stats: &Stats| stats.refused_unavailable;
    /// Those of tokens of a `fork`.
    refused_fork_child: |stats: &Stats| stats.refused_fork_child;
    /// Those from inside the pool.
    refused_caller_in_pool: |stats: &Stats| stats.refused_caller_in_pool;
    /// Those for a team that another token led.
    refused_busy: |stats: &Stats| stats.refused_busy;
    /// Those whose caller was interrupted meanwhile.
    refused_interrupted: |stats: &Stats| stats.refused_interrupted;
}

#[pymethods]
impl PyPoolStats {
    /// The counters by name.
    fn as_dict(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.fields().into_iter().collect()
    }

    fn __repr__(&self) -> String {
        let fields: Vec<String> = self.fields().iter().map(|(name, count)| format!("{name}={count}")).collect();
        format!("PoolStats({})", fields.join(", "))
    }
}
