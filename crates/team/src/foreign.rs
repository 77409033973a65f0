//! Sections dispatched through an execution system that is not ours, for comparisons.

use crate::trace::{Kind, Trace};
use std::sync::Arc;

/// Another system's threads: an OpenMP runtime, for instance.
///
/// [`Exec::foreign`](crate::Exec::foreign) makes a token whose sections run through it, so that the same kernels can be
/// measured under both.
pub trait Foreign: Sync {
    /// How many threads one dispatch can use, the caller included.
    fn width(&self) -> usize;

    /// Calls `share(0)` to `share(threads - 1)`, each once, on `threads` threads at the same time, and returns when all
    /// have returned. Share 0 runs on the calling thread.
    fn dispatch(&self, threads: usize, share: &(dyn Fn(usize) + Sync));

    /// Where the shares of traced sections are recorded.
    fn trace(&self) -> Option<&Arc<Trace>> {
        None
    }
}

/// One section through `system`: chunk `c` of `chunks` on thread `c * threads / chunks`, as `schedule(static)` does.
pub(crate) fn dispatch_chunks(system: &dyn Foreign, threads: usize, chunks: usize, run: &(dyn Fn(usize) + Sync)) {
    let threads = threads.min(chunks);
    let number = system.trace().map_or(0, |trace| trace.publish());
    system.dispatch(threads, &|share| {
        if let Some(trace) = system.trace() {
            trace.record_for(share, Kind::ShareBegin, number);
        }
        for chunk in share * chunks / threads..(share + 1) * chunks / threads {
            run(chunk);
        }
        if let Some(trace) = system.trace() {
            trace.record_for(share, Kind::ShareEnd, number);
            if share == 0 {
                trace.record_for(0, Kind::JoinBegin, number);
            }
        }
    });
    if let Some(trace) = system.trace() {
        trace.record_for(0, Kind::JoinEnd, number);
    }
}
