//! Softmax and log-softmax.

use std::ops::Range;

use threadteam::Exec;

use crate::exponential::fused;
use crate::lanes::{vectorized, vectorized_wide, wide_vectors};
use crate::loops::{distribute, Base, Loops};
use crate::strip::{blocks, blocks_of, Fold, Largest, Strip, LANES, PIECE};
use crate::{Layout, Real, View, ViewMut};

/// Nanoseconds per element and byte of it: three passes and an exponential, measured on one AVX2 core.
const BYTE: f64 = 0.15;
/// Nanoseconds around one row.
const ROW: f64 = 20.0;
/// A row of twice this many elements or more is cut into parts of this many, whatever the width.
const PART: usize = 1 << 15;
/// Exponentials at a time: one AVX2 vector of `f32`. More at a time are slower (0.31 ns each, 0.38 for 32): the compiler
/// then computes every step for all of them before the next, and runs out of registers.
pub(crate) const POWERS: usize = 8;
/// The same in long rows of `f32` with AVX-512: 0.31 ns an element in all instead of 0.38, where 32 at a time take 0.32.
pub(crate) const WIDE_POWERS: usize = 16;
/// The elements from which a row is long: one block of [`WIDE_POWERS`] after the other overlap, few do not.
const LONG: usize = 64;

/// Softmax of `x` along `axis`, or its logarithm, into `y` of the same shape.
///
/// A row that holds NaN or positive infinity, or nothing but negative infinity, becomes NaN.
///
/// # Panics
///
/// When the shapes differ or have no such axis.
pub fn softmax<T: Real>(exec: Exec<'_>, x: &View<T>, axis: usize, log: bool, y: &mut ViewMut<T>) {
    if fused() {
        along::<T, true>(exec, x, axis, log, y);
    } else {
        along::<T, false>(exec, x, axis, log, y);
    }
}

fn along<T: Real, const FUSED: bool>(exec: Exec<'_>, x: &View<T>, axis: usize, log: bool, y: &mut ViewMut<T>) {
    assert_eq!(x.layout().dims(), y.layout().dims(), "softmax keeps the shape");
    if x.layout().is_empty() {
        return;
    }
    let len = x.layout().dims()[axis];
    let steps = [y.layout().strides()[axis], x.layout().strides()[axis]];
    let rows = Loops::new([&without(y.layout(), axis), &without(x.layout(), axis)]);
    let (x, y) = (Base::of(x), Base::of_mut(y));
    let nanos = len as f64 * size_of::<T>() as f64 * BYTE + ROW;
    if len >= 2 * PART {
        let mut exec = exec;
        return rows.walk(0..rows.len(), |offsets, run| {
            for i in 0..run as isize {
                let [y_step, x_step] = rows.strides(0);
                let x = Strip { at: x.at(offsets[1] + i * x_step), step: steps[1] };
                let y = Strip { at: y.at(offsets[0] + i * y_step), step: steps[0] };
                if steps == [1, 1] {
                    long_row::<T, FUSED, true>(exec.reborrow(), x, y, len, log, nanos);
                } else {
                    long_row::<T, FUSED, false>(exec.reborrow(), x, y, len, log, nanos);
                }
            }
        });
    }
    // Rows that are neighbours in memory while their elements are not: a block of them at a time, a row a lane.
    // The shape decides, not what a range holds: rows add up in another order.
    let across = rows.strides(0) == [1, 1] && steps != [1, 1] && rows.dims()[0] >= LANES / 2;
    distribute(exec, rows.len(), if across { LANES } else { 1 }, nanos, &|places| {
        rows.walk(places, |offsets, run| {
            let mut done = 0;
            if across {
                while done < run {
                    let count = LANES.min(run - done);
                    let place = |base: Base<T>, i: usize| base.at(offsets[i] + done as isize);
                    vectorized(
                        #[inline(always)]
                        // SAFETY: `count` rows of `len` elements of both views, this range's alone.
                        || unsafe {
                            if count == LANES {
                                columns::<T, FUSED>(place(x, 1), place(y, 0), steps, LANES, len, log);
                            } else {
                                columns::<T, FUSED>(place(x, 1), place(y, 0), steps, count, len, log);
                            }
                        },
                    );
                    done += count;
                }
            }
            let [y_step, x_step] = rows.strides(0);
            let place = |i: usize| {
                let i = i as isize;
                (x.at(offsets[1] + i * x_step), y.at(offsets[0] + i * y_step))
            };
            // The constant steps let neighbours be read and written as vectors.
            if steps != [1, 1] {
                vectorized(
                    #[inline(always)]
                    // SAFETY: rows of both views, this range's alone.
                    || unsafe { in_turn::<T, FUSED, POWERS>(done..run, place, steps, len, log) },
                );
            } else if takes_wide::<T>(len) {
                vectorized_wide(
                    #[inline(always)]
                    // SAFETY: rows of both views, this range's alone.
                    || unsafe { in_turn::<T, FUSED, WIDE_POWERS>(done..run, place, [1, 1], len, log) },
                );
            } else {
                vectorized(
                    #[inline(always)]
                    // SAFETY: rows of both views, this range's alone.
                    || unsafe { in_turn::<T, FUSED, POWERS>(done..run, place, [1, 1], len, log) },
                );
            }
        });
    });
}

