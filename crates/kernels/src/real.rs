//! The two floating-point element types of the numeric kernels.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

/// The element types of the numeric kernels: `f32` and `f64`.
pub trait Real:
    sealed::Sealed
    + Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + AddAssign
    + MulAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// The nearest value to `value`.
    fn from_f64(value: f64) -> Self;
    /// The same value, exactly.
    fn to_f64(self) -> f64;
    /// `self * factor + term` with one rounding.
    fn fuse(self, factor: Self, term: Self) -> Self;
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = <$type>::INFINITY;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn fuse(self, factor: Self, term: Self) -> Self {
                self.mul_add(factor, term)
            }
        }
    };
}

real!(f32);
real!(f64);

pub(crate) mod sealed {
    /// What the kernels need of an element type and callers do not.
    pub trait Sealed:
        crate::unary::Functions + crate::wide::Wide + crate::exponential::ExpDown + faer::traits::ComplexField
    {
    }

    impl Sealed for f32 {}
    impl Sealed for f64 {}
}
