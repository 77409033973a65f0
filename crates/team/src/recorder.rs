//! Which trace a pool records into, and when one that was replaced may be freed.
//!
//! A thread that records counts itself, then looks again which trace there is; who replaces the trace puts the new one in
//! place, then looks at the counts. One of the two looks sees the other's write (both have a `SeqCst` fence between write
//! and look: F5 and F6 in PROTOCOL.md), so a trace that was replaced is freed at the first replacement that finds nobody counted. Without a trace a
//! thread pays the first look: one load of a line that is only read.

use crate::fork::ForkLock;
use crate::sync::{fence, mutated, AtomicPtr, AtomicUsize, Ordering, OwnLine};
use std::sync::Arc;

/// Threads count themselves on one of so many lines, by their lane: neighbours do not slow each other down.
const LINES: usize = 8;

/// Looks at the counts before a replaced trace is left to the next replacement. A thread records for less than a
/// microsecond, unless it loses its CPU there.
const LOOKS: usize = if cfg!(loom) { 1 } else { 100 };

/// The `T` in use now.
#[derive(Debug)]
pub(crate) struct Current<T> {
    address: AtomicPtr<T>,
    /// Threads that may hold an address they read.
    counts: Box<[OwnLine<AtomicUsize>]>,
    /// The one in use, and those replaced that somebody may still write to.
    kept: ForkLock<Vec<Arc<T>>>,
}

/// A use of the current `T`, which stays alive meanwhile.
pub(crate) struct Use<'a, T> {
    current: &'a T,
    count: &'a AtomicUsize,
}

impl<T> std::ops::Deref for Use<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.current
    }
}

impl<T> Drop for Use<'_, T> {
    fn drop(&mut self) {
        // Release: what was done to the `T` comes before its end.
        self.count.fetch_sub(1, Ordering::Release);
    }
}

impl<T> Current<T> {
    pub(crate) fn none() -> Self {
        Current {
            address: AtomicPtr::new(std::ptr::null_mut()),
            counts: (0..LINES).map(|_| OwnLine(AtomicUsize::new(0))).collect(),
            kept: ForkLock::new(Vec::new()),
        }
    }

    /// Whether there is one.
    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        !self.address.load(Ordering::Relaxed).is_null()
    }

    /// Uses the current one, if there is any. `line` is a number of the calling thread's own.
    #[inline]
    pub(crate) fn get(&self, line: impl FnOnce() -> usize) -> Option<Use<'_, T>> {
        if self.is_some() {
            self.enter(line())
        } else {
            None
        }
    }

    #[cold]
    fn enter(&self, line: usize) -> Option<Use<'_, T>> {
        let count = &self.counts[line % LINES].0;
        count.fetch_add(1, Ordering::Relaxed);
        // F6: counted before the look that follows.
        if !mutated!(RelaxedTraceCount) {
            fence(Ordering::SeqCst);
        }
        let address = self.address.load(Ordering::Acquire);
        // SAFETY: `set` stored the address of an `Arc` in `kept`, and drops it only when it finds no thread counted after
        // the address was replaced; this one is counted until the result is dropped.
        match unsafe { address.as_ref() } {
            Some(current) => Some(Use { current, count }),
            None => {
                count.fetch_sub(1, Ordering::Release);
                None
            }
        }
    }

    /// A share in the current one, which may be kept for longer than a use.
    pub(crate) fn share(&self, line: impl FnOnce() -> usize) -> Option<Arc<T>> {
        let current = self.get(line)?;
        let address = std::ptr::from_ref(current.current);
        // SAFETY: the address came from an `Arc` in `kept`, which this use keeps alive; the count raised here is the
        // result's own.
        unsafe {
            Arc::increment_strong_count(address);
            Some(Arc::from_raw(address))
        }
    }

    /// Puts `new` in the place of the current one, and frees what nobody uses any more.
    pub(crate) fn set(&self, new: Option<Arc<T>>) {
        let mut kept = self.kept.lock();
        let address = new.as_ref().map_or(std::ptr::null(), Arc::as_ptr);
        if let Some(new) = new {
            if !kept.iter().any(|known| Arc::ptr_eq(known, &new)) {
                kept.push(new);
            }
        }
        self.address.store(address.cast_mut(), Ordering::Release);
        // F5: replaced before the looks that follow.
        fence(Ordering::SeqCst);
        for look in 0..LOOKS {
            // Acquire: what those who were counted did comes before the end.
            let nobody = || self.counts.iter().all(|count| count.load(Ordering::Acquire) == 0);
            if mutated!(SkipTraceCount) || nobody() {
                kept.retain(|known| Arc::as_ptr(known) == address);
                return;
            }
            if look + 1 < LOOKS {
                std::thread::yield_now();
            }
        }
    }

    /// Nobody uses it: the child of a fork has one thread.
    pub(crate) fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// How many are alive because of this: for tests.
    #[cfg(all(test, not(loom)))]
    fn kept(&self) -> usize {
        self.kept.lock().len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_is_freed_at_once_when_nobody_uses_it() {
        let current = Current::none();
        for number in 0..10_000 {
            current.set(Some(Arc::new(number)));
            assert_eq!(current.get(|| 0).map(|used| *used), Some(number));
            assert_eq!(current.kept(), 1);
        }
        current.set(None);
        assert_eq!((current.kept(), current.is_some()), (0, false));
    }

    #[test]
    fn what_is_in_use_is_freed_at_the_first_replacement_after_that() {
        let current = Current::none();
        current.set(Some(Arc::new(1)));
        let used = current.get(|| 3).unwrap();
        current.set(Some(Arc::new(2)));
        assert_eq!((current.kept(), *used), (2, 1));
        drop(used);
        current.set(None);
        assert_eq!(current.kept(), 0);
    }

    #[test]
    fn a_share_outlives_the_replacement() {
        let current = Current::none();
        current.set(Some(Arc::new(7)));
        let share = current.share(|| 0).unwrap();
        current.set(None);
        assert_eq!((current.kept(), *share, Arc::strong_count(&share)), (0, 7, 1));
    }
}
