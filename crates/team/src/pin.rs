//! Placing the members of a team on CPUs of their own, when the pool asks for it (Linux).
//!
//! A root team scope runs one gang section in which member `k` pins itself to the `k`-th CPU of the leader's mask. Every
//! thread changes its own mask only, and keeps the one it had; it puts that back in another gang section before the
//! reservation ends, when it leaves the pool, and before it hands its slots to another library. The leader stays where it is: a
//! library that builds its own threads from a thread bound to one CPU would run them all there.

use crate::acquire::Hook;
use crate::inner::Inner;
use crate::section::Leader;
use std::cell::{Cell, UnsafeCell};

/// A set of CPUs, as a thread's affinity mask.
#[derive(Clone, Copy)]
pub(crate) struct CpuSet(imp::Set);

#[cfg(all(target_os = "linux", not(loom)))]
mod imp {
    pub(super) type Set = libc::cpu_set_t;

    pub(super) fn of_thread(number: libc::pid_t) -> Option<Set> {
        // SAFETY: an all-zero set is valid, and the kernel writes at most the size given.
        unsafe {
            let mut set: Set = std::mem::zeroed();
            (libc::sched_getaffinity(number, size_of::<Set>(), &mut set) == 0).then_some(set)
        }
    }

    pub(super) fn add(set: &mut Set, other: &Set) {
        for cpu in 0..libc::CPU_SETSIZE as usize {
            // SAFETY: every number is below the size of both sets.
            unsafe {
                if libc::CPU_ISSET(cpu, other) {
                    libc::CPU_SET(cpu, set);
                }
            }
        }
    }

    pub(super) fn give_to_this_thread(set: &Set) {
        // SAFETY: the set is valid; thread 0 is the calling one. A refusal leaves the thread as it was.
        unsafe {
            libc::sched_setaffinity(0, size_of::<Set>(), set);
        }
    }

    pub(super) fn count(set: &Set) -> usize {
        // SAFETY: counts the bits of a valid set.
        unsafe { libc::CPU_COUNT(set) as usize }
    }

    /// The `k`-th CPU of the set, wrapping around; `None` for an empty set.
    pub(super) fn nth(set: &Set, k: usize) -> Option<Set> {
        let at = k.checked_rem(count(set))?;
        // SAFETY: every number is below the size of the set.
        let cpu = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, set) }).nth(at)?;
        // SAFETY: an all-zero set is valid, and `cpu` is below its size.
        unsafe {
            let mut one: Set = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            Some(one)
        }
    }

    pub(super) fn equal(left: &Set, right: &Set) -> bool {
        // SAFETY: compares two valid sets.
        unsafe { libc::CPU_EQUAL(left, right) }
    }
}

#[cfg(any(not(target_os = "linux"), loom))]
mod imp {
    #[derive(Clone, Copy)]
    pub(super) struct Set;

    pub(super) fn of_thread(_number: i32) -> Option<Set> {
        None
    }

    pub(super) fn add(_set: &mut Set, _other: &Set) {}

    pub(super) fn give_to_this_thread(_set: &Set) {}

    pub(super) fn count(_set: &Set) -> usize {
        0
    }

    pub(super) fn nth(_set: &Set, _k: usize) -> Option<Set> {
        None
    }

    pub(super) fn equal(_left: &Set, _right: &Set) -> bool {
        true
    }
}

impl CpuSet {
    /// The calling thread's mask; `None` where there is none, or the kernel's is larger than the type.
    pub(crate) fn of_this_thread() -> Option<CpuSet> {
        imp::of_thread(0).map(CpuSet)
    }

    /// That of the thread with this kernel number; `None` also when there is none, or it has ended.
    pub(crate) fn of_thread(number: u64) -> Option<CpuSet> {
        let number = i32::try_from(number).ok().filter(|&number| number != 0)?;
        imp::of_thread(number).map(CpuSet)
    }

    /// Adds the CPUs of `other`.
    pub(crate) fn add(&mut self, other: &CpuSet) {
        imp::add(&mut self.0, &other.0);
    }

    /// How many CPUs it has.
    pub(crate) fn count(&self) -> usize {
        imp::count(&self.0)
    }

    /// Makes it the calling thread's mask, unless it is already.
    pub(crate) fn adopt(&self) {
        if imp::of_thread(0).is_some_and(|own| !imp::equal(&own, &self.0)) {
            imp::give_to_this_thread(&self.0);
        }
    }
}

/// What a worker's mask was before it was pinned. Only the slot's own thread touches it.
pub(crate) struct Pin(UnsafeCell<Option<CpuSet>>);

// SAFETY: `place` and `restore` are called by the slot's thread alone, which is one at a time (its berth hands the slot on).
unsafe impl Sync for Pin {}

thread_local! {
    /// The pin of the slot that the thread serves.
    static OWN: Cell<*const Pin> = const { Cell::new(std::ptr::null()) };
}

impl Pin {
    pub(crate) const fn none() -> Self {
        Pin(UnsafeCell::new(None))
    }

    /// Binds the calling thread, whose slot this is, to the `k`-th CPU of `cpus`.
    fn place(&self, cpus: &CpuSet, k: usize) {
        debug_assert!(std::ptr::eq(OWN.get(), self));
        let Some(one) = imp::nth(&cpus.0, k) else { return };
        // SAFETY: this is the slot's thread (see the type).
        let saved = unsafe { &mut *self.0.get() };
        if saved.is_none() {
            *saved = CpuSet::of_this_thread();
        }
        if saved.is_some() {
            imp::give_to_this_thread(&one);
        }
    }

