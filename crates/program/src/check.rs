//! The rules of each kind of step: how many operands, of which types and shapes.

use crate::description::{Operation, StepSpec};
use crate::dtype::Dtype;
use crate::element::{Arithmetic, Float, Index, Number};
use crate::step::{Attention, Id, LayerNorm, Step};
use crate::value::Value;

/// Checks the operands of a step by themselves and returns the kernel call it stands for.
pub(crate) fn resolve(spec: &StepSpec, values: &[Value]) -> Result<Step, String> {
    let operands = Operands { kind: spec.operation.kind(), values, inputs: &spec.inputs, outputs: &spec.outputs };
    for &id in spec.inputs.iter().chain(&spec.outputs).flatten() {
        if id >= values.len() {
            return Err(format!("refers to value {id}, but there are {}", values.len()));
        }
    }
    for &id in spec.outputs.iter().flatten() {
        if !values[id].is_injective() {
            return Err(format!(
                "writes value {id}, whose strides {:?} reach some element of shape {:?} more than once",
                values[id].layout.strides(),
                values[id].dims()
            ));
        }
    }
    let step = operands.resolve(&spec.operation)?;
    let empty = |id: &Option<Id>| id.is_none_or(|id| values[id].layout.is_empty());
    let nothing = !matches!(step, Step::Host { .. }) && spec.outputs.iter().all(empty);
    Ok(if nothing { Step::Nothing } else { step })
}

/// The operands of one step.
struct Operands<'a> {
    kind: &'static str,
    values: &'a [Value],
    inputs: &'a [Option<Id>],
    outputs: &'a [Option<Id>],
}

