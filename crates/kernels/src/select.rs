//! Choice between two elements.

use std::ops::Range;

use threadteam::Exec;

use crate::bits::{with_bits, Size};
use crate::lanes::{choose, vectorized};
use crate::loops::{Base, Loops};
use crate::{rates, View, ViewMut};

/// Writes the element of `a` where `cond` is not zero, else that of `b`, to `y`, which may be either of them.
///
/// # Panics
///
/// When the shapes differ.
pub fn select<T: Copy + Send + Sync>(exec: Exec<'_>, cond: &View<u8>, a: &View<T>, b: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), cond.layout(), a.layout(), b.layout()]);
    let operands = Operands { y: Base::of_mut(y), cond: Base::of(cond), a: Base::of(a), b: Base::of(b) };
    let nanos = rates::BINARY_BYTE * size_of::<T>() as f64;
    loops.run(exec, nanos, &|places| match Size::of::<T>() {
        Some(size) => select_bits(size, &loops, places, operands.cast()),
        None => operands.rows(&loops, places),
    });
}

fn select_bits(size: Size, loops: &Loops<4>, places: Range<usize>, operands: Operands<u8>) {
    with_bits!(size, Bits => vectorized(
        #[inline(always)]
        || operands.cast::<Bits>().rows(loops, places),
    ));
}

#[derive(Clone, Copy)]
struct Operands<T> {
    y: Base<T>,
    cond: Base<u8>,
    a: Base<T>,
    b: Base<T>,
}

impl<T: Copy> Operands<T> {
    fn cast<U>(self) -> Operands<U> {
        Operands { y: self.y.cast(), cond: self.cond, a: self.a.cast(), b: self.b.cast() }
    }

    #[inline(always)]
    fn rows(self, loops: &Loops<4>, places: Range<usize>) {
        let [ys, sc, sa, sb] = loops.strides(0);
        loops.walk(
            places,
            #[inline(always)]
            |[yo, co, ao, bo], len| {
                let cond = (self.cond.at(co).cast_const(), sc);
                let (a, b) = ((self.a.at(ao).cast_const(), sa), (self.b.at(bo).cast_const(), sb));
                // SAFETY: the nest reaches elements of the views only; an input is the output or disjoint.
                unsafe { choose((self.y.at(yo), ys), cond, a, b, len) };
            },
        );
    }
}
