//! The pool: the only thing that starts threads.

use crate::cost::DispatchCosts;
use crate::error::Error;
use crate::fork;
use crate::free::MAX_WORKERS;
use crate::inner::Inner;
use crate::policy::{Qos, WaitPolicy};
use crate::stats::Stats;
use crate::trace::Trace;
use crate::width;
use crate::worker;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

type NameFn = Box<dyn Fn(usize) -> String>;
type StartFn = Arc<dyn Fn(usize) + Send + Sync>;

/// A thread pool of a fixed width: the calling thread plus `width - 1` resident workers.
///
/// A pool is a unique owner: it is not `Clone`, and only its owner can mint a root token from it. Dropping it joins the
/// workers.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use threadteam::{Exec, Pool};
///
/// let pool = Pool::builder().threads(2).build()?;
/// let sum = AtomicU64::new(0);
/// Exec::new(&pool, 2)?.for_ranges(1000, NonZeroUsize::new(100).unwrap(), |range| {
///     sum.fetch_add(range.map(|i| i as u64).sum(), Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 499_500);
/// # Ok::<(), threadteam::Error>(())
/// ```
pub struct Pool {
    inner: Arc<Inner>,
    options: Options,
    life: Life,
}

/// What a worker is started with.
struct Options {
    /// One a worker: made when the pool is built, so that the caller's closure need not be `Send`.
    names: Box<[String]>,
    stack_size: Option<usize>,
    on_start: Option<StartFn>,
    qos: Option<Qos>,
    pin_participants: bool,
    costs: DispatchCosts,
    /// Workers of persistent teams are not given out when a forked child starts its own.
    reserved: std::sync::Mutex<Vec<u16>>,
}

/// The workers' handles and who may change them.
///
/// The lock holds the fork generation that took it, so that a child does not wait for a thread of its parent.
struct Life {
    lock: AtomicU32,
    handles: std::cell::UnsafeCell<Vec<JoinHandle<()>>>,
}

// SAFETY: `handles` is touched only between `Life::lock` and the drop of its guard, by one thread at a time.
unsafe impl Sync for Life {}

struct LifeGuard<'a>(&'a Life);

impl Life {
    fn lock(&self) -> LifeGuard<'_> {
        let own = fork::generation().wrapping_add(1);
        loop {
            let seen = self.lock.load(Ordering::Relaxed);
            // Another generation's holder lives in another process.
            let takeable = seen != own;
            if takeable && self.lock.compare_exchange(seen, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return LifeGuard(self);
            }
            std::thread::yield_now();
        }
    }
}

impl LifeGuard<'_> {
    fn handles(&mut self) -> &mut Vec<JoinHandle<()>> {
        // SAFETY: this guard holds the lock, so no other reference exists.
        unsafe { &mut *self.0.handles.get() }
    }

    /// Drops handles of threads that exist in the parent only, without touching what they point to.
    fn forget_handles(&mut self) {
        // SAFETY: as in `handles`. The old vector may have been half-written by a parent's thread: it is neither read
        // nor freed.
        unsafe { self.0.handles.get().write(Vec::new()) };
    }
}

impl Drop for LifeGuard<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}

