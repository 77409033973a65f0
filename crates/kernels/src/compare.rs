//! Comparison of two elements.

use std::ops::Range;

use threadteam::Exec;

use crate::cast::Element;
use crate::lanes::{map2, vectorized};
use crate::loops::{Base, Loops};
use crate::{rates, View, ViewMut};

/// What [`compare`] asks of each pair of elements. Every answer about NaN is no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// `a == b`.
    Equal,
    /// `a < b`.
    Less,
    /// `a <= b`.
    LessOrEqual,
    /// `a > b`.
    Greater,
    /// `a >= b`.
    GreaterOrEqual,
}

/// Writes 1 to `y` where `op` holds between the elements of `a` and `b`, else 0.
///
/// # Panics
///
/// When the shapes differ.
pub fn compare<T: Element>(exec: Exec<'_>, op: Compare, a: &View<T>, b: &View<T>, y: &mut ViewMut<u8>) {
    let loops = Loops::new([y.layout(), a.layout(), b.layout()]);
    let (a, b, y) = (Base::of(a), Base::of(b), Base::of_mut(y));
    let nanos = rates::BINARY_BYTE * size_of::<T>() as f64;
    loops.run(exec, nanos, &|places| T::compare(op, Part { loops: &loops, places, a, b, y }));
}

/// The share of one participant.
pub struct Part<'a, T> {
    loops: &'a Loops<3>,
    places: Range<usize>,
    a: Base<T>,
    b: Base<T>,
    y: Base<u8>,
}

impl<T: Copy + PartialOrd> Part<'_, T> {
    /// Writes whether `op` holds between each pair.
    #[inline(always)]
    pub(crate) fn map(self, op: Compare) {
        match op {
            Compare::Equal => self.each(|a, b| a == b),
            Compare::Less => self.each(|a, b| a < b),
            Compare::LessOrEqual => self.each(|a, b| a <= b),
            Compare::Greater => self.each(|a, b| a > b),
            Compare::GreaterOrEqual => self.each(|a, b| a >= b),
        }
    }

    #[inline(always)]
    fn each(self, f: impl Fn(T, T) -> bool) {
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
                        unsafe { map2((self.y.at(yo), ys), a, b, len, |a, b| u8::from(f(a, b))) };
                    },
                );
            },
        );
    }
}
