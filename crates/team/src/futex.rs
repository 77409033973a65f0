//! A word that threads sleep on: the futex where the platform has one.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`, for at most `timeout`; may return early.
#[cfg(target_os = "linux")]
pub(crate) fn wait_at_most(word: &AtomicU32, expected: u32, timeout: Duration) {
    let spec =
        libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos() as libc::c_long };
    // SAFETY: the address is a live, aligned 32-bit word for the whole call and `spec` a valid relative time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &spec as *const libc::timespec,
        );
    }
}

/// Other platforms' wait has no time limit in `atomic-wait`: look again every millisecond.
#[cfg(not(target_os = "linux"))]
pub(crate) fn wait_at_most(word: &AtomicU32, expected: u32, timeout: Duration) {
    let end = std::time::Instant::now() + timeout;
    while word.load(std::sync::atomic::Ordering::Acquire) == expected && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1).min(timeout));
    }
}

#[cfg(not(loom))]
pub(crate) use real::Futex;

#[cfg(loom)]
pub(crate) use model::Futex;

#[cfg(not(loom))]
mod real {
    use super::Duration;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A 32-bit word with `wait` (sleep while it holds a value) and `wake`.
    #[derive(Debug, Default)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        pub(crate) fn new(value: u32) -> Self {
            Futex(AtomicU32::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.0.store(value, order);
        }

        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            self.0.fetch_add(value, order)
        }

        /// Sleeps while the word is `expected`, for at most `timeout`; may return early.
        pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) {
            match timeout {
                None => atomic_wait::wait(&self.0, expected),
                Some(timeout) => super::wait_at_most(&self.0, expected, timeout),
            }
        }

        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.0.swap(value, order)
        }

        /// Stores `new` if the word is `current`; whether it was.
        pub(crate) fn replace(&self, current: u32, new: u32, order: Ordering) -> bool {
            self.0.compare_exchange(current, new, order, Ordering::Relaxed).is_ok()
        }

        pub(crate) fn wake_one(&self) {
            atomic_wait::wake_one(&self.0);
        }

        pub(crate) fn wake_all(&self) {
            atomic_wait::wake_all(&self.0);
        }
    }
}

#[cfg(loom)]
mod model {
    use super::Duration;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    /// The kernel's futex: the comparison and the queueing happen under one lock, and a wake takes that lock.
    #[derive(Debug)]
    pub(crate) struct Futex {
        word: AtomicU32,
        queue: Mutex<()>,
        sleepers: Condvar,
    }

    impl Futex {
        pub(crate) fn new(value: u32) -> Self {
            Futex { word: AtomicU32::new(value), queue: Mutex::new(()), sleepers: Condvar::new() }
        }

        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.word.load(order)
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.word.store(value, order);
        }

        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            self.word.fetch_add(value, order)
        }

        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.word.swap(value, order)
        }

        pub(crate) fn replace(&self, current: u32, new: u32, order: Ordering) -> bool {
            self.word.compare_exchange(current, new, order, Ordering::Relaxed).is_ok()
        }

        /// Sleeps until a wake; a model has no time, so a lost wake-up is a deadlock that loom reports.
        pub(crate) fn wait(&self, expected: u32, _timeout: Option<Duration>) {
            let queue = self.queue.lock().unwrap();
            if self.word.load(Ordering::Relaxed) == expected {
                drop(self.sleepers.wait(queue).unwrap());
            }
        }

        pub(crate) fn wake_one(&self) {
            drop(self.queue.lock().unwrap());
            self.sleepers.notify_one();
        }

        pub(crate) fn wake_all(&self) {
            drop(self.queue.lock().unwrap());
            self.sleepers.notify_all();
        }
    }

    impl Default for Futex {
        fn default() -> Self {
            Futex::new(0)
        }
    }
}
