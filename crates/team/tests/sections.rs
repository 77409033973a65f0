//! Sections through every entry, on every kind of token.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use threadteam::{Error, Exec, Pool, Refused, TeamExec};

fn nz(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().unwrap()
}

/// Runs `section` with a body that counts each index and asserts that each of `0..len` ran once.
fn each_once(len: usize, section: impl FnOnce(&(dyn Fn(usize) + Sync))) {
    let seen: Vec<AtomicUsize> = (0..len).map(|_| AtomicUsize::new(0)).collect();
    section(&|index| {
        seen[index].fetch_add(1, Ordering::Relaxed);
    });
    for (index, count) in seen.iter().enumerate() {
        assert_eq!(count.load(Ordering::Relaxed), 1, "index {index} of {len}");
    }
}

#[test]
fn for_ranges_covers_every_index_once_at_every_width_and_grain() {
    for threads in 1..=5 {
        let pool = pool(threads);
        for len in [0, 1, 2, 3, 7, 64, 1000] {
            for grain in [1, 2, 5, 999, 5000] {
                each_once(len, |count| {
                    Exec::new(&pool, threads).unwrap().for_ranges(len, nz(grain), |range| range.for_each(count));
                });
            }
        }
    }
}

#[test]
fn every_range_but_the_last_holds_at_least_the_grain() {
    let pool = pool(3);
    for (len, grain) in [(10, 3), (100, 7), (5, 10), (1, 1), (4096, 100)] {
        let ranges = std::sync::Mutex::new(Vec::new());
        Exec::new(&pool, 3).unwrap().for_ranges(len, nz(grain), |range| ranges.lock().unwrap().push(range));
        let mut ranges = ranges.into_inner().unwrap();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges[..ranges.len() - 1].iter().all(|range| range.len() >= grain), "{ranges:?}");
        assert_eq!(ranges.last().unwrap().end, len);
    }
}

#[test]
fn fork_gives_children_budgets_that_add_up() {
    for threads in 1..=6 {
        let pool = pool(threads);
        for jobs in 1..=8 {
            let sum = AtomicUsize::new(0);
            each_once(jobs, |count| {
                Exec::new(&pool, threads).unwrap().fork(jobs, |job, child| {
                    sum.fetch_add(child.budget().get(), Ordering::Relaxed);
                    count(job);
                });
            });
            let expected = if jobs <= threads { threads } else { jobs };
            assert_eq!(sum.into_inner(), expected, "{jobs} jobs on {threads}");
        }
    }
}

#[test]
fn nested_forks_run_every_leaf_once() {
    let pool = pool(4);
    each_once(4 * 8, |count| {
        Exec::new(&pool, 4).unwrap().fork(4, |outer, mut child| {
            child.reborrow().for_ranges(8, nz(1), |range| range.for_each(|inner| count(outer * 8 + inner)));
        });
    });
}

#[test]
fn team_tokens_run_every_entry_on_reserved_members() {
    let team = pool(4).into_team(4).unwrap();
    let mut exec = team.exec(4);
    assert!(exec.carries_team() && exec.can_broadcast());
    each_once(100, |count| exec.reborrow().for_ranges(100, nz(1), |range| range.for_each(count)));
    each_once(4, |count| exec.reborrow().broadcast(count).unwrap());
    each_once(2 * 50, |count| {
        exec.reborrow().fork(2, |job, child| {
            assert!(child.carries_team());
            assert_eq!(child.budget().get(), 2);
            child.for_ranges(50, nz(1), |range| range.for_each(|i| count(job * 50 + i)));
        });
    });
    each_once(9, |count| exec.reborrow().fork(9, |job, _| count(job)));
    drop(exec);
    assert_eq!(team.into_pool().width().get(), 4);
}

