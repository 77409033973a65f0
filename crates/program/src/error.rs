//! What can go wrong: in a description, and in a run.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// An error of the caller's own, carried through a run unchanged.
pub type Cause = Box<dyn Error + Send + Sync>;

/// A description that is not a program: one sentence naming the step or value at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptionError {
    message: String,
}

impl DescriptionError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        DescriptionError { message: message.into() }
    }
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for DescriptionError {}

/// A step that failed.
#[derive(Debug)]
pub struct StepError {
    /// The number of the step.
    pub step: usize,
    /// The step's label.
    pub label: Arc<str>,
    /// What failed.
    pub message: String,
    /// The error that the host's function returned, when it was one.
    pub cause: Option<Cause>,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} ({}): {}", self.step, self.label, self.message)
    }
}

impl Error for StepError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}

/// A run that did not complete; its outputs hold unspecified elements.
#[derive(Debug)]
pub enum RunError {
    /// The buffers given do not fit the program.
    Arguments(String),
    /// The system has no memory for an arena of this many bytes.
    Memory(usize),
    /// The cancellation flag was seen before this step.
    Cancelled {
        /// The number of the step that was not run.
        step: usize,
        /// Its label.
        label: Arc<str>,
    },
    /// The function called between steps returned this error.
    Interrupted(Cause),
    /// A step failed.
    Step(StepError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Arguments(message) => f.write_str(message),
            RunError::Memory(bytes) => write!(f, "the system has no memory for an arena of {bytes} bytes"),
            RunError::Cancelled { step, label } => write!(f, "the run was cancelled before step {step} ({label})"),
            RunError::Interrupted(cause) => cause.fmt(f),
            RunError::Step(error) => error.fmt(f),
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RunError::Interrupted(cause) => Some(cause.as_ref()),
            RunError::Step(error) => error.source(),
            _ => None,
        }
    }
}
