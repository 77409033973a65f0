//! The control flow of one section: who failed first, and whether chunks not started are dropped.

use crate::attach::attached;
use crate::errors;
use crate::ledger::{Account, Task};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a leader looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Jobs that are given out at once: a section that failed counts through the rest of them, some 20 ns each.
const WAVE: usize = 1 << 20;

/// Exceptions beyond this many are counted, not quoted.
const QUOTED: usize = 8;

thread_local! {
    /// The section whose body the thread runs.
    static CURRENT: Cell<*const Flow> = const { Cell::new(ptr::null()) };
    /// The section that the thread leads.
    static LED: Cell<*const Flow> = const { Cell::new(ptr::null()) };
}

/// While it lives, the thread leads a section.
pub(crate) struct Leading(*const Flow);

impl Leading {
    pub(crate) fn enter(flow: &Flow) -> Leading {
        Leading(LED.replace(flow))
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        LED.set(self.0);
    }
}

/// Looks for signals for the innermost section that the calling thread leads.
pub(crate) fn look_for_signals_of_led_section() {
    // SAFETY: `Leading` resets the pointer before the section's flow ends.
    if let Some(flow) = unsafe { LED.get().as_ref() } {
        flow.look_for_signals();
    }
}

/// Whether the innermost section that the calling thread leads is being dropped.
pub(crate) fn led_section_stopped() -> bool {
    // SAFETY: as above.
    unsafe { LED.get().as_ref() }.is_some_and(Flow::stopped)
}

/// Lives on the leader's stack for the time of a section; every participant and every nested section reads it.
pub(crate) struct Flow {
    stopped: AtomicBool,
    /// The section around this one. It ends later: its body waits for this section.
    parent: *const Flow,
    /// The pool whose threads run the bodies; 0 for none.
    pool: u64,
    /// Where its bodies count as tasks, while a ledger records.
    account: Option<Arc<Account>>,
    /// The leading thread.
    leader: usize,
    /// The process that it began in.
    process: u32,
    errors: Mutex<Vec<PyErr>>,
    /// Leader's chunks so far, and when it last looked for signals. Only the leader touches them.
    chunks: AtomicU32,
    looked: AtomicU64,
    begun: Cell<Option<Instant>>,
}

// SAFETY: `parent` outlives this section (see the field), `begun` is touched by the leader alone, the rest is `Sync`.
unsafe impl Sync for Flow {}

impl Flow {
    /// The flow of a section that the calling thread leads now. `inherited` is the section that handed out the token, whose
    /// account is `account`.
    pub(crate) fn new(pool: u64, inherited: *const Flow, account: Option<Arc<Account>>) -> Flow {
        let current = CURRENT.get();
        Flow {
            stopped: AtomicBool::new(false),
            parent: if current.is_null() { inherited } else { current },
            pool,
            account,
            leader: mark(),
            process: threadteam::forks(),
            errors: Mutex::new(Vec::new()),
            chunks: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            begun: Cell::new(None),
        }
    }

