//! The cost model on inputs that nobody chose.

use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::time::Duration;
use threadteam::{pays_at, width_for_by, WidthCosts, PAYS};

fn nz(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

fn anchors() -> impl Strategy<Value = Vec<(usize, Duration)>> {
    prop::collection::btree_map(2_usize..2000, 1_u64..100_000, 1..=WidthCosts::MAX_ANCHORS)
        .prop_map(|row| row.into_iter().map(|(width, nanos)| (width, Duration::from_nanos(nanos))).collect())
}

proptest! {
    // A failure prints its input; a file of such inputs would be written beside the sources.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_holds_its_anchors(anchors in anchors()) {
        let row = WidthCosts::from_anchors(&anchors).unwrap();
        prop_assert_eq!(row.anchors().collect::<Vec<_>>(), anchors.clone());
        for &(width, cost) in &anchors {
            prop_assert_eq!(row.at(nz(width)), cost);
        }
        prop_assert_eq!(Some(row.min()), anchors.iter().map(|&(_, cost)| cost).min());
    }

    #[test]
    fn a_row_is_flat_then_a_line_then_proportional(anchors in anchors(), width in 1_usize..20_000) {
        let row = WidthCosts::from_anchors(&anchors).unwrap();
        let cost = row.at(nz(width)).as_nanos() as i128;
        let below = anchors.iter().rev().find(|&&(anchor, _)| anchor <= width);
        let above = anchors.iter().find(|&&(anchor, _)| anchor >= width);
        let of = |&(width, cost): &(usize, Duration)| (width as i128, cost.as_nanos() as i128);
        let at = width as i128;
        let expected = match (below.map(of), above.map(of)) {
            (None, Some((_, first))) => first,
            (Some((last, most)), None) => most * at / last,
            (Some((lo, low)), Some((hi, high))) if lo < hi => low + (high - low) * (at - lo) / (hi - lo),
            (Some((_, cost)), _) => cost,
            (None, None) => unreachable!("a row has an anchor"),
        };
        prop_assert_eq!(cost, expected, "at {}", width);
        prop_assert!(row.at(nz(width)) >= row.min());
    }

    #[test]
    fn anchors_are_taken_exactly_when_their_widths_rise_within_the_limits(
        widths in prop::collection::vec(prop_oneof![0_usize..20, 65_530_usize..65_540], 0..15)
    ) {
        let anchors: Vec<_> = widths.iter().map(|&width| (width, Duration::from_micros(1))).collect();
        let fits = !widths.is_empty()
            && widths.len() <= WidthCosts::MAX_ANCHORS
            && widths.windows(2).all(|pair| pair[0] < pair[1])
            && widths.iter().all(|&width| (2..=65_535).contains(&width));
        prop_assert_eq!(WidthCosts::from_anchors(&anchors).is_some(), fits);
    }

    #[test]
    fn no_cost_and_no_width_overflows(nanos in any::<u64>(), seconds in any::<u64>(), width in 1_usize..=usize::MAX) {
        let cost = Duration::new(seconds, (nanos % 1_000_000_000) as u32);
        let row = WidthCosts::from_anchors(&[(2, cost), (3, Duration::MAX)]).unwrap();
        let most = Duration::from_nanos(u64::MAX);
        prop_assert!((cost.min(most)..=most).contains(&row.at(nz(width))));
        prop_assert!(WidthCosts::flat(cost).at(nz(width)) >= Duration::ZERO);
    }

    #[test]
    fn what_pays_goes_on_paying_when_it_is_longer_or_cheaper(
        estimate in 0_u64..1_000_000, more in 0_u64..1_000_000, sections in 0_u32..100, cost in 0_u64..10_000
    ) {
        let nanos = Duration::from_nanos;
        let pays = pays_at(nanos(estimate), sections, nanos(cost));
        prop_assert_eq!(pays, estimate >= PAYS as u64 * u64::from(sections) * cost);
        if pays {
            prop_assert!(pays_at(nanos(estimate + more), sections, nanos(cost)));
            prop_assert!(pays_at(nanos(estimate), sections, nanos(cost / 2)));
        }
    }

    #[test]
    fn the_chosen_width_is_the_best_that_pays(
        anchors in anchors(), estimate in 0_u64..10_000_000, sections in 0_u32..20, budget in 1_usize..100
    ) {
        let row = WidthCosts::from_anchors(&anchors).unwrap();
        let estimate = Duration::from_nanos(estimate);
        let chosen = width_for_by(estimate, sections, nz(budget), |width| row.at(width)).get();
        let time = |width: usize| match width {
            1 => estimate.as_nanos() as f64,
            _ => f64::from(sections) * row.at(nz(width)).as_nanos() as f64 + estimate.as_nanos() as f64 / width as f64,
        };
        prop_assert!((1..=budget).contains(&chosen));
        prop_assert!(chosen == 1 || pays_at(estimate, sections, row.at(nz(chosen))));
        let least = (2..=budget)
            .filter(|&width| pays_at(estimate, sections, row.at(nz(width))))
            .map(time)
            .fold(time(1), f64::min);
        prop_assert!(time(chosen) <= least, "width {chosen}: {} against {least}", time(chosen));
    }
}
