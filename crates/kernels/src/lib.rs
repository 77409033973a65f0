//! Array kernels that run on a [`threadteam::Exec`] token.

mod binary;
mod bits;
mod cast;
mod compare;
mod copy;
mod gather;
mod lanes;
mod layout;
mod loops;
mod math;
mod matmul;
mod norm;
mod rates;
mod real;
mod reduce;
mod select;
mod softmax;
mod transpose;
mod unary;
mod walk;

pub use binary::{binary, Arithmetic, Binary};
pub use cast::{cast, Bool, Element};
pub use compare::{compare, Compare};
pub use copy::copy;
pub use gather::{gather, GatherError, Index};
pub use layout::{Layout, View, ViewMut, MAX_RANK};
pub use matmul::matmul;
pub use norm::layer_norm;
pub use real::Real;
pub use reduce::{reduce, AxisMask, Reduction};
pub use select::select;
pub use softmax::softmax;
pub use unary::{unary, Unary};
