//! Runs of a program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use threadteam::Exec;

use crate::buffer::is_aligned;
use crate::error::Cause;
use crate::host::HostError;
use crate::labels::Labels;
use crate::program::{CheckedPort, NamedStep};
use crate::step::Memory;
use crate::{Buffer, BufferMut, Program, RunError, StepError};

/// When a step ran, in nanoseconds since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTime {
    /// When it began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
}

/// What a run heeds and fills besides its buffers; the default is nothing.
#[derive(Default)]
pub struct RunContext<'a> {
    /// Ends the run before the next step when true.
    pub cancelled: Option<&'a AtomicBool>,
    /// Called between steps; an error ends the run.
    pub between: Option<&'a mut (dyn FnMut() -> Result<(), Cause> + Send)>,
    /// Replaced by the time of every step.
    pub profile: Option<&'a mut Vec<StepTime>>,
}

impl Program {
    /// Runs every step in order, each on all of `exec`.
    ///
    /// # Errors
    ///
    /// [`RunError`]; then the outputs hold unspecified elements, and the program can run again.
    pub fn run(
        &self,
        mut exec: Exec<'_>,
        inputs: &[Buffer<'_>],
        outputs: &mut [BufferMut<'_>],
        mut context: RunContext<'_>,
    ) -> Result<(), RunError> {
        check_count("inputs", self.input_ports().len(), inputs.len())?;
        check_count("outputs", self.output_ports().len(), outputs.len())?;
        for (port, buffer) in self.input_ports().iter().zip(inputs) {
            check_buffer("input", port, buffer.as_ptr(), buffer.bytes())?;
        }
        for (port, buffer) in self.output_ports().iter().zip(outputs.iter()) {
            check_buffer("output", port, buffer.as_mut_ptr(), buffer.bytes())?;
        }

        let mut frame = self.take_frame()?;
        let addresses = inputs.iter().map(|input| input.as_ptr().cast_mut());
        let addresses = addresses.chain(outputs.iter().map(|output| output.as_mut_ptr()));
        for (base, address) in frame.bases[self.first_input_base()..].iter_mut().zip(addresses) {
            *base = address;
        }
        // SAFETY: every operand was checked against the size and type of its space, and the buffers above against the
        // same sizes and types. They are borrowed for this call, the constants live as long as the program, and the
        // frame is this run's alone. Steps write to the arena and to outputs only.
        let memory = unsafe { Memory::new(self.operands(), &frame.bases) };
        let result = self.run_steps(&mut exec, memory, &mut context);
        self.return_frame(frame);
        result
    }

    fn run_steps(&self, exec: &mut Exec<'_>, memory: Memory<'_>, context: &mut RunContext<'_>) -> Result<(), RunError> {
        let begun = Instant::now();
        if let Some(profile) = context.profile.as_deref_mut() {
            profile.clear();
            profile.reserve(self.named_steps().len());
        }
        let trace = exec.trace();
        let labels =
            trace.as_deref().map(|trace| Labels::new(trace, self.first_label(), self.steps().map(|(_, label)| label)));
        for (number, named) in self.named_steps().iter().enumerate() {
            if let Some(labels) = &labels {
                labels.step(number);
            }
            if context.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                return Err(RunError::Cancelled { step: number, label: named.label.clone() });
            }
            if number > 0 {
                if let Some(between) = context.between.as_deref_mut() {
                    between().map_err(RunError::Interrupted)?;
                }
            }
            let result = match context.profile.as_deref_mut() {
                None => run_step(named, exec.reborrow(), memory),
                Some(profile) => {
                    let begin = nanoseconds(begun);
                    let result = run_step(named, exec.reborrow(), memory);
                    profile.push(StepTime { begin, end: nanoseconds(begun) });
                    result
                }
            };
            result.map_err(|HostError { message, cause }| {
                RunError::Step(StepError { step: number, label: named.label.clone(), message, cause })
            })?;
        }
        Ok(())
    }
}

fn run_step(named: &NamedStep, exec: Exec<'_>, memory: Memory<'_>) -> Result<(), HostError> {
    // SAFETY: `Program::new` checked the step against the operands in `memory`; steps run one after another.
    unsafe { named.step.run(exec, memory) }
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

fn check_count(what: &str, expected: usize, given: usize) -> Result<(), RunError> {
    if given == expected {
        Ok(())
    } else {
        Err(RunError::Arguments(format!("the program takes {expected} {what}, but {given} were given")))
    }
}

fn check_buffer(what: &str, expected: &CheckedPort, ptr: *const u8, bytes: usize) -> Result<(), RunError> {
    let CheckedPort { port, bytes: size } = expected;
    if bytes != *size {
        return Err(RunError::Arguments(format!("{what} {} has {bytes} bytes, but {size} are expected", port.name)));
    }
    if !is_aligned(ptr, port.dtype) {
        return Err(RunError::Arguments(format!(
            "{what} {} lies at an address that is no multiple of {}, as {} needs",
            port.name,
            port.dtype.alignment(),
            port.dtype
        )));
    }
    Ok(())
}
