//! Copies against loops over every index.

mod elementwise_support;

use elementwise_support::{at_every_width, indices, input, output, shape, Tensor};
use proptest::prelude::*;
use threadteam_kernels::{copy, Layout, View};

fn numbered<T>(make: impl Fn(u64) -> T) -> Vec<T> {
    // Long enough that neighbours differ in every byte pattern that a wrong index could confuse.
    (0..5003u64).map(|i| make(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
}

/// Copies an `m` by `n` matrix to its transpose, element for element.
fn transposed_copies_right<T: Copy + Send + Sync + PartialEq + std::fmt::Debug>(
    m: usize,
    n: usize,
    make: impl Fn(u64) -> T,
) {
    let values: Vec<T> = (0..(m * n) as u64).map(|i| make(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let layout = Layout::new(&[n, m], &[1, n as isize]).unwrap();
    // SAFETY: the layout reaches exactly the values.
    let x = unsafe { View::from_raw(values.as_ptr(), layout) };
    at_every_width(|exec| {
        let mut y = Tensor::of(&[n, m], vec![values[0]; m * n]);
        copy(exec, &x, &mut y.view_mut());
        for i in 0..n {
            for j in 0..m {
                assert_eq!(y.memory[i * m + j], values[j * n + i], "{m} by {n} at {i}, {j}");
            }
        }
    });
}

#[test]
fn a_transposed_copy_is_right_at_every_element_size_and_edge() {
    for (m, n) in [(1, 1), (2, 2), (3, 200), (200, 3), (64, 64), (65, 63), (128, 31), (257, 130)] {
        transposed_copies_right(m, n, |v| v as u8);
        transposed_copies_right(m, n, |v| v as u16);
        transposed_copies_right(m, n, |v| v as u32);
        transposed_copies_right(m, n, |v| v);
        transposed_copies_right(m, n, |v| [v, !v]);
        transposed_copies_right(m, n, |v| [v as u8, (v >> 8) as u8, (v >> 16) as u8]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_equals_a_loop_in_any_layout(dims in shape(), places in (output(), input()), size in 0..6) {
        fn check<T: Copy + Send + Sync + PartialEq + std::fmt::Debug>(
            dims: &[usize],
            places: &(elementwise_support::Place, elementwise_support::Place),
            values: &[T],
        ) {
            let x = Tensor::placed(dims, &places.1, values);
            let fresh = Tensor::placed(dims, &places.0, &values[17..18]);
            at_every_width(|exec| {
                let mut y = fresh.clone();
                copy(exec, &x.view(), &mut y.view_mut());
                for index in indices(dims) {
                    assert_eq!(y.at(&index), x.at(&index));
                }
                assert!(y.gaps_are_untouched(&fresh));
            });
        }
        match size {
            0 => check(&dims, &places, &numbered(|v| (v >> 32) as u8)),
            1 => check(&dims, &places, &numbered(|v| (v >> 32) as u16)),
            2 => check(&dims, &places, &numbered(|v| (v >> 32) as u32)),
            3 => check(&dims, &places, &numbered(|v| v)),
            4 => check(&dims, &places, &numbered(|v| (v, !v))),
            _ => check(&dims, &places, &numbered(|v| [v as u8, (v >> 8) as u8, (v >> 16) as u8])),
        }
    }
}
