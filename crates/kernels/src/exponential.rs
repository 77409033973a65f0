//! The exponential of what is not above zero, in plain arithmetic that the compiler turns into vectors.

/// Whether a multiplication and addition in one is an instruction of the CPU that `lanes::vectorized` compiles for.
#[inline]
pub(crate) fn fused() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// `exp` of a difference to a maximum.
pub trait ExpDown: Sized {
    /// `exp(self)` for `self` not above zero, NaN for NaN; zero where the result would not be a normal number.
    ///
    /// The nearest integer `n` to `self / ln 2` comes out of the low bits of a sum with a large constant; a polynomial
    /// gives `exp` of the rest, at most `ln 2 / 2` away from zero; `n` is put into the exponent. `FUSED` code is half as
    /// long where [`fused`] holds, and slow elsewhere.
    fn exp_down<const FUSED: bool>(self) -> Self;

    /// Whether this is NaN.
    fn missing(self) -> bool;
}

macro_rules! exp_down {
    ($type:ty, $bits:ty, lowest: $lowest:literal, round: $round:literal, ln2: $high:literal + $low:literal,
     exponent: $bias:literal << $shift:literal, terms: [$first:expr, $($term:expr),*]) => {
        impl ExpDown for $type {
            #[inline(always)]
            fn exp_down<const FUSED: bool>(self) -> Self {
                /// A sum with it is rounded to an integer: 1.5 times the power of two with unit steps.
                const ROUND: $type = $round;
                let mul_add = |a: $type, b: $type, c: $type| if FUSED { a.mul_add(b, c) } else { a * b + c };
                // Down here the exponent's bits come out as zero, and so does the result. NaN is not less.
                let x = if self < $lowest { $lowest } else { self };
                let shifted = mul_add(x, std::f64::consts::LOG2_E as $type, ROUND);
                let n = shifted - ROUND;
                // ln 2 in two parts, the first of few bits, so that its product with an exponent is exact.
                let r = mul_add(n, -$low, mul_add(n, -$high, x));
                let mut p: $type = $first;
                $(p = mul_add(p, r, $term);)*
                let scale = <$type>::from_bits(shifted.to_bits().wrapping_add($bias as $bits) << $shift);
                p * scale
            }

            #[inline(always)]
            fn missing(self) -> bool {
                self.is_nan()
            }
        }
    };
}

// Minimax for the relative error, 4e-9: the best `exp(r) = 1 + r + r^2 p(r)` with `p` of degree four, found by Lawson's
// iteration, then rounded to f32.
exp_down!(f32, u32, lowest: -88.0, round: 12_582_912.0, ln2: 0.693_359_4 + -2.121_944_4e-4, exponent: 127 << 23,
    terms: [1.381_459_9e-3, 8.368_717e-3, 4.166_839e-2, 1.666_652_1e-1, 0.499_999_94, 1.0, 1.0]);

// Taylor's series: the first term left out is below 4e-18.
exp_down!(f64, u64, lowest: -709.0, round: 6_755_399_441_055_744.0,
ln2: 6.931_471_803_691_238e-1 + 1.908_214_929_270_587_7e-10, exponent: 1023 << 52,
terms: [
    1.0 / 6_227_020_800.0, 1.0 / 479_001_600.0, 1.0 / 39_916_800.0, 1.0 / 3_628_800.0, 1.0 / 362_880.0,
    1.0 / 40_320.0, 1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0
]);
