//! A flat list of kernel steps over an arena of planned buffers.
//!
//! A [`Description`] says where every tensor lies and what is done, in order. [`Program::new`] checks all of it once:
//! bounds, types, shapes, overlap, and that nothing is read before it is written. [`Program::run`] then only computes
//! addresses and calls kernels, each on the whole token.

mod buffer;
mod check;
mod description;
mod dtype;
mod element;
mod error;
mod frame;
mod hazard;
mod host;
mod labels;
mod program;
mod run;
mod step;
mod value;
mod written;

pub use buffer::{Buffer, BufferMut, Constant};
pub use description::{Description, Operation, Port, Space, StepSpec, ValueSpec};
pub use dtype::{Dtype, Element};
pub use error::{Cause, DescriptionError, RunError, StepError};
pub use host::{HostCall, HostError, HostInput, HostOutput};
pub use program::Program;
pub use run::{RunContext, StepTime};
