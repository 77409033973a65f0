//! Copies whose source and destination have neighbours along different axes.
//!
//! Element by element, one side of such a copy touches another cache line each time, and where its stride is a large
//! power of two all those lines share a few sets of the cache. So the two axes are cut into tiles. A tile is read in
//! whole lines into a buffer, transposed on the way by small blocks held in registers, and written in whole lines.

use std::mem::MaybeUninit;

use threadteam::Exec;

use crate::bits::{Bits128, Bits16, Bits32, Bits64, Bits8};
use crate::copy::run;
use crate::loops::{distribute, Base, Loops};
use crate::rates;

/// The bytes of a tile's buffer; half of a small first-level cache.
const TILE_BYTES: usize = 16 * 1024;

/// The two axes of a transposed copy, as axes of its loop nest: the destination's neighbours are along axis 0, the
/// source's along `source`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    source: usize,
}

impl Crossing {
    /// The axis that the source's neighbours are along, when it is not the destination's.
    pub(crate) fn of(loops: &Loops<2>) -> Option<Self> {
        let step = |axis: usize| loops.strides(axis)[1].unsigned_abs();
        // A source that stands still is read once a run; it needs no tiles.
        if step(0) <= 1 || loops.dims()[0] < 2 {
            return None;
        }
        let source = (1..loops.rank()).filter(|&axis| step(axis) > 0).min_by_key(|&axis| step(axis))?;
        (step(source) < step(0)).then_some(Crossing { source })
    }
}

/// A type of element and the square block of it that is transposed in registers.
pub(crate) trait Block: Copy {
    /// The side of the block; its square times the element's size is at most 16 registers of 16 bytes.
    const SIDE: usize;

    /// Transposes the block at `x`, whose rows are `from` elements apart, to `y`, whose rows are `to` elements apart.
    ///
    /// # Safety
    ///
    /// Both blocks are valid, and they are disjoint.
    unsafe fn transpose(y: *mut Self, to: isize, x: *const Self, from: isize);
}

#[cfg(target_arch = "x86_64")]
mod blocks {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_unpackhi_epi16, _mm_unpackhi_epi32,
        _mm_unpackhi_epi64, _mm_unpackhi_epi8, _mm_unpacklo_epi16, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
        _mm_unpacklo_epi8,
    };

    use super::{Bits16, Bits32, Bits64, Bits8, Block};

    macro_rules! block {
        ($type:ty, $side:literal, $low:ident, $high:ident) => {
            impl Block for $type {
                const SIDE: usize = $side;

                #[inline(always)]
                unsafe fn transpose(y: *mut Self, to: isize, x: *const Self, from: isize) {
                    // SAFETY: the caller's promise; SSE2 is part of x86-64.
                    unsafe {
                        let mut rows: [__m128i; $side] =
                            std::array::from_fn(|i| _mm_loadu_si128(x.offset(i as isize * from).cast()));
                        // Interleaving row i with row i + SIDE / 2 moves one bit of the row number into the column
                        // number; once for each bit, rows and columns have changed places.
                        let mut rounds: usize = $side;
                        while rounds > 1 {
                            let mut next = [_mm_setzero_si128(); $side];
                            for i in 0..$side / 2 {
                                next[2 * i] = $low(rows[i], rows[i + $side / 2]);
                                next[2 * i + 1] = $high(rows[i], rows[i + $side / 2]);
                            }
                            rows = next;
                            rounds /= 2;
                        }
                        for (i, row) in rows.into_iter().enumerate() {
                            _mm_storeu_si128(y.offset(i as isize * to).cast(), row);
                        }
                    }
                }
            }
        };
    }

    block!(Bits8, 16, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
    block!(Bits16, 8, _mm_unpacklo_epi16, _mm_unpackhi_epi16);
    block!(Bits32, 4, _mm_unpacklo_epi32, _mm_unpackhi_epi32);
    block!(Bits64, 2, _mm_unpacklo_epi64, _mm_unpackhi_epi64);
}

#[cfg(not(target_arch = "x86_64"))]
mod blocks {
    use super::{Bits16, Bits32, Bits64, Bits8, Block};

    macro_rules! block {
        ($type:ty, $side:literal) => {
            impl Block for $type {
                const SIDE: usize = $side;

                #[inline(always)]
                unsafe fn transpose(y: *mut Self, to: isize, x: *const Self, from: isize) {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let rows: [[Self; $side]; $side] =
                            std::array::from_fn(|i| x.offset(i as isize * from).cast::<[Self; $side]>().read());
                        for i in 0..$side {
                            let row: [Self; $side] = std::array::from_fn(|j| rows[j][i]);
                            y.offset(i as isize * to).cast::<[Self; $side]>().write(row);
                        }
                    }
                }
            }
        };
    }

    block!(Bits8, 8);
    block!(Bits16, 8);
    block!(Bits32, 4);
    block!(Bits64, 2);
}

impl Block for Bits128 {
    const SIDE: usize = 1;

    #[inline(always)]
    unsafe fn transpose(y: *mut Self, _to: isize, x: *const Self, _from: isize) {
        // SAFETY: the caller's promise.
        unsafe { *y = *x };
    }
}

