//! Reductions over any set of axes.

use threadteam::Exec;

use crate::walk::offset_of;
use crate::{Layout, Real, View, ViewMut};

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
pub fn reduce<T: Real>(exec: Exec<'_>, op: Reduction, x: &View<T>, axes: AxisMask, y: &mut ViewMut<T>) {
    let _ = exec;
    let layout = x.layout();
    let pick = |reduced: bool| {
        let (mut dims, mut strides) = (Vec::new(), Vec::new());
        for axis in (0..layout.rank()).filter(|axis| (axes >> axis & 1 == 1) == reduced) {
            dims.push(layout.dims()[axis]);
            strides.push(layout.strides()[axis]);
        }
        Layout::new(&dims, &strides).expect("no more axes than before")
    };
    let (kept, gone) = (pick(false), pick(true));
    for at in 0..kept.len() {
        let base = offset_of(&kept, kept.rank(), at);
        // SAFETY: `base` plus an offset of the reduced axes is an index of `x`; `at` is an index of `y`.
        unsafe {
            let values =
                || (0..gone.len()).map(|i| (*x.as_ptr().offset(base + offset_of(&gone, gone.rank(), i))).to_f64());
            let value = match op {
                Reduction::Sum => values().sum::<f64>(),
                Reduction::Mean => values().sum::<f64>() / gone.len() as f64,
                Reduction::Max => values().fold(f64::NEG_INFINITY, |m, v| if v.is_nan() || v > m { v } else { m }),
                Reduction::Min => values().fold(f64::INFINITY, |m, v| if v.is_nan() || v < m { v } else { m }),
                Reduction::Prod => values().product::<f64>(),
                Reduction::SumSquare => values().map(|v| v * v).sum::<f64>(),
                Reduction::L1 => values().map(f64::abs).sum::<f64>(),
                Reduction::L2 => values().map(|v| v * v).sum::<f64>().sqrt(),
                Reduction::LogSum => values().sum::<f64>().ln(),
                Reduction::LogSumExp => {
                    let max = values().fold(f64::NEG_INFINITY, f64::max);
                    let max = if max.is_finite() { max } else { 0.0 };
                    values().map(|v| (v - max).exp()).sum::<f64>().ln() + max
                }
            };
            *y.as_mut_ptr().offset(offset_of(y.layout(), y.layout().rank(), at)) = T::from_f64(value);
        }
    }
}
