//! Layer normalisation against loops in `f64`.

mod elementwise_support;
mod reduce_support;

use elementwise_support::{indices, input, output, shape, Tensor};
use proptest::prelude::*;
use reduce_support::{assert_near, assert_same_bits, numbers, on_widths};
use threadteam::Exec;
use threadteam_kernels::{layer_norm, Real, View, ViewMut};

const EPSILON: f64 = 1e-5;

/// Mean and inverse deviation of the row that begins with these indices.
fn statistics<T: Real>(x: &Tensor<T>, lead: &[usize]) -> (f64, f64) {
    let tails = indices(&x.layout.dims()[lead.len()..]);
    let row: Vec<f64> = tails.iter().map(|tail| x.at(&[lead, tail].concat()).to_f64()).collect();
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

fn check<T: Real>(dims: &[usize], axis: usize, biased: bool, operands: [&Tensor<T>; 3], before: &Tensor<T>) {
    let [x, scale, bias] = operands;
    let mut y = before.clone();
    let reduced: Vec<usize> = (0..dims.len()).map(|at| if at < axis { dims[at] } else { 1 }).collect();
    let empty = vec![T::ZERO; reduced.iter().product()];
    let (mut mean, mut inverse) = (Tensor::of(&reduced, empty.clone()), Tensor::of(&reduced, empty));
    let shift = bias.view();
    layer_norm(
        Exec::serial(),
        &x.view(),
        &scale.view(),
        biased.then_some(&shift),
        axis,
        EPSILON,
        &mut y.view_mut(),
        Some(&mut mean.view_mut()),
        Some(&mut inverse.view_mut()),
    );
    assert!(y.gaps_are_untouched(before));
    let rows: Vec<_> = indices(&dims[..axis]).iter().map(|lead| statistics(x, lead)).collect();
    let len: usize = dims[axis..].iter().product();
    for (at, index) in indices(dims).into_iter().enumerate() {
        let (centre, deviation) = rows[at / len];
        let shift = if biased { bias.at(&index).to_f64() } else { 0.0 };
        let want = (x.at(&index).to_f64() - centre) * deviation * scale.at(&index).to_f64() + shift;
        let tolerance = if size_of::<T>() == 4 { 1e-5 } else { 1e-12 };
        // The mean is rounded to `T`: half a unit in its last place, seen through the inverse deviation.
        let rounding = if size_of::<T>() == 4 { 2e-7 } else { 2e-15 } * centre.abs() * deviation;
        assert_near(y.at(&index).to_f64(), want, tolerance * (1.0 + want.abs()) + rounding, &index);
        let mut row = index.clone();
        row[axis..].fill(0);
        assert_near(mean.at(&row).to_f64(), centre, tolerance, &"mean");
        assert_near(inverse.at(&row).to_f64(), deviation, tolerance * deviation, &"inverse deviation");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn layer_norm_equals_loops_in_any_layout(
        dims in shape(),
        places in (input(), input(), input(), output()),
        axis in 0..9usize,
        biased in any::<bool>(),
    ) {
        let axis = axis % (dims.len() + 1);
        fn tensor<T: Real>(dims: &[usize], place: &elementwise_support::Place, seed: u64) -> Tensor<T> {
            Tensor::placed(dims, place, &numbers::<T>(997, seed))
        }
        check::<f32>(&dims, axis, biased, [&tensor(&dims, &places.0, 1), &tensor(&dims, &places.1, 2), &tensor(&dims, &places.2, 3)], &tensor(&dims, &places.3, 4));
        check::<f64>(&dims, axis, biased, [&tensor(&dims, &places.0, 1), &tensor(&dims, &places.1, 2), &tensor(&dims, &places.2, 3)], &tensor(&dims, &places.3, 4));
    }
}

fn normalised<T: Real>(exec: Exec<'_>, x: &[T], dims: [usize; 2]) -> Vec<T> {
    let one = vec![T::ONE; x.len()];
    let mut y = vec![T::ZERO; x.len()];
    let (x, scale) = (View::from_slice(x, &dims).unwrap(), View::from_slice(&one, &dims).unwrap());
    let mut out = ViewMut::from_slice(&mut y, &dims).unwrap();
    layer_norm(exec, &x, &scale, None, 1, EPSILON, &mut out, None, None);
    y
}

#[test]
fn layer_norm_is_the_same_bits_at_every_width() {
    let dims = [200, 768];
    assert_same_bits(&on_widths(|exec| normalised(exec, &numbers::<f32>(dims[0] * dims[1], 5), dims)));
    assert_same_bits(&on_widths(|exec| normalised(exec, &numbers::<f64>(dims[0] * dims[1], 5), dims)));
}

#[test]
fn a_large_mean_does_not_drown_the_variance() {
    let x: Vec<f32> = numbers::<f32>(100_000, 6).iter().map(|v| v + 1000.0).collect();
    let y = normalised(Exec::serial(), &x, [1, x.len()]);
    let wide: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
    let mean = wide.iter().sum::<f64>() / wide.len() as f64;
    let variance = wide.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / wide.len() as f64;
    for (got, x) in y.iter().zip(wide).step_by(97) {
        // The mean itself is known to half a unit in the last place of 1000.
        assert_near(f64::from(*got), (x - mean) / (variance + EPSILON).sqrt(), 1e-4, &x);
    }
}

#[test]
fn nan_stays_in_its_row() {
    let mut x = numbers::<f32>(4 * 50, 7);
    x[60] = f32::NAN;
    let y = normalised(Exec::serial(), &x, [4, 50]);
    assert!(y.iter().enumerate().all(|(at, v)| v.is_nan() == (at / 50 == 1)));
}