/// Copies a nest whose two sides cross, tile by tile.
pub(crate) fn copy<T: Block + Send + Sync>(
    exec: Exec<'_>,
    loops: &Loops<2>,
    crossing: Crossing,
    x: Base<T>,
    y: Base<T>,
) {
    let tiles = Tiles::<T>::new(loops, crossing, x, y);
    let nanos = rates::TRANSPOSE_BYTE * (size_of::<T>() * loops.len()) as f64 / tiles.count().max(1) as f64;
    distribute(exec, tiles.count(), 1, nanos, &|range| {
        let mut buffer = Buffer([MaybeUninit::uninit(); TILE_BYTES]);
        for tile in range {
            // SAFETY: `tile` is one of the tiles.
            unsafe { tiles.copy(tile, &mut buffer) };
        }
    });
}

#[repr(align(64))]
struct Buffer([MaybeUninit<u8>; TILE_BYTES]);

/// The tiles of a transposed copy: axis 0 varies fastest, then the source's axis, then the others.
struct Tiles<'a, T> {
    loops: &'a Loops<2>,
    source: usize,
    x: Base<T>,
    y: Base<T>,
    /// The extents of a tile along axis 0 and along the source's axis.
    sides: [usize; 2],
    /// The number of tiles along each.
    counts: [usize; 2],
}

impl<'a, T: Block> Tiles<'a, T> {
    fn new(loops: &'a Loops<2>, crossing: Crossing, x: Base<T>, y: Base<T>) -> Self {
        let area = TILE_BYTES / size_of::<T>();
        let extents = [loops.dims()[0], loops.dims()[crossing.source]];
        // A square, or a strip where an axis is shorter than the square.
        let side = 1 << (area.ilog2() / 2);
        let sides = if extents[0] < side {
            [extents[0], area / extents[0].max(1)]
        } else if extents[1] < side {
            [area / extents[1].max(1), extents[1]]
        } else {
            [side, side]
        };
        let counts = [extents[0].div_ceil(sides[0].max(1)), extents[1].div_ceil(sides[1].max(1))];
        Tiles { loops, source: crossing.source, x, y, sides, counts }
    }

    fn count(&self) -> usize {
        let others = |axis: &usize| *axis != 0 && *axis != self.source;
        let outer: usize = (0..self.loops.rank()).filter(others).map(|axis| self.loops.dims()[axis]).product();
        self.counts[0] * self.counts[1] * outer
    }

    /// Copies tile number `tile`.
    ///
    /// # Safety
    ///
    /// `tile` is below the number of tiles, and nobody else copies it at the same time.
    unsafe fn copy(&self, tile: usize, buffer: &mut Buffer) {
        let first = [tile % self.counts[0] * self.sides[0], tile / self.counts[0] % self.counts[1] * self.sides[1]];
        let dims = self.loops.dims();
        let sides = [self.sides[0].min(dims[0] - first[0]), self.sides[1].min(dims[self.source] - first[1])];
        let [y_along, x_across] = self.loops.strides(0);
        let [y_across, x_along] = self.loops.strides(self.source);
        let [mut yo, mut xo] = self.loops.start();
        yo += first[0] as isize * y_along + first[1] as isize * y_across;
        xo += first[0] as isize * x_across + first[1] as isize * x_along;
        let mut rest = tile / (self.counts[0] * self.counts[1]);
        for axis in (1..self.loops.rank()).filter(|axis| *axis != self.source) {
            let [ys, xs] = self.loops.strides(axis);
            let index = (rest % dims[axis]) as isize;
            rest /= dims[axis];
            yo += index * ys;
            xo += index * xs;
        }

        let rows = buffer.0.as_mut_ptr().cast::<T>();
        // SAFETY: the tile's indices are inside the nest; the buffer holds a tile and is aligned for every element.
        unsafe {
            load((rows, sides[0]), (self.x.at(xo), x_across, x_along), sides);
            for row in 0..sides[1] {
                let y = self.y.at(yo + row as isize * y_across);
                run((y, y_along), (rows.add(row * sides[0]), 1), sides[0]);
            }
        }
    }
}

/// How many of the source's rows are requested ahead: they are too far apart for the hardware to see a pattern, and few
/// enough to fit the sets of the cache that they share. After the last row of a tile mostly come those of the next.
const AHEAD: usize = 8;

/// Asks for the cache lines of `len` elements at `row`.
#[inline(always)]
fn prefetch<T>(row: *const T, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for byte in (0..len * size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a prefetch reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.cast::<i8>().wrapping_add(byte)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (row, len);
}

/// Reads `sides[0]` by `sides[1]` elements of `x`, given with its two strides, into `sides[1]` rows of a buffer, given
/// with its pitch.
#[inline(always)]
unsafe fn load<T: Block>(
    (rows, pitch): (*mut T, usize),
    (x, across, along): (*const T, isize, isize),
    sides: [usize; 2],
) {
    let whole = if along == 1 { sides.map(|side| side / T::SIDE * T::SIDE) } else { [0, 0] };
    // SAFETY: all indices are below `sides`.
    unsafe {
        for i in (0..whole[0]).step_by(T::SIDE) {
            for ahead in i + AHEAD..i + AHEAD + T::SIDE {
                prefetch(x.wrapping_offset(ahead as isize * across), sides[1]);
            }
            for j in (0..whole[1]).step_by(T::SIDE) {
                let from = x.offset(i as isize * across + j as isize);
                T::transpose(rows.add(j * pitch + i), pitch as isize, from, across);
            }
        }
        let one = |i: usize, j: usize| {
            *rows.add(j * pitch + i) = *x.offset(i as isize * across + j as isize * along);
        };
        for i in 0..whole[0] {
            for j in whole[1]..sides[1] {
                one(i, j);
            }
        }
        for i in whole[0]..sides[0] {
            for j in 0..sides[1] {
                one(i, j);
            }
        }
    }
}
