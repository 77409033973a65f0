//! Counts the forks of this process, so that a pool notices that its workers stayed in the parent.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Once;

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between the first process that built a pool and this one.
pub(crate) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Starts counting; called when a pool is built.
pub(crate) fn watch() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler touches one atomic only, which is allowed between fork and exec.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
        #[cfg(not(unix))]
        let _ = in_child;
    });
}
