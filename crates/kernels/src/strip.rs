//! Strips: a run of elements read in blocks of lanes, and folds over it whose order depends on its length alone.

use std::ops::Range;

use crate::lanes::blocks_stay_apart;
use crate::Real;

/// Elements in a block: four AVX2 vectors of `f32`, enough sums in flight to hide the latency of an addition.
pub(crate) const LANES: usize = 32;
/// Elements that are folded in `T` before the result is carried on in `f64`: keeps long sums accurate.
pub(crate) const PIECE: usize = 1024;

/// A run of elements: an address and the stride between neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strip<T> {
    pub at: *mut T,
    pub step: isize,
}

impl<T: Copy> Strip<T> {
    /// # Safety
    ///
    /// The run has an element `i`.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { *self.at.offset(i as isize * self.step) }
    }

    /// # Safety
    ///
    /// The run has an element `i`, and it is the caller's to write.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { *self.at.offset(i as isize * self.step) = value }
    }

    /// The elements from `i` on, `count` of them (at most [`LANES`]), and `pad` after them.
    ///
    /// # Safety
    ///
    /// The run has the elements.
    #[inline(always)]
    pub unsafe fn load(self, i: usize, count: usize, pad: T) -> [T; LANES] {
        // SAFETY: the caller's promise.
        unsafe { self.read(i, count, pad) }
    }

    /// As [`load`](Self::load), a block of any length.
    ///
    /// # Safety
    ///
    /// The run has the elements.
    #[inline(always)]
    pub unsafe fn read<const N: usize>(self, i: usize, count: usize, pad: T) -> [T; N] {
        // SAFETY: the caller's promise.
        unsafe {
            if count == N && self.step == 1 {
                return self.at.add(i).cast::<[T; N]>().read();
            }
            let mut block = [pad; N];
            if self.step == 1 {
                std::ptr::copy_nonoverlapping(self.at.add(i), block.as_mut_ptr(), count);
            } else {
                for (lane, value) in block[..count].iter_mut().enumerate() {
                    *value = self.get(i + lane);
                }
            }
            block
        }
    }

    /// Writes the first `count` lanes of `block` from `i` on.
    ///
    /// # Safety
    ///
    /// The run has the elements, and they are the caller's to write.
    #[inline(always)]
    pub unsafe fn store<const N: usize>(self, i: usize, count: usize, block: &[T; N]) {
        // SAFETY: the caller's promise.
        unsafe {
            if count == N && self.step == 1 {
                self.at.add(i).cast::<[T; N]>().write(*block);
            } else if self.step == 1 {
                std::ptr::copy_nonoverlapping(block.as_ptr(), self.at.add(i), count);
            } else {
                for (lane, &value) in block[..count].iter().enumerate() {
                    self.set(i + lane, value);
                }
            }
        }
    }
}

/// Calls `body` with the place and the length of each block of a range; all but the last have the constant length.
#[inline(always)]
pub(crate) fn blocks(range: Range<usize>, body: impl FnMut(usize, usize)) {
    blocks_of::<LANES>(range, body);
}

/// As [`blocks`], with blocks of another length.
#[inline(always)]
pub(crate) fn blocks_of<const N: usize>(range: Range<usize>, mut body: impl FnMut(usize, usize)) {
    let mut at = range.start;
    while at + N <= range.end {
        body(at, N);
        at += N;
        blocks_stay_apart();
    }
    if at < range.end {
        body(at, range.end - at);
    }
}

/// An associative operation over elements.
pub(crate) trait Fold<T: Real>: Copy {
    /// What an empty run folds to.
    const EMPTY: f64;

    /// `sum` with one more element.
    fn take(self, sum: T, x: T) -> T;

    /// Two results as one.
    fn join(self, a: f64, b: f64) -> f64;

    /// The fold of `len` elements.
    ///
    /// # Safety
    ///
    /// The run has the elements.
    #[inline(always)]
    unsafe fn run(self, run: Strip<T>, len: usize) -> f64 {
        // SAFETY: the caller's promise. The constant step lets neighbours be read as vectors.
        unsafe {
            if run.step == 1 {
                self.pieces(Strip { at: run.at, step: 1 }, len)
            } else {
                self.pieces(run, len)
            }
        }
    }

