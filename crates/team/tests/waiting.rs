//! How members, leaders and participants wait: seen through the pool's counters, not its clock.

mod common;

use common::wait_until;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use threadteam::{Exec, Pool, WaitOverride, WaitPolicy};

const NEVER: Duration = Duration::from_secs(100_000);

fn pool(threads: usize, spin: Duration) -> Pool {
    Pool::builder().threads(threads).idle_spin(spin).acquire_timeout(Duration::from_secs(30)).build().unwrap()
}

fn all_parked(pool: &Pool) -> bool {
    pool.resident_members() == 0
}

#[test]
fn idle_members_park_and_stay_parked() {
    let pool = pool(3, Duration::ZERO);
    wait_until("both workers to park", || all_parked(&pool));
    assert_eq!(pool.stats().parks, 2);
    Exec::new(&pool, 3).unwrap().broadcast(|_| ()).unwrap();
    wait_until("both workers to park again", || all_parked(&pool) && pool.stats().parks == 4);
    assert_eq!(pool.stats().entered, 2);
}

#[test]
fn a_pool_with_the_default_policy_parks_too() {
    let pool = Pool::builder().threads(2).build().unwrap();
    assert_eq!(pool.wait_policy(), WaitPolicy::DEFAULT);
    wait_until("the worker to park", || all_parked(&pool));
}

#[test]
fn a_gang_wakes_every_parked_member() {
    let pool = pool(5, Duration::ZERO);
    for _ in 0..50 {
        wait_until("all workers to park", || all_parked(&pool));
        let met = AtomicUsize::new(0);
        Exec::new(&pool, 5)
            .unwrap()
            .broadcast(|_| {
                met.fetch_add(1, Ordering::SeqCst);
                wait_until("the others", || met.load(Ordering::SeqCst) == 5);
            })
            .unwrap();
    }
    assert!(pool.stats().wakes >= 50);
}

