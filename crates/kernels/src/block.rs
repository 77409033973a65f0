//! A block of a matrix product on one core: by `faer`, or where that is slower by own panels.
//!
//! Measured on one Zen 3 core, f32, own panels / `faer` / ONNX Runtime 1.27's MatMul node, GFLOP/s: 8x64x64 84 / 76 / 36,
//! 64x64x64 94 / 90 / 67, a batch of 16x32x16 71 / 40 / 37, of 128x128x32 (m, k, n) 92 / 73 / 69, 256x512x512
//! 92.6 / 93.1 / 85.

use std::cell::RefCell;
use std::ops::Range;

use faer::{Accum, MatMut, MatRef, Par};
use pulp::{Arch, Simd, WithSimd};

use crate::panels::{is_near, near, pack, panels, room, wide, Line, DEPTH, PACK_FROM};
use crate::tile::{Matrix, Panel, Start};
use crate::Real;

/// The bytes of packed `b` that one pass keeps: half of a 512 KiB second-level cache.
const PACKED: usize = 256 << 10;
/// The rows after which the next panel is taken, so that their part of `a` stays in the second-level cache.
const ROWS: usize = 96;
/// From this many multiply-adds on, blocks are `faer`'s, but for ones too thin for its packing.
const LARGE: usize = 1 << 19;
/// Below this many rows, from twice as many.
const TALL: usize = 96;
/// The depth and the columns below which a large block is thin.
const THIN: usize = 48;

/// `y = start + alpha * a @ b` for one matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product<T> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: T,
    pub a: Matrix<T>,
    pub b: Matrix<T>,
    pub start: Start<T>,
    pub y: Matrix<T>,
}

thread_local! {
    /// Packed panels. Grows to [`PACKED`] bytes and a panel once, then is reused; nothing else runs while it is borrowed.
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

impl<T: Real> Product<T> {
    /// Writes the block of `y` at `rows` and `cols`.
    ///
    /// # Safety
    ///
    /// The operands' elements within `m`, `n` and `k` are valid, and nothing else touches the block of `y`.
    pub unsafe fn block(&self, rows: Range<usize>, cols: Range<usize>) {
        let start = match self.start {
            Start::Bias(beta, bias) => Start::Bias(beta, bias.from(rows.start, cols.start)),
            other => other,
        };
        let block = Product {
            m: rows.len(),
            n: cols.len(),
            a: self.a.from(rows.start, 0),
            b: self.b.from(0, cols.start),
            start,
            y: self.y.from(rows.start, cols.start),
            ..*self
        };
        // SAFETY: the caller's promise.
        unsafe { block.run(self.suits_faer()) };
    }

    /// Writes all of `y`.
    ///
    /// # Safety
    ///
    /// As for [`Product::block`].
    #[inline]
    pub unsafe fn whole(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.run(self.suits_faer()) };
    }

    #[inline]
    unsafe fn run(&self, faer: bool) {
        if faer {
            // SAFETY: the caller's promise.
            unsafe { self.by_faer() };
        } else {
            Arch::new().dispatch(Block(self));
        }
    }

    /// Whether `faer` is the faster way; the own way gives the same bits however the output is cut into blocks.
    pub fn suits_faer(&self) -> bool {
        self.k > 0
            && self.y.col == 1
            && if self.b.col != 1 {
                true
            } else {
                let large = if self.m < TALL { 2 * LARGE + 1 } else { LARGE };
                self.m * self.n * self.k >= large && self.k >= THIN && self.n >= THIN
            }
    }

    /// # Safety
    ///
    /// As for [`Product::block`].
    unsafe fn by_faer(&self) {
        let accum = match self.start {
            Start::Zero => Accum::Replace,
            Start::Output => Accum::Add,
            Start::Bias(beta, bias) => {
                for row in 0..self.m {
                    for col in 0..self.n {
                        // SAFETY: an element of the bias and of the output.
                        unsafe { *self.y.place(row, col) = beta * *bias.place(row, col) };
                    }
                }
                Accum::Add
            }
        };
        // SAFETY: the caller's promise.
        let (a, b, y) = unsafe {
            (
                MatRef::from_raw_parts(self.a.at.cast_const(), self.m, self.k, self.a.row, self.a.col),
                MatRef::from_raw_parts(self.b.at.cast_const(), self.k, self.n, self.b.row, self.b.col),
                MatMut::from_raw_parts_mut(self.y.at, self.m, self.n, self.y.row, self.y.col),
            )
        };
        faer::linalg::matmul::matmul(y, accum, a, b, self.alpha, Par::Seq);
    }
}

