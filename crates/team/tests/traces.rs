//! The recorded events of sections are complete and well nested.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use threadteam::trace::{Event, Kind, Trace};
use threadteam::{Exec, Pool};

fn traced(threads: usize, run: impl Fn(&Pool)) -> Vec<Event> {
    let pool = Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(30)).build().unwrap();
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
        _ => None,
    }
}

fn is_closing(kind: Kind) -> bool {
    matches!(kind, Kind::ShareEnd | Kind::JoinEnd | Kind::BarrierEnd | Kind::ParkEnd)
}

/// Checks that begins and ends match like brackets on every lane, with rising times. A worker may have gone to sleep
/// before the trace was set, and may sleep when it is taken away.
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
        assert!(open.iter().all(|&(end, _)| end == Kind::ParkEnd), "lane {lane} left {open:?} open");
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
    for event in events.iter().filter(|event| !matches!(event.kind, Kind::ParkBegin | Kind::ParkEnd | Kind::Wake)) {
        kinds.entry(event.value).or_default().push((event.participant, event.kind));
    }
    assert_eq!(kinds.len(), 50);
    for (section, seen) in kinds {
        let count = |lane, kind| seen.iter().filter(|&&event| event == (lane, kind)).count();
        assert_eq!((count(0, Kind::Publish), count(0, Kind::JoinBegin), count(0, Kind::JoinEnd)), (1, 1, 1));
        for lane in 0..3 {
            assert_eq!((count(lane, Kind::ShareBegin), count(lane, Kind::ShareEnd)), (1, 1), "section {section}");
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
    assert!(trace.events().iter().all(|event| matches!(event.kind, Kind::ParkBegin | Kind::ParkEnd)));
}
