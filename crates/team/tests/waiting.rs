//! How members, leaders and participants wait: seen through the pool's counters, not its clock.

mod common;

use common::wait_until;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use threadteam::{Exec, Pool, Refused, WaitOverride, WaitPolicy};

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
fn the_override_of_a_child_leaves_the_members_of_its_siblings_alone() {
    let pool = pool(3, NEVER);
    let mut exec = Exec::new(&pool, 3).unwrap();
    exec.team(|mut team| {
        let sleepy = WaitOverride::new().idle_spin(Duration::ZERO);
        team.reborrow()
            .split(&[2, 1], |part, child| {
                if part == 0 {
                    let mut scope = child.with_wait(sleepy);
                    scope.reborrow().run(|_, _| ());
                    wait_until("the member of the child to park", || pool.stats().parks >= 1);
                } else {
                    assert_eq!(child.policy(), pool.wait_policy());
                }
            })
            .unwrap();
        assert_eq!(team.policy(), pool.wait_policy());
        team.run(|_, _| ());
    })
    .unwrap();
    // Three on fewer CPUs are a crowd, in which any of them may give way.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 3) {
        assert_eq!(pool.stats().parks, 1);
    }
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
        ControlFlow::Continue(())
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
        ControlFlow::Continue(())
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

#[test]
fn the_override_of_a_scope_governs_the_waits_between_its_sections() {
    let pool = pool(2, NEVER);
    let mut exec = Exec::new(&pool, 2).unwrap();
    exec.team(|mut team| {
        let mut sleepy = team.reborrow().with_wait(WaitOverride::new().idle_spin(Duration::ZERO));
        sleepy.reborrow().run(|_, _| ());
        wait_until("the worker to park inside the scope", || all_parked(&pool));
    })
    .unwrap();
}

#[test]
fn a_persistent_team_hands_its_policy_to_its_tokens() {
    let over = WaitOverride::new().idle_spin(Duration::ZERO).park_after(Duration::from_millis(3));
    let team = pool(2, NEVER).into_team_with(2, over).unwrap();
    assert_eq!(team.policy(), WaitPolicy::new(NEVER, false).with(over));
    team.exec(2).team(|scope| assert_eq!(scope.policy(), team.policy())).unwrap();
    team.exec(2).broadcast(|_| ()).unwrap();
    wait_until("the member to park", || team.pool().resident_members() == 0);
}

#[test]
fn a_reservation_without_an_override_does_not_inherit_that_of_an_earlier_one() {
    let pool = pool(2, Duration::ZERO);
    let mut exec = Exec::new(&pool, 2).unwrap();
    exec.team_with(WaitOverride::new().idle_spin(NEVER), |team| team.run(|_, _| ())).unwrap();
    exec.team(|team| team.run(|_, _| ())).unwrap();
    wait_until("the worker to park", || all_parked(&pool));
}

#[test]
fn what_park_after_says_holds_for_idle_members_unless_idle_spin_says_otherwise() {
    let ms = Duration::from_millis;
    let both = WaitPolicy::DEFAULT.with(WaitOverride::new().park_after(ms(3)).spin(ms(1)));
    assert_eq!((both.park_after(), both.idle_spin(), both.spin()), (ms(3), ms(3), ms(1)));
    assert!(!both.is_adaptive());
    let apart = WaitPolicy::DEFAULT.with(WaitOverride::new().park_after(ms(3)).idle_spin(ms(2)));
    assert_eq!((apart.park_after(), apart.idle_spin()), (ms(3), ms(2)));
    let adaptive = both.with(WaitOverride::new().adaptive());
    assert!(adaptive.is_adaptive());
    assert_eq!((adaptive.idle_spin(), adaptive.park_after()), (WaitPolicy::DEFAULT.idle_spin(), ms(3)));
    assert_eq!(WaitPolicy::DEFAULT.with(WaitOverride::all_of(both)), both);
}

#[test]
fn a_member_parks_by_its_own_clock_while_others_work() {
    let pool = pool(3, Duration::from_millis(2));
    Exec::new(&pool, 3).unwrap().broadcast(|_| ()).unwrap();
    wait_until("the member without work to park", || {
        Exec::new(&pool, 2).unwrap().broadcast(|_| ()).unwrap();
        pool.resident_members() == 1
    });
}

#[test]
fn a_release_during_a_share_is_obeyed_after_it() {
    let pool = pool(2, NEVER);
    Exec::new(&pool, 2)
        .unwrap()
        .broadcast(|index| {
            if index == 1 {
                pool.release_idle();
            }
        })
        .unwrap();
    wait_until("the worker to park", || all_parked(&pool));
}

