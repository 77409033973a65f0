//! What every participant did and when, recorded into preallocated rings.
//!
//! A pool without a trace pays one load per step of a section. With one, each event costs a clock read, three locked
//! instructions on lines of the thread's own, and four stores. A thread's events go to a ring that no other thread writes
//! (as long as there are rings: 16 beyond one a participant), so that sections of several callers and pools stay apart.

use crate::fork::ForkLock;
use crate::sync::{fence, mutated, AtomicU64, AtomicUsize, Ordering};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Instant;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A leader begins to publish a section; `value` is the section's number.
    Publish = 1,
    /// A participant begins its share of section `value`.
    ShareBegin,
    /// The share is done.
    ShareEnd,
    /// A leader has no more to do itself and waits for the others.
    JoinBegin,
    /// Everyone has left section `value`.
    JoinEnd,
    /// A participant of section `value` arrives at a barrier.
    BarrierBegin,
    /// The barrier opened, or was cancelled.
    BarrierEnd,
    /// A participant goes to sleep: an idle worker (`value` is 0), or one that waits at the join or at a barrier of section
    /// `value`.
    ParkBegin,
    /// It is awake again.
    ParkEnd,
    /// A participant wakes sleepers; `value` is how many.
    Wake,
    /// What follows on this lane belongs to label `value` (a step of a program).
    Label,
    /// A worker begins its loop.
    Start,
    /// A worker ends its loop: the pool closes.
    Stop,
    /// A worker found a post of section `value` and is inside.
    Enter,
    /// A worker has left section `value`.
    Leave,
    /// A worker begins to poll for its next post.
    SpinBegin,
    /// A caller has claimed workers; `value` is how many.
    Reserve,
    /// A caller has given workers back; `value` is how many.
    Release,
    /// A caller was refused participants; `value` is how many it wanted.
    Refuse,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Kind; 19] = [
        Kind::Publish,
        Kind::ShareBegin,
        Kind::ShareEnd,
        Kind::JoinBegin,
        Kind::JoinEnd,
        Kind::BarrierBegin,
        Kind::BarrierEnd,
        Kind::ParkBegin,
        Kind::ParkEnd,
        Kind::Wake,
        Kind::Label,
        Kind::Start,
        Kind::Stop,
        Kind::Enter,
        Kind::Leave,
        Kind::SpinBegin,
        Kind::Reserve,
        Kind::Release,
        Kind::Refuse,
    ];

    /// The name used in exports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Publish => "publish",
            Kind::ShareBegin => "share_begin",
            Kind::ShareEnd => "share_end",
            Kind::JoinBegin => "join_begin",
            Kind::JoinEnd => "join_end",
            Kind::BarrierBegin => "barrier_begin",
            Kind::BarrierEnd => "barrier_end",
            Kind::ParkBegin => "park_begin",
            Kind::ParkEnd => "park_end",
            Kind::Wake => "wake",
            Kind::Label => "label",
            Kind::Start => "start",
            Kind::Stop => "stop",
            Kind::Enter => "enter",
            Kind::Leave => "leave",
            Kind::SpinBegin => "spin_begin",
            Kind::Reserve => "reserve",
            Kind::Release => "release",
            Kind::Refuse => "refuse",
        }
    }
}

/// One recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// 0 for the first caller from outside the pool, `i + 1` for worker `i`; what came to none of these, further callers and
    /// workers of further pools, has a number from [`Trace::participants`] on, and a name in [`Trace::further`].
    pub participant: usize,
    /// Nanoseconds since the trace was made.
    pub ns: u64,
    /// What happened.
    pub kind: Kind,
    /// The section's number, label or count, as [`Kind`] says.
    pub value: u64,
}

/// Rings for threads that find the ring of their participant taken; the last is shared by all that come later.
const FURTHER: usize = 16;

/// Ends the life of no trace: the number of a thread that has recorded nothing yet.
const NO_TRACE: u64 = 0;

/// The event number `stamp - 1` of a ring, whole when the stamp is the same before and after it was read.
#[derive(Debug)]
struct Entry {
    stamp: AtomicU64,
    ns: AtomicU64,
    /// `value << 8 | kind`.
    what: AtomicU64,
}

/// The events of one thread, the most recent ones.
#[derive(Debug)]
pub(crate) struct Ring {
    head: AtomicUsize,
    /// Made at the first event, for the rings of further threads.
    entries: OnceLock<Box<[Entry]>>,
}

