//! Attention in one kernel beside its three steps, on one thread and on two: time, and on one thread billions of
//! multiply-adds a second times two.
//!
//! `cargo run --release -p threadteam-kernels --example attention_rates`

use std::time::Instant;

use threadteam::Exec;
use threadteam_kernels::{attention, matmul, softmax, Layout, View, ViewMut};

/// Batch, m, k, n, p; whether `b` is a transposed matrix.
const SHAPES: [([usize; 5], bool); 16] = [
    ([1, 8, 64, 64, 64], false),
    ([1, 32, 64, 64, 64], false),
    ([1, 64, 128, 128, 128], false),
    ([1, 128, 256, 256, 256], false),
    ([1, 256, 512, 512, 512], false),
    ([1, 1024, 64, 1024, 64], false),
    ([12, 1, 64, 128, 64], false),
    ([12, 1, 64, 384, 64], false),
    ([12, 16, 32, 16, 32], false),
    ([12, 16, 64, 16, 64], false),
    ([12, 128, 32, 128, 32], false),
    ([12, 128, 64, 128, 64], false),
    ([12, 384, 32, 384, 32], false),
    ([12, 384, 64, 384, 64], false),
    ([12, 128, 64, 128, 64], true),
    ([12, 384, 64, 384, 64], true),
];

fn median(mut call: impl FnMut()) -> f64 {
    call();
    let mut times: Vec<f64> = (0..60)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let pool = threadteam::Pool::builder().threads(2).build().expect("a pool");
    for ([batch, m, k, n, p], transposed) in SHAPES {
        let numbers = |len: usize| -> Vec<f32> { (0..len).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect() };
        let (a, b, d) = (numbers(batch * m * k), numbers(batch * k * n), numbers(batch * n * p));
        let (mut s, mut y) = (vec![0.0; batch * m * n], vec![0.0; batch * m * p]);
        let strides = if transposed { [1, k as isize] } else { [n as isize, 1] };
        let layout = Layout::new(&[batch, k, n], &[(k * n) as isize, strides[0], strides[1]]).expect("three axes");
        let a = View::from_slice(&a, &[batch, m, k]).expect("the shape of the data");
        // SAFETY: both orders of strides reach exactly the elements of `b`.
        let b = unsafe { View::from_raw(b.as_ptr(), layout) };
        let d = View::from_slice(&d, &[batch, n, p]).expect("the shape of the data");
        let mut times = [f64::INFINITY; 4];
        for _ in 0..5 {
            for wide in [false, true] {
                let run = |f: &mut dyn FnMut(Exec<'_>)| {
                    if wide {
                        f(Exec::new(&pool, 2).expect("a token"))
                    } else {
                        f(Exec::serial())
                    }
                };
                let mut out = ViewMut::from_slice(&mut y, &[batch, m, p]).expect("the shape of the data");
                let at = usize::from(wide) * 2;
                times[at] =
                    times[at].min(median(|| run(&mut |exec| attention(exec, 0.125, &a, &b, 0.0, None, &d, &mut out))));
                times[at + 1] = times[at + 1].min(median(|| {
                    run(&mut |mut exec| {
                        let mut weights = ViewMut::from_slice(&mut s, &[batch, m, n]).expect("the shape of the data");
                        matmul(exec.reborrow(), 0.125, &a, &b, 0.0, None, &mut weights);
                        let mut copy = ViewMut::from_slice(&mut s, &[batch, m, n]).expect("the shape of the data");
                        // SAFETY: the softmax reads each row before it writes it.
                        let read = unsafe { View::from_raw(copy.as_mut_ptr().cast_const(), *copy.layout()) };
                        softmax(exec.reborrow(), &read, 2, false, &mut copy);
                        matmul(exec.reborrow(), 1.0, &read, &d, 0.0, None, &mut out);
                    })
                }));
            }
        }
        let rate = (2 * batch * m * n * (k + p)) as f64 / times[0] / 1e9;
        let [one, three, one2, three2] = times.map(|t| t * 1e6);
        println!(
            "{batch:3} x {m}x{k}x{n}x{p}{}: one {one:8.1} us {rate:5.1} GF, three {three:8.1}, ratio {:.2}; at two: one {one2:8.1} three {three2:8.1} ratio {:.2}, speed-up {:.2}",
            if transposed { " transposed" } else { "" },
            one / three,
            one2 / three2,
            one.min(three) / one2.min(three2),
        );
    }
}
