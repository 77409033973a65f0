//! Loom models of the real leader, worker, beds and barriers.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p threadteam-team --lib models`
//!
//! Every wait goes straight to its sleep and no time passes, so a wake-up that is lost is a deadlock that loom reports.
//! The bodies read a cell that the leader wrote before the section and write one that it reads after, so a missing edge
//! between post and entry, or between leave and join, is a data race that loom reports. Each mutation leaves one step out
//! and must make its model fail. `THREADTEAM_MODELS=deep` adds what takes minutes.

use crate::domains::Reach;
use crate::exec::erase_share;
use crate::free::Claim;
use crate::inner::Inner;
use crate::policy::WaitPolicy;
use crate::recorder::Current;
use crate::section::{Chunks, Leader};
use crate::sync::Mutation;
use crate::trace::Ring;
use crate::{worker, Participant};
use loom::cell::UnsafeCell;
use loom::thread;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Explores `model` with at most `preemptions` switches away from a thread that could go on.
fn explore(preemptions: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// The model holds as it is and fails with each of `mutations`.
///
/// A model without one of its steps may do anything, also jump to an address that was never stored: each mutation runs in
/// a process of its own.
pub(crate) fn holds_and_notices(preemptions: usize, mutations: &[Mutation], model: fn()) {
    let since = Instant::now();
    explore(preemptions, model);
    if std::env::var_os("THREADTEAM_MUTATION").is_some() {
        return;
    }
    println!("holds ({:.1} s)", since.elapsed().as_secs_f64());
    let thread = std::thread::current();
    let test = thread.name().expect("the test harness names the threads of tests");
    for mutation in mutations {
        let since = Instant::now();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env("THREADTEAM_MUTATION", format!("{mutation:?}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        let why = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1).unwrap_or("a crash");
        assert!(!child.status.success(), "no execution fails with {mutation:?}");
        println!("  {mutation:?}: {} ({:.1} s)", &why[..why.len().min(100)], since.elapsed().as_secs_f64());
    }
}

/// A pool with `workers` running workers, which a model ends itself.
struct Running {
    inner: Arc<Inner>,
    threads: Vec<thread::JoinHandle<()>>,
    members: Vec<u16>,
}

impl Running {
    fn new(workers: usize) -> Self {
        Self::posting_to(crate::relay::FAN, workers)
    }

    /// Sections are relayed: every participant posts to at most one other.
    fn relaying(workers: usize) -> Self {
        Self::posting_to(1, workers)
    }

    fn posting_to(fan: usize, workers: usize) -> Self {
        crate::relay::MODEL_FAN.with(|model| model.set(fan));
        let inner = Arc::new(Inner::new(workers, WaitPolicy::DEFAULT, Duration::ZERO));
        inner.settings.ready.store(crate::fork::generation() + 1, std::sync::atomic::Ordering::Relaxed);
        let threads = (0..workers)
            .map(|index| {
                let inner = Arc::clone(&inner);
                thread::spawn(move || worker::run(&inner, index, || (), || ()))
            })
            .collect();
        Running { inner, threads, members: (0..workers as u16).collect() }
    }

    fn leader(&self, estimate: u64) -> Leader<'_> {
        Leader { inner: &self.inner, hook: None, wait: &WaitPolicy::DEFAULT, estimate }
    }

    fn end(self) {
        self.inner.stop();
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// A cell per chunk or participant, checked by loom for races.
struct Cells(Vec<UnsafeCell<u32>>);

// SAFETY: loom checks every access for races.
unsafe impl Sync for Cells {}

impl Cells {
    fn new(count: usize) -> Self {
        Cells((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, at: usize) {
        // SAFETY: loom reports a racing access.
        self.0[at].with_mut(|cell| unsafe { *cell += 1 });
    }

    fn get(&self, at: usize) -> u32 {
        // SAFETY: loom reports a racing access.
        self.0[at].with(|cell| unsafe { *cell })
    }
}

/// One claimed section of `chunks` chunks, each run once, all visible afterwards.
fn claimed(running: &Running, chunks: usize, estimate: u64) {
    claimed_on(&running.inner, &running.members, chunks, estimate);
}

fn claimed_on(inner: &Inner, members: &[u16], chunks: usize, estimate: u64) {
    let before = Cells::new(1);
    let seen = Cells::new(chunks);
    before.add(0);
    let body = |start: usize, stop: usize| {
        assert_eq!(before.get(0), 1);
        (start..stop).for_each(|chunk| seen.add(chunk));
    };
    let (call, data) = erase_share(&body);
    let leader = Leader { inner, hook: None, wait: &WaitPolicy::DEFAULT, estimate };
    // SAFETY: `body` outlives the section; the caller is the only claimant of the members.
    unsafe { leader.claimed(members, Chunks::of(chunks, chunks), call, data) };
    (0..chunks).for_each(|chunk| assert_eq!(seen.get(chunk), 1, "chunk {chunk}"));
}

/// One gang section: every participant once, all visible afterwards.
fn gang(running: &Running) {
    let size = running.members.len() + 1;
    let before = Cells::new(1);
    let seen = Cells::new(size);
    before.add(0);
    let body = |index: usize, _size: usize| {
        assert_eq!(before.get(0), 1);
        seen.add(index);
    };
    let (call, data) = erase_share(&body);
    // SAFETY: as in `claimed_on`.
    unsafe { running.leader(0).gang(&running.members, call, data) };
    (0..size).for_each(|index| assert_eq!(seen.get(index), 1, "participant {index}"));
}

#[test]
fn a_claimed_section_runs_each_chunk_once_and_shows_its_writes() {
    holds_and_notices(3, &[Mutation::EnterByStore, Mutation::RelaxedPost, Mutation::RelaxedJoin], || {
        let running = Running::new(1);
        claimed(&running, 2, u64::MAX);
        running.end();
    });
}

#[test]
fn a_section_that_looks_like_the_last_one_is_not_taken_for_it() {
    holds_and_notices(3, &[], || {
        let running = Running::new(1);
        claimed(&running, 2, u64::MAX);
        claimed(&running, 2, 0);
        running.end();
    });
}

#[test]
fn stealing_participants_take_each_chunk_once() {
    holds_and_notices(3, &[], || {
        let running = Running::new(1);
        claimed(&running, 4, u64::MAX);
        running.end();
    });
}

#[test]
fn two_workers_and_the_leader_take_each_chunk_once() {
    holds_and_notices(1, &[], || {
        let running = Running::new(2);
        claimed(&running, 3, u64::MAX);
        running.end();
    });
}

#[test]
fn a_gang_wakes_a_member_that_is_on_its_way_to_sleep() {
    let mutations = [
        Mutation::SkipRecheck,
        Mutation::SkipParkFence,
        Mutation::SkipPostFence,
        Mutation::SkipBedStore,
        Mutation::RelaxedParkedBit,
        Mutation::LeaveByStore,
        Mutation::AnnounceOnce,
    ];
    holds_and_notices(3, &mutations, || {
        let running = Running::new(1);
        gang(&running);
        running.end();
    });
}

#[test]
fn a_gang_after_a_gang_finds_its_member_again() {
    holds_and_notices(3, &[], || {
        let running = Running::new(1);
        gang(&running);
        gang(&running);
        running.end();
    });
}

#[test]
fn woken_members_wake_the_rest_of_a_gang() {
    // With three threads the second preemption takes minutes, and only with it the mutations show.
    let deep = std::env::var_os("THREADTEAM_MODELS").is_some_and(|how| how == "deep");
    let mutations = [Mutation::CountEveryWake, Mutation::RelaxedUnpark, Mutation::SkipPassingOn];
    let (preemptions, mutations) = if deep { (2, &mutations[..]) } else { (1, &[][..]) };
    holds_and_notices(preemptions, mutations, || {
        let running = Running::new(2);
        gang(&running);
        running.end();
    });
}

#[test]
fn a_barrier_wakes_the_participant_that_went_to_sleep_first() {
    let mutations = [
        Mutation::SkipBarrierFence,
        Mutation::SkipBarrierSleepFence,
        Mutation::SkipBarrierRecheck,
        Mutation::SkipBarrierWake,
    ];
    holds_and_notices(3, &mutations, || {
        let running = Running::new(1);
        let cells = Cells::new(2);
        let tag = running.inner.next_barrier_tag();
        let body = |index: usize, _size: usize| {
            cells.add(index);
            Participant::new(Some((&running.inner, &running.members)), index, tag, &WaitPolicy::DEFAULT)
                .barrier()
                .unwrap();
            assert_eq!(cells.get(1 - index), 1);
        };
        let (call, data) = erase_share(&body);
        // SAFETY: as in `claimed_on`.
        unsafe { running.leader(0).gang(&running.members, call, data) };
        running.end();
    });
}

#[test]
fn a_leader_that_sleeps_at_its_join_is_woken_by_the_leave() {
    let mutations = [Mutation::LeaveByStore, Mutation::AnnounceOnce, Mutation::SkipLeaderBedStore];
    holds_and_notices(4, &mutations, || {
        let running = Running::new(1);
        claimed(&running, 2, u64::MAX);
        running.end();
    });
}

#[test]
fn two_callers_share_one_worker_through_the_free_mask() {
    /// A section on the worker if it is free, else alone.
    fn call(inner: &Arc<Inner>) {
        let mut claim = Claim::empty();
        inner.claim(Reach::ANYWHERE, 1, &mut claim);
        if claim.ids().is_empty() {
            return;
        }
        claimed_on(inner, claim.ids(), 2, u64::MAX);
        inner.free.release(claim.ids());
    }
    holds_and_notices(1, &[Mutation::RelaxedClaim, Mutation::RelaxedRelease, Mutation::ClaimByStore], || {
        let running = Running::new(1);
        running.inner.free.release(&running.members);
        let inner = Arc::clone(&running.inner);
        let other = thread::spawn(move || call(&inner));
        call(&running.inner);
        other.join().unwrap();
        assert_eq!(running.inner.free.count(), 1);
        running.end();
    });
}

#[test]
fn a_caller_that_sleeps_for_a_worker_is_woken_when_it_is_given_back() {
    let mutations = [Mutation::RelaxedRelease, Mutation::SkipCallerMeeting, Mutation::SkipCallerRecheck];
    holds_and_notices(3, &mutations, || {
        let inner = Arc::new(Inner::new(1, WaitPolicy::DEFAULT, Duration::MAX));
        let other = {
            let inner = Arc::clone(&inner);
            thread::spawn(move || inner.release(&[0]))
        };
        let claim = inner.acquire(Reach::ANYWHERE, 1, &WaitPolicy::DEFAULT, None).ok().unwrap();
        assert_eq!(claim.ids(), [0]);
        other.join().unwrap();
    });
}

#[test]
fn a_lender_gets_its_member_back_as_the_borrower_left_it() {
    let mutations =
        [Mutation::RelaxedClaim, Mutation::RelaxedRelease, Mutation::SkipCallerMeeting, Mutation::SkipCallerRecheck];
    holds_and_notices(3, &mutations, || {
        let inner = Arc::new(Inner::new(1, WaitPolicy::DEFAULT, Duration::MAX));
        let slot = Arc::new(Cells::new(1));
        inner.release(&[0]);
        let borrower = {
            let (inner, slot) = (Arc::clone(&inner), Arc::clone(&slot));
            thread::spawn(move || {
                let mut claim = Claim::empty();
                inner.claim(Reach::ANYWHERE, 1, &mut claim);
                if !claim.ids().is_empty() {
                    slot.add(0);
                    inner.release(claim.ids());
                }
            })
        };
        inner.recall(&[0], &WaitPolicy::DEFAULT, None);
        slot.add(0);
        assert!(!inner.free.has(0));
        borrower.join().unwrap();
    });
}

#[test]
fn a_panic_on_a_worker_releases_the_barrier_and_reaches_the_leader() {
    holds_and_notices(2, &[Mutation::SkipCancelWake], || {
        let running = Running::new(1);
        let tag = running.inner.next_barrier_tag();
        let body = |index: usize, _size: usize| {
            if index == 1 {
                resume_unwind(Box::new(7u32));
            }
            assert!(Participant::new(Some((&running.inner, &running.members)), index, tag, &WaitPolicy::DEFAULT)
                .barrier()
                .is_err());
        };
        let (call, data) = erase_share(&body);
        // SAFETY: as in `claimed_on`.
        let section = || unsafe { running.leader(0).gang(&running.members, call, data) };
        let payload = catch_unwind(AssertUnwindSafe(section)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&7u32));
        gang(&running);
        running.end();
    });
}

#[test]
fn a_captain_and_its_group_take_each_chunk_once() {
    // As for the wakes: the mutations show at the second preemption, which takes minutes.
    let deep = std::env::var_os("THREADTEAM_MODELS").is_some_and(|how| how == "deep");
    let mutations = [Mutation::CedeByStore, Mutation::LeaveOpenShares, Mutation::JoinBackwards];
    let (preemptions, mutations) = if deep { (2, &mutations[..]) } else { (1, &[][..]) };
    holds_and_notices(preemptions, mutations, || {
        let running = Running::relaying(2);
        claimed(&running, 3, u64::MAX);
        running.end();
    });
}

#[test]
fn a_captain_of_a_gang_wakes_its_group() {
    holds_and_notices(1, &[Mutation::SkipRelayLook, Mutation::SkipPostFence, Mutation::JoinBackwards], || {
        let running = Running::relaying(2);
        gang(&running);
        running.end();
    });
}

#[test]
fn a_captain_that_panics_leaves_no_share_of_its_group_open() {
    let deep = std::env::var_os("THREADTEAM_MODELS").is_some_and(|how| how == "deep");
    let (preemptions, mutations) = if deep { (2, &[Mutation::SkipRelayDrain][..]) } else { (1, &[][..]) };
    holds_and_notices(preemptions, mutations, || {
        let running = Running::relaying(2);
        let body = |start: usize, _stop: usize| {
            if start == 1 {
                resume_unwind(Box::new(7u32));
            }
        };
        let (call, data) = erase_share(&body);
        // SAFETY: as in `claimed_on`.
        let section = || unsafe { running.leader(u64::MAX).claimed(&running.members, Chunks::of(3, 3), call, data) };
        let payload = catch_unwind(AssertUnwindSafe(section)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&7u32));
        running.end();
    });
}

/// What a trace is to its pool: something that threads use and that is freed.
struct Freed(UnsafeCell<u32>);

// SAFETY: loom checks every access for races.
unsafe impl Sync for Freed {}
// SAFETY: as above.
unsafe impl Send for Freed {}

impl Drop for Freed {
    fn drop(&mut self) {
        // SAFETY: loom reports a use that this does not come after.
        self.0.with_mut(|cell| unsafe { *cell = 0 });
    }
}

#[test]
fn a_replaced_trace_is_freed_only_when_nobody_records_into_it() {
    holds_and_notices(3, &[Mutation::SkipTraceCount, Mutation::RelaxedTraceCount], || {
        let current = Arc::new(Current::none());
        current.set(Some(Arc::new(Freed(UnsafeCell::new(1)))));
        let other = Arc::clone(&current);
        let recorder = thread::spawn(move || {
            if let Some(trace) = other.get(|| 0) {
                // SAFETY: loom reports a racing access.
                assert_eq!(trace.0.with(|cell| unsafe { *cell }), 1);
            }
        });
        current.set(None);
        recorder.join().unwrap();
        current.set(None);
    });
}

#[test]
fn an_event_is_read_whole_or_not_at_all() {
    holds_and_notices(3, &[Mutation::SkipTraceStamp], || {
        let ring = Arc::new(Ring::new());
        ring.push(1, 1, 1);
        let other = Arc::clone(&ring);
        let writer = thread::spawn(move || other.push(1, 2, 2));
        for at in 0..2 {
            if let Some((ns, what)) = ring.read(1, at) {
                assert_eq!((ns, what), (at as u64 + 1, at as u64 + 1));
            }
        }
        writer.join().unwrap();
        assert_eq!((ring.read(1, 1), ring.lost(1)), (Some((2, 2)), 1));
    });
}
