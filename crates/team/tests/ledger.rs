//! No token, at any depth, has more tasks at once than its budget.

mod common;
#[path = "common/meeting.rs"]
mod meeting;

use common::wait_until;
use meeting::Meeting;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use threadteam::{ledger, Exec, Pool, TeamExec, WaitOverride};

fn nz(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(60)).build().unwrap()
}

/// Nothing runs on `root` now, nothing below it exceeded its budget, and at most `budget` tasks ran at once.
fn check(root: u64, budget: usize) {
    assert_eq!(ledger::exceeded(root), []);
    assert_eq!(ledger::live(root), 0);
    let most = ledger::max_live(root);
    assert!((1..=budget).contains(&most), "{most} tasks at once on {:?}, a budget of {budget}", ledger::name(root));
}

/// Forks, loops and broadcasts three levels deep.
fn spread(mut exec: Exec<'_>, depth: usize) {
    exec.reborrow().for_ranges(7, nz(1), |_| std::thread::yield_now());
    let _ = exec.reborrow().broadcast(|_| std::thread::yield_now());
    exec.reborrow().limit(nz(2)).for_ranges(5, nz(1), |_| std::thread::yield_now());
    if depth > 0 {
        exec.reborrow().fork(5, |_, child| spread(child, depth - 1));
        exec.fork(2, |_, child| spread(child, depth - 1));
    }
}

/// Splits, forks and barriers three levels deep.
fn spread_team(mut team: TeamExec<'_>, depth: usize) {
    team.reborrow().run(|_, _| std::thread::yield_now());
    team.reborrow().run_with(|participant| participant.barrier().unwrap());
    spread(team.exec(), depth.min(1));
    if depth > 0 {
        let size = team.size().get();
        team.reborrow()
            .split(&[1, size - size.min(2) + 1][..size.min(2)], |_, child| spread_team(child, depth - 1))
            .unwrap();
        team.fork(size + 1, |_, child| spread_team(child, depth - 1));
    }
}

#[test]
fn forks_over_cache_domains_stay_within_the_budget_at_every_depth() {
    // Two domains, but on a machine with one CPU.
    let domains = (0..1024).map(|cpu| [cpu]).filter(|&cpu| Pool::builder().domains([cpu]).build().is_ok()).take(2);
    let pool = Pool::builder().domains(domains).acquire_timeout(Duration::from_secs(60)).build().unwrap();
    let budget = pool.width().get();
    for _ in 0..20 {
        let mut exec = Exec::new(&pool, budget).unwrap();
        let root = exec.ledger_root().unwrap();
        exec.reborrow().fork(2, |_, child| spread(child, 1));
        exec.reborrow().fork_sized(&[1, 1][..budget], |_, child| spread(child, 1)).unwrap();
        exec.team(|team| team.fork(2, |_, child| spread_team(child, 1))).unwrap();
        drop(exec);
        check(root, budget);
    }
}

#[test]
fn nested_sections_of_plain_tokens_stay_within_the_budget_at_every_depth() {
    let pool = pool(5);
    for budget in 1..=5 {
        let exec = Exec::new(&pool, budget).unwrap();
        let root = exec.ledger_root().unwrap();
        spread(exec, 2);
        check(root, budget);
    }
}

#[test]
fn nested_sections_of_team_tokens_stay_within_the_budget_at_every_depth() {
    let team = pool(5).into_team(5).unwrap();
    for budget in 1..=5 {
        let exec = team.exec(budget);
        let root = exec.ledger_root().unwrap();
        spread(exec, 2);
        check(root, budget);
    }
}

#[test]
fn nested_teams_of_scopes_and_reservations_stay_within_the_budget_at_every_depth() {
    let pool = pool(5);
    for budget in 1..=5 {
        let mut exec = Exec::new(&pool, budget).unwrap();
        let root = exec.ledger_root().unwrap();
        exec.team(|team| spread_team(team, 2)).unwrap();
        spread_team(exec.reserve(WaitOverride::new()).unwrap().team(), 2);
        check(root, budget);
    }
}

#[test]
fn a_gang_of_the_whole_budget_is_counted_in_full() {
    let pool = pool(4);
    let exec = Exec::new(&pool, 4).unwrap();
    let root = exec.ledger_root().unwrap();
    let meeting = Meeting::new();
    exec.broadcast(|_| meeting.of(4)).unwrap();
    assert_eq!((ledger::max_live(root), ledger::tasks(root)), (4, 4));
    check(root, 4);
}

