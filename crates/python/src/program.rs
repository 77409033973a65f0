//! `threadteam._native.Program`: a checked list of kernel steps that runs on a token.

mod arrays;
mod describe;
mod host;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySequence, PyTuple};
use threadteam::{Exec, ForkLock};
use threadteam_program::{Buffer, Cause, Description, Program, RunContext, RunError, StepError, StepTime};

use crate::arguments;
use crate::attach::{self, attached};
use crate::ending::{self, Watched};
use crate::errors;
use crate::flow::led_section_stopped;
use crate::on::with_exec;
use crate::pending;
use arrays::ArrayPort;
use host::PythonCall;

/// How often a run looks for signals: a tenth of what a person notices, and nothing next to the work between.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// A flag that ends runs of programs before their next step.
///
/// Examples
/// --------
/// >>> from threadteam import _native
/// >>> flag = _native.CancelFlag()
/// >>> flag.set()
/// >>> flag.is_set()
/// True
#[pyclass(name = "CancelFlag", module = "threadteam._native", frozen)]
pub(crate) struct PyCancelFlag {
    flag: AtomicBool,
}

#[pymethods]
impl PyCancelFlag {
    #[new]
    fn new() -> Self {
        PyCancelFlag { flag: AtomicBool::new(false) }
    }

