//! A short way to write descriptions.
#![allow(dead_code)] // each test binary uses a part

use threadteam_program::{Constant, Description, Dtype, Element, Operation, Port, Space, StepSpec, ValueSpec};

/// Row-major strides.
pub fn dense(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis].max(1) as isize;
    }
    strides
}

/// A description under construction; arena values are placed one behind the other.
#[derive(Default)]
pub struct Builder(pub Description);

impl Builder {
    pub fn input(&mut self, dtype: Dtype, dims: &[usize]) -> usize {
        let index = self.0.inputs.len();
        self.0.inputs.push(Port { name: format!("x{index}"), dtype, dims: dims.to_vec() });
        self.value(Space::Input(index), 0, dtype, dims, &dense(dims))
    }

    pub fn output(&mut self, dtype: Dtype, dims: &[usize]) -> usize {
        let index = self.0.outputs.len();
        self.0.outputs.push(Port { name: format!("y{index}"), dtype, dims: dims.to_vec() });
        self.value(Space::Output(index), 0, dtype, dims, &dense(dims))
    }

    pub fn constant<T: Element>(&mut self, data: Vec<T>, dims: &[usize]) -> usize {
        self.0.constants.push(Constant::from_vec(data));
        self.value(Space::Constant(self.0.constants.len() - 1), 0, T::DTYPE, dims, &dense(dims))
    }

    pub fn arena(&mut self, dtype: Dtype, dims: &[usize]) -> usize {
        let offset = self.0.arena_bytes;
        self.0.arena_bytes += (dims.iter().product::<usize>() * dtype.size()).next_multiple_of(64);
        self.value(Space::Arena, offset, dtype, dims, &dense(dims))
    }

    pub fn value(&mut self, space: Space, offset: usize, dtype: Dtype, dims: &[usize], strides: &[isize]) -> usize {
        self.0.values.push(ValueSpec { space, offset, dtype, dims: dims.to_vec(), strides: strides.to_vec() });
        self.0.values.len() - 1
    }

    pub fn step(&mut self, operation: Operation, inputs: &[usize], outputs: &[usize]) {
        let optional = |ids: &[usize]| ids.iter().map(|&id| (id != ABSENT).then_some(id)).collect();
        let label = format!("node{}", self.0.steps.len());
        self.0.steps.push(StepSpec { operation, inputs: optional(inputs), outputs: optional(outputs), label });
    }
}

/// An optional operand that is not there.
pub const ABSENT: usize = usize::MAX;
