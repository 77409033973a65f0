//! Whether there are more participants than CPUs for them.
//!
//! Then a waiter that spins keeps out the one it waits for. How many CPUs there are is decided at every root team scope, from
//! the mask of the thread that enters it; a plain section makes no system call, and has it decided again only while its
//! leader waits at a join anyway. How many participants there are is what the pool's parked mask says at each look of a
//! waiter: those who sleep crowd nobody.

use crate::inner::Inner;
use crate::pin::CpuSet;
use crate::worker::works_for;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// At a join, and where masks of workers must be read too, the decision is as old as this at most.
const AGE_NS: u64 = 10_000_000;

/// The CPUs of a pool's participants, as their last leader found them.
#[derive(Debug)]
pub(crate) struct Crowd {
    cpus: AtomicU32,
    /// What a quota leaves, whatever the masks say.
    quota: AtomicU32,
    /// CPUs in the mask of the last leader, and when it looked.
    own: AtomicU32,
    looked: AtomicU64,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Crowd {
            cpus: AtomicU32::new(u32::MAX),
            quota: AtomicU32::new(u32::MAX),
            own: AtomicU32::new(0),
            looked: AtomicU64::new(0),
        }
    }

    /// How many CPUs the participants may run on.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus.load(Ordering::Relaxed) as usize
    }

    /// When workers start: what the process may use.
    pub(crate) fn start(&self) {
        let usable = count(std::thread::available_parallelism().map_or(1, usize::from));
        let quota =
            if CpuSet::of_this_thread().is_some_and(|own| count(own.count()) > usable) { usable } else { u32::MAX };
        self.quota.store(quota, Ordering::Relaxed);
        self.cpus.store(usable, Ordering::Relaxed);
        self.own.store(0, Ordering::Relaxed);
    }

    /// Decides for the calling thread as the leader of a root scope of the pool behind `inner`.
    ///
    /// The leader's own mask decides unless it is too small for the pool. A leader may be pinned by itself, so then the masks of
    /// the workers count as well; they are not read again for a while as long as the leader's stays as small. A worker that
    /// leads may be pinned to one CPU by its team, so it decides nothing.
    pub(crate) fn decide(&self, inner: &Inner) {
        if works_for(inner) {
            return;
        }
        let Some(mut mask) = CpuSet::of_this_thread() else { return };
        let (now, own, participants) = (inner.now_ns(), count(mask.count()), inner.slots.len() + 1);
        if mask.count() < participants {
            let fresh = now.saturating_sub(self.looked.load(Ordering::Relaxed)) < AGE_NS;
            if fresh && self.own.load(Ordering::Relaxed) == own {
                return;
            }
            for slot in &inner.slots {
                if let Some(other) = CpuSet::of_thread(slot.thread.load(Ordering::Relaxed)) {
                    mask.add(&other);
                }
                if mask.count() >= participants {
                    break;
                }
            }
        }
        self.own.store(own, Ordering::Relaxed);
        self.looked.store(now, Ordering::Relaxed);
        let cpus = count(mask.count()).min(self.quota.load(Ordering::Relaxed));
        if self.cpus.load(Ordering::Relaxed) != cpus {
            self.cpus.store(cpus, Ordering::Relaxed);
        }
    }

    /// [`decide`](Self::decide), unless that was done lately: for a leader that waits.
    pub(crate) fn refresh(&self, inner: &Inner) {
        if inner.now_ns().saturating_sub(self.looked.load(Ordering::Relaxed)) >= AGE_NS {
            self.decide(inner);
        }
    }
}

fn count(cpus: usize) -> u32 {
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;
    use crate::policy::WaitPolicy;
    use std::time::Duration;

    fn restrict(cpus: &[usize]) {
        // SAFETY: the set is a plain value; the calls change the calling thread's mask only.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut mask));
            assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &mask), 0);
        }
    }

    fn own_cpus() -> Vec<usize> {
        // SAFETY: the set is a plain value of the size given, which the call fills; the index is below its size.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut mask), 0);
            (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &mask)).collect()
        }
    }

    /// A pool without threads.
    fn pool(workers: usize) -> Inner {
        Inner::new(workers, WaitPolicy::DEFAULT, Duration::ZERO)
    }

    #[test]
    fn a_changed_mask_of_the_entering_thread_is_followed() {
        let cpus = own_cpus();
        let inner = pool(2);
        inner.crowd.start();
        inner.crowd.decide(&inner);
        assert_eq!(inner.crowd.cpus(), cpus.len());
        restrict(&cpus[..1]);
        inner.crowd.looked.store(0, Ordering::Relaxed);
        inner.crowd.own.store(0, Ordering::Relaxed);
        inner.crowd.decide(&inner);
        assert_eq!(inner.crowd.cpus(), 1);
        restrict(&cpus);
        inner.crowd.decide(&inner);
        assert_eq!(inner.crowd.cpus(), cpus.len());
    }

    #[test]
    fn a_pinned_leader_counts_the_cpus_of_its_workers() {
        let cpus = own_cpus();
        if cpus.len() < 2 {
            return; // one CPU is all there is to count
        }
        let inner = pool(1);
        let counted = std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                sender.send(crate::lag::thread_number()).unwrap();
                let _ = ended.recv();
            });
            inner.slots[0].thread.store(receiver.recv().unwrap(), Ordering::Relaxed);
            restrict(&cpus[..1]);
            inner.crowd.decide(&inner);
            drop(end);
            inner.crowd.cpus()
        });
        assert!(counted >= 2);
        restrict(&cpus);
    }

    #[test]
    fn a_leader_that_waits_looks_now_and_then() {
        let cpus = own_cpus();
        let inner = pool(0);
        inner.crowd.decide(&inner);
        restrict(&cpus[..1]);
        inner.crowd.looked.store(u64::MAX, Ordering::Relaxed);
        inner.crowd.refresh(&inner);
        assert_eq!(inner.crowd.cpus(), cpus.len());
        // As if ten milliseconds had passed.
        while inner.now_ns() < AGE_NS {
            std::hint::spin_loop();
        }
        inner.crowd.looked.store(0, Ordering::Relaxed);
        inner.crowd.refresh(&inner);
        assert_eq!(inner.crowd.cpus(), 1);
        restrict(&cpus);
    }
}
