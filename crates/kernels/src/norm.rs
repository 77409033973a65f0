//! Layer normalisation.

use threadteam::Exec;

use crate::lanes::vectorized;
use crate::loops::{distribute, Base, Loops};
use crate::strip::{blocks, Add, AddDeviation, AddDifference, Fold, Strip};
use crate::{Layout, Real, View, ViewMut};

/// Nanoseconds per element and byte of it: four passes, measured on one AVX2 core.
const BYTE: f64 = 0.15;
/// Nanoseconds around one row.
const ROW: f64 = 60.0;

/// Normalises `x` over the axes from `axis` on: `y = (x - mean) * inv_std * scale + bias`.
///
/// `scale` and `bias` are broadcast to `x`; `mean` and `inv_std`, when wanted, have `x`'s rank and extent 1 on the
/// normalised axes. The variance is that of the elements themselves (divided by their number), taken in a second pass
/// around the mean, so that a large mean does not drown it.
///
/// # Panics
///
/// When the shapes do not fit each other.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm<T: Real>(
    exec: Exec<'_>,
    x: &View<T>,
    scale: &View<T>,
    bias: Option<&View<T>>,
    axis: usize,
    epsilon: f64,
    y: &mut ViewMut<T>,
    mean: Option<&mut ViewMut<T>>,
    inv_std: Option<&mut ViewMut<T>>,
) {
    let dims = x.layout().dims();
    assert!(axis <= dims.len(), "the first normalised axis is one of x's");
    let statistics = [mean.as_deref(), inv_std.as_deref()];
    for view in statistics.into_iter().flatten() {
        let shape = view.layout().dims();
        assert!(shape.len() == dims.len() && shape[..axis] == dims[..axis], "statistics have x's leading axes");
    }
    let still = Layout::new(dims, &[0; crate::MAX_RANK][..dims.len()]).expect("x's own rank");
    let shift = bias.map_or(&still, |bias| bias.layout());
    let tables = statistics.map(|view| view.map_or(still, |view| *view.layout()));
    let head = |layout: &Layout| Layout::new(&layout.dims()[..axis], &layout.strides()[..axis]).expect("fewer axes");
    let tail = |layout: &Layout| Layout::new(&layout.dims()[axis..], &layout.strides()[axis..]).expect("fewer axes");
    let operands = [y.layout(), x.layout(), scale.layout(), shift, &tables[0], &tables[1]];
    let rows = Loops::new(operands.map(head).each_ref());
    let row = Loops::new([operands[0], operands[1], operands[2], operands[3]].map(tail).each_ref());
    let work = Row {
        row: &row,
        len: row.len(),
        epsilon,
        x: Base::of(x),
        scale: Base::of(scale),
        bias: bias.map(Base::of),
        y: Base::of_mut(y),
        mean: mean.map(Base::of_mut),
        inv_std: inv_std.map(Base::of_mut),
    };
    let nanos = row.len() as f64 * size_of::<T>() as f64 * BYTE + ROW;
    distribute(exec, rows.len(), 1, nanos, &|places| {
        vectorized(
            #[inline(always)]
            || {
                rows.walk(
                    places,
                    #[inline(always)]
                    |offsets, run| {
                        let mut at = offsets;
                        for _ in 0..run {
                            // SAFETY: the views reach every row of the nest, and each row is one range's alone.
                            unsafe { work.normalise(at) };
                            for (at, step) in at.iter_mut().zip(rows.strides(0)) {
                                *at += step;
                            }
                        }
                    },
                );
            },
        );
    });
}

/// What the rows have in common.
struct Row<'a, T> {
    row: &'a Loops<4>,
    len: usize,
    epsilon: f64,
    x: Base<T>,
    scale: Base<T>,
    bias: Option<Base<T>>,
    y: Base<T>,
    mean: Option<Base<T>>,
    inv_std: Option<Base<T>>,
}

