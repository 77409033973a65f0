//! Copies between any two layouts of one shape.

use std::ops::Range;
use std::ptr;

use threadteam::Exec;

use crate::bits::{with_bits, Size};
use crate::loops::{Base, Loops};
use crate::transpose::{self, Crossing};
use crate::{rates, View, ViewMut};

/// Copies each element of `x` to `y`.
///
/// # Panics
///
/// When the shapes differ.
pub fn copy<T: Copy + Send + Sync>(exec: Exec<'_>, x: &View<T>, y: &mut ViewMut<T>) {
    let loops = Loops::new([y.layout(), x.layout()]);
    let (x, y) = (Base::of(x), Base::of_mut(y));
    match Size::of::<T>() {
        Some(size) => copy_bits(exec, size, &loops, x.cast(), y.cast()),
        None => loops.run(exec, rates::MOVE, &|places| rows(&loops, places, x, y)),
    }
}

fn copy_bits(exec: Exec<'_>, size: Size, loops: &Loops<2>, x: Base<u8>, y: Base<u8>) {
    if let Some(crossing) = Crossing::of(loops) {
        return with_bits!(size, Bits => transpose::copy::<Bits>(exec, loops, crossing, x.cast(), y.cast()));
    }
    with_bits!(size, Bits => {
        let nanos = match loops.strides(0) {
            [1, 0 | 1] => rates::COPY_BYTE * size_of::<Bits>() as f64 + rates::ROW / loops.dims()[0].max(1) as f64,
            _ => rates::MOVE,
        };
        loops.run(exec, nanos, &|places| rows::<Bits>(loops, places, x.cast(), y.cast()));
    });
}

fn rows<T: Copy>(loops: &Loops<2>, places: Range<usize>, x: Base<T>, y: Base<T>) {
    let strides = loops.strides(0);
    loops.walk(
        places,
        #[inline(always)]
        |[yo, xo], len| {
            // SAFETY: the nest reaches elements of the views only.
            unsafe { run((y.at(yo), strides[0]), (x.at(xo), strides[1]), len) };
        },
    );
}

/// Copies a run of `len` elements; operands are given as address and stride.
///
/// # Safety
///
/// Both runs have `len` elements.
#[inline(always)]
pub(crate) unsafe fn run<T: Copy>(y: (*mut T, isize), x: (*const T, isize), len: usize) {
    /// Below this many bytes a loop is faster than a call.
    const SHORT: usize = 64;

    // SAFETY: the caller's promise.
    unsafe {
        match (y.1, x.1) {
            (1, 1) if len * size_of::<T>() >= SHORT => ptr::copy(x.0, y.0, len),
            (1, 0) => {
                let value = *x.0;
                for i in 0..len {
                    *y.0.add(i) = value;
                }
            }
            (to, from) => {
                for i in 0..len as isize {
                    *y.0.offset(i * to) = *x.0.offset(i * from);
                }
            }
        }
    }
}
