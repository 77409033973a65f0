//! The idle clock of a member: it starts with the member's own last share and with nothing else.
//!
//! All is read from the order and the stamps of a member's own events, never from how fast the test gets around to the next
//! section: on a loaded machine any sleep may last tens of milliseconds.

mod common;

use common::wait_until;
use std::sync::Arc;
use std::time::Duration;
use threadteam::trace::{Event, Kind, Trace};
use threadteam::{Exec, Pool, Team};

/// Far above what a section takes, so that parks within it would show.
const DELAY: Duration = Duration::from_millis(40);

/// A team of two, so that no machine of two CPUs is crowded, recorded from before its worker starts.
fn recorded() -> (Team, Arc<Trace>) {
    let pool = Pool::builder().threads(2).lazy(true).idle_spin(DELAY).acquire_timeout(Duration::from_secs(30));
    let pool = pool.build().unwrap();
    let trace = Arc::new(Trace::new(2, 1 << 16));
    pool.set_trace(Some(Arc::clone(&trace)));
    (pool.into_team(2).unwrap(), trace)
}

fn of_member(trace: &Trace) -> Vec<Event> {
    trace.events().into_iter().filter(|event| event.participant == 1).collect()
}

fn parks(trace: &Trace) -> usize {
    of_member(trace).iter().filter(|event| event.kind == Kind::ParkBegin).count()
}

/// Since when a member had nothing to do at each of its parks, and when it parked.
fn waits(events: &[Event]) -> Vec<(Kind, Duration)> {
    let mut since = None;
    let mut waits = Vec::new();
    for event in events {
        match event.kind {
            Kind::Start | Kind::ShareEnd | Kind::ParkEnd => since = Some((event.kind, event.ns)),
            Kind::ParkBegin => {
                let (kind, ns) = since.expect("a member starts before it parks");
                waits.push((kind, Duration::from_nanos(event.ns - ns)));
            }
            _ => {}
        }
    }
    waits
}

/// The delay that counts from the member's first poll, which comes after the event that ended its work: the clock in the
/// trace has then run longer.
fn never_early(events: &[Event]) {
    for (since, wait) in waits(events) {
        assert!(wait >= DELAY, "parked {wait:?} after {since:?}, before its delay of {DELAY:?}");
    }
}

#[test]
fn a_member_parks_only_after_its_delay_and_does_park_then() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return; // A pool of more participants than CPUs does not spin for its delay.
    }
    let (team, trace) = recorded();
    for round in 1..=3 {
        for _ in 0..50 {
            Exec::broadcast(team.exec(2), |_| ()).unwrap();
        }
        wait_until("the member to park once nothing comes any more", || parks(&trace) >= round);
        wait_until("the member to sleep", || team.pool().resident_members() == 0);
    }
    let events = of_member(&trace);
    never_early(&events);
    assert!(waits(&events).iter().filter(|(since, _)| *since == Kind::ShareEnd).count() >= 3);
}

#[test]
fn shares_of_others_do_not_move_a_members_clock() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let (team, trace) = recorded();
    Exec::broadcast(team.exec(2), |_| ()).unwrap();
    // The leader alone goes on: its sections are none of the member's work.
    wait_until("the member to park while its leader works", || {
        team.exec(1).for_ranges(8, std::num::NonZeroUsize::MIN, |_| ());
        parks(&trace) > 0
    });
    never_early(&of_member(&trace));
}

#[test]
fn a_section_wakes_the_member_that_parked() {
    let (team, trace) = recorded();
    for round in 0..3 {
        wait_until("the member to sleep", || parks(&trace) > round && team.pool().resident_members() == 0);
        Exec::broadcast(team.exec(2), |_| ()).unwrap();
        let events = of_member(&trace);
        let ends = events.iter().filter(|event| event.kind == Kind::ParkEnd).count();
        let shares = events.iter().filter(|event| event.kind == Kind::ShareBegin).count();
        assert_eq!((ends, shares), (round + 1, round + 1));
    }
}
