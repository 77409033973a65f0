//! Conversion between element types.

use threadteam::Exec;

use crate::loops::{Base, Loops};
use crate::{rates, View, ViewMut};

/// A truth value as NumPy and ONNX store it: one byte, 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Bool(pub u8);

pub(crate) mod sealed {
    /// Conversion from each other element type.
    pub trait From<S> {
        fn from(value: S) -> Self;
    }

    /// What the kernels need of an element type and callers do not.
    pub trait Sealed:
        Copy
        + Send
        + Sync
        + 'static
        + PartialOrd
        + From<super::Bool>
        + From<i8>
        + From<u8>
        + From<i16>
        + From<u16>
        + From<i32>
        + From<u32>
        + From<i64>
        + From<u64>
        + From<f32>
        + From<f64>
    {
        fn to<D: Sealed>(self) -> D;
    }
}

/// The element types of [`cast`] and [`compare`](crate::compare): [`Bool`], the integers of 8 to 64 bits, `f32`, `f64`.
pub trait Element: sealed::Sealed {}

macro_rules! element {
    ($($type:ty),*) => {$(
        impl Element for $type {}
        impl sealed::Sealed for $type {
            #[inline(always)]
            fn to<D: sealed::Sealed>(self) -> D {
                <D as sealed::From<$type>>::from(self)
            }
        }
    )*};
}

macro_rules! convert {
    ($($source:ty),* => $target:tt) => {$(
        impl sealed::From<$source> for $target {
            #[inline(always)]
            fn from(value: $source) -> Self {
                value as $target
            }
        }
    )*};
}

macro_rules! number {
    ($($target:tt),*) => {$(
        convert!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64 => $target);
        impl sealed::From<Bool> for $target {
            #[inline(always)]
            fn from(value: Bool) -> Self {
                value.0 as $target
            }
        }
        impl sealed::From<$target> for Bool {
            #[inline(always)]
            fn from(value: $target) -> Self {
                Bool((value != 0 as $target) as u8)
            }
        }
    )*};
}

number!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);
element!(Bool, i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

impl sealed::From<Bool> for Bool {
    #[inline(always)]
    fn from(value: Bool) -> Self {
        value
    }
}

/// Converts each element of `x` to the element type of `y`.
///
/// Integers wrap; a floating-point number becomes an integer by truncation, saturated at the bounds of the type, and
/// NaN becomes 0; to [`Bool`], every number but zero is 1.
pub fn cast<S: Element, D: Element>(exec: Exec<'_>, x: &View<S>, y: &mut ViewMut<D>) {
    let loops = Loops::new([y.layout(), x.layout()]);
    let (x, y) = (Base::of(x), Base::of_mut(y));
    let [ys, xs] = loops.strides(0);
    loops.run(exec, rates::SIMPLE, &|places| {
        loops.walk(places, |[yo, xo], len| {
            for i in 0..len as isize {
                // SAFETY: the nest reaches elements of the views only.
                unsafe { *y.at(yo + i * ys) = (*x.at(xo + i * xs)).to() };
            }
        });
    });
}
