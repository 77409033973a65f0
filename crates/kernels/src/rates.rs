//! What one element costs, in nanoseconds on one core: from these a kernel tells how wide a section pays.

use crate::unary::Unary;

/// Work below this is run in place: no section can pay for itself, so the cost model is not asked.
pub(crate) const SERIAL_NANOS: f64 = 500.0;
/// One operation that the vector unit does in a cycle, on contiguous operands in cache.
pub(crate) const SIMPLE: f64 = 0.15;
/// Arithmetic or comparison of two elements, a byte of an element.
pub(crate) const BINARY_BYTE: f64 = 0.04;
/// Conversion, a byte of either element.
pub(crate) const CAST_BYTE: f64 = 0.03;
/// Division of `f32`.
pub(crate) const DIVIDE_F32: f64 = 0.25;
/// Division of `f64`.
pub(crate) const DIVIDE_F64: f64 = 0.6;
/// Division of integers.
pub(crate) const INTEGER_DIVIDE: f64 = 3.0;
/// A power with varying exponents.
pub(crate) const POW: f64 = 8.0;
/// A copy of neighbours to neighbours, a byte.
pub(crate) const COPY_BYTE: f64 = 0.03;
/// A transposed copy, a byte.
pub(crate) const TRANSPOSE_BYTE: f64 = 0.15;
/// What a run costs beside its elements.
pub(crate) const ROW: f64 = 5.0;
/// A copy that is not a run along both operands.
pub(crate) const MOVE: f64 = 0.8;

/// A function of one `f32`.
pub(crate) fn unary_f32(op: Unary<f32>) -> f64 {
    match op {
        Unary::Exp | Unary::Sigmoid | Unary::Silu | Unary::Tanh | Unary::Elu(_) => 0.5,
        Unary::Erf | Unary::Gelu | Unary::GeluTanh | Unary::Log | Unary::Softplus | Unary::Sin | Unary::Cos => 0.8,
        _ => SIMPLE,
    }
}

/// A function of one `f64`.
pub(crate) fn unary_f64(op: Unary<f64>) -> f64 {
    match op {
        Unary::Exp | Unary::Sigmoid | Unary::Silu | Unary::Log | Unary::Sin | Unary::Cos => 5.0,
        Unary::Tanh | Unary::Elu(_) | Unary::Erf | Unary::Gelu | Unary::GeluTanh | Unary::Softplus => 12.0,
        _ => SIMPLE,
    }
}