#[test]
fn a_caller_that_waits_for_members_calls_its_hook_which_may_give_up() {
    let pool = pool(2, NEVER);
    let calls = AtomicUsize::new(0);
    let hook = || match calls.fetch_add(1, Ordering::SeqCst) {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    Exec::new(&pool, 2)
        .unwrap()
        .team(|_held| {
            let refused = Exec::new(&pool, 2).unwrap().with_wait_hook(&hook).team(|_| ());
            assert_eq!(refused, Err(Refused::Interrupted));
            let refused = Exec::new(&pool, 2).unwrap().with_wait_hook(&hook).broadcast(|_| ());
            assert_eq!(refused, Err(Refused::Interrupted));
        })
        .unwrap();
    assert_eq!(calls.into_inner(), 3);
    assert_eq!(pool.stats().refused_interrupted, 2);
    Exec::new(&pool, 2).unwrap().team(|team| team.run(|_, _| ())).unwrap();
}

#[test]
fn a_move_into_a_team_can_be_given_up() {
    let pool = pool(2, NEVER);
    std::mem::forget(Exec::new(&pool, 2).unwrap().reserve(WaitOverride::new()).unwrap());
    let error = pool.into_team_unless(2, WaitOverride::new(), &|| ControlFlow::Break(())).unwrap_err();
    assert_eq!(error.reason(), Refused::Interrupted);
    assert_eq!(error.into_pool().width().get(), 2);
}

#[test]
fn a_caller_asleep_is_served_when_the_members_are_given_back() {
    let pool = pool(2, NEVER);
    std::thread::scope(|scope| {
        let mut exec = Exec::new(&pool, 2).unwrap();
        let held = exec.reserve(WaitOverride::new()).unwrap();
        let other = scope.spawn(|| Exec::new(&pool, 2).unwrap().broadcast(|_| ()));
        wait_until("the other caller to sleep", || pool.stats().acquisitions.sleeps > 0);
        drop(held);
        assert_eq!(other.join().unwrap(), Ok(()));
    });
}

#[test]
fn refusals_are_counted_by_reason() {
    let pool = Pool::builder().threads(3).acquire_timeout(Duration::ZERO).build().unwrap();
    Exec::new(&pool, 3)
        .unwrap()
        .fork_sized(&[2, 1], |job, child| assert_eq!(child.broadcast(|_| ()).is_err(), job == 0))
        .unwrap();
    Exec::new(&pool, 3)
        .unwrap()
        .team(|_held| assert_eq!(Exec::new(&pool, 2).unwrap().broadcast(|_| ()), Err(Refused::Unavailable)))
        .unwrap();
    let team = pool.into_team(3).unwrap();
    let lead = team.exec(3);
    assert!(team.try_exec(1).is_err());
    let stats = team.pool().stats();
    assert_eq!((stats.refused_fork_child, stats.refused_unavailable, stats.refused_busy), (1, 1, 1));
    assert_eq!((stats.refused, stats.refused_caller_in_pool), (3, 0));
    drop(lead);
}

#[test]
fn chunks_taken_back_from_sleepers_are_told_from_those_of_late_workers() {
    let pool = pool(2, Duration::ZERO);
    let exec = || Exec::new(&pool, 2).unwrap().expecting(Duration::from_nanos(1));
    // A leader that lost its CPU between its post and its look at the worker's chunk has reason to wake the worker.
    wait_until("a section that wakes nobody", || {
        wait_until("the worker to park", || all_parked(&pool));
        let before = pool.stats();
        exec().for_ranges(2, NonZeroUsize::MIN, |_| ());
        let after = pool.stats();
        let woke = after.wakes > before.wakes;
        if !woke {
            assert_eq!(after.claimed_back - before.claimed_back, 1);
            assert_eq!(after.claimed_back_asleep - before.claimed_back_asleep, 1);
            assert_eq!(after.entered, before.entered);
        }
        !woke
    });
}

#[test]
fn every_kind_of_wait_counts_its_polls_and_sleeps() {
    let pool = pool(2, Duration::from_millis(1));
    Exec::new(&pool, 2)
        .unwrap()
        .team(|mut team| {
            let asleep = || pool.stats().joins.sleeps > 0;
            team.reborrow().run(|index, _| {
                if index == 1 {
                    wait_until("the leader to sleep", asleep)
                }
            });
            let asleep = || pool.stats().barriers.sleeps > 0;
            team.run_with(|participant| {
                if participant.index() == 1 {
                    wait_until("the leader to sleep at the barrier", asleep);
                }
                participant.barrier().unwrap();
            });
        })
        .unwrap();
    wait_until("the worker to park", || all_parked(&pool));
    let stats = pool.stats();
    for waits in [stats.idle, stats.joins, stats.barriers] {
        assert!(waits.spins >= 64 && waits.spins % 64 == 0 && waits.sleeps > 0, "{stats:?}");
    }
    assert_eq!((stats.parks, stats.leader_sleeps), (stats.idle.sleeps, stats.joins.sleeps));
    assert_eq!(stats.spins, stats.idle.spins + stats.joins.spins + stats.barriers.spins + stats.acquisitions.spins);
}

#[test]
fn a_policy_with_a_spin_time_yields_before_it_sleeps() {
    let policy =
        WaitPolicy::DEFAULT.with(WaitOverride::new().spin(Duration::ZERO).park_after(Duration::from_millis(1)));
    let pool = Pool::builder().threads(2).wait(policy).acquire_timeout(Duration::from_secs(30)).build().unwrap();
    Exec::new(&pool, 2).unwrap().broadcast(|_| ()).unwrap();
    wait_until("the worker to park", || all_parked(&pool));
    assert!(pool.stats().idle.yields > 0);
}
