//! Pauses at the steps of the protocol, and steps left out, so that a test can force an interleaving (feature `test-hooks`).
//!
//! A hook is called on the thread that reaches a [`Point`] and may hold it there. A [`Mutation`] leaves one step of the
//! protocol out, to show that the interleaving which that step is for does go wrong without it. Both are the process's: tests
//! that use them run one at a time. Without the feature neither exists, and a point compiles to nothing.
//!
//! # Examples
//!
//! ```
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use std::sync::Arc;
//! use threadteam::test_hooks::{self, Point};
//! use threadteam::{Exec, Pool};
//!
//! let posts = Arc::new(AtomicUsize::new(0));
//! let counter = Arc::clone(&posts);
//! test_hooks::set_hook(Some(Arc::new(move |point| {
//!     if point == Point::Posted {
//!         counter.fetch_add(1, Ordering::Relaxed);
//!     }
//! })));
//! let pool = Pool::builder().threads(2).acquire_timeout(std::time::Duration::from_secs(10)).build()?;
//! Exec::new(&pool, 2)?.broadcast(|_| ()).unwrap();
//! test_hooks::set_hook(None);
//! assert_eq!(posts.load(Ordering::Relaxed), 1);
//! # Ok::<(), threadteam::Error>(())
//! ```

pub use crate::sync::Mutation;

use crate::pool::Pool;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A step of the protocol, named after what has just happened or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// A caller has read the free mask and is about to claim what it saw there.
    BeforeClaim,
    /// A caller is about to give workers back.
    BeforeRelease,
    /// A leader has posted to every member, and has not yet looked who sleeps.
    Posted,
    /// A leader or a woken member has found a sleeper, and has not yet cleared its parked bit.
    BeforeWake,
    /// A waker has cleared a parked bit, and has not yet stored 0 in the bed.
    BeforeBedStore,
    /// A leader is about to take chunks out of a member's word.
    BeforeRevoke,
    /// A leader found a member inside at its join and is about to store 1 in its bed.
    BeforeLeaderBed,
    /// The leader's bed holds 1, and the word does not yet say that it waits.
    BeforeAnnounce,
    /// The word says that the leader waits, and it is about to sleep.
    BeforeLeaderSleep,
    /// A worker found an open word, and has not yet entered.
    BeforeEntry,
    /// A worker found that the word had changed before it entered.
    EntryLost,
    /// A worker is inside, and has not yet read the job.
    Entered,
    /// The captain of a group is inside, and has not yet posted to its group.
    BeforeRelay,
    /// A worker has done its share, and is about to leave.
    BeforeLeave,
    /// A worker has left and found that its leader sleeps; its bed still holds 1.
    BeforeLeaderWake,
    /// A worker has nothing to do, and has not yet stored 1 in its bed.
    BeforePark,
    /// A worker has set its parked bit, and has not yet looked at its word again.
    Parked,
    /// A worker found its word still idle, and is about to sleep.
    BeforeSleep,
    /// A worker has slept, and has not yet cleared its parked bit.
    Woken,
    /// A participant has said that it reached a barrier, and has not yet looked who sleeps there.
    Arrived,
    /// A participant found sleepers at the barrier, and is about to wake them.
    BeforeBarrierWake,
    /// A participant found a peer missing, and has not yet counted itself among the sleepers.
    BeforeBarrierCount,
    /// A participant has counted itself among the sleepers, and has not yet looked at its peer again.
    BarrierCounted,
    /// A participant found its peer still missing, and is about to sleep.
    BeforeBarrierSleep,
    /// A section was cancelled, and those who sleep at its barrier have not been woken.
    BeforeCancelWake,
}

/// What a test does at a point, on the thread that reached it.
pub type Hook = Arc<dyn Fn(Point) + Send + Sync>;

static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

/// The mutation's number plus one; 0 for none.
static LEFT_OUT: AtomicU32 = AtomicU32::new(0);

/// Calls `hook` at every point from now on, or no hook any more. Threads inside the earlier one stay there.
pub fn set_hook(hook: Option<Hook>) {
    *HOOK.write().unwrap_or_else(PoisonError::into_inner) = hook;
}

/// Leaves one step out from now on, or none.
pub fn set_mutation(mutation: Option<Mutation>) {
    LEFT_OUT.store(mutation.map_or(0, |mutation| mutation as u32 + 1), Ordering::SeqCst);
}

/// Wakes everybody who sleeps on `pool`, as it should have been: a test that stalled the protocol goes on from here.
pub fn wake_everybody(pool: &Pool) {
    pool.inner().wake_everybody();
}

pub(crate) fn is_active(mutation: Mutation) -> bool {
    LEFT_OUT.load(Ordering::SeqCst) == mutation as u32 + 1
}

/// The calling thread is at `point`.
pub(crate) fn reach(point: Point) {
    // Not under the lock: a hook that holds its thread must not keep others from setting the next one.
    let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(hook) = hook {
        hook(point);
    }
}
