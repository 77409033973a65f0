//! Reductions over any set of axes.

use std::ops::Range;

use threadteam::Exec;

use crate::exponential::fused;
use crate::lanes::vectorized;
use crate::loops::{distribute, Base, Loops};
use crate::strip::{Add, AddExp, AddMagnitude, AddSquare, Fold, Largest, Smallest, Strip, Times, LANES};
use crate::{Layout, Real, View, ViewMut, MAX_RANK};

/// Nanoseconds per element and byte of it, one pass; measured 0.03 from the first cache, 0.06 from memory.
const BYTE: f64 = 0.04;
/// The same where an exponential is taken of each.
const EXP_BYTE: f64 = 0.15;
/// Nanoseconds around one result.
const RESULT: f64 = 15.0;
/// Elements of a part of one long reduction: what is folded before parts are combined in order, whatever the width.
const PART: usize = 1 << 14;
/// Rows that a column's sum takes in the element type before it is carried on in `f64`.
const PIECE: usize = 64;

/// A set of axes: bit `i` stands for axis `i`.
pub type AxisMask = u8;

/// What a reduction computes, as the ONNX operators of the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; zero when empty.
    Sum,
    /// The arithmetic mean; NaN when empty.
    Mean,
    /// The largest element, NaN if any is; negative infinity when empty.
    Max,
    /// The smallest element, NaN if any is; infinity when empty.
    Min,
    /// The product; one when empty.
    Prod,
    /// The sum of squares.
    SumSquare,
    /// The sum of magnitudes.
    L1,
    /// The square root of the sum of squares.
    L2,
    /// The logarithm of the sum.
    LogSum,
    /// The logarithm of the sum of exponentials, without overflow.
    LogSumExp,
}

/// Reduces `x` over `axes` into `y`, of the same rank with extent 1 on the reduced axes.
///
/// # Panics
///
/// When the shapes do not fit each other.
pub fn reduce<T: Real>(exec: Exec<'_>, op: Reduction, x: &View<T>, axes: AxisMask, y: &mut ViewMut<T>) {
    let nest = Nest::new(x, axes, y);
    let count = nest.inner.len() as f64;
    match op {
        Reduction::Sum => nest.run(exec, Add, BYTE, |sum| sum),
        Reduction::Mean => nest.run(exec, Add, BYTE, |sum| sum / count),
        Reduction::Max => nest.run(exec, Largest, BYTE, |max| max),
        Reduction::Min => nest.run(exec, Smallest, BYTE, |min| min),
        Reduction::Prod => nest.run(exec, Times, BYTE, |product| product),
        Reduction::SumSquare => nest.run(exec, AddSquare, BYTE, |sum| sum),
        Reduction::L1 => nest.run(exec, AddMagnitude, BYTE, |sum| sum),
        Reduction::L2 => nest.run(exec, AddSquare, BYTE, f64::sqrt),
        Reduction::LogSum => nest.run(exec, Add, BYTE, f64::ln),
        Reduction::LogSumExp if fused() => nest.log_sum_exp::<true>(exec),
        Reduction::LogSumExp => nest.log_sum_exp::<false>(exec),
    }
}

/// The loops of a reduction: over results, and over what each of them is made of.
struct Nest<T> {
    /// Operands y and x.
    outer: Loops<2>,
    inner: Loops<1>,
    x: Base<T>,
    y: Base<T>,
}

impl<T: Real> Nest<T> {
    fn new(x: &View<T>, axes: AxisMask, y: &mut ViewMut<T>) -> Self {
        let rank = x.layout().rank();
        assert_eq!(y.layout().rank(), rank, "a reduction keeps the rank");
        let pick = |layout: &Layout, reduced: bool| {
            let (mut dims, mut strides, mut count) = ([1; MAX_RANK], [0; MAX_RANK], 0);
            for axis in (0..rank).filter(|axis| (axes >> axis & 1 == 1) == reduced) {
                (dims[count], strides[count]) = (layout.dims()[axis], layout.strides()[axis]);
                count += 1;
            }
            Layout::new(&dims[..count], &strides[..count]).expect("no more axes than before")
        };
        assert!(pick(y.layout(), true).len() == 1, "reduced axes of the result have extent 1");
        let outer = Loops::new([&pick(y.layout(), false), &pick(x.layout(), false)]);
        Nest { outer, inner: Loops::new([&pick(x.layout(), true)]), x: Base::of(x), y: Base::of_mut(y) }
    }

