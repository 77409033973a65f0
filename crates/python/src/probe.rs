//! The round trip of a cache line between two CPUs, measured on a pool's own threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use threadteam::{Exec, ForkLock, Pool};

use crate::ending::Watched;
use crate::errors;

/// How long the probe waits for the worker, and one participant for the other.
const PATIENCE: Duration = Duration::from_millis(500);
/// Trips under one clock reading: long against the clock, short against a time slice.
const BATCH: u64 = 100;
/// Polls before the CPU is offered to others: the two participants may share one on a busy machine.
const POLLS: u32 = 1 << 14;

/// A word on a line of its own, on IBM Z too.
#[repr(align(256))]
struct Line(AtomicU64);

/// Seconds that a cache line takes from one CPU to another and back: the fastest tenth of `batches` batches of trips,
/// for a busy machine disturbs the others. None when two participants cannot run at the same time.
#[pyfunction]
pub(crate) fn round_trip(py: Python<'_>, batches: Watched<u64>) -> PyResult<Option<f64>> {
    let batches = batches.0;
    py.detach(|| {
        let pool = Pool::builder().threads(2).acquire_timeout(PATIENCE).build()?;
        let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
        let means = ForkLock::new(Vec::with_capacity(batches as usize));
        let met = Exec::new(&pool, 2)?.broadcast(|index| {
            let end = Instant::now() + PATIENCE;
            if index == 1 {
                let mut rounds = 1..=batches * BATCH;
                rounds.all(|round| {
                    let seen = wait_for(&there.0, round, end);
                    back.0.store(round, Ordering::Release);
                    seen
                });
                return;
            }
            for batch in 0..batches {
                let since = Instant::now();
                for round in batch * BATCH + 1..=(batch + 1) * BATCH {
                    there.0.store(round, Ordering::Release);
                    if !wait_for(&back.0, round, end) {
                        return;
                    }
                }
                let mean = since.elapsed().as_secs_f64() / BATCH as f64;
                means.lock().push(mean);
            }
        });
        let mut means = means.into_inner();
        means.sort_by(f64::total_cmp);
        Ok(means.get(means.len() / 10).copied().filter(|_| met.is_ok()))
    })
    .map_err(|error: threadteam::Error| errors::from_core(py, &error))
}

/// Spins until `line` holds `value`, or until `end`; whether it did.
fn wait_for(line: &AtomicU64, value: u64, end: Instant) -> bool {
    let mut polls = 0_u32;
    while line.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS) {
            if Instant::now() > end {
                return false;
            }
            std::thread::yield_now();
        }
    }
    true
}
