//! Sections as their leader sees them: publish, take part, join.
//!
//! A **claimed** section hands out chunks; the leader takes back what nobody entered, so it never waits for a worker that
//! sleeps, is late or has no CPU. A **gang** section runs one share on every participant at the same time.

use crate::acquire::Hook;
use crate::alone::Alone;
use crate::desk::Desk;
use crate::fork;
use crate::free::Claim;
use crate::inner::Inner;
use crate::lag;
use crate::parking::Parking;
use crate::place::Place;
use crate::policy::WaitPolicy;
use crate::relay::{self, Group};
use crate::share::Shares;
use crate::slot::{Call, Job, Slot};
use crate::sync::{at, mutated, Ordering};
use crate::trace::Kind;
use crate::wait::{Pace, Step, Waiter, HOOK_EVERY};
use crate::word::Word;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// Claimed sections between two notes of the leader's CPU, which costs about as much as a chunk.
const SECTIONS_PER_PLACE: u64 = 8;

/// The calling thread as the leader of one section.
pub(crate) struct Leader<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) hook: Option<Hook<'a>>,
    /// How it waits at the join.
    pub(crate) wait: &'a WaitPolicy,
    /// Serial time of the section in nanoseconds, 0 if unknown.
    pub(crate) estimate: u64,
}

/// The items of a claimed section: how many chunks, and how chunk numbers become items (see [`Job`]).
#[derive(Clone, Copy)]
pub(crate) struct Chunks {
    pub(crate) count: usize,
    pub(crate) base: usize,
    pub(crate) extra: usize,
}

impl Chunks {
    /// `length` items in `count` chunks whose sizes differ by at most one.
    pub(crate) fn of(length: usize, count: usize) -> Self {
        if count == length {
            return Chunks { count, base: 1, extra: 0 };
        }
        Chunks { count, base: length / count, extra: length % count }
    }
}

