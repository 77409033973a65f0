//! Steps, checked: kernels with their operands, ready to run.

use std::sync::Arc;

use threadteam::Exec;
use threadteam_kernels as kernels;
use threadteam_kernels::{AxisMask, Binary, Compare, Layout, Reduction, Unary, View, ViewMut};

use crate::dtype::{with_unit, Unit};
use crate::element::{with_arithmetic, with_float, with_index, with_number, Arithmetic, Float, Index, Number};
use crate::host::{HostCall, HostError, HostInput, HostOutput};
use crate::Dtype;

/// A value as a run finds it: a base address by number, and where the value lies from there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) base: usize,
    pub(crate) offset: usize,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
}

/// The number of an operand.
pub(crate) type Id = usize;

/// The operands of a program and the addresses of one run.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    operands: &'a [Operand],
    bases: &'a [*mut u8],
}

impl<'a> Memory<'a> {
    /// Combines the operands of a program with the addresses of one run.
    ///
    /// # Safety
    ///
    /// For `'a`, `bases` holds for each base number the address of a space that every operand of that base fits in and
    /// is aligned in, valid for reads, and for writes where steps have outputs, and reached by nothing else.
    pub(crate) unsafe fn new(operands: &'a [Operand], bases: &'a [*mut u8]) -> Self {
        Memory { operands, bases }
    }

    #[inline]
    fn locate(&self, id: Id) -> (&'a Operand, *mut u8) {
        let operand = &self.operands[id];
        // The offset is inside the space; wrapping, because an empty space may have a made-up address.
        (operand, self.bases[operand.base].wrapping_add(operand.offset))
    }

    /// # Safety
    ///
    /// `T` is the operand's element type, and no step writes it while the view is used, unless to the same elements.
    #[inline]
    unsafe fn view<T>(&self, id: Id) -> View<'a, T> {
        let (operand, ptr) = self.locate(id);
        // SAFETY: `new` promises memory for every operand; the rest is this function's own contract.
        unsafe { View::from_raw(ptr.cast(), operand.layout) }
    }

    /// # Safety
    ///
    /// As [`view`](Self::view), and the operand is injective and overlaps no other one of the step but itself.
    #[inline]
    unsafe fn view_mut<T>(&self, id: Id) -> ViewMut<'a, T> {
        let (operand, ptr) = self.locate(id);
        // SAFETY: as above.
        unsafe { ViewMut::from_raw(ptr.cast(), operand.layout) }
    }
}

/// A kernel, its element type, its parameters and its operands.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// All outputs are empty.
    Nothing,
    Matmul {
        float: Float,
        alpha: f64,
        beta: f64,
        a: Id,
        b: Id,
        bias: Option<Id>,
        y: Id,
    },
    Attention(Box<Attention>),
    Softmax {
        float: Float,
        axis: usize,
        log: bool,
        x: Id,
        y: Id,
    },
    LayerNorm(Box<LayerNorm>),
    Reduce {
        float: Float,
        op: Reduction,
        axes: AxisMask,
        x: Id,
        y: Id,
    },
    Unary {
        float: Float,
        op: Unary<f64>,
        x: Id,
        y: Id,
    },
    Binary {
        arithmetic: Arithmetic,
        op: Binary,
        a: Id,
        b: Id,
        y: Id,
    },
    Compare {
        number: Number,
        op: Compare,
        a: Id,
        b: Id,
        y: Id,
    },
    Select {
        unit: Unit,
        condition: Id,
        a: Id,
        b: Id,
        y: Id,
    },
    Copy {
        unit: Unit,
        x: Id,
        y: Id,
    },
    Cast {
        from: Number,
        to: Number,
        x: Id,
        y: Id,
    },
    Gather {
        unit: Unit,
        index: Index,
        axis: usize,
        data: Id,
        indices: Id,
        y: Id,
    },
    Host {
        call: Arc<dyn HostCall>,
        inputs: Box<[Option<Id>]>,
        outputs: Box<[Option<Id>]>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) float: Float,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) a: Id,
    pub(crate) b: Id,
    pub(crate) d: Id,
    pub(crate) bias: Option<Id>,
    pub(crate) y: Id,
}

#[derive(Clone, Debug)]
pub(crate) struct LayerNorm {
    pub(crate) float: Float,
    pub(crate) axis: usize,
    pub(crate) epsilon: f64,
    pub(crate) x: Id,
    pub(crate) scale: Id,
    pub(crate) bias: Option<Id>,
    pub(crate) y: Id,
    pub(crate) mean: Option<Id>,
    pub(crate) inv_std: Option<Id>,
}

