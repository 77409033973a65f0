//! Bodies that take a known time by doing a known amount of work.
//!
//! A loop that watches the clock would hide contention: a thread that is descheduled for the length of its body would
//! count as having done it. So a body is a fixed number of steps, and the time it takes is measured again beside every
//! set of samples.

use crate::clock::{ticks, Clock};
use crate::stats;
use std::hint::black_box;

/// `steps` multiplications that each need the one before. The shift-and-xor between them keeps the chain from being a
/// polynomial that a compiler could evaluate in parallel.
#[inline(never)]
pub fn chain(steps: u64) {
    let mut state = black_box(0x2545_F491_4F6C_DD1D_u64);
    for _ in 0..steps {
        state = (state ^ (state >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    black_box(state);
}

/// Converts times to steps.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    ns_per_step: f64,
}

impl Work {
    /// Times long chains; the fastest of fifty is the undisturbed one.
    pub fn calibrate(clock: &Clock) -> Work {
        const STEPS: u64 = 20_000;
        let times = (0..50).map(|_| {
            let start = ticks();
            chain(STEPS);
            clock.elapsed_ns(start, ticks())
        });
        Work { ns_per_step: times.fold(f64::INFINITY, f64::min) / STEPS as f64 }
    }

    /// The number of steps that take `ns`.
    pub fn steps(&self, ns: f64) -> u64 {
        (ns / self.ns_per_step).round() as u64
    }

    /// The median time that one body of `steps` takes on this thread now.
    pub fn measure(clock: &Clock, steps: u64) -> f64 {
        let times = (0..41).map(|_| {
            let start = ticks();
            chain(steps);
            clock.elapsed_ns(start, ticks())
        });
        stats::median(&mut times.collect::<Vec<_>>())
    }
}
