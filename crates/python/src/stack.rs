//! How much of the calling thread's stack is left: sections nested without end are an exception, not a crash.
//!
//! The interpreter's own limit counts calls. It knows neither the size of a worker's stack nor what a section puts on it.

use crate::ending;
use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;
use std::cell::Cell;

/// The least stack of a worker that runs Python bodies.
pub(crate) const LEAST: usize = 512 << 10;

/// The most that a pool takes for a stack: no address space holds a few of 1 TiB.
pub(crate) const MOST: usize = 1 << 40;

/// The stack of a worker unless the pool says otherwise: what threads of the interpreter have on Linux. Only touched pages
/// take memory.
pub(crate) const DEFAULT: usize = 8 << 20;

/// What a section's entry leaves for the body that it leads to.
const RESERVE: usize = 256 << 10;

const UNKNOWN: usize = usize::MAX;

thread_local! {
    /// The lowest address of the thread's stack.
    static LOWEST: Cell<usize> = const { Cell::new(UNKNOWN) };
}

/// Raises `RecursionError` when the calling thread has no stack left for another section.
pub(crate) fn check() -> PyResult<()> {
    let here = 0u8;
    let here = std::ptr::from_ref(&here) as usize;
    let mut lowest = LOWEST.get();
    if lowest == UNKNOWN {
        // Here, where it costs later sections nothing: each leads to Python code, or may raise.
        ending::watch();
        lowest = lowest_address().unwrap_or(0);
        LOWEST.set(lowest);
    }
    // A coroutine library may have moved the thread to another stack, below the one that it was started with.
    if here > lowest && here - lowest < RESERVE {
        return Err(PyRecursionError::new_err(
            "sections are nested too deeply for the stack of this thread; end the recursion earlier, or give the pool a \
             larger stack_size",
        ));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn lowest_address() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut lowest = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the attributes are read after the call that fills them has succeeded, and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let read = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (read == 0).then_some(lowest as usize)
    }
}

#[cfg(target_vendor = "apple")]
fn lowest_address() -> Option<usize> {
    // SAFETY: asks for the calling thread's own stack.
    unsafe {
        let thread = libc::pthread_self();
        (libc::pthread_get_stackaddr_np(thread) as usize).checked_sub(libc::pthread_get_stacksize_np(thread))
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn lowest_address() -> Option<usize> {
    None
}
