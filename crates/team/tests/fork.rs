//! A process that forks: the child's pools work, and nothing in it waits for a thread of the parent.
#![cfg(unix)]

mod common;

use common::wait_until;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use threadteam::{Exec, ForkedInside, Pool};

/// One fork at a time, so that no child inherits a lock that another test holds.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<ForkedInside>() {
                usual(info);
            }
        }));
    });
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What runs after a fork: `Some` child in the parent, `None` in the child.
fn fork() -> Option<libc::pid_t> {
    // SAFETY: the child runs sections and ends by `_exit`; it takes no lock that another thread of the test may hold.
    match unsafe { libc::fork() } {
        -1 => panic!("fork failed"),
        0 => None,
        child => Some(child),
    }
}

/// Ends the child: with success if `checks` returns true.
fn end_child(checks: impl FnOnce() -> bool) -> ! {
    let passed = catch_unwind(AssertUnwindSafe(checks)).unwrap_or(false);
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(i32::from(!passed)) }
}

/// The child ended with success; one that hangs is killed and fails the test.
fn child_succeeded(child: libc::pid_t) {
    let mut status = 0;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `child` is a child of this process that nobody else waits for.
        wait_until("the child to end", || unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child);
    }));
    if let Err(payload) = ended {
        // SAFETY: as above.
        unsafe { libc::kill(child, libc::SIGKILL) };
        std::panic::resume_unwind(payload);
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child failed with status {status:#x}");
}

fn in_child(checks: impl FnOnce() -> bool) {
    match fork() {
        None => end_child(checks),
        Some(child) => child_succeeded(child),
    }
}

/// All of `0..1000` once, and all participants at the same time.
fn works(exec: &mut Exec<'_>) -> bool {
    let sum = AtomicUsize::new(0);
    exec.reborrow().for_ranges(1000, NonZeroUsize::MIN, |range| {
        sum.fetch_add(range.sum::<usize>(), Ordering::Relaxed);
    });
    let met = AtomicUsize::new(0);
    let size = exec.budget().get();
    let together = exec.team(|team| {
        team.run_with(|participant| {
            met.fetch_add(1, Ordering::Relaxed);
            participant.barrier().unwrap();
            assert_eq!(met.load(Ordering::Relaxed), size);
        });
    });
    together.is_ok() && sum.into_inner() == 499_500
}

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).acquire_timeout(std::time::Duration::from_secs(30)).build().unwrap()
}

#[test]
fn an_idle_pool_works_again_in_the_child_and_on_in_the_parent() {
    let _alone = alone();
    let pool = pool(3);
    assert!(works(&mut Exec::new(&pool, 3).unwrap()));
    in_child(|| works(&mut Exec::new(&pool, 3).unwrap()) && works(&mut Exec::new(&pool, 2).unwrap()));
    assert!(works(&mut Exec::new(&pool, 3).unwrap()));
}

#[test]
fn an_idle_team_works_again_in_the_child() {
    let _alone = alone();
    let team = pool(3).into_team(3).unwrap();
    assert!(works(&mut team.exec(3)));
    in_child(|| works(&mut team.exec(3)) && team.exec(3).can_broadcast());
    assert!(works(&mut team.exec(3)));
}

#[test]
fn a_pool_that_never_started_starts_in_the_child() {
    let _alone = alone();
    let pool =
        Pool::builder().threads(2).lazy(true).acquire_timeout(std::time::Duration::from_secs(30)).build().unwrap();
    in_child(|| works(&mut Exec::new(&pool, 2).unwrap()));
    assert_eq!(pool.resident_members(), 0);
    assert!(works(&mut Exec::new(&pool, 2).unwrap()));
}

#[test]
fn a_pool_is_dropped_in_the_child_without_waiting_for_the_parents_threads() {
    let _alone = alone();
    let unused = pool(3);
    let used = pool(3);
    match fork() {
        None => end_child(move || {
            drop(unused);
            let worked = works(&mut Exec::new(&used, 3).unwrap());
            drop(used);
            worked
        }),
        Some(child) => child_succeeded(child),
    }
}

#[test]
fn a_child_of_a_child_has_workers_of_its_own_too() {
    let _alone = alone();
    let pool = pool(2);
    in_child(|| {
        let worked = works(&mut Exec::new(&pool, 2).unwrap());
        in_child(|| works(&mut Exec::new(&pool, 2).unwrap()));
        worked && works(&mut Exec::new(&pool, 2).unwrap())
    });
}

