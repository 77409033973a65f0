//! Sections of so many participants that captains relay the posts, and of several callers at once.

mod common;

use std::num::NonZeroUsize;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use threadteam::{Exec, Pool};

/// Sections whose members know their positions, whose captains have a member each, and groups of two or three.
const WIDTHS: [usize; 3] = [11, 50, 90];

fn nz(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

/// A pool whose members are awake, so that its sections are relayed and not posted directly.
fn awake(width: usize) -> Pool {
    Pool::builder().threads(width).idle_spin(Duration::from_secs(3600)).build().unwrap()
}

/// A pool whose members sleep between sections.
fn asleep(width: usize) -> Pool {
    Pool::builder().threads(width).idle_spin(Duration::ZERO).build().unwrap()
}

/// `run` hands its body every index below `length` once.
fn each_once(length: usize, what: &str, run: impl FnOnce(&(dyn Fn(usize) + Sync))) {
    let counts: Vec<AtomicUsize> = (0..length).map(|_| AtomicUsize::new(0)).collect();
    run(&|index| {
        counts[index].fetch_add(1, Ordering::Relaxed);
    });
    for (index, count) in counts.iter().enumerate() {
        assert_eq!(count.load(Ordering::Relaxed), 1, "{what}: index {index} of {length}");
    }
}

/// One section of every kind on `pool`, with all of its slots.
fn every_kind(pool: &Pool, width: usize) {
    let exec = || Exec::new(pool, width).unwrap();
    for length in [width, 3 * width + 1, 1000] {
        each_once(length, "for_ranges", |hit| exec().for_ranges(length, nz(1), |range| range.for_each(hit)));
    }
    each_once(width + 3, "fork", |hit| exec().fork(width + 3, |job, _| hit(job)));
    let shares = vec![1; width - 1];
    each_once(width - 1, "fork_sized", |hit| exec().fork_sized(&shares, |job, _| hit(job)).unwrap());
    let team = exec().team(|mut team| {
        let size = team.size().get();
        each_once(size, "run", |hit| team.reborrow().run(|index, _| hit(index)));
        each_once(2 * size, "run_with", |hit| {
            team.reborrow().run_with(|participant| {
                hit(participant.index());
                participant.barrier().unwrap();
                hit(size + participant.index());
            });
        });
        each_once(size, "split", |hit| {
            let sizes = [size / 2, size - size / 2];
            let run = |part: usize, child: threadteam::TeamExec<'_>| child.run(|index, _| hit(part * sizes[0] + index));
            team.reborrow().split(&sizes, run).unwrap();
        });
        each_once(size + 2, "fork of a team", |hit| team.reborrow().fork(size + 2, |child, _| hit(child)));
        each_once(500, "for_ranges of a team", |hit| {
            team.exec().for_ranges(500, nz(1), |range| range.for_each(hit));
        });
        each_once(size, "broadcast of a team", |hit| team.exec().broadcast(hit).unwrap());
    });
    // Another caller may hold the members for longer than this one waits.
    if let Err(refused) = team {
        assert_eq!(refused, threadteam::Refused::Unavailable);
    }
}

#[test]
fn every_kind_of_section_covers_its_shares_once_when_captains_relay_it() {
    for width in WIDTHS {
        let pool = awake(width);
        (0..3).for_each(|_| every_kind(&pool, width));
    }
}

#[test]
fn sleeping_members_of_a_wide_section_are_reached_too() {
    for width in WIDTHS {
        let pool = asleep(width);
        (0..3).for_each(|_| every_kind(&pool, width));
    }
}

#[test]
fn participants_of_a_wide_gang_are_distinct_threads_that_run_at_once() {
    for width in WIDTHS {
        let pool = awake(width);
        let (met, seen) = (Barrier::new(width), Mutex::new(Vec::new()));
        Exec::new(&pool, width)
            .unwrap()
            .broadcast(|index| {
                // Comes back only if all are inside.
                met.wait();
                seen.lock().unwrap().push((index, std::thread::current().id()));
            })
            .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_by_key(|&(index, _)| index);
        assert!(seen.iter().map(|&(index, _)| index).eq(0..width));
        let threads: std::collections::HashSet<_> = seen.iter().map(|&(_, thread)| thread).collect();
        assert_eq!(threads.len(), width);
    }
}

#[test]
fn a_panic_of_any_participant_of_a_wide_section_reaches_the_caller_after_all_have_left() {
    let width = 24;
    let pool = awake(width);
    for culprit in 0..width {
        let inside = AtomicUsize::new(0);
        let section = || {
            Exec::new(&pool, width).unwrap().for_ranges(width, nz(1), |range| {
                inside.fetch_add(1, Ordering::Relaxed);
                if range.contains(&culprit) {
                    inside.fetch_sub(1, Ordering::Relaxed);
                    resume_unwind(Box::new(culprit));
                }
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::Relaxed);
            });
        };
        let payload = catch_unwind(AssertUnwindSafe(section)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&culprit));
        assert_eq!(inside.into_inner(), 0);
        each_once(width, "the section after a panic", |hit| Exec::new(&pool, width).unwrap().broadcast(hit).unwrap());
    }
}

