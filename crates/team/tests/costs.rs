//! The cost model: anchors, interpolation, extrapolation, ties, and what a token charges.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;
use threadteam::{
    pays_at, width_for_by, DispatchCosts, DispatchKind, Error, Exec, HostClass, Pool, Sample, WidthCosts, PAYS,
};

fn nz(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

#[test]
fn the_first_anchor_holds_below_it_and_the_last_grows_with_the_width() {
    let row = WidthCosts::from_anchors(&[(4, us(8)), (8, us(10))]).unwrap();
    assert_eq!([1, 2, 4].map(|width| row.at(nz(width))), [us(8); 3]);
    assert_eq!(row.at(nz(16)), us(20));
    assert_eq!(row.at(nz(64)), us(80));
}

#[test]
fn between_anchors_the_cost_is_a_straight_line() {
    let row = WidthCosts::from_anchors(&[(2, us(2)), (6, us(10)), (7, us(4))]).unwrap();
    assert_eq!([2, 3, 4, 5, 6, 7].map(|width| row.at(nz(width)).as_nanos()), [2000, 4000, 6000, 8000, 10000, 4000]);
    assert_eq!(row.min(), us(2));
}

#[test]
fn new_and_flat_anchor_widths_two_four_and_six() {
    let row = WidthCosts::new([us(1), us(3), us(7)]);
    assert_eq!([2, 3, 4, 5, 6].map(|width| row.at(nz(width))), [us(1), us(2), us(3), us(5), us(7)]);
    assert_eq!(WidthCosts::flat(us(3)), WidthCosts::new([us(3); 3]));
    assert_eq!(WidthCosts::flat(us(3)).at(nz(12)), us(6));
}

#[test]
fn anchors_must_rise_from_two_and_fit() {
    assert!(WidthCosts::from_anchors(&[]).is_none());
    assert!(WidthCosts::from_anchors(&[(1, us(1))]).is_none());
    assert!(WidthCosts::from_anchors(&[(4, us(1)), (4, us(2))]).is_none());
    assert!(WidthCosts::from_anchors(&[(4, us(1)), (3, us(2))]).is_none());
    assert!(WidthCosts::from_anchors(&[(65_536, us(1))]).is_none());
    assert!(WidthCosts::from_anchors(&[(65_535, us(1))]).is_some());
    let twelve: Vec<(usize, Duration)> = (2..14).map(|width| (width, us(1))).collect();
    assert_eq!(twelve.len(), WidthCosts::MAX_ANCHORS);
    assert!(WidthCosts::from_anchors(&twelve).is_some());
    let thirteen: Vec<(usize, Duration)> = (2..15).map(|width| (width, us(1))).collect();
    assert!(WidthCosts::from_anchors(&thirteen).is_none());
}

#[test]
fn an_extrapolated_cost_saturates() {
    let row = WidthCosts::from_anchors(&[(2, Duration::MAX), (4, Duration::ZERO), (8, Duration::MAX)]).unwrap();
    let most = Duration::from_nanos(u64::MAX);
    assert_eq!([2, 8, 9, usize::MAX].map(|width| row.at(nz(width))), [most; 4]);
    assert_eq!(row.at(nz(3)).as_nanos(), u64::MAX as u128 / 2 + 1);
    assert_eq!(row.at(nz(6)).as_nanos(), u64::MAX as u128 / 2);
}

#[test]
fn a_region_pays_at_three_times_its_sections_and_not_below() {
    assert_eq!(PAYS, 3.0);
    assert!(pays_at(us(30), 10, us(1)));
    assert!(!pays_at(us(30) - Duration::from_nanos(1), 10, us(1)));
    assert!(pays_at(Duration::ZERO, 0, us(1)));
    assert!(pays_at(Duration::MAX, u32::MAX, us(1)));
}

#[test]
fn nothing_pays_where_there_is_nothing_to_dispatch_to() {
    assert!(!pays_at(Duration::ZERO, 0, Duration::MAX));
    assert!(!pays_at(Duration::MAX, 1, Duration::MAX));
    assert!(!Exec::serial().pays(Duration::MAX, 0, nz(8)));
    assert_eq!(width_for_by(Duration::MAX, 0, nz(8), |_| Duration::MAX).get(), 1);
}

#[test]
fn the_rule_is_exact_to_the_nanosecond() {
    for nanos in 1..2000 {
        let (cost, due) = (Duration::from_nanos(nanos), Duration::from_nanos(7 * 3 * nanos));
        assert!(pays_at(due, 7, cost), "{nanos}");
        assert!(!pays_at(due - Duration::from_nanos(1), 7, cost), "{nanos}");
    }
}

#[test]
fn the_cost_of_a_fraction_of_a_nanosecond_is_rounded_down() {
    let row = WidthCosts::new([us(3), us(2), us(1)]);
    assert_eq!([7, 8, 64].map(|width| row.at(nz(width)).as_nanos()), [1166, 1333, 10_666]);
    let row = WidthCosts::from_anchors(&[(2, us(1)), (5, us(2)), (8, us(1))]).unwrap();
    // Towards the anchor below, rising and falling.
    assert_eq!([3, 4, 6, 7].map(|width| row.at(nz(width)).as_nanos()), [1333, 1666, 1667, 1334]);
}

#[test]
fn the_width_minimises_the_time_and_ties_go_to_the_smaller() {
    let free = |_| Duration::ZERO;
    assert_eq!(width_for_by(us(100), 1, nz(8), free).get(), 8);
    // 12 us at width 2 and at width 3: 6 + 6 against 8 + 4.
    let tie = |width: NonZeroUsize| if width.get() == 2 { us(6) } else { us(8) };
    assert_eq!(width_for_by(us(12), 0, nz(3), |_| Duration::ZERO).get(), 3);
    let sections = |estimate| width_for_by(estimate, 1, nz(3), tie).get();
    assert_eq!(sections(us(12)), 1, "neither pays");
    let halves = |width: NonZeroUsize| if width.get() == 2 { us(1) } else { us(3) };
    assert_eq!(width_for_by(us(12), 1, nz(3), halves).get(), 2, "1 + 6 and 3 + 4 tie");
    let growing = |width: NonZeroUsize| us(width.get() as u64);
    assert_eq!(width_for_by(us(9), 1, nz(8), growing).get(), 3);
}

#[test]
fn a_width_that_does_not_pay_is_not_chosen_even_if_it_were_fastest() {
    let steep = |width: NonZeroUsize| if width.get() < 4 { us(1) } else { us(40) };
    assert_eq!(width_for_by(us(100), 1, nz(8), steep).get(), 3);
    assert_eq!(width_for_by(us(2), 1, nz(8), steep).get(), 1);
}

#[test]
fn tokens_charge_their_own_kind_and_nothing_to_dispatch_costs_for_ever() {
    let costs = DispatchCosts::new(WidthCosts::flat(us(1)), WidthCosts::flat(us(2)), WidthCosts::flat(us(3)));
    let pool = Pool::builder().threads(4).dispatch_costs(costs).build().unwrap();
    assert_eq!(pool.dispatch_costs(), costs);
    assert_eq!(Exec::serial().dispatch_cost(nz(4)), Duration::MAX);
    let exec = Exec::new(&pool, 4).unwrap();
    assert_eq!(exec.dispatch_cost(nz(1)), Duration::MAX);
    assert_eq!(exec.dispatch_cost(nz(4)), us(3));
    assert!(exec.pays(us(9), 1, nz(4)) && !exec.pays(us(8), 1, nz(4)));
    assert_eq!(exec.width_for(us(100), 1).get(), 4);
    assert_eq!(exec.width_for(us(8), 1).get(), 1);
    drop(exec);
    let team = pool.into_team(4).unwrap();
    let mut exec = team.exec(4);
    assert_eq!(exec.dispatch_cost(nz(2)), us(1));
    assert_eq!(exec.dispatch_cost(nz(99)), us(1));
    exec.team(|team| {
        assert_eq!(team.dispatch_costs(), costs);
        assert_eq!((team.dispatch_cost(nz(2)), team.dispatch_cost(nz(1))), (us(1), Duration::MAX));
        assert!(team.pays(us(3), 1, nz(2)));
        assert_eq!(team.width_for(us(2), 1).get(), 1);
    })
    .unwrap();
}

#[test]
fn a_worker_charges_its_own_kind_on_its_pool_and_not_on_another() {
    let costs = DispatchCosts::new(WidthCosts::flat(us(1)), WidthCosts::flat(us(2)), WidthCosts::flat(us(3)));
    let pool = || Pool::builder().threads(2).dispatch_costs(costs).acquire_timeout(us(60_000_000)).build().unwrap();
    let (own, other) = (pool(), pool());
    let seen = Mutex::new(Vec::new());
    let charge = |pool: &Pool| {
        let exec = Exec::new(pool, 2).unwrap();
        // Of 8 us, `PAYS` times 2 us is what a worker pays; from outside it would be 9.
        (exec.dispatch_cost(nz(2)), exec.width_for(us(8), 1).get())
    };
    Exec::new(&own, 2)
        .unwrap()
        .broadcast(|index| {
            let charges = (index, charge(&own), charge(&other));
            seen.lock().unwrap().push(charges);
        })
        .unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    assert_eq!(seen, [(0, (us(3), 1), (us(3), 1)), (1, (us(2), 2), (us(3), 1))]);
}

#[test]
fn a_sample_runs_the_sections_that_it_times() {
    let pool = Pool::builder().threads(3).acquire_timeout(us(60_000_000)).build().unwrap();
    for (kind, width) in [(DispatchKind::Outside, 3), (DispatchKind::Team, 3), (DispatchKind::InPool, 2)] {
        let counted = || pool.stats().sections + pool.stats().left_out;
        let before = counted();
        let sample = Sample::take(&pool, kind, nz(width), 40).unwrap();
        assert!(counted() - before >= 40, "{kind:?}");
        assert!(sample.share > Duration::ZERO && sample.section > Duration::ZERO, "{kind:?}: {sample:?}");
        assert!((0.0..=width as f64 - 1.0).contains(&sample.members), "{kind:?}: {sample:?}");
    }
}

#[test]
fn a_section_that_the_pool_cannot_have_is_not_measured() {
    let pool = Pool::builder().threads(2).build().unwrap();
    for (kind, width, sections) in [
        (DispatchKind::Team, 3, 10),
        (DispatchKind::Outside, 1, 10),
        (DispatchKind::InPool, 2, 10),
        (DispatchKind::Outside, 2, 0),
    ] {
        assert_eq!(Sample::take(&pool, kind, nz(width), sections), Err(Error::NotMeasured { kind, width }));
    }
    let sample = Sample { section: us(3), share: us(5), members: 1.0 };
    assert_eq!(sample.cost(), Duration::ZERO, "noise can make a share slower than its section");
}

#[test]
fn every_class_has_a_row_and_a_name_and_costs_that_do_not_fall() {
    let classes = [
        (HostClass::X86_64Avx512, "x86_64-avx512"),
        (HostClass::X86_64Avx2, "x86_64-avx2"),
        (HostClass::X86_64Scalar, "x86_64-scalar"),
        (HostClass::Aarch64Apple, "aarch64-apple"),
        (HostClass::Aarch64, "aarch64"),
        (HostClass::Generic, "generic"),
    ];
    for (class, name) in classes {
        assert_eq!(class.name(), name);
        let costs = DispatchCosts::for_class(class);
        for kind in [DispatchKind::Team, DispatchKind::InPool, DispatchKind::Outside] {
            let row: Vec<Duration> = (2..70).map(|width| costs.cost(kind, nz(width))).collect();
            assert!(row.windows(2).all(|pair| pair[0] <= pair[1]), "{name} {kind:?}");
            assert_eq!(costs.min_cost(kind), row[0]);
            assert!(row[0] >= Duration::from_nanos(500) && row[0] < us(3), "{name} {kind:?}");
        }
    }
    assert_eq!(DispatchCosts::host_default(), DispatchCosts::for_class(HostClass::detect()));
}

#[test]
fn one_kind_is_replaced_and_the_others_stay() {
    let before = DispatchCosts::for_class(HostClass::Generic);
    let after = before.with(DispatchKind::InPool, WidthCosts::flat(us(5)));
    assert_eq!(after.cost(DispatchKind::InPool, nz(2)), us(5));
    for kind in [DispatchKind::Team, DispatchKind::Outside] {
        assert_eq!(after.cost(kind, nz(5)), before.cost(kind, nz(5)));
    }
}