impl Ring {
    pub(crate) fn new() -> Self {
        Ring { head: AtomicUsize::new(0), entries: OnceLock::new() }
    }

    fn entries(&self, capacity: usize) -> &[Entry] {
        /// No fork comes in the middle: the child would wait for the end of it.
        static MAKING: ForkLock<()> = ForkLock::new(());
        if let Some(entries) = self.entries.get() {
            return entries;
        }
        let _alone = MAKING.lock();
        self.entries.get_or_init(|| {
            let entry = || Entry { stamp: AtomicU64::new(0), ns: AtomicU64::new(0), what: AtomicU64::new(0) };
            (0..capacity).map(|_| entry()).collect()
        })
    }

    pub(crate) fn push(&self, capacity: usize, ns: u64, what: u64) {
        let at = self.head.fetch_add(1, Ordering::Relaxed);
        let entry = &self.entries(capacity)[at % capacity];
        entry.stamp.store(0, Ordering::Relaxed);
        // Pairs with the fence in `read`: who sees what follows also sees that the entry was not whole.
        fence(Ordering::Release);
        entry.ns.store(ns, Ordering::Relaxed);
        entry.what.store(what, Ordering::Relaxed);
        entry.stamp.store(at as u64 + 1, Ordering::Release);
    }

    /// Time and content of event `at`, if it is whole.
    pub(crate) fn read(&self, capacity: usize, at: usize) -> Option<(u64, u64)> {
        let entry = &self.entries(capacity)[at % capacity];
        let stamp = entry.stamp.load(Ordering::Acquire);
        let read = (entry.ns.load(Ordering::Relaxed), entry.what.load(Ordering::Relaxed));
        if !mutated!(SkipTraceStamp) {
            fence(Ordering::Acquire);
            if stamp != at as u64 + 1 || entry.stamp.load(Ordering::Relaxed) != stamp {
                return None;
            }
        }
        Some(read)
    }

    /// How many of its events were overwritten.
    pub(crate) fn lost(&self, capacity: usize) -> usize {
        self.head.load(Ordering::Relaxed).saturating_sub(capacity)
    }
}

/// Rings of the most recent events, one a participant.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::sync::Arc;
/// use threadteam::{trace::{Kind, Trace}, Exec, Pool};
///
/// let pool = Pool::builder().threads(2).build()?;
/// let trace = Arc::new(Trace::new(pool.width().get(), 1024));
/// pool.set_trace(Some(Arc::clone(&trace)));
/// Exec::new(&pool, 2)?.for_ranges(64, NonZeroUsize::MIN, |_| ());
/// pool.set_trace(None);
/// assert!(trace.events().iter().any(|event| event.kind == Kind::Publish));
/// # Ok::<(), threadteam::Error>(())
/// ```
#[derive(Debug)]
pub struct Trace {
    /// Tells the traces of this process apart.
    id: u64,
    since: Instant,
    capacity: usize,
    participants: usize,
    sections: AtomicU64,
    /// One a participant, then those of further threads.
    rings: Box<[Ring]>,
    /// Which thread writes which ring.
    owners: ForkLock<Owners>,
    /// What labels stand for.
    names: ForkLock<BTreeMap<u64, Arc<str>>>,
}

#[derive(Debug, Default)]
struct Owners {
    rings: HashMap<ThreadId, usize>,
    further: Vec<String>,
}

thread_local! {
    /// Which ring this thread would like: a place in pictures, never a way to a pool.
    static LANE: Cell<usize> = const { Cell::new(0) };
    /// The trace that this thread recorded into last, and its ring there.
    static RING: Cell<(u64, usize)> = const { Cell::new((NO_TRACE, 0)) };
}

/// Called once by each worker: its events go to ring `lane` if no other thread's do.
pub(crate) fn set_lane(lane: usize) {
    LANE.set(lane);
}

/// The calling thread's lane, 0 for callers.
pub(crate) fn lane() -> usize {
    LANE.get()
}

impl Trace {
    /// Rings of `capacity` events for `participants` participants; older events are overwritten.
    pub fn new(participants: usize, capacity: usize) -> Self {
        static MADE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(NO_TRACE + 1);
        let (participants, capacity) = (participants.max(1), capacity.max(1));
        let rings: Box<[Ring]> = (0..participants + FURTHER).map(|_| Ring::new()).collect();
        for ring in &rings[..participants] {
            ring.entries(capacity);
        }
        Trace {
            id: MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            since: Instant::now(),
            capacity,
            participants,
            sections: AtomicU64::new(0),
            rings,
            owners: ForkLock::default(),
            names: ForkLock::new(BTreeMap::new()),
        }
    }

