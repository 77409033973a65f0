//! Programs: descriptions that passed every check.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use threadteam::ForkLock;

use crate::buffer::is_aligned;
use crate::check;
use crate::description::{Description, Port, Space, ValueSpec};
use crate::error::DescriptionError;
use crate::frame::Frame;
use crate::hazard::Hazards;
use crate::step::{Operand, Step};
use crate::value::{byte_size, Value};
use crate::{Constant, RunError};

/// Programs made in this process, for their labels.
static PROGRAMS: AtomicU64 = AtomicU64::new(1);
/// Bits of a label that number the step.
const LABEL_BITS: u32 = 24;

/// An immutable list of kernel steps, ready to run from any number of threads at once.
pub struct Program {
    constants: Vec<Constant>,
    inputs: Vec<CheckedPort>,
    outputs: Vec<CheckedPort>,
    operands: Vec<Operand>,
    steps: Vec<NamedStep>,
    arena_bytes: usize,
    /// Which program of this process it is: the upper part of its labels.
    number: u64,
    /// Frames of finished runs; one more is made when a run finds none.
    frames: ForkLock<Vec<Frame>>,
}

/// A port and its size.
pub(crate) struct CheckedPort {
    pub(crate) port: Port,
    pub(crate) bytes: usize,
}

/// A step with what identifies it to people.
pub(crate) struct NamedStep {
    pub(crate) step: Step,
    pub(crate) kind: &'static str,
    pub(crate) label: Arc<str>,
}

impl Program {
    /// Checks `description`.
    ///
    /// # Errors
    ///
    /// [`DescriptionError`] with one sentence about the first thing that is wrong, naming the step at fault.
    pub fn new(description: Description) -> Result<Self, DescriptionError> {
        let Description { values, constants, inputs, outputs, steps, arena_bytes } = description;
        if arena_bytes > isize::MAX as usize / 2 {
            return Err(DescriptionError::new(format!("an arena of {arena_bytes} bytes exceeds the address space")));
        }
        for (index, constant) in constants.iter().enumerate() {
            if !is_aligned(constant.as_ptr(), constant.dtype()) {
                return Err(DescriptionError::new(format!(
                    "constant {index} lies at an address that is no multiple of {}, as {} needs",
                    constant.dtype().alignment(),
                    constant.dtype()
                )));
            }
        }
        let inputs = check_ports("input", inputs)?;
        let outputs = check_ports("output", outputs)?;

        let spaces = Spaces { constants: &constants, inputs: &inputs, outputs: &outputs, arena_bytes };
        let mut checked = Vec::with_capacity(values.len());
        for (id, spec) in values.iter().enumerate() {
            let value = spaces.check(spec).map_err(|message| {
                let user = steps.iter().position(|s| s.inputs.iter().chain(&s.outputs).any(|&used| used == Some(id)));
                let user = user.map_or(String::new(), |step| format!(" of step {step} ({})", steps[step].label));
                DescriptionError::new(format!("value {id}{user} {message}"))
            })?;
            checked.push(value);
        }

        let mut hazards = Hazards::new(&checked);
        let mut named = Vec::with_capacity(steps.len());
        for (number, spec) in steps.iter().enumerate() {
            let step = check::resolve(spec, &checked)
                .and_then(|step| hazards.step(spec).map(|()| step))
                .map_err(|message| DescriptionError::new(format!("step {number} ({}) {message}", spec.label)))?;
            named.push(NamedStep { step, kind: spec.operation.kind(), label: spec.label.as_str().into() });
        }
        for (index, output) in outputs.iter().enumerate() {
            if !hazards.is_full(Space::Output(index), output.bytes) {
                let name = &output.port.name;
                return Err(DescriptionError::new(format!(
                    "output {index} ({name}) is not written in full by the steps"
                )));
            }
        }

        let operands = checked.iter().map(|value| Operand {
            base: spaces.base(value.space),
            offset: value.offset,
            dtype: value.dtype,
            layout: value.layout,
        });
        let operands = operands.collect();
        let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let frames = ForkLock::new(Vec::new());
        Ok(Program { constants, inputs, outputs, operands, steps: named, arena_bytes, number, frames })
    }

