//! Functions of one element.

use threadteam::Exec;

use crate::loops::{Base, Loops};
use crate::{rates, Real, View, ViewMut};

/// What [`unary`] computes from each element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary<T> {
    /// `max(x, 0)`.
    Relu,
    /// `x` where not negative, else `alpha * x`.
    LeakyRelu(T),
    /// `x` where not negative, else `alpha * (exp(x) - 1)`.
    Elu(T),
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `max(0, min(1, alpha * x + beta))`, alpha first.
    HardSigmoid(T, T),
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.
    GeluTanh,
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `log(1 + exp(x))`.
    Softplus,
    /// The exponential.
    Exp,
    /// The natural logarithm.
    Log,
    /// The square root.
    Sqrt,
    /// `1 / x`.
    Reciprocal,
    /// `-x`.
    Neg,
    /// The magnitude.
    Abs,
    /// The largest integer not above `x`.
    Floor,
    /// The smallest integer not below `x`.
    Ceil,
    /// The nearest integer, the even one of two equally near.
    Round,
    /// -1, 0 or 1; NaN stays NaN.
    Sign,
    /// The sine of an angle in radians.
    Sin,
    /// The cosine of an angle in radians.
    Cos,
    /// `min(max(x, min), max)`; NaN stays NaN.
    Clip {
        /// The lower bound.
        min: T,
        /// The upper bound, which wins where the bounds cross.
        max: T,
    },
}

/// Writes `op` of each element of `x` to `y`, which may be `x` itself.
pub fn unary<T: Real>(exec: Exec<'_>, op: Unary<T>, x: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), x.layout()]);
    let (x, y) = (Base::of(x), Base::of_mut(y));
    let [ys, xs] = loops.strides(0);
    loops.run(exec, rates::SIMPLE, &|places| {
        loops.walk(places, |[yo, xo], len| {
            for i in 0..len as isize {
                // SAFETY: the nest reaches elements of the views only.
                unsafe { *y.at(yo + i * ys) = T::from_f64(scalar(op, (*x.at(xo + i * xs)).to_f64())) };
            }
        });
    });
}

fn scalar<T: Real>(op: Unary<T>, x: f64) -> f64 {
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
                alpha.to_f64() * x
            } else {
                x
            }
        }
        Unary::Elu(alpha) => {
            if x < 0.0 {
                alpha.to_f64() * x.exp_m1()
            } else {
                x
            }
        }
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::HardSigmoid(alpha, beta) => (alpha.to_f64() * x + beta.to_f64()).clamp(0.0, 1.0),
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Unary::GeluTanh => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
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
            let x = if x < min.to_f64() { min.to_f64() } else { x };
            if x > max.to_f64() {
                max.to_f64()
            } else {
                x
            }
        }
    }
}
