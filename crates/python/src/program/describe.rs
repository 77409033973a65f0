//! From the lists and tuples of Python to a description.

use std::sync::Arc;

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use threadteam_kernels::{Binary, Compare, Reduction, Unary};
use threadteam_program::{Constant, Dtype, Operation, Port, Space, StepSpec, ValueSpec};

use super::arrays::{dtype_of, Raw};
use super::host::PythonCall;
use crate::collectable::Collectable;

/// `(space, index, offset_bytes, dtype, shape, strides)`.
pub(super) fn value(number: usize, described: &Bound<'_, PyAny>) -> PyResult<ValueSpec> {
    let what = || format!("value {number}");
    let (space, index, offset, dtype, dims, strides): (String, usize, usize, String, Vec<usize>, Vec<isize>) =
        described.extract().map_err(|error| inside(described.py(), what(), error))?;
    let space = match space.as_str() {
        "arena" => Space::Arena,
        "input" => Space::Input(index),
        "output" => Space::Output(index),
        "const" => Space::Constant(index),
        other => {
            return Err(PyValueError::new_err(format!(
                "{} lies in {other:?}, but arena, input, output or const is expected",
                what()
            )))
        }
    };
    Ok(ValueSpec { space, offset, dtype: self::dtype(&what(), &dtype)?, dims, strides })
}

/// `(name, dtype, shape)`.
pub(super) fn port(what: &str, number: usize, described: &Bound<'_, PyAny>) -> PyResult<Port> {
    let what = format!("{what} {number}");
    let (name, dtype, dims): (String, String, Vec<usize>) =
        described.extract().map_err(|error| inside(described.py(), what.clone(), error))?;
    Ok(Port { name, dtype: self::dtype(&what, &dtype)?, dims })
}

/// A C-contiguous array, kept alive by the constant, and its addresses.
pub(super) fn constant(number: usize, object: &Bound<'_, PyAny>) -> PyResult<(Constant, std::ops::Range<usize>)> {
    let Ok(array) = object.cast::<PyUntypedArray>() else {
        let given = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("constant {number} is a {given}, but a numpy.ndarray is expected")));
    };
    let Some(dtype) = dtype_of(&array.dtype())? else {
        let given = array.dtype().str()?;
        return Err(PyTypeError::new_err(format!("constant {number} is {given}, which no step takes")));
    };
    let raw = Raw::of(array, dtype.size());
    if !raw.is_plain(dtype.alignment()) {
        return Err(PyValueError::new_err(format!(
            "constant {number} is not C-contiguous and aligned; numpy.require(array, requirements='CA') makes it so"
        )));
    }
    let owner = Box::new(array.clone().unbind());
    // SAFETY: the array keeps its elements alive and in place, and `owner` the array. Python code that writes to a
    // constant changes what later runs compute, as with any array that is shared.
    Ok((unsafe { Constant::from_raw(dtype, raw.data, raw.bytes, owner) }, raw.span()))
}

/// `(kind, ins, outs, attrs, label)`; the functions of Python steps are added to `calls`.
pub(super) fn step(
    number: usize,
    described: &Bound<'_, PyAny>,
    calls: &mut Vec<Arc<PythonCall>>,
) -> PyResult<StepSpec> {
    let py = described.py();
    let (kind, inputs, outputs, attributes, label): (String, Vec<i64>, Vec<i64>, Option<Bound<'_, PyDict>>, String) =
        described.extract().map_err(|error| inside(py, format!("step {number}"), error))?;
    let what = format!("step {number} ({label})");
    let mut attributes = Attributes { what: &what, kind: &kind, given: attributes, taken: 0 };
    let operation = operation(&mut attributes, calls)?;
    attributes.finish()?;
    let operands = |ids: Vec<i64>| {
        let operand = |id: i64| match usize::try_from(id) {
            Ok(id) => Ok(Some(id)),
            Err(_) if id == -1 => Ok(None),
            Err(_) => Err(PyValueError::new_err(format!("{what} refers to value {id}; an absent one is -1"))),
        };
        ids.into_iter().map(operand).collect::<PyResult<Vec<_>>>()
    };
    Ok(StepSpec { operation, inputs: operands(inputs)?, outputs: operands(outputs)?, label: label.clone() })
}

fn operation(attributes: &mut Attributes<'_, '_>, calls: &mut Vec<Arc<PythonCall>>) -> PyResult<Operation> {
    Ok(match attributes.kind {
        "matmul" => Operation::Matmul { alpha: attributes.take("alpha")?, beta: attributes.take("beta")? },
        "attention" => Operation::Attention { alpha: attributes.take("alpha")?, beta: attributes.take("beta")? },
        "softmax" => Operation::Softmax { axis: attributes.take("axis")?, log: attributes.take("log")? },
        "layer_norm" => Operation::LayerNorm { axis: attributes.take("axis")?, epsilon: attributes.take("epsilon")? },
        "reduce" => Operation::Reduce { op: attributes.op(reduction)?, axes: attributes.take("axes")? },
        "unary" => {
            let parameters: Vec<f64> = attributes.take_or("params", Vec::new)?;
            let name: String = attributes.take("op")?;
            let op = unary(&name, &parameters).map_err(|why| attributes.refuse(&why))?;
            Operation::Unary(op)
        }
        "binary" => Operation::Binary(attributes.op(binary)?),
        "compare" => Operation::Compare(attributes.op(compare)?),
        "select" => Operation::Select,
        "copy" => Operation::Copy,
        "cast" => Operation::Cast,
        "gather" => Operation::Gather { axis: attributes.take("axis")? },
        "python" => {
            let function: Bound<'_, PyAny> = attributes.take("call")?;
            if !function.is_callable() {
                return Err(PyTypeError::new_err(format!("{}: 'call' is not callable", attributes.what)));
            }
            let call = Arc::new(PythonCall { function: Collectable::new(function.unbind()) });
            calls.push(call.clone());
            Operation::Host(call)
        }
        other => return Err(attributes.refuse(&format!("is of the kind {other:?}, which does not exist"))),
    })
}

/// The attributes of one step, each taken once.
struct Attributes<'a, 'py> {
    what: &'a str,
    kind: &'a str,
    given: Option<Bound<'py, PyDict>>,
    taken: usize,
}

impl<'py> Attributes<'_, 'py> {
    fn find<T>(&mut self, name: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        let Some(given) = &self.given else { return Ok(None) };
        let Some(value) = given.get_item(name)? else { return Ok(None) };
        self.taken += 1;
        let value = value.extract().map_err(|error: <T as FromPyObject<'_, 'py>>::Error| {
            inside(value.py(), format!("{} attribute {name:?}", self.what), error.into())
        })?;
        Ok(Some(value))
    }

    fn take<T>(&mut self, name: &str) -> PyResult<T>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        let found = self.find(name)?;
        found.ok_or_else(|| {
            PyKeyError::new_err(format!("{} lacks the attribute {name:?}, which {} needs", self.what, self.kind))
        })
    }

    fn take_or<T>(&mut self, name: &str, default: impl FnOnce() -> T) -> PyResult<T>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        Ok(self.find(name)?.unwrap_or_else(default))
    }

    fn op<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> PyResult<T> {
        let name: String = self.take("op")?;
        parse(&name).ok_or_else(|| self.refuse(&unknown(self.kind, &name)))
    }

    fn refuse(&self, why: &str) -> PyErr {
        PyValueError::new_err(format!("{} {why}", self.what))
    }

    /// Refuses attributes that nothing took.
    fn finish(&self) -> PyResult<()> {
        let Some(given) = &self.given else { return Ok(()) };
        if given.len() == self.taken {
            return Ok(());
        }
        let names = given.keys().str()?;
        Err(self.refuse(&format!("has attributes that {} does not take among {names}", self.kind)))
    }
}

