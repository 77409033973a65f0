//! What teams promise when they nest, fail, meet other callers, and change leaders.

mod common;
#[path = "common/meeting.rs"]
mod meeting;

use common::wait_until;
use meeting::Meeting;
use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use threadteam::{Exec, Pool, Refused, TeamExec};

fn nz(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(60)).build().unwrap()
}

/// Every worker of `pool` can be had: nobody kept one.
fn nobody_is_missing(pool: &Pool) {
    let meeting = Meeting::new();
    let width = pool.width().get();
    Exec::new(pool, width).unwrap().broadcast(|_| meeting.of(width)).unwrap();
}

/// The threads that ran something, each once.
#[derive(Default)]
struct Threads(Mutex<Vec<thread::ThreadId>>);

impl Threads {
    fn note(&self) {
        self.0.lock().unwrap().push(thread::current().id());
    }

    fn distinct(self) -> usize {
        let mut threads = self.0.into_inner().unwrap();
        let all = threads.len();
        threads.sort_by_key(|id| format!("{id:?}"));
        threads.dedup();
        assert_eq!(threads.len(), all, "a thread ran two shares that were there at once");
        all
    }
}

#[test]
fn children_of_a_split_split_and_fork_again_down_to_single_participants() {
    let pool = pool(8);
    let (threads, meeting) = (Threads::default(), Meeting::new());
    let quarter = |mut team: TeamExec<'_>| {
        assert_eq!(team.size().get(), 2);
        team.reborrow().run_with(|participant| participant.barrier().unwrap());
        team.fork(2, |_, child| {
            assert_eq!(child.size().get(), 1);
            threads.note();
            // Only eight participants that run at once can all be here.
            meeting.of(8);
        });
    };
    let halves =
        |team: TeamExec<'_>| team.split(&[4, 4], |_, half| half.split(&[2, 2], |_, team| quarter(team)).unwrap());
    Exec::new(&pool, 8).unwrap().team(halves).unwrap().unwrap();
    assert_eq!(threads.distinct(), 8);
}

#[test]
fn a_member_that_a_split_leaves_over_takes_part_in_the_next_section() {
    let pool = pool(4);
    let run = |mut team: TeamExec<'_>| {
        let seen = AtomicUsize::new(0);
        let count = |_, _| {
            seen.fetch_add(1, Ordering::SeqCst);
        };
        team.reborrow().split(&[1, 2], |_, child| child.run(count)).unwrap();
        assert_eq!(seen.into_inner(), 3);
        let meeting = Meeting::new();
        team.run(|_, size| meeting.of(size));
    };
    Exec::new(&pool, 4).unwrap().team(run).unwrap();
}

#[test]
fn tokens_of_a_team_nest_every_kind_of_section_within_their_members() {
    let team = pool(6).into_team(6).unwrap();
    let (threads, meeting) = (Threads::default(), Meeting::new());
    let mut exec = team.exec(6);
    exec.reborrow()
        .fork_sized(&[4, 2], |job, mut child| {
            assert!(child.carries_team() && child.can_broadcast());
            child.reborrow().for_ranges(9, nz(1), |_| ());
            let within = |team: TeamExec<'_>| {
                team.fork(2, |_, mut half| {
                    let size = half.size().get();
                    assert_eq!(size, [2, 1][job]);
                    half.exec()
                        .broadcast(|_| {
                            threads.note();
                            meeting.of(6);
                        })
                        .unwrap();
                });
            };
            child.team(within).unwrap();
        })
        .unwrap();
    assert_eq!(threads.distinct(), 6);
}

/// What a body at `depth` of a tree of every kind of section does; it fails at one of them.
fn descend(exec: &mut Exec<'_>, depth: usize, fails_at: usize) {
    if depth == fails_at {
        resume_unwind(Box::new(format!("depth {depth}")));
    }
    match depth {
        0 => exec.reborrow().fork(2, |_, mut child| descend(&mut child, 1, fails_at)),
        1 => exec
            .team(|team| team.split(&[1, 1], |_, mut half| descend(&mut half.exec(), 2, fails_at)).unwrap())
            .unwrap(),
        2 => exec.reborrow().fork_sized(&[1], |_, mut child| descend(&mut child, 3, fails_at)).unwrap(),
        3 => exec.reborrow().for_ranges(3, nz(1), |_| descend(&mut Exec::serial(), 4, fails_at)),
        4 => exec.reborrow().external(|_| descend(&mut Exec::serial(), 5, fails_at)),
        _ => {}
    }
}

fn message(payload: Box<dyn Any + Send>) -> String {
    *payload.downcast::<String>().expect("the payload of the body, not of the runtime")
}

#[test]
fn a_panic_at_any_depth_unwinds_through_every_level_and_frees_every_member() {
    let pool = pool(4);
    for fails_at in 0..=5 {
        let caught = catch_unwind(AssertUnwindSafe(|| descend(&mut Exec::new(&pool, 4).unwrap(), 0, fails_at)));
        assert_eq!(message(caught.unwrap_err()), format!("depth {fails_at}"));
        nobody_is_missing(&pool);
    }
    descend(&mut Exec::new(&pool, 4).unwrap(), 0, usize::MAX);
}

