//! Attention: two products with a softmax between them, whose matrix of weights never leaves the cache.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use threadteam::Exec;

use crate::exponential::fused;
use crate::lanes::{vectorized, vectorized_wide};
use crate::loops::{distribute, Base};
use crate::matmul::BLOCKS;
use crate::panels::{in_place_bytes, is_near, room, Line, Panels};
use crate::rates::MULTIPLY_ADD_BYTE;
use crate::softmax::{exponentials, peak, takes_wide, POWERS, WIDE_POWERS};
use crate::strip::{blocks, Strip, LANES};
use crate::tile::{Matrix, Start};
use crate::walk::offset_of;
use crate::{Real, View, ViewMut};

/// Nanoseconds per weight and byte of the element: its exponential and its way to and from the cache.
const WEIGHT: f64 = 0.1;
/// Nanoseconds around one block: packing, edges.
const BLOCK: f64 = 200.0;
/// The least rows of a block: a few groups of rows of a tile.
const LEAST_ROWS: usize = 16;
/// The same where each block packs a matrix, which as many multiply-adds an element must pay for.
const LEAST_PACKED: usize = 96;
/// Bytes of weights that are made before they are used: they and a pass of a matrix fit a 512 KiB second-level cache.
const WEIGHTS: usize = 160 << 10;
/// The most rows of weights at a time; a multiple of the rows of a tile.
const MOST_ROWS: usize = 96;
/// Scratch that a thread keeps for its next block.
const KEPT: usize = 4 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { b: Vec::new(), d: Vec::new(), weights: Vec::new() }) };
}

/// The memory of one thread; nothing else runs while it is borrowed.
struct Scratch {
    b: Vec<Line>,
    d: Vec<Line>,
    weights: Vec<Line>,
}

/// `y = softmax(alpha * a @ b + beta * bias) @ d`, the softmax over the last axis, batched over the leading axes.
///
/// `a` is `[batch.., m, k]`, `b` is `[batch.., k, n]`, `bias` is `[batch.., m, n]`, `d` is `[batch.., n, p]` and `y` is
/// `[batch.., m, p]`; inputs are already broadcast by zero strides. With `beta` zero, `bias` is not read. A row of the
/// softmax that holds NaN or positive infinity, or nothing but negative infinity, makes its row of `y` NaN.
///
/// # Panics
///
/// When the shapes do not fit each other.
#[expect(clippy::too_many_arguments, reason = "the operands and factors of one formula")]
pub fn attention<T: Real>(
    exec: Exec<'_>,
    alpha: T,
    a: &View<T>,
    b: &View<T>,
    beta: T,
    bias: Option<&View<T>>,
    d: &View<T>,
    y: &mut ViewMut<T>,
) {
    let layout = *y.layout();
    let rank = layout.rank();
    let all = [a, b, d].map(|operand| operand.layout());
    assert!(rank >= 2 && all.iter().all(|operand| operand.rank() == rank), "matrices have two axes and a batch");
    let lead = rank - 2;
    let (batch, last) = layout.dims().split_at(lead);
    let (m, p, k, n) = (last[0], last[1], all[1].dims()[lead], all[1].dims()[lead + 1]);
    assert!(all.iter().all(|operand| operand.dims()[..lead] == *batch), "batches are broadcast");
    assert!(all[0].dims()[lead..] == [m, k] && all[2].dims()[lead..] == [n, p], "extents of the products agree");
    let bias = bias.filter(|_| beta != T::ZERO);
    let fits = |bias: &View<T>| bias.layout().dims()[..lead] == *batch && bias.layout().dims()[lead..] == [m, n];
    assert!(bias.is_none_or(fits), "the bias is broadcast to the weights");
    let matrices = batch.iter().product::<usize>();
    if matrices * m * p == 0 {
        return;
    }

    let matrix = |base: Base<T>, layout: &crate::Layout, at: usize| Matrix {
        at: base.at(offset_of(layout, lead, at)),
        row: layout.strides()[lead],
        col: layout.strides()[lead + 1],
    };
    let bases = [Base::of(a), Base::of(b), Base::of(d)];
    let bias = bias.map(|bias| (Base::of(bias), *bias.layout()));
    let out = Base::of_mut(y);
    let heads = |at: usize| Head {
        k,
        n,
        p,
        alpha,
        a: matrix(bases[0], all[0], at),
        b: matrix(bases[1], all[1], at),
        start: bias.map_or(Start::Zero, |(base, layout)| Start::Bias(beta, matrix(base, &layout, at))),
        d: matrix(bases[2], all[2], at),
        y: matrix(out, &layout, at),
    };
    // From the shape alone, so that no result depends on the width.
    let near = in_place_bytes();
    let stays = |operand: Matrix<T>, depth, cols| operand.col == 1 && is_near::<T>(near, operand.row, depth, cols);
    let in_place = stays(heads(0).b, k, n) && stays(heads(0).d, n, p);
    let wanted = BLOCKS.div_ceil(matrices).min(m.div_ceil(if in_place { LEAST_ROWS } else { LEAST_PACKED }));
    let rows = m.div_ceil(wanted);
    let down = m.div_ceil(rows);
    let size = size_of::<T>() as f64;
    let nanos = (rows.min(m) * n) as f64 * ((k + p) as f64 * MULTIPLY_ADD_BYTE + WEIGHT) * size + BLOCK;
    distribute(exec, matrices * down, 1, nanos, &|blocks| {
        let (mut at, mut done) = (blocks.start, blocks.start);
        while at < blocks.end {
            // The blocks of one head in one go: its matrices are packed once.
            let head = at / down;
            done = blocks.end.min((head + 1) * down).max(done);
            let rows = (at - head * down) * rows..m.min((done - head * down) * rows);
            Arch::new().dispatch(Rows { head: heads(head), rows });
            at = done;
        }
    });
}

