//! `Participant`: one thread of a team inside a section, and the barriers at which it meets its peers.

use crate::errors::raise;
use crate::flow::Flow;
use crate::single::{never_copied, refuse_copy_of_participant};
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::ThreadId;
use threadteam::Participant;

/// The barriers of a section, by number: which is waited for, and which can no longer be complete.
///
/// Each side says its own before it reads the other's, sequentially consistent: of a participant that comes to a barrier and a peer
/// that returns without it, one at least sees the other, and fails the section, whose barriers then end.
pub(crate) struct Meetings {
    /// The last barrier that somebody came to.
    furthest: AtomicUsize,
    /// The last barrier of a participant that has returned; of several the first.
    last: AtomicUsize,
}

impl Meetings {
    pub(crate) fn new() -> Meetings {
        Meetings { furthest: AtomicUsize::new(0), last: AtomicUsize::new(usize::MAX) }
    }

    /// Comes to a barrier. If a peer has returned without it: the last barrier of that peer.
    fn come_to(&self, number: usize) -> Option<usize> {
        self.furthest.fetch_max(number, Ordering::SeqCst);
        Some(self.last.load(Ordering::SeqCst)).filter(|&last| last < number)
    }

    /// Returns after barrier `last`. If a peer came to a later one: the number of that.
    fn leave(&self, last: usize) -> Option<usize> {
        self.last.fetch_min(last, Ordering::SeqCst);
        Some(self.furthest.load(Ordering::SeqCst)).filter(|&furthest| furthest > last)
    }
}

/// A barrier that will never be complete, though nobody failed.
#[cold]
fn unmet(py: Python<'_>, met: usize, awaited: usize) -> PyErr {
    let message = format!(
        "a participant returned after {met} calls of Participant.barrier() and a peer made call {awaited}, which would wait for \
         ever; call it equally often on every participant"
    );
    raise(py, "ThreadteamError", message)
}

/// One participant of `TeamExec.run_with`, for the time of its body and on its thread only.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> def body(participant):
/// ...     participant.barrier()
/// ...     print(participant.size, participant.is_cancelled)
/// >>> with tt.Pool(1) as pool, pool.exec().team() as team:
/// ...     team.run_with(body)
/// 1 False
#[pyclass(frozen, module = "threadteam", name = "Participant")]
pub(crate) struct PyParticipant {
    index: usize,
    size: usize,
    /// Null once the body has returned. Used by `thread` alone, which is inside the body then.
    participant: AtomicPtr<()>,
    flow: AtomicPtr<Flow>,
    thread: ThreadId,
    /// Barriers that it has come to.
    met: AtomicUsize,
    meetings: Arc<Meetings>,
}

impl PyParticipant {
    pub(crate) fn new(participant: &Participant<'_>, flow: &Flow, meetings: &Arc<Meetings>) -> PyParticipant {
        PyParticipant {
            index: participant.index(),
            size: participant.size(),
            participant: AtomicPtr::new(ptr::from_ref(participant).cast::<()>().cast_mut()),
            flow: AtomicPtr::new(ptr::from_ref(flow).cast_mut()),
            thread: std::thread::current().id(),
            met: AtomicUsize::new(0),
            meetings: Arc::clone(meetings),
        }
    }

    pub(crate) fn expire(&self) {
        self.participant.store(ptr::null_mut(), Ordering::Relaxed);
        self.flow.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Called when the body has returned: nobody may wait for it.
    pub(crate) fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let met = self.met.load(Ordering::Relaxed);
        match self.meetings.leave(met) {
            Some(awaited) => Err(unmet(py, met, awaited)),
            None => Ok(()),
        }
    }

    fn here(&self, py: Python<'_>, operation: &str) -> PyResult<(&Participant<'_>, &Flow)> {
        if std::thread::current().id() != self.thread {
            let message = format!(
                "{operation} was called on participant {} by another thread; only the thread that runs its body may",
                self.index
            );
            return Err(raise(py, "TokenError", message));
        }
        let participant = self.participant.load(Ordering::Relaxed).cast::<Participant<'_>>().cast_const();
        let flow = self.flow.load(Ordering::Relaxed).cast_const();
        // SAFETY: both live until the body returns, which happens on this thread after `expire`.
        match unsafe { (participant.as_ref(), flow.as_ref()) } {
            (Some(participant), Some(flow)) => Ok((participant, flow)),
            _ => {
                let message =
                    format!("{operation}: participant {} ended with its body; use it inside the body only", self.index);
                Err(raise(py, "TokenExpired", message))
            }
        }
    }
}

#[pymethods]
impl PyParticipant {
    /// This participant's number, 0 for the leader.
    #[getter]
    fn index(&self) -> usize {
        self.index
    }

    /// How many participants run this section.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// Wait until every participant has called it as often as this one.
    ///
    /// Raises
    /// ------
    /// Cancelled
    ///     A peer failed, so the barrier will never be complete.
    /// ThreadteamError
    ///     A peer returned without this barrier.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let (participant, flow) = self.here(py, "Participant.barrier()")?;
        let number = self.met.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(met) = self.meetings.come_to(number) {
            return Err(unmet(py, met, number));
        }
        let waiting = Waiting { participant, flow };
        if py.detach(|| waiting.wait()) {
            return Ok(());
        }
        Err(raise(py, "Cancelled", "a peer of this participant failed, so the barrier will never be complete"))
    }

    /// Whether a peer failed.
    #[getter]
    fn is_cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        let (participant, flow) = self.here(py, "Participant.is_cancelled")?;
        Ok(participant.is_cancelled() || flow.stopped())
    }

    fn __repr__(&self) -> String {
        format!("<Participant {} of {}>", self.index, self.size)
    }
}

never_copied!(PyParticipant, |_participant| "a participant", refuse_copy_of_participant);

/// A participant on its way through a barrier, off the interpreter but on its own thread.
struct Waiting<'a> {
    participant: &'a Participant<'a>,
    flow: &'a Flow,
}

// SAFETY: `Python::detach` runs its closure on the calling thread; the bound asks for `Send` only to keep the interpreter
// out of it.
unsafe impl Send for Waiting<'_> {}

impl Waiting<'_> {
    fn wait(self) -> bool {
        let look = || {
            if self.flow.is_led_here() {
                self.flow.look_for_signals();
            }
            self.flow.stopped()
        };
        self.participant.barrier_unless(&look).is_ok()
    }
}
