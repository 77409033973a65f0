//! How a pool's workers change hands: into a team, back, and to their end.
//!
//! Each of these first becomes the only mover, then ends or freezes the root tokens, and takes the owner in the same step in which it
//! sees that no token borrows from it.

use super::state::{Here, Owner, State};
use super::{root_of, Home, Root};
use crate::attach::{attached, is_worker};
use crate::errors::{self, raise};
use crate::flow;
use crate::life;
use crate::pending;
use crate::token::{End, Frozen};
use pyo3::prelude::*;
use std::mem;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use threadteam::{ForkGuard, ForkLock, Pool, Team, WaitOverride};

/// The calling thread is the mover of a pool until this is dropped.
struct Mover<'a>(&'a Home);

impl Drop for Mover<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        // In the child of a fork nobody moves.
        if state.mover == Some(Here::now()) {
            state.mover = None;
        }
        let abandoned = state.abandoned;
        self.0.announce(state);
        if abandoned {
            self.0.take_home();
        }
    }
}

impl Mover<'_> {
    /// Takes the owner once no token borrows from it, ending the root tokens until then.
    fn take_owner(&self, py: Python<'_>) -> PyResult<Owner> {
        loop {
            let mut state = self.0.state.lock();
            if state.borrowing == 0 {
                return Ok(state.take_owner());
            }
            let roots = state.roots();
            drop(state);
            let mut ended = false;
            for root in roots.iter().filter(|root| !root.is_dead()) {
                root.end(py, End::PoolGone, true)?;
                ended = true;
            }
            drop(roots);
            let state = self.0.state.lock();
            if !ended && state.borrowing > 0 {
                // Another thread is about to drop the last reference.
                self.0.wait_after(py, state)?;
            }
        }
    }

    /// Puts the owner in its place, wherever the runtime pool is now.
    fn put_owner(&self, owner: Owner, change: impl FnOnce(&mut State)) {
        let core = owner.pool().map_or(ptr::null(), ptr::from_ref);
        let mut state = self.0.state.lock();
        self.0.core.store(core.cast_mut(), Ordering::Relaxed);
        state.owner = owner;
        change(&mut state);
    }
}

