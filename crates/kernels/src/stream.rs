//! One row times a large matrix: bound by reading the matrix, so each participant reads whole rows of its own.
//!
//! The depth is cut into parts by the shape alone, and the parts' sums are added in order, so the result does not depend
//! on the width. Cut by columns instead, every row would be a short run on another page: 1x1024x1024 in f32 took 170 to
//! 190 us in four blocks of columns, and 92 us along whole rows.

use threadteam::Exec;

use crate::block::Product;
use crate::exponential::fused;
use crate::lanes::vectorized;
use crate::loops::{distribute, Base};
use crate::strip::LANES;
use crate::tile::Start;
use crate::{Real, ViewMut};

/// Bytes of `b` in a part: a few dispatches' worth of reading.
const PART: usize = 256 << 10;
/// The most parts of one product: their sums have to be added up again.
const PARTS: usize = 8;
/// Rows of `b` that one pass over the sums adds.
const ROWS: usize = 8;
/// Nanoseconds per byte of `b`, as one core reads it from a shared cache.
const BYTE: f64 = 0.02;

/// Whether `product` is one row times a matrix of rows that are runs in memory, too large for the first-level cache.
pub(crate) fn suits<T: Real>(product: &Product<T>) -> bool {
    product.m == 1 && product.b.col == 1 && product.k * product.n * size_of::<T>() > PART / 2
}

/// Writes `y` of `matrices` products of one shape, each of which [`suits`].
///
/// # Safety
///
/// The operands' elements are valid, and nothing else touches the outputs.
pub(crate) unsafe fn rows<T: Real>(exec: Exec<'_>, matrices: usize, product: &(dyn Fn(usize) -> Product<T> + Sync)) {
    let Product { n, k, .. } = product(0);
    let parts = (k * n * size_of::<T>()).div_ceil(PART).min(PARTS).min(k);
    let mut sums = vec![T::ZERO; matrices * parts * n];
    let table =
        Base::of_mut(&mut ViewMut::from_slice(&mut sums, &[matrices * parts * n]).expect("the table's own length"));
    let nanos = (k * n * size_of::<T>()) as f64 * BYTE / parts as f64;
    distribute(exec, matrices * parts, 1, nanos, &move |places| {
        for at in places {
            let (product, part) = (product(at / parts), at % parts);
            let depth = part * k / parts..(part + 1) * k / parts;
            // SAFETY: the table has `n` sums for each place, and this place is this participant's alone.
            let sums = unsafe { std::slice::from_raw_parts_mut(table.at((at * n) as isize), n) };
            // SAFETY: the caller's promise.
            unsafe {
                if fused() {
                    accumulate::<T, true>(&product, depth, sums);
                } else {
                    accumulate::<T, false>(&product, depth, sums);
                }
            }
        }
    });
    for (at, sums) in sums.chunks_exact_mut(parts * n).enumerate() {
        let product = product(at);
        let (total, others) = sums.split_at_mut(n);
        for part in others.chunks_exact(n) {
            total.iter_mut().zip(part).for_each(|(total, &sum)| *total += sum);
        }
        for (col, &total) in total.iter().enumerate() {
            let (sum, place) = (total * product.alpha, product.y.place(0, col));
            // SAFETY: the caller's promise.
            unsafe {
                *place = match product.start {
                    Start::Zero => sum,
                    Start::Output => *place + sum,
                    Start::Bias(beta, bias) => beta * *bias.place(0, col) + sum,
                };
            }
        }
    }
}

/// Adds `a[depth] @ b[depth]` to `sums`.
///
/// # Safety
///
/// The operands' elements are valid.
unsafe fn accumulate<T: Real, const FUSED: bool>(product: &Product<T>, depth: std::ops::Range<usize>, sums: &mut [T]) {
    let (mut row, stop) = (depth.start, depth.end);
    while row < stop {
        let count = ROWS.min(stop - row);
        let mut factors = [T::ZERO; ROWS];
        for (step, factor) in factors[..count].iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *factor = unsafe { *product.a.place(0, row + step) };
        }
        let b = product.b.from(row, 0);
        vectorized(
            #[inline(always)]
            || {
                let whole = sums.len() - sums.len() % LANES;
                let (blocks, rest) = sums.split_at_mut(whole);
                for (at, block) in blocks.chunks_exact_mut(LANES).enumerate() {
                    // A copy in registers: as far as the compiler knows, the sums may lie in `b`.
                    let mut kept = [T::ZERO; LANES];
                    kept.copy_from_slice(block);
                    let add = |kept: &mut [T; LANES], step: usize, factor: T| {
                        let place = b.at.wrapping_offset(step as isize * b.row + (at * LANES) as isize);
                        // SAFETY: the caller's promise; a row's elements are neighbours.
                        let values = unsafe { place.cast::<[T; LANES]>().read() };
                        for (sum, value) in kept.iter_mut().zip(values) {
                            *sum = if FUSED { factor.fuse(value, *sum) } else { factor * value + *sum };
                        }
                    };
                    if count == ROWS {
                        (0..ROWS).for_each(|step| add(&mut kept, step, factors[step]));
                    } else {
                        (0..count).for_each(|step| add(&mut kept, step, factors[step]));
                    }
                    block.copy_from_slice(&kept);
                }
                for (col, sum) in rest.iter_mut().enumerate() {
                    for (step, &factor) in factors[..count].iter().enumerate() {
                        // SAFETY: the caller's promise.
                        let value = unsafe { *b.place(step, whole + col) };
                        *sum = if FUSED { factor.fuse(value, *sum) } else { factor * value + *sum };
                    }
                }
            },
        );
        row += count;
    }
}
