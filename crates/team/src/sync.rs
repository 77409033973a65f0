//! Atomics, fences and the futex behind one door, so that `loom` can stand in for the real ones.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

pub(crate) use crate::futex::Futex;

/// Aligns to two cache lines: x86 prefetches lines in pairs, Apple lines are 128 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

impl<T> std::ops::Deref for OwnLine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Protocol steps that a model can leave out to show that it would notice.
#[cfg(loom)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The parking worker does not look at its word again before it sleeps.
    SkipRecheck,
    /// The parking worker leaves out the fence between its parked bit and that look (F2).
    SkipParkFence,
    /// The leader of a gang section leaves out the fence between its posts and the parked mask (F1).
    SkipPostFence,
    /// A worker enters by a plain store instead of a compare-and-swap.
    EnterByStore,
    /// A worker leaves by a plain store, so it cannot see that the leader waits.
    LeaveByStore,
    /// A leader that sleeps again at the same join does not write its word again.
    AnnounceOnce,
    /// The parked bit is set relaxed: the bed's 1 may come to rest on a waker's 0.
    RelaxedParkedBit,
    /// The waker clears the parked bit and does not store the bed.
    SkipBedStore,
    /// The post is relaxed: the job fields may arrive after the word.
    RelaxedPost,
    /// The join reads the word relaxed: the share's writes may arrive after it.
    RelaxedJoin,
    /// A participant arrives at a barrier without the fence before it looks for sleepers.
    SkipBarrierFence,
}

#[cfg(loom)]
mod mutations {
    use super::Mutation;
    use std::sync::Mutex;

    static ACTIVE: Mutex<Option<Mutation>> = Mutex::new(None);

    /// Leaves one step out of every model run until it is called again.
    pub(crate) fn set_mutation(mutation: Option<Mutation>) {
        *ACTIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = mutation;
    }

    pub(crate) fn is_active(mutation: Mutation) -> bool {
        *ACTIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) == Some(mutation)
    }
}

#[cfg(loom)]
pub(crate) use mutations::{is_active, set_mutation};

/// `mutated!(Step)` is true when a model leaves that step out, and the constant `false` outside models.
macro_rules! mutated {
    ($step:ident) => {{
        #[cfg(loom)]
        let left_out = $crate::sync::is_active($crate::sync::Mutation::$step);
        #[cfg(not(loom))]
        let left_out = false;
        left_out
    }};
}
pub(crate) use mutated;