impl Operands<'_> {
    fn resolve(&self, operation: &Operation) -> Result<Step, String> {
        match *operation {
            Operation::Matmul { alpha, beta } => self.matmul(alpha, beta),
            Operation::Attention { alpha, beta } => self.attention(alpha, beta),
            Operation::Softmax { axis, log } => {
                let (x, y) = self.one_to_one()?;
                self.axis(axis, x)?;
                Ok(Step::Softmax { float: self.float(&[x, y])?, axis, log, x, y })
            }
            Operation::LayerNorm { axis, epsilon } => self.layer_norm(axis, epsilon),
            Operation::Reduce { op, ref axes } => {
                self.counts(1..=1, 1..=1)?;
                let (x, y) = (self.input(0)?, self.output(0)?);
                let mut mask = 0;
                let mut expected = self.values[x].dims().to_vec();
                for &axis in axes {
                    self.axis(axis, x)?;
                    mask |= 1 << axis;
                    expected[axis] = 1;
                }
                self.shape(y, &expected)?;
                Ok(Step::Reduce { float: self.float(&[x, y])?, op, axes: mask, x, y })
            }
            Operation::Unary(op) => {
                let (x, y) = self.one_to_one()?;
                Ok(Step::Unary { float: self.float(&[x, y])?, op, x, y })
            }
            Operation::Binary(op) => {
                let (a, b, y) = self.two_to_one()?;
                let arithmetic = self.family(&[a, b, y], Arithmetic::of, Arithmetic::NAMES)?;
                Ok(Step::Binary { arithmetic, op, a, b, y })
            }
            Operation::Compare(op) => {
                let (a, b, y) = self.two_to_one()?;
                self.dtype(y, Dtype::Bool)?;
                Ok(Step::Compare { number: self.family(&[a, b], Number::of, Number::NAMES)?, op, a, b, y })
            }
            Operation::Select => {
                self.counts(3..=3, 1..=1)?;
                let (condition, a, b, y) = (self.input(0)?, self.input(1)?, self.input(2)?, self.output(0)?);
                [condition, a, b].into_iter().try_for_each(|id| self.shape(id, self.values[y].dims()))?;
                self.dtype(condition, Dtype::Bool)?;
                Ok(Step::Select { unit: self.same(&[a, b, y])?.unit(), condition, a, b, y })
            }
            Operation::Copy => {
                let (x, y) = self.one_to_one()?;
                Ok(Step::Copy { unit: self.same(&[x, y])?.unit(), x, y })
            }
            Operation::Cast => {
                let (x, y) = self.one_to_one()?;
                if self.values[x].dtype == self.values[y].dtype {
                    return Ok(Step::Copy { unit: self.values[x].dtype.unit(), x, y });
                }
                let from = self.family(&[x], Number::of, Number::NAMES)?;
                Ok(Step::Cast { from, to: self.family(&[y], Number::of, Number::NAMES)?, x, y })
            }
            Operation::Gather { axis } => self.gather(axis),
            Operation::Host(ref call) => {
                Ok(Step::Host { call: call.clone(), inputs: self.inputs.into(), outputs: self.outputs.into() })
            }
        }
    }

    fn matmul(&self, alpha: f64, beta: f64) -> Result<Step, String> {
        self.counts(2..=3, 1..=1)?;
        let (a, b, bias, y) = (self.input(0)?, self.input(1)?, self.optional_input(2), self.output(0)?);
        let (left, right, product) = (self.values[a].dims(), self.values[b].dims(), self.values[y].dims());
        let rank = product.len();
        let fits = rank >= 2 && left.len() == rank && right.len() == rank && {
            let lead = rank - 2;
            left[..lead] == product[..lead]
                && right[..lead] == product[..lead]
                && left[lead] == product[lead]
                && left[lead + 1] == right[lead]
                && right[lead + 1] == product[lead + 1]
        };
        if !fits {
            return Err(format!(
                "takes [batch.., m, k] and [batch.., k, n] to [batch.., m, n], but the shapes are {left:?}, {right:?} \
                 and {product:?}"
            ));
        }
        bias.map_or(Ok(()), |bias| self.shape(bias, product))?;
        let float = self.float(&[Some(a), Some(b), bias, Some(y)].into_iter().flatten().collect::<Vec<_>>())?;
        Ok(Step::Matmul { float, alpha, beta, a, b, bias, y })
    }

    fn attention(&self, alpha: f64, beta: f64) -> Result<Step, String> {
        self.counts(3..=4, 1..=1)?;
        let (a, b, d) = (self.input(0)?, self.input(1)?, self.input(2)?);
        let (bias, y) = (self.optional_input(3), self.output(0)?);
        let [left, right, values, result] = [a, b, d, y].map(|id| self.values[id].dims());
        let rank = result.len();
        let fits = rank >= 2 && [left, right, values].iter().all(|dims| dims.len() == rank) && {
            let lead = rank - 2;
            [left, right, values].iter().all(|dims| dims[..lead] == result[..lead])
                && left[lead] == result[lead]
                && left[lead + 1] == right[lead]
                && right[lead + 1] == values[lead]
                && values[lead + 1] == result[lead + 1]
        };
        if !fits {
            return Err(format!(
                "takes [batch.., m, k], [batch.., k, n] and [batch.., n, p] to [batch.., m, p], but the shapes are {left:?}, \
                 {right:?}, {values:?} and {result:?}"
            ));
        }
        let weights = [&left[..rank - 1], &right[rank - 1..]].concat();
        bias.map_or(Ok(()), |bias| self.shape(bias, &weights))?;
        let all = [Some(a), Some(b), Some(d), bias, Some(y)];
        let float = self.float(&all.into_iter().flatten().collect::<Vec<_>>())?;
        Ok(Step::Attention(Box::new(Attention { float, alpha, beta, a, b, d, bias, y })))
    }

    fn layer_norm(&self, axis: usize, epsilon: f64) -> Result<Step, String> {
        self.counts(2..=3, 1..=3)?;
        let (x, scale, bias) = (self.input(0)?, self.input(1)?, self.optional_input(2));
        let (y, mean, inv_std) = (self.output(0)?, self.optional_output(1), self.optional_output(2));
        self.axis(axis, x)?;
        let dims = self.values[x].dims();
        let mut reduced = dims.to_vec();
        reduced[axis..].fill(1);
        [Some(scale), bias, Some(y)].into_iter().flatten().try_for_each(|id| self.shape(id, dims))?;
        [mean, inv_std].into_iter().flatten().try_for_each(|id| self.shape(id, &reduced))?;
        let all = [Some(x), Some(scale), bias, Some(y), mean, inv_std];
        let float = self.float(&all.into_iter().flatten().collect::<Vec<_>>())?;
        Ok(Step::LayerNorm(Box::new(LayerNorm { float, axis, epsilon, x, scale, bias, y, mean, inv_std })))
    }

    fn gather(&self, axis: usize) -> Result<Step, String> {
        self.counts(2..=2, 1..=1)?;
        let (data, indices, y) = (self.input(0)?, self.input(1)?, self.output(0)?);
        self.axis(axis, data)?;
        let dims = self.values[data].dims();
        let expected = [&dims[..axis], self.values[indices].dims(), &dims[axis + 1..]].concat();
        self.shape(y, &expected)?;
        let index = self.family(&[indices], Index::of, Index::NAMES)?;
        Ok(Step::Gather { unit: self.same(&[data, y])?.unit(), index, axis, data, indices, y })
    }

    /// One input and one output of the same shape.
    fn one_to_one(&self) -> Result<(Id, Id), String> {
        self.counts(1..=1, 1..=1)?;
        let (x, y) = (self.input(0)?, self.output(0)?);
        self.shape(x, self.values[y].dims())?;
        Ok((x, y))
    }

    /// Two inputs and one output of the same shape.
    fn two_to_one(&self) -> Result<(Id, Id, Id), String> {
        self.counts(2..=2, 1..=1)?;
        let (a, b, y) = (self.input(0)?, self.input(1)?, self.output(0)?);
        [a, b].into_iter().try_for_each(|id| self.shape(id, self.values[y].dims()))?;
        Ok((a, b, y))
    }

    fn counts(
        &self,
        inputs: std::ops::RangeInclusive<usize>,
        outputs: std::ops::RangeInclusive<usize>,
    ) -> Result<(), String> {
        for (what, allowed, given) in [("inputs", inputs, self.inputs), ("outputs", outputs, self.outputs)] {
            if !allowed.contains(&given.len()) {
                let (least, most) = (allowed.start(), allowed.end());
                let wanted = if least == most { most.to_string() } else { format!("{least} to {most}") };
                return Err(format!("has {} {what}, but {} takes {wanted}", given.len(), self.kind));
            }
        }
        Ok(())
    }

    fn input(&self, at: usize) -> Result<Id, String> {
        self.optional_input(at).ok_or_else(|| format!("lacks input {at}, which {} needs", self.kind))
    }

    fn optional_input(&self, at: usize) -> Option<Id> {
        self.inputs.get(at).copied().flatten()
    }

    fn output(&self, at: usize) -> Result<Id, String> {
        self.optional_output(at).ok_or_else(|| format!("lacks output {at}, which {} needs", self.kind))
    }

    fn optional_output(&self, at: usize) -> Option<Id> {
        self.outputs.get(at).copied().flatten()
    }

    fn axis(&self, axis: usize, id: Id) -> Result<(), String> {
        let rank = self.values[id].layout.rank();
        if axis < rank {
            Ok(())
        } else {
            Err(format!("names axis {axis}, but value {id} has {rank} axes"))
        }
    }

    fn shape(&self, id: Id, expected: &[usize]) -> Result<(), String> {
        let dims = self.values[id].dims();
        if dims == expected {
            Ok(())
        } else {
            Err(format!("needs value {id} to have the shape {expected:?}, not {dims:?}"))
        }
    }

    fn dtype(&self, id: Id, expected: Dtype) -> Result<(), String> {
        let dtype = self.values[id].dtype;
        if dtype == expected {
            Ok(())
        } else {
            Err(format!("needs value {id} to be {expected}, not {dtype}"))
        }
    }

    /// The type that all of `ids` have.
    fn same(&self, ids: &[Id]) -> Result<Dtype, String> {
        let dtype = self.values[ids[0]].dtype;
        ids.iter().try_for_each(|&id| self.dtype(id, dtype))?;
        Ok(dtype)
    }

    fn family<F>(&self, ids: &[Id], of: impl Fn(Dtype) -> Option<F>, names: &str) -> Result<F, String> {
        let dtype = self.same(ids)?;
        of(dtype).ok_or_else(|| format!("takes {names}, but value {} is {dtype}", ids[0]))
    }

    fn float(&self, ids: &[Id]) -> Result<Float, String> {
        self.family(ids, Float::of, Float::NAMES)
    }
}
