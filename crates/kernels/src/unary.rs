//! Functions of one element.

use threadteam::Exec;

use crate::lanes::{map1, plain1, simd1, vectorized};
use crate::loops::{Base, Loops};
use crate::{math, rates, Real, View, ViewMut};
use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath as vecmath;
use std::ops::Range;

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
///
/// # Panics
///
/// When the shapes differ.
pub fn unary<T: Real>(exec: Exec<'_>, op: Unary<T>, x: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), x.layout()]);
    let (x, y) = (Base::of(x), Base::of_mut(y));
    loops.run(exec, T::nanos(op), &|places| T::map(op, Part { loops: &loops, places, x, y }));
}

/// The share of one participant.
pub struct Part<'a, T> {
    loops: &'a Loops<2>,
    places: Range<usize>,
    x: Base<T>,
    y: Base<T>,
}

/// The functions of each element type.
pub trait Functions: Sized {
    /// Writes `op` of each element of `part`.
    fn map(op: Unary<Self>, part: Part<'_, Self>);

    /// What an element costs.
    fn nanos(op: Unary<Self>) -> f64;
}

impl<T: Copy> Part<'_, T> {
    /// Writes `f` of each element.
    #[inline(always)]
    fn each(self, f: impl Fn(T) -> T) {
        let [ys, xs] = self.loops.strides(0);
        vectorized(
            #[inline(always)]
            || {
                self.loops.walk(
                    self.places,
                    #[inline(always)]
                    |[yo, xo], len| {
                        // SAFETY: the nest reaches elements of the views only, which are one array or disjoint.
                        unsafe { map1((self.y.at(yo), ys), (self.x.at(xo).cast_const(), xs), len, &f) };
                    },
                );
            },
        );
    }

    /// Writes `f` of each element, for functions that are calls.
    fn calls(self, f: impl Fn(T) -> T) {
        let [ys, xs] = self.loops.strides(0);
        self.loops.walk(self.places, |[yo, xo], len| {
            // SAFETY: as above.
            unsafe { plain1((self.y.at(yo), ys), (self.x.at(xo).cast_const(), xs), len, &f) };
        });
    }
}

impl Part<'_, f32> {
    /// Writes `op` of each element.
    fn simd(self, op: impl SimdUnaryOp<f32>) {
        struct Run<'a, Op>(Part<'a, f32>, Op);

        impl<Op: SimdUnaryOp<f32>> SimdOp for Run<'_, Op> {
            type Output = ();

            #[inline(always)]
            fn eval<I: Isa>(self, isa: I) {
                let Run(part, op) = self;
                let [ys, xs] = part.loops.strides(0);
                part.loops.walk(
                    part.places,
                    #[inline(always)]
                    |[yo, xo], len| {
                        // SAFETY: the nest reaches elements of the views only, which are one array or disjoint.
                        unsafe { simd1(isa, &op, (part.y.at(yo), ys), (part.x.at(xo).cast_const(), xs), len) };
                    },
                );
            }
        }

        Run(self, op).dispatch()
    }
}

/// The functions that the vector unit has, or that are few of its operations.
macro_rules! simple {
    ($type:ty, $op:expr, $part:expr) => {
        match $op {
            Unary::Relu => $part.each(|x| if x < 0.0 { 0.0 } else { x }),
            // Both values first, then the choice: the compiler makes vectors of that, and branches of the reverse.
            Unary::LeakyRelu(alpha) => $part.each(|x| {
                let scaled = alpha * x;
                if x < 0.0 {
                    scaled
                } else {
                    x
                }
            }),
            Unary::HardSigmoid(alpha, beta) => $part.each(|x| clip(alpha * x + beta, 0.0, 1.0)),
            Unary::Sqrt => $part.each(|x| x.sqrt()),
            Unary::Reciprocal => $part.each(|x| 1.0 / x),
            Unary::Neg => $part.each(|x| -x),
            Unary::Abs => $part.each(|x| x.abs()),
            Unary::Floor => $part.each(|x| x.floor()),
            Unary::Ceil => $part.each(|x| x.ceil()),
            Unary::Round => $part.each(|x| x.round_ties_even()),
            Unary::Sign => $part.each(|x| {
                let (one, keep) = (<$type>::copysign(1.0, x), (x == 0.0) | x.is_nan());
                if keep {
                    x
                } else {
                    one
                }
            }),
            Unary::Clip { min, max } => $part.each(|x| clip(x, min, max)),
            _ => unreachable!("the caller handles every other function"),
        }
    };
}

#[inline(always)]
fn clip<T: PartialOrd>(x: T, min: T, max: T) -> T {
    let x = if x < min { min } else { x };
    if x > max {
        max
    } else {
        x
    }
}

impl Functions for f32 {
    fn map(op: Unary<f32>, part: Part<'_, f32>) {
        match op {
            Unary::Elu(alpha) => part.simd(math::Elu { alpha }),
            Unary::Sigmoid => part.simd(vecmath::Sigmoid {}),
            Unary::Tanh => part.simd(math::Tanh),
            Unary::Erf => part.simd(math::Erf),
            Unary::Gelu => part.simd(math::Gelu),
            Unary::GeluTanh => part.simd(vecmath::ApproxGelu {}),
            Unary::Silu => part.simd(vecmath::Silu {}),
            Unary::Softplus => part.simd(math::Softplus),
            Unary::Exp => part.simd(vecmath::Exp {}),
            Unary::Log => part.simd(math::Log),
            Unary::Sin => part.simd(math::Sine::<false>),
            Unary::Cos => part.simd(math::Sine::<true>),
            _ => simple!(f32, op, part),
        }
    }

    fn nanos(op: Unary<f32>) -> f64 {
        rates::unary_f32(op)
    }
}

impl Functions for f64 {
    fn map(op: Unary<f64>, part: Part<'_, f64>) {
        use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

        match op {
            Unary::Elu(alpha) => part.calls(|x| if x < 0.0 { alpha * x.exp_m1() } else { x }),
            Unary::Sigmoid => part.calls(|x| 1.0 / (1.0 + (-x).exp())),
            Unary::Tanh => part.calls(f64::tanh),
            Unary::Erf => part.calls(libm::erf),
            Unary::Gelu => part.calls(|x| 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2))),
            Unary::GeluTanh => part.calls(|x| 0.5 * x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x)).tanh())),
            Unary::Silu => part.calls(|x| x / (1.0 + (-x).exp())),
            Unary::Softplus => part.calls(|x| if x > 0.0 { x } else { 0.0 } + (-x.abs()).exp().ln_1p()),
            Unary::Exp => part.calls(f64::exp),
            Unary::Log => part.calls(f64::ln),
            Unary::Sin => part.calls(f64::sin),
            Unary::Cos => part.calls(f64::cos),
            _ => simple!(f64, op, part),
        }
    }

    fn nanos(op: Unary<f64>) -> f64 {
        rates::unary_f64(op)
    }
}
