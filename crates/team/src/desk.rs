//! The leader's desk: what the participants of one section share.
//!
//! It stands beside the first member of the section, so whoever has claimed that member owns the desk, and several
//! callers of one pool never share one. It outlives the section: nothing on it points into freed memory when a worker is
//! late, and between sections of one caller its lines change only where a value does.

use crate::fork::ForkLock;
use crate::sync::{at, mutated, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Futex, Ordering, OwnLine};
use crate::wait::Waits;
use crate::word::Word;
use std::any::Any;

/// What a panic carries.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Read by every participant, written when a section's members change or a body fails.
#[derive(Debug)]
pub(crate) struct Board {
    members: AtomicPtr<u16>,
    count: AtomicUsize,
    cancelled: AtomicBool,
    /// The number of the section, for traces; 0 when none is recorded.
    pub(crate) number: AtomicU64,
}

/// Where the leader says which barrier it reached, and what it did there.
#[derive(Debug)]
pub(crate) struct LeaderBarrier {
    /// Tag and sequence number.
    pub(crate) reached: AtomicU64,
    pub(crate) waits: Waits,
}

/// One leader's shared words.
#[derive(Debug)]
pub(crate) struct Desk {
    /// The leader's own chunks, empty between sections.
    pub(crate) range: OwnLine<AtomicU64>,
    board: OwnLine<Board>,
    pub(crate) barrier: OwnLine<LeaderBarrier>,
    /// Participants that sleep at a barrier; the word they sleep on.
    pub(crate) barrier_waiters: OwnLine<AtomicUsize>,
    pub(crate) barrier_bed: Futex,
    panic: ForkLock<Option<Payload>>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Desk {
            range: OwnLine(AtomicU64::new(Word::IDLE.0)),
            board: OwnLine(Board {
                members: AtomicPtr::new(std::ptr::null_mut()),
                count: AtomicUsize::new(0),
                cancelled: AtomicBool::new(false),
                number: AtomicU64::new(0),
            }),
            barrier: OwnLine(LeaderBarrier { reached: AtomicU64::new(0), waits: Waits::new() }),
            barrier_waiters: OwnLine(AtomicUsize::new(0)),
            barrier_bed: Futex::new(0),
            panic: ForkLock::new(None),
        }
    }

    /// Before the posts of a section: who takes part. Stores only what changed, so that a repeated section leaves the
    /// line shared with the workers that read it.
    pub(crate) fn open(&self, members: &[u16], number: u64) {
        let address = members.as_ptr().cast_mut();
        if self.board.members.load(Ordering::Relaxed) != address {
            self.board.members.store(address, Ordering::Relaxed);
        }
        if self.board.count.load(Ordering::Relaxed) != members.len() {
            self.board.count.store(members.len(), Ordering::Relaxed);
        }
        if self.board.cancelled.load(Ordering::Relaxed) {
            self.board.cancelled.store(false, Ordering::Relaxed);
        }
        if self.board.number.load(Ordering::Relaxed) != number {
            self.board.number.store(number, Ordering::Relaxed);
        }
    }

    /// The members of the section.
    ///
    /// # Safety
    ///
    /// The caller is a participant of the section that is open on this desk.
    pub(crate) unsafe fn members(&self) -> &[u16] {
        let count = self.board.count.load(Ordering::Relaxed);
        // SAFETY: `open` stored the address and length of a slice that lives until every participant has left; the
        // caller is one of them, and its entry (or its own call of `open`) orders these loads after the stores.
        unsafe { std::slice::from_raw_parts(self.board.members.load(Ordering::Relaxed), count) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.board.number.load(Ordering::Relaxed)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.board.cancelled.load(Ordering::Relaxed)
    }

    /// Ends the section early: chunks not started are dropped, barriers return [`Cancelled`](crate::Cancelled).
    pub(crate) fn cancel(&self) {
        self.board.cancelled.store(true, Ordering::Release);
        at!(BeforeCancelWake);
        if !mutated!(SkipCancelWake) {
            self.barrier_bed.fetch_add(1, Ordering::AcqRel);
            self.barrier_bed.wake_all();
        }
    }

    /// Keeps the first panic of the section and cancels it.
    pub(crate) fn fail(&self, payload: Payload) {
        let mut first = self.panic.lock();
        if first.is_none() {
            *first = Some(payload);
        }
        drop(first);
        self.cancel();
    }

    /// The section's first panic, after the join.
    pub(crate) fn take_panic(&self) -> Option<Payload> {
        if !self.is_cancelled() {
            return None;
        }
        self.panic.lock().take()
    }

    /// The leader takes its next chunk.
    pub(crate) fn pop_front(&self) -> Option<usize> {
        let mut seen = Word(self.range.load(Ordering::Relaxed));
        while !seen.is_empty() {
            let next = seen.without_front();
            match self.range.compare_exchange_weak(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(seen.lo()),
                Err(now) => seen = Word(now),
            }
        }
        None
    }

    /// A worker takes the leader's last chunk.
    pub(crate) fn steal_back(&self) -> Option<usize> {
        let mut seen = Word(self.range.load(Ordering::Relaxed));
        while !seen.is_empty() {
            let next = seen.without_back();
            match self.range.compare_exchange_weak(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(next.hi()),
                Err(now) => seen = Word(now),
            }
        }
        None
    }

    /// Drops the leader's chunks that nobody took.
    pub(crate) fn drain(&self) {
        self.range.store(Word::IDLE.0, Ordering::Relaxed);
    }

    /// Back to the state of a new desk (in the child of a fork).
    pub(crate) fn reset(&self) {
        self.drain();
        self.board.cancelled.store(false, Ordering::Relaxed);
        self.barrier_waiters.store(0, Ordering::Relaxed);
    }
}
