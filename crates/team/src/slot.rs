//! One worker's place: its word, the job that the word publishes, and the line of whoever leads it.

use crate::idle::DEFAULT_IDLE;
use crate::lag::{Joins, Lag};
use crate::pin::Pin;
use crate::place::Place;
use crate::relay::Group;
use crate::sync::{at, mutated, AtomicPtr, AtomicU64, AtomicUsize, Futex, Ordering, OwnLine};
use crate::wait::Waits;
use crate::word::Word;
use std::ops::Range;

/// Runs items `start..stop` of the closure behind `data`.
pub(crate) type Call = unsafe fn(data: *const (), start: usize, stop: usize);

/// What a section runs: the closure, erased, and how chunk numbers become items.
///
/// Chunk `c` covers items `c * base + min(c, extra)` to the start of chunk `c + 1`: the first `extra` chunks have one
/// item more.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) data: *const (),
    pub(crate) base: usize,
    pub(crate) extra: usize,
    /// The slot whose [`Desk`](crate::desk::Desk) the section's leader uses.
    pub(crate) home: usize,
    /// Whether a participant looks for chunks of the others when its own are gone; of a relayed section, whether it looks
    /// at all of them.
    pub(crate) steal: bool,
    /// The members that the receiver of this post answers for, itself included; `NONE` unless the section is relayed.
    pub(crate) group: Group,
}

impl Job {
    /// # Safety
    ///
    /// The closure behind `data` is alive, and chunk `chunk` was taken by the caller.
    pub(crate) unsafe fn run(&self, chunk: usize) {
        let start = chunk * self.base + chunk.min(self.extra);
        let stop = start + self.base + usize::from(chunk < self.extra);
        // SAFETY: the caller's contract is that of `call`.
        unsafe { (self.call)(self.data, start, stop) }
    }
}

/// The line that a worker polls: word and job together, so that one transfer brings both.
#[derive(Debug)]
pub(crate) struct Post {
    word: AtomicU64,
    call: AtomicPtr<()>,
    data: AtomicPtr<()>,
    base: AtomicUsize,
    extra: AtomicUsize,
    /// The slot of the desk in the lowest ten bits, above them the group, at the top [`STEAL`]: the line stays one.
    home: AtomicUsize,
    /// Shares entered, counted here because the owner's store fetches the line for writing while the share begins: the
    /// leave then waits 30 ns less for it.
    pub(crate) entered: Tally,
}

/// The lowest bits of `Post::home`.
const HOME: usize = (1 << 10) - 1;

/// Set in `Post::home` when participants may steal.
const STEAL: usize = 1 << (usize::BITS - 1);

impl Post {
    fn new() -> Self {
        Post {
            word: AtomicU64::new(Word::IDLE.0),
            call: AtomicPtr::new(std::ptr::null_mut()),
            data: AtomicPtr::new(std::ptr::null_mut()),
            base: AtomicUsize::new(0),
            extra: AtomicUsize::new(0),
            home: AtomicUsize::new(0),
            entered: Tally::new(),
        }
    }

    /// Publishes `word` with `job`. Only the leader that has claimed this slot calls it, between sections.
    ///
    /// A plain store is enough: the word was idle, or empty and never entered, and nobody swaps either.
    pub(crate) fn post(&self, job: &Job, word: Word) {
        debug_assert!(self.load(Ordering::Relaxed).is_done());
        self.call.store(job.call as *mut (), Ordering::Relaxed);
        self.data.store(job.data.cast_mut(), Ordering::Relaxed);
        self.base.store(job.base, Ordering::Relaxed);
        self.extra.store(job.extra, Ordering::Relaxed);
        let steal = if job.steal { STEAL } else { 0 };
        self.home.store(job.home | job.group.packed() | steal, Ordering::Relaxed);
        let release = if mutated!(RelaxedPost) { Ordering::Relaxed } else { Ordering::Release };
        self.word.store(word.0, release);
    }

    /// The posted job. Only after entry: before it these fields race with the next publication.
    pub(crate) fn job(&self) -> Job {
        let home = self.home.load(Ordering::Relaxed);
        // SAFETY: `post` stored a `Call` here before the word that the caller entered by, and function pointers have
        // the size of data pointers on every supported target.
        let call = unsafe { std::mem::transmute::<*mut (), Call>(self.call.load(Ordering::Relaxed)) };
        Job {
            call,
            data: self.data.load(Ordering::Relaxed),
            base: self.base.load(Ordering::Relaxed),
            extra: self.extra.load(Ordering::Relaxed),
            home: home & HOME,
            steal: home & STEAL != 0,
            group: Group::unpacked(home),
        }
    }