impl Leader<'_> {
    /// Runs `chunks` on the calling thread and those of `members` that come in time.
    ///
    /// # Safety
    ///
    /// `call(data, ..)` may run on any thread until this returns; the caller has claimed `members`, which are not empty,
    /// and `chunks.count` is at least 2.
    pub(crate) unsafe fn claimed(&self, members: &[u16], chunks: Chunks, call: Call, data: *const ()) {
        if members.iter().any(|&id| self.slot(id).leader.lag.is_set()) {
            // SAFETY: the caller's contract.
            unsafe { self.claimed_without_laggards(members, chunks, call, data) }
        } else {
            // SAFETY: the caller's contract.
            unsafe { self.claimed_by(members, chunks, call, data) }
        }
    }

    /// The same on those of `members` that have a CPU to run on.
    ///
    /// # Safety
    ///
    /// As for [`claimed`](Self::claimed).
    #[inline(never)]
    unsafe fn claimed_without_laggards(&self, members: &[u16], chunks: Chunks, call: Call, data: *const ()) {
        let now = self.inner.now_ns();
        let mut punctual = Claim::empty();
        for &id in members {
            let leader = &self.slot(id).leader;
            if leader.lag.is_left_out(now) {
                leader.left_out.add(1);
            } else {
                punctual.push(usize::from(id));
            }
        }
        if punctual.ids().is_empty() {
            // SAFETY: the caller's contract; no section is open, so the whole is one range of this thread.
            return unsafe { call(data, 0, chunks.count * chunks.base + chunks.extra) };
        }
        // SAFETY: the caller's contract; some of the members are left.
        unsafe { self.claimed_by(punctual.ids(), chunks, call, data) }
    }

    /// The same on all of `members`.
    ///
    /// # Safety
    ///
    /// As for [`claimed`](Self::claimed).
    unsafe fn claimed_by(&self, members: &[u16], chunks: Chunks, call: Call, data: *const ()) {
        let participants = (members.len() + 1).min(chunks.count);
        let members = &members[..participants - 1];
        let (home, desk, number, epoch) = self.open(members);
        let wide = self.is_wide(members);
        let several = chunks.count > participants;
        let job = Job {
            call,
            data,
            base: chunks.base,
            extra: chunks.extra,
            home: usize::from(members[0]),
            steal: several || (participants > 2 && !wide),
            group: Group::NONE,
        };
        let (each, longer) = if several { (chunks.count / participants, chunks.count % participants) } else { (1, 0) };
        let own = each + usize::from(longer > 0);
        if wide {
            // A copy: what is passed by reference lies in memory, the job of other sections in registers.
            relay::post_chunks(self.inner, members, &{ job }, &Shares::even(chunks.count, participants));
        } else {
            let mut lo = own;
            for (at, &id) in members.iter().enumerate() {
                let hi = lo + each + usize::from(at + 1 < longer);
                self.slot(id).post.post(&job, Word::range(lo, hi));
                lo = hi;
            }
        }
        at!(Posted);
        // After the posts, with the first chunk taken: with one chunk a participant this line is not touched, and
        // otherwise no locked instruction stands before the first body.
        if own > 1 {
            desk.range.store(Word::range(1, own).0, Ordering::Relaxed);
        }
        home.leader.sections.add(1);
        if home.leader.sections.get().is_multiple_of(SECTIONS_PER_PLACE) {
            // Now and then: a claimed section may never wait for its members.
            self.note_place(members);
        }
        home.leader.chunks.add(chunks.count as u64);
        let mut alone = Alone::begin(self.inner, members, home, self.estimate);
        self.record(Kind::ShareBegin, number);
        // SAFETY: the caller's contract is that of `work`.
        let worked =
            catch_unwind(AssertUnwindSafe(|| unsafe { self.work(&job, members, desk, epoch, alone.as_mut()) }));
        if let Err(payload) = worked {
            desk.fail(payload);
        }
        if desk.is_cancelled() {
            desk.drain();
            members.iter().for_each(|&id| self.slot(id).post.drain());
        }
        self.record(Kind::ShareEnd, number);
        self.join(members, desk, number, epoch, true);
        if let Some(alone) = alone {
            alone.end();
        }
        if let Some(payload) = desk.take_panic() {
            resume_unwind(payload);
        }
    }

    /// The leader's own chunks, then those that it can take from the members.
    ///
    /// # Safety
    ///
    /// As for [`claimed`](Self::claimed).
    unsafe fn work(&self, job: &Job, members: &[u16], desk: &Desk, epoch: u32, mut alone: Option<&mut Alone<'_>>) {
        // SAFETY: chunk 0 is the leader's, whose range starts after it; the closure is alive.
        unsafe { job.run(0) };
        let mut after_chunk = |desk: &Desk| {
            if let Some(alone) = &mut alone {
                alone.tick();
            }
            if is_forked(epoch) {
                // This is the child of a fork by a body: the chunks that are left are the parent's.
                desk.cancel();
            }
            !desk.is_cancelled()
        };
        if job.steal {
            while after_chunk(desk) {
                let Some(chunk) = desk.pop_front() else { break };
                // SAFETY: `pop_front` gave this chunk to the leader alone.
                unsafe { job.run(chunk) };
            }
        } else {
            after_chunk(desk);
        }
        for &id in members {
            let slot = self.slot(id);
            at!(BeforeRevoke);
            while !desk.is_cancelled() {
                let Some((chunk, entered)) = slot.post.steal_back() else { break };
                if !entered {
                    slot.leader.claimed_back.add(1);
                    if self.inner.parking.is_parked(usize::from(id)) {
                        slot.leader.claimed_back_asleep.add(1);
                    }
                }
                // SAFETY: `steal_back` gave this chunk to the leader alone.
                unsafe { job.run(chunk) };
                after_chunk(desk);
            }
        }
    }

    /// Runs `call(data, index, size)` once on each of the `size` participants at the same time; the leader is index 0.
    ///
    /// # Safety
    ///
    /// `call(data, ..)` may run on any thread until this returns, and the caller has claimed `members`, which are not
    /// empty.
    pub(crate) unsafe fn gang(&self, members: &[u16], call: Call, data: *const ()) {
        let size = members.len() + 1;
        let (home, desk, number, epoch) = self.open(members);
        let group = Group::NONE;
        let job = Job { call, data, base: 0, extra: 0, home: usize::from(members[0]), steal: false, group };
        if self.is_wide(members) {
            relay::post_gang(self.inner, members, &{ job });
        } else {
            for (at, &id) in members.iter().enumerate() {
                self.slot(id).post.post(&job, Word::gang(at + 1, size));
            }
        }
        home.leader.gangs.add(1);
        at!(Posted);
        Parking::post_fence();
        if self.inner.parking.any_parked(members) {
            home.leader.wakes.add(self.inner.wake_some(members, 1) as u64);
        }
        self.record(Kind::ShareBegin, number);
        // SAFETY: the caller's contract is that of `call`.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| unsafe { call(data, 0, size) })) {
            desk.fail(payload);
        }
        self.record(Kind::ShareEnd, number);
        self.join(members, desk, number, epoch, false);
        if let Some(payload) = desk.take_panic() {
            resume_unwind(payload);
        }
    }

    /// Whether members learn their positions, and captains may post. Sleeping members are posted to directly: the debt and
    /// the tree of wakes look for open shares, and a wake costs more than all posts.
    fn is_wide(&self, members: &[u16]) -> bool {
        relay::is_wide(members) && !self.inner.parking.any_parked(members)
    }

    #[inline]
    fn open(&self, members: &[u16]) -> (&Slot, &Desk, u64, u32) {
        let home = self.slot(members[0]);
        let number = self.inner.publish();
        home.desk.open(members, number);
        (home, &home.desk, number, self.inner.epoch())
    }

    /// Tells the members where this leader runs.
    fn note_place(&self, members: &[u16]) {
        let here = Place::here();
        members.iter().for_each(|&id| self.slot(id).notice.leader_place.note_as(&here));
    }

    /// Waits until no member is inside and none can enter. `watch`: a member that lags is left out of later sections.
    #[inline]
    fn join(&self, members: &[u16], desk: &Desk, number: u64, epoch: u32, watch: bool) {
        self.record(Kind::JoinBegin, number);
        let wait = |id: u16| {
            let slot = self.slot(id);
            if !slot.post.is_done() {
                self.wait_for(slot, members, desk, epoch, watch);
            }
        };
        if mutated!(JoinBackwards) {
            members.iter().rev().for_each(|&id| wait(id));
        } else {
            // In this order, which has every captain before its group: a word that its captain has yet to post to looks as
            // if it were done.
            members.iter().for_each(|&id| wait(id));
        }
        self.give_up_after_fork(epoch);
        self.record(Kind::JoinEnd, number);
    }

    #[inline(never)]
    fn wait_for(&self, slot: &Slot, members: &[u16], desk: &Desk, epoch: u32, watch: bool) {
        let (mut slept, mut delayed) = (0, 0);
        let mut waiter = Waiter::amid(!watch && self.inner.is_crowded());
        let shares = slot.post.entered.get();
        let pace = || {
            let pace = Pace::of(self.wait);
            Pace { park_after: slot.leader.usual.patience(shares, pace.park_after), ..pace }
        };
        while !slot.post.is_done() {
            match waiter.step(self.inner, &slot.leader.joins, pace) {
                Step::Poll => {}
                Step::Look => {
                    self.give_up_after_fork(epoch);
                    // A plain section makes no system call, but its leader may while it waits.
                    self.inner.crowd.refresh(self.inner);
                    if !watch && waiter.is_crowded() {
                        // It has yielded. Each of them decides by the place which CPU has too many participants.
                        self.note_place(members);
                    } else {
                        slot.notice.leader_place.note();
                        if slot.owner_place.is_here() {
                            slot.leader.joins.yields.add(1);
                            std::thread::yield_now();
                        }
                    }
                    if waiter.is_hook_due() {
                        self.call_hook(desk);
                    }
                }
                Step::Sleep => {
                    self.give_up_after_fork(epoch);
                    let thread = if watch { slot.thread.load(Ordering::Relaxed) } else { 0 };
                    let before = (lag::run_delay(thread), self.inner.now_ns());
                    self.record(Kind::ParkBegin, desk.number());
                    slot.sleep_until_left(self.hook.map(|_| HOOK_EVERY));
                    self.record(Kind::ParkEnd, desk.number());
                    if let (Some(before), Some(after)) = (before.0, lag::run_delay(thread)) {
                        delayed += after.saturating_sub(before);
                    }
                    slept += self.inner.now_ns() - before.1;
                    self.call_hook(desk);
                }
            }
        }
        let waited = waiter.waited().as_nanos() as u64 + slept;
        if waited > 0 {
            slot.leader.usual.note(shares, waited);
        }
        if slept > 0 {
            slot.leader.lag.note(self.inner.now_ns(), slept, delayed);
        }
    }

    /// Nothing may unwind past the join: members may be inside the closure. Nor can a hook end it.
    fn call_hook(&self, desk: &Desk) {
        if let Some(hook) = self.hook {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(hook)) {
                desk.fail(payload);
            }
        }
    }

    /// A body forked, and this is the child: the section is the parent's, and so are its members, also when the child has
    /// started workers of its own meanwhile.
    fn give_up_after_fork(&self, epoch: u32) {
        if is_forked(epoch) {
            std::panic::panic_any(crate::ForkedInside);
        }
    }

    fn record(&self, kind: Kind, number: u64) {
        if number != 0 {
            self.inner.record(kind, number);
        }
    }

    fn slot(&self, id: u16) -> &Slot {
        &self.inner.slots[usize::from(id)]
    }
}

/// Whether the process is another one than that whose workers `epoch` counts.
fn is_forked(epoch: u32) -> bool {
    fork::generation().wrapping_add(1) != epoch
}