struct Block<'a, T>(&'a Product<T>);

impl<T: Real> WithSimd for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let wide = wide::<S>(self.0.m);
        SCRATCH.with_borrow_mut(|scratch| self.0.passes(simd, scratch, wide));
    }
}

impl<T: Real> Product<T> {
    /// Goes through the depth and the columns piece by piece; panels are at most `wide` vectors.
    #[inline(always)]
    fn passes<S: Simd>(&self, simd: S, scratch: &mut Vec<Line>, wide: usize) {
        let (lanes, size) = (T::lanes::<S>(), size_of::<T>());
        let width = wide * lanes;
        let direct = self.b.col == 1 && (self.m < PACK_FROM || is_near::<T>(near::<S>(), self.b.row, self.k, self.n));
        let depth = self.k.div_ceil(self.k.div_ceil(DEPTH).max(1));
        let span = match direct {
            true => self.n,
            false => (PACKED / size / depth.max(1)).max(1).next_multiple_of(width).min(self.n),
        };
        let packed = room::<T>(scratch, if direct { width } else { span.next_multiple_of(width) } * depth * size);
        let mut from = 0;
        loop {
            let deep = depth.min(self.k - from);
            for left in (0..self.n).step_by(span.max(1)) {
                let cols = span.min(self.n - left);
                let b = self.b.from(from, left);
                if !direct {
                    for (at, cols, vectors) in panels(cols, lanes, wide) {
                        // SAFETY: the scratch has room for `deep` rows of every panel of a span.
                        unsafe { pack(packed.add(at * deep), b.from(0, at), deep, cols, vectors * lanes) };
                    }
                }
                for row in (0..self.m).step_by(ROWS) {
                    let rows = ROWS.min(self.m - row);
                    for (at, cols, vectors) in panels(cols, lanes, wide) {
                        let (b, b_row) = if !direct {
                            (packed.wrapping_add(at * deep).cast_const(), (vectors * lanes) as isize)
                        } else if cols == vectors * lanes {
                            (b.place(0, at).cast_const(), b.row)
                        } else {
                            // SAFETY: the scratch has room for `deep` rows of one panel.
                            unsafe { pack(packed, b.from(0, at), deep, cols, vectors * lanes) };
                            (packed.cast_const(), (vectors * lanes) as isize)
                        };
                        let start = match self.start {
                            _ if from > 0 => Start::Output,
                            Start::Bias(beta, bias) => Start::Bias(beta, bias.from(row, left + at)),
                            other => other,
                        };
                        let (a, y) = (self.a.from(row, from), self.y.from(row, left + at));
                        macro_rules! panel {
                            ($vectors:literal) => {
                                simd.vectorize(Panel::<T, $vectors> {
                                    rows,
                                    cols,
                                    depth: deep,
                                    alpha: self.alpha,
                                    a,
                                    b,
                                    b_row,
                                    start,
                                    y,
                                })
                            };
                        }
                        match vectors {
                            1 => panel!(1),
                            2 => panel!(2),
                            4 => panel!(4),
                            _ => panel!(8),
                        }
                    }
                }
            }
            from += deep;
            if from >= self.k {
                return;
            }
        }
    }
}