    /// # Safety
    ///
    /// The run has the elements.
    #[inline(always)]
    unsafe fn pieces(self, run: Strip<T>, len: usize) -> f64 {
        let empty = T::from_f64(Self::EMPTY);
        let mut total = Self::EMPTY;
        let mut from = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while from + LANES <= len {
                let blocks = ((len - from) / LANES).min(PIECE / LANES);
                let mut sums = [empty; LANES];
                for block in 0..blocks {
                    let at = from + block * LANES;
                    for (lane, sum) in sums.iter_mut().enumerate() {
                        *sum = self.take(*sum, run.get(at + lane));
                    }
                }
                from += blocks * LANES;
                total = self.join(total, self.collapse(sums));
            }
            let mut rest = empty;
            for i in from..len {
                rest = self.take(rest, run.get(i));
            }
            self.join(total, rest.to_f64())
        }
    }

    /// The lanes as one, pair by pair.
    #[inline(always)]
    fn collapse(self, sums: [T; LANES]) -> f64 {
        let lanes = sums;
        let mut sums = [0.0; LANES];
        for (sum, lane) in sums.iter_mut().zip(lanes) {
            *sum = lane.to_f64();
        }
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                sums[lane] = self.join(sums[lane], sums[lane + half]);
            }
            half /= 2;
        }
        sums[0]
    }
}

macro_rules! fold {
    ($(#[$doc:meta])* $name:ident, $empty:expr, |$sum:ident, $x:ident| $take:expr, |$a:ident, $b:ident| $join:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl<T: Real> Fold<T> for $name {
            const EMPTY: f64 = $empty;

            #[inline(always)]
            fn take(self, $sum: T, $x: T) -> T {
                $take
            }

            #[inline(always)]
            fn join(self, $a: f64, $b: f64) -> f64 {
                $join
            }
        }
    };
}

fold!(
    /// The sum.
    Add, 0.0, |sum, x| sum + x, |a, b| a + b
);
fold!(
    /// The sum of squares.
    AddSquare, 0.0, |sum, x| sum + x * x, |a, b| a + b
);
fold!(
    /// The sum of magnitudes.
    AddMagnitude, 0.0, |sum, x| sum + if x < T::ZERO { -x } else { x }, |a, b| a + b
);
fold!(
    /// The product.
    Times, 1.0, |sum, x| sum * x, |a, b| a * b
);
fold!(
    /// The largest, NaN if any is.
    Largest, f64::NEG_INFINITY,
    |sum, x| if x > sum || x.missing() { x } else { sum },
    |a, b| if b > a || b.is_nan() { b } else { a }
);
fold!(
    /// The smallest, NaN if any is.
    Smallest, f64::INFINITY,
    |sum, x| if x < sum || x.missing() { x } else { sum },
    |a, b| if b < a || b.is_nan() { b } else { a }
);

/// The sum of `exp(x - shift)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddExp<T, const FUSED: bool>(pub T);

impl<T: Real, const FUSED: bool> Fold<T> for AddExp<T, FUSED> {
    const EMPTY: f64 = 0.0;

    #[inline(always)]
    fn take(self, sum: T, x: T) -> T {
        sum + (x - self.0).exp_down::<FUSED>()
    }

    #[inline(always)]
    fn join(self, a: f64, b: f64) -> f64 {
        a + b
    }
}

/// The sum of `(x - shift)^2`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddDeviation<T>(pub T);

impl<T: Real> Fold<T> for AddDeviation<T> {
    const EMPTY: f64 = 0.0;

    #[inline(always)]
    fn take(self, sum: T, x: T) -> T {
        let x = x - self.0;
        sum + x * x
    }

    #[inline(always)]
    fn join(self, a: f64, b: f64) -> f64 {
        a + b
    }
}

/// The sum of `x - shift`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddDifference<T>(pub T);

impl<T: Real> Fold<T> for AddDifference<T> {
    const EMPTY: f64 = 0.0;

    #[inline(always)]
    fn take(self, sum: T, x: T) -> T {
        sum + (x - self.0)
    }

    #[inline(always)]
    fn join(self, a: f64, b: f64) -> f64 {
        a + b
    }
}
