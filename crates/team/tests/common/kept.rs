//! What a thread keeps until it ends.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Kept(&'static AtomicUsize);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static KEPT: OnceCell<Kept> = const { OnceCell::new() };
}

/// Lets this thread count itself in `ended` when its thread locals are destroyed.
pub fn count_end_of_thread(ended: &'static AtomicUsize) {
    KEPT.with(|kept| drop(kept.set(Kept(ended))));
}