    /// Ends the runs that were given this flag before their next step.
    fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Lets runs that are given this flag go on.
    fn clear(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

/// An immutable list of kernel steps over planned memory, checked when it is made.
///
/// Parameters
/// ----------
/// values : sequence of (space, index, offset, dtype, shape, strides)
///     The tensors that steps refer to by number: in space ``"arena"``, ``"input"``, ``"output"`` or ``"const"`` of this
///     index, `offset` bytes from its start to the element at index zero, `strides` in elements (zero broadcasts).
/// constants : sequence of ndarray
///     C-contiguous, kept alive, and not to be written while the program lives.
/// inputs, outputs : sequence of (name, dtype, shape)
///     What a run takes and gives, C-contiguous.
/// steps : sequence of (kind, ins, outs, attrs, label)
///     ``"matmul"`` {alpha, beta}, ``"attention"`` {alpha, beta}, ``"softmax"`` {axis, log}, ``"layer_norm"`` {axis,
///     epsilon}, ``"reduce"`` {op, axes}, ``"unary"`` {op, params}, ``"binary"`` {op}, ``"compare"`` {op}, ``"select"``, ``"copy"``, ``"cast"``,
///     ``"gather"`` {axis}, ``"python"`` {call}. `ins` and `outs` are value numbers; -1 is an absent optional operand.
/// arena_bytes : int
///     Scratch memory of one run in flight.
///
/// Raises
/// ------
/// ValueError, TypeError, OverflowError, KeyError
///     What is wrong first, in one sentence that names the step or value.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from threadteam import _native
/// >>> x = ("input", 0, 0, "float32", (2, 3), (3, 1))
/// >>> transposed = ("input", 0, 0, "float32", (3, 2), (1, 3))
/// >>> y = ("output", 0, 0, "float32", (3, 2), (2, 1))
/// >>> program = _native.Program(
/// ...     [x, transposed, y], [], [("x", "float32", (2, 3))], [("y", "float32", (3, 2))],
/// ...     [("unary", [1], [2], {"op": "neg"}, "Neg of a transpose")], 0,
/// ... )
/// >>> program.run([np.arange(6, dtype=np.float32).reshape(2, 3)])
/// [array([[-0., -3.],
///        [-1., -4.],
///        [-2., -5.]], dtype=float32)]
#[pyclass(name = "Program", module = "threadteam._native", frozen)]
pub(crate) struct PyProgram {
    program: Program,
    inputs: Vec<ArrayPort>,
    outputs: Vec<ArrayPort>,
    /// The addresses of the constants, which outputs must lie apart from.
    constants: Vec<std::ops::Range<usize>>,
    /// The functions of Python steps, for the garbage collector.
    calls: Vec<Arc<PythonCall>>,
    /// When each step of the last profiled run began and ended.
    profile: ForkLock<Vec<StepTime>>,
}

impl Drop for PyProgram {
    fn drop(&mut self) {
        // Whatever thread drops it may run a finaliser of what the constants are arrays of.
        ending::watch();
    }
}

#[pymethods]
impl PyProgram {
    #[new]
    fn new(
        py: Python<'_>,
        values: Watched<Vec<Bound<'_, PyAny>>>,
        constants: Watched<Vec<Bound<'_, PyAny>>>,
        inputs: Watched<Vec<Bound<'_, PyAny>>>,
        outputs: Watched<Vec<Bound<'_, PyAny>>>,
        steps: Watched<Vec<Bound<'_, PyAny>>>,
        arena_bytes: Watched<usize>,
    ) -> PyResult<Self> {
        let (Watched(values), Watched(constants), Watched(steps)) = (values, constants, steps);
        let (Watched(inputs), Watched(outputs), Watched(arena_bytes)) = (inputs, outputs, arena_bytes);
        let each = |what: &'static str, ports: Vec<Bound<'_, PyAny>>| {
            let parse = |(number, port): (usize, &Bound<'_, PyAny>)| describe::port(what, number, port);
            ports.iter().enumerate().map(parse).collect::<PyResult<Vec<_>>>()
        };
        let mut calls = Vec::new();
        let (constants, addresses) = constants
            .iter()
            .enumerate()
            .map(|(number, constant)| describe::constant(number, constant))
            .collect::<PyResult<(Vec<_>, Vec<_>)>>()?;
        let description = Description {
            values: values.iter().enumerate().map(|(n, value)| describe::value(n, value)).collect::<PyResult<_>>()?,
            constants,
            inputs: each("input", inputs)?,
            outputs: each("output", outputs)?,
            steps: steps
                .iter()
                .enumerate()
                .map(|(number, step)| describe::step(number, step, &mut calls))
                .collect::<PyResult<_>>()?,
            arena_bytes,
        };
        let program = Program::new(description).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let array_port = |what, port: &threadteam_program::Port| {
            ArrayPort::new(py, what, port.name.clone(), port.dtype, port.dims.clone())
        };
        Ok(PyProgram {
            inputs: program.inputs().map(|port| array_port("input", port)).collect::<PyResult<_>>()?,
            outputs: program.outputs().map(|port| array_port("output", port)).collect::<PyResult<_>>()?,
            constants: addresses,
            calls,
            profile: ForkLock::new(Vec::new()),
            program,
        })
    }

    /// Run every step in order and return the outputs.
    ///
    /// Parameters
    /// ----------
    /// inputs : list of ndarray
    ///     C-contiguous, of the declared types and shapes.
    /// outputs : list of ndarray or None, optional
    ///     Arrays to fill, apart from all other memory of the run; None makes new ones.
    /// on : Pool, Team, Exec or TeamExec, optional
    ///     What the steps run on; None is the calling thread.
    /// profile : bool
    ///     Keep when each step began and ended.
    /// cancelled : CancelFlag, optional
    ///     Ends the run before its next step.
    ///
    /// Returns
    /// -------
    /// list of ndarray
    ///     The outputs.
    ///
    /// Raises
    /// ------
    /// threadteam.errors.StepError, threadteam.errors.RunCancelled
    ///     With the number and label of the step. What a Python step raises is raised as it is, with a note.
    #[pyo3(signature = (inputs, outputs=None, on=None, profile=false, cancelled=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        on: Option<&Bound<'py, PyAny>>,
        profile: bool,
        cancelled: Option<&Bound<'py, PyCancelFlag>>,
    ) -> PyResult<Bound<'py, PyList>> {
        ending::watch();
        let inputs = items("inputs", inputs, self.inputs.len())?;
        let outputs = self.output_arrays(py, outputs)?;
        let (buffers, mut taken): (Vec<Buffer<'_>>, Vec<_>) =
            inputs.iter().zip(&self.inputs).map(|(array, port)| port.input(array)).collect::<PyResult<_>>()?;
        let mut results = Vec::with_capacity(outputs.len());
        for (array, port) in outputs.iter().zip(&self.outputs) {
            let (buffer, span) = port.output(array, taken.iter().chain(&self.constants).cloned())?;
            taken.push(span);
            results.push(buffer);
        }

        let mut times = Vec::new();
        let mut between = signals();
        let context = RunContext {
            cancelled: cancelled.map(|flag| &flag.get().flag),
            between: Some(&mut between),
            profile: profile.then_some(&mut times),
        };
        let run = |exec: Exec<'_>| self.program.run(exec, &buffers, &mut results, context);
        with_exec(py, on, run)?.map_err(|error| exception(py, error))?;
        if profile {
            *self.profile.lock() = times;
        }
        PyList::new(py, outputs)
    }

    /// Kind and label of every step.
    fn steps(&self) -> Vec<(&'static str, String)> {
        let name = |kind| if kind == "host" { "python" } else { kind };
        self.program.steps().map(|(kind, label)| (name(kind), label.to_string())).collect()
    }

    /// Scratch memory of one run in flight.
    #[getter]
    fn arena_bytes(&self) -> usize {
        self.program.arena_bytes()
    }

    /// Seconds in every step of the last profiled run.
    fn profile(&self) -> Vec<f64> {
        self.times(|time| (time.end - time.begin) as f64 * 1e-9)
    }

    /// When every step of the last profiled run began and ended, in nanoseconds since the run began.
    fn spans(&self) -> Vec<(u64, u64)> {
        self.times(|time| (time.begin, time.end))
    }

    /// Frees the scratch memory of finished runs.
    fn release_idle(&self) {
        self.program.release_idle();
    }

    fn __repr__(&self) -> String {
        let (steps, bytes) = (self.program.steps().len(), self.program.arena_bytes());
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        format!("<Program of {steps} steps, {inputs} inputs, {outputs} outputs, {bytes} bytes of arena>")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.calls.iter().try_for_each(|call| call.function.traverse(&visit))
    }

    fn __clear__(&self) {
        self.calls.iter().for_each(|call| call.function.clear());
    }
}

impl PyProgram {
    /// The arrays to fill: those given, and new ones where none is.
    fn output_arrays<'py>(
        &self,
        py: Python<'py>,
        given: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        match given {
            None => self.outputs.iter().map(|port| port.allocate(py)).collect(),
            Some(given) => {
                let mut arrays = items("outputs", given, self.outputs.len())?;
                for (array, port) in arrays.iter_mut().zip(&self.outputs) {
                    if array.is_none() {
                        *array = port.allocate(py)?;
                    }
                }
                Ok(arrays)
            }
        }
    }

    fn times<T>(&self, of: impl Fn(&StepTime) -> T) -> Vec<T> {
        self.profile.lock().iter().map(of).collect()
    }
}

/// The objects of a sequence of `expected` ones; lists and tuples cost least.
fn items<'py>(what: &str, object: &Bound<'py, PyAny>, expected: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let items: Vec<_> = if let Ok(list) = object.cast::<PyList>() {
        list.iter().collect()
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        tuple.iter().collect()
    } else if let Ok(sequence) = object.cast::<PySequence>() {
        arguments::items(sequence, what)?.into_iter().map(|item| item.into_bound(object.py())).collect()
    } else {
        let given = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{what} is a {given}, but a list is expected")));
    };
    if items.len() == expected {
        Ok(items)
    } else {
        Err(PyValueError::new_err(format!("the program takes {expected} {what}, but {} were given", items.len())))
    }
}