    /// Records one event of the calling thread, now.
    pub fn record(&self, kind: Kind, value: u64) {
        let (trace, ring) = RING.get();
        let ring = if trace == self.id { ring } else { self.find_ring() };
        self.push(ring, kind, value);
    }

    /// Records one event of participant `lane`, now (for execution systems whose threads are not the pool's).
    pub fn record_for(&self, lane: usize, kind: Kind, value: u64) {
        self.push(lane.min(self.participants - 1), kind, value);
    }

    fn push(&self, ring: usize, kind: Kind, value: u64) {
        self.rings[ring].push(self.capacity, self.now_ns(), value << 8 | kind as u64);
    }

    /// The ring of the calling thread: the one it had, its lane's, or one of those for further threads.
    #[cold]
    fn find_ring(&self) -> usize {
        let thread = std::thread::current();
        let mut owners = self.owners.lock();
        let ring = match owners.rings.get(&thread.id()) {
            Some(&ring) => ring,
            None => {
                let (lane, last) = (lane(), self.rings.len() - 1);
                let ring = if lane < self.participants && !owners.rings.values().any(|&taken| taken == lane) {
                    lane
                } else {
                    let further = owners.further.len();
                    if further < FURTHER {
                        let name = thread.name().filter(|_| lane > 0).map(str::to_owned);
                        owners.further.push(name.unwrap_or_else(|| format!("caller {}", further + 2)));
                    } else {
                        "all others".clone_into(&mut owners.further[FURTHER - 1]);
                    }
                    (self.participants + further).min(last)
                };
                // Made while a fork waits: its child would wait for ever for memory that another thread was making.
                self.rings[ring].entries(self.capacity);
                owners.rings.insert(thread.id(), ring);
                ring
            }
        };
        RING.set((self.id, ring));
        ring
    }

    /// Records that a section is being published and returns its number, at least 1.
    pub fn publish(&self) -> u64 {
        let number = self.sections.fetch_add(1, Ordering::Relaxed) + 1;
        self.record(Kind::Publish, number);
        number
    }

    /// Says what the labels from `first` on stand for, unless `first` is known already.
    pub fn name_labels<'a>(&self, first: u64, names: impl IntoIterator<Item = &'a Arc<str>>) {
        let mut known = self.names.lock();
        if !known.contains_key(&first) {
            known.extend((first..).zip(names.into_iter().cloned()));
        }
    }

    /// The labels that were named, in ascending order.
    pub fn label_names(&self) -> Vec<(u64, Arc<str>)> {
        let known = self.names.lock();
        known.iter().map(|(&label, name)| (label, Arc::clone(name))).collect()
    }

    /// Nanoseconds since the trace was made.
    pub fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// How many participants have a ring of their own.
    pub fn participants(&self) -> usize {
        self.participants
    }

    /// The names of the threads whose ring was taken when they came: participants from [`participants`](Self::participants)
    /// on. Beyond 16 they share the last ring.
    pub fn further(&self) -> Vec<String> {
        self.owners.lock().further.clone()
    }

    /// Events that were overwritten by later ones.
    pub fn overwritten(&self) -> usize {
        self.rings.iter().map(|ring| ring.lost(self.capacity)).sum()
    }

    /// The same for each participant that lost any.
    pub fn overwritten_by(&self) -> Vec<(usize, usize)> {
        let lost = self.rings.iter().map(|ring| ring.lost(self.capacity));
        lost.enumerate().filter(|&(_, lost)| lost > 0).collect()
    }

    /// What was recorded, by participant and time. Events that a thread is just writing, or overwriting, are left out:
    /// call it when nothing records to get all that the rings hold.
    pub fn events(&self) -> Vec<Event> {
        let mut all = Vec::new();
        for (participant, ring) in self.rings.iter().enumerate() {
            let head = ring.head.load(Ordering::Acquire);
            for at in head.saturating_sub(self.capacity)..head {
                let Some((ns, what)) = ring.read(self.capacity, at) else { continue };
                if let Some(&kind) = Kind::ALL.get((what & 0xff).wrapping_sub(1) as usize) {
                    all.push(Event { participant, ns, kind, value: what >> 8 });
                }
            }
        }
        all.sort_by_key(|event| (event.participant, event.ns));
        all
    }
}
