//! Sleeping workers: who sleeps, and how a post reaches them.

use crate::sync::{at, fence, mutated, AtomicU64, Futex, Ordering, OwnLine};

/// The beds of a pool's workers and the mask of those in or on the way to them.
#[derive(Debug)]
pub(crate) struct Parking {
    /// One bit a worker. Set by the worker that parks, cleared by whoever wakes it.
    parked: Box<[OwnLine<AtomicU64>]>,
    /// 1 while the worker sleeps or is about to.
    beds: Box<[OwnLine<Futex>]>,
}

const BITS: usize = 64;

impl Parking {
    pub(crate) fn new(workers: usize) -> Self {
        Parking {
            parked: (0..workers.div_ceil(BITS)).map(|_| OwnLine(AtomicU64::new(0))).collect(),
            beds: (0..workers).map(|_| OwnLine(Futex::new(0))).collect(),
        }
    }

    /// The calling worker sleeps unless `still_idle` says that something came.
    ///
    /// The fence (F2) pairs with the one in [`post_fence`](Self::post_fence) (F1): either the leader of a gang sees the
    /// parked bit, or the worker sees the post. A claimed section has no F1: missing this worker costs it only its help.
    pub(crate) fn park(&self, worker: usize, still_idle: impl Fn() -> bool) {
        let bed = &self.beds[worker];
        at!(BeforePark);
        bed.store(1, Ordering::Relaxed);
        // Release: who sees the bit must also come after the 1 in the bed, or its 0 could be the older of the two.
        let release = if mutated!(RelaxedParkedBit) { Ordering::Relaxed } else { Ordering::Release };
        self.word(worker).fetch_or(bit(worker), release);
        if !mutated!(SkipParkFence) {
            fence(Ordering::SeqCst);
        }
        at!(Parked);
        if mutated!(SkipRecheck) || still_idle() {
            at!(BeforeSleep);
            while bed.load(Ordering::Acquire) == 1 {
                bed.wait(1, None);
            }
            at!(Woken);
        }
        // Also after a wake: a waker that was late for an earlier sleep may have stored this bed's 0 without this bit.
        // Acquire: a waker that found the bit counts on this worker to wake others, whose posts it must see.
        let acquire = if mutated!(RelaxedUnpark) { Ordering::Relaxed } else { Ordering::Acquire };
        self.word(worker).fetch_and(!bit(worker), acquire);
    }

    /// After the posts of a gang section and before [`is_parked`](Self::is_parked): no post may still be on its way to
    /// memory when the mask is read.
    pub(crate) fn post_fence() {
        if !mutated!(SkipPostFence) {
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn is_parked(&self, worker: usize) -> bool {
        self.word(worker).load(Ordering::Relaxed) & bit(worker) != 0
    }

    /// How many workers sleep.
    pub(crate) fn asleep(&self) -> usize {
        self.parked.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Workers that were never started count as asleep.
    pub(crate) fn mark_absent(&self, workers: std::ops::Range<usize>) {
        for worker in workers {
            self.word(worker).fetch_or(bit(worker), Ordering::Relaxed);
        }
    }

    /// Whether one of `members` sleeps.
    pub(crate) fn any_parked(&self, members: &[u16]) -> bool {
        // Of many members most often none sleeps, and 64 bits say so at once.
        if members.len() > BITS / 8 && self.parked.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
            return false;
        }
        members.iter().any(|&id| self.is_parked(usize::from(id)))
    }

    /// 64 parked bits, those of workers `64 * index` and up.
    #[inline]
    pub(crate) fn mask(&self, index: usize) -> u64 {
        self.parked[index].load(Ordering::Relaxed)
    }

    /// Wakes `worker` if it sleeps. Only who clears the bit stores the bed and enters the kernel.
    pub(crate) fn wake(&self, worker: usize) -> bool {
        at!(BeforeWake);
        let woken = self.word(worker).fetch_and(!bit(worker), Ordering::AcqRel) & bit(worker) != 0;
        if woken {
            at!(BeforeBedStore);
            if !mutated!(SkipBedStore) {
                self.beds[worker].store(0, Ordering::Release);
            }
            self.beds[worker].wake_one();
        }
        woken
    }

    /// Wakes sleepers among those `members` whose share `is_open` until `count` of the wakes count; returns how many it woke.
    ///
    /// A member that has left the section and sleeps again must not use up a wake: it passes none on, and the rest of a
    /// gang would sleep for ever. Hence the second look: if the share is still open after the member's bit was cleared,
    /// that bit was set before the share was taken, and the member passes wakes on when it takes it.
    pub(crate) fn wake_some(&self, members: &[u16], count: usize, is_open: impl Fn(usize) -> bool) -> usize {
        let (mut woken, mut counted) = (0, 0);
        for worker in members.iter().map(|&id| usize::from(id)) {
            if counted == count {
                break;
            }
            let counts = |worker| mutated!(CountEveryWake) || is_open(worker);
            if self.is_parked(worker) && counts(worker) && self.wake(worker) {
                woken += 1;
                counted += usize::from(counts(worker));
            }
        }
        woken
    }

    /// Wakes `worker` whether it seems to sleep or not: what a test that broke the protocol recovers with.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn wake_anyway(&self, worker: usize) {
        self.beds[worker].store(0, Ordering::Release);
        self.beds[worker].wake_one();
    }

    /// Nobody sleeps: the child of a fork has no workers.
    pub(crate) fn reset(&self) {
        for word in &self.parked {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn word(&self, worker: usize) -> &AtomicU64 {
        &self.parked[worker / BITS]
    }
}

fn bit(worker: usize) -> u64 {
    1 << (worker % BITS)
}
