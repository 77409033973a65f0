//! Participants that all run at once.

use crate::common::wait_until;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Participants that wait until `count` of them are there.
pub struct Meeting(AtomicUsize);

impl Meeting {
    pub fn new() -> Self {
        Meeting(AtomicUsize::new(0))
    }

    pub fn of(&self, count: usize) {
        self.0.fetch_add(1, Ordering::SeqCst);
        wait_until("everybody", || self.0.load(Ordering::SeqCst) >= count);
    }
}
