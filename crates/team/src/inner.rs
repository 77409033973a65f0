//! The shared state of a pool: slots, beds, who is free, and what all callers read.

use crate::acquire::Callers;
use crate::crowd::Crowd;
use crate::domains::{Domains, Reach};
use crate::error::Refused;
use crate::fork;
use crate::free::{anybody, numbered, Claim, FreeMask};
use crate::parking::Parking;
use crate::policy::WaitPolicy;
use crate::recorder::{Current, Use};
use crate::slot::Slot;
use crate::sync::{self, OwnLine};
use crate::trace::{self, Kind, Trace};
use crate::worker;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Written rarely, read at every section.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) wait: WaitPolicy,
    pub(crate) acquire_timeout: Duration,
    /// Who waits for members to be given back.
    pub(crate) callers: Callers,
    stop: sync::AtomicBool,
    /// Bumped by `release_idle`: spinning workers park at once.
    pub(crate) releases: AtomicU32,
    trace: Current<Trace>,
    /// What root tokens may claim.
    pub(crate) reach: Reach,
    /// `fork::generation() + 1` once workers run in this process.
    pub(crate) ready: AtomicU32,
}

/// How much callers worked alone while members slept; see [`Alone`](crate::alone::Alone).
#[derive(Debug)]
pub(crate) struct Debt {
    pub(crate) ns: AtomicU64,
    pub(crate) last_end: AtomicU64,
    pub(crate) last_length: AtomicU64,
    /// How many sections were led so.
    pub(crate) sections: AtomicU64,
}

/// Requests for participants that were refused, by reason. Written on the way to an error only.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; 5]);

impl Refusals {
    pub(crate) fn count(&self, reason: Refused) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, reason: Refused) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: OwnLine<Settings>,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) parking: Parking,
    pub(crate) free: FreeMask,
    pub(crate) debt: OwnLine<Debt>,
    /// Makes the tags of barriers unique; 0 is never used.
    pub(crate) barrier_tags: OwnLine<AtomicU32>,
    pub(crate) refused: Refusals,
    pub(crate) crowd: OwnLine<Crowd>,
    pub(crate) domains: Option<Domains>,
    birth: Instant,
}

impl Inner {
    pub(crate) fn new(workers: usize, wait: WaitPolicy, acquire_timeout: Duration) -> Self {
        fork::watch();
        Inner {
            settings: OwnLine(Settings {
                wait,
                acquire_timeout,
                callers: Callers::new(),
                stop: sync::AtomicBool::new(false),
                releases: AtomicU32::new(0),
                trace: Current::none(),
                reach: Reach::ANYWHERE,
                ready: AtomicU32::new(0),
            }),
            slots: (0..workers).map(|_| Slot::new()).collect(),
            parking: Parking::new(workers),
            free: FreeMask::new(workers),
            debt: OwnLine(Debt {
                ns: AtomicU64::new(0),
                last_end: AtomicU64::new(0),
                // Nothing is known of the first section: were it one of long chunks, a wake after the first would be late.
                last_length: AtomicU64::new(u64::MAX),
                sections: AtomicU64::new(0),
            }),
            barrier_tags: OwnLine(AtomicU32::new(0)),
            refused: Refusals::default(),
            crowd: OwnLine(Crowd::new()),
            domains: None,
            birth: Instant::now(),
        }
    }

    /// The same, with workers that keep to `domains`, which are laid out for as many.
    pub(crate) fn over(mut self, domains: Domains) -> Self {
        for (id, slot) in self.slots.iter_mut().enumerate() {
            slot.pin.give_seat(domains.seat(id));
        }
        self.settings.0.reach = domains.reach();
        self.domains = Some(domains);
        self
    }

