//! Attention against loops in `f64`.

mod elementwise_support;
mod reduce_support;

use elementwise_support::{indices, input, output, Place, Tensor};
use proptest::prelude::*;
use reduce_support::{assert_near, assert_same_bits, numbers, on_widths};
use threadteam::Exec;
use threadteam_kernels::{attention, Real, View, ViewMut};

#[derive(Clone, Debug)]
struct Case {
    batch: Vec<usize>,
    /// The extents m, k, n and p.
    extents: [usize; 4],
    places: [Place; 5],
    alpha: f64,
    beta: f64,
    biased: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let extent =
        || prop_oneof![1 => Just(0usize), 4 => Just(1usize), 6 => 2usize..10, 4 => 10usize..40, 1 => 40usize..130];
    let batch = proptest::collection::vec(1usize..3, 0..3);
    let places = (input(), input(), input(), input(), output());
    let scales = (prop::sample::select(vec![1.0, -0.5, 0.0, 2.5]), prop::sample::select(vec![1.0, 0.0, -1.5]));
    (batch, [extent(), extent(), extent(), extent()], places, scales, any::<bool>()).prop_map(
        |(batch, extents, (a, b, c, d, y), (alpha, beta), biased)| Case {
            batch,
            extents,
            places: [a, b, c, d, y],
            alpha,
            beta,
            biased,
        },
    )
}

impl Case {
    fn dims(&self, rows: usize, cols: usize) -> Vec<usize> {
        [&self.batch[..], &[rows, cols]].concat()
    }
}

/// The operands of one case.
struct Operands<T> {
    a: Tensor<T>,
    b: Tensor<T>,
    bias: Tensor<T>,
    d: Tensor<T>,
}

impl<T: Real> Operands<T> {
    fn of(case: &Case) -> Self {
        let [m, k, n, p] = case.extents;
        Operands {
            a: Tensor::placed(&case.dims(m, k), &case.places[0], &numbers::<T>(997, 1)),
            b: Tensor::placed(&case.dims(k, n), &case.places[1], &numbers::<T>(991, 2)),
            bias: Tensor::placed(&case.dims(m, n), &case.places[2], &numbers::<T>(983, 3)),
            d: Tensor::placed(&case.dims(n, p), &case.places[3], &numbers::<T>(977, 4)),
        }
    }

    /// One element of the result, and the magnitude that its error is measured by.
    fn reference(&self, case: &Case, index: &[usize]) -> (f64, f64) {
        let lead = index.len() - 2;
        let [_, k, n, _] = case.extents;
        let at = |row: usize, col: usize| [&index[..lead], &[row, col]].concat();
        let (row, col) = (index[lead], index[lead + 1]);
        let mut magnitude: f64 = 1.0;
        let scores: Vec<f64> = (0..n)
            .map(|j| {
                let dot: f64 = (0..k).map(|i| self.a.at(&at(row, i)).to_f64() * self.b.at(&at(i, j)).to_f64()).sum();
                let bias = if case.biased && case.beta != 0.0 { self.bias.at(&at(row, j)).to_f64() } else { 0.0 };
                let score = case.alpha * dot + case.beta * bias;
                magnitude = magnitude.max(score.abs());
                score
            })
            .collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
        let total: f64 = weights.iter().sum();
        let sum: f64 =
            weights.iter().enumerate().map(|(j, weight)| weight / total * self.d.at(&at(j, col)).to_f64()).sum();
        (sum, magnitude)
    }
}

