//! Arithmetic on two elements.

use std::ops::Range;

use threadteam::Exec;

use crate::lanes::{map2, plain2, vectorized};
use crate::loops::{Base, Loops};
use crate::{rates, View, ViewMut};

/// What [`binary`] computes from each pair of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`; integers wrap.
    Add,
    /// `a - b`; integers wrap.
    Sub,
    /// `a * b`; integers wrap.
    Mul,
    /// `a / b`; integers truncate towards zero and give 0 for a zero divisor.
    Div,
    /// `a` to the power `b`; integers wrap, and truncate towards zero for a negative exponent (0 for a zero base).
    Pow,
    /// The larger one; NaN if either is.
    Max,
    /// The smaller one; NaN if either is.
    Min,
}

mod sealed {
    /// What the kernel needs of an element type and callers do not.
    pub trait Sealed: Copy + Send + Sync + 'static {
        /// Writes `op` of each pair of elements of `part`.
        fn map(op: super::Binary, part: super::Part<'_, Self>);

        /// What a pair of elements costs.
        fn nanos(op: super::Binary) -> f64;
    }
}

/// The element types of [`binary`]: `f32`, `f64`, `i32` and `i64`.
pub trait Arithmetic: sealed::Sealed {}

impl Arithmetic for f32 {}
impl Arithmetic for f64 {}
impl Arithmetic for i32 {}
impl Arithmetic for i64 {}

/// Writes `op` of each pair of elements of `a` and `b` to `y`, which may be either of them.
///
/// # Panics
///
/// When the shapes differ.
pub fn binary<T: Arithmetic>(exec: Exec<'_>, op: Binary, a: &View<T>, b: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), a.layout(), b.layout()]);
    let (a, b, y) = (Base::of(a), Base::of(b), Base::of_mut(y));
    loops.run(exec, T::nanos(op), &|places| T::map(op, Part { loops: &loops, places, a, b, y }));
}

/// The share of one participant.
pub struct Part<'a, T> {
    loops: &'a Loops<3>,
    places: Range<usize>,
    a: Base<T>,
    b: Base<T>,
    y: Base<T>,
}

impl<T: Copy> Part<'_, T> {
    /// Writes `f` of each pair.
    #[inline(always)]
    fn each(self, f: impl Fn(T, T) -> T) {
        let [ys, sa, sb] = self.loops.strides(0);
        vectorized(
            #[inline(always)]
            || {
                self.loops.walk(
                    self.places,
                    #[inline(always)]
                    |[yo, ao, bo], len| {
                        let a = (self.a.at(ao).cast_const(), sa);
                        let b = (self.b.at(bo).cast_const(), sb);
                        // SAFETY: the nest reaches elements of the views only; an input is the output or disjoint.
                        unsafe { map2((self.y.at(yo), ys), a, b, len, &f) };
                    },
                );
            },
        );
    }

    /// Writes `f` of each pair, for functions that the vector unit does not have.
    fn calls(self, f: impl Fn(T, T) -> T) {
        let [ys, sa, sb] = self.loops.strides(0);
        self.loops.walk(self.places, |[yo, ao, bo], len| {
            let a = (self.a.at(ao).cast_const(), sa);
            let b = (self.b.at(bo).cast_const(), sb);
            // SAFETY: as above.
            unsafe { plain2((self.y.at(yo), ys), a, b, len, &f) };
        });
    }

    /// The one element that `b` is, if it is one element only.
    fn one_b(&self) -> Option<T> {
        let one = (0..self.loops.rank()).all(|axis| self.loops.strides(axis)[2] == 0);
        // SAFETY: the nest is not empty, so its first place is an element of each view.
        one.then(|| unsafe { *self.b.at(self.loops.start()[2]) })
    }
}

#[inline(always)]
fn choose<T>(condition: bool, a: T, b: T) -> T {
    if condition {
        a
    } else {
        b
    }
}

macro_rules! real {
    ($type:ty, $divide:expr, $power:expr) => {
        impl sealed::Sealed for $type {
            fn map(op: Binary, part: Part<'_, Self>) {
                match op {
                    Binary::Add => part.each(|a, b| a + b),
                    Binary::Sub => part.each(|a, b| a - b),
                    Binary::Mul => part.each(|a, b| a * b),
                    Binary::Div => part.each(|a, b| a / b),
                    // The whole array has one exponent in most models, and mostly one of these.
                    Binary::Pow => match part.one_b() {
                        Some(1.0) => part.each(|a, _| a),
                        Some(2.0) => part.each(|a, _| a * a),
                        Some(3.0) => part.each(|a, _| a * a * a),
                        Some(-1.0) => part.each(|a, _| 1.0 / a),
                        // Unlike its square root, the power of -0 is 0 and that of negative infinity is infinity.
                        Some(0.5) => part.each(|a, _| if a == <$type>::NEG_INFINITY { -a } else { (a + 0.0).sqrt() }),
                        _ => part.calls(<$type>::powf),
                    },
                    // No short circuit, which the compiler would make a branch of.
                    Binary::Max => part.each(|a, b| choose((a > b) | a.is_nan(), a, b)),
                    Binary::Min => part.each(|a, b| choose((a < b) | a.is_nan(), a, b)),
                }
            }

            fn nanos(op: Binary) -> f64 {
                let size = size_of::<$type>() as f64;
                match op {
                    Binary::Pow => $power,
                    Binary::Div => $divide,
                    _ => rates::BINARY_BYTE * size,
                }
            }
        }
    };
}

macro_rules! integer {
    ($type:ty) => {
        impl sealed::Sealed for $type {
            fn map(op: Binary, part: Part<'_, Self>) {
                match op {
                    Binary::Add => part.each(<$type>::wrapping_add),
                    Binary::Sub => part.each(<$type>::wrapping_sub),
                    Binary::Mul => part.each(<$type>::wrapping_mul),
                    Binary::Div => part.calls(|a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
                    Binary::Pow => part.calls(|a, b| power(i64::from(a), i64::from(b)) as $type),
                    Binary::Max => part.each(<$type>::max),
                    Binary::Min => part.each(<$type>::min),
                }
            }

            fn nanos(op: Binary) -> f64 {
                match op {
                    Binary::Pow => rates::INTEGER_POWER,
                    Binary::Div => rates::INTEGER_DIVIDE,
                    _ => rates::BINARY_BYTE * size_of::<$type>() as f64,
                }
            }
        }
    };
}

real!(f32, rates::DIVIDE_F32, rates::POWER_F32);
real!(f64, rates::DIVIDE_F64, rates::POWER_F64);
integer!(i32);
integer!(i64);

/// `a` to the power `b`, modulo 2^64; so the low bits are right for narrower integers too.
fn power(a: i64, b: i64) -> i64 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, a, b);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}
