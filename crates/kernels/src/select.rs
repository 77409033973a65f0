//! Choice between two elements.

use threadteam::Exec;

use crate::loops::{Base, Loops};
use crate::{rates, View, ViewMut};

/// Writes the element of `a` where `cond` is not zero, else that of `b`, to `y`, which may be either of them.
pub fn select<T: Copy + Send + Sync>(exec: Exec<'_>, cond: &View<u8>, a: &View<T>, b: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), cond.layout(), a.layout(), b.layout()]);
    let (cond, a, b, y) = (Base::of(cond), Base::of(a), Base::of(b), Base::of_mut(y));
    let [ys, sc, sa, sb] = loops.strides(0);
    loops.run(exec, rates::SIMPLE, &|places| {
        loops.walk(places, |[yo, co, ao, bo], len| {
            for i in 0..len as isize {
                // SAFETY: the nest reaches elements of the views only.
                unsafe {
                    let (a, b) = (*a.at(ao + i * sa), *b.at(bo + i * sb));
                    *y.at(yo + i * ys) = if *cond.at(co + i * sc) != 0 { a } else { b };
                }
            }
        });
    });
}