impl Step {
    /// Runs the step.
    ///
    /// # Safety
    ///
    /// The step was checked against the values that `memory` has the operands of: types, shapes, injective outputs,
    /// overlap. Nothing else writes or reads the memory of its operands meanwhile.
    pub(crate) unsafe fn run(&self, exec: Exec<'_>, memory: Memory<'_>) -> Result<(), HostError> {
        // SAFETY: in this whole function, each element type is the one the check found the operands to have, inputs are
        // not written by the kernel (unless the output is the input itself, which element-wise kernels allow), and
        // outputs are injective and apart from each other.
        unsafe {
            match *self {
                Step::Nothing => {}
                Step::Matmul { float, alpha, beta, a, b, bias, y } => with_float!(float, T => {
                    let bias = bias.map(|bias| memory.view::<T>(bias));
                    let (a, b, mut y) = (memory.view(a), memory.view(b), memory.view_mut(y));
                    kernels::matmul::<T>(exec, alpha as T, &a, &b, beta as T, bias.as_ref(), &mut y);
                }),
                Step::Attention(ref step) => with_float!(step.float, T => {
                    let bias = step.bias.map(|bias| memory.view::<T>(bias));
                    let (a, b, d) = (memory.view(step.a), memory.view(step.b), memory.view(step.d));
                    let (alpha, beta, mut y) = (step.alpha as T, step.beta as T, memory.view_mut(step.y));
                    kernels::attention::<T>(exec, alpha, &a, &b, beta, bias.as_ref(), &d, &mut y);
                }),
                Step::Softmax { float, axis, log, x, y } => with_float!(float, T => {
                    kernels::softmax::<T>(exec, &memory.view(x), axis, log, &mut memory.view_mut(y));
                }),
                Step::LayerNorm(ref norm) => with_float!(norm.float, T => {
                    let bias = norm.bias.map(|bias| memory.view::<T>(bias));
                    let mut mean = norm.mean.map(|mean| memory.view_mut::<T>(mean));
                    let mut inv_std = norm.inv_std.map(|inv_std| memory.view_mut::<T>(inv_std));
                    kernels::layer_norm::<T>(
                        exec,
                        &memory.view(norm.x),
                        &memory.view(norm.scale),
                        bias.as_ref(),
                        norm.axis,
                        norm.epsilon,
                        &mut memory.view_mut(norm.y),
                        mean.as_mut(),
                        inv_std.as_mut(),
                    );
                }),
                Step::Reduce { float, op, axes, x, y } => with_float!(float, T => {
                    kernels::reduce::<T>(exec, op, &memory.view(x), axes, &mut memory.view_mut(y));
                }),
                Step::Unary { float, op, x, y } => with_float!(float, T => {
                    let op = convert(op, |parameter| parameter as T);
                    kernels::unary::<T>(exec, op, &memory.view(x), &mut memory.view_mut(y));
                }),
                Step::Binary { arithmetic, op, a, b, y } => with_arithmetic!(arithmetic, T => {
                    kernels::binary::<T>(exec, op, &memory.view(a), &memory.view(b), &mut memory.view_mut(y));
                }),
                Step::Compare { number, op, a, b, y } => with_number!(number, T => {
                    kernels::compare::<T>(exec, op, &memory.view(a), &memory.view(b), &mut memory.view_mut(y));
                }),
                Step::Select { unit, condition, a, b, y } => with_unit!(unit, T => {
                    let (a, b, mut y) = (memory.view(a), memory.view(b), memory.view_mut(y));
                    kernels::select::<T>(exec, &memory.view(condition), &a, &b, &mut y);
                }),
                Step::Copy { unit, x, y } => with_unit!(unit, T => {
                    kernels::copy::<T>(exec, &memory.view(x), &mut memory.view_mut(y));
                }),
                Step::Cast { from, to, x, y } => with_number!(from, S => with_number!(to, D => {
                    kernels::cast::<S, D>(exec, &memory.view(x), &mut memory.view_mut(y));
                })),
                Step::Gather { unit, index, axis, data, indices, y } => with_unit!(unit, T => with_index!(index, I => {
                    let (data, indices, mut y) = (memory.view(data), memory.view(indices), memory.view_mut(y));
                    kernels::gather::<T, I>(exec, &data, &indices, axis, &mut y)
                        .map_err(|error| HostError { message: error.to_string(), cause: Some(Box::new(error)) })?;
                })),
                Step::Host { ref call, ref inputs, ref outputs } => return run_host(&**call, inputs, outputs, memory),
            }
        }
        Ok(())
    }
}

fn run_host(
    call: &dyn HostCall,
    inputs: &[Option<Id>],
    outputs: &[Option<Id>],
    memory: Memory<'_>,
) -> Result<(), HostError> {
    let input = |id: Id| {
        let (operand, ptr) = memory.locate(id);
        HostInput { dtype: operand.dtype, ptr, layout: &operand.layout }
    };
    let output = |id: Id| {
        let (operand, ptr) = memory.locate(id);
        HostOutput { dtype: operand.dtype, ptr, layout: &operand.layout }
    };
    let inputs: Vec<_> = inputs.iter().map(|&id| id.map(input)).collect();
    let mut outputs: Vec<_> = outputs.iter().map(|&id| id.map(output)).collect();
    call.call(&inputs, &mut outputs)
}

/// The same function with its parameters in another type.
fn convert<S: Copy, T>(op: Unary<S>, to: impl Fn(S) -> T) -> Unary<T> {
    match op {
        Unary::Relu => Unary::Relu,
        Unary::LeakyRelu(alpha) => Unary::LeakyRelu(to(alpha)),
        Unary::Elu(alpha) => Unary::Elu(to(alpha)),
        Unary::Sigmoid => Unary::Sigmoid,
        Unary::HardSigmoid(alpha, beta) => Unary::HardSigmoid(to(alpha), to(beta)),
        Unary::Tanh => Unary::Tanh,
        Unary::Erf => Unary::Erf,
        Unary::Gelu => Unary::Gelu,
        Unary::GeluTanh => Unary::GeluTanh,
        Unary::Silu => Unary::Silu,
        Unary::Softplus => Unary::Softplus,
        Unary::Exp => Unary::Exp,
        Unary::Log => Unary::Log,
        Unary::Sqrt => Unary::Sqrt,
        Unary::Reciprocal => Unary::Reciprocal,
        Unary::Neg => Unary::Neg,
        Unary::Abs => Unary::Abs,
        Unary::Floor => Unary::Floor,
        Unary::Ceil => Unary::Ceil,
        Unary::Round => Unary::Round,
        Unary::Sign => Unary::Sign,
        Unary::Sin => Unary::Sin,
        Unary::Cos => Unary::Cos,
        Unary::Clip { min, max } => Unary::Clip { min: to(min), max: to(max) },
    }
}