    pub(crate) fn load(&self, order: Ordering) -> Word {
        Word(self.word.load(order))
    }

    /// The owner's entry into a claimed section: takes the first chunk, or fails when the word changed meanwhile.
    ///
    /// Returns the word as it stands after entry. Success is the whole of entry: it synchronises with the post and
    /// closes the door to revocation.
    pub(crate) fn try_enter(&self, seen: Word) -> Option<(usize, Word)> {
        let entered = seen.entered();
        if mutated!(EnterByStore) {
            self.word.store(entered.0, Ordering::Release);
            return Some((seen.lo(), entered));
        }
        self.word.compare_exchange(seen.0, entered.0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some((seen.lo(), entered))
    }

    /// The owner takes its next chunk; `None` when others took the rest.
    pub(crate) fn pop_front(&self) -> Option<(usize, Word)> {
        let mut seen = self.load(Ordering::Relaxed);
        while !seen.is_empty() {
            let next = seen.without_front();
            match self.word.compare_exchange_weak(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((seen.lo(), next)),
                Err(now) => seen = Word(now),
            }
        }
        None
    }

    /// The owner, with one chunk in hand, keeps `keep(left)` of the `left` chunks, that one included, and takes the others
    /// out for its group. Returns the word as it stands then, and what was taken out.
    pub(crate) fn cede(&self, keep: impl Fn(usize) -> usize) -> (Word, Range<usize>) {
        let mut seen = self.load(Ordering::Relaxed);
        loop {
            let (lo, hi) = (seen.lo(), seen.hi());
            let end = lo + keep(hi - lo + 1) - 1;
            let next = seen.ending_at(end);
            if mutated!(CedeByStore) {
                self.word.store(next.0, Ordering::Relaxed);
                return (next, end..hi);
            }
            // Relaxed, as a theft: the posts publish what the captain saw when it entered.
            match self.word.compare_exchange_weak(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (next, end..hi),
                Err(now) => seen = Word(now),
            }
        }
    }

    /// A thief or the leader takes the last chunk. Emptying a word that nobody entered closes it.
    ///
    /// Returns the chunk and whether the owner had entered.
    pub(crate) fn steal_back(&self) -> Option<(usize, bool)> {
        let mut seen = self.load(Ordering::Relaxed);
        while !seen.is_gang() && !seen.is_empty() {
            let next = seen.without_back();
            // Relaxed is enough: what a chunk needs was published by the post that the thief itself entered by (or,
            // for the leader, made), and what it writes is published by the thief's own leave.
            match self.word.compare_exchange_weak(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((next.hi(), seen.is_entered())),
                Err(now) => seen = Word(now),
            }
        }
        None
    }

    /// Drops the chunks that nobody took (a body failed).
    pub(crate) fn drain(&self) {
        let mut seen = self.load(Ordering::Relaxed);
        while !seen.is_gang() && !seen.is_empty() {
            match self.word.compare_exchange_weak(seen.0, seen.emptied().0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// The owner is done. A swap, not a store: it must see whether the leader sleeps on this word.
    pub(crate) fn leave(&self) -> Word {
        if mutated!(LeaveByStore) {
            self.word.store(Word::IDLE.0, Ordering::Release);
            return Word::IDLE;
        }
        Word(self.word.swap(Word::IDLE.0, Ordering::AcqRel))
    }

    /// The leader's look at the join.
    pub(crate) fn is_done(&self) -> bool {
        let acquire = if mutated!(RelaxedJoin) { Ordering::Relaxed } else { Ordering::Acquire };
        self.load(acquire).is_done()
    }

    /// The leader asks to be woken by the owner's leave; `false` when the word changed meanwhile.
    ///
    /// A compare-and-swap even when the flag is set already: only a write that the leave reads orders the bed's 1
    /// before the leave's 0. After a mere look the 1 could come to rest on the 0 of a leave that the look missed.
    pub(crate) fn announce_waiting(&self) -> bool {
        let seen = self.load(Ordering::Relaxed);
        if seen.is_done() {
            return false;
        }
        if mutated!(AnnounceOnce) && seen.leader_waits() {
            return true;
        }
        let waits = seen.with_leader_waits().0;
        self.word.compare_exchange(seen.0, waits, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Forgets everything: the child of a fork has no worker that could be inside.
    pub(crate) fn reset(&self) {
        self.word.store(Word::IDLE.0, Ordering::Release);
    }
}

/// Counters of one slot. Each field has one writer at a time, so plain loads and stores keep it exact.
#[derive(Debug)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn new() -> Self {
        Tally(AtomicU64::new(0))
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What only the slot's worker writes.
#[derive(Debug)]
pub(crate) struct OwnerLine {
    pub(crate) chunks: Tally,
    /// Wakes passed on to other members.
    pub(crate) wakes: Tally,
    /// Waits for the next section.
    pub(crate) idle: Waits,
    /// Waits at barriers.
    pub(crate) barriers: Waits,
    /// The tag and sequence number of the last barrier reached.
    pub(crate) barrier: AtomicU64,
}

/// What the leader that has claimed the slot writes, and the sleep of a leader on the slot's word.
#[derive(Debug)]
pub(crate) struct LeaderLine {
    pub(crate) sections: Tally,
    pub(crate) gangs: Tally,
    pub(crate) chunks: Tally,
    pub(crate) claimed_back: Tally,
    /// Those of them whose owner slept.
    pub(crate) claimed_back_asleep: Tally,
    /// Sections that left the worker out.
    pub(crate) left_out: Tally,
    pub(crate) wakes: Tally,
    /// Waits for the worker to leave.
    pub(crate) joins: Waits,
    /// Whether claimed sections leave the worker out.
    pub(crate) lag: Lag,
    /// How long such waits are usually.
    pub(crate) usual: Joins,
    /// 1 while the leader sleeps until the owner leaves.
    pub(crate) bed: Futex,
}

/// What leaders tell the worker between sections: written rarely, so that the worker that reads it keeps the line.
#[derive(Debug)]
pub(crate) struct NoticeLine {
    /// How the worker waits for its next section: see [`Idle`](crate::idle::Idle).
    pub(crate) idle: AtomicU64,
    /// Nanoseconds that it polls before it yields, where `idle` is not the pool's default.
    pub(crate) spin: AtomicU64,
    /// Where the leader last ran.
    pub(crate) leader_place: Place,
}

/// One worker's place in the pool.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) post: OwnLine<Post>,
    pub(crate) owner: OwnLine<OwnerLine>,
    pub(crate) leader: OwnLine<LeaderLine>,
    pub(crate) notice: OwnLine<NoticeLine>,
    /// The kernel's number of the worker's thread.
    pub(crate) thread: AtomicU64,
    /// The worker's mask while a team has placed it. The worker's alone.
    pub(crate) pin: Pin,
    /// Where the worker last ran.
    pub(crate) owner_place: OwnLine<Place>,
    pub(crate) desk: crate::desk::Desk,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Slot {
            post: OwnLine(Post::new()),
            owner: OwnLine(OwnerLine {
                chunks: Tally::new(),
                wakes: Tally::new(),
                idle: Waits::new(),
                barriers: Waits::new(),
                barrier: AtomicU64::new(0),
            }),
            leader: OwnLine(LeaderLine {
                sections: Tally::new(),
                gangs: Tally::new(),
                chunks: Tally::new(),
                claimed_back: Tally::new(),
                claimed_back_asleep: Tally::new(),
                left_out: Tally::new(),
                wakes: Tally::new(),
                joins: Waits::new(),
                lag: Lag::none(),
                usual: Joins::none(),
                bed: Futex::new(0),
            }),
            notice: OwnLine(NoticeLine {
                idle: AtomicU64::new(DEFAULT_IDLE),
                spin: AtomicU64::new(u64::MAX),
                leader_place: Place::unknown(),
            }),
            thread: AtomicU64::new(0),
            pin: Pin::none(),
            owner_place: OwnLine(Place::unknown()),
            desk: crate::desk::Desk::new(),
        }
    }

    /// The owner leaves the section and wakes the leader if it sleeps; whether it did.
    pub(crate) fn leave(&self) -> bool {
        at!(BeforeLeave);
        let wakes = self.post.leave().leader_waits();
        if wakes {
            at!(BeforeLeaderWake);
            if !mutated!(SkipLeaderBedStore) {
                self.leader.bed.store(0, Ordering::Release);
            }
            self.leader.bed.wake_one();
        }
        wakes
    }

    /// The leader sleeps until the owner leaves; may return early.
    ///
    /// A store of 0 that a former leave still owes the bed can only wake this leader for nothing: it looks again.
    pub(crate) fn sleep_until_left(&self, timeout: Option<std::time::Duration>) {
        at!(BeforeLeaderBed);
        self.leader.bed.store(1, Ordering::Relaxed);
        at!(BeforeAnnounce);
        if self.post.announce_waiting() {
            self.leader.joins.sleeps.add(1);
            at!(BeforeLeaderSleep);
            self.leader.bed.wait(1, timeout);
        }
    }
}
