//! Matrix products: the grid of blocks, and which participant computes which.

use std::ops::Range;

use threadteam::Exec;

use crate::block::Product;
use crate::loops::{distribute, Base};
use crate::rates::{MULTIPLY_ADD_BYTE, SERIAL_NANOS};
use crate::stream;
use crate::tile::{Matrix, Start};
use crate::walk::offset_of;
use crate::{Layout, Real, View, ViewMut};

/// Nanoseconds per byte of `b` when it serves few rows: what a shared cache gives to one core.
const STREAM: f64 = 0.012;
/// Fewer rows than this are bound by reading `b`.
const FEW: usize = 4;
/// Nanoseconds around one matrix: packing, edges, the call.
const CALL: f64 = 40.0;
/// Columns of a block of one row: shorter parts of the rows of `b` are fetched slowly.
const RUN: usize = 256;
/// The blocks wanted of a product that is worth splitting: enough for imbalance to be repaired.
pub(crate) const BLOCKS: usize = 8;
/// Below this many multiply-adds, half as many: the blocks would be small.
const SMALL: usize = 1 << 22;
/// The multiply-adds below which a block is not split further.
const LEAST: usize = 1 << 16;

/// `y = alpha * a @ b + beta * bias`, batched over the leading axes.
///
/// `a` is `[batch.., m, k]`, `b` is `[batch.., k, n]`, `bias` and `y` are `[batch.., m, n]`; inputs are already broadcast
/// by zero strides. With `beta` zero, `bias` is not read.
///
/// # Panics
///
/// When the shapes do not fit each other.
pub fn matmul<T: Real>(
    exec: Exec<'_>,
    alpha: T,
    a: &View<T>,
    b: &View<T>,
    beta: T,
    bias: Option<&View<T>>,
    y: &mut ViewMut<T>,
) {
    let rank = y.layout().rank();
    assert!(rank >= 2 && a.layout().rank() == rank && b.layout().rank() == rank, "matrices have two axes and a batch");
    let lead = rank - 2;
    let (batch, last) = y.layout().dims().split_at(lead);
    let (m, n, k) = (last[0], last[1], a.layout().dims()[lead + 1]);
    assert!(a.layout().dims()[..lead] == *batch && b.layout().dims()[..lead] == *batch, "batches are broadcast");
    assert!(a.layout().dims()[lead] == m && b.layout().dims()[lead..] == [k, n], "extents of a, b and y agree");
    let bias = bias.filter(|_| beta != T::ZERO);
    assert!(bias.is_none_or(|bias| bias.layout().dims() == y.layout().dims()), "the bias is broadcast to y");
    let matrices = batch.iter().product::<usize>();
    if matrices * m * n == 0 {
        return;
    }

    // A kernel writes runs of a row of `y`; where the runs are along columns, the transposed product is the same.
    let strides = &y.layout().strides()[lead..];
    let flip = n > 1 && strides[1] != 1 && (strides[0] == 1 || m == 1) || n == 1 && m > 1;
    let (m, n) = if flip { (n, m) } else { (m, n) };
    let (a, b) = (Operand::of(Base::of(a), a.layout(), flip), Operand::of(Base::of(b), b.layout(), flip));
    let (a, b) = if flip { (b, a) } else { (a, b) };
    let bias = bias.map(|bias| Operand::of(Base::of(bias), bias.layout(), flip));
    let layout = *y.layout();
    let mut out = Operand::of(Base::of_mut(y), &layout, flip);
    if n == 1 {
        out.col = 1;
    }
    let product = |at: usize| {
        let start = bias.as_ref().map_or(Start::Zero, |bias| Start::Bias(beta, bias.matrix(at)));
        Product { m, n, k, alpha, a: a.matrix(at), b: b.matrix(at), start, y: out.matrix(at) }
    };

    if stream::suits(&product(0)) {
        // SAFETY: the views cover the products' extents, and their outputs are written here alone.
        return unsafe { stream::rows(exec, matrices, &product) };
    }
    let flops = (m * n * k) as f64 * size_of::<T>() as f64;
    let work = flops * MULTIPLY_ADD_BYTE + if m < FEW { (k * n * size_of::<T>()) as f64 * STREAM } else { 0.0 } + CALL;
    // SAFETY, of every product: the views cover its extents, and its output is written here alone.
    let own = !product(0).suits_faer();
    if own && (exec.is_serial() || work * (matrices as f64) < SERIAL_NANOS) {
        for at in 0..matrices {
            // SAFETY: as above.
            unsafe { product(at).whole() };
        }
        return;
    }
    let grid = Grid::new(matrices, [m, n, k], 64 / size_of::<T>());
    let blocks = matrices * grid.len();
    let body = |range: Range<usize>| {
        for at in range {
            let (rows, cols) = grid.block(at % grid.len());
            // SAFETY: as above; blocks are disjoint.
            unsafe { product(at / grid.len()).block(rows, cols) };
        }
    };
    distribute(exec, blocks, 1, work / grid.len() as f64, &body);
}

/// The matrices of one operand.
#[derive(Clone, Copy, Debug)]
struct Operand<'a, T> {
    base: Base<T>,
    row: isize,
    col: isize,
    layout: &'a Layout,
}

impl<'a, T> Operand<'a, T> {
    fn of(base: Base<T>, layout: &'a Layout, flip: bool) -> Self {
        let strides = &layout.strides()[layout.rank() - 2..];
        let (row, col) = if flip { (strides[1], strides[0]) } else { (strides[0], strides[1]) };
        Operand { base, row, col, layout }
    }

    /// The matrix at a place of the batch.
    fn matrix(&self, at: usize) -> Matrix<T> {
        let offset = if at == 0 { 0 } else { offset_of(self.layout, self.layout.rank() - 2, at) };
        Matrix { at: self.base.at(offset), row: self.row, col: self.col }
    }
}

/// The blocks of one matrix: from its shape alone, so that no result depends on the width.
#[derive(Clone, Copy, Debug)]
struct Grid {
    m: usize,
    n: usize,
    rows: usize,
    cols: usize,
    across: usize,
    down: usize,
}

impl Grid {
    fn new(matrices: usize, [m, n, k]: [usize; 3], align: usize) -> Self {
        let (mut rows, mut cols) = (m, n);
        let wanted = if m * n * k < SMALL { BLOCKS / 2 } else { BLOCKS };
        // A quarter of tolerance: what rounding up to whole tiles adds is no reason to cut once more.
        let most = (m * n * k * matrices / wanted).max(LEAST) * 5 / 4;
        let narrow = if m == 1 { RUN } else { align };
        while rows * cols * k > most {
            // Columns first: each part of `b` is then packed once. Few rows in a block pack it in vain.
            if cols >= rows && cols >= 2 * narrow {
                cols = cols.div_ceil(2).next_multiple_of(align);
            } else if rows >= 12 {
                rows = rows.div_ceil(2).next_multiple_of(6);
            } else {
                break;
            }
        }
        Grid { m, n, rows, cols, across: n.div_ceil(cols), down: m.div_ceil(rows) }
    }

    fn len(&self) -> usize {
        self.across * self.down
    }

    fn block(&self, at: usize) -> (Range<usize>, Range<usize>) {
        let (row, col) = (at / self.across * self.rows, at % self.across * self.cols);
        (row..(row + self.rows).min(self.m), col..(col + self.cols).min(self.n))
    }
}
