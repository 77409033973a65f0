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
        self.note_as(&Place::here());
    }

    /// The thread whose place this is runs at `place`.
    pub(crate) fn note_as(&self, place: &Place) {
        let cpu = place.0.load(Ordering::Relaxed);
        if self.0.load(Ordering::Relaxed) != cpu {
            self.0.store(cpu, Ordering::Relaxed);
        }
    }

    /// Where the calling thread is.
    pub(crate) fn here() -> Self {
        Place(AtomicU32::new(current_cpu()))
    }

    /// Both are known and the same.
    pub(crate) fn same(&self, other: &Place) -> bool {
        let noted = self.0.load(Ordering::Relaxed);
        noted != UNKNOWN && noted == other.0.load(Ordering::Relaxed)
    }

    /// The thread that noted this place was on the calling thread's CPU.
    pub(crate) fn is_here(&self) -> bool {
        self.same(&Place::here())
    }
}

/// Moves the calling thread to another CPU of its mask, which stays as it was.
///
/// A thread that yields looks idle to the scheduler's balancing and would be left where it is: of 180 sections beside a
/// neighbour on the other CPU, its worker entered 7. Best effort; nothing happens when there is no other CPU.
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) fn move_away() {
    // SAFETY: the sets are plain values of the size given; pid 0 is the calling thread, whose mask the second call
    // restores.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        let cpu = current_cpu() as usize;
        if libc::sched_getaffinity(0, size, &mut mask) != 0 || cpu >= libc::CPU_SETSIZE as usize {
            return;
        }
        let mut others = mask;
        libc::CPU_CLR(cpu, &mut others);
        if libc::CPU_COUNT(&others) > 0 && libc::sched_setaffinity(0, size, &others) == 0 {
            libc::sched_setaffinity(0, size, &mask);
        }
    }
}

#[cfg(any(not(target_os = "linux"), loom))]
pub(crate) fn move_away() {}

#[cfg(all(target_os = "linux", not(loom)))]
fn current_cpu() -> u32 {
    // SAFETY: the call has no precondition; -1 (not supported) becomes `UNKNOWN`.
    unsafe { libc::sched_getcpu() as u32 }
}

#[cfg(any(not(target_os = "linux"), loom))]
fn current_cpu() -> u32 {
    UNKNOWN
}
