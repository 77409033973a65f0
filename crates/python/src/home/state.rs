//! Who has a pool's workers, and which tokens borrow from them: one lock, so that each look and the step that follows are one.

use super::Root;
use crate::life;
use std::mem;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use threadteam::{Pool, Stats, Team};

/// Who owns the workers now.
pub(super) enum Owner {
    Pool(Box<Pool>),
    Team(Box<Team>),
    /// On the way from one to the other, or to its end, in the hands of `State::mover`.
    Moving,
    Closed,
}

impl Owner {
    /// The runtime's pool, where it is now.
    pub(super) fn pool(&self) -> Option<&Pool> {
        match self {
            Owner::Pool(pool) => Some(pool),
            Owner::Team(team) => Some(team.pool()),
            Owner::Moving | Owner::Closed => None,
        }
    }
}

/// A thread of a process: after a fork its like in the child is another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Here {
    pub(super) thread: ThreadId,
    pub(super) generation: u32,
}

impl Here {
    pub(super) fn now() -> Here {
        Here { thread: std::thread::current().id(), generation: life::generation() }
    }
}

/// Who holds a team's root token.
pub(super) struct Holder {
    pub(super) here: Here,
    pub(super) token: Weak<Root>,
}

/// What a [`Home`](super::Home) guards by its lock.
///
/// Nobody runs Python code, drops a token or waits while holding that: tokens take it as they end.
pub(super) struct State {
    pub(super) owner: Owner,
    /// Somebody has closed the pool, or is about to: no token is minted any more.
    pub(super) closing: bool,
    /// Who takes the owner apart, or waits until the root tokens have ended to do so.
    pub(super) mover: Option<Here>,
    /// Counts moves into teams and out of them, so that a team that gave its pool back knows that it did.
    pub(super) moves: u64,
    /// Whether nobody has the team's object any more: the workers go back to the pool with its last token.
    pub(super) abandoned: bool,
    /// Root tokens, those included that have ended.
    pub(super) roots: Vec<Weak<Root>>,
    /// Root tokens that still hold a token of the runtime, which borrows from the owner. Those are counted too whose last
    /// reference is just being dropped, which `roots` does not show.
    pub(super) borrowing: usize,
    pub(super) lead: Option<Holder>,
    /// Threads that wait for a change.
    pub(super) waiting: usize,
    /// The counters when the owner was last taken away, which are a closed pool's.
    pub(super) counted: Stats,
}

impl State {
    pub(super) fn new(pool: Box<Pool>) -> State {
        State {
            owner: Owner::Pool(pool),
            closing: false,
            mover: None,
            moves: 0,
            abandoned: false,
            roots: Vec::new(),
            borrowing: 0,
            lead: None,
            waiting: 0,
            counted: Stats::default(),
        }
    }

    /// Counts a new root token in.
    pub(super) fn register(&mut self, token: &Arc<Root>) {
        // Amortised: the list is swept whenever it would grow.
        if self.roots.len() == self.roots.capacity() {
            self.roots.retain(|root| root.strong_count() > 0);
        }
        self.roots.push(Arc::downgrade(token));
        self.borrowing += 1;
    }

    /// The root tokens that somebody has. To be dropped without the lock: one may be the last reference.
    pub(super) fn roots(&self) -> Vec<Arc<Root>> {
        self.roots.iter().filter_map(Weak::upgrade).collect()
    }

    /// Takes the owner away, which no token borrows from.
    pub(super) fn take_owner(&mut self) -> Owner {
        let owner = mem::replace(&mut self.owner, Owner::Moving);
        self.counted = owner.pool().map_or(self.counted, Pool::stats);
        owner
    }

    /// The pool's counters now, or when it was closed.
    pub(super) fn stats(&self) -> Stats {
        self.owner.pool().map_or(self.counted, Pool::stats)
    }

    /// Whether the pool can mint tokens.
    pub(super) fn is_open(&self) -> bool {
        !self.closing && matches!(self.owner, Owner::Pool(_))
    }

    /// Whether the team of move `moves` has the workers still, though perhaps not for long.
    pub(super) fn has_team(&self, moves: u64) -> bool {
        !self.closing && self.moves == moves
    }

    /// In the child of a fork, while it has one thread: nobody is here who was at something.
    pub(super) fn leave_parent(&mut self, roots: &[Arc<Root>]) {
        self.mover = None;
        self.waiting = 0;
        // What the last references of others counted is not taken back here.
        self.borrowing = roots.iter().filter(|root| !root.is_dead()).count();
        if matches!(self.owner, Owner::Moving) {
            self.owner = Owner::Closed;
        }
    }
}
