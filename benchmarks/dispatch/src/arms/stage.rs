//! Where a section's body stands while it runs, so that an arm's closure captures nothing.
//!
//! An adapter closure made for every section would stand on the leader's stack, on a line that the leader writes again
//! and again: the worker would fetch it each time, and the harness would charge a cache-line transfer to every runtime
//! that takes a closure. What a body with a fresh environment costs is a scenario of its own.

use super::share;
use std::cell::UnsafeCell;

type Body = *const (dyn Fn(usize) + Sync);

/// The one section that runs in this process.
pub(super) static STAGE: Stage = Stage(UnsafeCell::new(None));

#[repr(align(128))]
pub(super) struct Stage(UnsafeCell<Option<(Body, usize)>>);

// SAFETY: written only by `set`, whose caller leads the only section, before that section; read only inside it. The
// runtime that carries the section orders the two, as it orders everything its leader wrote before.
unsafe impl Sync for Stage {}

impl Stage {
    /// Puts a section on the stage. A repeated one writes nothing, so the line stays in every participant's cache.
    ///
    /// # Safety
    ///
    /// No section runs; the next one ends before `body` does.
    #[inline]
    pub(super) unsafe fn set(&self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; the caller promises that the section ends first.
        let body = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Body>(body) };
        let stage = self.0.get();
        // SAFETY: no section runs, so nobody else reads or writes.
        unsafe {
            if !(*stage).is_some_and(|(old, count)| std::ptr::eq(old, body) && count == parts) {
                *stage = Some((body, parts));
            }
        }
    }

    /// Runs one part.
    #[inline]
    pub(super) fn part(&self, part: usize) {
        // SAFETY: inside a section nobody writes, and the body is alive until it ends.
        if let Some((body, _)) = unsafe { *self.0.get() } {
            // SAFETY: as above.
            unsafe { (*body)(part) }
        }
    }

    /// Runs the parts of participant `index` of `of`.
    #[inline]
    pub(super) fn share(&self, index: usize, of: usize) {
        // SAFETY: as in `part`.
        if let Some((body, parts)) = unsafe { *self.0.get() } {
            for part in share(index, of, parts) {
                // SAFETY: as in `part`.
                unsafe { (*body)(part) }
            }
        }
    }
}