fn unknown(kind: &str, name: &str) -> String {
    format!("names the {kind} operation {name:?}, which does not exist")
}

fn dtype(what: &str, name: &str) -> PyResult<Dtype> {
    Dtype::from_name(name).ok_or_else(|| {
        let known = Dtype::ALL.map(Dtype::name).join(", ");
        PyValueError::new_err(format!("{what} is of the type {name:?}, but one of {known} is expected"))
    })
}

fn reduction(name: &str) -> Option<Reduction> {
    Some(match name {
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        "max" => Reduction::Max,
        "min" => Reduction::Min,
        "prod" => Reduction::Prod,
        "sum_square" => Reduction::SumSquare,
        "l1" => Reduction::L1,
        "l2" => Reduction::L2,
        "log_sum" => Reduction::LogSum,
        "log_sum_exp" => Reduction::LogSumExp,
        _ => return None,
    })
}

fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        "add" => Binary::Add,
        "sub" => Binary::Sub,
        "mul" => Binary::Mul,
        "div" => Binary::Div,
        "pow" => Binary::Pow,
        "max" => Binary::Max,
        "min" => Binary::Min,
        _ => return None,
    })
}

fn compare(name: &str) -> Option<Compare> {
    Some(match name {
        "equal" => Compare::Equal,
        "less" => Compare::Less,
        "less_or_equal" => Compare::LessOrEqual,
        "greater" => Compare::Greater,
        "greater_or_equal" => Compare::GreaterOrEqual,
        _ => return None,
    })
}

fn unary(name: &str, parameters: &[f64]) -> Result<Unary<f64>, String> {
    let wanted = match name {
        "leaky_relu" | "elu" => 1,
        "hard_sigmoid" | "clip" => 2,
        _ => 0,
    };
    Ok(match (name, parameters) {
        ("leaky_relu", &[alpha]) => Unary::LeakyRelu(alpha),
        ("elu", &[alpha]) => Unary::Elu(alpha),
        ("hard_sigmoid", &[alpha, beta]) => Unary::HardSigmoid(alpha, beta),
        ("clip", &[min, max]) => Unary::Clip { min, max },
        ("relu", []) => Unary::Relu,
        ("sigmoid", []) => Unary::Sigmoid,
        ("tanh", []) => Unary::Tanh,
        ("erf", []) => Unary::Erf,
        ("gelu", []) => Unary::Gelu,
        ("gelu_tanh", []) => Unary::GeluTanh,
        ("silu", []) => Unary::Silu,
        ("softplus", []) => Unary::Softplus,
        ("exp", []) => Unary::Exp,
        ("log", []) => Unary::Log,
        ("sqrt", []) => Unary::Sqrt,
        ("reciprocal", []) => Unary::Reciprocal,
        ("neg", []) => Unary::Neg,
        ("abs", []) => Unary::Abs,
        ("floor", []) => Unary::Floor,
        ("ceil", []) => Unary::Ceil,
        ("round", []) => Unary::Round,
        ("sign", []) => Unary::Sign,
        ("sin", []) => Unary::Sin,
        ("cos", []) => Unary::Cos,
        _ if parameters.len() != wanted => {
            return Err(format!("gives {} params to {name:?}, which takes {wanted}", parameters.len()))
        }
        _ => return Err(unknown("unary", name)),
    })
}

/// The same kind of exception, its message preceded by what it is about.
fn inside(py: Python<'_>, what: String, error: PyErr) -> PyErr {
    let message = PyString::new(py, &format!("{what}: {}", error.value(py)));
    PyErr::from_type(error.get_type(py), (message.unbind(),))
}
