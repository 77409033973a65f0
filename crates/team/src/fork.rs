//! `fork`: counting forks, and keeping short critical sections out of their way.
//!
//! A pool notices by the count that its workers stayed in the parent. And no lock of this crate is ever held at the moment
//! of a fork, whichever thread forks: who takes a
//! [`ForkLock`] first passes a gate, which the forking thread closes, and waits until nobody is inside.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
#[cfg(unix)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Threads that hold or wait for a [`ForkLock`], and threads in the middle of a fork, times [`FORKING`].
static GATE: AtomicU32 = AtomicU32::new(0);

/// One thread that forks, in [`GATE`].
const FORKING: u32 = 1 << 16;

/// How many forks lie between the first process that used this crate and this one.
#[inline]
pub(crate) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// How many forks lie between the first process that used this crate and this one: two values that differ were read in
/// different processes.
///
/// # Examples
///
/// ```
/// let before = threadteam::forks();
/// // ... a callback that may fork ...
/// let in_the_same_process = threadteam::forks() == before;
/// assert!(in_the_same_process);
/// ```
#[inline]
pub fn forks() -> u32 {
    watch();
    generation()
}

#[cfg(unix)]
extern "C" fn before() {
    #[cfg(target_os = "linux")]
    first::before();
    GATE.fetch_add(FORKING, Ordering::AcqRel);
    while !GATE.load(Ordering::Acquire).is_multiple_of(FORKING) {
        std::thread::yield_now();
    }
}

#[cfg(unix)]
extern "C" fn in_parent() {
    GATE.fetch_sub(FORKING, Ordering::Release);
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // Nobody was inside, and whoever else was forking exists in the parent only.
    GATE.store(0, Ordering::Release);
    #[cfg(target_os = "linux")]
    first::in_child();
}

/// Starts counting and guarding; called when a pool is built, and by whoever takes a [`ForkLock`] before.
///
/// No `Once`: a fork in its middle would leave it blocked in the child for ever. Registered twice by two threads, the
/// handlers do everything twice, which is harmless.
#[inline]
pub(crate) fn watch() {
    #[cfg(unix)]
    if !WATCHED.load(Ordering::Acquire) {
        register();
    }
}

#[cfg(unix)]
static WATCHED: AtomicBool = AtomicBool::new(false);

#[cfg(unix)]
#[cold]
fn register() {
    // SAFETY: the handlers touch atomics only, which is allowed between fork and exec.
    unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    }
    #[cfg(target_os = "linux")]
    first::register();
    WATCHED.store(true, Ordering::Release);
}

/// Counts a worker thread that is about to start, or whose start failed: see [`first`].
pub(crate) fn count_worker(change: i32) {
    #[cfg(target_os = "linux")]
    first::WORKERS.fetch_add(change, Ordering::Relaxed);
    #[cfg(not(target_os = "linux"))]
    let _ = change;
}

/// The end of the thread that a child of a fork begins with, where that was not its parent's main thread.
///
/// A process ends with its last thread. Such a child has no main thread that could return from `main`, and workers that it started would
/// sleep in it for ever after its first thread. So the end of that one ends the process, when only workers are left.
#[cfg(target_os = "linux")]
mod first {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

    /// The worker threads of this process.
    pub(super) static WORKERS: AtomicI32 = AtomicI32::new(0);
    /// The key whose destructor runs at the end of a thread that has a value for it; `exit`, which runs those of thread-locals, leaves
    /// it alone.
    static KEY: AtomicU32 = AtomicU32::new(NONE);
    const NONE: u32 = u32::MAX;

    thread_local! {
        static RETURNS_FROM_MAIN: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn register() {
        let mut key = 0;
        // SAFETY: `key` is valid for the write; the destructor is a function that stays.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
            KEY.store(key, Ordering::Relaxed);
        }
    }

    /// Called by the thread that forks.
    pub(super) fn before() {
        // SAFETY: both only ask the system.
        let is_main = unsafe { libc::gettid() == libc::getpid() };
        let key = KEY.load(Ordering::Relaxed);
        // In a child the first thread passes for the main one, unless it was marked.
        // SAFETY: the key exists.
        let marked = key != NONE && !unsafe { libc::pthread_getspecific(key) }.is_null();
        RETURNS_FROM_MAIN.set(is_main && !marked);
    }

    /// Called in the child, whose only thread is the calling one.
    pub(super) fn in_child() {
        WORKERS.store(0, Ordering::Relaxed);
        let key = KEY.load(Ordering::Relaxed);
        if key != NONE && !RETURNS_FROM_MAIN.get() {
            // SAFETY: the key exists, and any value but null marks the thread.
            unsafe { libc::pthread_setspecific(key, ptr::dangling::<c_void>()) };
        }
    }

