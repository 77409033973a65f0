//! Results are the same bits at every width.

mod elementwise_support;

use elementwise_support::{pools, WIDTHS};
use threadteam::Exec;
use threadteam_kernels::{
    binary, cast, compare, copy, gather, select, unary, Binary, Compare, Layout, Unary, View, ViewMut,
};

/// An odd shape, large enough for every kernel to be worth several participants.
const DIMS: [usize; 3] = [211, 67, 131];
const LEN: usize = DIMS[0] * DIMS[1] * DIMS[2];

fn values(scale: f64) -> Vec<f64> {
    let special = [f64::NAN, f64::INFINITY, -0.0, 1e300];
    (0..LEN)
        .map(|i| match i % 1009 {
            k @ 0..4 => special[k],
            _ => ((i * 7919 % 65_537) as f64 / 32_768.0 - 1.0) * scale,
        })
        .collect()
}

/// Runs `kernel` into a fresh array on a serial token and on each pool, compares the bits, and checks that the widest
/// pool took part.
fn same_at_every_width<T: Copy + Default>(kernel: impl Fn(Exec<'_>, &mut ViewMut<T>), bits: impl Fn(T) -> u64) {
    let run = |exec: Exec<'_>| {
        let mut y = vec![T::default(); LEN];
        kernel(exec, &mut ViewMut::from_slice(&mut y, &DIMS).unwrap());
        y.into_iter().map(&bits).collect::<Vec<u64>>()
    };
    let serial = run(Exec::serial());
    for (pool, width) in pools().iter().zip(WIDTHS) {
        let wide = run(Exec::new(pool, width).unwrap());
        let differs = wide.iter().zip(&serial).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first element that differs at width {width}");
    }
}

/// The same elements with the first and last axes exchanged.
fn crossed<T>(data: &[T]) -> View<'_, T> {
    let layout = Layout::new(&DIMS, &[1, DIMS[0] as isize, (DIMS[0] * DIMS[1]) as isize]).unwrap();
    assert_eq!(data.len(), LEN);
    // SAFETY: the layout reaches exactly the data.
    unsafe { View::from_raw(data.as_ptr(), layout) }
}

#[test]
fn functions_of_one_element_do_not_depend_on_the_width() {
    let x: Vec<f32> = values(20_000.0).into_iter().map(|v| v as f32).collect();
    for op in [Unary::Exp, Unary::Tanh, Unary::Erf, Unary::Log, Unary::Sin, Unary::Sigmoid, Unary::Relu] {
        same_at_every_width(|exec, y| unary(exec, op, &crossed(&x), y), |v| u64::from(f32::to_bits(v)));
        same_at_every_width(
            |exec, y| unary(exec, op, &View::from_slice(&x, &DIMS).unwrap(), y),
            |v| u64::from(f32::to_bits(v)),
        );
    }
    let x = values(30.0);
    same_at_every_width(|exec, y| unary(exec, Unary::Gelu, &crossed(&x), y), f64::to_bits);
}

#[test]
fn functions_of_two_elements_do_not_depend_on_the_width() {
    let (a, b) = (values(30.0), values(7.0));
    let row = Layout::new(&DIMS, &[0, 0, 1]).unwrap();
    // SAFETY: the layout reaches the first elements of `b`.
    let row = unsafe { View::from_raw(b.as_ptr(), row) };
    let a = View::from_slice(&a, &DIMS).unwrap();
    for op in [Binary::Add, Binary::Div, Binary::Pow, Binary::Max] {
        same_at_every_width(|exec, y| binary(exec, op, &a, &crossed(&b), y), f64::to_bits);
        same_at_every_width(|exec, y| binary(exec, op, &a, &row, y), f64::to_bits);
    }
    same_at_every_width(|exec, y| compare(exec, Compare::Less, &a, &crossed(&b), y), |v: u8| v.into());
}

#[test]
fn moves_do_not_depend_on_the_width() {
    let x = values(1e9);
    let flags: Vec<u8> = (0..LEN).map(|i| (i % 3) as u8).collect();
    let (straight, flags) = (View::from_slice(&x, &DIMS).unwrap(), View::from_slice(&flags, &DIMS).unwrap());
    same_at_every_width(|exec, y| copy(exec, &straight, y), f64::to_bits);
    same_at_every_width(|exec, y| copy(exec, &crossed(&x), y), f64::to_bits);
    same_at_every_width(|exec, y| select(exec, &flags, &straight, &crossed(&x), y), f64::to_bits);
    same_at_every_width(|exec, y| cast(exec, &crossed(&x), y), |v: i32| v as u64);
    let index: Vec<i64> = (0..DIMS[0] as i64).map(|i| i * 17 % 131 - 131).collect();
    let index = View::from_slice(&index, &[DIMS[0]]).unwrap();
    let table = View::from_slice(&x[..131 * 67 * 131], &[131, 67, 131]).unwrap();
    same_at_every_width(|exec, y| gather(exec, &table, &index, 0, y).unwrap(), f64::to_bits);
}

#[test]
fn a_large_array_is_shared_out() {
    let x = values(30.0);
    let pool = &pools()[1];
    let before = pool.stats().sections;
    let mut y = vec![0.0; LEN];
    let mut y = ViewMut::from_slice(&mut y, &DIMS).unwrap();
    unary(Exec::new(pool, 2).unwrap(), Unary::Erf, &View::from_slice(&x, &DIMS).unwrap(), &mut y);
    assert!(pool.stats().sections > before);
}
