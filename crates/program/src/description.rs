//! What a program is made from: plain data, checked by [`Program::new`](crate::Program::new).

use std::sync::Arc;

use threadteam_kernels::{Binary, Compare, Reduction, Unary};

use crate::{Constant, Dtype, HostCall};

/// The memory that a value lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// The scratch memory of a run.
    Arena,
    /// The constant of this number.
    Constant(usize),
    /// The input of this number.
    Input(usize),
    /// The output of this number.
    Output(usize),
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Space::Arena => write!(f, "the arena"),
            Space::Constant(index) => write!(f, "constant {index}"),
            Space::Input(index) => write!(f, "input {index}"),
            Space::Output(index) => write!(f, "output {index}"),
        }
    }
}

/// A tensor in a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Where it lies.
    pub space: Space,
    /// Bytes from the start of the space to the element at index zero.
    pub offset: usize,
    /// Element type; in a constant, input or output, the type of that.
    pub dtype: Dtype,
    /// Extents.
    pub dims: Vec<usize>,
    /// Distances in elements between neighbours along each axis; zero broadcasts.
    pub strides: Vec<isize>,
}

/// An input or output: row-major, without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name, for messages.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Extents.
    pub dims: Vec<usize>,
}

/// What a step does; operands are listed as its inputs and its outputs.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `a, b, [bias] -> y`: `alpha * a @ b + beta * bias`.
    Matmul {
        /// Factor of the product.
        alpha: f64,
        /// Factor of the bias.
        beta: f64,
    },
    /// `a, b, d, [bias] -> y`: `softmax(alpha * a @ b + beta * bias) @ d`, the softmax over the last axis.
    Attention {
        /// Factor of the first product.
        alpha: f64,
        /// Factor of the bias.
        beta: f64,
    },
    /// `x -> y`.
    Softmax {
        /// The axis whose elements add up to one.
        axis: usize,
        /// Whether to take the logarithm.
        log: bool,
    },
    /// `x, scale, [bias] -> y, [mean, inv_std]`.
    LayerNorm {
        /// The first normalised axis.
        axis: usize,
        /// Added to the variance.
        epsilon: f64,
    },
    /// `x -> y`, of the same rank.
    Reduce {
        /// What to compute.
        op: Reduction,
        /// The axes to reduce.
        axes: Vec<usize>,
    },
    /// `x -> y`, element-wise.
    Unary(Unary<f64>),
    /// `a, b -> y`, element-wise.
    Binary(Binary),
    /// `a, b -> y` of `bool`, element-wise.
    Compare(Compare),
    /// `condition, a, b -> y`, element-wise.
    Select,
    /// `x -> y`.
    Copy,
    /// `x -> y` of another type.
    Cast,
    /// `data, indices -> y`.
    Gather {
        /// The axis of the data that the indices count along.
        axis: usize,
    },
    /// Any inputs, any outputs.
    Host(Arc<dyn HostCall>),
}

impl Operation {
    /// The kind's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Operation::Matmul { .. } => "matmul",
            Operation::Attention { .. } => "attention",
            Operation::Softmax { .. } => "softmax",
            Operation::LayerNorm { .. } => "layer_norm",
            Operation::Reduce { .. } => "reduce",
            Operation::Unary(_) => "unary",
            Operation::Binary(_) => "binary",
            Operation::Compare(_) => "compare",
            Operation::Select => "select",
            Operation::Copy => "copy",
            Operation::Cast => "cast",
            Operation::Gather { .. } => "gather",
            Operation::Host(_) => "host",
        }
    }
}

/// One step.
#[derive(Clone, Debug)]
pub struct StepSpec {
    /// What it does.
    pub operation: Operation,
    /// Value numbers of the inputs; `None` for an optional one that is absent.
    pub inputs: Vec<Option<usize>>,
    /// Value numbers of the outputs; `None` for an optional one that is absent.
    pub outputs: Vec<Option<usize>>,
    /// Name in profiles, traces and messages.
    pub label: String,
}

/// A program before it is checked.
#[derive(Debug, Default)]
pub struct Description {
    /// The tensors that steps refer to by number.
    pub values: Vec<ValueSpec>,
    /// Memory that every run reads.
    pub constants: Vec<Constant>,
    /// What a run is given.
    pub inputs: Vec<Port>,
    /// What a run fills.
    pub outputs: Vec<Port>,
    /// What is done, in order.
    pub steps: Vec<StepSpec>,
    /// Scratch memory of one run.
    pub arena_bytes: usize,
}
