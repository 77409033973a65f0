//! Rates of the matrix product on one core beside `faer`'s, over the shapes of attention and small models.
//!
//! `cargo run --release -p threadteam-kernels --example matmul_rates [f64]`

use std::time::Instant;

use faer::{Accum, MatMut, MatRef, Par};
use threadteam::Exec;
use threadteam_kernels::{matmul, Layout, Real, View, ViewMut};

/// Batch, m, k, n.
const SHAPES: [(usize, usize, usize, usize); 33] = [
    (1, 4, 4, 4),
    (1, 16, 16, 16),
    (1, 1, 64, 64),
    (1, 8, 64, 64),
    (1, 32, 64, 64),
    (1, 64, 64, 64),
    (1, 64, 128, 128),
    (1, 128, 256, 256),
    (1, 256, 512, 512),
    (1, 512, 1024, 1024),
    (1, 1024, 64, 1024),
    (1, 1024, 1024, 64),
    (1, 1, 1024, 1024),
    (1, 2, 256, 256),
    (1, 3, 768, 768),
    (1, 4, 768, 768),
    (1, 8, 256, 256),
    (1, 32, 768, 3072),
    (1, 1024, 1024, 1024),
    (12, 16, 32, 16),
    (12, 16, 16, 32),
    (12, 16, 64, 16),
    (12, 16, 16, 64),
    (12, 128, 32, 128),
    (12, 128, 128, 32),
    (12, 128, 64, 128),
    (12, 128, 128, 64),
    (12, 384, 32, 384),
    (12, 384, 384, 32),
    (12, 384, 64, 384),
    (12, 384, 384, 64),
    (12, 1, 64, 384),
    (12, 1, 384, 64),
];

/// The least time of one call, in seconds.
fn least(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    call();
    let once = start.elapsed().as_secs_f64().max(1e-8);
    let inner = ((20e-6 / once) as usize).clamp(1, 2000);
    let rounds = ((0.06 / (once * inner as f64)) as usize).clamp(7, 3000);
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..inner).for_each(|_| call());
            start.elapsed().as_secs_f64() / inner as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// One batch of products: ours with `b` as it is and transposed, then `faer`'s.
fn row<T: Real + faer::traits::ComplexField>((batch, m, k, n): (usize, usize, usize, usize)) {
    let a: Vec<T> = (0..batch * m * k).map(|i| T::from_f64((i * 7 % 13) as f64 - 6.0)).collect();
    let b: Vec<T> = (0..batch * k * n).map(|i| T::from_f64((i * 5 % 11) as f64 - 5.0)).collect();
    let mut y = vec![T::ZERO; batch * m * n];
    let flops = 2.0 * (batch * m * k * n) as f64;
    let mut ours = |strides: [isize; 3]| {
        let a = View::from_slice(&a, &[batch, m, k]).expect("the shape of the data");
        let layout = Layout::new(&[batch, k, n], &strides).expect("three axes");
        // SAFETY: either order of strides reaches the elements of `b`.
        let b = unsafe { View::from_raw(b.as_ptr(), layout) };
        let mut y = ViewMut::from_slice(&mut y, &[batch, m, n]).expect("the shape of the data");
        least(|| matmul(Exec::serial(), T::ONE, &a, &b, T::ZERO, None, &mut y))
    };
    let plain = ours([(k * n) as isize, n as isize, 1]);
    let transposed = ours([(k * n) as isize, 1, k as isize]);
    let faer = least(|| {
        for i in 0..batch {
            let (a, b, y) = (&a[i * m * k..], &b[i * k * n..], &mut y[i * m * n..]);
            let a = MatRef::from_row_major_slice(&a[..m * k], m, k);
            let b = MatRef::from_row_major_slice(&b[..k * n], k, n);
            let y = MatMut::from_row_major_slice_mut(&mut y[..m * n], m, n);
            faer::linalg::matmul::matmul(y, Accum::Replace, a, b, T::ONE, Par::Seq);
        }
    });
    let show = |seconds: f64| format!("{:10.2} us {:6.1} GF", seconds * 1e6, flops / seconds / 1e9);
    println!("{batch:3} x {m:4} {k:4} {n:4}  {}  b^T {}  faer {}", show(plain), show(transposed), show(faer));
}

fn main() {
    for shape in SHAPES {
        match std::env::args().nth(1).as_deref() {
            Some("f64") => row::<f64>(shape),
            _ => row::<f32>(shape),
        }
    }
}