impl<T: Real> Row<'_, T> {
    /// Normalises the row at these offsets of y, x, scale, bias, mean and inverse deviation.
    ///
    /// # Safety
    ///
    /// The offsets are those of a row of every operand, and its outputs are the caller's to write.
    #[inline(always)]
    unsafe fn normalise(&self, offsets: [isize; 6]) {
        // SAFETY: the caller's promise.
        let sum = unsafe { self.fold(offsets, Add) };
        let centre = T::from_f64(sum / self.len as f64);
        // What the first pass and its rounding left: without it a row of nearly equal elements would show the error of
        // the mean, times the inverse deviation.
        // SAFETY: the caller's promise.
        let rest = unsafe { self.fold(offsets, AddDifference(centre)) } / self.len as f64;
        // SAFETY: the caller's promise.
        let squares = unsafe { self.fold(offsets, AddDeviation(centre)) };
        let variance = squares / self.len as f64 - rest * rest;
        let variance = if variance < 0.0 { 0.0 } else { variance };
        let inverse = T::from_f64(1.0 / (variance + self.epsilon).sqrt());
        let mean = T::from_f64(centre.to_f64() + rest);
        let centre = [centre, T::from_f64(rest)];
        let steps = self.row.strides(0);
        self.row.walk(
            0..self.len,
            #[inline(always)]
            |places, run| {
                let strip = (steps, std::array::from_fn(|i| offsets[i] + places[i]));
                let (y, x, scale) = (run_of(self.y, strip, 0), run_of(self.x, strip, 1), run_of(self.scale, strip, 2));
                let bias = self.bias.map(|bias| run_of(bias, strip, 3));
                let dense = [y, x, scale].iter().chain(&bias).all(|strip| strip.step == 1);
                // SAFETY: the caller's promise.
                unsafe {
                    match bias {
                        Some(bias) if dense => {
                            write_dense::<T, true>([y.at, x.at, scale.at, bias.at], run, centre, inverse)
                        }
                        None if dense => write_dense::<T, false>([y.at, x.at, scale.at, x.at], run, centre, inverse),
                        _ => write([y, x, scale], bias, run, centre, inverse),
                    }
                }
            },
        );
        if let Some(table) = self.mean {
            // SAFETY: the caller's promise.
            unsafe { *table.at(offsets[4]) = mean };
        }
        if let Some(inv_std) = self.inv_std {
            // SAFETY: the caller's promise.
            unsafe { *inv_std.at(offsets[5]) = inverse };
        }
    }

    /// # Safety
    ///
    /// As for [`Row::normalise`].
    #[inline(always)]
    unsafe fn fold(&self, offsets: [isize; 6], op: impl Fold<T>) -> f64 {
        let mut total = 0.0;
        self.row.walk(
            0..self.len,
            #[inline(always)]
            |places, run| {
                let x = Strip { at: self.x.at(offsets[1] + places[1]), step: self.row.strides(0)[1] };
                // SAFETY: the caller's promise.
                total += unsafe { op.run(x, run) };
            },
        );
        total
    }
}

/// Writes `(x - centre - rest) * inverse * scale + bias` for runs of y, x and scale.
///
/// # Safety
///
/// The runs have `len` elements, and those of y are the caller's to write.
#[inline(always)]
unsafe fn write<T: Real>(
    [y, x, scale]: [Strip<T>; 3],
    bias: Option<Strip<T>>,
    len: usize,
    [centre, rest]: [T; 2],
    inverse: T,
) {
    blocks(
        0..len,
        #[inline(always)]
        // SAFETY: the caller's promise.
        |at, count| unsafe {
            let mut block = x.load(at, count, T::ZERO);
            let factors = scale.load(at, count, T::ZERO);
            for (value, factor) in block.iter_mut().zip(factors) {
                *value = (*value - centre - rest) * inverse * factor;
            }
            if let Some(bias) = bias {
                for (value, shift) in block.iter_mut().zip(bias.load(at, count, T::ZERO)) {
                    *value += shift;
                }
            }
            y.store(at, count, &block);
        },
    );
}

/// As [`write`], for neighbours in memory at the addresses of y, x, scale and bias.
///
/// # Safety
///
/// As for [`write`].
#[inline(always)]
unsafe fn write_dense<T: Real, const BIAS: bool>(
    [y, x, scale, bias]: [*mut T; 4],
    len: usize,
    [centre, rest]: [T; 2],
    inverse: T,
) {
    /// Two AVX2 vectors of `f32`: with four operands they stay in registers.
    const WIDTH: usize = 16;
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at + WIDTH <= len {
            let mut block = x.add(at).cast::<[T; WIDTH]>().read();
            let factors = scale.add(at).cast::<[T; WIDTH]>().read();
            for lane in 0..WIDTH {
                block[lane] = (block[lane] - centre - rest) * inverse * factors[lane];
            }
            if BIAS {
                let shifts = bias.add(at).cast::<[T; WIDTH]>().read();
                for lane in 0..WIDTH {
                    block[lane] += shifts[lane];
                }
            }
            y.add(at).cast::<[T; WIDTH]>().write(block);
            at += WIDTH;
        }
        for i in at..len {
            let value = (*x.add(i) - centre - rest) * inverse * *scale.add(i);
            *y.add(i) = if BIAS { value + *bias.add(i) } else { value };
        }
    }
}

/// An operand's run at the given steps and offsets.
#[inline(always)]
fn run_of<T>(base: Base<T>, (steps, offsets): ([isize; 4], [isize; 4]), operand: usize) -> Strip<T> {
    Strip { at: base.at(offsets[operand]), step: steps[operand] }
}
