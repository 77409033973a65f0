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

    /// Of the numbers given, those that a set can hold.
    pub(super) fn of(cpus: impl Iterator<Item = usize>) -> Set {
        // SAFETY: an all-zero set is valid, and the numbers are below its size.
        unsafe {
            let mut set: Set = std::mem::zeroed();
            cpus.filter(|&cpu| cpu < libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
            set
        }
    }

    pub(super) fn has(set: &Set, cpu: usize) -> bool {
        // SAFETY: the number is below the size of the set.
        cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, set) }
    }

    pub(super) fn cpus(set: &Set) -> impl Iterator<Item = usize> + '_ {
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| has(set, cpu))
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

    pub(super) fn of(_cpus: impl Iterator<Item = usize>) -> Set {
        Set
    }

    pub(super) fn has(_set: &Set, _cpu: usize) -> bool {
        false
    }

    pub(super) fn cpus(_set: &Set) -> impl Iterator<Item = usize> {
        std::iter::empty()
    }

    pub(super) fn give_to_this_thread(_set: &Set) {}

    pub(super) fn count(_set: &Set) -> usize {
        0
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

    /// These CPUs, but for numbers that no mask can have.
    pub(crate) fn of(cpus: &[usize]) -> CpuSet {
        CpuSet(imp::of(cpus.iter().copied()))
    }

    pub(crate) fn has(&self, cpu: usize) -> bool {
        imp::has(&self.0, cpu)
    }

    /// Adds the CPUs of `other`.
    pub(crate) fn add(&mut self, other: &CpuSet) {
        self.0 = imp::of(imp::cpus(&self.0).chain(imp::cpus(&other.0)));
    }

    /// The CPUs that are in `other` too, if there are any.
    fn and(&self, other: &CpuSet) -> Option<CpuSet> {
        let both = CpuSet(imp::of(imp::cpus(&self.0).filter(|&cpu| other.has(cpu))));
        (both.count() > 0).then_some(both)
    }

    /// The `k`-th CPU of the set, wrapping around; `None` for an empty set.
    fn nth(&self, k: usize) -> Option<CpuSet> {
        let at = k.checked_rem(self.count())?;
        Some(CpuSet(imp::of(imp::cpus(&self.0).skip(at).take(1))))
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

impl std::fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(imp::cpus(&self.0)).finish()
    }
}

/// Where a worker of a pool over cache domains belongs.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The CPUs of its domain.
    pub(crate) cpus: CpuSet,
    /// Its number among the domain's participants.
    pub(crate) number: usize,
}

/// A worker's own mask while its pool has changed it. Only the slot's own thread touches it.
pub(crate) struct Pin {
    own: UnsafeCell<Option<CpuSet>>,
    /// Whether it has left its domain for foreign work.
    away: Cell<bool>,
    seat: Option<Seat>,
}

// SAFETY: every function but `has_seat` is called by the slot's thread alone, which is one at a time (its berth hands the slot
// on); the seat does not change.
unsafe impl Sync for Pin {}

thread_local! {
    /// The pin of the slot that the thread serves.
    static OWN: Cell<*const Pin> = const { Cell::new(std::ptr::null()) };
}

impl Pin {
    pub(crate) const fn none() -> Self {
        Pin { own: UnsafeCell::new(None), away: Cell::new(false), seat: None }
    }

    /// The worker keeps to a domain: set before it starts.
    pub(crate) fn give_seat(&mut self, seat: Seat) {
        self.seat = Some(seat);
    }

    pub(crate) fn has_seat(&self) -> bool {
        self.seat.is_some()
    }

    /// Whether the worker has a domain and is not there.
    pub(crate) fn is_away(&self) -> bool {
        self.away.get()
    }

    /// Binds the calling thread, whose slot this is, to one CPU of its domain; without one, to the `k`-th of `cpus`.
    fn place(&self, cpus: &CpuSet, k: usize) {
        self.change(|own| match &self.seat {
            Some(seat) => own.and(&seat.cpus)?.nth(seat.number),
            None => cpus.nth(k),
        });
    }

    /// Gives the calling thread, whose slot this is, the mask that it has between team scopes.
    fn unplace(&self) {
        match self.seat {
            Some(_) => self.come_home(),
            None => self.restore(),
        }
    }

    /// Keeps the calling thread, whose slot this is, to its domain if it has one.
    pub(crate) fn come_home(&self) {
        if let Some(seat) = &self.seat {
            self.away.set(false);
            self.change(|own| own.and(&seat.cpus));
        }
    }

    /// Changes the thread's mask to what `to` makes of its own.
    fn change(&self, to: impl FnOnce(&CpuSet) -> Option<CpuSet>) {
        debug_assert!(std::ptr::eq(OWN.get(), self));
        // SAFETY: this is the slot's thread (see the type).
        let saved = unsafe { &mut *self.own.get() };
        let Some(own) = saved.or_else(CpuSet::of_this_thread) else { return };
        if let Some(to) = to(&own) {
            *saved = Some(own);
            imp::give_to_this_thread(&to.0);
        }
    }

    /// Gives the calling thread, whose slot this is, the mask that it had before it was first changed.
    fn restore(&self) {
        debug_assert!(std::ptr::eq(OWN.get(), self));
        // SAFETY: this is the slot's thread (see the type).
        if let Some(own) = unsafe { (*self.own.get()).take() } {
            imp::give_to_this_thread(&own.0);
        }
    }

    /// [`restore`](Self::restore) until the worker [comes home](Self::come_home).
    fn leave(&self) {
        self.away.set(self.has_seat());
        self.restore();
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
        // SAFETY: from here on this is the slot's thread. In the child of a fork the mask is that of the parent's worker.
        unsafe { *pin.own.get() = None };
        pin.come_home();
        Serving(pin)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.restore();
        OWN.set(std::ptr::null());
    }
}

/// Puts the calling thread's own mask back if it is a pinned member of a team, or kept to a cache domain: called before code that
/// builds threads of its own from the calling one. The next root team scope pins it again; to its domain it returns after its
/// share.
///
/// [`Exec::external`](crate::Exec::external) does it; a language binding that has its own way to hand slots out calls it there.
pub fn before_foreign_work() {
    // SAFETY: the pointer is set while this very thread serves the slot, whose pool lives then.
    if let Some(own) = unsafe { OWN.get().as_ref() } {
        own.leave();
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
        on_members(inner, members, None, |pin, _| pin.unplace());
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
        imp::cpus(&set.0).collect()
    }

    #[test]
    fn members_get_the_set_cpus_in_order_and_around() {
        let allowed = CpuSet::of(&[3, 70, 1000]);
        let given: Vec<_> = (0..5).map(|k| cpus(&allowed.nth(k).unwrap())).collect();
        assert_eq!(given, [vec![3], vec![70], vec![1000], vec![3], vec![70]]);
    }

    #[test]
    fn an_empty_mask_places_nobody() {
        let before = CpuSet::of_this_thread().unwrap();
        let pin = Pin::none();
        let serving = Serving::begin(&pin);
        pin.place(&CpuSet::of(&[]), 1);
        assert_eq!(cpus(&CpuSet::of_this_thread().unwrap()), cpus(&before));
        drop(serving);
    }

    #[test]
    fn a_refused_cpu_leaves_the_thread_as_it_was() {
        let before = CpuSet::of_this_thread().unwrap();
        let pin = Pin::none();
        let serving = Serving::begin(&pin);
        pin.place(&CpuSet::of(&[1023]), 1);
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
