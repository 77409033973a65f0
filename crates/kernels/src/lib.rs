//! Array kernels that run on a [`threadteam::Exec`] token.

mod layout;
mod matmul;
mod norm;
mod real;
mod reduce;
mod softmax;
mod walk;

pub use layout::{Layout, View, ViewMut, MAX_RANK};
pub use matmul::matmul;
pub use norm::layer_norm;
pub use real::Real;
pub use reduce::{reduce, AxisMask, Reduction};
pub use softmax::softmax;