#[test]
fn fork_sized_validates_before_anything_runs() {
    let pool = pool(4);
    let ran = AtomicUsize::new(0);
    let run = |shares: &[usize]| {
        Exec::new(&pool, 4).unwrap().fork_sized(shares, |_, _| {
            ran.fetch_add(1, Ordering::Relaxed);
        })
    };
    assert_eq!(run(&[1, 0]), Err(Error::ZeroBudget));
    assert_eq!(run(&[3, 2]), Err(Error::SharesExceedBudget { budget: 4, sum: 5 }));
    assert_eq!(run(&[usize::MAX, 2]), Err(Error::SharesExceedBudget { budget: 4, sum: usize::MAX }));
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert_eq!(run(&[1, 3]), Ok(()));
    assert_eq!(run(&[]), Ok(()));
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

#[test]
fn fork_sized_children_have_the_given_budgets() {
    let team = pool(6).into_team(6).unwrap();
    for shares in [[1, 2, 3], [3, 1, 1], [4, 1, 1]] {
        team.exec(6)
            .fork_sized(&shares, |job, child| {
                assert_eq!(child.budget().get(), shares[job]);
                each_once(shares[job], |count| child.broadcast(count).unwrap());
            })
            .unwrap();
    }
}

#[test]
fn gang_participants_are_distinct_threads_that_run_at_once() {
    let pool = pool(4);
    let mut exec = Exec::new(&pool, 4).unwrap();
    let started = AtomicUsize::new(0);
    let threads = std::sync::Mutex::new(std::collections::HashSet::new());
    exec.team(|team| {
        team.run(|_, size| {
            threads.lock().unwrap().insert(std::thread::current().id());
            started.fetch_add(1, Ordering::SeqCst);
            while started.load(Ordering::SeqCst) < size {
                std::thread::yield_now();
            }
        });
    })
    .unwrap();
    assert_eq!(threads.into_inner().unwrap().len(), 4);
}

#[test]
fn a_share_is_run_once_by_every_participant_and_its_panic_reaches_the_caller() {
    struct Counts {
        ran: Vec<AtomicUsize>,
        fails: usize,
    }

    impl threadteam::Share for Counts {
        fn run(&self, index: usize, size: usize) {
            assert_eq!(size, self.ran.len());
            self.ran[index].fetch_add(1, Ordering::Relaxed);
            assert_ne!(index, self.fails, "share {index}");
        }
    }

    for width in [1, 4] {
        let pool = pool(width);
        let run = |fails| {
            let counts = Counts { ran: (0..width).map(|_| AtomicUsize::new(0)).collect(), fails };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                Exec::new(&pool, width).unwrap().team(|team| team.run_share(&counts)).unwrap();
            }));
            assert!(counts.ran.into_iter().all(|ran| ran.into_inner() == 1));
            outcome
        };
        assert!(run(width).is_ok());
        let panic = run(width - 1).unwrap_err();
        assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains(&format!("share {}", width - 1))));
    }
}

#[test]
fn barriers_order_the_phases_of_every_participant() {
    let pool = pool(4);
    let phase = AtomicUsize::new(0);
    Exec::new(&pool, 4)
        .unwrap()
        .team(|team| {
            team.run_with(|participant| {
                for round in 0..200 {
                    assert!(phase.load(Ordering::SeqCst) >= 4 * round);
                    phase.fetch_add(1, Ordering::SeqCst);
                    participant.barrier().unwrap();
                    assert!(phase.load(Ordering::SeqCst) >= 4 * (round + 1));
                }
            });
        })
        .unwrap();
    assert_eq!(phase.into_inner(), 800);
}

#[test]
fn splits_partition_the_team_and_their_children_run_at_once() {
    let pool = pool(5);
    let started = AtomicUsize::new(0);
    let run = |team: TeamExec<'_>| {
        team.split(&[2, 1, 2], |child, mut team| {
            started.fetch_add(1, Ordering::SeqCst);
            while started.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            assert_eq!(team.size().get(), [2, 1, 2][child]);
            each_once(team.size().get(), |count| team.reborrow().run(|index, _| count(index)));
            team.run_with(|participant| participant.barrier().unwrap());
        })
    };
    Exec::new(&pool, 5).unwrap().team(run).unwrap().unwrap();
    for sizes in [&[] as &[usize], &[0, 1], &[3, 3]] {
        let refused = Exec::new(&pool, 5).unwrap().team(|team| team.split(sizes, |_, _| panic!("must not run")));
        assert_eq!(refused, Ok(Err(Error::InvalidSplit)));
    }
}

#[test]
fn a_team_fork_with_more_children_than_participants_runs_each_once() {
    let pool = pool(3);
    each_once(17, |count| {
        Exec::new(&pool, 3).unwrap().team(|team| team.fork(17, |child, _| count(child))).unwrap();
    });
}

