//! Worker threads that serve one pool after another.

#[cfg(target_os = "linux")]
mod common;
#[path = "common/kept.rs"]
mod kept;

use kept::count_end_of_thread;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;
use threadteam::{keep_workers, kept_workers, Exec, Pool, PoolBuilder};

/// One test at a time: they share the cache of their process, which is empty and keeps up to three threads at their start.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    keep_workers(0);
    keep_workers(3);
    guard
}

fn patient(threads: usize) -> PoolBuilder {
    Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(30))
}

/// The workers of `pool`.
fn threads(pool: &Pool) -> HashSet<ThreadId> {
    let seen = Mutex::new(HashSet::new());
    let all = |index| {
        if index > 0 {
            seen.lock().unwrap().insert(std::thread::current().id());
        }
    };
    Exec::new(pool, pool.width().get()).unwrap().broadcast(all).unwrap();
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), pool.width().get() - 1);
    seen
}

/// The workers of a pool made as `builder` says, which is dropped.
fn threads_of(builder: PoolBuilder) -> HashSet<ThreadId> {
    threads(&builder.build().unwrap())
}

#[test]
fn the_workers_of_a_dropped_pool_serve_the_next_one() {
    let _alone = alone();
    let first = threads_of(patient(3));
    assert_eq!(kept_workers(), 2);
    let next = patient(3).build().unwrap();
    assert_eq!(kept_workers(), 0);
    assert_eq!(threads(&next), first);
}

#[test]
fn a_wider_pool_takes_what_there_is_and_starts_the_rest() {
    let _alone = alone();
    let first = threads_of(patient(2));
    let next = threads_of(patient(4));
    assert!(first.is_subset(&next));
    assert_eq!((next.len(), kept_workers()), (3, 3));
}

#[test]
fn pools_that_live_at_once_share_no_worker() {
    let _alone = alone();
    threads_of(patient(3));
    let (one, other) = (patient(3).build().unwrap(), patient(3).build().unwrap());
    assert!(threads(&one).is_disjoint(&threads(&other)));
}

#[test]
fn no_more_threads_are_kept_than_allowed_and_the_oldest_go_first() {
    let _alone = alone();
    let patient = |threads| patient(threads).system_name(|index| format!("any-{index}"));
    let old = patient(3).build().unwrap();
    let new = patient(3).build().unwrap();
    let (first, second) = (threads(&old), threads(&new));
    drop(old);
    drop(new);
    assert_eq!(kept_workers(), 3);
    let kept = threads_of(patient(4));
    assert!(second.is_subset(&kept));
    assert_eq!(kept.intersection(&first).count(), 1);
    keep_workers(1);
    assert_eq!(kept_workers(), 1);
}

#[test]
fn the_default_is_one_fewer_than_the_cpus() {
    let _alone = alone();
    // In a process that has not called `keep_workers`.
    let test = "only_in_a_process_of_its_own";
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--test-threads=1"])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn only_in_a_process_of_its_own() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    threads_of(patient(cpus + 2));
    assert_eq!(kept_workers(), cpus - 1);
}

#[test]
fn a_pool_of_another_stack_size_gets_threads_of_its_own() {
    let _alone = alone();
    let usual = threads_of(patient(2));
    let deep = threads_of(patient(2).stack_size(32 << 20));
    assert!(usual.is_disjoint(&deep));
    assert_eq!(threads_of(patient(2)), usual);
    assert_eq!(threads_of(patient(2).stack_size(32 << 20)), deep);
}

