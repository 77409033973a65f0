//! Leading a section: off the interpreter, under the eye of signals, with panics and exceptions turned into one outcome.

use crate::attach::{is_worker, KeepsInterpreter};
use crate::errors;
use crate::flow::{self, Flow};
use crate::life;
use crate::stack;
use crate::token::{Entry, Held};
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use threadteam::Exec;

/// Runs `f` on the entered token, and raises what its bodies raised.
///
/// `keep` keeps the interpreter through the section: for a budget of one, where nobody else needs it.
pub(crate) fn lead<T: Held, R: Send>(
    py: Python<'_>,
    entry: &mut Entry<'_, T>,
    keep: bool,
    f: impl FnOnce(&mut T, &Flow) -> R + Send,
) -> PyResult<R> {
    stack::check()?;
    if life::closing() {
        return lead_at_exit(py, entry, f);
    }
    let flow = entry.flow();
    let home = entry.home();
    let inner = entry.inner();
    let work = || {
        let _leading = flow::Leading::enter(&flow);
        let _keeps = KeepsInterpreter::set(keep);
        catch_unwind(AssertUnwindSafe(|| {
            if !keep {
                home.map_or(Ok(()), |home| home.start())?;
            }
            Ok(f(inner, &flow))
        }))
    };
    let outcome = if keep { work() } else { py.detach(work) };
    settle(py, &flow, outcome)
}

/// Runs `f` off the interpreter, as what the calling thread leads: a wait of the runtime that looks for signals, for `flow`.
pub(crate) fn off_interpreter<R: Send>(py: Python<'_>, flow: &Flow, f: impl FnOnce() -> R + Send) -> R {
    py.detach(|| {
        let _leading = flow::Leading::enter(flow);
        let _keeps = KeepsInterpreter::set(false);
        f()
    })
}

fn settle<R>(py: Python<'_>, flow: &Flow, outcome: std::thread::Result<Result<R, threadteam::Error>>) -> PyResult<R> {
    if flow.is_forked() {
        let message =
            "the process was forked by a body of this section, which is the parent's to finish; end the child with \
                       os._exit(), or fork outside of sections";
        return Err(errors::raise(py, "TokenExpired", message));
    }
    match outcome {
        Ok(Ok(result)) => flow.finish(py).map(|()| result),
        Ok(Err(error)) => Err(errors::from_core(py, &error)),
        Err(payload) if payload.is::<threadteam::ForkedInside>() => {
            let message =
                "the process was forked inside this team scope, whose members stayed in the parent; take a new \
                           token of the pool in the child";
            Err(errors::raise(py, "TokenExpired", message))
        }
        Err(payload) => flow.finish(py).and(Err(errors::from_panic(py, payload.as_ref()))),
    }
}

/// While the interpreter ends, its last thread runs its sections alone: workers may not have it any more.
#[cold]
fn lead_at_exit<T: Held, R: Send>(
    py: Python<'_>,
    entry: &mut Entry<'_, T>,
    f: impl FnOnce(&mut T, &Flow) -> R + Send,
) -> PyResult<R> {
    let Some(mut alone) = T::at_exit() else {
        return Err(errors::raise(py, "ThreadteamError", "the interpreter is exiting: teams cannot run any more"));
    };
    let flow = entry.flow();
    let _keeps = KeepsInterpreter::set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| Ok(f(&mut alone, &flow))));
    settle(py, &flow, outcome)
}

/// Looks for signals on behalf of the section that the calling thread leads.
fn look() -> ControlFlow<()> {
    flow::look_for_signals_of_led_section();
    if flow::led_section_stopped() {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

static LOOK: fn() -> ControlFlow<()> = look;

/// The token for one section, whose leader looks for signals while it waits. A worker never handles signals.
pub(crate) fn watched<'a>(exec: &'a mut Exec<'static>) -> Exec<'a> {
    let exec = exec.for_an_entry();
    if is_worker() {
        return exec;
    }
    exec.with_wait_hook(&LOOK)
}
