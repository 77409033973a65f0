//! More participants than CPUs: seen through the yields of their waits.
#![cfg(target_os = "linux")]

mod common;

use common::wait_until;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::Duration;
use threadteam::{Exec, Pool};

/// Members that would never sleep, and never yield, were they no crowd.
const NEVER: Duration = Duration::from_secs(100_000);

fn thread() -> libc::pid_t {
    // SAFETY: the call has no precondition.
    unsafe { libc::gettid() }
}

fn cpus() -> Vec<usize> {
    // SAFETY: the set is a plain value of the size given, which the call fills.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

fn restrict(thread: libc::pid_t, cpus: &[usize]) {
    // SAFETY: the set is a plain value of the size given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        assert_eq!(libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).idle_spin(NEVER).acquire_timeout(Duration::from_secs(30)).build().unwrap()
}

/// Waits until idle members have polled so often that they would sleep if they were crowded.
fn spins_on(pool: &Pool) {
    let before = pool.stats().idle.spins;
    wait_until("a member to spin on", || pool.stats().idle.spins > before + 64 * 1000);
    assert_eq!(pool.resident_members(), 1);
}

fn one_scope(pool: &Pool) {
    Exec::new(pool, pool.width().get()).unwrap().team(|team| team.run(|_, _| ())).unwrap();
}

#[test]
fn members_beyond_the_cpus_yield_and_sleep_whatever_their_policy() {
    let cpus = cpus().len();
    let pool = pool(cpus + 2);
    one_scope(&pool);
    wait_until("the members to yield, then to sleep", || pool.resident_members() < cpus);
    assert!(pool.stats().idle.yields > 0);
}

#[test]
fn a_mask_that_shrinks_after_the_pool_was_made_is_followed_at_the_next_scope() {
    let all = cpus();
    if all.len() < 2 {
        return; // a mask of one CPU cannot shrink
    }
    let pool = pool(2);
    let threads = Mutex::new(Vec::new());
    Exec::new(&pool, 2).unwrap().broadcast(|_| threads.lock().unwrap().push(thread())).unwrap();
    for &thread in threads.lock().unwrap().iter() {
        restrict(thread, &all[..1]);
    }
    one_scope(&pool);
    wait_until("the member to sleep", || pool.resident_members() == 0);
    assert!(pool.stats().idle.yields > 0);
    restrict(0, &all);
}

#[test]
fn a_leader_that_is_pinned_alone_is_no_crowd() {
    let all = cpus();
    if all.len() < 2 {
        return; // on one CPU two participants are a crowd
    }
    let pool = pool(2);
    Exec::new(&pool, 2)
        .unwrap()
        .broadcast(|index| {
            if index == 1 {
                restrict(0, &all[1..2])
            }
        })
        .unwrap();
    restrict(0, &all[..1]);
    one_scope(&pool);
    spins_on(&pool);
    restrict(0, &all);
}

#[test]
fn members_asleep_crowd_nobody() {
    let all = cpus();
    if all.len() < 2 {
        return; // on one CPU two participants are a crowd
    }
    let pool = pool(all.len() + 4);
    wait_until("some members to sleep", || pool.resident_members() < all.len());
    pool.release_idle();
    wait_until("all members to sleep", || pool.resident_members() == 0);
    Exec::new(&pool, 2).unwrap().team(|team| team.run(|_, _| ())).unwrap();
    spins_on(&pool);
}

#[test]
fn a_child_of_a_pinned_team_keeps_the_cpus_of_its_root() {
    let all = cpus();
    if all.len() < 2 {
        return; // on one CPU two participants are a crowd
    }
    let pool = Pool::builder().threads(2).pin_participants(true).idle_spin(NEVER).build().unwrap();
    let team = pool.into_team(2).unwrap();
    team.exec(2)
        .team(|team| {
            // The child on the member's side is led by a thread that may run on one CPU only.
            team.split(&[1, 1], |_, mut child| {
                child.exec().team(|alone| alone.run(|_, _| ())).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    spins_on(team.pool());
}

/// Works for some hundred microseconds without a look at the clock: a time slice often ends inside.
fn work() {
    for step in 0..200_000 {
        std::hint::black_box(step);
    }
}

#[test]
fn a_member_whose_cpu_another_thread_uses_is_left_out_of_claimed_sections() {
    let all = cpus();
    if all.len() < 2 || !std::path::Path::new("/proc/self/schedstat").exists() {
        return; // nobody to be in the way, or nobody to say so
    }
    let pool = pool(2);
    let member = Mutex::new(0);
    Exec::new(&pool, 2)
        .unwrap()
        .broadcast(|index| {
            if index == 1 {
                *member.lock().unwrap() = thread();
            }
        })
        .unwrap();
    restrict(*member.lock().unwrap(), &all[1..2]);
    restrict(0, &all[..1]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            restrict(0, &all[1..2]);
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        wait_until("the member to be left out", || {
            Exec::new(&pool, 2).unwrap().for_ranges(2, NonZeroUsize::MIN, |range| range.for_each(|_| work()));
            pool.stats().left_out > 0
        });
        over.store(true, Ordering::Relaxed);
    });
    restrict(0, &all);
}
