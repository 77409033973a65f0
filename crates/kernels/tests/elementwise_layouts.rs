//! Element-wise kernels against loops over every index, in random layouts.

mod elementwise_support;

use elementwise_support::{at_every_width, identical, indices, input, output, reals, shape, Tensor};
use proptest::collection::vec;
use proptest::prelude::*;
use threadteam_kernels::{binary, cast, compare, select, unary, Binary, Bool, Compare, Element, Unary};

const BINARY: [Binary; 7] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Pow, Binary::Max, Binary::Min];
const COMPARE: [Compare; 5] =
    [Compare::Equal, Compare::Less, Compare::LessOrEqual, Compare::Greater, Compare::GreaterOrEqual];

fn real(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => a.powf(b),
        Binary::Max if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Max => a.max(b),
        Binary::Min if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Min => a.min(b),
    }
}

fn integer(op: Binary, a: i32, b: i32) -> i32 {
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a.checked_div(b).unwrap_or(if b == 0 { 0 } else { a }),
        Binary::Pow if b >= 0 => a.wrapping_pow(b as u32),
        Binary::Pow if a == 1 => 1,
        Binary::Pow if a == -1 => [1, -1][b.rem_euclid(2) as usize],
        Binary::Pow => 0,
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
    }
}

/// Whether a comparison of equals may differ in the sign of zero only.
fn close(a: f64, b: f64) -> bool {
    identical(a, b) || a == b || ((a - b).abs() <= b.abs() * 1e-15)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn binary_of_f64_equals_a_loop_in_any_layout(
        dims in shape(), op in prop::sample::select(&BINARY[..]), places in (output(), input(), input()),
        a in reals(), b in reals(),
    ) {
        let (a, b) = (Tensor::placed(&dims, &places.1, &a), Tensor::placed(&dims, &places.2, &b));
        let fresh = Tensor::placed(&dims, &places.0, &[77.0]);
        at_every_width(|exec| {
            let mut y = fresh.clone();
            binary(exec, op, &a.view(), &b.view(), &mut y.view_mut());
            for index in indices(&dims) {
                let want = real(op, a.at(&index), b.at(&index));
                assert!(close(y.at(&index), want), "{op:?} at {index:?}: {} not {want}", y.at(&index));
            }
            assert!(y.gaps_are_untouched(&fresh));
        });
    }

    #[test]
    fn binary_of_i32_equals_a_loop_in_any_layout(
        dims in shape(), op in prop::sample::select(&BINARY[..]), places in (output(), input(), input()),
        a in vec(any::<i32>(), 1..50), b in vec(prop_oneof![-3..12i32, any::<i32>()], 1..50),
    ) {
        let (a, b) = (Tensor::placed(&dims, &places.1, &a), Tensor::placed(&dims, &places.2, &b));
        let mut y = Tensor::placed(&dims, &places.0, &[77]);
        at_every_width(|exec| binary(exec, op, &a.view(), &b.view(), &mut y.view_mut()));
        for index in indices(&dims) {
            prop_assert_eq!(y.at(&index), integer(op, a.at(&index), b.at(&index)));
        }
    }

    #[test]
    fn binary_may_write_over_either_input(
        dims in shape(), op in prop::sample::select(&BINARY[..]), places in (output(), input()),
        a in reals(), b in reals(), first: bool,
    ) {
        let b = Tensor::placed(&dims, &places.1, &b);
        let before = Tensor::placed(&dims, &places.0, &a);
        at_every_width(|exec| {
            let mut y = before.clone();
            let (same, mut out) = y.aliased();
            if first {
                binary(exec, op, &same, &b.view(), &mut out);
            } else {
                binary(exec, op, &b.view(), &same, &mut out);
            }
            for index in indices(&dims) {
                let (this, other) = (before.at(&index), b.at(&index));
                let want = if first { real(op, this, other) } else { real(op, other, this) };
                assert!(close(y.at(&index), want));
            }
        });
    }

    #[test]
    fn compare_equals_a_loop_in_any_layout(
        dims in shape(), op in prop::sample::select(&COMPARE[..]), places in (output(), input(), input()),
        a in reals(), b in reals(),
    ) {
        // Few values, so that many are equal.
        let (a, b): (Vec<f32>, Vec<f32>) = (a.iter().map(|v| v.round() as f32).collect(), b.iter().map(|v| v.round() as f32).collect());
        let (a, b) = (Tensor::placed(&dims, &places.1, &a), Tensor::placed(&dims, &places.2, &b));
        let mut y = Tensor::placed(&dims, &places.0, &[7u8]);
        at_every_width(|exec| compare(exec, op, &a.view(), &b.view(), &mut y.view_mut()));
        for index in indices(&dims) {
            let (a, b) = (a.at(&index), b.at(&index));
            let want = match op {
                Compare::Equal => a == b,
                Compare::Less => a < b,
                Compare::LessOrEqual => a <= b,
                Compare::Greater => a > b,
                Compare::GreaterOrEqual => a >= b,
            };
            prop_assert_eq!(y.at(&index), u8::from(want));
        }
    }

    #[test]
    fn select_equals_a_loop_in_any_layout(
        dims in shape(), places in (output(), input(), input(), input()), cond in vec(0u8..3, 1..50), in_place: bool,
    ) {
        let cond = Tensor::placed(&dims, &places.1, &cond);
        let values: Vec<i64> = (0..4000).collect();
        let b = Tensor::placed(&dims, &places.3, &values.iter().map(|v| -v).collect::<Vec<_>>());
        let a = Tensor::placed(&dims, if in_place { &places.0 } else { &places.2 }, &values);
        at_every_width(|exec| {
            let mut y = if in_place { a.clone() } else { Tensor::placed(&dims, &places.0, &[7]) };
            if in_place {
                let (same, mut out) = y.aliased();
                select(exec, &cond.view(), &same, &b.view(), &mut out);
            } else {
                select(exec, &cond.view(), &a.view(), &b.view(), &mut y.view_mut());
            }
            for index in indices(&dims) {
                assert_eq!(y.at(&index), if cond.at(&index) != 0 { a.at(&index) } else { b.at(&index) });
            }
        });
    }

    #[test]
    fn unary_equals_a_loop_in_any_layout_and_in_place(dims in shape(), places in (output(), input()), x in reals()) {
        let x: Vec<f32> = x.iter().map(|v| *v as f32).collect();
        let source = Tensor::placed(&dims, &places.1, &x);
        for op in [Unary::Relu, Unary::Exp, Unary::Clip { min: -1.0, max: 2.0 }, Unary::Sin] {
            // Each element alone: a result must not depend on its neighbours.
            let alone = |x: f32| {
                let mut y = Tensor::of(&[], vec![0f32]);
                unary(threadteam::Exec::serial(), op, &Tensor::of(&[], vec![x]).view(), &mut y.view_mut());
                y.memory[0]
            };
            at_every_width(|mut exec| {
                let mut y = Tensor::placed(&dims, &places.0, &[77f32]);
                unary(exec.reborrow(), op, &source.view(), &mut y.view_mut());
                for index in indices(&dims) {
                    assert!(identical(y.at(&index).into(), alone(source.at(&index)).into()));
                }
                let before = Tensor::placed(&dims, &places.0, &x);
                let mut y = before.clone();
                let (same, mut out) = y.aliased();
                unary(exec, op, &same, &mut out);
                for index in indices(&dims) {
                    assert!(identical(y.at(&index).into(), alone(before.at(&index)).into()));
                }
            });
        }
    }

    #[test]
    fn cast_equals_a_loop_in_any_layout(dims in shape(), places in (output(), input()), x in reals()) {
        let x = Tensor::placed(&dims, &places.1, &x);
        fn check<S: Element, D: Element + PartialEq + std::fmt::Debug>(
            x: &Tensor<S>, place: &elementwise_support::Place, fresh: D, convert: impl Fn(S) -> D,
        ) {
            let mut y = Tensor::placed(x.layout.dims(), place, &[fresh]);
            at_every_width(|exec| cast(exec, &x.view(), &mut y.view_mut()));
            for index in indices(x.layout.dims()) {
                assert_eq!(y.at(&index), convert(x.at(&index)));
            }
        }
        check(&x, &places.0, 7i32, |v| v as i32);
        check(&x, &places.0, 7i64, |v| v as i64);
        check(&x, &places.0, 7u8, |v| v as u8);
        check(&x, &places.0, 7i16, |v| v as i16);
        check(&x, &places.0, Bool(7), |v| Bool(u8::from(v != 0.0)));
        let whole = Tensor::placed(&dims, &places.1, &x.memory.iter().map(|v| *v as i64).collect::<Vec<_>>());
        check(&whole, &places.0, 7i32, |v| v as i32);
        check(&whole, &places.0, 7u16, |v| v as u16);
        check(&whole, &places.0, 7f32, |v| v as f32);
        check(&whole, &places.0, Bool(7), |v| Bool(u8::from(v != 0)));
    }
}
