//! Atomics, fences and the futex behind one door, so that `loom` can stand in for the real ones.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

pub(crate) use crate::futex::Futex;

/// Aligns to two cache lines: x86 prefetches lines in pairs, Apple lines are 128 bytes, those of IBM Z 256.
#[derive(Debug, Default)]
#[cfg_attr(target_arch = "s390x", repr(align(256)))]
#[cfg_attr(not(target_arch = "s390x"), repr(align(128)))]
pub(crate) struct OwnLine<T>(pub(crate) T);

impl<T> std::ops::Deref for OwnLine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Protocol steps that a model, or a test that forces an interleaving, can leave out to show that it would notice.
#[cfg(any(loom, feature = "test-hooks"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutation {
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
    /// A wake counts as one even if the member has left the section and sleeps again.
    CountEveryWake,
    /// The worker clears its own parked bit relaxed: it may not see the posts of those that it is to wake.
    RelaxedUnpark,
    /// A captain cuts its group's chunks off its word by a plain store.
    CedeByStore,
    /// A captain leaves while a share that it posted is open.
    LeaveOpenShares,
    /// A captain of a cancelled section leaves the shares that it posted open.
    SkipRelayDrain,
    /// A captain of a gang does not look for sleepers in its group.
    SkipRelayLook,
    /// The leader joins those at the end of the list first.
    JoinBackwards,
    /// The waker clears the parked bit and does not store the bed.
    SkipBedStore,
    /// The post is relaxed: the job fields may arrive after the word.
    RelaxedPost,
    /// The join reads the word relaxed: the share's writes may arrive after it.
    RelaxedJoin,
    /// A participant arrives at a barrier without the fence before it looks for sleepers.
    SkipBarrierFence,
    /// A participant goes to sleep at a barrier without the fence before it looks at its peer again.
    SkipBarrierSleepFence,
    /// A section that is cancelled does not wake those who sleep at its barrier.
    SkipCancelWake,
    /// A caller claims workers without what their last holder did to their slots.
    RelaxedClaim,
    /// A caller gives workers back without publishing what it did to their slots.
    RelaxedRelease,
    /// A caller claims what it saw free by a plain store instead of a compare-and-swap.
    ClaimByStore,
    /// A worker that leaves wakes its leader and does not store the leader's bed.
    SkipLeaderBedStore,
    /// A participant does not look at its peer again before it sleeps at a barrier.
    SkipBarrierRecheck,
    /// A participant that arrives at a barrier does not wake those who sleep there.
    SkipBarrierWake,
    /// A member that was woken wakes nobody else.
    SkipPassingOn,
    /// A replaced trace is freed without a look at who records into it.
    SkipTraceCount,
    /// A thread counts itself as recording without ordering that before its look at which trace it records into.
    RelaxedTraceCount,
    /// A reader of a trace does not look whether an event was overwritten while it was read.
    SkipTraceStamp,
    /// A thread of the cache is given a job relaxed: the job's content may arrive later.
    RelaxedAssign,
    /// The thread, and who takes its job back, both store instead of exchanging.
    TakeByStore,
    /// The thread is done by a plain store: it cannot see that its holder sleeps, or wants it to end.
    VacateByStore,
    /// A caller that is about to sleep for workers does not write to the free mask.
    SkipCallerMeeting,
    /// It does not look at the free mask again before it sleeps.
    SkipCallerRecheck,
}

/// The step that this process leaves out, named by `THREADTEAM_MUTATION`.
#[cfg(loom)]
pub(crate) fn is_active(mutation: Mutation) -> bool {
    static ACTIVE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let active = ACTIVE.get_or_init(|| std::env::var("THREADTEAM_MUTATION").ok());
    active.as_deref().is_some_and(|active| active == format!("{mutation:?}"))
}

/// `mutated!(Step)` is true when a model or a test leaves that step out, and the constant `false` in the product.
macro_rules! mutated {
    ($step:ident) => {{
        #[cfg(loom)]
        let left_out = $crate::sync::is_active($crate::sync::Mutation::$step);
        #[cfg(all(not(loom), feature = "test-hooks"))]
        let left_out = $crate::test_hooks::is_active($crate::sync::Mutation::$step);
        #[cfg(not(any(loom, feature = "test-hooks")))]
        let left_out = false;
        left_out
    }};
}
pub(crate) use mutated;

/// `at!(Point)`: a test may hold the thread here; nothing in the product.
macro_rules! at {
    ($point:ident) => {
        #[cfg(feature = "test-hooks")]
        $crate::test_hooks::reach($crate::test_hooks::Point::$point)
    };
}
pub(crate) use at;