#[test]
fn a_panic_reaches_the_caller_after_everyone_has_left() {
    let pool = pool(3);
    for culprit in 0..12 {
        let inside = AtomicUsize::new(0);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Exec::new(&pool, 3).unwrap().for_ranges(12, nz(1), |range| {
                inside.fetch_add(1, Ordering::SeqCst);
                let fails = range.contains(&culprit);
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(!fails, "index {culprit}");
            });
        }));
        let message = *caught.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(message, format!("index {culprit}"));
        assert_eq!(inside.load(Ordering::SeqCst), 0);
        each_once(30, |count| {
            Exec::new(&pool, 3).unwrap().for_ranges(30, nz(1), |range| range.for_each(count));
        });
    }
}

#[test]
fn a_panic_of_one_participant_cancels_the_barriers_of_its_peers() {
    let pool = pool(3);
    for culprit in 0..3 {
        let cancelled = AtomicUsize::new(0);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Exec::new(&pool, 3).unwrap().team(|team| {
                team.run_with(|participant| {
                    participant.barrier().unwrap();
                    assert!(participant.index() != culprit, "culprit");
                    if participant.barrier().is_err() {
                        cancelled.fetch_add(1, Ordering::SeqCst);
                    }
                });
            })
        }));
        assert!(caught.is_err());
        assert_eq!(cancelled.into_inner(), 2);
    }
}

#[test]
fn a_participant_that_returns_without_a_barrier_of_its_peers_fails_the_section() {
    let pool = pool(3);
    for (culprit, met) in [(0, 0), (1, 0), (2, 0), (0, 2), (1, 2), (2, 2)] {
        let (passed, returned) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Exec::new(&pool, 3).unwrap().team(|team| {
                team.run_with(|participant| {
                    (0..met).for_each(|_| participant.barrier().unwrap());
                    if participant.index() == culprit {
                        returned.fetch_add(1, Ordering::SeqCst);
                    } else if participant.barrier().is_ok() {
                        passed.fetch_add(1, Ordering::SeqCst);
                    }
                });
            })
        }));
        let said = caught.expect_err("nobody may wait for ever").downcast::<String>().expect("a message");
        let reason = format!("number {}, but participant {culprit} returned without it", met + 1);
        assert!(said.contains(&reason), "{said}");
        assert_eq!((passed.into_inner(), returned.into_inner()), (0, 1));
        each_once(3, |count| Exec::new(&pool, 3).unwrap().broadcast(count).unwrap());
    }
}

#[test]
fn participants_may_return_after_their_last_barrier_while_peers_still_wait_there() {
    let pool = pool(3);
    for _ in 0..200 {
        Exec::new(&pool, 3).unwrap().team(|team| team.run_with(|participant| participant.barrier().unwrap())).unwrap();
    }
}

#[test]
fn a_cancelling_participant_releases_its_peers_without_a_panic() {
    let pool = pool(3);
    Exec::new(&pool, 3)
        .unwrap()
        .team(|team| {
            team.run_with(|participant| {
                if participant.index() == 1 {
                    participant.cancel();
                } else {
                    assert!(participant.barrier().is_err() && participant.is_cancelled());
                }
            });
        })
        .unwrap();
}

#[test]
fn several_callers_share_one_pool() {
    let pool = pool(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for len in 1..300 {
                    each_once(len, |count| {
                        Exec::new(&pool, 3).unwrap().for_ranges(len, nz(1), |range| range.for_each(count));
                    });
                }
            });
        }
    });
}

#[test]
fn fork_children_and_pool_workers_are_refused_a_broadcast() {
    let pool = pool(4);
    Exec::new(&pool, 4).unwrap().fork(2, |_, child| {
        assert!(!child.can_broadcast());
        assert_eq!(child.broadcast(|_| panic!("must not run")), Err(Refused::ForkChild));
    });
    Exec::new(&pool, 4).unwrap().fork(1, |_, child| {
        let child = child.limit(nz(2));
        assert_eq!(child.broadcast(|_| panic!("must not run")), Err(Refused::ForkChild));
    });
    Exec::new(&pool, 2)
        .unwrap()
        .broadcast(|index| {
            let exec = Exec::new(&pool, 2).unwrap();
            if index == 1 {
                assert_eq!(exec.broadcast(|_| panic!("must not run")), Err(Refused::CallerInPool));
            }
        })
        .unwrap();
}

