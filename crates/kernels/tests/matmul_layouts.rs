//! Matrix products against loops in `f64`.

mod elementwise_support;
mod reduce_support;

use elementwise_support::{indices, input, output, Place, Tensor};
use proptest::prelude::*;
use reduce_support::{assert_near, assert_same_bits, numbers, on_widths};
use threadteam::Exec;
use threadteam_kernels::{matmul, Layout, Real, View, ViewMut};

/// `alpha * a @ b + beta * bias` and the sum of the magnitudes of its terms, by loops.
fn reference<T: Real>(
    (alpha, a, b): (f64, &Tensor<T>, &Tensor<T>),
    bias: Option<(f64, &Tensor<T>)>,
    index: &[usize],
) -> (f64, f64) {
    let lead = index.len() - 2;
    let depth = a.layout.dims()[lead + 1];
    let (mut left, mut right) = (index.to_vec(), index.to_vec());
    let (mut sum, mut magnitude) = (0.0, 0.0);
    for p in 0..depth {
        (left[lead + 1], right[lead]) = (p, p);
        let term = alpha * a.at(&left).to_f64() * b.at(&right).to_f64();
        sum += term;
        magnitude += term.abs();
    }
    if let Some((beta, bias)) = bias {
        let term = beta * bias.at(index).to_f64();
        sum += term;
        magnitude += term.abs();
    }
    (sum, magnitude)
}

#[derive(Clone, Debug)]
struct Case {
    batch: Vec<usize>,
    m: usize,
    n: usize,
    k: usize,
    places: [Place; 4],
    alpha: f64,
    beta: f64,
    biased: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let extent =
        || prop_oneof![1 => Just(0usize), 4 => Just(1usize), 6 => 2usize..10, 4 => 10usize..40, 1 => 40usize..150];
    let batch = proptest::collection::vec(1usize..4, 0..3);
    let places = (input(), input(), input(), output());
    let scales = (prop::sample::select(vec![1.0, -0.5, 0.0, 2.5]), prop::sample::select(vec![1.0, 0.0, -1.5]));
    (batch, extent(), extent(), extent(), places, scales, any::<bool>()).prop_map(
        |(batch, m, n, k, (a, b, c, y), (alpha, beta), biased)| Case {
            batch,
            m,
            n,
            k,
            places: [a, b, c, y],
            alpha,
            beta,
            biased,
        },
    )
}

