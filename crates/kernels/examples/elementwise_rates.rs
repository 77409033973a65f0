//! Measures what the element-wise kernels cost on one core: the figures behind `src/rates.rs`.
//!
//! `cargo run --release -p threadteam-kernels --example elementwise_rates`

use std::hint::black_box;
use std::time::Instant;

use threadteam::Exec;
use threadteam_kernels::{
    binary, cast, compare, copy, gather, select, unary, Arithmetic, Binary, Compare, Layout, Real, Unary, View, ViewMut,
};

/// Elements that stay in the first-level cache.
const NEAR: usize = 2048;

fn main() {
    calls();
    unary_rates::<f32>("f32", |v| v as f32);
    unary_rates::<f64>("f64", |v| v);
    binary_rates::<f32>("f32", |v| v as f32);
    binary_rates::<f64>("f64", |v| v);
    binary_rates::<i32>("i32", |v| v as i32);
    binary_rates::<i64>("i64", |v| v as i64);
    others();
    copies();
}

/// The least time of `body` in nanoseconds over many batches.
fn least(mut body: impl FnMut()) -> f64 {
    let start = Instant::now();
    body();
    let once = start.elapsed().as_nanos().max(20) as usize;
    let batch = (100_000 / once).clamp(1, 2_000);
    let batches = (60_000_000 / (once * batch)).clamp(5, 200);
    (0..batches)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..batch {
                body();
            }
            start.elapsed().as_nanos() as f64 / batch as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn call(name: &str, body: impl FnMut()) {
    println!("call {name:40} {:8.1} ns", least(body));
}

fn rate(name: &str, elements: usize, bytes: usize, body: impl FnMut()) {
    let nanos = least(body);
    println!(
        "rate {name:40} {:8.3} ns/element {:8.2} GB/s",
        nanos / elements as f64,
        (elements * bytes) as f64 / nanos
    );
}

fn calls() {
    let (a, b, mut y) = (vec![1f32; 64], vec![2f32; 64], vec![0f32; 64]);
    let (a1, b1) = (View::from_slice(&a, &[64]).unwrap(), View::from_slice(&b, &[64]).unwrap());
    let mut y1 = ViewMut::from_slice(&mut y, &[64]).unwrap();
    call("add of 64", || binary(Exec::serial(), Binary::Add, &a1, &b1, &mut y1));
    call("relu of 64", || unary(Exec::serial(), Unary::Relu, &a1, &mut y1));
    call("exp of 64", || unary(Exec::serial(), Unary::Exp, &a1, &mut y1));
    call("copy of 64", || copy(Exec::serial(), &a1, &mut y1));
    // SAFETY: every layout below reaches 64 elements at most.
    let of = |data: &[f32], dims: &[usize], strides: &[isize]| unsafe {
        View::from_raw(data.as_ptr(), Layout::new(dims, strides).unwrap())
    };
    let (a4, b4) = (of(&a, &[2, 2, 4, 4], &[32, 16, 4, 1]), of(&b, &[2, 2, 4, 4], &[0, 4, 0, 1]));
    let mut y4 = ViewMut::from_slice(&mut y, &[2, 2, 4, 4]).unwrap();
    call("add of 2x2x4x4, broadcast", || binary(Exec::serial(), Binary::Add, &a4, &b4, &mut y4));
    let across = of(&a, &[8, 8], &[1, 8]);
    let mut y8 = ViewMut::from_slice(&mut y, &[8, 8]).unwrap();
    call("transposed copy of 8x8", || copy(Exec::serial(), &across, &mut y8));
}

fn unary_rates<T: Real>(name: &str, make: impl Fn(f64) -> T) {
    let x: Vec<T> = (0..NEAR).map(|i| make(0.001 + (i * 37 % NEAR) as f64 / NEAR as f64 * 6.0)).collect();
    let mut y = vec![T::ZERO; NEAR];
    let (x, mut y) = (View::from_slice(&x, &[NEAR]).unwrap(), ViewMut::from_slice(&mut y, &[NEAR]).unwrap());
    for op in [
        Unary::Relu,
        Unary::LeakyRelu(make(0.1)),
        Unary::Elu(make(1.0)),
        Unary::Sigmoid,
        Unary::HardSigmoid(make(0.2), make(0.5)),
        Unary::Tanh,
        Unary::Erf,
        Unary::Gelu,
        Unary::GeluTanh,
        Unary::Silu,
        Unary::Softplus,
        Unary::Exp,
        Unary::Log,
        Unary::Sqrt,
        Unary::Reciprocal,
        Unary::Abs,
        Unary::Floor,
        Unary::Round,
        Unary::Sign,
        Unary::Sin,
        Unary::Cos,
        Unary::Clip { min: make(1.0), max: make(3.0) },
    ] {
        let bytes = 2 * size_of::<T>();
        rate(&format!("{name} {op:?}"), NEAR, bytes, || unary(Exec::serial(), op, &x, &mut y));
    }
}

fn binary_rates<T: Arithmetic>(name: &str, make: impl Fn(f64) -> T) {
    let a: Vec<T> = (0..1 << 20).map(|i| make((i % 97) as f64)).collect();
    let b: Vec<T> = (0..1 << 20).map(|i| make((i % 7) as f64)).collect();
    let mut y = a.clone();
    for op in [Binary::Add, Binary::Mul, Binary::Div, Binary::Pow, Binary::Max] {
        for len in [NEAR, 1 << 20] {
            let (a, b) = (View::from_slice(&a[..len], &[len]).unwrap(), View::from_slice(&b[..len], &[len]).unwrap());
            let mut y = ViewMut::from_slice(&mut y[..len], &[len]).unwrap();
            rate(&format!("{name} {op:?} of {len}"), len, 3 * size_of::<T>(), || {
                binary(Exec::serial(), op, &a, &b, &mut y)
            });
        }
    }
    let (a, row) = (View::from_slice(&a, &[1 << 14, 64]).unwrap(), Layout::new(&[1 << 14, 64], &[0, 1]).unwrap());
    // SAFETY: the layout reaches 64 elements.
    let row = unsafe { View::from_raw(b.as_ptr(), row) };
    let mut y = ViewMut::from_slice(&mut y, &[1 << 14, 64]).unwrap();
    rate(&format!("{name} add of a row of 64"), 1 << 20, 2 * size_of::<T>(), || {
        binary(Exec::serial(), Binary::Add, &a, &row, &mut y)
    });
}

fn others() {
    let (a, b) = (vec![1f32; NEAR], vec![2f32; NEAR]);
    let (mut y, mut flags, mut whole, mut wide) =
        (vec![0f32; NEAR], vec![0u8; NEAR], vec![0i32; NEAR], vec![0f64; NEAR]);
    let (a, b) = (View::from_slice(&a, &[NEAR]).unwrap(), View::from_slice(&b, &[NEAR]).unwrap());
    rate("compare f32", NEAR, 9, || {
        compare(Exec::serial(), Compare::Less, &a, &b, &mut ViewMut::from_slice(&mut flags, &[NEAR]).unwrap())
    });
    let cond = View::from_slice(&flags, &[NEAR]).unwrap();
    rate("select f32", NEAR, 13, || {
        select(Exec::serial(), &cond, &a, &b, &mut ViewMut::from_slice(&mut y, &[NEAR]).unwrap())
    });
    rate("cast f32 to i32", NEAR, 8, || {
        cast(Exec::serial(), &a, &mut ViewMut::from_slice(&mut whole, &[NEAR]).unwrap())
    });
    rate("cast f32 to f64", NEAR, 12, || {
        cast(Exec::serial(), &a, &mut ViewMut::from_slice(&mut wide, &[NEAR]).unwrap())
    });
    let table = vec![1f32; 1 << 20];
    let index: Vec<i64> = (0..4096).map(|i| i * 7919 % (1 << 14)).collect();
    let mut out = vec![0f32; 4096 * 64];
    let mut out = ViewMut::from_slice(&mut out, &[4096, 64]).unwrap();
    let (table, index) =
        (View::from_slice(&table, &[1 << 14, 64]).unwrap(), View::from_slice(&index, &[4096]).unwrap());
    rate("gather rows of 64 f32", 4096 * 64, 8, || {
        gather(Exec::serial(), &table, &index, 0, &mut out).unwrap();
    });
}

fn copies() {
    let len = 4097 * 4097;
    let source = vec![1u64; len];
    let mut target = vec![0u64; len];
    let (x, y) = (source.as_ptr(), target.as_mut_ptr());
    fn square<T: Copy + Send + Sync>(x: *const T, y: *mut T, side: usize) {
        let across = Layout::new(&[side, side], &[1, side as isize]).unwrap();
        let along = Layout::contiguous(&[side, side]).unwrap();
        // SAFETY: both arrays hold `side * side` elements of `T`.
        let (x, straight, mut y) =
            unsafe { (View::from_raw(x, across), View::from_raw(x, along), ViewMut::from_raw(y, along)) };
        let bytes = size_of::<T>();
        let name = format!("{side}^2 of {bytes} bytes");
        rate(&format!("transposed copy {name}"), side * side, 2 * bytes, || {
            copy(Exec::serial(), black_box(&x), &mut y)
        });
        rate(&format!("straight copy {name}"), side * side, 2 * bytes, || {
            copy(Exec::serial(), black_box(&straight), &mut y)
        });
    }
    for side in [64, 512, 4096, 4097] {
        square::<u8>(x.cast(), y.cast(), side);
        square::<u16>(x.cast(), y.cast(), side);
        square::<u32>(x.cast(), y.cast(), side);
        square::<u64>(x, y, side);
    }
    for side in [64, 512, 2048, 2049] {
        square::<[u64; 2]>(x.cast(), y.cast(), side);
    }
}
