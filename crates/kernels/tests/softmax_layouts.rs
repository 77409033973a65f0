//! Softmax and its logarithm against loops in `f64`.

mod elementwise_support;
mod reduce_support;

use elementwise_support::{indices, input, output, reals, shape, Tensor};
use proptest::prelude::*;
use reduce_support::{assert_near, assert_same_bits, numbers, on_widths};
use threadteam::Exec;
use threadteam_kernels::{softmax, Real, View, ViewMut};

fn reference<T: Real>(x: &Tensor<T>, axis: usize, log: bool, index: &[usize]) -> f64 {
    let mut at = index.to_vec();
    let mut row = Vec::new();
    for i in 0..x.layout.dims()[axis] {
        at[axis] = i;
        row.push(x.at(&at).to_f64());
    }
    if row.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
    let x = x.at(index).to_f64() - max;
    if log {
        x - sum.ln()
    } else {
        x.exp() / sum
    }
}

fn check<T: Real>(dims: &[usize], axis: usize, log: bool, x: &Tensor<T>, before: &Tensor<T>) {
    let mut y = before.clone();
    softmax(Exec::serial(), &x.view(), axis, log, &mut y.view_mut());
    assert!(y.gaps_are_untouched(before));
    let epsilon = if size_of::<T>() == 4 { 5e-7 } else { 1e-14 };
    for index in indices(dims) {
        let want = reference(x, axis, log, &index);
        assert_near(y.at(&index).to_f64(), want, epsilon * (1.0 + want.abs()), &index);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn softmax_equals_loops_in_any_layout(
        dims in shape().prop_filter("an axis", |dims| !dims.is_empty()),
        places in (input(), output()),
        values in reals(),
        axis in 0..8usize,
        log in any::<bool>(),
    ) {
        let axis = axis % dims.len();
        // What is left of a huge difference in f32 is a matter of its own.
        let narrow: Vec<f32> = values.iter().map(|&v| if v.is_finite() { v.clamp(-300.0, 300.0) } else { v } as f32).collect();
        let wide: Vec<f64> = narrow.iter().map(|&v| f64::from(v)).collect();
        check(&dims, axis, log, &Tensor::placed(&dims, &places.0, &narrow), &Tensor::placed(&dims, &places.1, &[7.0f32]));
        check(&dims, axis, log, &Tensor::placed(&dims, &places.0, &wide), &Tensor::placed(&dims, &places.1, &[7.0f64]));
    }
}

fn rows<T: Real>(exec: Exec<'_>, dims: &[usize], axis: usize, log: bool) -> Vec<T> {
    let x: Vec<T> = numbers::<T>(dims.iter().product(), 6).iter().map(|&v| v * T::from_f64(9.0)).collect();
    let mut y = vec![T::ZERO; x.len()];
    let mut out = ViewMut::from_slice(&mut y, dims).unwrap();
    softmax(exec, &View::from_slice(&x, dims).unwrap(), axis, log, &mut out);
    y
}

#[test]
fn softmax_is_the_same_bits_at_every_width() {
    let cases: [(&[usize], usize); 5] =
        [(&[1, 300_000], 1), (&[5000, 16], 1), (&[300, 200], 0), (&[20, 40, 60], 1), (&[2, 100_000], 1)];
    for (dims, axis) in cases {
        for log in [false, true] {
            assert_same_bits(&on_widths(|exec| rows::<f32>(exec, dims, axis, log)));
            assert_same_bits(&on_widths(|exec| rows::<f64>(exec, dims, axis, log)));
        }
    }
}

#[test]
fn a_long_row_sums_to_one() {
    let sum: f64 = rows::<f32>(Exec::serial(), &[1_000_000], 0, false).iter().map(|&v| f64::from(v)).sum();
    assert_near(sum, 1.0, 1e-6, &"sum");
}

#[test]
fn a_row_of_nothing_but_negative_infinity_is_nan() {
    for len in [1, 16, 33, 100_000] {
        let x = vec![f32::NEG_INFINITY; len];
        let mut y = vec![0.0f32; len];
        let mut out = ViewMut::from_slice(&mut y, &[len]).unwrap();
        softmax(Exec::serial(), &View::from_slice(&x, &[len]).unwrap(), 0, false, &mut out);
        assert!(y.iter().all(|v| v.is_nan()));
    }
}

#[test]
fn nan_in_a_long_row_makes_it_nan() {
    let mut x = vec![1.0f64; 100_000];
    x[70_000] = f64::NAN;
    let mut y = vec![0.0f64; x.len()];
    let dims = [x.len()];
    let mut out = ViewMut::from_slice(&mut y, &dims).unwrap();
    softmax(Exec::serial(), &View::from_slice(&x, &dims).unwrap(), 0, false, &mut out);
    assert!(y.iter().all(|v| v.is_nan()));
}

#[test]
fn masked_elements_become_exactly_zero() {
    let x = [0.5f32, -1e9, 1.0, f32::NEG_INFINITY];
    let mut y = [9.0f32; 4];
    let mut out = ViewMut::from_slice(&mut y, &[4]).unwrap();
    softmax(Exec::serial(), &View::from_slice(&x, &[4]).unwrap(), 0, false, &mut out);
    assert_eq!([y[1], y[3]], [0.0, 0.0]);
}
