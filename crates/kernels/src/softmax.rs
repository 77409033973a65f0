//! Softmax and log-softmax.

use threadteam::Exec;

use crate::walk::offset_of;
use crate::{Layout, Real, View, ViewMut};

/// Softmax of `x` along `axis`, or its logarithm, into `y` of the same shape.
pub fn softmax<T: Real>(exec: Exec<'_>, x: &View<T>, axis: usize, log: bool, y: &mut ViewMut<T>) {
    let _ = exec;
    let last = |layout: &Layout| {
        let (mut dims, mut strides) = (layout.dims().to_vec(), layout.strides().to_vec());
        let (extent, stride) = (dims.remove(axis), strides.remove(axis));
        dims.push(extent);
        strides.push(stride);
        (Layout::new(&dims, &strides).expect("the rank is unchanged"), extent, stride)
    };
    let (xl, extent, xs) = last(x.layout());
    let (yl, _, ys) = last(y.layout());
    let lead = xl.rank() - 1;
    let rows = xl.dims()[..lead].iter().product::<usize>();
    for row in 0..rows {
        let (xo, yo) = (offset_of(&xl, lead, row), offset_of(&yl, lead, row));
        // SAFETY: `i < extent`, so every place is inside its view.
        unsafe {
            let get = |i: usize| (*x.as_ptr().offset(xo + i as isize * xs)).to_f64();
            let max = (0..extent).map(get).fold(f64::NEG_INFINITY, |m, v| if v.is_nan() || v > m { v } else { m });
            let sum = (0..extent).map(|i| (get(i) - max).exp()).sum::<f64>();
            for i in 0..extent {
                let value = if log { get(i) - max - sum.ln() } else { (get(i) - max).exp() / sum };
                *y.as_mut_ptr().offset(yo + i as isize * ys) = T::from_f64(value);
            }
        }
    }
}
