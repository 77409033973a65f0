//! Worker threads that no pool has: they sleep until the next pool that they suit takes them.
//!
//! A thread costs 20 to 50 us to start and as much to join; one from here a wake, for which nobody waits. It is given to a pool
//! that asks for the same stack size, class and lasting name; what differs otherwise (the name that the system shows, the
//! affinity mask) is set again. Its thread-locals live on: see [`PoolBuilder::fresh_workers`](crate::PoolBuilder::fresh_workers).

use crate::crew::Hand;
use crate::fork::{self, ForkLock};
use crate::policy::Qos;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a pool's worker cannot change once it runs: a cached thread serves pools of the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// What `std::thread::current().name()` says there; `None` when the pool does not care.
    pub(crate) name: Option<String>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) qos: Option<Qos>,
}

/// The cache: oldest first. In a forked child those of the parent are forgotten.
struct Idle {
    process: u32,
    hands: Vec<Hand>,
}

impl Idle {
    /// The threads of this process.
    fn hands(&mut self) -> &mut Vec<Hand> {
        if self.process != fork::generation() {
            self.process = fork::generation();
            self.hands.drain(..).for_each(Hand::forget);
        }
        &mut self.hands
    }
}

static IDLE: ForkLock<Idle> = ForkLock::new(Idle { process: 0, hands: Vec::new() });

/// The most threads that the cache keeps; [`UNSET`] before anybody has asked.
static MOST: AtomicUsize = AtomicUsize::new(UNSET);
const UNSET: usize = usize::MAX;

/// How many threads the cache may keep: one fewer than this process may run at once, since the caller runs too.
fn most() -> usize {
    let most = MOST.load(Ordering::Relaxed);
    if most != UNSET {
        return most;
    }
    // Reads files: asked once. Two threads at once get the same answer.
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    match MOST.compare_exchange(UNSET, cpus - 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => cpus - 1,
        Err(set) => set,
    }
}

/// The newest cached thread of this key.
pub(crate) fn take(key: &Key) -> Option<Hand> {
    let mut idle = IDLE.lock();
    let hands = idle.hands();
    let at = hands.iter().rposition(|hand| hand.key() == key)?;
    Some(hands.remove(at))
}

/// How many of `wanted` threads the cache would keep now, older ones of other pools given up for them.
pub(crate) fn room(wanted: usize) -> usize {
    wanted.min(most())
}

/// Keeps vacant threads; the oldest above the limit are ended.
pub(crate) fn keep(hands: Vec<Hand>) {
    let most = most();
    let mut idle = IDLE.lock();
    let kept = idle.hands();
    kept.extend(hands);
    let above = kept.len().saturating_sub(most);
    let ended: Vec<Hand> = kept.drain(..above).collect();
    drop(idle);
    // Without the lock: a thread that ends may run destructors that take long.
    end_all(ended);
}

/// Ends threads, all told before the first is waited for.
pub(crate) fn end_all(hands: Vec<Hand>) {
    hands.iter().for_each(Hand::dismiss);
    hands.into_iter().for_each(Hand::join);
}

/// Sets how many worker threads this process keeps for later pools, all closed pools together, and ends and joins those above.
///
/// The default is one fewer than the CPUs that the process may use. They sleep: none uses any CPU. With 0, every pool starts
/// threads of its own and joins them; a process calls `keep_workers(0)` when it will not make another pool.
///
/// # Examples
///
/// ```
/// threadteam::keep_workers(0);
/// drop(threadteam::Pool::builder().threads(2).build()?);
/// assert_eq!(threadteam::kept_workers(), 0);
/// # Ok::<(), threadteam::Error>(())
/// ```
pub fn keep_workers(most: usize) {
    MOST.store(most.min(UNSET - 1), Ordering::Relaxed);
    keep(Vec::new());
}

/// How many worker threads sleep for later pools.
pub fn kept_workers() -> usize {
    IDLE.lock().hands().len()
}