/// Whether rows of `len` elements are taken [`WIDE_POWERS`] at a time: by their length alone, since they add up in another
/// order.
#[inline]
pub(crate) fn takes_wide<T>(len: usize) -> bool {
    size_of::<T>() == 4 && len >= LONG && wide_vectors()
}

/// `layout` without one axis.
pub(crate) fn without(layout: &Layout, axis: usize) -> Layout {
    let mut kept = [(1, 0); crate::MAX_RANK];
    let mut rank = 0;
    for (at, (&dim, &stride)) in layout.dims().iter().zip(layout.strides()).enumerate() {
        if at != axis {
            kept[rank] = (dim, stride);
            rank += 1;
        }
    }
    let (dims, strides) = (kept.map(|axis| axis.0), kept.map(|axis| axis.1));
    Layout::new(&dims[..rank], &strides[..rank]).expect("no more axes than before")
}

/// Rows one after the other; `place` tells where the elements of one begin.
///
/// # Safety
///
/// From both addresses, `len` steps reach elements, the same or disjoint ones.
#[inline(always)]
unsafe fn in_turn<T: Real, const FUSED: bool, const POWERS: usize>(
    rows: Range<usize>,
    place: impl Fn(usize) -> (*mut T, *mut T),
    steps: [isize; 2],
    len: usize,
    log: bool,
) {
    for i in rows {
        let (x, y) = place(i);
        // SAFETY: the caller's promise.
        unsafe { row::<T, FUSED, POWERS>(Strip { at: x, step: steps[1] }, Strip { at: y, step: steps[0] }, len, log) };
    }
}

/// # Safety
///
/// Both runs have `len` elements, the same or disjoint ones.
#[inline(always)]
unsafe fn row<T: Real, const FUSED: bool, const POWERS: usize>(x: Strip<T>, y: Strip<T>, len: usize, log: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if len <= LANES {
            return y.store(0, len, &block::<T, FUSED>(x.load(0, len, -T::INFINITY), log));
        }
        let max = peak(x, 0..len);
        if log {
            let sum = exponentials::<T, FUSED, false, POWERS>(x, y, 0..len, max);
            shift(x, y, 0..len, max, T::from_f64(sum.ln()));
        } else {
            let sum = exponentials::<T, FUSED, true, POWERS>(x, y, 0..len, max);
            scale(y, 0..len, T::from_f64(1.0 / sum));
        }
    }
}

/// The row in one block, filled up with negative infinity.
#[inline(always)]
fn block<T: Real, const FUSED: bool>(x: [T; LANES], log: bool) -> [T; LANES] {
    let max = top(x);
    let mut powers = x;
    for power in &mut powers {
        *power = (*power - max).exp_down::<FUSED>();
    }
    let sum = crate::strip::Add.collapse(powers);
    if log {
        let log_sum = T::from_f64(sum.ln());
        for (power, value) in powers.iter_mut().zip(x) {
            *power = (value - max) - log_sum;
        }
    } else {
        let factor = T::from_f64(1.0 / sum);
        for power in &mut powers {
            *power *= factor;
        }
    }
    powers
}

/// The largest number of a block; NaN counts as nothing.
#[inline(always)]
fn top<T: Real>(mut tops: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            tops[lane] = if tops[lane + half] > tops[lane] { tops[lane + half] } else { tops[lane] };
        }
        half /= 2;
    }
    tops[0]
}

