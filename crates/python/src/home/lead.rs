//! The root token of a team, of which there is one at a time.

use super::state::{Here, Holder, Owner};
use super::{Home, Root};
use crate::errors::{self, raise};
use crate::flow;
use crate::pending;
use crate::token::{End, Token};
use pyo3::prelude::*;
use std::mem;
use std::num::NonZeroUsize;
use std::sync::Arc;
use threadteam::{Exec, Refused};

/// Why no root token was minted.
enum Refusal {
    /// The team is over.
    Gone,
    /// Its token stayed with a thread of the process that this one was forked from.
    Orphan(Arc<Root>),
    /// Another token leads, or the team is being given up: by the calling thread?
    Busy {
        own: bool,
    },
    Runtime(Refused),
}

impl Home {
    /// Mints the root token of the team; waits for the previous one, or raises `Refused`.
    pub(crate) fn mint_lead(
        self: &Arc<Home>,
        py: Python<'_>,
        moves: u64,
        budget: Option<NonZeroUsize>,
        wait: bool,
    ) -> PyResult<Arc<Root>> {
        let operation = if wait { "Team.exec()" } else { "Team.try_exec()" };
        let mut waits = 0u32;
        loop {
            match self.take_lead(moves, budget) {
                Ok(token) => return Ok(token),
                Err(Refusal::Gone) => return Err(self.gone(py, operation)),
                Err(Refusal::Orphan(token)) => token.end(py, End::Forked, false)?,
                Err(Refusal::Runtime(reason)) => return Err(errors::refused(py, "Refused", operation, reason)),
                Err(Refusal::Busy { .. }) if !wait => {
                    self.count_busy();
                    return Err(errors::refused(py, "Refused", operation, Refused::Busy));
                }
                Err(Refusal::Busy { own: true }) => {
                    let message = format!(
                        "{operation}: this thread holds the team's root token and would wait for itself; close it, or lend it \
                         with reborrow()"
                    );
                    return Err(raise(py, "TokenBusy", message));
                }
                Err(Refusal::Busy { own: false }) => {
                    let state = self.state.lock();
                    if state.lead.is_some() || state.mover.is_some() {
                        self.wait_after(py, state)?;
                        waits = waits.saturating_add(1);
                        // Rarely and ever more so: mostly it is a token that somebody uses.
                        if waits.is_power_of_two() {
                            pending::run_for_all(py)?;
                        }
                    }
                }
            }
        }
    }

    /// The team counts the refusal of a root token: its own is out.
    fn count_busy(&self) {
        if let Owner::Team(team) = &self.state.lock().owner {
            drop(team.try_exec(1));
        }
    }

    fn take_lead(self: &Arc<Home>, moves: u64, budget: Option<NonZeroUsize>) -> Result<Arc<Root>, Refusal> {
        let here = Here::now();
        // A body of the team's section waits for itself too: the section ends after it.
        let inside = flow::inside(self.id);
        let mut state = self.state.lock();
        if !state.has_team(moves) {
            return Err(Refusal::Gone);
        }
        if let Some(mover) = state.mover {
            return Err(Refusal::Busy { own: inside || mover == here });
        }
        if let Some(holder) = &state.lead {
            if holder.here.generation == here.generation || holder.here.thread == here.thread {
                return Err(Refusal::Busy { own: inside || holder.here.thread == here.thread });
            }
            if let Some(token) = holder.token.upgrade() {
                return Err(Refusal::Orphan(token));
            }
        }
        let Owner::Team(team) = &state.owner else { return Err(Refusal::Gone) };
        let exec = team.try_exec(budget.unwrap_or(team.size()).get()).map_err(Refusal::Runtime)?;
        let name = format!("Exec(budget={}, team of size {} on {})", exec.budget(), team.size(), self.title());
        // SAFETY: counted below, under the lock: the team stays in its box until `take_back` has counted it out.
        let exec = unsafe { mem::transmute::<Exec<'_>, Exec<'static>>(exec) };
        // SAFETY: as above.
        let token = unsafe { Token::root(exec, Some(Arc::clone(self)), name, Some(self.clone())) };
        state.register(&token);
        state.lead = Some(Holder { here, token: Arc::downgrade(&token) });
        Ok(token)
    }
}
