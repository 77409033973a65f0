//! Layer normalisation.

use threadteam::Exec;

use crate::walk::offset_of;
use crate::{Layout, Real, View, ViewMut};

/// Normalises `x` over the axes from `axis` on: `y = (x - mean) * inv_std * scale + bias`.
///
/// `scale` and `bias` are broadcast to `x`; `mean` and `inv_std`, when wanted, have `x`'s rank and extent 1 on the
/// normalised axes.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm<T: Real>(
    exec: Exec<'_>,
    x: &View<T>,
    scale: &View<T>,
    bias: Option<&View<T>>,
    axis: usize,
    epsilon: f64,
    y: &mut ViewMut<T>,
    mut mean: Option<&mut ViewMut<T>>,
    mut inv_std: Option<&mut ViewMut<T>>,
) {
    let _ = exec;
    let dims = x.layout().dims();
    let rows = dims[..axis].iter().product::<usize>();
    let len = dims[axis..].iter().product::<usize>();
    let at = |layout: &Layout, row: usize, i: usize| offset_of(layout, layout.rank(), row * len + i);
    for row in 0..rows {
        // SAFETY: `row * len + i` is below the number of elements, so every place is inside its view.
        unsafe {
            let get = |i: usize| (*x.as_ptr().offset(at(x.layout(), row, i))).to_f64();
            let centre = (0..len).map(get).sum::<f64>() / len as f64;
            let variance = (0..len).map(|i| (get(i) - centre).powi(2)).sum::<f64>() / len as f64;
            let inverse = 1.0 / (variance + epsilon).sqrt();
            for i in 0..len {
                let shift = bias.map_or(0.0, |bias| (*bias.as_ptr().offset(at(bias.layout(), row, i))).to_f64());
                let factor = (*scale.as_ptr().offset(at(scale.layout(), row, i))).to_f64();
                let value = (get(i) - centre) * inverse * factor + shift;
                *y.as_mut_ptr().offset(at(y.layout(), row, i)) = T::from_f64(value);
            }
            if let Some(mean) = mean.as_deref_mut() {
                *mean.as_mut_ptr().offset(offset_of(mean.layout(), axis, row)) = T::from_f64(centre);
            }
            if let Some(inv_std) = inv_std.as_deref_mut() {
                *inv_std.as_mut_ptr().offset(offset_of(inv_std.layout(), axis, row)) = T::from_f64(inverse);
            }
        }
    }
}
