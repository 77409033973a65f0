//! The inner kernel of matrix products: a panel of columns of the output, a few rows of it at a time in registers.

use pulp::{Simd, WithSimd};

use crate::Real;

/// The most rows of a tile: with two vectors of columns, twelve sums, one factor and two vectors of `b` fill the sixteen
/// registers of AVX2; with four, 24 + 1 + 4 the thirty-two of AVX-512 and Neon.
pub(crate) const TILE_ROWS: usize = 6;

/// The most elements in a row of a tile: eight vectors of sixteen.
const WIDEST: usize = 128;

/// A matrix by address and element strides.
#[derive(Debug)]
pub(crate) struct Matrix<T> {
    pub at: *mut T,
    pub row: isize,
    pub col: isize,
}

impl<T> Clone for Matrix<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Matrix<T> {}

impl<T> Matrix<T> {
    /// The address of an element.
    #[inline(always)]
    pub fn place(&self, row: usize, col: usize) -> *mut T {
        self.at.wrapping_offset(row as isize * self.row + col as isize * self.col)
    }

    /// The matrix that begins at an element of this one.
    #[inline(always)]
    pub fn from(&self, row: usize, col: usize) -> Self {
        Matrix { at: self.place(row, col), ..*self }
    }
}

/// What a product is added to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<T> {
    /// Nothing.
    Zero,
    /// What the output holds.
    Output,
    /// A factor times a matrix of the output's shape.
    Bias(T, Matrix<T>),
}

/// `y = start + alpha * a @ b` for a panel of at most `V` vectors of columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panel<T, const V: usize> {
    pub rows: usize,
    /// The columns of `y` to write, at most `V` vectors.
    pub cols: usize,
    pub depth: usize,
    pub alpha: T,
    pub a: Matrix<T>,
    /// Rows of `V` whole vectors, neighbours in memory.
    pub b: *const T,
    pub b_row: isize,
    pub start: Start<T>,
    pub y: Matrix<T>,
}

impl<T: Real, const V: usize> WithSimd for Panel<T, V> {
    type Output = ();

    /// # Safety, though the trait cannot say so
    ///
    /// Built only by `block.rs`, which keeps every place that the extents and strides reach inside the operands.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Groups of rows of nearly one size: a lone last row would run at the latency of its few sums.
        let groups = self.rows.div_ceil(TILE_ROWS);
        let (base, more) = (self.rows / groups.max(1), self.rows % groups.max(1));
        let mut row = 0;
        for group in 0..groups {
            let rows = base + usize::from(group < more);
            match rows {
                1 => self.tile::<S, 1>(simd, row),
                2 => self.tile::<S, 2>(simd, row),
                3 => self.tile::<S, 3>(simd, row),
                4 => self.tile::<S, 4>(simd, row),
                5 => self.tile::<S, 5>(simd, row),
                _ => self.tile::<S, TILE_ROWS>(simd, row),
            }
            row += rows;
        }
    }
}

impl<T: Real, const V: usize> Panel<T, V> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&self, simd: S, row: usize) {
        let a = self.a.from(row, 0);
        // Factors that are neighbours in memory: the constant step lets the loop be unrolled over displacements.
        let sums = if a.col == 1 {
            self.sums::<S, R>(simd, a.at, a.row, 1)
        } else {
            self.sums::<S, R>(simd, a.at, a.row, a.col)
        };
        let y = self.y.from(row, 0);
        let whole = self.cols == V * T::lanes::<S>() && y.col == 1;
        match self.start {
            Start::Bias(beta, bias) => {
                let bias = bias.from(row, 0);
                if whole && (bias.col == 1 || bias.col == 0) {
                    self.put(simd, &sums, y, |at, v| {
                        // SAFETY: a bias of the output's shape: its row holds the vector, or one element stands for it.
                        let from = unsafe {
                            if bias.col == 1 {
                                T::load::<S>(bias.place(at, v * T::lanes::<S>()))
                            } else {
                                T::splat(simd, *bias.place(at, 0))
                            }
                        };
                        T::times(simd, T::splat(simd, beta), from)
                    });
                } else {
                    // SAFETY: as above, for single elements.
                    self.put_each(simd, &sums, y, |at, col| beta * unsafe { *bias.place(at, col) });
                }
            }
            Start::Output if whole => {
                // SAFETY: the places that are written anyway.
                self.put(simd, &sums, y, |at, v| unsafe { T::load::<S>(y.place(at, v * T::lanes::<S>())) });
            }
            Start::Output => {
                // SAFETY: the places that are written anyway.
                self.put_each(simd, &sums, y, |at, col| unsafe { *y.place(at, col) });
            }
            Start::Zero if whole => self.put(simd, &sums, y, |_, _| T::splat(simd, T::ZERO)),
            Start::Zero => self.put_each(simd, &sums, y, |_, _| T::ZERO),
        }
    }

    /// Rows of `a` from address `a` on times the panel of `b`.
    #[inline(always)]
    fn sums<S: Simd, const R: usize>(&self, simd: S, a: *const T, row: isize, col: isize) -> [[T::Of<S>; V]; R] {
        let mut sums = [[T::splat(simd, T::ZERO); V]; R];
        let (mut a, mut b) = (a, self.b);
        for _ in 0..self.depth {
            // SAFETY: one of `depth` columns of `a` and rows of `b`, within the extents that `block.rs` gave.
            unsafe {
                let mut from = [T::splat(simd, T::ZERO); V];
                for (v, from) in from.iter_mut().enumerate() {
                    *from = T::load::<S>(b.add(v * T::lanes::<S>()));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let factor = T::splat(simd, *a.offset(r as isize * row));
                    for (sum, from) in sums.iter_mut().zip(from) {
                        *sum = T::mul_add(simd, factor, from, *sum);
                    }
                }
            }
            a = a.wrapping_offset(col);
            b = b.wrapping_offset(self.b_row);
        }
        sums
    }

    #[inline(always)]
    fn put<S: Simd, const R: usize>(
        &self,
        simd: S,
        sums: &[[T::Of<S>; V]; R],
        y: Matrix<T>,
        start: impl Fn(usize, usize) -> T::Of<S>,
    ) {
        let alpha = T::splat(simd, self.alpha);
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                // SAFETY: a whole vector of the output's row.
                unsafe { T::store::<S>(y.place(r, v * T::lanes::<S>()), T::mul_add(simd, alpha, *sum, start(r, v))) };
            }
        }
    }

    #[inline(always)]
    fn put_each<S: Simd, const R: usize>(
        &self,
        simd: S,
        sums: &[[T::Of<S>; V]; R],
        y: Matrix<T>,
        start: impl Fn(usize, usize) -> T,
    ) {
        let alpha = T::splat(simd, self.alpha);
        for (r, sums) in sums.iter().enumerate() {
            // The same multiplication and addition in one as for whole vectors: no bit depends on how columns are cut.
            let mut line = [T::ZERO; WIDEST];
            let line = &mut line[..V * T::lanes::<S>()];
            for (col, value) in line[..self.cols].iter_mut().enumerate() {
                *value = start(r, col);
            }
            for (v, sum) in sums.iter().enumerate() {
                let at = line[v * T::lanes::<S>()..].as_mut_ptr();
                // SAFETY: the line holds `V` vectors.
                unsafe { T::store::<S>(at, T::mul_add(simd, alpha, *sum, T::load::<S>(at))) };
            }
            for (col, &value) in line[..self.cols].iter().enumerate() {
                // SAFETY: one of the output's elements.
                unsafe { *y.place(r, col) = value };
            }
        }
    }
}