/// Forks from the leader's share while the worker is inside; the child runs `in_body` there.
fn fork_inside(in_body: impl Fn(&Pool) + Sync) {
    let pool = pool(2);
    let mut exec = Exec::new(&pool, 2).unwrap();
    let child = AtomicUsize::new(0);
    let inside = AtomicUsize::new(0);
    let section = catch_unwind(AssertUnwindSafe(|| {
        exec.team(|team| {
            team.run(|index, _| {
                inside.fetch_add(1, Ordering::SeqCst);
                if index == 0 {
                    wait_until("the worker to enter", || inside.load(Ordering::SeqCst) == 2);
                    match fork() {
                        None => in_body(&pool),
                        Some(pid) => child.store(pid as usize, Ordering::SeqCst),
                    }
                } else {
                    wait_until("the fork", || child.load(Ordering::SeqCst) != 0);
                }
            });
        })
        .unwrap();
    }));
    if child.load(Ordering::SeqCst) == 0 {
        end_child(|| section.unwrap_err().is::<ForkedInside>() && works(&mut Exec::new(&pool, 2).unwrap()));
    }
    assert!(section.is_ok());
    child_succeeded(child.load(Ordering::SeqCst) as libc::pid_t);
    assert!(works(&mut Exec::new(&pool, 2).unwrap()));
}

#[test]
fn the_join_of_a_body_that_forked_panics_in_the_child() {
    let _alone = alone();
    fork_inside(|_| ());
}

#[test]
fn the_join_panics_also_when_the_child_has_started_its_own_workers() {
    let _alone = alone();
    fork_inside(|pool| assert!(works(&mut Exec::new(pool, 2).unwrap())));
}

#[test]
fn a_team_scope_from_before_the_fork_is_void_in_the_child() {
    let _alone = alone();
    let pool = pool(2);
    let mut exec = Exec::new(&pool, 2).unwrap();
    let child = exec
        .team(|mut team| {
            let child = fork();
            if child.is_none() {
                end_child(|| {
                    let run = |team: threadteam::TeamExec<'_>| {
                        catch_unwind(AssertUnwindSafe(|| team.run(|_, _| ())))
                            .is_err_and(|why| why.is::<ForkedInside>())
                    };
                    run(team.reborrow()) && works(&mut Exec::new(&pool, 2).unwrap()) && run(team.reborrow())
                });
            }
            team.run(|_, _| ());
            child
        })
        .unwrap();
    child_succeeded(child.unwrap());
}

/// Counters that parent and child share.
struct Shared(*mut AtomicUsize);

// SAFETY: atomics, mapped until the process ends.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Shared {
        // SAFETY: a fresh anonymous mapping of zeros, never unmapped.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Shared(address.cast())
    }

    fn at(&self, index: usize) -> &AtomicUsize {
        assert!(index < 512);
        // SAFETY: inside the mapping, which is zeroed and aligned.
        unsafe { &*self.0.add(index) }
    }
}

/// Chunks that ran in the process that the test began in, chunks that ran in its child, and the child.
const PARENT: usize = 0;
const CHILD: usize = 1;
const PID: usize = 2;

/// Runs 64 chunks; `forks` says of each, on the thread that runs it, whether it forks and returns in the child.
fn chunks_that_fork(exec: Exec<'_>, shared: &Shared, forks: impl Fn() -> bool + Sync) {
    let parent = std::process::id();
    let one = NonZeroUsize::MIN;
    exec.fork(64, |_, child| {
        child.for_ranges(1, one, |_| {
            let who = if std::process::id() == parent { PARENT } else { CHILD };
            shared.at(who).fetch_add(1, Ordering::SeqCst);
        });
        if std::process::id() == parent && forks() {
            match fork() {
                None => {}
                Some(pid) => shared.at(PID).store(pid as usize, Ordering::SeqCst),
            }
        }
    });
}

#[test]
fn a_leader_that_forked_runs_no_further_chunk_in_the_child() {
    let _alone = alone();
    let shared = Shared::new();
    let parent = std::process::id();
    let leader = std::thread::current().id();
    let pool = pool(2);
    let exec = Exec::new(&pool, 2).unwrap();
    let forked = AtomicUsize::new(0);
    let section = catch_unwind(AssertUnwindSafe(|| {
        chunks_that_fork(exec, &shared, || {
            std::thread::current().id() == leader && forked.fetch_add(1, Ordering::SeqCst) == 0
        });
    }));
    if std::process::id() != parent {
        end_child(|| {
            section.is_err_and(|why| why.is::<ForkedInside>()) && shared.at(CHILD).load(Ordering::SeqCst) == 0
        });
    }
    assert!(section.is_ok());
    child_succeeded(shared.at(PID).load(Ordering::SeqCst) as libc::pid_t);
    assert_eq!((shared.at(PARENT).load(Ordering::SeqCst), shared.at(CHILD).load(Ordering::SeqCst)), (64, 0));
}