/// The operands of one matrix of the batch.
#[derive(Clone, Copy, Debug)]
struct Head<T> {
    k: usize,
    n: usize,
    p: usize,
    alpha: T,
    a: Matrix<T>,
    b: Matrix<T>,
    start: Start<T>,
    d: Matrix<T>,
    y: Matrix<T>,
}

/// Some rows of a head. Built by [`attention`] alone, which checked the extents and gives each row to one participant.
struct Rows<T> {
    head: Head<T>,
    rows: Range<usize>,
}

impl<T: Real> WithSimd for Rows<T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        SCRATCH.with_borrow_mut(|scratch| {
            if fused() {
                self.head.rows::<S, true>(simd, self.rows, scratch);
            } else {
                self.head.rows::<S, false>(simd, self.rows, scratch);
            }
            for part in [&mut scratch.b, &mut scratch.d, &mut scratch.weights] {
                if part.len() * 64 > KEPT {
                    *part = Vec::new();
                }
            }
        });
    }
}

impl<T: Real> Head<T> {
    #[inline(always)]
    fn rows<S: Simd, const FUSED: bool>(&self, simd: S, rows: Range<usize>, scratch: &mut Scratch) {
        // SAFETY: here and below, the extents were checked against the views, and the rows of `y` are this call's alone.
        let b = unsafe { Panels::new::<S>(&mut scratch.b, self.b, self.k, self.n, rows.len()) };
        // SAFETY: as above.
        let d = unsafe { Panels::new::<S>(&mut scratch.d, self.d, self.n, self.p, rows.len()) };
        let most = (WEIGHTS / (self.n * size_of::<T>()).max(1) / 12 * 12).clamp(12, MOST_ROWS);
        let weights = Matrix {
            at: room::<T>(&mut scratch.weights, most * self.n * size_of::<T>()),
            row: self.n as isize,
            col: 1,
        };
        let mut factors = [T::ZERO; MOST_ROWS];
        for from in rows.clone().step_by(most) {
            let count = most.min(rows.end - from);
            let start = match self.start {
                Start::Bias(beta, bias) => Start::Bias(beta, bias.from(from, 0)),
                other => other,
            };
            let y = self.y.from(from, 0);
            // SAFETY: as above.
            unsafe { b.multiply(simd, count, self.alpha, self.a.from(from, 0), start, weights) };
            if takes_wide::<T>(self.n) {
                vectorized_wide(
                    #[inline(always)]
                    // SAFETY: `count` rows of the weights.
                    || unsafe { weigh::<T, FUSED, WIDE_POWERS>(weights, self.n, &mut factors[..count]) },
                );
            } else {
                vectorized(
                    #[inline(always)]
                    // SAFETY: `count` rows of the weights.
                    || unsafe { weigh::<T, FUSED, POWERS>(weights, self.n, &mut factors[..count]) },
                );
            }
            // The weights add up to one only after the division, which is done where there is less to divide.
            // SAFETY: as above.
            unsafe { d.multiply(simd, count, T::ONE, weights, Start::Zero, y) };
            let mut again = [false; MOST_ROWS];
            vectorized(
                #[inline(always)]
                || {
                    for (row, (again, &factor)) in again.iter_mut().zip(&factors[..count]).enumerate() {
                        // A factor that is NaN has made the row what it must be; without columns it is infinite.
                        *again = !self.divide(y, row, factor) && factor.partial_cmp(&factor).is_some();
                    }
                },
            );
            // Too large before the division: these rows divide first. Others keep their bits, whatever came with them.
            let mut row = 0;
            while row < count {
                let run = again[row..count].iter().take_while(|&&again| again).count();
                for (row, &factor) in factors.iter().enumerate().take(row + run).skip(row) {
                    for col in 0..self.n {
                        // SAFETY: one of the weights.
                        unsafe { *weights.place(row, col) *= factor };
                    }
                }
                if run > 0 {
                    // SAFETY: as above.
                    unsafe { d.multiply(simd, run, T::ONE, weights.from(row, 0), Start::Zero, y.from(row, 0)) };
                }
                row += run.max(1);
            }
        }
    }