/// The largest number in a range of a run; NaN counts as nothing, it shows in the exponentials.
///
/// # Safety
///
/// The run has the range.
#[inline(always)]
pub(crate) unsafe fn peak<T: Real>(x: Strip<T>, range: Range<usize>) -> T {
    let mut tops = [-T::INFINITY; LANES];
    blocks(
        range,
        #[inline(always)]
        |at, count| {
            // SAFETY: the caller's promise.
            let block = unsafe { x.load(at, count, -T::INFINITY) };
            for (top, value) in tops.iter_mut().zip(block) {
                *top = if value > *top { value } else { *top };
            }
        },
    );
    top(tops)
}

/// Writes `exp(x - max)` when `STORE`, `POWERS` at a time, and returns the sum.
///
/// # Safety
///
/// Both runs have the range.
#[inline(always)]
pub(crate) unsafe fn exponentials<T: Real, const FUSED: bool, const STORE: bool, const POWERS: usize>(
    x: Strip<T>,
    y: Strip<T>,
    range: Range<usize>,
    max: T,
) -> f64 {
    let mut total = 0.0;
    for from in range.clone().step_by(PIECE) {
        let mut sums = [T::ZERO; POWERS];
        blocks_of::<POWERS>(
            from..range.end.min(from + PIECE),
            #[inline(always)]
            // SAFETY: the caller's promise. The lanes after the last element add nothing.
            |at, count| unsafe {
                let mut block: [T; POWERS] = x.read(at, count, -T::INFINITY);
                for value in &mut block {
                    *value = (*value - max).exp_down::<FUSED>();
                }
                for (sum, &value) in sums.iter_mut().zip(&block) {
                    *sum += value;
                }
                if STORE {
                    y.store(at, count, &block);
                }
            },
        );
        total += sums.iter().fold(0.0, |total, sum| total + sum.to_f64());
    }
    total
}

/// # Safety
///
/// The run has the range.
#[inline(always)]
unsafe fn scale<T: Real>(y: Strip<T>, range: Range<usize>, factor: T) {
    blocks(
        range,
        #[inline(always)]
        // SAFETY: the caller's promise.
        |at, count| unsafe {
            let mut block = y.load(at, count, T::ZERO);
            for value in &mut block {
                *value *= factor;
            }
            y.store(at, count, &block);
        },
    );
}

/// Writes `x - max - log_sum`.
///
/// # Safety
///
/// Both runs have the range.
#[inline(always)]
unsafe fn shift<T: Real>(x: Strip<T>, y: Strip<T>, range: Range<usize>, max: T, log_sum: T) {
    blocks(
        range,
        #[inline(always)]
        // SAFETY: the caller's promise.
        |at, count| unsafe {
            let mut block = x.load(at, count, T::ZERO);
            for value in &mut block {
                *value = (*value - max) - log_sum;
            }
            y.store(at, count, &block);
        },
    );
}

/// `count` rows side by side, a row a lane.
///
/// # Safety
///
/// From both addresses, `len` steps reach `count` neighbours each; the outputs are the caller's to write.
#[inline(always)]
unsafe fn columns<T: Real, const FUSED: bool>(
    x: *mut T,
    y: *mut T,
    steps: [isize; 2],
    count: usize,
    len: usize,
    log: bool,
) {
    let mut tops = [-T::INFINITY; LANES];
    for i in 0..len {
        // SAFETY: the caller's promise.
        for (top, value) in tops.iter_mut().zip(unsafe { side(x, steps[1], i).load(0, count, T::ZERO) }) {
            *top = if value > *top { value } else { *top };
        }
    }
    let mut sums = [T::ZERO; LANES];
    for i in 0..len {
        // SAFETY: the caller's promise.
        let mut block = unsafe { side(x, steps[1], i).load(0, count, T::ZERO) };
        for lane in 0..LANES {
            block[lane] = (block[lane] - tops[lane]).exp_down::<FUSED>();
            sums[lane] += block[lane];
        }
        if !log {
            // SAFETY: the caller's promise.
            unsafe { side(y, steps[0], i).store(0, count, &block) };
        }
    }
    if log {
        let logs = sums.map(|sum| T::from_f64(sum.to_f64().ln()));
        for i in 0..len {
            // SAFETY: the caller's promise.
            let mut block = unsafe { side(x, steps[1], i).load(0, count, T::ZERO) };
            for lane in 0..LANES {
                block[lane] = (block[lane] - tops[lane]) - logs[lane];
            }
            // SAFETY: the caller's promise.
            unsafe { side(y, steps[0], i).store(0, count, &block) };
        }
        return;
    }
    let factors = sums.map(|sum| T::ONE / sum);
    for i in 0..len {
        // SAFETY: the caller's promise.
        let mut block = unsafe { side(y, steps[0], i).load(0, count, T::ZERO) };
        for (value, &factor) in block.iter_mut().zip(&factors) {
            *value *= factor;
        }
        // SAFETY: the caller's promise.
        unsafe { side(y, steps[0], i).store(0, count, &block) };
    }
}