    extern "C" fn ended(_mark: *mut c_void) {
        // A thread whose list of tasks cannot be read counts as one of many.
        let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
        if i32::try_from(threads).is_ok_and(|threads| threads - 1 <= WORKERS.load(Ordering::Relaxed)) {
            // SAFETY: what the C library does at the end of the last thread.
            unsafe { libc::exit(0) };
        }
    }
}

thread_local! {
    /// How many guards of [`ForkLock`]s the thread holds: only the first has to pass the gate.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread is past the gate: no fork happens until it is dropped.
struct Inside;

impl Inside {
    fn enter() -> Inside {
        watch();
        // A thread that is inside already must not wait for a fork, which waits for it.
        while HELD.get() == 0 {
            let seen = GATE.load(Ordering::Relaxed);
            if seen >= FORKING {
                std::thread::yield_now();
            } else if GATE.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        HELD.set(HELD.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if HELD.get() == 0 {
            GATE.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A mutex that nobody holds at a fork, so that a child can always take it and finds whole what it guards.
///
/// For short critical sections: a fork waits for them. One that forks, or that waits for a thread that may fork, would wait
/// for itself.
///
/// # Examples
///
/// ```
/// let list = threadteam::ForkLock::new(vec![1]);
/// list.lock().push(2);
/// assert_eq!(list.into_inner(), [1, 2]);
/// ```
#[derive(Debug, Default)]
pub struct ForkLock<T>(Mutex<T>);

/// Access to what a [`ForkLock`] guards.
pub struct ForkGuard<'a, T> {
    /// Before the gate opens: fields are dropped in this order.
    guard: MutexGuard<'a, T>,
    _inside: Inside,
}

impl<T> ForkLock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        ForkLock(Mutex::new(value))
    }

    /// Waits for the lock. A panic of an earlier holder is no error: what it left is given out.
    pub fn lock(&self) -> ForkGuard<'_, T> {
        let inside = Inside::enter();
        ForkGuard { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
    }

    /// What it guards, for its only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it guarded.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for ForkGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for ForkGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for ForkGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.guard.fmt(f)
    }
}

/// Lets threads wait for an event without a lock that a fork could find held.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// static BELL: threadteam::Bell = threadteam::Bell::new();
/// let heard = BELL.rings();
/// BELL.ring();
/// BELL.wait(heard, Some(Duration::from_secs(60))); // returns at once: it rang after `heard`
/// assert_ne!(BELL.rings(), heard);
/// ```
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// A bell that has not rung.
    pub const fn new() -> Self {
        Bell(AtomicU32::new(0))
    }

    /// How often it rang, wrapping around. Read it before the last look at what the event changes.
    pub fn rings(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Wakes everybody who waits.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        atomic_wait::wake_all(&self.0);
    }

    /// Sleeps until it has rung since `heard`, for at most `timeout`; may return early.
    pub fn wait(&self, heard: u32, timeout: Option<std::time::Duration>) {
        match timeout {
            None => atomic_wait::wait(&self.0, heard),
            Some(timeout) => crate::futex::wait_at_most(&self.0, heard, timeout),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_lock_hands_on_what_a_panicked_holder_left() {
        let lock = Arc::new(ForkLock::new(1));
        let inner = Arc::clone(&lock);
        let panicked = std::thread::spawn(move || {
            *inner.lock() = 2;
            let _held = inner.lock_for_test();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panicked.join().is_err());
        assert_eq!(*lock.lock(), 2);
    }

    impl<T> ForkLock<T> {
        fn lock_for_test(&self) -> ForkGuard<'_, T> {
            self.lock()
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_child_can_take_a_lock_that_other_threads_use_all_the_time() {
        static LOCK: ForkLock<(u64, u64)> = ForkLock::new((0, 0));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let users: Vec<_> = (0..2)
            .map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let mut held = LOCK.lock();
                        held.0 += 1;
                        held.1 += 1;
                    }
                })
            })
            .collect();
        for _ in 0..50 {
            // SAFETY: the child takes one lock and ends.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                let held = LOCK.lock();
                let whole = held.0 == held.1;
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(i32::from(!whole)) };
            }
            let mut status = 0;
            // SAFETY: `child` is a child of this process that nobody else waits for.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        stop.store(true, Ordering::Relaxed);
        users.into_iter().for_each(|user| user.join().unwrap());
    }
}