impl Pool {
    /// The options of a new pool.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    /// Participants, the calling thread included.
    pub fn width(&self) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(self.inner.slots.len())
    }

    /// How idle members wait.
    pub fn wait_policy(&self) -> WaitPolicy {
        self.inner.settings.wait
    }

    /// What one section costs, for the rule of [`pays_at`](crate::pays_at).
    pub fn dispatch_costs(&self) -> DispatchCosts {
        self.options.costs
    }

    pub(crate) fn costs(&self) -> &DispatchCosts {
        &self.options.costs
    }

    /// Whether root team scopes place their members.
    pub fn pin_participants(&self) -> bool {
        self.options.pin_participants
    }

    /// Workers that are awake now.
    pub fn resident_members(&self) -> usize {
        if !self.inner.is_ready() {
            return 0;
        }
        (0..self.inner.slots.len()).filter(|&worker| !self.inner.parking.is_parked(worker)).count()
    }

    /// Idle workers park at once. Never blocks.
    pub fn release_idle(&self) {
        self.inner.settings.releases.fetch_add(1, Ordering::Relaxed);
    }

    /// Counters since the pool was built.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.inner)
    }

    /// Records what participants do from now on, or stops recording.
    ///
    /// The pool gives up the trace that it recorded into so far as soon as no thread is writing to it.
    pub fn set_trace(&self, trace: Option<Arc<Trace>>) {
        self.inner.set_trace(trace);
    }

    /// Starts the workers if they do not run yet; sections do it themselves.
    ///
    /// # Errors
    ///
    /// [`Error::ThreadStart`] when the system refused some of them, once; the pool then runs with those it has.
    pub fn start(&self) -> Result<(), Error> {
        if self.inner.is_ready() {
            return Ok(());
        }
        self.start_workers()
    }

    #[cold]
    fn start_workers(&self) -> Result<(), Error> {
        let mut life = self.life.lock();
        if self.inner.is_ready() {
            return Ok(());
        }
        if self.inner.settings.ready.load(Ordering::Relaxed) != 0 {
            life.forget_handles();
        }
        self.inner.reset();
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.inner.settings.crowded.store(self.width().get() > cpus, Ordering::Relaxed);
        let wanted = self.inner.slots.len();
        let mut started = 0;
        let mut refusal = None;
        for index in 0..wanted {
            match self.spawn(index) {
                Ok(handle) => life.handles().push(handle),
                Err(error) => {
                    refusal = Some(error);
                    break;
                }
            }
            started += 1;
        }
        let reserved = self.options.reserved.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let free: Vec<u16> = (0..started as u16).filter(|id| !reserved.contains(id)).collect();
        self.inner.free.release(&free);
        self.inner.settings.ready.store(fork::generation().wrapping_add(1), Ordering::Release);
        match refusal {
            None => Ok(()),
            Some(error) => Err(Error::ThreadStart { started, wanted, reason: error.to_string() }),
        }
    }

    fn spawn(&self, index: usize) -> std::io::Result<JoinHandle<()>> {
        let mut builder = std::thread::Builder::new().name(self.options.names[index].clone());
        if let Some(bytes) = self.options.stack_size {
            builder = builder.stack_size(bytes);
        }
        let inner = Arc::clone(&self.inner);
        let on_start = self.options.on_start.clone();
        let qos = self.options.qos;
        with_signals_blocked(|| {
            builder.spawn(move || {
                if let Some(qos) = qos {
                    qos.apply();
                }
                if let Some(on_start) = on_start {
                    on_start(index);
                }
                worker::run(&inner, index);
            })
        })
    }

    /// The shared state, with workers running (as many as the system gives).
    pub(crate) fn running(&self) -> &Inner {
        if !self.inner.is_ready() {
            // A refusal is reported by `build` and `start`; a section runs with what there is.
            let _ = self.start_workers();
        }
        &self.inner
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn reserved(&self) -> std::sync::MutexGuard<'_, Vec<u16>> {
        self.options.reserved.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether the calling thread is one of this pool's workers.
    pub(crate) fn is_worker(&self) -> bool {
        worker::works_for(&self.inner)
    }
}

/// Runs `start` with all signals blocked on the calling thread, so that a thread it starts never handles one: signals go
/// to the application's threads, and interrupt their waits.
fn with_signals_blocked<R>(start: impl FnOnce() -> R) -> R {
    #[cfg(unix)]
    // SAFETY: both sets are valid for the calls, which change the calling thread's mask and put it back.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
    #[cfg(not(unix))]
    start()
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.stop();
        let ready = self.inner.is_ready();
        let mut life = self.life.lock();
        if !ready {
            life.forget_handles();
            return;
        }
        let own = std::thread::current().id();
        for handle in life.handles().drain(..) {
            // A pool dropped by one of its own workers cannot wait for that one.
            if handle.thread().id() != own {
                // A worker catches every panic of a body; its own end says nothing more.
                let _ = handle.join();
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("width", &self.width()).finish_non_exhaustive()
    }
}

/// Options of a [`Pool`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use threadteam::Pool;
///
/// let pool = Pool::builder().threads(3).idle_spin(Duration::ZERO).build()?;
/// assert_eq!(pool.width().get(), 3);
/// # Ok::<(), threadteam::Error>(())
/// ```
#[must_use]
pub struct PoolBuilder {
    threads: Option<usize>,
    lazy: bool,
    name: Option<NameFn>,
    stack_size: Option<usize>,
    on_start: Option<StartFn>,
    wait: WaitPolicy,
    acquire_timeout: Duration,
    qos: Option<Qos>,
    costs: Option<DispatchCosts>,
    pin_participants: bool,
}

impl std::fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("threads", &self.threads)
            .field("lazy", &self.lazy)
            .field("stack_size", &self.stack_size)
            .field("wait", &self.wait)
            .field("acquire_timeout", &self.acquire_timeout)
            .finish_non_exhaustive()
    }
}

