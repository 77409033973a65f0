//! Workers as threads of the process: how they end, alone and with it.

mod common;

use common::wait_until;
use std::num::NonZeroUsize;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use threadteam::{Exec, Pool};

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(30)).build().unwrap()
}

/// Runs an ignored test of this file in a process of its own.
fn run_alone(test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--test-threads=1", "--nocapture"])
        .output()
        .unwrap()
}

#[cfg(unix)]
#[test]
fn a_stack_overflow_in_a_body_is_reported_as_on_any_thread() {
    use std::os::unix::process::ExitStatusExt;

    let ended = run_alone("overflows_the_stack_of_a_worker");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("threadteam-0") && said.contains("overflowed its stack"), "{said}");
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn overflows_the_stack_of_a_worker() {
    // The compiler must not find out that it never ends.
    fn endless(depth: u64) -> u64 {
        let frame = [depth; 64];
        std::hint::black_box(&frame);
        if std::hint::black_box(depth) == u64::MAX {
            return 0;
        }
        endless(depth + 1) + frame[depth as usize % 64]
    }
    let body = |index| {
        if index == 1 {
            std::hint::black_box(endless(0));
        }
    };
    Exec::new(&pool(2), 2).unwrap().broadcast(body).unwrap();
}

#[test]
fn a_process_ends_though_a_worker_is_inside_a_body() {
    assert!(run_alone("leaves_a_worker_inside_a_body").status.success());
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn leaves_a_worker_inside_a_body() {
    let pool = Box::leak(Box::new(pool(3)));
    let inside = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&inside);
    std::thread::spawn(move || {
        Exec::new(pool, 3).unwrap().broadcast(|_| {
            *seen.lock().unwrap() += 1;
            loop {
                std::thread::park();
            }
        })
    });
    wait_until("everybody to be inside", || *inside.lock().unwrap() == 3);
}

#[test]
fn a_pool_dropped_by_its_own_worker_ends_all_its_threads() {
    let held = Arc::new(());
    let place: Arc<Mutex<Option<Pool>>> = Arc::default();
    let (theirs, kept) = (Arc::clone(&place), Arc::clone(&held));
    let hook = move |index| {
        let _kept = &kept;
        if index == 0 {
            let taken = || theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut pool = None;
            wait_until("the pool", || {
                pool = taken();
                pool.is_some()
            });
            assert!(pool.as_ref().is_some_and(Pool::is_worker));
            drop(pool);
        }
    };
    let pool = Pool::builder().threads(4).on_start(hook).build().unwrap();
    *place.lock().unwrap() = Some(pool);
    drop(place);
    wait_until("the threads to let go of their hook", || Arc::strong_count(&held) == 1);
}

#[test]
fn a_body_may_make_use_and_drop_pools() {
    let outer = pool(3);
    let one = NonZeroUsize::MIN;
    let body = |_| {
        for width in 1..4 {
            let inner = pool(width);
            Exec::new(&inner, width).unwrap().for_ranges(8, one, |_| ());
            Exec::new(&inner, width).unwrap().broadcast(|_| ()).unwrap();
        }
    };
    Exec::new(&outer, 3).unwrap().broadcast(body).unwrap();
}
