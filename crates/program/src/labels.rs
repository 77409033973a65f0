//! The labels that traced runs put on their steps.

use std::cell::Cell;
use std::sync::Arc;

use threadteam::trace::{Kind, Trace};

thread_local! {
    /// The label of the step that runs on this thread; 0 outside of traced runs.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Labels of one run; dropping it ends the run's last step and goes on with that of the run around it, if any.
pub(crate) struct Labels<'a> {
    trace: &'a Trace,
    first: u64,
    outer: u64,
}

impl<'a> Labels<'a> {
    /// Labels of a run of the program whose steps have the labels from `first` on, and these names.
    pub(crate) fn new<'b>(trace: &'a Trace, first: u64, names: impl Iterator<Item = &'b Arc<str>>) -> Self {
        trace.name_labels(first, names);
        Labels { trace, first, outer: CURRENT.get() }
    }

    /// What follows belongs to step `number`.
    pub(crate) fn step(&self, number: usize) {
        self.set(self.first + number as u64);
    }

    fn set(&self, label: u64) {
        CURRENT.set(label);
        self.trace.record(Kind::Label, label);
    }
}

impl Drop for Labels<'_> {
    fn drop(&mut self) {
        self.set(self.outer);
    }
}
