//! Arithmetic on two elements.

use threadteam::Exec;

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
        fn apply(op: super::Binary, a: Self, b: Self) -> Self;
    }
}

/// The element types of [`binary`]: `f32`, `f64`, `i32` and `i64`.
pub trait Arithmetic: sealed::Sealed {}

macro_rules! real {
    ($type:ty) => {
        impl Arithmetic for $type {}
        impl sealed::Sealed for $type {
            fn apply(op: Binary, a: Self, b: Self) -> Self {
                match op {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    Binary::Div => a / b,
                    Binary::Pow => a.powf(b),
                    Binary::Max => {
                        if a > b || a.is_nan() {
                            a
                        } else {
                            b
                        }
                    }
                    Binary::Min => {
                        if a < b || a.is_nan() {
                            a
                        } else {
                            b
                        }
                    }
                }
            }
        }
    };
}

macro_rules! integer {
    ($type:ty) => {
        impl Arithmetic for $type {}
        impl sealed::Sealed for $type {
            fn apply(op: Binary, a: Self, b: Self) -> Self {
                match op {
                    Binary::Add => a.wrapping_add(b),
                    Binary::Sub => a.wrapping_sub(b),
                    Binary::Mul => a.wrapping_mul(b),
                    Binary::Div => {
                        if b == 0 {
                            0
                        } else {
                            a.wrapping_div(b)
                        }
                    }
                    Binary::Pow => power(i64::from(a), i64::from(b)) as $type,
                    Binary::Max => a.max(b),
                    Binary::Min => a.min(b),
                }
            }
        }
    };
}

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

real!(f32);
real!(f64);
integer!(i32);
integer!(i64);

/// Writes `op` of each pair of elements of `a` and `b` to `y`, which may be either of them.
pub fn binary<T: Arithmetic>(exec: Exec<'_>, op: Binary, a: &View<T>, b: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), a.layout(), b.layout()]);
    let (a, b, y) = (Base::of(a), Base::of(b), Base::of_mut(y));
    let [ys, sa, sb] = loops.strides(0);
    loops.run(exec, rates::SIMPLE, &|places| {
        loops.walk(places, |[yo, ao, bo], len| {
            for i in 0..len as isize {
                // SAFETY: the nest reaches elements of the views only.
                unsafe { *y.at(yo + i * ys) = T::apply(op, *a.at(ao + i * sa), *b.at(bo + i * sb)) };
            }
        });
    });
}
