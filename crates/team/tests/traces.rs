//! The recorded events of sections are complete and well nested.

mod common;

use common::wait_until;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use threadteam::trace::{Event, Kind, Trace};
use threadteam::{Exec, Pool, Refused};

fn patient(threads: usize) -> threadteam::PoolBuilder {
    Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(30))
}

fn traced(threads: usize, run: impl Fn(&Pool)) -> Vec<Event> {
    let pool = patient(threads).build().unwrap();
    let trace = Arc::new(Trace::new(threads, 1 << 14));
    pool.set_trace(Some(Arc::clone(&trace)));
    run(&pool);
    pool.set_trace(None);
    drop(pool);
    assert_eq!(trace.overwritten(), 0);
    trace.events()
}

/// The kind that closes `kind`, if it opens something.
fn closing(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::ShareBegin => Some(Kind::ShareEnd),
        Kind::JoinBegin => Some(Kind::JoinEnd),
        Kind::BarrierBegin => Some(Kind::BarrierEnd),
        Kind::ParkBegin => Some(Kind::ParkEnd),
        Kind::Enter => Some(Kind::Leave),
        _ => None,
    }
}

fn is_closing(kind: Kind) -> bool {
    matches!(kind, Kind::ShareEnd | Kind::JoinEnd | Kind::BarrierEnd | Kind::ParkEnd | Kind::Leave)
}

/// Checks that begins and ends match like brackets on every lane, with rising times. A worker may have gone to sleep
/// before the trace was set, and may sleep, or be about to leave, when it is taken away.
fn check_nesting(events: &[Event], lanes: usize) {
    for lane in 0..lanes {
        let mut open = Vec::new();
        let (mut last, mut first) = (0, true);
        for event in events.iter().filter(|event| event.participant == lane) {
            assert!(event.ns >= last, "time runs backwards on lane {lane}");
            last = event.ns;
            let first = std::mem::take(&mut first);
            if let Some(end) = closing(event.kind) {
                open.push((end, event.value));
            } else if is_closing(event.kind) && !(first && event.kind == Kind::ParkEnd) {
                assert_eq!(open.pop(), Some((event.kind, event.value)), "lane {lane} at {} ns", event.ns);
            }
        }
        assert!(
            open.iter().all(|&(end, _)| matches!(end, Kind::ParkEnd | Kind::Leave)),
            "lane {lane} left {open:?} open"
        );
    }
}

#[test]
fn shares_joins_barriers_and_parks_are_well_nested() {
    let events = traced(3, |pool| {
        for _ in 0..20 {
            let mut exec = Exec::new(pool, 3).unwrap();
            exec.reborrow().for_ranges(64, NonZeroUsize::MIN, |_| ());
            exec.reborrow().fork(2, |_, child| child.for_ranges(8, NonZeroUsize::MIN, |_| ()));
            exec.team(|mut team| {
                team.reborrow().run_with(|participant| participant.barrier().unwrap());
                team.split(&[1, 2], |_, child| child.run(|_, _| ())).unwrap();
            })
            .unwrap();
        }
    });
    check_nesting(&events, 3);
}

#[test]
fn every_gang_section_shows_one_share_a_participant_and_one_join() {
    let events = traced(3, |pool| (0..50).for_each(|_| Exec::new(pool, 3).unwrap().broadcast(|_| ()).unwrap()));
    let mut kinds: BTreeMap<u64, Vec<(usize, Kind)>> = BTreeMap::new();
    let of_a_section = |kind| matches!(kind, Kind::Publish) || closing(kind).is_some() || is_closing(kind);
    for event in events.iter().filter(|event| event.value > 0 && of_a_section(event.kind)) {
        kinds.entry(event.value).or_default().push((event.participant, event.kind));
    }
    assert_eq!(kinds.len(), 50);
    for (section, seen) in kinds {
        let count = |lane, kind| seen.iter().filter(|&&event| event == (lane, kind)).count();
        assert_eq!((count(0, Kind::Publish), count(0, Kind::JoinBegin), count(0, Kind::JoinEnd)), (1, 1, 1));
        for lane in 0..3 {
            assert_eq!((count(lane, Kind::ShareBegin), count(lane, Kind::ShareEnd)), (1, 1), "section {section}");
            assert_eq!(count(lane, Kind::Enter), usize::from(lane > 0), "section {section}");
        }
    }
}

#[test]
fn a_section_that_panics_is_traced_to_its_end() {
    let events = traced(2, |pool| {
        let section = || Exec::new(pool, 2).unwrap().broadcast(|index| assert_ne!(index, 1, "on purpose")).unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(section)).is_err());
    });
    check_nesting(&events, 2);
}

#[test]
fn a_full_ring_keeps_the_most_recent_events() {
    let trace = Trace::new(1, 8);
    (1..=20).for_each(|label| trace.record(Kind::Label, label));
    let kept: Vec<u64> = trace.events().iter().map(|event| event.value).collect();
    assert_eq!(kept, (13..=20).collect::<Vec<_>>());
    assert_eq!(trace.overwritten(), 12);
}

