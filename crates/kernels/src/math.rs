//! Vectorised `f32` functions, within a few units in the last place, beyond those of `rten-vecmath`.
//!
//! Each function gives a lane the same bits whatever its neighbours are, so results do not depend on how an array is
//! cut into ranges. The polynomials are weighted minimax fits, made for this file; the error of each is the largest
//! relative error of the fitted function before rounding.

use rten_simd::ops::{BitOps, FloatOps, IntOps, MaskOps, NumOps, ToFloat};
use rten_simd::{Isa, Simd, SimdUnaryOp};
use rten_vecmath as vecmath;

/// `c[0] + c[1] * x + ...`
#[inline(always)]
fn polynomial<I: Isa, const N: usize>(isa: I, x: I::F32, coefficients: [f32; N]) -> I::F32 {
    let ops = isa.f32();
    let mut sum = ops.splat(coefficients[N - 1]);
    for c in coefficients[..N - 1].iter().rev() {
        sum = ops.mul_add(sum, x, ops.splat(*c));
    }
    sum
}

/// The magnitude of `x` with the sign of `sign`.
#[inline(always)]
fn copy_sign<I: Isa>(isa: I, x: I::F32, sign: I::F32) -> I::F32 {
    let ops = isa.f32();
    ops.or(ops.abs(x), ops.and(sign, ops.splat(-0.0)))
}

/// The hyperbolic tangent: that of `rten-vecmath`, which gives -0 for 0, with the sign put right.
pub(crate) struct Tanh;

impl SimdUnaryOp<f32> for Tanh {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        copy_sign(isa, vecmath::Tanh {}.eval(isa, x), x)
    }
}

/// The natural logarithm.
#[derive(Default)]
pub(crate) struct Log;

/// `(log(1 + f) - f + f^2 / 2) / f^3` between the square roots of 1/2 and 2; error 7.5e-10.
const LOG: [f32; 9] = [
    0.333_333_13,
    -0.250_000_1,
    0.200_021_17,
    -0.166_679_95,
    0.142_195_46,
    -0.124_055_98,
    0.118_882_12,
    -0.116_756_15,
    0.067_464_9,
];

const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;

impl SimdUnaryOp<f32> for Log {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        let (ops, int) = (isa.f32(), isa.i32());

        // Subnormal numbers are made normal first.
        let tiny = ops.lt(x, ops.splat(f32::MIN_POSITIVE));
        let scaled = ops.select(ops.mul(x, ops.splat(8_388_608.0)), x, tiny);
        let shift = ops.select(ops.splat(-23.0), ops.zero(), tiny);

        // x = 2^k * (1 + f) with 1 + f between the square roots of 1/2 and 2.
        let bits: I::I32 = scaled.reinterpret_cast();
        let exponent =
            int.shift_right::<23>(int.sub(bits, int.splat(std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32)));
        let mantissa: I::F32 = int.sub(bits, int.shift_left::<23>(exponent)).reinterpret_cast();
        let f = ops.sub(mantissa, ops.one());
        let k = ops.add(int.to_float(exponent), shift);

        let square = ops.mul(f, f);
        let tail = ops.mul(ops.mul(polynomial(isa, f, LOG), f), square);
        let tail = ops.mul_add(k, ops.splat(LN2_LOW), tail);
        let tail = ops.mul_add(square, ops.splat(-0.5), tail);
        let y = ops.mul_add(k, ops.splat(LN2_HIGH), ops.add(f, tail));

        let y = ops.select(ops.splat(f32::NEG_INFINITY), y, ops.eq(x, ops.zero()));
        let y = ops.select(ops.splat(f32::NAN), y, ops.lt(x, ops.zero()));
        // Infinity stays, and so does NaN, which is not below infinity.
        ops.select(y, x, ops.lt(x, ops.splat(f32::INFINITY)))
    }
}

/// `log(1 + exp(x))`, without overflow or loss of small results.
pub(crate) struct Softplus;

impl SimdUnaryOp<f32> for Softplus {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        let ops = isa.f32();
        let u = vecmath::Exp {}.eval(isa, ops.neg(ops.abs(x)));
        // log(1 + u): what the sum rounds away is added to first order.
        let sum = ops.add(u, ops.one());
        let lost = ops.sub(u, ops.sub(sum, ops.one()));
        let log = ops.add(Log.eval(isa, sum), ops.div(lost, sum));
        let positive = ops.select(x, ops.zero(), ops.gt(x, ops.zero()));
        ops.add(positive, log)
    }
}

/// `x` where not negative, else `alpha * (exp(x) - 1)`.
pub(crate) struct Elu {
    pub alpha: f32,
}

/// `(exp(r) - 1 - r) / r^2` for `|r| <= log(2) / 2`; error 2.4e-10.
const EXPM1: [f32; 6] = [0.5, 0.166_666_66, 0.041_666_36, 0.008_333_389, 0.001_394_062_1, 0.000_198_46];

/// `exp(x) - 1` rounds to -1 below this.
const EXPM1_LOW: f32 = -18.0;

impl SimdUnaryOp<f32> for Elu {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        let (ops, int) = (isa.f32(), isa.i32());
        let negative = ops.lt(x, ops.zero());
        let low = ops.splat(EXPM1_LOW);
        let z = ops.select(x, ops.zero(), negative);
        let z = ops.select(low, z, ops.lt(z, low));

