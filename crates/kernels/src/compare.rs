//! Comparison of two elements.

use threadteam::Exec;

use crate::cast::Element;
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
pub fn compare<T: Element>(exec: Exec<'_>, op: Compare, a: &View<T>, b: &View<T>, y: &mut ViewMut<u8>) {
    let loops = Loops::new([y.layout(), a.layout(), b.layout()]);
    let (a, b, y) = (Base::of(a), Base::of(b), Base::of_mut(y));
    let [ys, sa, sb] = loops.strides(0);
    loops.run(exec, rates::SIMPLE, &|places| {
        loops.walk(places, |[yo, ao, bo], len| {
            for i in 0..len as isize {
                // SAFETY: the nest reaches elements of the views only.
                unsafe {
                    let (a, b) = (*a.at(ao + i * sa), *b.at(bo + i * sb));
                    *y.at(yo + i * ys) = u8::from(match op {
                        Compare::Equal => a == b,
                        Compare::Less => a < b,
                        Compare::LessOrEqual => a <= b,
                        Compare::Greater => a > b,
                        Compare::GreaterOrEqual => a >= b,
                    });
                }
            }
        });
    });
}
