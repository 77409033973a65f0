//! A worker: wait for a post, take part, leave, wait.

use crate::desk::Desk;
use crate::fork;
use crate::idle::Idle;
use crate::inner::Inner;
use crate::lag;
use crate::pin::Serving;
use crate::place::{self, Place};
use crate::relay;
use crate::slot::{Job, Slot};
use crate::sync::{at, mutated, Ordering};
use crate::trace::{self, Kind};
use crate::wait::Step;
use crate::word::Word;
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Further sleepers that a worker wakes when it was woken itself: the leader pays for one wake, the tree for the rest.
const WAKES_PASSED_ON: usize = 2;

thread_local! {
    /// The pool that this thread works for, by the address of its state, the process it does so in, and its number there.
    static EMPLOYER: Cell<(*const Inner, u32, u16)> = const { Cell::new((std::ptr::null(), 0, 0)) };
    /// Whether it is in a hook, in which it serves nobody, though others may have claimed it.
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a worker of the pool whose state this is.
#[inline]
pub(crate) fn works_for(inner: &Inner) -> bool {
    own_index(inner).is_some()
}

/// The calling thread's number among the workers of the pool whose state this is.
#[inline]
pub(crate) fn own_index(inner: &Inner) -> Option<usize> {
    let (employer, process, index) = EMPLOYER.get();
    // Workers of the parent are nobody's in a forked child.
    (std::ptr::eq(employer, inner) && process == fork::generation()).then_some(usize::from(index))
}

/// Whether the calling thread is a worker of this pool in one of its hooks. A gang there would wait for the worker itself, which is
/// free for it.
pub(crate) fn in_hook_of(inner: &Inner) -> bool {
    IN_HOOK.get() && works_for(inner)
}

/// The life of worker `index` in a pool: a hook, its loop until the pool stops, and a hook, unless it is in the child of a fork then.
pub(crate) fn run(inner: &Inner, index: usize, on_start: impl FnOnce(), on_stop: impl FnOnce()) {
    let process = fork::generation();
    EMPLOYER.set((inner, process, index as u16));
    in_hook(on_start);
    work(inner, index);
    if process == fork::generation() {
        in_hook(on_stop);
    }
    EMPLOYER.set((std::ptr::null(), 0, 0));
}

fn in_hook(hook: impl FnOnce()) {
    IN_HOOK.set(true);
    hook();
    IN_HOOK.set(false);
}

fn work(inner: &Inner, index: usize) {
    trace::set_lane(index + 1);
    let slot = &inner.slots[index];
    slot.thread.store(lag::thread_number(), Ordering::Relaxed);
    let _serving = Serving::begin(&slot.pin);
    let worker =
        Worker { inner, index, slot, process: fork::generation(), in_the_way: Cell::new(0), in_gang: Cell::new(false) };
    let mut idle = Idle::new();
    let has_domain = slot.pin.has_seat();
    worker.record(Kind::Start, 0);
    while let Some(word) = worker.next(&mut idle) {
        if worker.serve(word, idle.woken) {
            worker.in_gang.set(word.is_gang());
            idle.restart(inner, word.is_gang());
            if has_domain && slot.pin.is_away() {
                slot.pin.come_home();
            }
        }
        // A body forked and returned in the child, whose only thread this is: nobody can ever post to it.
        if worker.is_forked() {
            return;
        }
    }
    worker.record(Kind::Stop, 0);
}

/// Looks at the clock on a CPU that others should have before the worker moves: they may move first.
const LOOKS_BEFORE_MOVING: u32 = 4;

struct Worker<'a> {
    inner: &'a Inner,
    index: usize,
    slot: &'a Slot,
    /// The process that it works in.
    process: u32,
    /// Looks that found it in the way: in one wait, or in one after the other of a crowd, whose waits are short.
    in_the_way: Cell<u32>,
    /// Whether its last share was one of a gang.
    in_gang: Cell<bool>,
}

