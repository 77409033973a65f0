//! Conversion between element types.

use threadteam::Exec;

use crate::compare::Part;
use crate::lanes::{map1, plain1, vectorized};
use crate::loops::{Base, Loops};
use crate::{rates, Compare, View, ViewMut};

/// A truth value as NumPy and ONNX store it: one byte, 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Bool(pub u8);

pub(crate) mod sealed {
    use threadteam::Exec;

    use crate::{View, ViewMut};

    /// Conversion from each other element type.
    pub trait From<S>: Sized {
        /// `value` as this element type.
        fn from(value: S) -> Self;

        /// Converts arrays; a method of each pair of types, so that this crate has the code and not its users.
        fn convert(exec: Exec<'_>, x: &View<S>, y: &mut ViewMut<Self>);
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
        /// Whether conversions from and to this type are worth code for each instruction set.
        const COMMON: bool;

        /// Converts an array to another element type.
        fn convert<D: Sealed>(exec: Exec<'_>, x: &View<Self>, y: &mut ViewMut<D>);

        /// Writes `op` of each pair of elements.
        fn compare(op: crate::Compare, part: crate::compare::Part<'_, Self>);
    }
}

/// The element types of [`cast`] and [`compare`](crate::compare): [`Bool`], the integers of 8 to 64 bits, `f32`, `f64`.
pub trait Element: sealed::Sealed {}

macro_rules! element {
    ($($type:ty: $common:literal),*) => {$(
        impl Element for $type {}
        impl sealed::Sealed for $type {
            const COMMON: bool = $common;

            fn convert<D: sealed::Sealed>(exec: Exec<'_>, x: &View<Self>, y: &mut ViewMut<D>) {
                <D as sealed::From<$type>>::convert(exec, x, y);
            }

            fn compare(op: Compare, part: Part<'_, Self>) {
                part.map(op, $common);
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

            fn convert(exec: Exec<'_>, x: &View<$source>, y: &mut ViewMut<Self>) {
                convert(exec, x, y);
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

            fn convert(exec: Exec<'_>, x: &View<Bool>, y: &mut ViewMut<Self>) {
                convert(exec, x, y);
            }
        }
        impl sealed::From<$target> for Bool {
            #[inline(always)]
            fn from(value: $target) -> Self {
                Bool((value != 0 as $target) as u8)
            }

            fn convert(exec: Exec<'_>, x: &View<$target>, y: &mut ViewMut<Self>) {
                convert(exec, x, y);
            }
        }
    )*};
}

number!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);
element!(
    Bool: true,
    i8: false,
    u8: true,
    i16: false,
    u16: false,
    i32: true,
    u32: false,
    i64: true,
    u64: false,
    f32: true,
    f64: true
);

impl sealed::From<Bool> for Bool {
    #[inline(always)]
    fn from(value: Bool) -> Self {
        value
    }

    fn convert(exec: Exec<'_>, x: &View<Bool>, y: &mut ViewMut<Self>) {
        convert(exec, x, y);
    }
}

/// Converts each element of `x` to the element type of `y`.
///
/// Integers wrap; a floating-point number becomes an integer by truncation, saturated at the bounds of the type, and
/// NaN becomes 0; to [`Bool`], every number but zero is 1. `y` may be `x` where the element types have one size.
///
/// # Panics
///
/// When the shapes differ.
pub fn cast<S: Element, D: Element>(exec: Exec<'_>, x: &View<S>, y: &mut ViewMut<D>) {
    sealed::Sealed::convert(exec, x, y);
}

fn convert<S: Element, D: Element + sealed::From<S>>(exec: Exec<'_>, x: &View<S>, y: &mut ViewMut<D>) {
    let loops = Loops::new([y.layout(), x.layout()]);
    let (x, y) = (Base::of(x), Base::of_mut(y));
    let nanos = rates::CAST_BYTE * (size_of::<S>() + size_of::<D>()) as f64;
    let [ys, xs] = loops.strides(0);
    loops.run(exec, nanos, &|places| {
        if S::COMMON && D::COMMON {
            return vectorized(
                #[inline(always)]
                || {
                    loops.walk(
                        places,
                        #[inline(always)]
                        |[yo, xo], len| {
                            // SAFETY: the nest reaches elements of the views only, which are one array or disjoint.
                            unsafe { map1((y.at(yo), ys), (x.at(xo).cast_const(), xs), len, D::from) };
                        },
                    );
                },
            );
        }
        // SAFETY: as above.
        loops.walk(places, |[yo, xo], len| unsafe {
            plain1((y.at(yo), ys), (x.at(xo).cast_const(), xs), len, D::from);
        });
    });
}