        // exp(z) - 1 = 2^k * (exp(r) - 1) + (2^k - 1)
        let k = ops.round_ties_even(ops.mul(z, ops.splat(std::f32::consts::LOG2_E)));
        let r = ops.mul_add(k, ops.splat(-LN2_HIGH), z);
        let r = ops.mul_add(k, ops.splat(-LN2_LOW), r);
        let less_one = ops.mul_add(ops.mul(r, r), polynomial(isa, r, EXPM1), r);
        let scale: I::F32 =
            int.shift_left::<23>(int.add(ops.to_int_trunc(k), int.splat(127))).same_cast::<I::I32>().reinterpret_cast();
        let y = ops.mul_add(scale, less_one, ops.sub(scale, ops.one()));

        ops.select(ops.mul(y, ops.splat(self.alpha)), x, negative)
    }
}

/// The error function.
#[derive(Default)]
pub(crate) struct Erf;

/// Up to here `erf` is computed from an odd polynomial, above from the logarithm of its complement.
const ERF_CUT: f32 = 0.92;
/// From here on the error function rounds to one.
const ERF_ONE: f32 = 3.95;

/// `erf(x) / x - 1` over `x^2`, for `|x| <= ERF_CUT`; error 3.9e-10.
const ERF_SMALL: [f32; 7] =
    [0.128_379_17, -0.376_126_35, 0.112_837_03, -0.026_859_8, 0.005_201_96, -0.000_815_262_6, 8.409_913e-5];

/// `log(1 - erf(x))` from `ERF_CUT` to `ERF_ONE`; error of `erf` 1.6e-9.
const ERF_LARGE: [f32; 7] =
    [-0.000_195_640_56, -1.127_675_8, -0.637_182, -0.103_931_86, 0.022_227_054, -0.003_043_253_6, 0.000_195_941_2];

impl SimdUnaryOp<f32> for Erf {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        let ops = isa.f32();
        let size = ops.abs(x);
        let small = ops.mul_add(size, polynomial(isa, ops.mul(x, x), ERF_SMALL), size);
        let one = ops.splat(ERF_ONE);
        let bounded = ops.select(one, size, ops.gt(size, one));
        let complement = vecmath::Exp {}.eval(isa, polynomial(isa, bounded, ERF_LARGE));
        let large = ops.sub(ops.one(), complement);
        copy_sign(isa, ops.select(small, large, ops.le(size, ops.splat(ERF_CUT))), x)
    }
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`.
pub(crate) struct Gelu;

impl SimdUnaryOp<f32> for Gelu {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        let ops = isa.f32();
        let erf = Erf.eval(isa, ops.mul(x, ops.splat(std::f32::consts::FRAC_1_SQRT_2)));
        ops.mul(ops.mul(x, ops.splat(0.5)), ops.add(erf, ops.one()))
    }
}

/// The sine, or the cosine.
pub(crate) struct Sine<const COSINE: bool>;

/// `(sin(r) / r - 1) / r^2` over `r^2`, for `|r| <= pi / 4`; error 4.9e-12.
const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_33, -0.000_198_393_3, 2.718_274e-6];

/// `(cos(r) - 1 + r^2 / 2) / r^4` over `r^2`, for `|r| <= pi / 4`; error 1.2e-10.
const COS: [f32; 3] = [0.041_666_646, -0.001_388_731_3, 2.443_277_8e-5];

/// Half of pi in three parts, the first two short enough that multiples up to `SINE_LARGE` are exact.
const HALF_PI: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_79e-8];

/// Below this the sine is its argument.
const SINE_TINY: f32 = 2e-4;

/// Above this the argument is reduced by the standard library, lane by lane.
const SINE_LARGE: f32 = 8192.0;

impl<const COSINE: bool> SimdUnaryOp<f32> for Sine<COSINE> {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        let (ops, int) = (isa.f32(), isa.i32());

        // x = k * pi / 2 + r
        let k = ops.round_ties_even(ops.mul(x, ops.splat(std::f32::consts::FRAC_2_PI)));
        let mut r = x;
        for part in HALF_PI {
            r = ops.mul_add(k, ops.splat(-part), r);
        }
        let square = ops.mul(r, r);
        let sine = ops.mul_add(ops.mul(square, r), polynomial(isa, square, SIN), r);
        let cosine = ops.mul_add(square, ops.splat(-0.5), ops.one());
        let cosine = ops.mul_add(ops.mul(square, square), polynomial(isa, square, COS), cosine);

        let turn = int.add(ops.to_int_trunc(k).same_cast::<I::I32>(), int.splat(i32::from(COSINE)));
        let odd = int.eq(int.and(turn, int.splat(1)), int.splat(1));
        let sign: I::F32 = int.shift_left::<30>(int.and(turn, int.splat(2))).reinterpret_cast();
        let y = ops.xor(ops.select(cosine, sine, odd), sign);
        // The reduction loses the sign of -0.
        let tiny = ops.lt(ops.abs(x), ops.splat(SINE_TINY));
        let y = if COSINE { y } else { ops.select(x, y, tiny) };

        let large = ops.ge(ops.abs(x), ops.splat(SINE_LARGE));
        if isa.m32().any(large) {
            let (mut lanes, given) = (y.to_array(), x.to_array());
            for i in 0..ops.len() {
                if given[i].abs() >= SINE_LARGE {
                    lanes[i] = if COSINE { given[i].cos() } else { given[i].sin() };
                }
            }
            return ops.load(lanes.as_ref());
        }
        y
    }
}
