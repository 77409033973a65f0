//! Reductions against loops in `f64`.

mod elementwise_support;
mod reduce_support;

use elementwise_support::{indices, input, output, reals, shape, Tensor};
use proptest::prelude::*;
use reduce_support::{assert_near, assert_same_bits, numbers, on_widths};
use threadteam::Exec;
use threadteam_kernels::{reduce, Real, Reduction, View, ViewMut};

const ALL: [Reduction; 10] = [
    Reduction::Sum,
    Reduction::Mean,
    Reduction::Max,
    Reduction::Min,
    Reduction::Prod,
    Reduction::SumSquare,
    Reduction::L1,
    Reduction::L2,
    Reduction::LogSum,
    Reduction::LogSumExp,
];

/// The result, and the size of what is summed on the way to it.
fn reference(op: Reduction, values: &[f64]) -> (f64, f64) {
    let sum = |f: &dyn Fn(f64) -> f64| values.iter().map(|&v| f(v)).sum::<f64>();
    let pick = |better: &dyn Fn(f64, f64) -> bool, start: f64| {
        values.iter().fold(start, |best, &v| if v.is_nan() || better(v, best) { v } else { best })
    };
    let magnitude = sum(&f64::abs);
    match op {
        Reduction::Sum => (sum(&|v| v), magnitude),
        Reduction::Mean => (sum(&|v| v) / values.len() as f64, magnitude / values.len() as f64),
        Reduction::Max => (pick(&|a, b| a > b, f64::NEG_INFINITY), 0.0),
        Reduction::Min => (pick(&|a, b| a < b, f64::INFINITY), 0.0),
        Reduction::Prod => {
            let product = values.iter().product::<f64>();
            (product, product.abs())
        }
        Reduction::SumSquare => (sum(&|v| v * v), sum(&|v| v * v)),
        Reduction::L1 => (magnitude, magnitude),
        Reduction::L2 => (sum(&|v| v * v).sqrt(), sum(&|v| v * v).sqrt()),
        // The logarithm of a sum is as far off as the sum is, relative to the sum.
        Reduction::LogSum => (sum(&|v| v).ln(), 1.0 + sum(&|v| v).ln().abs() + magnitude / sum(&|v| v).abs()),
        Reduction::LogSumExp => {
            let max = pick(&|a, b| a > b, f64::NEG_INFINITY);
            let value = if max.is_finite() { sum(&|v| (v - max).exp()).ln() + max } else { max };
            (value, 1.0 + value.abs())
        }
    }
}

