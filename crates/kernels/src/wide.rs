//! Vectors of either element type over any of `pulp`'s instruction sets.

use pulp::Simd;

/// An element type with vectors of it.
pub trait Wide: Copy {
    /// As many elements as the instruction set `S` works on at once.
    type Of<S: Simd>: Copy;

    /// The number of elements in a vector.
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Of<S>>() / size_of::<Self>()
    }

    /// Every lane `value`.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Of<S>;

    /// `a * b + c` in every lane, with one rounding where the instruction set has it.
    fn mul_add<S: Simd>(simd: S, a: Self::Of<S>, b: Self::Of<S>, c: Self::Of<S>) -> Self::Of<S>;

    /// `a * b` in every lane.
    fn times<S: Simd>(simd: S, a: Self::Of<S>, b: Self::Of<S>) -> Self::Of<S>;

    /// The lanes at `from`.
    ///
    /// # Safety
    ///
    /// A vector's worth of elements can be read at `from`.
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const Self) -> Self::Of<S> {
        // SAFETY: the caller's promise; vectors are plain data.
        unsafe { from.cast::<Self::Of<S>>().read_unaligned() }
    }

    /// Puts the lanes at `to`.
    ///
    /// # Safety
    ///
    /// A vector's worth of elements can be written at `to`.
    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut Self, value: Self::Of<S>) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self::Of<S>>().write_unaligned(value) }
    }
}

macro_rules! wide {
    ($type:ty, $of:ident, $splat:ident, $mul_add:ident, $mul:ident) => {
        impl Wide for $type {
            type Of<S: Simd> = S::$of;

            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> Self::Of<S> {
                simd.$splat(value)
            }

            #[inline(always)]
            fn mul_add<S: Simd>(simd: S, a: Self::Of<S>, b: Self::Of<S>, c: Self::Of<S>) -> Self::Of<S> {
                simd.$mul_add(a, b, c)
            }

            #[inline(always)]
            fn times<S: Simd>(simd: S, a: Self::Of<S>, b: Self::Of<S>) -> Self::Of<S> {
                simd.$mul(a, b)
            }
        }
    };
}

wide!(f32, f32s, splat_f32s, mul_add_e_f32s, mul_f32s);
wide!(f64, f64s, splat_f64s, mul_add_e_f64s, mul_f64s);