impl Default for PoolBuilder {
    fn default() -> Self {
        PoolBuilder {
            threads: None,
            lazy: false,
            name: None,
            stack_size: None,
            on_start: None,
            wait: WaitPolicy::DEFAULT,
            acquire_timeout: Duration::from_millis(2),
            qos: Qos::PLATFORM_DEFAULT,
            costs: None,
            pin_participants: false,
        }
    }
}

impl PoolBuilder {
    /// Participants, the caller included; the default is what this process may use at once: its affinity mask and its
    /// control group's quota, and one participant a core where the mask has the whole machine.
    pub fn threads(mut self, n: usize) -> Self {
        self.threads = Some(n);
        self
    }

    /// Starts the workers at first use instead of in [`build`](Self::build).
    pub fn lazy(mut self, on: bool) -> Self {
        self.lazy = on;
        self
    }

    /// Names worker `i`.
    pub fn thread_name(mut self, f: impl Fn(usize) -> String + 'static) -> Self {
        self.name = Some(Box::new(f));
        self
    }

    /// Stack bytes of each worker; the default is the platform's for Rust threads.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Called by worker `i` when it starts.
    pub fn on_start(mut self, f: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(f));
        self
    }

    /// How long an idle member spins before it parks; zero parks after one short episode.
    pub fn idle_spin(mut self, spin: Duration) -> Self {
        self.wait = WaitPolicy::new(spin, self.wait.idle_runs_rayon());
        self
    }

    /// Accepted for callers of the published crate; see [`WaitPolicy::new`].
    pub fn idle_runs_rayon(mut self, on: bool) -> Self {
        self.wait = WaitPolicy::new(self.wait.idle_spin(), on);
        self
    }

    /// How long [`Exec::team`](crate::Exec::team) and [`Exec::broadcast`](crate::Exec::broadcast) wait for busy members.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// The workers' scheduling class on Apple targets.
    pub fn qos(mut self, qos: Qos) -> Self {
        self.qos = Some(qos);
        self
    }

    /// Overrides what one section is said to cost.
    pub fn dispatch_costs(mut self, costs: DispatchCosts) -> Self {
        self.costs = Some(costs);
        self
    }

    /// Asks root team scopes to place their members on the caller's CPUs (Linux).
    pub fn pin_participants(mut self, on: bool) -> Self {
        self.pin_participants = on;
        self
    }

    /// Makes the pool.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroThreads`], [`Error::TooManyThreads`], or [`Error::ThreadStart`] when the system refuses a worker.
    pub fn build(self) -> Result<Pool, Error> {
        let threads = match self.threads {
            Some(0) => return Err(Error::ZeroThreads),
            Some(n) => n,
            None => width::default_width().get(),
        };
        if threads > MAX_WORKERS + 1 {
            return Err(Error::TooManyThreads { wanted: threads, most: MAX_WORKERS + 1 });
        }
        let name = self.name.unwrap_or_else(|| Box::new(|index| format!("threadteam-{index}")));
        let pool = Pool {
            inner: Arc::new(Inner::new(threads - 1, self.wait, self.acquire_timeout)),
            options: Options {
                names: (0..threads - 1).map(name).collect(),
                stack_size: self.stack_size,
                on_start: self.on_start,
                qos: self.qos,
                pin_participants: self.pin_participants,
                costs: self.costs.unwrap_or_else(DispatchCosts::host_default),
                reserved: std::sync::Mutex::new(Vec::new()),
            },
            life: Life { lock: AtomicU32::new(0), handles: std::cell::UnsafeCell::new(Vec::new()) },
        };
        if !self.lazy {
            pool.start()?;
        }
        Ok(pool)
    }
}