/// The neighbours that are `i` steps on.
#[inline(always)]
fn side<T>(at: *mut T, step: isize, i: usize) -> Strip<T> {
    Strip { at: at.wrapping_offset(i as isize * step), step: 1 }
}

/// A row of many elements, its parts distributed; their results are combined in order.
fn long_row<T: Real, const FUSED: bool, const DENSE: bool>(
    mut exec: Exec<'_>,
    x: Strip<T>,
    y: Strip<T>,
    len: usize,
    log: bool,
    nanos: f64,
) {
    let parts = len.div_ceil(PART);
    let range = |part: usize| part * PART..len.min((part + 1) * PART);
    let mut results = vec![0.0; parts];
    let table = Base::of_mut(&mut ViewMut::from_slice(&mut results, &[parts]).expect("the table's own length"));
    let (x, y) = (Shared::<T, DENSE>(x), Shared::<T, DENSE>(y));
    let nanos = nanos / parts as f64 / 3.0;
    let note = |part: usize, result: f64| {
        // SAFETY: each part has its place in the table.
        unsafe { *table.at(part as isize) = result };
    };
    let noted = || {
        // SAFETY: places of the table, written in the section before.
        (0..parts).map(|part| unsafe { *table.at(part as isize) })
    };
    // A part that is NaN throughout counts as negative infinity here; it shows in the sum.
    each(
        exec.reborrow(),
        parts,
        nanos,
        #[inline(always)]
        |part| {
            // SAFETY: a range of the row.
            note(part, unsafe { peak(x.strip(), range(part)) }.to_f64());
        },
    );
    let max = T::from_f64(noted().fold(f64::NEG_INFINITY, |a, b| Fold::<T>::join(Largest, a, b)));
    each(
        exec.reborrow(),
        parts,
        nanos,
        #[inline(always)]
        |part| {
            let range = range(part);
            // SAFETY: a range of the row, this part's alone.
            let sum = unsafe {
                if log {
                    exponentials::<T, FUSED, false, POWERS>(x.strip(), y.strip(), range, max)
                } else {
                    exponentials::<T, FUSED, true, POWERS>(x.strip(), y.strip(), range, max)
                }
            };
            note(part, sum);
        },
    );
    let sum: f64 = noted().sum();
    each(
        exec.reborrow(),
        parts,
        nanos,
        #[inline(always)]
        |part| {
            // SAFETY: a range of the row, this part's alone.
            unsafe {
                if log {
                    shift(x.strip(), y.strip(), range(part), max, T::from_f64(sum.ln()));
                } else {
                    scale(y.strip(), range(part), T::from_f64(1.0 / sum));
                }
            }
        },
    );
}

/// Runs `body` for each part, with vectors.
fn each(exec: Exec<'_>, parts: usize, nanos: f64, body: impl Fn(usize) + Sync) {
    distribute(exec, parts, 1, nanos, &|parts| {
        vectorized(
            #[inline(always)]
            || {
                for part in parts {
                    body(part);
                }
            },
        );
    });
}

/// A run for use by every participant.
#[derive(Clone, Copy)]
struct Shared<T, const DENSE: bool>(Strip<T>);

// SAFETY: an address; participants use disjoint ranges of what it reaches.
unsafe impl<T: Send, const DENSE: bool> Send for Shared<T, DENSE> {}
// SAFETY: as above.
unsafe impl<T: Sync, const DENSE: bool> Sync for Shared<T, DENSE> {}

impl<T: Copy, const DENSE: bool> Shared<T, DENSE> {
    #[inline(always)]
    fn strip(&self) -> Strip<T> {
        // The constant step lets neighbours be read and written as vectors.
        Strip { at: self.0.at, step: if DENSE { 1 } else { self.0.step } }
    }
}