    /// Gives the calling thread, whose slot this is, the mask that it had before it was first placed.
    fn restore(&self) {
        debug_assert!(std::ptr::eq(OWN.get(), self));
        // SAFETY: this is the slot's thread (see the type).
        if let Some(saved) = unsafe { (*self.0.get()).take() } {
            imp::give_to_this_thread(&saved.0);
        }
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

/// The calling thread serves the slot of `pin` until this is dropped, which puts its mask back.
pub(crate) struct Serving<'a>(&'a Pin);

impl<'a> Serving<'a> {
    pub(crate) fn begin(pin: &'a Pin) -> Self {
        OWN.set(pin);
        Serving(pin)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.restore();
        OWN.set(std::ptr::null());
    }
}

/// Puts the calling thread's own mask back if it is a pinned member of a team: called before code that builds threads of its
/// own from the calling one. The next root team scope pins it again.
///
/// [`Exec::external`](crate::Exec::external) does it; a language binding that has its own way to hand slots out calls it there.
pub fn before_foreign_work() {
    // SAFETY: the pointer is set while this very thread serves the slot, whose pool lives then.
    if let Some(own) = unsafe { OWN.get().as_ref() } {
        own.restore();
    }
}

/// Pins each of `members`, which the caller has claimed, to a CPU of the calling thread's mask.
pub(crate) fn place_members(inner: &Inner, members: &[u16], hook: Option<Hook<'_>>) {
    let Some(cpus) = CpuSet::of_this_thread() else { return };
    on_members(inner, members, hook, |pin, index| pin.place(&cpus, index));
}

/// Puts their masks back. Not in a forked child, whose workers are others.
pub(crate) fn restore_members(inner: &Inner, members: &[u16], epoch: u32) {
    if inner.is_ready() && inner.epoch() == epoch {
        on_members(inner, members, None, |pin, _| pin.restore());
    }
}

fn on_members(inner: &Inner, members: &[u16], hook: Option<Hook<'_>>, change: impl Fn(&Pin, usize) + Sync) {
    if members.is_empty() {
        return;
    }
    let share = |index: usize, _size: usize| {
        if let Some(at) = index.checked_sub(1) {
            change(&inner.slots[usize::from(members[at])].pin, index);
        }
    };
    let (call, data) = crate::exec::erase_share(&share);
    // SAFETY: `share` outlives the call and is `Sync`; the caller has claimed `members`, which are not empty.
    unsafe { Leader { inner, hook, wait: &inner.settings.wait, estimate: 0 }.gang(members, call, data) };
}

/// The members of a scope, pinned until it ends.
pub(crate) struct Placed<'a> {
    inner: &'a Inner,
    members: &'a [u16],
    epoch: u32,
}

impl<'a> Placed<'a> {
    pub(crate) fn enter(inner: &'a Inner, members: &'a [u16], hook: Option<Hook<'_>>) -> Self {
        let placed = Placed { inner, members, epoch: inner.epoch() };
        place_members(inner, members, hook);
        placed
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        restore_members(self.inner, self.members, self.epoch);
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    fn cpus(set: &CpuSet) -> Vec<usize> {
        // SAFETY: every number is below the size of the set.
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set.0) }).collect()
    }

    fn set(of: &[usize]) -> CpuSet {
        // SAFETY: an all-zero set is valid, and the numbers are below its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            of.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
            CpuSet(set)
        }
    }

    #[test]
    fn members_get_the_set_cpus_in_order_and_around() {
        let allowed = set(&[3, 70, 1000]);
        let given: Vec<_> = (0..5).map(|k| cpus(&CpuSet(imp::nth(&allowed.0, k).unwrap()))).collect();
        assert_eq!(given, [vec![3], vec![70], vec![1000], vec![3], vec![70]]);
    }

    #[test]
    fn an_empty_mask_places_nobody() {
        let before = CpuSet::of_this_thread().unwrap();
        let pin = Pin::none();
        let serving = Serving::begin(&pin);
        pin.place(&set(&[]), 1);
        assert_eq!(cpus(&CpuSet::of_this_thread().unwrap()), cpus(&before));
        drop(serving);
    }

    #[test]
    fn a_refused_cpu_leaves_the_thread_as_it_was() {
        let before = CpuSet::of_this_thread().unwrap();
        let pin = Pin::none();
        let serving = Serving::begin(&pin);
        pin.place(&set(&[1023]), 1);
        assert_eq!(cpus(&CpuSet::of_this_thread().unwrap()), cpus(&before));
        drop(serving);
        assert_eq!(cpus(&CpuSet::of_this_thread().unwrap()), cpus(&before));
    }

    #[test]
    fn moving_away_does_nothing_on_a_thread_that_has_one_cpu() {
        let pin = Pin::none();
        let serving = Serving::begin(&pin);
        let before = CpuSet::of_this_thread().unwrap();
        pin.place(&before, 0);
        let placed = cpus(&CpuSet::of_this_thread().unwrap());
        crate::place::move_away();
        assert_eq!((cpus(&CpuSet::of_this_thread().unwrap()), placed.len()), (placed.clone(), 1));
        drop(serving);
        assert_eq!(cpus(&CpuSet::of_this_thread().unwrap()), cpus(&before));
    }
}