#[test]
fn a_broadcast_of_one_runs_on_the_caller_also_for_children() {
    let pool = pool(2);
    Exec::new(&pool, 2).unwrap().fork(2, |_, child| {
        let own = std::thread::current().id();
        assert!(child.can_broadcast());
        child.broadcast(|index| assert_eq!((index, std::thread::current().id()), (0, own))).unwrap();
    });
}

#[test]
fn a_team_that_cannot_be_had_is_refused_and_leaves_nothing_claimed() {
    let pool = pool(2);
    let mut exec = Exec::new(&pool, 2).unwrap();
    let inner = exec.team(|_| Exec::new(&pool, 2).unwrap().team(|_| panic!("must not run"))).unwrap();
    assert_eq!(inner, Err(Refused::Unavailable));
    assert_eq!(exec.team(|team| team.size().get()), Ok(2));
    assert_eq!(pool.stats().refused, 1);
}

#[test]
fn one_thread_leads_a_team_at_a_time() {
    let team = pool(2).into_team(2).unwrap();
    let exec = team.exec(2);
    assert_eq!(team.try_exec(2).err(), Some(Refused::Busy));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(team.exec(2)))).is_err());
    drop(exec);
    assert!(team.try_exec(2).is_ok());
}

#[test]
fn a_serial_token_runs_everything_on_the_calling_thread() {
    let own = std::thread::current().id();
    let check = || assert_eq!(std::thread::current().id(), own);
    Exec::serial().for_ranges(100, nz(1), |_| check());
    Exec::serial().fork(3, |_, _| check());
    Exec::serial().broadcast(|_| check()).unwrap();
    Exec::serial().team(|team| team.run(|_, _| check())).unwrap();
}

#[test]
fn a_lazy_pool_starts_its_workers_at_first_use() {
    let pool = Pool::builder().threads(3).lazy(true).build().unwrap();
    assert_eq!(pool.resident_members(), 0);
    Exec::new(&pool, 3).unwrap().broadcast(|_| ()).unwrap();
    assert_eq!(pool.stats().gangs, 1);
}

#[test]
fn a_panic_in_a_child_team_reaches_the_caller_after_its_siblings_have_ended() {
    let pool = pool(4);
    for culprit in 0..2 {
        let ended = AtomicUsize::new(0);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Exec::new(&pool, 4).unwrap().team(|team| {
                team.split(&[2, 2], |child, team| {
                    team.run(|index, _| assert!(child != culprit || index == 0, "member of child {child}"));
                    ended.fetch_add(1, Ordering::SeqCst);
                })
            })
        }));
        assert_eq!(*caught.unwrap_err().downcast::<String>().unwrap(), format!("member of child {culprit}"));
        assert_eq!(ended.into_inner(), 1);
        each_once(4, |count| Exec::new(&pool, 4).unwrap().broadcast(count).unwrap());
    }
}

#[test]
fn a_section_of_another_pool_runs_on_the_caller_and_that_pools_workers() {
    let named = |name: &'static str| {
        let builder = Pool::builder().threads(2).thread_name(move |_| name.to_owned());
        builder.acquire_timeout(std::time::Duration::from_secs(10)).build().unwrap()
    };
    let (outer, inner) = (named("outer"), named("inner"));
    Exec::new(&outer, 2)
        .unwrap()
        .broadcast(|_| {
            let caller = std::thread::current().id();
            Exec::new(&inner, 2)
                .unwrap()
                .broadcast(|index| {
                    let own = std::thread::current();
                    assert!(if index == 0 { own.id() == caller } else { own.name() == Some("inner") });
                })
                .unwrap();
        })
        .unwrap();
}

#[test]
fn a_child_of_a_fork_may_reserve_free_workers() {
    let pool = pool(4);
    Exec::new(&pool, 4).unwrap().fork(2, |_, mut child| {
        // Its sibling's reservation may hold the only free workers for a while, but ends.
        each_once(2, |count| child.team(|team| team.run(|index, _| count(index))).unwrap());
    });
}
