//! Placing the members of teams on CPUs: masks are read inside the shares.
#![cfg(target_os = "linux")]

#[path = "common/mask.rs"]
mod mask;

use mask::{alone, masks_of, own_mask, set_own_mask, Mask};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;
use threadteam::{Exec, Pool, PoolBuilder, TeamExec, WaitOverride};

fn pinned(threads: usize) -> PoolBuilder {
    Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(30)).pin_participants(true)
}

/// The mask of each participant, in a section of the team.
fn masks(team: &mut TeamExec<'_>) -> Vec<Mask> {
    let seen: Vec<Mutex<Mask>> = (0..team.size().get()).map(|_| Mutex::default()).collect();
    team.reborrow().run(|index, _| *seen[index].lock().unwrap() = own_mask());
    seen.into_iter().map(|mask| mask.into_inner().unwrap()).collect()
}

/// What a team of `size` gets of `allowed`: member `k` the `k`-th CPU, around; the leader all of them.
fn expected(allowed: &Mask, size: usize) -> Vec<Mask> {
    let cpus: Vec<usize> = allowed.iter().copied().collect();
    (0..size).map(|k| if k == 0 { allowed.clone() } else { Mask::from([cpus[k % cpus.len()]]) }).collect()
}

#[test]
fn members_are_pinned_in_a_team_scope_and_restored_after_it() {
    let alone = alone();
    let pool = pinned(4).build().unwrap();
    for _ in 0..3 {
        let inside = Exec::new(&pool, 4).unwrap().team(|mut team| masks(&mut team)).unwrap();
        assert_eq!(inside, expected(&alone.before, 4));
        assert_eq!(masks_of(&pool), vec![alone.before.clone(); 4]);
    }
}

#[test]
fn a_reservation_places_its_members_until_it_is_dropped() {
    let alone = alone();
    let pool = pinned(3).build().unwrap();
    let mut exec = Exec::new(&pool, 3).unwrap();
    let mut reserved = exec.reserve(WaitOverride::new().idle_spin(Duration::ZERO)).unwrap();
    assert_eq!(masks(&mut reserved.team()), expected(&alone.before, 3));
    drop(reserved);
    assert_eq!(masks_of(&pool), vec![alone.before.clone(); 3]);
}

#[test]
fn without_the_option_nobody_is_placed() {
    let alone = alone();
    let pool = Pool::builder().threads(3).acquire_timeout(Duration::from_secs(30)).build().unwrap();
    let inside = Exec::new(&pool, 3).unwrap().team(|mut team| masks(&mut team)).unwrap();
    assert_eq!(inside, vec![alone.before.clone(); 3]);
}

#[test]
fn the_scope_follows_the_mask_that_its_leader_has_now() {
    let alone = alone();
    let pool = pinned(3).build().unwrap();
    masks_of(&pool);
    let last = Mask::from([*alone.before.last().unwrap()]);
    set_own_mask(&last);
    let inside = Exec::new(&pool, 3).unwrap().team(|mut team| masks(&mut team)).unwrap();
    assert_eq!(inside, vec![last.clone(); 3]);
    // The members have their own masks back; the leader's was never touched.
    assert_eq!(masks_of(&pool), [last, alone.before.clone(), alone.before.clone()]);
}

#[test]
fn plain_sections_place_nobody() {
    let alone = alone();
    let pool = pinned(3).build().unwrap();
    let seen = Mutex::new(Vec::new());
    Exec::new(&pool, 3).unwrap().for_ranges(64, NonZeroUsize::MIN, |_| seen.lock().unwrap().push(own_mask()));
    assert!(seen.into_inner().unwrap().iter().all(|mask| *mask == alone.before));
}