    /// Folds the elements of each result, and writes `finish` of it.
    fn run(&self, exec: Exec<'_>, op: impl Fold<T> + Send + Sync, byte: f64, finish: impl Fn(f64) -> f64 + Sync) {
        let len = self.inner.len();
        let nanos = len as f64 * size_of::<T>() as f64 * byte + RESULT;
        let steps = self.outer.strides(0);
        // Results that are neighbours in `x` while their elements are not: a block of them at a time, one a lane.
        let across = steps[1] == 1 && self.inner.strides(0) != [1] && self.outer.dims()[0] >= LANES / 2;
        if len >= 2 * PART && !across {
            return self.parts(exec, op, nanos, finish);
        }
        distribute(exec, self.outer.len(), if across { LANES } else { 1 }, nanos, &|places| {
            self.outer.walk(places, |offsets, run| {
                let y = Strip { at: self.y.at(offsets[0]), step: steps[0] };
                let mut done = 0;
                while across && done < run {
                    let count = LANES.min(run - done);
                    let mut sums = [0.0; LANES];
                    vectorized(
                        #[inline(always)]
                        // SAFETY: `count` neighbours of `x` at every place of the inner nest.
                        || sums = unsafe { self.columns(op, offsets[1] + done as isize, count) },
                    );
                    for (lane, &sum) in sums[..count].iter().enumerate() {
                        // SAFETY: a result of this range.
                        unsafe { y.set(done + lane, T::from_f64(finish(sum))) };
                    }
                    done += count;
                }
                vectorized(
                    #[inline(always)]
                    || {
                        for i in done..run {
                            // SAFETY: a result of this range and its elements.
                            unsafe {
                                let sum = self.fold(op, offsets[1] + i as isize * steps[1], 0..len);
                                y.set(i, T::from_f64(finish(sum)));
                            }
                        }
                    },
                );
            });
        });
    }

    /// Few results of many elements: parts of each are folded on their own, then combined in order.
    fn parts(&self, exec: Exec<'_>, op: impl Fold<T> + Send + Sync, nanos: f64, finish: impl Fn(f64) -> f64 + Sync) {
        let len = self.inner.len();
        let parts = len.div_ceil(PART);
        let mut results = vec![0.0; self.outer.len() * parts];
        let size = [results.len()];
        let table = Base::of_mut(&mut ViewMut::from_slice(&mut results, &size).expect("the table's own length"));
        distribute(exec, size[0], 1, nanos / parts as f64, &|range| {
            for at in range {
                let (result, part) = (at / parts, at % parts);
                self.outer.walk(result..result + 1, |offsets, _| {
                    vectorized(
                        #[inline(always)]
                        || {
                            let range = part * PART..len.min((part + 1) * PART);
                            // SAFETY: elements of the result; its place in the table is this range's alone.
                            unsafe { *table.at(at as isize) = self.fold(op, offsets[1], range) };
                        },
                    );
                });
            }
        });
        for result in 0..self.outer.len() {
            let sums = &results[result * parts..(result + 1) * parts];
            let sum = sums.iter().copied().reduce(|a, b| op.join(a, b)).expect("a part at least");
            // SAFETY: one of the results.
            self.outer.walk(result..result + 1, |offsets, _| unsafe {
                *self.y.at(offsets[0]) = T::from_f64(finish(sum));
            });
        }
    }

