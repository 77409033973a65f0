//! What one element costs, in nanoseconds on one core: from these a kernel tells how wide a section pays.
//!
//! Measured by `examples/elementwise_rates.rs` on one AVX2 core at about 3 GHz (AMD EPYC, Zen 3), on arrays in the
//! first-level cache: data further away only makes more width pay.

use crate::unary::Unary;

/// Work below this is run in place: no section can pay for itself, so the cost model is not asked.
pub(crate) const SERIAL_NANOS: f64 = 500.0;
/// One operation of the vector unit on each element, a byte of an element.
pub(crate) const SIMPLE_BYTE: f64 = 0.017;
/// A multiply-add of a matrix product, a byte of an element: 0.021 to 0.03 ns for four bytes.
pub(crate) const MULTIPLY_ADD_BYTE: f64 = 0.006;
/// Arithmetic, comparison or choice of two elements, a byte of an element.
pub(crate) const BINARY_BYTE: f64 = 0.025;
/// Conversion, a byte of either element.
pub(crate) const CAST_BYTE: f64 = 0.015;
/// Division of `f32`.
pub(crate) const DIVIDE_F32: f64 = 0.16;
/// Division of `f64`.
pub(crate) const DIVIDE_F64: f64 = 0.4;
/// Division of integers.
pub(crate) const INTEGER_DIVIDE: f64 = 1.6;
/// A power of `f32` with varying exponents.
pub(crate) const POWER_F32: f64 = 5.4;
/// A power of `f64` with varying exponents.
pub(crate) const POWER_F64: f64 = 12.5;
/// A power of integers.
pub(crate) const INTEGER_POWER: f64 = 2.5;
/// A copy of neighbours to neighbours, a byte.
pub(crate) const COPY_BYTE: f64 = 0.015;
/// A transposed copy, a byte.
pub(crate) const TRANSPOSE_BYTE: f64 = 0.05;
/// What a run costs beside its elements.
pub(crate) const ROW: f64 = 6.0;
/// A copy of elements that are not neighbours.
pub(crate) const MOVE: f64 = 0.6;

/// A function of one `f32`.
pub(crate) fn unary_f32(op: Unary<f32>) -> f64 {
    match op {
        Unary::Elu(_) | Unary::Exp => 0.5,
        Unary::Sigmoid | Unary::Silu => 0.65,
        Unary::Sin | Unary::Cos => 0.75,
        Unary::Log => 0.95,
        Unary::Tanh | Unary::Erf => 1.4,
        Unary::Gelu | Unary::GeluTanh => 1.65,
        Unary::Softplus => 2.2,
        Unary::Sqrt | Unary::Reciprocal => 0.2,
        _ => SIMPLE_BYTE * 4.0,
    }
}

/// A function of one `f64`.
pub(crate) fn unary_f64(op: Unary<f64>) -> f64 {
    match op {
        Unary::Exp | Unary::Sigmoid | Unary::Silu | Unary::Log | Unary::Elu(_) => 5.0,
        Unary::Sin | Unary::Cos | Unary::Softplus => 10.0,
        Unary::Tanh | Unary::GeluTanh => 14.0,
        Unary::Erf | Unary::Gelu => 24.0,
        Unary::Sqrt | Unary::Reciprocal => 0.6,
        _ => SIMPLE_BYTE * 8.0,
    }
}