#[test]
fn children_that_all_run_at_once_are_counted_to_the_budget_of_their_root() {
    let team = pool(6).into_team(6).unwrap();
    let exec = team.exec(6);
    let root = exec.ledger_root().unwrap();
    let meeting = Meeting::new();
    let mut exec = exec;
    exec.team(|team| team.split(&[3, 3], |_, child| child.run(|_, _| meeting.of(6)))).unwrap().unwrap();
    assert_eq!(ledger::max_live(root), 6);
    drop(exec);
    check(root, 6);
}

#[test]
fn a_leader_is_no_task_while_it_waits() {
    let pool = pool(2);
    let mut exec = Exec::new(&pool, 2).unwrap();
    let root = exec.ledger_root().unwrap();
    let counted = AtomicUsize::new(usize::MAX);
    // The outer share of the leader leads a section whose member is alone at work once the leader has slept at its join.
    exec.team(|team| {
        team.fork(1, |_, child| {
            child.run(|index, _| {
                if index == 1 {
                    wait_until("the leader to wait", || pool.stats().leader_sleeps > 0);
                    counted.store(ledger::live(root), Ordering::SeqCst);
                }
            });
        });
    })
    .unwrap();
    assert_eq!(counted.into_inner(), 1);
    check(root, 2);
}

#[test]
fn a_body_that_leads_a_section_is_one_task_with_its_share() {
    let pool = pool(1);
    let exec = Exec::new(&pool, 1).unwrap();
    let root = exec.ledger_root().unwrap();
    exec.fork(2, |_, child| child.fork(3, |_, grandchild| grandchild.for_ranges(4, nz(4), |_| ())));
    assert_eq!((ledger::max_live(root), ledger::tasks(root)), (1, 2 + 6 + 6));
}

#[test]
fn tokens_derived_from_a_root_carry_its_number() {
    let pool = pool(2);
    let mut exec = Exec::new(&pool, 2).unwrap();
    let root = exec.ledger_root();
    assert!(root.is_some());
    assert_ne!(Exec::new(&pool, 2).unwrap().ledger_root(), root);
    assert_eq!(exec.reborrow().ledger_root(), root);
    assert_eq!(exec.reborrow().limit(nz(1)).ledger_root(), root);
    exec.reborrow().fork(2, |_, child| assert_eq!(child.ledger_root(), root));
    exec.team(|mut team| assert_eq!(team.exec().ledger_root(), root)).unwrap();
    assert_eq!(Exec::serial().ledger_root(), None);
}

#[test]
fn a_task_that_panics_is_counted_out() {
    let pool = pool(3);
    let mut exec = Exec::new(&pool, 3).unwrap();
    let root = exec.ledger_root().unwrap();
    let failing = AssertUnwindSafe(|| {
        exec.reborrow().fork(3, |job, child| {
            child.for_ranges(2, nz(1), |range| assert!(job != 1 || !range.contains(&1), "on purpose"));
        });
    });
    assert!(catch_unwind(failing).is_err());
    check(root, 3);
}

#[test]
fn a_token_used_by_two_threads_at_once_is_named() {
    let pool = pool(1);
    let exec = Exec::new(&pool, 1).unwrap();
    let root = exec.ledger_root().unwrap();
    exec.fork(1, |_, mut child| {
        let lent = child.reborrow();
        // The body stays at work while another thread works on its token.
        std::thread::scope(|scope| {
            scope.spawn(|| lent.for_ranges(1, nz(1), |_| ()));
        });
    });
    let name = ledger::name(root).unwrap();
    assert_eq!(ledger::exceeded(root), [(format!("a job of 1 from {name}"), 2), (name, 2)]);
}

#[test]
fn outside_work_of_external_is_one_task() {
    let pool = pool(3);
    let exec = Exec::new(&pool, 3).unwrap();
    let root = exec.ledger_root().unwrap();
    assert_eq!(exec.external(|width| (width.get(), ledger::live(root))), (3, 1));
    check(root, 3);
}

#[test]
fn several_callers_are_counted_each_by_its_own_root() {
    let pool = pool(4);
    std::thread::scope(|scope| {
        for budget in 1..=4 {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..20 {
                    let exec = Exec::new(pool, budget).unwrap();
                    let root = exec.ledger_root().unwrap();
                    spread(exec, 1);
                    check(root, budget);
                }
            });
        }
    });
}

#[test]
fn what_the_published_ledger_answers_is_answered() {
    let pool = pool(2);
    let exec = Exec::new(&pool, 2).unwrap();
    let root = exec.ledger_root().unwrap();
    exec.fork(2, |_, _| ());
    assert_eq!(ledger::installs(root), 0);
    assert!(ledger::global_pool_unstarted());
    assert_eq!((ledger::max_live(u64::MAX), ledger::live(0), ledger::tasks(0)), (0, 0, 0));
}