    /// Whether the workers of this process run (and not only those of a parent that forked).
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.settings.ready.load(Ordering::Acquire) == fork::generation().wrapping_add(1)
    }

    /// Which workers these are: a forked child that starts its own makes everything claimed before void.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.settings.ready.load(Ordering::Relaxed)
    }

    /// Nanoseconds since the pool was built; time stands still in a model.
    pub(crate) fn now_ns(&self) -> u64 {
        if cfg!(loom) {
            0
        } else {
            self.birth.elapsed().as_nanos() as u64
        }
    }

    /// Whether more participants are awake than CPUs are there for them; never in a model, which has no CPUs.
    pub(crate) fn is_crowded(&self) -> bool {
        !cfg!(loom) && self.awake() + 1 > self.crowd.cpus()
    }

    /// Workers that do not sleep.
    pub(crate) fn awake(&self) -> usize {
        self.slots.len() - self.parking.asleep()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.settings.stop.load(Ordering::Relaxed)
    }

    /// Ends every worker at its next look.
    pub(crate) fn stop(&self) {
        self.settings.stop.store(true, Ordering::Relaxed);
        // Pairs with F2: a worker that this does not find parked sees `stop` before it sleeps.
        sync::fence(Ordering::SeqCst);
        for worker in 0..self.slots.len() {
            self.parking.wake(worker);
        }
    }

    /// Ends every sleep, whether it is due or not: what a test that broke the protocol recovers with.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn wake_everybody(&self) {
        for (worker, slot) in self.slots.iter().enumerate() {
            self.parking.wake_anyway(worker);
            slot.leader.bed.store(0, sync::Ordering::Release);
            slot.leader.bed.wake_one();
            slot.desk.barrier_bed.fetch_add(1, sync::Ordering::AcqRel);
            slot.desk.barrier_bed.wake_all();
        }
        self.settings.callers.wake_anyway();
    }

    /// Wakes at most `count` sleepers among the members that the section they were posted for still waits for, and others
    /// that it no longer waits for; returns how many.
    pub(crate) fn wake_some(&self, members: &[u16], count: usize) -> usize {
        let woken = self.parking.wake_some(members, count, |id| !self.slots[id].post.load(Ordering::Relaxed).is_done());
        if woken > 0 {
            self.record(Kind::Wake, woken as u64);
        }
        woken
    }

    /// Claims free workers within `reach` for the calling thread, until `claim` has `want`; of its own domain first.
    #[inline]
    pub(crate) fn claim(&self, reach: Reach, want: usize, claim: &mut Claim) {
        if reach.is_anywhere() {
            self.free.claim(want, anybody, |index| self.parking.mask(index), claim);
        } else {
            self.claim_within(reach, want, claim);
        }
        self.record(Kind::Reserve, claim.ids().len() as u64);
    }

    #[cold]
    #[inline(never)]
    fn claim_within(&self, reach: Reach, want: usize, claim: &mut Claim) {
        let Some(domains) = &self.domains else { return };
        let home = self.own_domain(domains);
        let reach = reach.domains();
        let others = reach.clone().filter(|&domain| domain != home);
        for domain in reach.clone().filter(|&domain| domain == home).chain(others) {
            let left = want - claim.ids().len();
            self.free.claim(left, numbered(domains.workers(domain)), |index| self.parking.mask(index), claim);
        }
    }

    /// The domain that the calling thread counts to.
    pub(crate) fn own_domain(&self, domains: &Domains) -> usize {
        worker::own_index(self).map_or(0, |id| domains.of_worker(id))
    }

    /// How many workers within `reach` can be claimed now.
    pub(crate) fn free_within(&self, reach: Reach) -> usize {
        match &self.domains {
            Some(domains) if !reach.is_anywhere() => {
                let count = |domain| self.free.count_among(numbered(domains.workers(domain)));
                reach.domains().map(count).sum()
            }
            _ => self.free.count(),
        }
    }

    /// Gives back workers claimed in `epoch`, unless a forked child started others meanwhile.
    #[inline]
    pub(crate) fn give_back(&self, ids: &[u16], epoch: u32) {
        if self.epoch() == epoch {
            self.release(ids);
        }
    }

    /// Gives workers back, and wakes callers that sleep until there are some.
    #[inline]
    pub(crate) fn release(&self, ids: &[u16]) {
        self.free.release(ids);
        self.settings.callers.notify();
        self.record(Kind::Release, ids.len() as u64);
    }

    /// Counts and records that a request for `width` participants is refused.
    pub(crate) fn refuse(&self, reason: Refused, width: usize) {
        self.refused.count(reason);
        self.record(Kind::Refuse, width as u64);
    }

    /// Whether what happens is recorded.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        // Models do not look at traces: they have one of their own.
        !cfg!(loom) && self.settings.trace.is_some()
    }

    /// The trace that is recorded into, for as long as the result lives.
    #[inline]
    pub(crate) fn trace(&self) -> Option<Use<'_, Trace>> {
        if self.is_traced() {
            self.settings.trace.get(trace::lane)
        } else {
            None
        }
    }

    /// The same, to keep.
    pub(crate) fn share_trace(&self) -> Option<Arc<Trace>> {
        self.settings.trace.share(trace::lane)
    }

    /// Records one event of the calling thread, if anything is recorded.
    #[inline]
    pub(crate) fn record(&self, kind: Kind, value: u64) {
        if self.is_traced() {
            self.record_now(kind, value);
        }
    }

    /// Out of the way of sections that are not recorded: a dozen events a section would crowd the registers of its code.
    #[cold]
    #[inline(never)]
    fn record_now(&self, kind: Kind, value: u64) {
        if let Some(trace) = self.trace() {
            trace.record(kind, value);
        }
    }

    /// Begins a section in the trace: its number, 0 when nothing is recorded.
    #[inline]
    pub(crate) fn publish(&self) -> u64 {
        if self.is_traced() {
            self.publish_now()
        } else {
            0
        }
    }

    #[cold]
    #[inline(never)]
    fn publish_now(&self) -> u64 {
        self.trace().map_or(0, |trace| trace.publish())
    }

    pub(crate) fn set_trace(&self, trace: Option<Arc<Trace>>) {
        self.settings.trace.set(trace);
    }

    pub(crate) fn next_barrier_tag(&self) -> u32 {
        loop {
            let tag = self.barrier_tags.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if tag != 0 {
                return tag;
            }
        }
    }

    /// Forgets every section and sleeper: called in the child of a fork before its workers start.
    pub(crate) fn reset(&self) {
        self.free.reset();
        self.parking.reset();
        self.settings.trace.reset();
        for slot in &self.slots {
            slot.post.reset();
            slot.desk.reset();
        }
    }
}