fn check<T: Real>(case: &Case) {
    let dims = |rows: usize, cols: usize| [&case.batch[..], &[rows, cols]].concat();
    let a = Tensor::placed(&dims(case.m, case.k), &case.places[0], &numbers::<T>(997, 1));
    let b = Tensor::placed(&dims(case.k, case.n), &case.places[1], &numbers::<T>(991, 2));
    let bias = Tensor::placed(&dims(case.m, case.n), &case.places[2], &numbers::<T>(983, 3));
    let before = Tensor::placed(&dims(case.m, case.n), &case.places[3], &[T::from_f64(1e30)]);
    let mut y = before.clone();
    let (alpha, beta) = (T::from_f64(case.alpha), T::from_f64(case.beta));
    let start = bias.view();
    matmul(Exec::serial(), alpha, &a.view(), &b.view(), beta, case.biased.then_some(&start), &mut y.view_mut());
    assert!(y.gaps_are_untouched(&before));
    let epsilon = if size_of::<T>() == 4 { 6e-8 } else { 1.2e-16 };
    for index in indices(y.layout.dims()) {
        let bias = case.biased.then_some((case.beta, &bias));
        let (want, magnitude) = reference((case.alpha, &a, &b), bias, &index);
        assert_near(y.at(&index).to_f64(), want, magnitude * epsilon * (case.k as f64 + 3.0), &index);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_product_equals_loops_in_any_layout(case in case()) {
        check::<f32>(&case);
        check::<f64>(&case);
    }
}

/// A product of contiguous operands, `b` transposed in memory or not.
fn product<T: Real>(exec: Exec<'_>, batch: usize, [m, k, n]: [usize; 3], transposed: bool) -> Vec<T> {
    let (a, b) = (numbers::<T>(batch * m * k, 4), numbers::<T>(batch * k * n, 5));
    let strides = if transposed { [1, k as isize] } else { [n as isize, 1] };
    let layout = Layout::new(&[batch, k, n], &[(k * n) as isize, strides[0], strides[1]]).unwrap();
    // SAFETY: both orders of strides reach exactly the elements of `b`.
    let b = unsafe { View::from_raw(b.as_ptr(), layout) };
    let mut y = vec![T::ZERO; batch * m * n];
    let a = View::from_slice(&a, &[batch, m, k]).unwrap();
    matmul(exec, T::ONE, &a, &b, T::ZERO, None, &mut ViewMut::from_slice(&mut y, &[batch, m, n]).unwrap());
    y
}

const SHAPES: [(usize, [usize; 3]); 12] = [
    (1, [1, 700, 1030]),
    (1, [2, 300, 517]),
    (1, [7, 515, 260]),
    (1, [64, 128, 128]),
    (1, [130, 70, 258]),
    (1, [257, 512, 130]),
    (1, [300, 33, 500]),
    (1, [500, 400, 9]),
    (1, [900, 300, 1]),
    (24, [16, 32, 16]),
    (6, [100, 64, 120]),
    (5, [1, 64, 384]),
];

#[test]
fn large_products_equal_loops() {
    for (batch, [m, k, n]) in SHAPES {
        let (a, b) = (numbers::<f32>(batch * m * k, 4), numbers::<f32>(batch * k * n, 5));
        for transposed in [false, true] {
            let y = product::<f32>(Exec::serial(), batch, [m, k, n], transposed);
            for at in (0..y.len()).step_by(1 + y.len() / 500) {
                let (matrix, row, col) = (at / (m * n), at / n % m, at % n);
                let terms = (0..k).map(|p| {
                    let place = if transposed { col * k + p } else { p * n + col };
                    f64::from(a[matrix * m * k + row * k + p]) * f64::from(b[matrix * k * n + place])
                });
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, t), term| (s + term, t + term.abs()));
                assert_near(f64::from(y[at]), sum, magnitude * 1e-6, &(batch, m, k, n, transposed, at));
            }
        }
    }
}

#[test]
fn products_are_the_same_bits_at_every_width() {
    for (batch, shape) in SHAPES {
        for transposed in [false, true] {
            assert_same_bits(&on_widths(|exec| product::<f32>(exec, batch, shape, transposed)));
            assert_same_bits(&on_widths(|exec| product::<f64>(exec, batch, shape, transposed)));
        }
    }
}

#[test]
fn nan_and_infinity_stay_in_their_row() {
    for (m, k, n) in [(3, 5, 4), (40, 70, 90), (130, 300, 140)] {
        let mut a = vec![1.0f32; m * k];
        a[k + 2] = f32::NAN;
        a[2 * k + 3] = f32::INFINITY;
        let b = vec![1.0f32; k * n];
        let mut y = vec![0.0f32; m * n];
        let (left, right) = (View::from_slice(&a, &[m, k]).unwrap(), View::from_slice(&b, &[k, n]).unwrap());
        matmul(Exec::serial(), 1.0, &left, &right, 0.0, None, &mut ViewMut::from_slice(&mut y, &[m, n]).unwrap());
        for (at, value) in y.iter().enumerate() {
            let want = match at / n {
                1 => f32::NAN,
                2 => f32::INFINITY,
                _ => k as f32,
            };
            assert_near(f64::from(*value), f64::from(want), 0.0, &(m, at));
        }
    }
}

#[test]
fn a_bias_with_factor_zero_is_not_read() {
    let (a, b, bias) = ([1.0f32, 2.0], [3.0f32, 4.0], [f32::NAN]);
    let mut y = [f32::NAN];
    let view = |data, dims: &[usize]| View::from_slice(data, dims).unwrap();
    let start = view(&bias, &[1, 1]);
    let mut out = ViewMut::from_slice(&mut y, &[1, 1]).unwrap();
    matmul(Exec::serial(), 1.0, &view(&a, &[1, 2]), &view(&b, &[2, 1]), 0.0, Some(&start), &mut out);
    assert_eq!(y, [11.0]);
}
