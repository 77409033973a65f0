//! Panels of columns: how the second operand of a product is cut and packed.

use pulp::{Arch, Simd, WithSimd};

use crate::lanes::vectorized;
use crate::tile::{Matrix, Panel, Start};
use crate::Real;

/// The depth of one pass: a panel of 256 rows of two AVX2 vectors is half of a 32 KiB first-level cache.
pub(crate) const DEPTH: usize = 256;

/// Below this many rows a matrix is read where it is, when its rows are runs in memory: a copy would cost more than it
/// saves.
pub(crate) const PACK_FROM: usize = 24;

/// Elements that packing copies at once: every panel of AVX2 but those of one vector of `f64` has a multiple of them.
const BLOCK: usize = 8;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

/// The vectors of a panel that suit the instruction set and the rows of a product: sums enough to hide the latency of
/// one.
#[inline(always)]
pub(crate) fn wide<S: Simd>(rows: usize) -> usize {
    match rows {
        1 => 8,
        2 | 3 => 4,
        _ if S::REGISTER_COUNT >= 32 => 4,
        _ => 2,
    }
}

/// The bytes of a matrix that is read where it is as fast as packed, because it stays in the second-level cache.
///
/// A wide tile multiplies long enough with each row of a panel for the next ones to arrive from there; panels of AVX2, a
/// line wide, lose by it at 256 KiB (1.08 of the time of packed ones; 0.96 at 64 KiB).
#[inline(always)]
pub(crate) fn near<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 {
        256 << 10
    } else {
        64 << 10
    }
}

/// The bytes up to which the matrix products of this CPU read their second operand where it is.
pub fn in_place_bytes() -> usize {
    struct Near;

    impl WithSimd for Near {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _simd: S) -> usize {
            near::<S>()
        }
    }

    Arch::new().dispatch(Near)
}

/// Whether a matrix of rows that are runs in memory is read where it is, for at most `near` bytes.
#[inline(always)]
pub(crate) fn is_near<T>(near: usize, row: isize, depth: usize, cols: usize) -> bool {
    // Rows a multiple of a page apart fall on few lines of the cache.
    depth * cols * size_of::<T>() <= near && row * size_of::<T>() as isize % 4096 != 0
}

/// Makes room for `bytes` in `scratch` and returns where it begins.
#[inline(always)]
pub(crate) fn room<T>(scratch: &mut Vec<Line>, bytes: usize) -> *mut T {
    if scratch.len() * 64 < bytes {
        scratch.resize(bytes.div_ceil(64), Line([0; 64]));
    }
    scratch.as_mut_ptr().cast()
}

/// The second operand of products with several groups of rows: panels of its columns, in passes over its depth.
#[derive(Debug)]
pub(crate) struct Panels<T> {
    /// The matrix itself where it can be read in place.
    place: Option<Matrix<T>>,
    packed: *mut T,
    depth: usize,
    cols: usize,
    padded: usize,
    pass: usize,
    /// The most vectors of a panel.
    wide: usize,
}

impl<T: Real> Panels<T> {
    /// `depth` rows of `cols` columns of `b` for products of `rows` rows in all, packed into `scratch` if that pays.
    ///
    /// # Safety
    ///
    /// `b` has the rows and columns; `scratch` is left alone while the result is used.
    #[inline(always)]
    pub unsafe fn new<S: Simd>(scratch: &mut Vec<Line>, b: Matrix<T>, depth: usize, cols: usize, rows: usize) -> Self {
        let (lanes, wide) = (T::lanes::<S>(), wide::<S>(rows));
        let padded = cols.next_multiple_of(wide * lanes);
        let pass = depth.div_ceil(depth.div_ceil(DEPTH).max(1));
        let mut packed = Panels { place: Some(b), packed: std::ptr::null_mut(), depth, cols, padded, pass, wide };
        if b.col == 1
            && cols.is_multiple_of(lanes)
            && (rows < PACK_FROM || is_near::<T>(near::<S>(), b.row, depth, cols))
        {
            return packed;
        }
        packed.place = None;
        packed.packed = room::<T>(scratch, padded * depth * size_of::<T>());
        vectorized(
            #[inline(always)]
            || {
                for (from, deep) in packed.passes() {
                    for (col, cols, vectors) in panels(cols, lanes, wide) {
                        let (to, _) = packed.panel(from, deep, col, vectors * lanes);
                        // SAFETY: the scratch has room for every row of every panel.
                        unsafe { pack(to, b.from(from, col), deep, cols, vectors * lanes) };
                    }
                }
            },
        );
        packed
    }