    /// Multiplies a row of `y` and tells whether all of it is finite.
    #[inline(always)]
    fn divide(&self, y: Matrix<T>, row: usize, factor: T) -> bool {
        let y = Strip { at: y.place(row, 0), step: y.col };
        if y.step == 1 {
            divide(Strip { at: y.at, step: 1 }, self.p, factor)
        } else {
            divide(y, self.p, factor)
        }
    }
}

/// Turns each row of scores into weights, and gives the factor that makes them add up to one.
///
/// # Safety
///
/// The matrix has a row for each factor, `len` neighbours long.
#[inline(always)]
unsafe fn weigh<T: Real, const FUSED: bool, const POWERS: usize>(weights: Matrix<T>, len: usize, factors: &mut [T]) {
    for (row, factor) in factors.iter_mut().enumerate() {
        let row = Strip { at: weights.place(row, 0), step: 1 };
        // SAFETY: the caller's promise.
        let sum = unsafe {
            let max = peak(row, 0..len);
            exponentials::<T, FUSED, true, POWERS>(row, row, 0..len, max)
        };
        *factor = T::from_f64(1.0 / sum);
    }
}

/// As [`Head::divide`], for a row of `len` elements that are the caller's to write.
#[inline(always)]
fn divide<T: Real>(y: Strip<T>, len: usize, factor: T) -> bool {
    let mut rests = [T::ZERO; LANES];
    blocks(
        0..len,
        #[inline(always)]
        // SAFETY: elements of the row.
        |at, count| unsafe {
            let mut block = y.load(at, count, T::ZERO);
            for (value, rest) in block.iter_mut().zip(&mut rests) {
                *value *= factor;
                // Zero for a number, NaN for infinity and NaN.
                *rest += T::ZERO * *value;
            }
            y.store(at, count, &block);
        },
    );
    rests.iter().all(|&rest| rest == T::ZERO)
}
