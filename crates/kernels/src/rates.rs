//! What one element costs, in nanoseconds on one core: from these a kernel tells how wide a section pays.

/// Work below this is run in place: no section can pay for itself, so the cost model is not asked.
pub(crate) const SERIAL_NANOS: f64 = 500.0;
/// One operation that the vector unit does in a cycle, on contiguous operands in cache.
pub(crate) const SIMPLE: f64 = 0.15;
/// A copy that is not a run along both operands.
pub(crate) const MOVE: f64 = 0.8;