    /// What a run is given.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &Port> {
        self.inputs.iter().map(|checked| &checked.port)
    }

    /// What a run fills.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &Port> {
        self.outputs.iter().map(|checked| &checked.port)
    }

    /// Kind and label of every step.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = (&'static str, &Arc<str>)> {
        self.steps.iter().map(|step| (step.kind, &step.label))
    }

    /// The label of the first step in traces; the others follow it.
    pub(crate) fn first_label(&self) -> u64 {
        self.number << LABEL_BITS
    }

    /// Scratch memory of one run.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Frees the scratch memory of finished runs.
    pub fn release_idle(&self) {
        // The lock is held for the swap only; the memory is given back after it.
        let frames = std::mem::take(&mut *self.frames.lock());
        drop(frames);
    }

    pub(crate) fn input_ports(&self) -> &[CheckedPort] {
        &self.inputs
    }

    pub(crate) fn output_ports(&self) -> &[CheckedPort] {
        &self.outputs
    }

    pub(crate) fn named_steps(&self) -> &[NamedStep] {
        &self.steps
    }

    pub(crate) fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// The base number of the first input; those of the outputs follow.
    pub(crate) fn first_input_base(&self) -> usize {
        1 + self.constants.len()
    }

    /// Takes an idle frame, or makes one.
    pub(crate) fn take_frame(&self) -> Result<Frame, RunError> {
        let idle = self.frames.lock().pop();
        if let Some(frame) = idle {
            return Ok(frame);
        }
        let constants = self.constants.iter().map(|constant| constant.as_ptr().cast_mut());
        let ports = std::iter::repeat_n(std::ptr::null_mut(), self.inputs.len() + self.outputs.len());
        Frame::new(self.arena_bytes, constants.chain(ports)).ok_or(RunError::Memory(self.arena_bytes))
    }

    /// Gives a frame back for the next run.
    pub(crate) fn return_frame(&self, frame: Frame) {
        self.frames.lock().push(frame);
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("inputs", &self.inputs.len())
            .field("outputs", &self.outputs.len())
            .field("steps", &self.steps.len())
            .field("arena_bytes", &self.arena_bytes)
            .finish_non_exhaustive()
    }
}

fn check_ports(what: &str, ports: Vec<Port>) -> Result<Vec<CheckedPort>, DescriptionError> {
    let check = |(index, port): (usize, Port)| match byte_size(port.dtype, &port.dims) {
        Some(bytes) => Ok(CheckedPort { port, bytes }),
        None => Err(DescriptionError::new(format!(
            "{what} {index} ({}) of shape {:?} has more bytes than the address space",
            port.name, port.dims
        ))),
    };
    ports.into_iter().enumerate().map(check).collect()
}

/// The memory that values may lie in.
struct Spaces<'a> {
    constants: &'a [Constant],
    inputs: &'a [CheckedPort],
    outputs: &'a [CheckedPort],
    arena_bytes: usize,
}

impl Spaces<'_> {
    fn check(&self, spec: &ValueSpec) -> Result<Value, String> {
        let port = |ports: &[CheckedPort], index: usize| ports.get(index).map(|p| (p.bytes, Some(p.port.dtype)));
        let space = match spec.space {
            Space::Arena => Some((self.arena_bytes, None)),
            Space::Constant(index) => self.constants.get(index).map(|c| (c.bytes(), Some(c.dtype()))),
            Space::Input(index) => port(self.inputs, index),
            Space::Output(index) => port(self.outputs, index),
        };
        let (bytes, dtype) = space.ok_or_else(|| format!("lies in {}, which does not exist", spec.space))?;
        Value::new(spec, bytes, dtype)
    }

    /// The place of a space's address in [`Frame::bases`].
    fn base(&self, space: Space) -> usize {
        match space {
            Space::Arena => 0,
            Space::Constant(index) => 1 + index,
            Space::Input(index) => 1 + self.constants.len() + index,
            Space::Output(index) => 1 + self.constants.len() + self.inputs.len() + index,
        }
    }
}