#[test]
fn a_panic_at_any_depth_gives_the_leadership_of_a_team_back() {
    let team = pool(4).into_team(4).unwrap();
    for fails_at in 0..=5 {
        let caught = catch_unwind(AssertUnwindSafe(|| descend(&mut team.exec(4), 0, fails_at)));
        assert_eq!(message(caught.unwrap_err()), format!("depth {fails_at}"));
        let meeting = Meeting::new();
        team.try_exec(4).expect("nobody leads now").broadcast(|_| meeting.of(4)).unwrap();
    }
}

#[test]
fn the_first_of_several_panics_reaches_the_caller() {
    let pool = pool(3);
    for first in 0..3 {
        let run = |team: TeamExec<'_>| {
            team.run_with(|participant| {
                let index = participant.index();
                wait_until("the first failure", || index == first || participant.is_cancelled());
                resume_unwind(Box::new(format!("participant {index}")));
            });
        };
        let caught = catch_unwind(AssertUnwindSafe(|| Exec::new(&pool, 3).unwrap().team(run)));
        assert_eq!(message(caught.unwrap_err()), format!("participant {first}"));
        nobody_is_missing(&pool);
    }
}

#[test]
fn a_failed_section_drops_the_chunks_that_have_not_started() {
    let pool = pool(2);
    for width in [1, 2] {
        let ran = AtomicUsize::new(0);
        let fail = || {
            Exec::new(&pool, width).unwrap().fork(1000, |_, _| {
                ran.fetch_add(1, Ordering::SeqCst);
                resume_unwind(Box::new("the first".to_owned()));
            });
        };
        assert_eq!(message(catch_unwind(AssertUnwindSafe(fail)).unwrap_err()), "the first");
        // At most the one that each participant was in.
        assert!((1..=width).contains(&ran.into_inner()));
    }
}

#[test]
fn several_teams_and_plain_tokens_of_one_pool_run_at_once_on_disjoint_workers() {
    let team = pool(9).into_team(3).unwrap();
    let (threads, meeting) = (Threads::default(), Meeting::new());
    let here = || {
        threads.note();
        meeting.of(9);
    };
    thread::scope(|scope| {
        // The persistent team: 3 participants. Two scopes of 2, and a broadcast of 2: each on its own caller.
        scope.spawn(|| team.exec(3).broadcast(|_| here()).unwrap());
        for _ in 0..2 {
            scope.spawn(|| {
                let mut exec = Exec::new(team.pool(), 2).unwrap();
                exec.team(|team| team.run(|_, _| here())).unwrap();
            });
        }
        scope.spawn(|| Exec::new(team.pool(), 2).unwrap().broadcast(|_| here()).unwrap());
    });
    assert_eq!(threads.distinct(), 9);
}

#[test]
fn a_plain_section_beside_teams_that_hold_everybody_runs_on_its_caller() {
    let team = pool(3).into_team(3).unwrap();
    let own = thread::current().id();
    let mut plain = Exec::new(team.pool(), 3).unwrap();
    plain.reborrow().for_ranges(10, nz(1), |_| assert_eq!(thread::current().id(), own));
    plain.fork(3, |_, _| assert_eq!(thread::current().id(), own));
}

#[test]
fn a_second_leader_waits_until_the_first_and_its_loans_are_gone() {
    let team = pool(2).into_team(2).unwrap();
    let leads = AtomicBool::new(true);
    thread::scope(|scope| {
        let mut first = team.exec(2);
        let second = scope.spawn(|| {
            let exec = team.exec(2);
            assert!(!leads.load(Ordering::SeqCst), "two threads lead at once");
            exec.broadcast(|_| ()).unwrap();
        });
        for _ in 0..100 {
            first.reborrow().broadcast(|_| ()).unwrap();
            thread::yield_now();
        }
        assert_eq!(team.try_exec(2).err(), Some(Refused::Busy));
        leads.store(false, Ordering::SeqCst);
        drop(first);
        second.join().unwrap();
    });
}

#[test]
fn a_consuming_entry_gives_the_leadership_back_when_it_returns() {
    let team = pool(2).into_team(2).unwrap();
    for _ in 0..3 {
        team.exec(2).for_ranges(4, nz(1), |_| ());
        team.exec(2).fork(2, |_, _| ());
        team.exec(2).broadcast(|_| ()).unwrap();
        assert_eq!(team.exec(2).external(|width| width.get()), 2);
    }
}

#[test]
fn callers_that_each_want_everybody_are_served_or_refused_and_leave_nobody_claimed() {
    let pool = Pool::builder().threads(3).acquire_timeout(Duration::from_micros(50)).build().unwrap();
    let (served, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let ran = AtomicBool::new(false);
                    let outcome = Exec::new(&pool, 3).unwrap().team(|team| {
                        ran.store(true, Ordering::SeqCst);
                        team.run(|_, size| assert_eq!(size, 3));
                    });
                    match outcome {
                        Ok(()) => served.fetch_add(1, Ordering::SeqCst),
                        Err(reason) => {
                            assert_eq!((reason, ran.into_inner()), (Refused::Unavailable, false));
                            refused.fetch_add(1, Ordering::SeqCst)
                        }
                    };
                }
            });
        }
    });
    assert_eq!(served.into_inner() + refused.into_inner(), 600);
    let mut exec = Exec::new(&pool, 3).unwrap();
    wait_until("the whole pool", || exec.team(|team| team.size().get()) == Ok(3));
}

