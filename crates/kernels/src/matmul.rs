//! Matrix products.

use faer::{Accum, MatMut, MatRef, Par};
use threadteam::Exec;

use crate::walk::offset_of;
use crate::{Real, View, ViewMut};

/// `y = alpha * a @ b + beta * bias`, batched over the leading axes.
///
/// `a` is `[batch.., m, k]`, `b` is `[batch.., k, n]`, `bias` and `y` are `[batch.., m, n]`; inputs are already broadcast
/// by zero strides.
pub fn matmul<T: Real>(
    exec: Exec<'_>,
    alpha: T,
    a: &View<T>,
    b: &View<T>,
    beta: T,
    bias: Option<&View<T>>,
    y: &mut ViewMut<T>,
) {
    let _ = exec;
    let rank = y.layout().rank();
    let lead = rank - 2;
    let dims = y.layout().dims();
    let (m, n) = (dims[lead], dims[lead + 1]);
    let k = a.layout().dims()[lead + 1];
    let batch = dims[..lead].iter().product::<usize>();
    for at in 0..batch {
        let (ao, bo) = (offset_of(a.layout(), lead, at), offset_of(b.layout(), lead, at));
        let (ac, bc) = (&a.layout().strides()[lead..], &b.layout().strides()[lead..]);
        let (yo, yc) = (offset_of(y.layout(), lead, at), &y.layout().strides()[lead..]);
        let start =
            bias.map(|bias| (bias.as_ptr(), offset_of(bias.layout(), lead, at), &bias.layout().strides()[lead..]));
        for row in 0..m as isize {
            for col in 0..n as isize {
                // SAFETY: row < m and col < n, so both places are inside the views.
                unsafe {
                    let value = start.map_or(T::ZERO, |(ptr, offset, strides)| {
                        beta * *ptr.offset(offset + row * strides[0] + col * strides[1])
                    });
                    *y.as_mut_ptr().offset(yo + row * yc[0] + col * yc[1]) = value;
                }
            }
        }
        if m == 0 || n == 0 || k == 0 {
            continue;
        }
        // SAFETY: the three matrices are the views' own at batch index `at`; `y` is exclusive.
        let (am, bm, ym) = unsafe {
            (
                MatRef::from_raw_parts(a.as_ptr().offset(ao), m, k, ac[0], ac[1]),
                MatRef::from_raw_parts(b.as_ptr().offset(bo), k, n, bc[0], bc[1]),
                MatMut::from_raw_parts_mut(y.as_mut_ptr().offset(yo), m, n, yc[0], yc[1]),
            )
        };
        faer::linalg::matmul::matmul(ym, Accum::Add, am, bm, alpha, Par::Seq);
    }
}