    /// Whether a body forked, and this is the child: the section is the parent's.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != threadteam::forks()
    }

    /// Whether chunks that have not started are to be dropped.
    pub(crate) fn stopped(&self) -> bool {
        if self.is_forked() {
            return true;
        }
        let mut flow = self;
        loop {
            if flow.stopped.load(Ordering::Relaxed) {
                return true;
            }
            // SAFETY: a section ends before the one around it.
            match unsafe { flow.parent.as_ref() } {
                Some(parent) => flow = parent,
                None => return false,
            }
        }
    }

    /// A participant failed: the first exception wins, chunks not started are dropped.
    pub(crate) fn fail(&self, py: Python<'_>, error: PyErr) {
        // A section inside a body that was dropped because this one failed says so with `Cancelled`: no news.
        let echo = self.stopped() && is_cancelled(py, &error);
        if !echo || self.errors().is_empty() {
            self.errors().push(error);
        }
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn errors(&self) -> MutexGuard<'_, Vec<PyErr>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The account of the token whose section this is.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    /// Counts the calling thread as a task of this section's token until the guard is dropped.
    pub(crate) fn task(&self) -> Option<Task> {
        self.account.as_ref().map(|account| account.enter())
    }

    /// Whether the calling thread leads this section.
    pub(crate) fn is_led_here(&self) -> bool {
        self.leader == mark()
    }

    /// Called by the leader before each of its native chunks: looks for signals when the last look is long ago. The first
    /// chunk costs no clock.
    pub(crate) fn before_native_chunk(&self) {
        let chunk = self.chunks.load(Ordering::Relaxed);
        if chunk < 2 {
            self.chunks.store(chunk + 1, Ordering::Relaxed);
            if chunk == 1 {
                self.begun.set(Some(Instant::now()));
            }
            return;
        }
        let Some(begun) = self.begun.get() else { return };
        let now = begun.elapsed().as_nanos() as u64;
        if now - self.looked.load(Ordering::Relaxed) >= SIGNALS_EVERY.as_nanos() as u64 {
            self.looked.store(now, Ordering::Relaxed);
            self.look_for_signals();
        }
    }

    /// Runs pending signal handlers; their exception fails the section. Only the main thread has any.
    pub(crate) fn look_for_signals(&self) {
        attached(|py| {
            if let Err(error) = py.check_signals() {
                self.fail(py, error);
            }
        });
    }

    /// Runs a body that needs the interpreter, unless the section is being dropped. Its exception fails the section.
    /// Returns whether it ran and succeeded.
    pub(crate) fn body(&self, f: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
        if self.stopped() {
            return false;
        }
        attached(|py| {
            let _within = Within::enter(self);
            let _task = self.task();
            // It may have failed while this thread waited for the interpreter.
            if self.stopped() {
                return false;
            }
            let outcome = f(py);
            let succeeded = outcome.is_ok();
            if let Err(error) = outcome {
                self.fail(py, error);
            }
            succeeded
        })
    }

    /// The section's outcome: its first exception, with the others as notes.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        // Every exception is noted before the section stops, and every participant has left.
        if self.stopped() {
            return self.failed(py);
        }
        Ok(())
    }

    #[cold]
    fn failed(&self, py: Python<'_>) -> PyResult<()> {
        let mut errors = std::mem::take(&mut *self.errors()).into_iter();
        let Some(first) = errors.next() else {
            return Err(errors::raise(
                py,
                "Cancelled",
                "the section around this one failed, so the chunks not started were dropped; let this exception pass",
            ));
        };
        let (mut quoted, mut left) = (0, 0);
        for other in errors {
            if quoted == QUOTED {
                left += 1;
                continue;
            }
            quoted += 1;
            note(py, &first, &format!("another participant raised {other}"));
        }
        if left > 0 {
            note(py, &first, &format!("and {left} more"));
        }
        Err(first)
    }
}

/// Runs `0..jobs` in waves, so that a section of very many jobs ends soon after its failure. There are far more jobs in a
/// wave than slots in any pool, so a single wave has the shares of the whole.
pub(crate) fn in_waves(flow: &Flow, jobs: usize, mut run: impl FnMut(Range<usize>)) {
    let mut start = 0;
    while start < jobs && !flow.stopped() {
        // A rest of few jobs would be dealt out as shares of more than one slot.
        let stop = if jobs - start < 2 * WAVE { jobs } else { start + WAVE };
        run(start..stop);
        start = stop;
    }
}

fn is_cancelled(py: Python<'_>, error: &PyErr) -> bool {
    py.import("threadteam.errors")
        .and_then(|module| module.getattr("Cancelled"))
        .is_ok_and(|class| error.is_instance(py, &class))
}

fn note(py: Python<'_>, error: &PyErr, text: &str) {
    let value: &Bound<'_, PyBaseException> = error.value(py);
    // An exception class may refuse notes; the exception itself matters more.
    let _ = value.call_method1("add_note", (text,));
}

/// Whether the calling thread leads a section of this pool or runs a body of one, at any depth.
pub(crate) fn inside(pool: u64) -> bool {
    [CURRENT.get(), LED.get()].into_iter().any(|mut flow| {
        // SAFETY: the chain consists of sections that wait for the thread.
        while let Some(section) = unsafe { flow.as_ref() } {
            if section.pool == pool {
                return true;
            }
            flow = section.parent;
        }
        false
    })
}

/// While it lives, the thread counts as inside a body of the section: closing the pool would wait for itself.
pub(crate) struct Within(*const Flow);

impl Within {
    pub(crate) fn enter(flow: &Flow) -> Within {
        Within(CURRENT.replace(flow))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// A number that differs between threads that live at the same time.
pub(crate) fn mark() -> usize {
    CURRENT.with(|cell| ptr::from_ref(cell) as usize)
}