    /// The fold of a range of one result's elements.
    ///
    /// # Safety
    ///
    /// `offset` is that of a result's first element.
    #[inline(always)]
    unsafe fn fold(&self, op: impl Fold<T>, offset: isize, range: Range<usize>) -> f64 {
        let mut total: Option<f64> = None;
        let step = self.inner.strides(0)[0];
        self.inner.walk(
            range,
            #[inline(always)]
            |places, run| {
                // SAFETY: the caller's promise.
                let part = unsafe { op.run(Strip { at: self.x.at(offset + places[0]), step }, run) };
                total = Some(total.map_or(part, |total| op.join(total, part)));
            },
        );
        total.unwrap_or_else(|| empty(op))
    }

    /// The folds of `count` results whose elements are neighbours.
    ///
    /// # Safety
    ///
    /// `offset` is that of the first one's first element.
    #[inline(always)]
    unsafe fn columns<F: Fold<T>>(&self, op: F, offset: isize, count: usize) -> [f64; LANES] {
        let mut totals = [F::EMPTY; LANES];
        let mut sums = [T::from_f64(F::EMPTY); LANES];
        let mut taken = 0;
        let step = self.inner.strides(0)[0];
        self.inner.walk(
            0..self.inner.len(),
            #[inline(always)]
            |places, run| {
                for i in 0..run as isize {
                    let x = Strip { at: self.x.at(offset + places[0] + i * step), step: 1 };
                    // SAFETY: the caller's promise.
                    let block = unsafe { x.load(0, count, T::ZERO) };
                    for (sum, value) in sums.iter_mut().zip(block) {
                        *sum = op.take(*sum, value);
                    }
                    taken += 1;
                    if taken == PIECE {
                        taken = 0;
                        for (total, sum) in totals.iter_mut().zip(&mut sums) {
                            *total = op.join(*total, sum.to_f64());
                            *sum = T::from_f64(F::EMPTY);
                        }
                    }
                }
            },
        );
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = op.join(*total, sum.to_f64());
        }
        totals
    }

    /// `max + ln(sum(exp(x - max)))`: the largest goes into `y`, then the sum is taken around it.
    fn log_sum_exp<const FUSED: bool>(&self, mut exec: Exec<'_>) {
        self.run(exec.reborrow(), Largest, BYTE, |max| max);
        let len = self.inner.len();
        let parts = len.div_ceil(PART).max(1);
        let mut results = vec![0.0; self.outer.len() * parts];
        let size = [results.len()];
        let table = Base::of_mut(&mut ViewMut::from_slice(&mut results, &size).expect("the table's own length"));
        let nanos = len as f64 * size_of::<T>() as f64 * EXP_BYTE / parts as f64 + RESULT;
        distribute(exec, size[0], 1, nanos, &|range| {
            for at in range {
                let (result, part) = (at / parts, at % parts);
                self.outer.walk(result..result + 1, |offsets, _| {
                    vectorized(
                        #[inline(always)]
                        // SAFETY: a result, written before, and its elements; its place in the table is this range's.
                        || unsafe {
                            let shift = finite(*self.y.at(offsets[0]));
                            let range = part * PART..len.min((part + 1) * PART);
                            *table.at(at as isize) = self.fold(AddExp::<T, FUSED>(shift), offsets[1], range);
                        },
                    );
                });
            }
        });
        for result in 0..self.outer.len() {
            let sum: f64 = results[result * parts..(result + 1) * parts].iter().sum();
            // SAFETY: one of the results, written before.
            self.outer.walk(result..result + 1, |offsets, _| unsafe {
                let y = self.y.at(offsets[0]);
                // An infinite or missing largest element is the result; around it the sum says nothing.
                *y = if finite(*y) == *y { T::from_f64(sum.ln() + (*y).to_f64()) } else { *y };
            });
        }
    }
}

/// The fold of nothing.
fn empty<T: Real, F: Fold<T>>(_op: F) -> f64 {
    F::EMPTY
}

/// The value itself, or zero for infinities and NaN.
#[inline(always)]
fn finite<T: Real>(value: T) -> T {
    if value.to_f64().is_finite() {
        value
    } else {
        T::ZERO
    }
}