impl Worker<'_> {
    /// Whether a body forked and this is the child: the chunks that are left are the parent's.
    fn is_forked(&self) -> bool {
        self.process != fork::generation()
    }

    fn is_over(&self, desk: &Desk) -> bool {
        desk.is_cancelled() || self.is_forked()
    }

    /// Waits for a post; `None` when the pool stops.
    fn next(&self, idle: &mut Idle) -> Option<Word> {
        if self.in_the_way.get() != 0 && !self.takes_turns() {
            self.in_the_way.set(0);
        }
        self.record(Kind::SpinBegin, 0);
        // A post that is there already was made while this worker did not run, perhaps because its leader did.
        if self.is_posted().is_some() && self.is_in_the_way() {
            self.move_away();
        }
        loop {
            if let Some(word) = self.is_posted() {
                return Some(word);
            }
            match idle.step(self.inner, self.slot) {
                Step::Poll => {}
                Step::Look => {
                    if self.inner.is_stopped() {
                        return None;
                    }
                    self.slot.owner_place.note();
                    if self.is_in_the_way() {
                        self.in_the_way.set(self.in_the_way.get() + 1);
                        if self.in_the_way.get().is_multiple_of(LOOKS_BEFORE_MOVING) {
                            self.move_away();
                        } else if !self.takes_turns() {
                            self.slot.owner.idle.yields.add(1);
                            std::thread::yield_now();
                        }
                    }
                }
                Step::Sleep => {
                    self.park(idle);
                    if self.inner.is_stopped() {
                        return None;
                    }
                    self.record(Kind::SpinBegin, 0);
                    if self.is_in_the_way() {
                        self.move_away();
                    }
                }
            }
        }
    }

    /// Whether it shares its CPU with other members of a gang. Claimed sections need no member: there those that have a CPU
    /// keep it and the others fall asleep.
    fn takes_turns(&self) -> bool {
        self.in_gang.get() && self.inner.is_crowded()
    }

    /// Whether it runs where others should: on its leader's CPU, or, where gangs take turns, on a CPU with more participants
    /// than its part. Were all of them to leave their leader's CPU, they would share the others and it would have that one to itself.
    fn is_in_the_way(&self) -> bool {
        let leader = &self.slot.notice.leader_place;
        if !self.takes_turns() {
            return leader.is_here();
        }
        let here = Place::here();
        let others = self.inner.slots.iter().enumerate().filter(|&(other, slot)| {
            other != self.index && slot.owner_place.same(&here) && !self.inner.parking.is_parked(other)
        });
        let together = 1 + usize::from(leader.same(&here)) + others.count();
        together > (self.inner.awake() + 1).div_ceil(self.inner.crowd.cpus())
    }

    fn move_away(&self) {
        place::move_away();
        self.slot.owner_place.note();
    }

    fn is_posted(&self) -> Option<Word> {
        let word = self.slot.post.load(Ordering::Acquire);
        (word.is_open() || word.is_gang()).then_some(word)
    }

    fn park(&self, idle: &mut Idle) {
        self.slot.notice.end_interval();
        let nap = idle.fall_asleep(self.inner);
        self.slot.owner.idle.sleeps.add(1);
        self.record(Kind::ParkBegin, 0);
        self.inner.parking.park(self.index, || {
            let word = self.slot.post.load(Ordering::Relaxed);
            !(word.is_open() || word.is_gang() || self.inner.is_stopped())
        });
        self.record(Kind::ParkEnd, 0);
        idle.wake(self.inner, nap);
    }

    /// Takes part in the section behind `word`, if it is still open; returns whether it was.
    fn serve(&self, word: Word, woken: bool) -> bool {
        let mut first = if word.is_gang() {
            None
        } else {
            at!(BeforeEntry);
            match self.slot.post.try_enter(word) {
                Some(entry) => Some(entry),
                None => {
                    at!(EntryLost);
                    return false;
                }
            }
        };
        at!(Entered);
        // From here to `leave` the section's closure, members and desk stay as they are.
        let job = self.slot.post.job();
        let desk = &self.inner.slots[job.home].desk;
        self.slot.post.entered.add(1);
        let number = if self.inner.is_traced() { desk.number() } else { 0 };
        // What few shares need is out of the way of the others: leaders wait for each instruction here.
        let is_plain = number == 0 && !woken && !job.group.relays();
        if !is_plain {
            first = self.open_share(desk, number, first, woken);
        }
        let shared = catch_unwind(AssertUnwindSafe(|| match first {
            // SAFETY: this worker is inside the section, so its closure is alive.
            None => unsafe { (job.call)(job.data, word.lo(), word.hi()) },
            Some((chunk, after)) => self.work(&job, desk, chunk, after),
        }));
        if let Err(payload) = shared {
            desk.fail(payload);
        }
        if !is_plain {
            self.close_share(desk, number);
        }
        if self.slot.leave() {
            self.record(Kind::Wake, 1);
        }
        if number != 0 {
            self.record(Kind::Leave, number);
        }
        true
    }

    /// What comes before a share that is recorded or relayed, or that this worker was woken for: records, posts to the
    /// group, passes the wakes on. Takes and returns the first chunk and the word behind it, which ceding to the group changes.
    #[cold]
    #[inline(never)]
    fn open_share(&self, desk: &Desk, number: u64, first: Option<(usize, Word)>, woken: bool) -> Option<(usize, Word)> {
        self.record(Kind::Enter, number);
        let job = self.slot.post.job();
        let first = if job.group.relays() { self.relay(&job, desk, first) } else { first };
        if woken {
            self.pass_wakes_on(desk);
        }
        self.record(Kind::ShareBegin, number);
        first
    }

    /// What comes after such a share.
    #[cold]
    #[inline(never)]
    fn close_share(&self, desk: &Desk, number: u64) {
        let group = self.slot.post.job().group;
        if group.relays() && desk.is_cancelled() && !mutated!(SkipRelayDrain) {
            // SAFETY: this worker is inside the section that is open on `desk`.
            let others = group.others(unsafe { desk.members() });
            others.iter().for_each(|&id| self.inner.slots[usize::from(id)].post.drain());
        }
        self.record(Kind::ShareEnd, number);
    }

    /// The chunks of a claimed section: `chunk`, the rest of the own range, then the others'.
    fn work(&self, job: &Job, desk: &Desk, chunk: usize, mut after: Word) {
        let mut done = 1;
        // SAFETY: `try_enter` gave this chunk to this worker, which is inside the section.
        unsafe { job.run(chunk) };
        // `after` tells without another look at the word, which thieves may hold, that the own range is used up.
        while !after.is_empty() && !self.is_over(desk) {
            let Some((chunk, now)) = self.slot.post.pop_front() else { break };
            after = now;
            done += 1;
            // SAFETY: `pop_front` gave this chunk to this worker.
            unsafe { job.run(chunk) };
        }
        if job.steal {
            while !self.is_over(desk) {
                let Some(chunk) = desk.steal_back() else { break };
                done += 1;
                // SAFETY: `steal_back` gave this chunk to this worker.
                unsafe { job.run(chunk) };
            }
        }
        if job.group.is_some() {
            // Whether it looks further or not, a captain leaves no share of its group open: the leader waits at its join
            // for whoever was posted to.
            if !mutated!(LeaveOpenShares) {
                // SAFETY: this worker is inside the section that is open on `desk`.
                let members = unsafe { desk.members() };
                job.group.reach(members, job.steal).for_each(|id| done += self.take_from(id, job, desk));
            }
        } else if job.steal {
            // SAFETY: this worker is inside the section that is open on `desk`.
            for &id in unsafe { desk.members() } {
                if usize::from(id) != self.index {
                    done += self.take_from(id, job, desk);
                }
            }
        }
        self.slot.owner.chunks.add(done);
    }

    /// Runs the chunks that member `id` has left, from the back; returns how many.
    fn take_from(&self, id: u16, job: &Job, desk: &Desk) -> u64 {
        let mut done = 0;
        while !self.is_over(desk) {
            let Some((chunk, _)) = self.inner.slots[usize::from(id)].post.steal_back() else { break };
            done += 1;
            // SAFETY: `steal_back` gave this chunk to this worker.
            unsafe { job.run(chunk) };
        }
        done
    }

    /// The captain of a group posts to it, before anything else: others wait for that.
    fn relay(&self, job: &Job, desk: &Desk, first: Option<(usize, Word)>) -> Option<(usize, Word)> {
        // SAFETY: this worker is inside the section that is open on `desk`.
        let members = unsafe { desk.members() };
        at!(BeforeRelay);
        if let Some((chunk, _)) = first {
            return Some((chunk, relay::relay_chunks(self.inner, members, &self.slot.post, job, chunk)));
        }
        let woken = relay::relay_gang(self.inner, members, job);
        self.slot.owner.wakes.add(woken as u64);
        None
    }

    fn pass_wakes_on(&self, desk: &Desk) {
        // SAFETY: this worker is inside the section that is open on `desk`.
        let members = unsafe { desk.members() };
        if !mutated!(SkipPassingOn) {
            let woken = self.inner.wake_some(members, WAKES_PASSED_ON);
            self.slot.owner.wakes.add(woken as u64);
        }
    }

    fn record(&self, kind: Kind, value: u64) {
        self.inner.record(kind, value);
    }
}