#[test]
fn a_pool_without_a_trace_records_nothing() {
    let pool = Pool::builder().threads(2).build().unwrap();
    let trace = Arc::new(Trace::new(2, 64));
    pool.set_trace(Some(Arc::clone(&trace)));
    pool.set_trace(None);
    let exec = Exec::new(&pool, 2).unwrap();
    assert!(exec.trace().is_none());
    exec.for_ranges(100, NonZeroUsize::MIN, |_| ());
    drop(pool);
    let idle = [Kind::Start, Kind::SpinBegin, Kind::ParkBegin, Kind::ParkEnd, Kind::Stop];
    assert!(trace.events().iter().all(|event| idle.contains(&event.kind)));
}

fn kinds(events: &[Event], participant: usize) -> Vec<Kind> {
    events.iter().filter(|event| event.participant == participant).map(|event| event.kind).collect()
}

#[test]
fn a_worker_is_recorded_from_its_start_to_its_stop() {
    let pool = patient(2).lazy(true).idle_spin(Duration::from_secs(100_000)).build().unwrap();
    let trace = Arc::new(Trace::new(2, 1 << 10));
    pool.set_trace(Some(Arc::clone(&trace)));
    Exec::new(&pool, 2).unwrap().broadcast(|_| ()).unwrap();
    drop(pool);
    use Kind::{Enter, JoinBegin, JoinEnd, Leave, ParkBegin, ParkEnd, Publish, Release, Reserve, ShareBegin, ShareEnd};
    let events = trace.events();
    let worker = [Kind::Start, Kind::SpinBegin, Enter, ShareBegin, ShareEnd, Leave, Kind::SpinBegin, Kind::Stop];
    let mut seen = kinds(&events, 1);
    // It wakes the leader when that sleeps at its join.
    seen.retain(|&kind| kind != Kind::Wake);
    assert_eq!(seen, worker);
    let mut leader = kinds(&events, 0);
    leader.retain(|kind| ![ParkBegin, ParkEnd].contains(kind));
    assert_eq!(leader, [Reserve, Publish, ShareBegin, ShareEnd, JoinBegin, JoinEnd, Release]);
}

#[test]
fn parks_wakes_and_the_spinning_between_them_are_recorded_in_their_order() {
    let pool = patient(2).idle_spin(Duration::ZERO).build().unwrap();
    let trace = Arc::new(Trace::new(2, 1 << 10));
    pool.set_trace(Some(Arc::clone(&trace)));
    for _ in 0..5 {
        wait_until("the worker to sleep", || pool.resident_members() == 0);
        Exec::new(&pool, 2).unwrap().broadcast(|_| ()).unwrap();
    }
    drop(pool);
    let events = trace.events();
    let worker = kinds(&events, 1);
    for pair in worker.windows(2) {
        match pair[0] {
            Kind::ParkBegin => assert_eq!(pair[1], Kind::ParkEnd),
            Kind::ParkEnd => assert!([Kind::SpinBegin, Kind::Stop].contains(&pair[1]), "{worker:?}"),
            Kind::Leave => assert_eq!(pair[1], Kind::SpinBegin),
            _ => {}
        }
    }
    assert!(worker.iter().filter(|&&kind| kind == Kind::ParkEnd).count() >= 5);
    // The worker wakes the leader when that sleeps at its join.
    let wakes = events.iter().filter(|event| event.kind == Kind::Wake && event.participant == 0);
    assert_eq!(wakes.map(|event| (event.participant, event.value)).collect::<Vec<_>>(), [(0, 1); 5]);
}

#[test]
fn a_leader_that_sleeps_at_its_join_parks_in_that_section() {
    let pool = patient(2).build().unwrap();
    let trace = Arc::new(Trace::new(2, 1 << 10));
    pool.set_trace(Some(Arc::clone(&trace)));
    // Counted once the leader has asked to be woken, which comes after it recorded that it parks.
    let asleep = || pool.stats().leader_sleeps > 0;
    let body = |index| {
        if index == 1 {
            wait_until("the leader to sleep", asleep);
        }
    };
    Exec::new(&pool, 2).unwrap().broadcast(body).unwrap();
    // The worker writes down the wake after it has made it.
    drop(pool);
    let events = trace.events();
    let section = events.iter().find(|event| event.kind == Kind::Publish).unwrap().value;
    let parks = events.iter().filter(|event| event.participant == 0 && event.kind == Kind::ParkBegin);
    assert!(parks.clone().count() > 0 && parks.clone().all(|event| event.value == section));
    let wakes = events.iter().filter(|event| event.participant == 1 && event.kind == Kind::Wake);
    assert_eq!(wakes.map(|event| event.value).collect::<Vec<_>>(), [1]);
    check_nesting(&events, 2);
}