#[test]
fn a_cancelled_barrier_of_a_wide_gang_releases_every_participant() {
    let width = 24;
    let pool = awake(width);
    for culprit in 0..width {
        let released = AtomicUsize::new(0);
        Exec::new(&pool, width)
            .unwrap()
            .team(|team| {
                team.run_with(|participant| {
                    if participant.index() == culprit {
                        participant.cancel();
                    }
                    released.fetch_add(usize::from(participant.barrier().is_err()), Ordering::Relaxed);
                });
            })
            .unwrap();
        assert_eq!(released.into_inner(), width);
    }
}

#[test]
fn a_participant_of_a_relayed_gang_that_returns_without_a_barrier_fails_the_section() {
    let width = 40;
    let pool = awake(width);
    for culprit in [0, 1, 2, width - 1] {
        let passed = AtomicUsize::new(0);
        let section = AssertUnwindSafe(|| {
            Exec::new(&pool, width).unwrap().team(|team| {
                team.run_with(|participant| {
                    if participant.index() != culprit && participant.barrier().is_ok() {
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
        });
        let said = catch_unwind(section).unwrap_err().downcast::<String>().unwrap();
        assert!(said.contains(&format!("participant {culprit} returned without it")), "{said}");
        assert_eq!(passed.into_inner(), 0);
    }
}

#[test]
fn a_wide_claimed_section_does_not_wait_for_members_that_sleep() {
    let width = 24;
    let pool = asleep(width);
    let exec = || Exec::new(&pool, width).unwrap();
    exec().broadcast(|_| ()).unwrap();
    common::wait_until("every member sleeps", || pool.resident_members() == 0);
    // Nobody but the caller may be needed: bodies of 1 us owe no wake.
    for _ in 0..20 {
        each_once(width, "for_ranges", |hit| {
            exec().expecting(Duration::from_nanos(1)).for_ranges(width, nz(1), |range| range.for_each(hit));
        });
    }
}

#[test]
fn several_callers_run_every_kind_of_section_on_one_pool_at_once() {
    for width in [4, 24] {
        let pool = Pool::builder().threads(width).acquire_timeout(Duration::from_millis(50)).build().unwrap();
        for callers in 2..=4 {
            std::thread::scope(|scope| {
                for _ in 0..callers {
                    scope.spawn(|| (0..5).for_each(|_| every_kind(&pool, width)));
                }
            });
        }
        // Nothing stays claimed.
        each_once(width, "broadcast", |hit| Exec::new(&pool, width).unwrap().broadcast(hit).unwrap());
    }
}

#[test]
fn the_longest_section_is_cut_into_fewer_chunks_than_a_word_can_count() {
    let pool = awake(2);
    // The body looks at its range and not at every index.
    let (covered, ranges) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let longest = isize::MAX as usize;
    Exec::new(&pool, 2).unwrap().for_ranges(longest, nz(1), |range| {
        covered.fetch_add(range.len(), Ordering::Relaxed);
        ranges.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(covered.into_inner(), longest);
    assert!(ranges.into_inner() < 1 << 30);
}