#[test]
fn a_worker_that_forked_runs_no_further_chunk_in_the_child_and_ends_it() {
    let _alone = alone();
    let shared = Shared::new();
    let leader = std::thread::current().id();
    let pool = pool(2);
    let forked = AtomicUsize::new(0);
    // Until the worker has come.
    while shared.at(PID).load(Ordering::SeqCst) == 0 {
        shared.at(PARENT).store(0, Ordering::SeqCst);
        chunks_that_fork(Exec::new(&pool, 2).unwrap(), &shared, || {
            std::thread::current().id() != leader && forked.fetch_add(1, Ordering::SeqCst) == 0
        });
    }
    assert_eq!(shared.at(PARENT).load(Ordering::SeqCst), 64);
    child_succeeded(shared.at(PID).load(Ordering::SeqCst) as libc::pid_t);
    assert_eq!(shared.at(CHILD).load(Ordering::SeqCst), 0);
    assert!(works(&mut Exec::new(&pool, 2).unwrap()));
}

/// Forks on a thread of its own, whose end in the child follows on `in_child`.
#[cfg(target_os = "linux")]
fn fork_on_a_thread(in_child: impl FnOnce() + Send + 'static) -> libc::pid_t {
    let _watched = pool(2);
    let (sender, receiver) = std::sync::mpsc::channel();
    let forking = std::thread::spawn(move || match fork() {
        Some(child) => sender.send(child).unwrap(),
        None => in_child(),
    });
    forking.join().unwrap();
    receiver.recv().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_ends_with_the_thread_that_forked_though_its_workers_sleep() {
    let _alone = alone();
    let child = fork_on_a_thread(|| {
        let pool = pool(3);
        assert!(works(&mut Exec::new(&pool, 3).unwrap()));
        std::mem::forget(pool);
    });
    child_succeeded(child);
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_goes_on_after_the_thread_that_forked_while_another_one_runs() {
    let _alone = alone();
    let child = fork_on_a_thread(|| {
        let pool = pool(2);
        std::thread::spawn(move || {
            // The state of the process's first thread.
            let first = || std::fs::read_to_string("/proc/self/stat").unwrap();
            wait_until("the end of the forking thread", || first().rsplit(')').next().unwrap().starts_with(" Z"));
            end_child(|| works(&mut Exec::new(&pool, 2).unwrap()))
        });
    });
    child_succeeded(child);
}

#[test]
fn a_child_has_none_of_the_threads_that_its_parent_keeps() {
    let _alone = alone();
    threadteam::keep_workers(2);
    drop(pool(3));
    assert_eq!(threadteam::kept_workers(), 2);
    in_child(|| {
        let none = threadteam::kept_workers() == 0;
        let first = pool(3);
        let worked = works(&mut Exec::new(&first, 3).unwrap());
        drop(first);
        let again = pool(3);
        none && worked && threadteam::kept_workers() == 0 && works(&mut Exec::new(&again, 3).unwrap())
    });
    assert_eq!(threadteam::kept_workers(), 2);
    assert!(works(&mut Exec::new(&pool(3), 3).unwrap()));
}

#[test]
fn a_fork_while_other_threads_make_use_and_drop_pools_leaves_a_child_that_works() {
    let _alone = alone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let team = pool(2).into_team(2).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let pool = pool(3);
                    assert!(works(&mut Exec::new(&pool, 3).unwrap()));
                    let failed = catch_unwind(AssertUnwindSafe(|| {
                        Exec::new(&pool, 3).unwrap().for_ranges(9, NonZeroUsize::MIN, |_| {
                            std::panic::resume_unwind(Box::new("expected"));
                        });
                    }));
                    assert!(failed.is_err());
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                team.exec(2).broadcast(|_| ()).unwrap();
            }
        });
        let forked = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..100 {
                in_child(|| {
                    let pool = pool(3);
                    works(&mut Exec::new(&pool, 3).unwrap()) && works(&mut team.exec(2))
                });
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(why) = forked {
            std::panic::resume_unwind(why);
        }
    });
}