#[test]
fn a_participant_that_sleeps_at_a_barrier_parks_in_that_section() {
    let pool = patient(2).build().unwrap();
    let trace = Arc::new(Trace::new(2, 1 << 10));
    pool.set_trace(Some(Arc::clone(&trace)));
    let asleep = || {
        let in_section = |event: &Event| event.participant == 1 && event.kind == Kind::ParkBegin && event.value > 0;
        trace.events().iter().any(in_section)
    };
    let mut exec = Exec::new(&pool, 2).unwrap();
    exec.team(|team| {
        team.run_with(|participant| {
            if participant.index() == 0 {
                wait_until("the member to sleep", asleep);
            }
            participant.barrier().unwrap();
        });
    })
    .unwrap();
    check_nesting(&trace.events(), 2);
}

#[test]
fn claims_returns_and_refusals_are_recorded_with_their_counts() {
    let events = traced(3, |pool| {
        let mut exec = Exec::new(pool, 3).unwrap();
        exec.reborrow()
            .fork_sized(&[2], |_, child| assert_eq!(child.broadcast(|_| ()), Err(Refused::ForkChild)))
            .unwrap();
        exec.team(|team| team.run(|_, _| ())).unwrap();
    });
    let counts = |kind| {
        let of_kind = events.iter().filter(|event| event.kind == kind);
        of_kind.map(|event| event.value).collect::<Vec<_>>()
    };
    assert_eq!(counts(Kind::Refuse), [2]);
    assert_eq!(counts(Kind::Reserve).iter().sum::<u64>(), counts(Kind::Release).iter().sum());
    assert_eq!(counts(Kind::Reserve).last(), Some(&2));
}

#[test]
fn callers_of_one_pool_have_rings_of_their_own() {
    let pool = patient(2).build().unwrap();
    let trace = Arc::new(Trace::new(2, 1 << 14));
    pool.set_trace(Some(Arc::clone(&trace)));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    Exec::new(&pool, 2).unwrap().fork(4, |_, child| child.for_ranges(4, NonZeroUsize::MIN, |_| ()));
                }
            });
        }
    });
    pool.set_trace(None);
    assert_eq!(trace.further(), ["caller 2", "caller 3"]);
    let events = trace.events();
    check_nesting(&events, 4);
    for caller in [0, 2, 3] {
        assert!(kinds(&events, caller).contains(&Kind::Reserve));
    }
}

#[test]
fn workers_of_two_pools_have_rings_of_their_own() {
    let pools = ["one", "two"].map(|name| patient(2).thread_name(move |_| name.to_owned()).build().unwrap());
    let trace = Arc::new(Trace::new(2, 1 << 10));
    pools.iter().for_each(|pool| pool.set_trace(Some(Arc::clone(&trace))));
    for pool in &pools {
        Exec::new(pool, 2).unwrap().broadcast(|_| ()).unwrap();
    }
    drop(pools);
    let further = trace.further();
    assert!(further == ["one"] || further == ["two"], "{further:?}");
    let events = trace.events();
    check_nesting(&events, 3);
    assert!((0..3).all(|lane| kinds(&events, lane).contains(&Kind::ShareEnd)));
}

#[test]
fn more_threads_than_rings_share_the_last_and_are_counted() {
    let trace = Trace::new(1, 4);
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| trace.record(Kind::Label, 1));
        }
    });
    assert_eq!(trace.further().last().map(String::as_str), Some("all others"));
    let shared = 40 - 16;
    assert_eq!(trace.overwritten_by(), [(16, shared - 4)]);
    assert_eq!(trace.overwritten(), shared - 4);
    assert_eq!(trace.events().len(), 40 - (shared - 4));
}

#[test]
fn a_reader_beside_a_writer_sees_whole_events_only() {
    let trace = Trace::new(1, 4);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0..200_000u64 {
                trace.record_for(0, Kind::ALL[value as usize % Kind::ALL.len()], value);
            }
            end.store(true, Ordering::Relaxed);
        });
        while !end.load(Ordering::Relaxed) {
            for event in trace.events() {
                assert_eq!(event.kind, Kind::ALL[event.value as usize % Kind::ALL.len()]);
            }
        }
    });
}

#[test]
fn ten_thousand_traces_of_one_pool_leave_none_behind() {
    let pool = patient(3).build().unwrap();
    let mut last = std::sync::Weak::new();
    let mut alive = Vec::new();
    for number in 0..10_000 {
        let trace = Arc::new(Trace::new(3, 4));
        pool.set_trace(Some(Arc::clone(&trace)));
        if number % 8 == 0 {
            Exec::new(&pool, 3).unwrap().for_ranges(12, NonZeroUsize::MIN, |_| ());
        }
        pool.set_trace(None);
        last = Arc::downgrade(&trace);
        alive.push(last.clone());
        if number % 500 == 499 {
            alive.retain(|trace| trace.strong_count() > 0);
            assert!(alive.len() <= 8, "{} traces are still there after {number}", alive.len() - 1);
        }
    }
    wait_until("the last trace to be freed", || {
        pool.set_trace(None);
        last.strong_count() == 0
    });
}