/// A function that ends the run when its section is being dropped, and lets Python handle its signals, at most once an
/// interval.
fn signals() -> impl FnMut() -> Result<(), Cause> + Send {
    let mut last: Option<Instant> = None;
    move || {
        if led_section_stopped() {
            // The section raises what stopped it in place of this.
            return Err("the section around the run failed, so the steps not started were dropped".into());
        }
        let now = Instant::now();
        if now.duration_since(*last.get_or_insert(now)) < SIGNAL_INTERVAL {
            return Ok(());
        }
        last = Some(now);
        attached(pending::run).map_err(Cause::from)
    }
}

/// The exception that a failed run raises.
fn exception(py: Python<'_>, error: RunError) -> PyErr {
    match error {
        RunError::Arguments(message) => PyValueError::new_err(message),
        RunError::Memory(_) => PyMemoryError::new_err(error.to_string()),
        RunError::Cancelled { step, ref label } => raise(py, "RunCancelled", error.to_string(), step, label),
        RunError::Interrupted(cause) => match cause.downcast::<PyErr>() {
            Ok(error) => *error,
            Err(cause) => errors::raise(py, "Cancelled", cause.to_string()),
        },
        RunError::Step(error) => step_exception(py, error),
    }
}

/// What a Python step raised, with a note that says where; for a native step, `StepError`.
fn step_exception(py: Python<'_>, error: StepError) -> PyErr {
    let message = error.to_string();
    let StepError { step, label, cause, .. } = error;
    match cause.map(|cause| cause.downcast::<PyErr>()) {
        Some(Ok(raised)) => {
            let note = format!("raised in step {step} ({label})");
            match attach::call_method(raised.value(py).as_any(), "add_note", (note,)) {
                Ok(_) => *raised,
                Err(error) => error,
            }
        }
        _ => raise(py, "StepError", message, step, &label),
    }
}

/// An exception of `threadteam.errors` that names a step.
fn raise(py: Python<'_>, class: &str, message: String, step: usize, label: &str) -> PyErr {
    let make = || attach::call(&errors::class(py, class)?, &(message, step, label).into_pyobject(py)?);
    match make() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
