//! Sections allocate nothing, neither on a team nor on a plain token.

#![cfg(not(feature = "ledger"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use threadteam::{Exec, Pool};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SECTIONS: usize = 2_000;

/// The least allocations of the whole process in one of five runs of `sections`, after a warm-up.
///
/// What a thread allocates once, when it first leads or looks at the clock of its CPU, may come after any warm-up, and the
/// test harness allocates to say that a test takes long; what every section allocates is in all five.
fn allocations(mut sections: impl FnMut(usize)) -> usize {
    sections(100);
    let mut least = usize::MAX;
    for _ in 0..5 {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        sections(SECTIONS);
        least = least.min(ALLOCATIONS.load(Ordering::Relaxed) - before);
        if least == 0 {
            break;
        }
    }
    least
}

/// One test, so that no other allocates meanwhile.
#[test]
fn thousands_of_sections_of_each_kind_allocate_nothing() {
    let pool = Pool::builder().threads(3).acquire_timeout(Duration::from_secs(30)).build().unwrap();
    // A worker that starts allocates: all of them have started when this returns.
    Exec::new(&pool, 3).unwrap().broadcast(|_| ()).unwrap();
    let ran = AtomicUsize::new(0);
    let count = |n: usize| {
        ran.fetch_add(n, Ordering::Relaxed);
    };
    let plain = |sections: usize| {
        let mut exec = Exec::new(&pool, 3).unwrap();
        for _ in 0..sections {
            exec.reborrow().for_ranges(64, NonZeroUsize::MIN, |range| count(range.len()));
        }
    };
    assert_eq!(allocations(plain), 0, "for_ranges on a plain token");
    let decisions = |sections: usize| {
        let exec = Exec::new(&pool, 3).unwrap();
        for nanos in 0..sections as u64 {
            let estimate = Duration::from_nanos(nanos);
            let width = exec.width_for(estimate, 1);
            count(usize::from(exec.pays(estimate, 2, width)) + usize::from(exec.dispatch_cost(width) > estimate));
        }
    };
    assert_eq!(allocations(decisions), 0, "whether a section pays, and at which width");
    let forks = |sections: usize| {
        let mut exec = Exec::new(&pool, 3).unwrap();
        for _ in 0..sections {
            exec.reborrow().fork(2, |_, child| child.for_ranges(4, NonZeroUsize::MIN, |range| count(range.len())));
        }
    };
    assert_eq!(allocations(forks), 0, "nested forks of a plain token");
    let broadcasts = |sections: usize| {
        let mut exec = Exec::new(&pool, 3).unwrap();
        (0..sections).for_each(|_| exec.reborrow().broadcast(|_| count(1)).unwrap());
    };
    assert_eq!(allocations(broadcasts), 0, "broadcasts of a plain token");
    let scopes = |sections: usize| {
        let mut exec = Exec::new(&pool, 3).unwrap();
        exec.team(|mut team| {
            for _ in 0..sections {
                team.reborrow().run(|_, _| count(1));
                team.reborrow().run_with(|participant| participant.barrier().unwrap());
                team.reborrow().split(&[1, 2], |_, child| child.run(|_, _| count(1))).unwrap();
            }
        })
        .unwrap();
    };
    assert_eq!(allocations(scopes), 0, "run, run_with and split of a team");
    let reservations = |sections: usize| {
        let mut exec = Exec::new(&pool, 3).unwrap();
        (0..sections).for_each(|_| exec.team(|team| team.run(|_, _| count(1))).unwrap());
    };
    assert_eq!(allocations(reservations), 0, "a team scope for every section");
    let placed = Pool::builder().threads(3).acquire_timeout(Duration::from_secs(30)).pin_participants(true);
    let placed = placed.build().unwrap();
    Exec::new(&placed, 3).unwrap().broadcast(|_| ()).unwrap();
    let placements = |sections: usize| {
        let mut exec = Exec::new(&placed, 3).unwrap();
        (0..sections).for_each(|_| exec.team(|team| team.run(|_, _| count(1))).unwrap());
    };
    assert_eq!(allocations(placements), 0, "a placed team scope for every section");
    // Two, but on a machine with one CPU.
    let domains = (0..1024).map(|cpu| [cpu]).filter(|&cpu| Pool::builder().domains([cpu]).build().is_ok()).take(2);
    let cut = Pool::builder().acquire_timeout(Duration::from_secs(30)).domains(domains).build().unwrap();
    let width = cut.width().get();
    Exec::new(&cut, width).unwrap().broadcast(|_| ()).unwrap();
    let over_domains = |sections: usize| {
        let mut exec = Exec::new(&cut, width).unwrap();
        for _ in 0..sections {
            exec.reborrow().fork(2, |_, child| child.for_ranges(4, NonZeroUsize::MIN, |range| count(range.len())));
            exec.reborrow().fork_sized(&[1, 1][..width], |_, _| count(1)).unwrap();
            exec.team(|team| team.fork(2, |_, _| count(1))).unwrap();
        }
    };
    assert_eq!(allocations(over_domains), 0, "forks over domains");
    let team = pool.into_team(3).unwrap();
    let carried = |sections: usize| {
        let mut exec = team.exec(3);
        for _ in 0..sections {
            exec.reborrow().for_ranges(64, NonZeroUsize::MIN, |range| count(range.len()));
            exec.reborrow().fork(3, |_, _| count(1));
            exec.reborrow().broadcast(|_| count(1)).unwrap();
        }
    };
    assert_eq!(allocations(carried), 0, "sections of a team token");
    assert!(ran.into_inner() > 5 * SECTIONS);
    let parks = team.pool().stats().parks;
    println!("with {parks} parks");
}