#[test]
fn a_name_that_lasts_is_never_anothers() {
    let _alone = alone();
    let names = |builder: PoolBuilder| {
        let pool = builder.build().unwrap();
        let seen = Mutex::new(String::new());
        let note = |index| {
            if index == 1 {
                *seen.lock().unwrap() = std::thread::current().name().unwrap().to_owned();
            }
        };
        Exec::new(&pool, 2).unwrap().broadcast(note).unwrap();
        seen.into_inner().unwrap()
    };
    assert_eq!(names(patient(2).thread_name(|i| format!("blue-{i}"))), "blue-0");
    assert_eq!(names(patient(2).thread_name(|i| format!("red-{i}"))), "red-0");
    assert_eq!(names(patient(2).thread_name(|i| format!("blue-{i}"))), "blue-0");
    assert_eq!(kept_workers(), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn a_system_name_is_set_again_and_taken_off() {
    let _alone = alone();
    let own_name = || std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim_end().to_owned();
    let name_in = |prefix: &'static str| {
        let pool = patient(2).system_name(move |i| format!("{prefix}-{i}")).build().unwrap();
        let seen = Mutex::new(String::new());
        let note = |index| {
            if index == 1 {
                *seen.lock().unwrap() = own_name();
            }
        };
        Exec::new(&pool, 2).unwrap().broadcast(note).unwrap();
        (seen.into_inner().unwrap(), threads(&pool))
    };
    let (first, threads) = name_in("blue");
    let (second, same) = name_in("a_name_of_many_letters");
    assert_eq!((first.as_str(), second.as_str()), ("blue-0", "a_name_of_many_"));
    assert_eq!(threads, same);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    assert_eq!(names.filter(|name| name.trim_end() == "idle-threadteam").count(), 1);
}

thread_local! {
    static LEFT: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn a_pool_with_a_start_hook_or_fresh_workers_shares_no_thread() {
    let _alone = alone();
    let cached = threads_of(patient(3));
    let fresh = threads_of(patient(3).fresh_workers(true));
    let hooked = threads_of(patient(3).on_start(|_| LEFT.set(true)));
    assert!(cached.is_disjoint(&fresh) && cached.is_disjoint(&hooked) && fresh.is_disjoint(&hooked));
    assert_eq!(threads_of(patient(3)), cached);
}

#[test]
fn fresh_workers_are_joined_with_their_thread_locals() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let pool = patient(3).fresh_workers(true).build().unwrap();
    let touch = |index| {
        if index > 0 {
            count_end_of_thread(&ENDED);
        }
    };
    Exec::new(&pool, 3).unwrap().broadcast(touch).unwrap();
    drop(pool);
    assert_eq!(ENDED.load(Ordering::SeqCst), 2);
}

#[test]
fn ending_the_kept_threads_runs_their_thread_local_destructors() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let pool = patient(2).build().unwrap();
    let touch = |index| {
        if index > 0 {
            count_end_of_thread(&ENDED);
        }
    };
    Exec::new(&pool, 2).unwrap().broadcast(touch).unwrap();
    drop(pool);
    assert_eq!((ENDED.load(Ordering::SeqCst), kept_workers()), (0, 1));
    keep_workers(0);
    assert_eq!((ENDED.load(Ordering::SeqCst), kept_workers()), (1, 0));
}

#[test]
fn a_stop_hook_runs_on_each_worker_that_leaves() {
    let _alone = alone();
    let left = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..3 {
        let note = Arc::clone(&left);
        let pool = patient(3).on_stop(move |index| note.lock().unwrap().push((index, std::thread::current().id())));
        let pool = pool.build().unwrap();
        let workers = threads(&pool);
        drop(pool);
        let seen: Vec<_> = std::mem::take(&mut *left.lock().unwrap());
        assert_eq!(seen.iter().map(|&(_, thread)| thread).collect::<HashSet<_>>(), workers);
        let mut indices: Vec<_> = seen.iter().map(|&(index, _)| index).collect();
        indices.sort_unstable();
        assert_eq!(indices, [0, 1]);
    }
}

#[test]
fn a_hook_that_panics_leaves_its_worker_usable() {
    let _alone = alone();
    let hook = |_| std::panic::resume_unwind(Box::new("a hook"));
    assert_eq!(threads_of(patient(3).on_start(hook)).len(), 2);
    assert_eq!(threads_of(patient(3).on_stop(hook)), threads_of(patient(3)));
}

#[test]
fn a_dropped_pool_keeps_nothing_alive() {
    let _alone = alone();
    let held = Arc::new(());
    for _ in 0..20 {
        let theirs = Arc::clone(&held);
        let pool = patient(3).on_stop(move |_| drop(Arc::clone(&theirs))).build().unwrap();
        Exec::new(&pool, 3).unwrap().for_ranges(8, std::num::NonZeroUsize::MIN, |_| ());
        drop(pool);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

#[test]
fn a_pool_that_is_dropped_before_its_workers_wake_takes_their_jobs_back() {
    let _alone = alone();
    let threads = threads_of(patient(4));
    for _ in 0..2000 {
        drop(patient(4).build().unwrap());
    }
    assert_eq!((kept_workers(), threads_of(patient(4))), (3, threads));
}

#[test]
fn several_threads_make_and_drop_pools_at_once() {
    let _alone = alone();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..200 {
                    let pool = patient(1 + round % 4).build().unwrap();
                    let sum = AtomicUsize::new(0);
                    Exec::new(&pool, 4).unwrap().for_ranges(100, std::num::NonZeroUsize::MIN, |range| {
                        sum.fetch_add(range.len(), Ordering::Relaxed);
                    });
                    assert_eq!(sum.into_inner(), 100);
                }
            });
        }
    });
    assert_eq!(kept_workers(), 3);
}

#[cfg(target_os = "linux")]
#[test]
fn kept_threads_sleep_and_use_no_cpu() {
    let _alone = alone();
    threads_of(patient(4));
    let ticks = || {
        let mut used = Vec::new();
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let path = task.unwrap().path();
            let text = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
            if text.contains("(idle-threadteam)") {
                let rest: Vec<String> =
                    text.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
                let switches = std::fs::read_to_string(path.join("status")).unwrap();
                let switches: Vec<String> =
                    switches.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect();
                used.push((rest[0].clone(), rest[11].clone(), switches));
            }
        }
        used
    };
    common::wait_until("the kept threads to sleep", || {
        let seen = ticks();
        seen.len() == 3 && seen.iter().all(|(state, _, _)| state == "S")
    });
    // Asleep, and never scheduled again while this thread makes the whole process wait.
    let before = ticks();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ticks(), before);
}
