//! Where a leader and a worker last ran, so that two of them on one CPU give way to each other.
//!
//! Linux often wakes a worker on its waker's CPU when the others are busy. Two spinning waiters there keep each other out
//! until their budgets end: a section of 10 us took 440 us, and 29 us once they yield. A waiter that has its CPU to itself
//! never yields, since a yield beside other work loses the CPU for a time slice.

use std::sync::atomic::{AtomicU32, Ordering};

/// The CPU that some thread last noted. A hint: it may be out of date.
#[derive(Debug)]
pub(crate) struct Place(AtomicU32);

const UNKNOWN: u32 = u32::MAX;

impl Place {
    pub(crate) const fn unknown() -> Self {
        Place(AtomicU32::new(UNKNOWN))
    }

    /// The calling thread is here. Stores only when that is new, so that readers keep the line.
    pub(crate) fn note(&self) {
        let cpu = current_cpu();
        if self.0.load(Ordering::Relaxed) != cpu {
            self.0.store(cpu, Ordering::Relaxed);
        }
    }

    /// The thread that noted this place was on the calling thread's CPU.
    pub(crate) fn is_here(&self) -> bool {
        let noted = self.0.load(Ordering::Relaxed);
        noted != UNKNOWN && noted == current_cpu()
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
fn current_cpu() -> u32 {
    // SAFETY: the call has no precondition; -1 (not supported) becomes `UNKNOWN`.
    unsafe { libc::sched_getcpu() as u32 }
}

#[cfg(any(not(target_os = "linux"), loom))]
fn current_cpu() -> u32 {
    UNKNOWN
}
