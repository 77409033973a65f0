//! Copies between any two layouts of one shape.

use threadteam::Exec;

use crate::loops::{Base, Loops};
use crate::{rates, View, ViewMut};

/// Copies each element of `x` to `y`.
pub fn copy<T: Copy + Send + Sync>(exec: Exec<'_>, x: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), x.layout()]);
    let (x, y) = (Base::of(x), Base::of_mut(y));
    let [ys, xs] = loops.strides(0);
    loops.run(exec, rates::MOVE, &|places| {
        loops.walk(places, |[yo, xo], len| {
            for i in 0..len as isize {
                // SAFETY: the nest reaches elements of the views only.
                unsafe { *y.at(yo + i * ys) = *x.at(xo + i * xs) };
            }
        });
    });
}
