//! What the tests of reducing kernels share: numbers, widths, and the comparison of results.
#![allow(dead_code)]

use threadteam::{Exec, Pool};
use threadteam_kernels::Real;

/// `len` numbers in -1..1 that look random and are the same on every run.
pub fn numbers<T: Real>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            T::from_f64((state >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
        })
        .collect()
}

/// Results of `run` on the calling thread alone and on pools of 2, 3 and 5 participants.
pub fn on_widths<R>(run: impl Fn(Exec<'_>) -> R) -> Vec<R> {
    let mut results = vec![run(Exec::serial())];
    for width in [2, 3, 5] {
        let pool = Pool::builder().threads(width).build().unwrap();
        results.push(run(Exec::new(&pool, width).unwrap()));
    }
    results
}

/// Asserts that all results are the same bits.
pub fn assert_same_bits<T: Real>(results: &[Vec<T>]) {
    let bits = |values: &[T]| values.iter().map(|value| value.to_f64().to_bits()).collect::<Vec<_>>();
    let first = bits(&results[0]);
    for result in &results[1..] {
        assert!(bits(result) == first, "results differ between widths");
    }
}

/// Asserts that `got` is `want` to within `tolerance`, and NaN or infinite exactly where `want` is.
#[track_caller]
pub fn assert_near(got: f64, want: f64, tolerance: f64, what: &dyn std::fmt::Debug) {
    let near =
        if want.is_finite() { (got - want).abs() <= tolerance } else { got == want || got.is_nan() && want.is_nan() };
    assert!(near, "{what:?}: {got} instead of {want}");
}