    /// Where each pass begins and how deep it is; one at least.
    #[inline(always)]
    fn passes(&self) -> impl Iterator<Item = (usize, usize)> {
        let (depth, pass) = (self.depth, self.pass);
        (0..depth.max(1)).step_by(pass.max(1)).map(move |from| (from, pass.min(depth - from)))
    }

    /// Where the panel of `width` columns from `col` on begins, and how far apart its rows are.
    #[inline(always)]
    fn panel(&self, from: usize, deep: usize, col: usize, width: usize) -> (*mut T, isize) {
        match self.place {
            Some(b) => (b.place(from, col), b.row),
            None => (self.packed.wrapping_add(from * self.padded + col * deep), width as isize),
        }
    }

    /// `y = start + alpha * a @ self` for `rows` rows.
    ///
    /// # Safety
    ///
    /// The operands have the rows, and nothing else touches those of `y`.
    #[inline(always)]
    pub unsafe fn multiply<S: Simd>(
        &self,
        simd: S,
        rows: usize,
        alpha: T,
        a: Matrix<T>,
        start: Start<T>,
        y: Matrix<T>,
    ) {
        let lanes = T::lanes::<S>();
        for (from, deep) in self.passes() {
            for (col, cols, vectors) in panels(self.cols, lanes, self.wide) {
                let start = match start {
                    _ if from > 0 => Start::Output,
                    Start::Bias(beta, bias) => Start::Bias(beta, bias.from(0, col)),
                    other => other,
                };
                let (a, y) = (a.from(0, from), y.from(0, col));
                let (b, b_row) = self.panel(from, deep, col, vectors * lanes);
                let b = b.cast_const();
                macro_rules! panel {
                    ($vectors:literal) => {
                        simd.vectorize(Panel::<T, $vectors> { rows, cols, depth: deep, alpha, a, b, b_row, start, y })
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
}

/// Cuts `cols` columns into panels: where each begins, its columns, and its vectors (a power of two up to `wide`).
///
/// A panel has as many whole vectors as are left; what is left after whole vectors takes one or two partly used ones.
#[inline(always)]
pub(crate) fn panels(cols: usize, lanes: usize, wide: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = cols - at;
        let mut vectors = wide;
        while vectors > 2 && vectors * lanes > left {
            vectors /= 2;
        }
        if left <= lanes {
            vectors = 1;
        }
        let (begin, cols) = (at, left.min(vectors * lanes));
        at += cols;
        (left > 0).then_some((begin, cols, vectors))
    })
}

/// Copies `depth` rows of `cols` columns of `b` to rows of `width`, zeros after the columns.
///
/// # Safety
///
/// `b` has the rows and columns, and `to` room for `depth` rows.
#[inline(always)]
pub(crate) unsafe fn pack<T: Real>(to: *mut T, b: Matrix<T>, depth: usize, cols: usize, width: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if b.col == 1 && cols == width {
            for row in 0..depth {
                copy(b.place(row, 0), to.add(row * width), width);
            }
            return;
        }
        if cols < width {
            to.write_bytes(0, depth * width);
        }
        // A run of a column at a time, so that a transposed `b` is read along its memory and written within few lines.
        for row in (0..depth).step_by(16) {
            let rows = 16.min(depth - row);
            for col in 0..cols {
                for r in row..row + rows {
                    *to.add(r * width + col) = *b.place(r, col);
                }
            }
        }
    }
}

/// Copies a short run by whole blocks: a copy whose length is known only at run time is a call each.
///
/// # Safety
///
/// Both runs have `len` elements, and they are apart.
#[inline(always)]
unsafe fn copy<T: Copy>(from: *const T, to: *mut T, len: usize) {
    let whole = len - len % BLOCK;
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..whole).step_by(BLOCK) {
            to.add(at).cast::<[T; BLOCK]>().write(from.add(at).cast::<[T; BLOCK]>().read());
        }
        for at in whole..len {
            *to.add(at) = *from.add(at);
        }
    }
}
