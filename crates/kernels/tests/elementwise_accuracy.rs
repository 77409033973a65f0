//! The functions of one element against references in double precision.

mod elementwise_support;

use elementwise_support::{identical, Tensor};
use threadteam::Exec;
use threadteam_kernels::{unary, Real, Unary};

fn reference(op: Unary<f32>, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op {
        Unary::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Unary::LeakyRelu(alpha) => {
            if x < 0.0 {
                f64::from(alpha) * x
            } else {
                x
            }
        }
        Unary::Elu(alpha) => {
            if x < 0.0 {
                f64::from(alpha) * x.exp_m1()
            } else {
                x
            }
        }
        Unary::Sigmoid => sigmoid(x),
        Unary::HardSigmoid(alpha, beta) => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Unary::GeluTanh => 0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        Unary::Silu => x * sigmoid(x),
        Unary::Softplus => {
            if x > 0.0 {
                x + (-x).exp().ln_1p()
            } else {
                x.exp().ln_1p()
            }
        }
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Clip { min, max } => {
            if x.is_nan() {
                x
            } else {
                x.max(min.into()).min(max.into())
            }
        }
    }
}

/// Each function, and by how many units in the last place it may differ. `None`: the result is a difference of larger
/// numbers by definition, and is bounded relative to the argument instead.
fn functions() -> Vec<(Unary<f32>, Option<f64>)> {
    vec![
        (Unary::Relu, Some(0.0)),
        (Unary::LeakyRelu(0.125), Some(0.0)),
        (Unary::Elu(1.0), Some(3.0)),
        (Unary::Elu(0.5), Some(3.0)),
        (Unary::Sigmoid, Some(4.0)),
        (Unary::HardSigmoid(0.2, 0.5), None),
        (Unary::Tanh, Some(4.0)),
        (Unary::Erf, Some(3.0)),
        (Unary::Gelu, None),
        (Unary::GeluTanh, None),
        (Unary::Silu, Some(5.0)),
        (Unary::Softplus, Some(3.0)),
        (Unary::Exp, Some(2.0)),
        (Unary::Log, Some(2.0)),
        (Unary::Sqrt, Some(1.0)),
        (Unary::Reciprocal, Some(1.0)),
        (Unary::Neg, Some(0.0)),
        (Unary::Abs, Some(0.0)),
        (Unary::Floor, Some(0.0)),
        (Unary::Ceil, Some(0.0)),
        (Unary::Round, Some(0.0)),
        (Unary::Sign, Some(0.0)),
        (Unary::Sin, Some(2.0)),
        (Unary::Cos, Some(2.0)),
        (Unary::Clip { min: -0.75, max: 3.5 }, Some(0.0)),
    ]
}

/// A unit in the last place of `value` rounded to `f32`, the smallest subnormal at least.
fn unit(value: f64) -> f64 {
    let value = (value as f32).abs();
    if value >= f32::MAX {
        return f64::from(f32::MAX) * f64::from(f32::EPSILON);
    }
    f64::from(f32::from_bits(value.to_bits() + 1)) - f64::from(value)
}

fn apply<T: Real>(op: Unary<T>, x: Vec<T>) -> Vec<T> {
    let mut y = Tensor::of(&[x.len()], vec![T::ZERO; x.len()]);
    unary(Exec::serial(), op, &Tensor::of(&[x.len()], x).view(), &mut y.view_mut());
    y.memory
}

/// Numbers over every exponent and both signs, dense where functions bend.
fn samples() -> Vec<f32> {
    let mut samples: Vec<f32> = (0..=u32::MAX - 6007).step_by(6007).map(f32::from_bits).collect();
    samples.extend((-400_000..400_000).map(|i| i as f32 / 20_011.0));
    samples.extend((-400_000..400_000).map(|i| i as f32 / 1_000_003.0));
    samples.extend((-200_000..200_000).map(|i| i as f32 / 1_999.0));
    samples
}

#[test]
fn functions_of_f32_are_within_a_few_units_in_the_last_place() {
    let x = samples();
    for (op, units) in functions() {
        let y = apply(op, x.clone());
        let mut worst = (0.0, 0.0, 0.0);
        for (x, y) in x.iter().zip(&y) {
            let (x, y) = (f64::from(*x), f64::from(*y));
            let want = reference(op, x);
            let rounded = f64::from(want as f32);
            if identical(y, rounded) || y == rounded {
                continue;
            }
            // A result about as small as the subnormal numbers may be lost; no tensor's scale shows it.
            if (y - want).abs() <= 128.0 * f64::from(f32::MIN_POSITIVE) {
                continue;
            }
            let scale = match units {
                Some(_) => unit(want),
                None => f64::from(f32::EPSILON) * x.abs().max(1.0),
            };
            let error = if y.is_nan() || rounded.is_nan() || rounded.is_infinite() {
                f64::INFINITY
            } else {
                (y - want).abs() / scale
            };
            if error > worst.0 {
                worst = (error, x, y);
            }
        }
        println!("{op:?}: {:.2} units at {:e} (gives {:e})", worst.0, worst.1, worst.2);
        let allowed = units.unwrap_or(2.0) + 0.5;
        assert!(worst.0 <= allowed, "{op:?} of {:e} gives {:e}: {:.2} units off", worst.1, worst.2, worst.0);
    }
}

#[test]
fn functions_of_special_numbers_are_what_the_formulas_say() {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN];
    for (op, _) in functions() {
        for (x, y) in special.iter().zip(apply(op, special.to_vec())) {
            let want = reference(op, f64::from(*x)) as f32;
            // The sign of a zero that the formula's cancellation makes is free.
            assert!(
                y == want || identical(y.into(), want.into()) || (y - want).abs() <= want.abs() * 1e-6,
                "{op:?} of {x} gives {y}, not {want}"
            );
        }
    }
}

#[test]
fn odd_functions_keep_the_sign_of_zero() {
    for op in [Unary::Tanh, Unary::Erf, Unary::Sin] {
        let y = apply(op, vec![0.0f32, -0.0]);
        assert_eq!(y.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), [0.0f32.to_bits(), (-0.0f32).to_bits()]);
    }
}

#[test]
fn functions_of_f64_are_those_of_the_standard_library() {
    let x: Vec<f64> = (-4000..4000).map(|i| f64::from(i) / 401.0).collect();
    for (op, want) in [
        (Unary::Exp, f64::exp as fn(f64) -> f64),
        (Unary::Tanh, f64::tanh),
        (Unary::Erf, libm::erf),
        (Unary::Log, f64::ln),
        (Unary::Sqrt, f64::sqrt),
        (Unary::Round, f64::round_ties_even),
        (Unary::Sin, f64::sin),
    ] {
        for (x, y) in x.iter().zip(apply(op, x.clone())) {
            assert!(identical(y, want(*x)), "{op:?} of {x}");
        }
    }
}
