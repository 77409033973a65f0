//! Rates of softmax, layer normalisation and reductions on one core.
//!
//! `cargo run --release -p threadteam-kernels --example row_rates`

use std::time::Instant;

use threadteam::Exec;
use threadteam_kernels::{layer_norm, reduce, softmax, Real, Reduction, View, ViewMut};

/// The least time of one call, in nanoseconds.
fn least(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    call();
    let once = start.elapsed().as_secs_f64().max(1e-8);
    let inner = ((20e-6 / once) as usize).clamp(1, 2000);
    let rounds = ((0.04 / (once * inner as f64)) as usize).clamp(7, 3000);
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..inner).for_each(|_| call());
            start.elapsed().as_secs_f64() * 1e9 / inner as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn rates<T: Real>(name: &str) {
    for dims in [[1, 16], [12, 16], [192, 16], [64, 128], [256, 512], [1024, 1024], [1, 1 << 20]] {
        let len = dims[0] * dims[1];
        let x: Vec<T> = (0..len).map(|i| T::from_f64((i * 37 % 101) as f64 / 10.0)).collect();
        let (mut y, mut z) = (vec![T::ZERO; len], vec![T::ZERO; dims[0].max(dims[1])]);
        let x = View::from_slice(&x, &dims).expect("the shape of the data");
        let mut line = format!("{name} {:7} x {:7}", dims[0], dims[1]);
        for (kernel, axis) in [("softmax", 1), ("softmax down", 0)] {
            let mut y = ViewMut::from_slice(&mut y, &dims).expect("the shape of the data");
            let nanos = least(|| softmax(Exec::serial(), &x, axis, false, &mut y));
            line += &format!("  {kernel} {nanos:10.0} ns {:6.3}", nanos / len as f64);
        }
        let mut y = ViewMut::from_slice(&mut y, &dims).expect("the shape of the data");
        let nanos = least(|| layer_norm(Exec::serial(), &x, &x, Some(&x), 1, 1e-5, &mut y, None, None));
        line += &format!("  norm {nanos:10.0} ns {:6.3}", nanos / len as f64);
        for (kernel, mask, kept) in [("sum", 2, [dims[0], 1]), ("sum down", 1, [1, dims[1]])] {
            let mut z = ViewMut::from_slice(&mut z[..kept[0] * kept[1]], &kept).expect("the shape of the results");
            let nanos = least(|| reduce(Exec::serial(), Reduction::Sum, &x, mask, &mut z));
            line += &format!("  {kernel} {nanos:9.0} ns {:6.3}", nanos / len as f64);
        }
        println!("{line}");
    }
}

fn main() {
    rates::<f32>("f32");
    rates::<f64>("f64");
}
