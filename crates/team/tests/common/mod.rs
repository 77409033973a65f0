//! Waiting for something that happens in its own time, with a limit that only a hang reaches.

use std::time::{Duration, Instant};

/// Polls until `done`; fails after a minute.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(60), "still waiting for this: {what}");
        std::thread::yield_now();
    }
}
