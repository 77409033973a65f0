//! Comparison of two elements.

use std::ops::Range;

use threadteam::Exec;

use crate::cast::Element;
use crate::lanes::{map2, plain2, vectorized};
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
    let (inputs, y) = ([(Base::of(a), 1), (Base::of(b), 2)], Base::of_mut(y));
    let nanos = rates::BINARY_BYTE * size_of::<T>() as f64;
    loops.run(exec, nanos, &|places| T::compare(op, Part { loops: &loops, places, y, inputs }));
}

/// The share of one participant.
pub struct Part<'a, T> {
    loops: &'a Loops<3>,
    places: Range<usize>,
    y: Base<u8>,
    /// Each input's base and its number among the operands of the nest.
    inputs: [(Base<T>, usize); 2],
}

impl<T: Copy + PartialOrd> Part<'_, T> {
    /// Writes whether `op` holds between each pair; `common` types are worth code for each instruction set.
    #[inline(always)]
    pub(crate) fn map(self, op: Compare, common: bool) {
        let part = match op {
            Compare::Greater | Compare::GreaterOrEqual => self.swapped(),
            _ => self,
        };
        match op {
            Compare::Equal => part.each(common, |a, b| a == b),
            Compare::Less | Compare::Greater => part.each(common, |a, b| a < b),
            Compare::LessOrEqual | Compare::GreaterOrEqual => part.each(common, |a, b| a <= b),
        }
    }

    /// The same with the inputs exchanged.
    fn swapped(self) -> Self {
        let [first, second] = self.inputs;
        Part { inputs: [second, first], ..self }
    }

    #[inline(always)]
    fn each(self, common: bool, f: impl Fn(T, T) -> bool) {
        let strides = self.loops.strides(0);
        let [(a, ia), (b, ib)] = self.inputs;
        let f = |a, b| u8::from(f(a, b));
        if common {
            return vectorized(
                #[inline(always)]
                || {
                    self.loops.walk(
                        self.places,
                        #[inline(always)]
                        |offsets, len| {
                            let y = (self.y.at(offsets[0]), strides[0]);
                            let (a, b) = (a.at(offsets[ia]).cast_const(), b.at(offsets[ib]).cast_const());
                            // SAFETY: the nest reaches elements of the views only; an input is the output or disjoint.
                            unsafe { map2(y, (a, strides[ia]), (b, strides[ib]), len, f) };
                        },
                    );
                },
            );
        }
        self.loops.walk(self.places, |offsets, len| {
            let (a, b) = (a.at(offsets[ia]).cast_const(), b.at(offsets[ib]).cast_const());
            // SAFETY: as above.
            unsafe { plain2((self.y.at(offsets[0]), strides[0]), (a, strides[ia]), (b, strides[ib]), len, f) };
        });
    }
}
