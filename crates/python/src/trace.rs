//! Traces for Python: the rings, and their events as tuples.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ending::Watched;
use crate::numbers::at_least_one;
use crate::slots::room;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use threadteam::trace::{Kind, Trace};

/// Most events per participant: 3 GiB of rings for a machine of 128 CPUs.
const MOST_EVENTS: usize = 1 << 20;

/// The rings that a pool or an OpenMP runtime records into.
#[pyclass(frozen, name = "Trace", module = "threadteam._native")]
pub(crate) struct PyTrace(Arc<Trace>);

impl PyTrace {
    /// The runtime's own object.
    pub(crate) fn core(&self) -> &Arc<Trace> {
        &self.0
    }
}

#[pymethods]
impl PyTrace {
    /// Rings of `capacity` events for `participants` participants; later events overwrite the oldest.
    #[new]
    fn new(participants: &Bound<'_, PyAny>, capacity: &Bound<'_, PyAny>) -> PyResult<PyTrace> {
        let participants = at_least_one(participants, "participants")?.get();
        let capacity = at_least_one(capacity, "capacity")?.get();
        if !(1..=MOST_EVENTS).contains(&capacity) || !(1..=usize::from(u16::MAX)).contains(&participants) {
            return Err(PyValueError::new_err(format!(
                "a trace has 1 to {} participants of 1 to {MOST_EVENTS} events, not {participants} of {capacity}",
                u16::MAX
            )));
        }
        // Of three words each. Asked for first: the rings are allocated where nothing can fail.
        let events = participants * capacity;
        drop(room::<[u64; 3]>(events, || format!("{events} events of a trace"))?);
        Ok(PyTrace(Arc::new(Trace::new(participants, capacity))))
    }

    /// The events as (participant, nanoseconds, kind, value), by participant and time; call it when nothing records.
    fn events(&self) -> Vec<(usize, u64, &'static str, u64)> {
        let events = self.0.events();
        events.into_iter().map(|event| (event.participant, event.ns, event.kind.name(), event.value)).collect()
    }

    /// What the labels of programs stand for.
    fn labels(&self) -> BTreeMap<u64, String> {
        self.0.label_names().into_iter().map(|(label, name)| (label, name.to_string())).collect()
    }

    /// Records that what follows on the calling thread belongs to label `value`; 0 ends it.
    fn label(&self, value: Watched<u64>) {
        self.0.record(Kind::Label, value.0);
    }

    /// How many events were overwritten.
    #[getter]
    fn overwritten(&self) -> usize {
        self.0.overwritten()
    }

    /// The same for each participant that lost any.
    fn overwritten_by(&self) -> BTreeMap<usize, usize> {
        self.0.overwritten_by().into_iter().collect()
    }

    /// The names of further threads by the number of their participant: callers beyond the first, workers of further pools.
    fn further(&self) -> BTreeMap<usize, String> {
        (self.0.participants()..).zip(self.0.further()).collect()
    }

    /// How many participants have a ring.
    #[getter]
    fn participants(&self) -> usize {
        self.0.participants()
    }
}
