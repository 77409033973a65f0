//! One explicit token for a share of one thread pool.
//!
//! A [`Pool`] owns threads. An [`Exec`] is a token for some of its slots: every parallel step runs on one, passed by value
//! down to the kernel, and can only divide what it was given. A [`Team`] or [`TeamExec`] reserves members, so that shares
//! may wait for each other. Nothing is ambient: no global pool, no thread-local pool, no thread before a pool is built.
//!
//! | To | Use |
//! | --- | --- |
//! | run a loop on the CPUs that were granted | [`Exec::for_ranges`] |
//! | run jobs that may go parallel themselves | [`Exec::fork`], [`Exec::fork_sized`] |
//! | run a kernel with barriers | [`Exec::broadcast`], [`Exec::team`] and [`Participant::barrier`] |
//! | hold members for many sections | [`Pool::into_team`], [`Exec::reserve`] |
//! | hand the CPUs to another library | [`Exec::external`] |
//! | decide whether that pays | [`Exec::sized_for`], [`Exec::width_for`], [`pays_at`] |
//! | say what a section costs here | [`PoolBuilder::dispatch_costs`], [`Sample`] |
//! | see what ran where | [`Pool::stats`], [`trace`] |
//!
//! `examples/` has whole programs. `PROTOCOL.md` beside this crate describes how a section is dispatched. The crate depends on `libc`, `atomic-wait` and
//! `thiserror`, and on nothing else of its workspace.
//!
//! # Examples
//!
//! ```
//! use std::num::NonZeroUsize;
//! use threadteam::{Exec, Pool};
//!
//! fn scale(exec: Exec<'_>, data: &[std::sync::atomic::AtomicU32], by: u32) {
//!     use std::sync::atomic::Ordering::Relaxed;
//!     exec.for_ranges(data.len(), NonZeroUsize::new(1024).unwrap(), |range| {
//!         data[range].iter().for_each(|x| x.store(x.load(Relaxed) * by, Relaxed));
//!     });
//! }
//!
//! let data: Vec<_> = (0..5000).map(std::sync::atomic::AtomicU32::new).collect();
//! let pool = Pool::builder().threads(2).build()?;
//! scale(Exec::new(&pool, 2)?, &data, 3);
//! scale(Exec::serial(), &data, 2);
//! assert_eq!(data[7].load(std::sync::atomic::Ordering::Relaxed), 42);
//! # Ok::<(), threadteam::Error>(())
//! ```

mod acquire;
mod alone;
mod berth;
mod cache;
mod calibrate;
mod cost;
mod crew;
mod crowd;
mod desk;
mod domains;
mod error;
mod exec;
mod foreign;
mod fork;
mod free;
mod futex;
mod idle;
mod inner;
mod lag;
pub mod ledger;
mod lend;
#[cfg(all(test, loom))]
mod models;
mod parking;
mod pin;
mod place;
mod policy;
mod pool;
mod recorder;
mod relay;
mod reserve;
mod rhythm;
mod scope;
mod section;
mod share;
mod slot;
mod stats;
mod sync;
mod team;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;
pub mod trace;
mod wait;
mod width;
mod word;
mod worker;

pub use cache::{keep_workers, kept_workers};
pub use calibrate::Sample;
pub use cost::{pays_at, width_for_by, DispatchCosts, DispatchKind, HostClass, WidthCosts, PAYS};
pub use error::{Cancelled, Error, Refused};
pub use exec::Exec;
pub use foreign::Foreign;
pub use fork::{forks, Bell, ForkGuard, ForkLock};
pub use lend::External;
pub use pin::before_foreign_work;
pub use policy::{raise_current_thread_qos, Qos, WaitOverride, WaitPolicy};
pub use pool::{Pool, PoolBuilder};
pub use reserve::{IntoTeamError, Team};
pub use scope::Reserved;
pub use stats::{Stats, WaitStats};
pub use team::{Participant, Share, TeamExec};

/// The panic payload of a section whose process was forked by one of its bodies: in the child its workers do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkedInside;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
