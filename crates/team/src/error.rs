//! What can be refused, and why.

use crate::cost::DispatchKind;
use std::fmt;

/// A request that cannot be served; nothing ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A token was requested with no slot, or a child of `fork_sized` with a share of none.
    #[error("an execution budget must be at least one slot; pass 1 to run on the calling thread")]
    ZeroBudget,
    /// A pool was requested with no participant.
    #[error("a pool needs at least one participant; pass 1 for the calling thread alone")]
    ZeroThreads,
    /// A pool was requested with more participants than the runtime numbers.
    #[error("a pool has at most {most} participants, {wanted} were requested")]
    TooManyThreads {
        /// What was asked for.
        wanted: usize,
        /// The most that a pool can have.
        most: usize,
    },
    /// What was given as cache domains are none.
    #[error("the cache domains are not disjoint sets of CPUs that this process may use: {0}")]
    InvalidDomains(String),
    /// A pool was requested with more participants than its cache domains have CPUs.
    #[error(
        "{threads} participants were requested over cache domains of {cpus} usable CPUs; ask for at most one a CPU"
    )]
    ThreadsExceedDomains {
        /// What was asked for.
        threads: usize,
        /// The CPUs of all domains that the process may use.
        cpus: usize,
    },
    /// The operating system refused to start a worker.
    #[error("failed to start the pool workers: {0}")]
    PoolBuild(String),
    /// The operating system refused some workers; the pool runs with those it has.
    #[error("only {started} of {wanted} pool workers could be started: {reason}")]
    ThreadStart {
        /// Workers that run.
        started: usize,
        /// Workers that the pool's width asks for.
        wanted: usize,
        /// The system's words.
        reason: String,
    },
    /// The sizes given to a split are empty, contain a zero, or add up to more than the team.
    #[error("child team sizes must be non-empty, non-zero and sum to at most the team size")]
    InvalidSplit,
    /// The shares given to `fork_sized` add up to more than the budget.
    #[error("the shares sum to {sum}, more than the budget of {budget}")]
    SharesExceedBudget {
        /// The token's budget.
        budget: usize,
        /// The sum of the shares.
        sum: usize,
    },
    /// A cost was to be measured on a pool that cannot run such a section, or not now.
    #[error("no section of {width} participants ({kind:?}) could be measured: the pool is too narrow, or its members are busy")]
    NotMeasured {
        /// How the section was to reach its participants.
        kind: DispatchKind,
        /// How many participants it was to have.
        width: usize,
    },
}

/// A request for participants that run at the same time, refused before anything ran.
///
/// The caller falls back to a kernel that does not need them all at once.
///
/// # Examples
///
/// ```
/// use threadteam::Refused;
///
/// assert!(Refused::ForkChild.to_string().contains("fork"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The token is a child of a `fork` of a plain token: its slots may share workers with its siblings.
    #[error("the token is a child of a fork, whose slots may share workers with its siblings")]
    ForkChild,
    /// The caller is a worker of the token's pool and would occupy a slot that the participants need.
    #[error("the caller is a worker of the token's pool and would occupy a participant's slot")]
    CallerInPool,
    /// The caller's wait hook ended its wait for participants.
    #[error("the wait for the participants was ended by the caller's hook")]
    Interrupted,
    /// Not every participant could be had within the pool's `acquire_timeout`.
    #[error("the participants could not all be reserved within the acquisition timeout")]
    Unavailable,
    /// Another root token leads the team, in another thread or in this one.
    #[error("another root token leads this team")]
    Busy,
}

/// A barrier that some participant will not reach, because it panicked or cancelled the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a participant of the section failed or cancelled it")
    }
}

impl std::error::Error for Cancelled {}
