//! A worker thread between two pools: how it is given a job, how that is taken back, how it ends.
//!
//! The thread and its **holder** (a pool or the cache, one at a time) share one word. The thread sleeps on it while it is
//! `VACANT`; who holds the berth may make it anything else.

use crate::sync::{mutated, AtomicPtr, Futex, Ordering};

/// Nothing to do: the thread sleeps, or is on its way to sleep.
const VACANT: u32 = 0;
/// A job is there and the thread has not taken it.
const ASSIGNED: u32 = 1;
/// The thread has taken the job.
const SERVING: u32 = 2;
/// The same, and the holder sleeps until the thread is done.
const AWAITED: u32 = 3;
/// The thread has taken the job and ends after it.
const ENDING: u32 = 4;
/// The thread ends.
const ENDED: u32 = 5;

/// Looks at the word before the holder sleeps: a worker that polls leaves within a microsecond.
const LOOKS_BEFORE_SLEEP: u32 = if cfg!(loom) { 0 } else { 2000 };

/// One thread's berth. `T` is the job.
#[derive(Debug)]
pub(crate) struct Berth<T> {
    state: Futex,
    job: AtomicPtr<T>,
}

impl<T> Berth<T> {
    /// The berth of a thread that starts with its first job in hand.
    pub(crate) fn serving() -> Self {
        Berth { state: Futex::new(SERVING), job: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Holder: gives a vacant berth's thread a job and wakes it.
    ///
    /// A plain store is enough: the thread changes the word only from `ASSIGNED` and from `SERVING` on.
    pub(crate) fn assign(&self, job: Box<T>) {
        self.job.store(Box::into_raw(job), Ordering::Relaxed);
        let release = if mutated!(RelaxedAssign) { Ordering::Relaxed } else { Ordering::Release };
        self.state.store(ASSIGNED, release);
        self.state.wake_one();
    }

    /// Thread: sleeps until there is a job; `None` when it is to end.
    pub(crate) fn next(&self) -> Option<Box<T>> {
        loop {
            match self.state.load(Ordering::Acquire) {
                ASSIGNED => {
                    if let Some(job) = self.take(SERVING) {
                        return Some(job);
                    }
                }
                ENDED => return None,
                state => self.state.wait(state, None),
            }
        }
    }

    /// Takes the job of an assigned berth, of which the thread and its holder may both try; one gets it.
    fn take(&self, then: u32) -> Option<Box<T>> {
        if mutated!(TakeByStore) {
            self.state.store(then, Ordering::Release);
        } else if !self.state.replace(ASSIGNED, then, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: `assign` stored this address of a box before the word that the exchange read, and only one exchange
        // leaves `ASSIGNED`.
        Some(unsafe { Box::from_raw(self.job.load(Ordering::Relaxed)) })
    }

    /// Thread: the job is done. Whether the thread goes on.
    ///
    /// A swap, not a store: it must see whether the holder sleeps, or wants the thread to end.
    pub(crate) fn vacate(&self) -> bool {
        if mutated!(VacateByStore) {
            self.state.store(VACANT, Ordering::Release);
            return true;
        }
        let before = self.state.swap(VACANT, Ordering::AcqRel);
        if before == AWAITED {
            self.state.wake_all();
        }
        before != ENDING
    }

    /// Holder: takes back a job that the thread has not taken, or waits until it is done. The berth is vacant then.
    ///
    /// Returns the job that was not taken. The caller must have told whoever does the job to finish.
    pub(crate) fn recall(&self) -> Option<Box<T>> {
        if let Some(job) = self.take(VACANT) {
            return Some(job);
        }
        let mut looks = 0;
        loop {
            match self.state.load(Ordering::Acquire) {
                VACANT => return None,
                _ if looks < LOOKS_BEFORE_SLEEP => {
                    looks += 1;
                    std::hint::spin_loop();
                }
                SERVING => _ = self.state.replace(SERVING, AWAITED, Ordering::AcqRel),
                state => self.state.wait(state, None),
            }
        }
    }

    /// Holder: the thread ends, after its job if it has taken one. Returns the job that was not taken.
    pub(crate) fn dismiss(&self) -> Option<Box<T>> {
        loop {
            match self.state.load(Ordering::Acquire) {
                VACANT => {
                    // Vacant berths change by their holder only.
                    self.state.store(ENDED, Ordering::Release);
                    self.state.wake_one();
                    return None;
                }
                ASSIGNED => {
                    if let Some(job) = self.take(ENDED) {
                        self.state.wake_one();
                        return Some(job);
                    }
                }
                state => {
                    if self.state.replace(state, ENDING, Ordering::AcqRel) {
                        return None;
                    }
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::Berth;
    use crate::models::holds_and_notices;
    use crate::sync::Mutation;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;
    use std::sync::Arc;

    /// A job, and what its server notes outside of any atomic: the holder reads it after `recall`.
    type Note = Arc<(UnsafeCell<usize>, AtomicUsize)>;

    fn serve(berth: &Berth<Note>) {
        // The first job, in hand from the start, is nothing.
        if !berth.vacate() {
            return;
        }
        while let Some(job) = berth.next() {
            // SAFETY: the model shows that nobody else touches it now.
            job.0.with_mut(|note| unsafe { *note += 1 });
            drop(job);
            if !berth.vacate() {
                return;
            }
        }
    }

    fn note() -> Note {
        Arc::new((UnsafeCell::new(0), AtomicUsize::new(0)))
    }

    #[test]
    fn a_job_is_done_or_taken_back_and_the_thread_takes_the_next() {
        holds_and_notices(3, &[Mutation::RelaxedAssign, Mutation::TakeByStore, Mutation::VacateByStore], || {
            let berth = Arc::new(Berth::serving());
            let theirs = Arc::clone(&berth);
            let thread = thread::spawn(move || serve(&theirs));
            assert!(berth.recall().is_none());
            for _ in 0..2 {
                let job = note();
                // SAFETY: not given away yet.
                job.0.with_mut(|note| unsafe { *note = 10 });
                berth.assign(Box::new(Arc::clone(&job)));
                let back = berth.recall().is_some();
                job.1.store(usize::from(back), Ordering::Relaxed);
                // SAFETY: `recall` returned, so the thread is done with it.
                let noted = job.0.with(|note| unsafe { *note });
                assert_eq!(noted, if back { 10 } else { 11 });
                assert_eq!(Arc::strong_count(&job), 1);
            }
            assert!(berth.dismiss().is_none());
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_dismissed_thread_ends_before_its_job_or_after_it() {
        holds_and_notices(3, &[Mutation::TakeByStore, Mutation::VacateByStore], || {
            let berth = Arc::new(Berth::serving());
            let theirs = Arc::clone(&berth);
            let thread = thread::spawn(move || serve(&theirs));
            assert!(berth.recall().is_none());
            let job = note();
            berth.assign(Box::new(Arc::clone(&job)));
            let back = berth.dismiss().is_some();
            thread.join().unwrap();
            // SAFETY: the thread has ended.
            let noted = job.0.with(|note| unsafe { *note });
            assert_eq!(noted, usize::from(!back));
        });
    }
}
