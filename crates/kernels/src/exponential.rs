//! The exponential of what is not above zero, in plain arithmetic that the compiler turns into vectors.

/// `exp` of a difference to a maximum.
pub trait ExpDown: Sized {
    /// `exp(self)` for `self` not above zero, NaN for NaN; zero where the result would not be a normal number.
    ///
    /// The nearest integer `n` to `self / ln 2` comes out of the low bits of a sum with a large constant; a polynomial
    /// gives `exp` of the rest, at most `ln 2 / 2` away from zero; `n` is put into the exponent.
    fn exp_down(self) -> Self;

    /// Whether this is NaN.
    fn missing(self) -> bool;
}

impl ExpDown for f32 {
    #[inline(always)]
    fn exp_down(self) -> Self {
        /// 1.5 * 2^23: a sum with it is rounded to an integer.
        const ROUND: f32 = 12_582_912.0;
        // ln 2 in two parts, the first of few bits, so that its product with an exponent is exact.
        let shifted = self * std::f32::consts::LOG2_E + ROUND;
        let n = shifted - ROUND;
        let r = (self - n * 0.693_359_4) - n * -2.121_944_4e-4;
        // Coefficients of the minimax polynomial in Cephes' expf, rounded to f32.
        let p = ((((1.987_569_1e-4 * r + 1.398_2e-3) * r + 8.333_452e-3) * r + 4.166_579_6e-2) * r + 1.666_666_5e-1)
            * r
            + 0.5;
        let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
        let value = (p * (r * r) + r + 1.0) * scale;
        if self < -87.336_54 {
            0.0
        } else {
            value
        }
    }

    #[inline(always)]
    fn missing(self) -> bool {
        self.is_nan()
    }
}

impl ExpDown for f64 {
    #[inline(always)]
    fn exp_down(self) -> Self {
        /// 1.5 * 2^52.
        const ROUND: f64 = 6_755_399_441_055_744.0;
        let shifted = self * std::f64::consts::LOG2_E + ROUND;
        let n = shifted - ROUND;
        let r = (self - n * 6.931_471_803_691_238e-1) - n * 1.908_214_929_270_587_7e-10;
        // Taylor's series: the first term left out is below 4e-18.
        const TERMS: [f64; 12] = [
            1.0 / 6_227_020_800.0,
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
        ];
        let mut p = TERMS[0];
        for term in &TERMS[1..] {
            p = p * r + term;
        }
        let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
        let value = (p * (r * r) + r + 1.0) * scale;
        if self < -708.396_418_532_264 {
            0.0
        } else {
            value
        }
    }

    #[inline(always)]
    fn missing(self) -> bool {
        self.is_nan()
    }
}
