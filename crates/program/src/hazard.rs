//! The rules between steps: nothing is read before it is written, nothing is written while it is read.

use std::collections::HashMap;
use std::ops::Range;

use crate::description::{Operation, Space, StepSpec};
use crate::step::Id;
use crate::value::Value;
use crate::written::Written;

/// The most separate byte ranges that are followed for one value; a value with more of them counts as never written.
const MOST_RUNS: usize = 1 << 25;

/// Follows the steps in order and knows what has been written.
pub(crate) struct Hazards<'a> {
    values: &'a [Value],
    written: HashMap<Space, Written>,
}

impl<'a> Hazards<'a> {
    pub(crate) fn new(values: &'a [Value]) -> Self {
        Hazards { values, written: HashMap::new() }
    }

    /// Checks one step, whose operands are valid by themselves, and notes what it writes.
    pub(crate) fn step(&mut self, spec: &StepSpec) -> Result<(), String> {
        let (inputs, outputs): (Vec<Id>, Vec<Id>) =
            (spec.inputs.iter().flatten().copied().collect(), spec.outputs.iter().flatten().copied().collect());
        for &id in &inputs {
            if !self.is_written(&self.values[id]) {
                return Err(format!("reads value {id} in {}, of which a part was not written before", self.space(id)));
            }
        }
        for (at, &id) in outputs.iter().enumerate() {
            if matches!(self.values[id].space, Space::Constant(_) | Space::Input(_)) {
                return Err(format!("writes value {id}, which lies in {}", self.space(id)));
            }
            if let Some(other) = outputs[..at].iter().find(|&&other| self.values[other].overlaps(&self.values[id])) {
                return Err(format!("writes values {other} and {id}, which overlap in {}", self.space(id)));
            }
        }
        self.aliasing(spec)?;
        for id in outputs {
            self.write(&self.values[id]);
        }
        Ok(())
    }

    /// Whether all of the first `bytes` bytes of `space` have been written.
    pub(crate) fn is_full(&self, space: Space, bytes: usize) -> bool {
        bytes == 0 || self.covers(space, 0..bytes)
    }

    /// An output may overlap an input only as the same elements of an element-wise step.
    fn aliasing(&self, spec: &StepSpec) -> Result<(), String> {
        for &output in spec.outputs.iter().flatten() {
            for (at, &input) in spec.inputs.iter().enumerate() {
                let Some(input) = input else { continue };
                let (read, write) = (&self.values[input], &self.values[output]);
                if read.overlaps(write) && !(works_in_place(&spec.operation, at) && read.is_same(write)) {
                    return Err(format!(
                        "writes value {output} over its input, value {input}, in {}; only an element-wise step may, and \
                         only over the same elements",
                        self.space(input)
                    ));
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, value: &Value) {
        let written = self.written.entry(value.space).or_default();
        if !written.covers(value.span.clone()) {
            value.visit_runs(MOST_RUNS, |run| {
                written.insert(run);
                true
            });
        }
    }

    fn is_written(&self, value: &Value) -> bool {
        matches!(value.space, Space::Constant(_) | Space::Input(_))
            || value.span.is_empty()
            || self.covers(value.space, value.span.clone())
            || value.visit_runs(MOST_RUNS, |run| self.covers(value.space, run))
    }

    fn covers(&self, space: Space, range: Range<usize>) -> bool {
        self.written.get(&space).is_some_and(|written| written.covers(range))
    }

    fn space(&self, id: Id) -> Space {
        self.values[id].space
    }
}

/// Whether the kernel of `operation` allows its output to be its input number `at`.
fn works_in_place(operation: &Operation, at: usize) -> bool {
    match operation {
        Operation::Unary(_) | Operation::Binary(_) => true,
        Operation::Select => at > 0,
        _ => false,
    }
}
