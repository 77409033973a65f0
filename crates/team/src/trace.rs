//! What every participant did and when, recorded into preallocated rings.
//!
//! A pool without a trace pays one load per section. With one, each event costs a clock read and two stores.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// A participant arrives at a barrier.
    BarrierBegin,
    /// The barrier opened.
    BarrierEnd,
    /// A worker goes to sleep.
    ParkBegin,
    /// It is awake again.
    ParkEnd,
    /// A participant wakes sleepers; `value` is how many.
    Wake,
    /// What follows on this lane belongs to label `value` (a step of a program).
    Label,
}

impl Kind {
    const ALL: [Kind; 11] = [
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
        }
    }
}

/// One recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// 0 for callers from outside the pool, `i + 1` for worker `i`.
    pub participant: usize,
    /// Nanoseconds since the trace was made.
    pub ns: u64,
    /// What happened.
    pub kind: Kind,
    /// The section's number, label or count, as [`Kind`] says.
    pub value: u64,
}

#[derive(Debug)]
struct Ring {
    head: AtomicUsize,
    /// Time and `value << 8 | kind` of each event.
    events: Box<[(AtomicU64, AtomicU64)]>,
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
    since: Instant,
    sections: AtomicU64,
    rings: Box<[Ring]>,
    /// What labels stand for.
    names: Mutex<BTreeMap<u64, Arc<str>>>,
}

thread_local! {
    /// Which ring this thread writes: a label for pictures, never a way to a pool.
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Called once by each worker: its events go to ring `lane`.
pub(crate) fn set_lane(lane: usize) {
    LANE.set(lane);
}

impl Trace {
    /// Rings of `capacity` events for `participants` participants; older events are overwritten.
    pub fn new(participants: usize, capacity: usize) -> Self {
        let ring = || Ring {
            head: AtomicUsize::new(0),
            events: (0..capacity.max(1)).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect(),
        };
        Trace {
            since: Instant::now(),
            sections: AtomicU64::new(0),
            rings: (0..participants.max(1)).map(|_| ring()).collect(),
            names: Mutex::new(BTreeMap::new()),
        }
    }

    /// Records one event of the calling thread, now.
    pub fn record(&self, kind: Kind, value: u64) {
        self.record_for(LANE.get(), kind, value);
    }

    /// Records one event of participant `lane`, now (for execution systems whose threads are not the pool's).
    pub fn record_for(&self, lane: usize, kind: Kind, value: u64) {
        let ns = self.now_ns();
        let ring = &self.rings[lane.min(self.rings.len() - 1)];
        let at = ring.head.fetch_add(1, Ordering::Relaxed) % ring.events.len();
        ring.events[at].0.store(ns, Ordering::Relaxed);
        ring.events[at].1.store(value << 8 | kind as u64, Ordering::Relaxed);
    }

    /// Records that a section is being published and returns its number, at least 1.
    pub fn publish(&self) -> u64 {
        let number = self.sections.fetch_add(1, Ordering::Relaxed) + 1;
        self.record(Kind::Publish, number);
        number
    }

    /// Says what the labels from `first` on stand for, unless `first` is known already.
    pub fn name_labels<'a>(&self, first: u64, names: impl IntoIterator<Item = &'a Arc<str>>) {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(&first) {
            known.extend((first..).zip(names.into_iter().cloned()));
        }
    }

    /// The labels that were named, in ascending order.
    pub fn label_names(&self) -> Vec<(u64, Arc<str>)> {
        let known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(&label, name)| (label, Arc::clone(name))).collect()
    }

    /// Nanoseconds since the trace was made.
    pub fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// How many participants have a ring.
    pub fn participants(&self) -> usize {
        self.rings.len()
    }

    /// Events that were overwritten by later ones.
    pub fn overwritten(&self) -> usize {
        self.rings.iter().map(|ring| ring.head.load(Ordering::Relaxed).saturating_sub(ring.events.len())).sum()
    }

    /// What was recorded, by participant and time. Call it when nothing records.
    pub fn events(&self) -> Vec<Event> {
        let mut all = Vec::new();
        for (participant, ring) in self.rings.iter().enumerate() {
            let head = ring.head.load(Ordering::Acquire);
            for at in head.saturating_sub(ring.events.len())..head {
                let (ns, what) = &ring.events[at % ring.events.len()];
                let what = what.load(Ordering::Relaxed);
                if let Some(&kind) = Kind::ALL.get((what & 0xff).wrapping_sub(1) as usize) {
                    all.push(Event { participant, ns: ns.load(Ordering::Relaxed), kind, value: what >> 8 });
                }
            }
        }
        all.sort_by_key(|event| (event.participant, event.ns));
        all
    }
}
