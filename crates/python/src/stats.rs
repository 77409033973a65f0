//! What a pool did, for Python.

use pyo3::prelude::*;
use threadteam::Stats;

/// Counters of a pool since it was made.
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
    /// Claimed sections that involved at least one worker (`for_ranges`, `fork`, `map`, `reduce`).
    sections: u64,
    /// Gang sections (`run`, `run_with`, `broadcast`, `split`).
    gangs: u64,
    /// Chunks that claimed sections handed out.
    chunks: u64,
    /// Chunks that workers ran.
    worker_chunks: u64,
    /// Workers that really took part, added up over all sections.
    entered: u64,
    /// Chunks that leaders took back from workers that had not started.
    claimed_back: u64,
    /// Times a worker went to sleep.
    parks: u64,
    /// Wakes that leaders paid for.
    wakes: u64,
    /// Times a leader went to sleep at a join.
    leader_sleeps: u64,
    /// Requests for participants that were refused.
    refused: u64,
}

impl From<Stats> for PyPoolStats {
    fn from(stats: Stats) -> Self {
        PyPoolStats {
            sections: stats.sections,
            gangs: stats.gangs,
            chunks: stats.chunks,
            worker_chunks: stats.worker_chunks,
            entered: stats.entered,
            claimed_back: stats.claimed_back,
            parks: stats.parks,
            wakes: stats.wakes,
            leader_sleeps: stats.leader_sleeps,
            refused: stats.refused,
        }
    }
}

impl PyPoolStats {
    fn fields(&self) -> [(&'static str, u64); 10] {
        [
            ("sections", self.sections),
            ("gangs", self.gangs),
            ("chunks", self.chunks),
            ("worker_chunks", self.worker_chunks),
            ("entered", self.entered),
            ("claimed_back", self.claimed_back),
            ("parks", self.parks),
            ("wakes", self.wakes),
            ("leader_sleeps", self.leader_sleeps),
            ("refused", self.refused),
        ]
    }
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