#[test]
fn a_persistent_team_is_placed_when_it_is_made_and_at_each_root_scope() {
    let alone = alone();
    let team = pinned(3).build().unwrap().into_team(3).unwrap();
    let seen: Vec<Mutex<Mask>> = (0..3).map(|_| Mutex::default()).collect();
    team.exec(3).broadcast(|index| *seen[index].lock().unwrap() = own_mask()).unwrap();
    let seen: Vec<Mask> = seen.into_iter().map(|mask| mask.into_inner().unwrap()).collect();
    assert_eq!(seen, expected(&alone.before, 3));

    let first = Mask::from([*alone.before.first().unwrap()]);
    set_own_mask(&first);
    assert_eq!(team.exec(3).team(|mut team| masks(&mut team)).unwrap(), vec![first.clone(); 3]);
    set_own_mask(&alone.before);
    // A loan of the root token is no root scope: the members stay where the last one put them.
    let lent = team.exec(3).reborrow().team(|mut team| masks(&mut team)).unwrap();
    assert_eq!(lent, [alone.before.clone(), first.clone(), first]);
    assert_eq!(team.exec(3).team(|mut team| masks(&mut team)).unwrap(), expected(&alone.before, 3));

    let pool = team.into_pool();
    assert_eq!(masks_of(&pool), vec![alone.before.clone(); 3]);
}

#[test]
fn workers_leave_a_placed_team_with_their_own_masks() {
    let alone = alone();
    drop(pinned(2).build().unwrap().into_team(2).unwrap());
    let next = Pool::builder().threads(2).acquire_timeout(Duration::from_secs(30)).build().unwrap();
    assert_eq!(masks_of(&next), vec![alone.before.clone(); 2]);
}

#[test]
fn a_reused_worker_has_the_mask_of_the_thread_that_starts_its_pool() {
    let alone = alone();
    let build = || Pool::builder().threads(2).acquire_timeout(Duration::from_secs(30)).build().unwrap();
    masks_of(&build());
    let last = Mask::from([*alone.before.last().unwrap()]);
    set_own_mask(&last);
    assert_eq!(masks_of(&build()), vec![last; 2]);
    set_own_mask(&alone.before);
    assert_eq!(masks_of(&build()), vec![alone.before.clone(); 2]);
}

#[test]
fn a_member_that_calls_another_library_has_its_own_mask() {
    let alone = alone();
    let pool = pinned(2).build().unwrap();
    let (pinned, free) = (Mutex::new(Mask::new()), Mutex::new(Mask::new()));
    Exec::new(&pool, 2)
        .unwrap()
        .team(|mut team| {
            team.reborrow().fork(2, |child, mut inner| {
                if child == 1 {
                    *pinned.lock().unwrap() = own_mask();
                    *free.lock().unwrap() = inner.exec().external(|_| own_mask());
                }
            });
            // It is pinned again by the next root scope only.
            assert_eq!(masks(&mut team), vec![alone.before.clone(); 2]);
        })
        .unwrap();
    assert_eq!(pinned.into_inner().unwrap(), expected(&alone.before, 2)[1]);
    assert_eq!(free.into_inner().unwrap(), alone.before);
    let again = Exec::new(&pool, 2).unwrap().team(|mut team| masks(&mut team)).unwrap();
    assert_eq!(again, expected(&alone.before, 2));
}

#[test]
fn a_scope_that_panics_gives_the_masks_back() {
    let alone = alone();
    let pool = pinned(3).build().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Exec::new(&pool, 3).unwrap().team(|team| team.run(|index, _| assert!(index != 1, "expected"))).unwrap();
    }));
    assert!(panicked.is_err());
    assert_eq!(masks_of(&pool), vec![alone.before.clone(); 3]);
}

#[test]
fn user_report_2_no_mask_ever_contains_a_cpu_outside_the_process() {
    let alone = alone();
    // As under `taskset`: everything is started from a thread of a narrower mask.
    let last = Mask::from([*alone.before.last().unwrap()]);
    set_own_mask(&last);
    for pool in [pinned(5).build().unwrap(), Pool::builder().threads(5).build().unwrap()] {
        for _ in 0..20 {
            let seen = Mutex::new(Vec::new());
            let note = || seen.lock().unwrap().push(own_mask());
            Exec::new(&pool, 5).unwrap().for_ranges(64, NonZeroUsize::MIN, |_| note());
            let _ = Exec::new(&pool, 5).unwrap().team(|team| team.run(|_, _| note()));
            assert!(seen.into_inner().unwrap().iter().all(|mask| mask.is_subset(&last)));
        }
    }
}