#[test]
fn a_claimed_section_does_not_wait_for_parked_members() {
    let pool = pool(3, Duration::ZERO);
    wait_until("both workers to park", || all_parked(&pool));
    let own = std::thread::current().id();
    let foreign = AtomicUsize::new(0);
    Exec::new(&pool, 3).unwrap().fork(3, |_, _| {
        if std::thread::current().id() != own {
            foreign.fetch_add(1, Ordering::Relaxed);
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.sections, stats.chunks), (1, 3));
    assert_eq!(stats.claimed_back + stats.worker_chunks, 2);
    assert_eq!(foreign.load(Ordering::Relaxed) as u64, stats.worker_chunks);
}

#[test]
fn releasing_idle_members_ends_their_spin() {
    let pool = pool(3, NEVER);
    Exec::new(&pool, 3).unwrap().broadcast(|_| ()).unwrap();
    pool.release_idle();
    wait_until("both workers to park", || all_parked(&pool));
    Exec::new(&pool, 3).unwrap().broadcast(|_| ()).unwrap();
}

#[test]
fn the_override_of_a_reservation_governs_the_idle_interval_after_it() {
    let pool = Pool::builder().threads(2).idle_spin(NEVER).acquire_timeout(Duration::from_secs(30)).build().unwrap();
    let mut exec = Exec::new(&pool, 2).unwrap();
    let over = WaitOverride::new().idle_spin(Duration::ZERO);
    exec.team_with(over, |team| {
        assert_eq!(team.policy(), pool.wait_policy().with(over));
        team.run(|_, _| ());
    })
    .unwrap();
    wait_until("the worker to park", || all_parked(&pool));
}

#[test]
fn the_override_of_a_scope_ends_with_it() {
    let pool = pool(2, Duration::ZERO);
    let mut exec = Exec::new(&pool, 2).unwrap();
    exec.team(|mut team| {
        let longer = WaitOverride::new().idle_spin(NEVER);
        let scope = team.reborrow().with_wait(longer);
        assert_eq!(scope.policy().idle_spin(), NEVER);
        scope.split(&[2], |_, child| assert_eq!(child.policy().idle_spin(), NEVER)).unwrap();
        assert_eq!(team.policy().idle_spin(), Duration::ZERO);
        team.run(|_, _| ());
    })
    .unwrap();
    wait_until("the worker to park", || all_parked(&pool));
}

#[test]
fn an_override_changes_only_what_it_names() {
    let policy = WaitPolicy::new(Duration::from_millis(3), true);
    assert_eq!(policy.with(WaitOverride::new()), policy);
    let changed = policy.with(WaitOverride::new().idle_runs_rayon(false));
    assert_eq!((changed.idle_spin(), changed.idle_runs_rayon()), (Duration::from_millis(3), false));
    let changed = policy.with(WaitOverride::new().idle_spin(Duration::ZERO));
    assert_eq!((changed.idle_spin(), changed.idle_runs_rayon()), (Duration::ZERO, true));
}

#[test]
fn a_joining_leader_sleeps_and_calls_its_hook() {
    let pool = pool(2, NEVER);
    let calls = AtomicUsize::new(0);
    let hook = || {
        calls.fetch_add(1, Ordering::SeqCst);
    };
    Exec::new(&pool, 2)
        .unwrap()
        .with_wait_hook(&hook)
        .broadcast(|index| {
            if index == 1 {
                wait_until("two calls of the hook", || calls.load(Ordering::SeqCst) >= 2);
            }
        })
        .unwrap();
    assert!(pool.stats().leader_sleeps >= 2);
}

#[test]
fn a_hook_that_panics_cancels_the_section_and_reaches_the_caller_after_the_join() {
    let pool = pool(2, NEVER);
    let called = AtomicBool::new(false);
    let left = AtomicBool::new(false);
    let hook = || {
        if !called.swap(true, Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("interrupted"));
        }
    };
    let section = || {
        Exec::new(&pool, 2)
            .unwrap()
            .with_wait_hook(&hook)
            .broadcast(|index| {
                if index == 1 {
                    wait_until("the hook", || called.load(Ordering::SeqCst));
                    left.store(true, Ordering::SeqCst);
                }
            })
            .unwrap();
    };
    let payload = catch_unwind(AssertUnwindSafe(section)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"interrupted"));
    assert!(left.load(Ordering::SeqCst));
    Exec::new(&pool, 2).unwrap().for_ranges(10, NonZeroUsize::MIN, |_| ());
}

#[test]
fn a_barrier_can_be_stopped_from_outside() {
    let pool = pool(2, NEVER);
    let stopped = AtomicBool::new(false);
    Exec::new(&pool, 2)
        .unwrap()
        .team(|team| {
            team.run_with(|participant| {
                if participant.index() == 0 {
                    let stop = || {
                        stopped.store(true, Ordering::SeqCst);
                        true
                    };
                    assert!(participant.barrier_unless(&stop).is_err());
                } else {
                    wait_until("the stop", || participant.is_cancelled());
                    assert!(participant.barrier().is_err());
                }
            });
        })
        .unwrap();
    assert!(stopped.into_inner());
}

#[test]
fn more_participants_than_cpus_make_progress_at_barriers() {
    let threads = std::thread::available_parallelism().map_or(4, NonZeroUsize::get) * 4;
    let pool = pool(threads, Duration::ZERO);
    let arrived = AtomicUsize::new(0);
    Exec::new(&pool, threads)
        .unwrap()
        .team(|team| {
            team.run_with(|participant| {
                for round in 1..=20 {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    participant.barrier().unwrap();
                    assert!(arrived.load(Ordering::SeqCst) >= round * threads);
                }
            });
        })
        .unwrap();
}

#[test]
fn the_first_section_wakes_parked_members_at_its_start() {
    let pool = pool(2, Duration::ZERO);
    wait_until("the worker to park", || all_parked(&pool));
    let helped = AtomicBool::new(false);
    let own = std::thread::current().id();
    Exec::new(&pool, 2).unwrap().fork(2, |_, _| {
        if std::thread::current().id() == own {
            wait_until("the worker to take its job", || helped.load(Ordering::SeqCst));
        }
        helped.store(true, Ordering::SeqCst);
    });
    assert_eq!(pool.stats().wakes, 1);
}