fn check<T: Real>(op: Reduction, dims: &[usize], mask: u8, x: &Tensor<T>, place: &elementwise_support::Place) {
    let reduced = |axis: usize| mask >> axis & 1 == 1;
    let kept: Vec<usize> = (0..dims.len()).map(|axis| if reduced(axis) { 1 } else { dims[axis] }).collect();
    let before = Tensor::placed(&kept, place, &[T::from_f64(77.0)]);
    let mut y = before.clone();
    reduce(Exec::serial(), op, &x.view(), mask, &mut y.view_mut());
    assert!(y.gaps_are_untouched(&before));
    let gone: Vec<usize> = (0..dims.len()).map(|axis| if reduced(axis) { dims[axis] } else { 1 }).collect();
    let epsilon = if size_of::<T>() == 4 { 1e-6 } else { 1e-14 };
    for index in indices(&kept) {
        let inner = indices(&gone);
        let values: Vec<f64> = inner
            .iter()
            .map(|inner| x.at(&index.iter().zip(inner).map(|(a, b)| a + b).collect::<Vec<_>>()).to_f64())
            .collect();
        let (want, size) = reference(op, &values);
        // Products of many f32 leave the range that f64 loops stay in.
        let limit = if size_of::<T>() == 4 { 1e30 } else { 1e300 };
        if want.is_finite() && !(want == 0.0 || (1.0 / limit..limit).contains(&want.abs())) {
            continue;
        }
        assert_near(y.at(&index).to_f64(), want, epsilon * size * (1.0 + values.len() as f64 / 8.0), &(op, &index));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reduction_equals_loops_in_any_layout(
        dims in shape(),
        places in (input(), output()),
        mask in any::<u8>(),
        op in prop::sample::select(ALL.to_vec()),
    ) {
        let mask = mask & ((1u16 << dims.len()) - 1) as u8;
        let positive = op == Reduction::LogSum;
        fn values<T: Real>(positive: bool) -> Vec<T> {
            numbers::<T>(997, 8).iter().map(|&v| if positive && v < T::ZERO { -v } else { v }).collect()
        }
        check::<f32>(op, &dims, mask, &Tensor::placed(&dims, &places.0, &values(positive)), &places.1);
        check::<f64>(op, &dims, mask, &Tensor::placed(&dims, &places.0, &values(positive)), &places.1);
    }

    #[test]
    fn largest_and_smallest_propagate_nan_and_infinity(
        dims in shape(),
        places in (input(), output()),
        mask in any::<u8>(),
        values in reals(),
        op in prop::sample::select(vec![Reduction::Max, Reduction::Min]),
    ) {
        let mask = mask & ((1u16 << dims.len()) - 1) as u8;
        check::<f64>(op, &dims, mask, &Tensor::placed(&dims, &places.0, &values), &places.1);
    }
}

fn reduced<T: Real>(exec: Exec<'_>, op: Reduction, dims: &[usize], mask: u8) -> Vec<T> {
    let x = numbers::<T>(dims.iter().product(), 9);
    let kept: Vec<usize> = (0..dims.len()).map(|axis| if mask >> axis & 1 == 1 { 1 } else { dims[axis] }).collect();
    let mut y = vec![T::ZERO; kept.iter().product()];
    let mut out = ViewMut::from_slice(&mut y, &kept).unwrap();
    reduce(exec, op, &View::from_slice(&x, dims).unwrap(), mask, &mut out);
    y
}

#[test]
fn reductions_are_the_same_bits_at_every_width() {
    let cases: [(&[usize], u8); 6] = [
        (&[300_000], 1),
        (&[3, 90_000], 2),
        (&[2000, 64], 1),
        (&[2000, 64], 2),
        (&[40, 50, 60], 0b101),
        (&[40, 50, 60], 0b111),
    ];
    for (dims, mask) in cases {
        for op in ALL {
            assert_same_bits(&on_widths(|exec| reduced::<f32>(exec, op, dims, mask)));
        }
        assert_same_bits(&on_widths(|exec| reduced::<f64>(exec, Reduction::Sum, dims, mask)));
    }
}

#[test]
fn a_sum_of_millions_of_singles_is_accurate() {
    for (dims, mask) in [(&[4_000_000][..], 1), (&[250_000, 16][..], 1), (&[250_000, 16][..], 3)] {
        let x = vec![0.1f32; 4_000_000];
        let kept: Vec<usize> = (0..dims.len()).map(|axis| if mask >> axis & 1 == 1 { 1 } else { dims[axis] }).collect();
        let mut y = vec![0.0f32; kept.iter().product()];
        let mut out = ViewMut::from_slice(&mut y, &kept).unwrap();
        reduce(Exec::serial(), Reduction::Sum, &View::from_slice(&x, dims).unwrap(), mask, &mut out);
        let want = f64::from(0.1f32) * (4_000_000 / y.len()) as f64;
        for value in y {
            assert_near(f64::from(value), want, want * 1e-6, &dims);
        }
    }
}

#[test]
fn log_sum_exp_of_infinities_is_infinite() {
    for (values, want) in [
        ([f32::NEG_INFINITY; 3], f64::NEG_INFINITY),
        ([1.0, f32::INFINITY, 2.0], f64::INFINITY),
        ([1.0, f32::NAN, 2.0], f64::NAN),
        ([1000.0, 1000.0, f32::NEG_INFINITY], 1000.0 + 2f64.ln()),
    ] {
        let mut y = [0.0f32];
        let mut out = ViewMut::from_slice(&mut y, &[1]).unwrap();
        reduce(Exec::serial(), Reduction::LogSumExp, &View::from_slice(&values, &[3]).unwrap(), 1, &mut out);
        assert_near(f64::from(y[0]), want, 1e-3, &values);
    }
}