#[test]
fn members_that_external_lends_serve_the_pools_other_tokens() {
    let team = pool(4).into_team(4).unwrap();
    for round in 0..3 {
        let (threads, meeting) = (Threads::default(), Meeting::new());
        let width = team.exec(4).external(|width| {
            let here = |_| {
                threads.note();
                // Only four threads that run at once can all be here.
                meeting.of(4);
            };
            Exec::new(team.pool(), width.get()).unwrap().broadcast(here).unwrap();
            width.get()
        });
        assert_eq!((width, threads.distinct()), (4, 4), "round {round}");
        // They are the team's again.
        let meeting = Meeting::new();
        team.exec(4).broadcast(|_| meeting.of(4)).unwrap();
    }
}

#[test]
fn external_of_a_narrower_token_lends_its_own_members_only() {
    let team = Pool::builder().threads(4).acquire_timeout(Duration::ZERO).build().unwrap().into_team(4).unwrap();
    team.exec(3).external(|width| {
        assert_eq!(width.get(), 3);
        assert_eq!(Exec::new(team.pool(), 4).unwrap().team(|_| ()), Err(Refused::Unavailable));
        assert_eq!(Exec::new(team.pool(), 3).unwrap().team(|_| ()), Ok(()));
    });
    assert_eq!(Exec::new(team.pool(), 2).unwrap().team(|_| ()), Err(Refused::Unavailable));
}

#[test]
fn children_of_a_team_lend_their_members_and_their_siblings_keep_theirs() {
    let team = pool(6).into_team(6).unwrap();
    let (lent, kept) = (Meeting::new(), Meeting::new());
    team.exec(6).fork(2, |job, child| {
        if job == 0 {
            child.external(|width| Exec::new(team.pool(), width.get()).unwrap().broadcast(|_| lent.of(3)).unwrap());
        } else {
            child.broadcast(|_| kept.of(3)).unwrap();
        }
    });
    let meeting = Meeting::new();
    team.exec(6).broadcast(|_| meeting.of(6)).unwrap();
}

#[test]
fn external_returns_when_a_lent_member_has_been_given_back() {
    let team = pool(2).into_team(2).unwrap();
    let (borrowed, end, done) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        team.exec(2).external(|_| {
            scope.spawn(|| {
                let hold = |index| {
                    borrowed.store(true, Ordering::SeqCst);
                    wait_until("the end of the borrower's section", || end.load(Ordering::SeqCst));
                    done.store(index == 1 || done.load(Ordering::SeqCst), Ordering::SeqCst);
                };
                Exec::new(team.pool(), 2).unwrap().broadcast(hold).unwrap();
            });
            wait_until("the borrower", || borrowed.load(Ordering::SeqCst));
            scope.spawn(|| {
                // Long enough for the lender to go to sleep over it.
                wait_until("the lender to sleep", || team.pool().stats().acquisitions.sleeps > 0);
                end.store(true, Ordering::SeqCst);
            });
        });
        assert!(end.load(Ordering::SeqCst));
        let meeting = Meeting::new();
        team.exec(2).broadcast(|_| meeting.of(2)).unwrap();
    });
}

#[test]
fn a_library_that_panics_in_external_gives_the_members_back() {
    let team = pool(3).into_team(3).unwrap();
    let failing = || team.exec(3).external(|_| resume_unwind(Box::new("outside".to_owned())));
    assert_eq!(message(catch_unwind(AssertUnwindSafe(failing)).unwrap_err()), "outside");
    let meeting = Meeting::new();
    team.exec(3).broadcast(|_| meeting.of(3)).unwrap();
}

#[test]
fn the_waiting_policy_of_a_team_survives_its_borrowers() {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return; // Of more participants than CPUs no one spins for long.
    }
    let spin = Duration::from_secs(100_000);
    let team = Pool::builder().threads(2).idle_spin(Duration::ZERO).acquire_timeout(Duration::from_secs(60));
    let over = threadteam::WaitOverride::new().idle_spin(spin);
    let team = team.build().unwrap().into_team_with(2, over).unwrap();
    team.exec(2).broadcast(|_| ()).unwrap();
    team.exec(2).external(|_| {
        wait_until("the lent member to sleep, as the pool's do", || {
            Exec::new(team.pool(), 2).unwrap().broadcast(|_| ()).unwrap();
            team.pool().resident_members() == 0
        });
    });
    team.exec(2).broadcast(|_| ()).unwrap();
    let parks = team.pool().stats().parks;
    for _ in 0..1000 {
        thread::yield_now();
        assert_eq!(team.pool().stats().parks, parks);
    }
}
