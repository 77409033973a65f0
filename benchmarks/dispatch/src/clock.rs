//! Time stamps that cost a few nanoseconds, so that one section of 100 ns can be timed by itself.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The time-stamp counter, after everything before it has finished.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both instructions are part of the x86-64 baseline and touch no memory.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Nanoseconds of the monotonic clock, where there is no fast counter.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn ticks() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// How ticks convert to nanoseconds, and what a pair of stamps costs by itself.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub ticks_per_ns: f64,
    pub stamp_ns: f64,
}

impl Clock {
    /// Measures the counter against the monotonic clock for 50 ms.
    pub fn calibrate() -> Clock {
        let (wall, first) = (Instant::now(), ticks());
        while wall.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let ticks_per_ns = (ticks() - first) as f64 / wall.elapsed().as_nanos() as f64;
        let mut stamps: Vec<u64> = (0..2001)
            .map(|_| {
                let start = ticks();
                ticks() - start
            })
            .collect();
        stamps.sort_unstable();
        Clock { ticks_per_ns, stamp_ns: stamps[stamps.len() / 2] as f64 / ticks_per_ns }
    }

    /// Nanoseconds between two stamps, without the cost of stamping.
    #[inline]
    pub fn elapsed_ns(&self, start: u64, end: u64) -> f64 {
        end.wrapping_sub(start) as f64 / self.ticks_per_ns - self.stamp_ns
    }

    /// The stamp that lies `duration` after `start`.
    pub fn after(&self, start: u64, duration: Duration) -> u64 {
        start + (duration.as_nanos() as f64 * self.ticks_per_ns) as u64
    }

    /// The least time, per call, that `operation` takes in a tight loop: of twenty loops of a thousand.
    pub fn per_call_ns(&self, mut operation: impl FnMut()) -> f64 {
        const CALLS: u32 = 1000;
        let loops = (0..20).map(|_| {
            let start = ticks();
            for _ in 0..CALLS {
                operation();
            }
            self.elapsed_ns(start, ticks()) / f64::from(CALLS)
        });
        black_box(loops.fold(f64::INFINITY, f64::min))
    }
}