fn check<T: Real>(case: &Case) {
    let [m, _, n, p] = case.extents;
    let operands = Operands::<T>::of(case);
    let before = Tensor::placed(&case.dims(m, p), &case.places[4], &[T::from_f64(1e30)]);
    let mut y = before.clone();
    let bias = operands.bias.view();
    attention(
        Exec::serial(),
        T::from_f64(case.alpha),
        &operands.a.view(),
        &operands.b.view(),
        T::from_f64(case.beta),
        case.biased.then_some(&bias),
        &operands.d.view(),
        &mut y.view_mut(),
    );
    assert!(y.gaps_are_untouched(&before));
    let epsilon = if size_of::<T>() == 4 { 4e-6 } else { 1e-14 };
    for index in indices(y.layout.dims()) {
        let (want, magnitude) = if n == 0 { (0.0, 1.0) } else { operands.reference(case, &index) };
        assert_near(y.at(&index).to_f64(), want, epsilon * magnitude, &index);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attention_equals_loops_in_any_layout(case in case()) {
        check::<f32>(&case);
        check::<f64>(&case);
    }
}

/// Attention of contiguous matrices without a bias, on the calling thread.
fn plain<T: Real>([m, k, n, p]: [usize; 4], a: &[T], b: &[T], d: &[T]) -> Vec<T> {
    let mut y = vec![T::from_f64(7.0); m * p];
    let dims = |rows, cols| [rows, cols];
    attention(
        Exec::serial(),
        T::ONE,
        &View::from_slice(a, &dims(m, k)).unwrap(),
        &View::from_slice(b, &dims(k, n)).unwrap(),
        T::ZERO,
        None,
        &View::from_slice(d, &dims(n, p)).unwrap(),
        &mut ViewMut::from_slice(&mut y, &dims(m, p)).unwrap(),
    );
    y
}

#[test]
fn results_are_the_same_bits_at_every_width() {
    for [batch, m, k, n, p] in [[1, 400, 32, 200, 24], [12, 100, 16, 100, 16], [3, 7, 5, 9, 11]] {
        let dims = |rows, cols| [batch, rows, cols];
        let (a, b) = (numbers::<f32>(batch * m * k, 5), numbers::<f32>(batch * k * n, 6));
        let (bias, d) = (numbers::<f32>(batch * m * n, 7), numbers::<f32>(batch * n * p, 8));
        let results = on_widths(|exec| {
            let mut y = vec![0f32; batch * m * p];
            attention(
                exec,
                0.3,
                &View::from_slice(&a, &dims(m, k)).unwrap(),
                &View::from_slice(&b, &dims(k, n)).unwrap(),
                1.0,
                Some(&View::from_slice(&bias, &dims(m, n)).unwrap()),
                &View::from_slice(&d, &dims(n, p)).unwrap(),
                &mut ViewMut::from_slice(&mut y, &dims(m, p)).unwrap(),
            );
            y
        });
        assert_same_bits(&results);
    }
}

#[test]
fn a_row_of_scores_that_is_no_distribution_gives_nan_and_leaves_the_others_alone() {
    let extents = [20, 1, 30, 9];
    let d = numbers::<f32>(30 * 9, 3);
    for odd in [f32::NAN, f32::INFINITY] {
        let mut a = vec![1f32; 20];
        a[4] = odd;
        let b = numbers::<f32>(30, 2);
        let y = plain(extents, &a, &b, &d);
        for (row, values) in y.chunks(9).enumerate() {
            assert!(values.iter().all(|value| value.is_nan() == (row == 4)), "row {row}: {values:?}");
        }
    }
}

#[test]
fn a_column_of_scores_that_is_minus_infinity_has_no_weight() {
    let (a, mut b) = (vec![1f32; 16], vec![0f32; 8]);
    b[3] = f32::NEG_INFINITY;
    let d: Vec<f32> = (0..8).map(|row| if row == 3 { 1e30 } else { 2.0 }).collect();
    for value in plain([16, 1, 8, 1], &a, &b, &d) {
        assert_near(f64::from(value), 2.0, 1e-6, &"mean of the others");
    }
}

#[test]
fn sums_that_overflow_before_the_division_are_computed_after_it() {
    let (m, n) = (40, 64);
    let (a, b) = (vec![0f32; m], vec![0f32; n]);
    let d = vec![f32::MAX / 2.0; n];
    for value in plain([m, 1, n, 1], &a, &b, &d) {
        assert_near(f64::from(value), f64::from(f32::MAX / 2.0), 1e33, &"mean of equal values");
    }
}

#[test]
fn rows_without_a_distribution_and_rows_that_overflow_change_no_bit_of_others() {
    let (m, n, p) = (40, 64, 5);
    // A row with factor -100 weighs the first values alone; one with factor 0 adds the large ones up before it divides.
    let b: Vec<f32> = (0..n).map(|col| if col == 0 { 0.0 } else { 1.0 }).collect();
    let mut d = numbers::<f32>(n * p, 4);
    d[p..].fill(f32::MAX / 2.0);
    let mut a = vec![-100f32; m];
    for (row, factor) in a.iter_mut().enumerate() {
        *factor += row as f32;
    }
    let alone = plain([m, 1, n, p], &a, &b, &d);
    for odd in [f32::NAN, 0.0] {
        let rows = [3, 4, 17, m - 1];
        let mut mixed = a.clone();
        rows.iter().for_each(|&row| mixed[row] = odd);
        let y = plain([m, 1, n, p], &mixed, &b, &d);
        for (row, (values, expected)) in y.chunks(p).zip(alone.chunks(p)).enumerate() {
            if rows.contains(&row) {
                assert!(values.iter().all(|value| value.is_finite() != odd.is_nan()), "row {row}: {values:?}");
            } else {
                assert_eq!(values, expected, "row {row} beside rows with {odd}");
            }
        }
    }
}

#[test]
fn infinite_values_reach_the_rows_that_weigh_them() {
    let (a, b) = (vec![0f32; 12], vec![0f32; 2]);
    let y = plain([12, 1, 2, 2], &a, &b, &[f32::INFINITY, 1.0, 5.0, 3.0]);
    for row in y.chunks(2) {
        assert_eq!(row[0], f32::INFINITY);
        assert_near(f64::from(row[1]), 2.0, 1e-6, &"mean");
    }
}