impl Home {
    /// Becomes the mover, after the one that is, while `may` holds.
    fn become_mover(&self, py: Python<'_>, operation: &str, may: impl Fn(&mut State) -> bool) -> PyResult<Mover<'_>> {
        loop {
            let mut state = self.state.lock();
            if !may(&mut state) {
                drop(state);
                return Err(self.gone(py, operation));
            }
            let Some(mover) = state.mover else {
                state.mover = Some(Here::now());
                return Ok(Mover(self));
            };
            self.wait_for(py, state, mover, operation)?;
        }
    }

    /// Waits a while for the mover, unless the mover waits for this thread.
    fn wait_for(&self, py: Python<'_>, state: ForkGuard<'_, State>, mover: Here, operation: &str) -> PyResult<()> {
        // A pool that is being closed may wait for its workers, whose hooks may come here.
        if mover != Here::now() && !(state.closing && is_worker()) {
            return self.wait_after(py, state);
        }
        drop(state);
        let message = format!(
            "{operation} was called while {} is being closed or moved by a call that waits for this one; call it afterwards",
            self.title()
        );
        Err(raise(py, "ThreadteamError", message))
    }

    /// Waits until the workers are no longer on their way. Then nobody waits for an entry, which may be the caller's.
    pub(super) fn wait_for_arrival(&self, py: Python<'_>, operation: &str) -> PyResult<()> {
        loop {
            let state = self.state.lock();
            match state.mover {
                Some(mover) if !state.closing && matches!(state.owner, Owner::Moving) => {
                    self.wait_for(py, state, mover, operation)?;
                }
                _ => return Ok(()),
            }
        }
    }

    fn refuse_from_inside(&self, py: Python<'_>, operation: &str) -> PyResult<()> {
        // Native code that calls back into Python is inside a body too, as its leader or on a worker.
        if !flow::inside(self.id) && self.ask(Pool::is_worker) != Some(true) {
            return Ok(());
        }
        let message = format!(
            "{operation} was called from inside a body of {}, which it would wait for; call it after the section",
            self.title()
        );
        Err(raise(py, "ThreadteamError", message))
    }

    /// Ends the tokens, joins the workers. Idempotent.
    pub(crate) fn close(&self, py: Python<'_>, operation: &str) -> PyResult<()> {
        self.refuse_from_inside(py, operation)?;
        if matches!(self.state.lock().owner, Owner::Closed) {
            return Ok(());
        }
        let mover = self.become_mover(py, operation, |state| {
            state.closing = true;
            true
        })?;
        let owner = mover.take_owner(py)?;
        // Workers give their thread states back as they end, for which they need the interpreter.
        py.detach(|| discard(owner));
        mover.put_owner(Owner::Closed, |_| ());
        Ok(())
    }

    /// Moves the pool into a team. Returns the number of the move.
    pub(crate) fn move_into_team(&self, py: Python<'_>, width: NonZeroUsize, wait: WaitOverride) -> PyResult<u64> {
        let what = format!("Pool.into_team() on {}", self.title());
        // Of a team the mover may wait for an entry, which may be the caller's.
        let may = |state: &mut State| !state.closing && matches!(state.owner, Owner::Pool(_) | Owner::Moving);
        let mover = self.become_mover(py, "Pool.into_team()", may)?;
        let (pool, roots) = self.freeze_roots(py, &what)?;
        let interrupted = ForkLock::new(None);
        let look = || {
            let outcome = attached(pending::run);
            let ends = outcome.is_err();
            let earlier = mem::replace(&mut *interrupted.lock(), outcome.err());
            drop(earlier);
            if ends {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        match py.detach(|| pool.into_team_unless(width.get(), wait, &look)) {
            Ok(team) => {
                for root in &roots {
                    // SAFETY: frozen by `freeze_roots`.
                    unsafe { root.end_frozen(End::PoolGone) };
                }
                let mut moves = 0;
                mover.put_owner(Owner::Team(Box::new(team)), |state| {
                    state.moves += 1;
                    moves = state.moves;
                });
                Ok(moves)
            }
            Err(error) => {
                let reason = error.reason();
                let pool = Box::new(error.into_pool());
                // SAFETY: these are counted still, and the pool stays in this box.
                let again: Vec<_> = roots.iter().map(|root| (root, unsafe { root_of(&pool, root.budget) })).collect();
                mover.put_owner(Owner::Pool(pool), |_| ());
                for (root, exec) in again {
                    // SAFETY: frozen by `freeze_roots`; the token is of the pool where it is now.
                    unsafe { root.refill(exec) };
                }
                let interrupted = interrupted.into_inner();
                Err(interrupted.unwrap_or_else(|| errors::refused(py, "IntoTeamError", &what, reason)))
            }
        }
    }

    /// Takes the pool, with its live root tokens frozen and emptied: they hold nothing that borrows from it.
    fn freeze_roots(&self, py: Python<'_>, what: &str) -> PyResult<(Box<Pool>, Vec<Arc<Root>>)> {
        loop {
            // Dropped after the lock is given up.
            let mut roots;
            let mut state = self.state.lock();
            if !state.is_open() {
                drop(state);
                return Err(self.gone(py, "Pool.into_team()"));
            }
            roots = state.roots();
            let found: Vec<Frozen> = roots.iter().map(|root| root.freeze()).collect();
            let frozen =
                || roots.iter().zip(&found).filter(|(_, found)| **found == Frozen::Still).map(|(root, _)| root);
            if frozen().count() == state.borrowing {
                // SAFETY: frozen above.
                frozen().for_each(|root| unsafe { root.empty() });
                let Owner::Pool(pool) = state.take_owner() else { unreachable!("it is open") };
                drop(state);
                let mut found = found.into_iter();
                roots.retain(|_| found.next() == Some(Frozen::Still));
                return Ok((pool, roots));
            }
            // SAFETY: frozen above, and left as they were.
            frozen().for_each(|root| unsafe { root.thaw() });
            if found.contains(&Frozen::Used) {
                drop(state);
                return Err(errors::refused_by_tokens(py, what));
            }
            // Another thread is about to drop the last reference to a token.
            self.wait_after(py, state)?;
        }
    }

    /// Moves the team back into a pool.
    pub(crate) fn move_into_pool(&self, py: Python<'_>, moves: u64) -> PyResult<()> {
        self.refuse_from_inside(py, "Team.into_pool()")?;
        let mover = self.become_mover(py, "Team.into_pool()", |state| state.has_team(moves))?;
        match mover.take_owner(py)? {
            Owner::Team(team) => {
                py.detach(|| mover.give_back(team));
                Ok(())
            }
            owner => {
                mover.put_owner(owner, |_| ());
                Err(self.gone(py, "Team.into_pool()"))
            }
        }
    }

    /// Raises unless the team of move `moves` still has the pool.
    pub(crate) fn check_team(&self, py: Python<'_>, moves: u64, operation: &str) -> PyResult<()> {
        if self.state.lock().has_team(moves) {
            return Ok(());
        }
        Err(self.gone(py, operation))
    }

    /// Nobody has the object of the team of move `moves` any more: the pool gets its workers back when the last token ends.
    pub(crate) fn abandon_team(&self, moves: u64) {
        let mut state = self.state.lock();
        if !state.has_team(moves) {
            return;
        }
        state.abandoned = true;
        drop(state);
        self.take_home();
    }

    /// Moves an abandoned team that no token needs back into the pool.
    pub(super) fn take_home(&self) {
        let mut state = self.state.lock();
        if !state.abandoned || state.closing || state.borrowing > 0 || state.mover.is_some() || life::closing() {
            return;
        }
        let Owner::Team(team) = state.take_owner() else { unreachable!("it has a team") };
        state.mover = Some(Here::now());
        drop(state);
        let mover = Mover(self);
        Python::attach(|py| py.detach(|| mover.give_back(team)));
    }
}

impl Mover<'_> {
    /// Gives a team's members free and its pool back.
    fn give_back(&self, team: Box<Team>) {
        let pool = Owner::Pool(Box::new(team.into_pool()));
        self.put_owner(pool, |state| {
            state.moves += 1;
            state.abandoned = false;
        });
    }
}

/// Drops the workers' owner, off the interpreter.
fn discard(owner: Owner) {
    if life::closing() {
        // Workers may sleep for good inside a body; the end of the process takes them.
        mem::forget(owner);
    } else {
        drop(owner);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let owner = mem::replace(&mut self.state.get_mut().owner, Owner::Closed);
        if matches!(owner, Owner::Closed) {
            return;
        }
        if life::closing() {
            mem::forget(owner);
            return;
        }
        Python::attach(|py| py.detach(|| discard(owner)));
    }
}
