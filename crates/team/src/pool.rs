//! The pool: the only thing that starts threads.

use crate::cost::DispatchCosts;
use crate::crew::{Crew, Hook, Recipe};
use crate::domains::{Domains, Reach};
use crate::error::Error;
use crate::fork::{self, ForkGuard, ForkLock};
use crate::free::MAX_WORKERS;
use crate::inner::Inner;
use crate::policy::{Qos, WaitOverride, WaitPolicy};
use crate::stats::Stats;
use crate::trace::Trace;
use crate::width;
use crate::worker;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

type NameFn = Box<dyn Fn(usize) -> String>;

/// A thread pool of a fixed width: the calling thread plus `width - 1` resident workers.
///
/// A pool is a unique owner: it is not `Clone`, and only its owner can mint a root token from it. When its drop returns, none of
/// its workers runs anything of it: they are joined, or sleep in the cache of [`keep_workers`](crate::keep_workers).
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
    recipe: Recipe,
    pin_participants: bool,
    costs: DispatchCosts,
    /// Workers of persistent teams are not given out when a forked child starts its own.
    reserved: ForkLock<Vec<u16>>,
    crew: ForkLock<Crew>,
}

impl Pool {
    /// The most participants of a pool, the calling thread included.
    pub const MAX_THREADS: usize = MAX_WORKERS + 1;

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
        self.costs
    }

    #[inline]
    pub(crate) fn costs(&self) -> &DispatchCosts {
        &self.costs
    }

    /// Whether root team scopes place their members.
    pub fn pin_participants(&self) -> bool {
        self.pin_participants
    }

    /// The CPUs of each cache domain that the pool was laid over, without those that the process may not use.
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::Pool;
    ///
    /// assert!(Pool::builder().threads(2).build()?.domains().is_none());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn domains(&self) -> Option<impl ExactSizeIterator<Item = &[usize]>> {
        self.inner.domains.as_ref().map(Domains::cpus)
    }

    pub(crate) fn reach(&self) -> Reach {
        self.inner.settings.reach
    }

    /// Workers that are awake now.
    pub fn resident_members(&self) -> usize {
        if !self.inner.is_ready() {
            return 0;
        }
        self.inner.awake()
    }

    /// Idle workers park at once. Never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// Exec::new(&pool, 4)?.fork(4, |_, _| ());
    /// // A long serial part follows: nobody need stay awake for the next section.
    /// pool.release_idle();
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn release_idle(&self) {
        self.inner.settings.releases.fetch_add(1, Ordering::Relaxed);
    }

    /// Counters since the pool was built.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let before = pool.stats().sections;
    /// Exec::new(&pool, 2)?.for_ranges(8, NonZeroUsize::MIN, |_| ());
    /// assert_eq!(pool.stats().sections - before, 1);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
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
        let mut crew = self.crew.lock();
        if self.inner.is_ready() {
            return Ok(());
        }
        // Those of the parent, in the child of a fork.
        crew.forget();
        self.inner.reset();
        self.inner.crowd.start();
        let refusal = crew.start(&self.inner, &self.recipe);
        let (started, wanted) = (crew.len(), self.inner.slots.len());
        self.inner.parking.mark_absent(started..wanted);
        let reserved = self.reserved.lock();
        let free: Vec<u16> = (0..started as u16).filter(|id| !reserved.contains(id)).collect();
        drop(reserved);
        self.inner.free.release(&free);
        self.inner.settings.ready.store(fork::generation().wrapping_add(1), Ordering::Release);
        match refusal {
            None => Ok(()),
            Some(error) => Err(Error::ThreadStart { started, wanted, reason: error.to_string() }),
        }
    }

    /// The shared state, with workers running (as many as the system gives).
    #[inline]
    pub(crate) fn running(&self) -> &Inner {
        if !self.inner.is_ready() {
            // A refusal is reported by `build` and `start`; a section runs with what there is.
            let _ = self.start_workers();
        }
        &self.inner
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn reserved(&self) -> ForkGuard<'_, Vec<u16>> {
        self.reserved.lock()
    }

    /// Whether the calling thread is one of this pool's workers: it must not wait for the end of the pool, for instance.
    pub fn is_worker(&self) -> bool {
        worker::works_for(&self.inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.stop();
        let ready = self.inner.is_ready();
        let crew = self.crew.get_mut();
        if ready {
            crew.leave(self.recipe.cached);
        } else {
            crew.forget();
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
    /// Whether the name is for the system only.
    system_name: bool,
    stack_size: Option<usize>,
    on_start: Option<Hook>,
    on_stop: Option<Hook>,
    fresh: bool,
    wait: WaitPolicy,
    acquire_timeout: Duration,
    qos: Option<Qos>,
    costs: Option<DispatchCosts>,
    pin_participants: bool,
    domains: Option<Vec<Vec<usize>>>,
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
            system_name: false,
            stack_size: None,
            on_start: None,
            on_stop: None,
            fresh: false,
            wait: WaitPolicy::DEFAULT,
            acquire_timeout: Duration::from_millis(2),
            qos: Qos::PLATFORM_DEFAULT,
            costs: None,
            pin_participants: false,
            domains: None,
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

    /// Names worker `i`, to the system and in `std::thread::current().name()`.
    ///
    /// The latter cannot change while a thread lives, so the pool takes threads from the cache that have this very name.
    pub fn thread_name(mut self, f: impl Fn(usize) -> String + 'static) -> Self {
        self.name = Some(Box::new(f));
        self.system_name = false;
        self
    }

    /// Names worker `i` to the system alone: what `top`, debuggers and profilers show, 15 bytes on Linux. Any thread of the
    /// cache will do then.
    pub fn system_name(mut self, f: impl Fn(usize) -> String + 'static) -> Self {
        self.name = Some(Box::new(f));
        self.system_name = true;
        self
    }

    /// Stack bytes of each worker; the default is the platform's for Rust threads.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Called by worker `i` when it starts. The pool gets [fresh workers](Self::fresh_workers): what the hook leaves on a thread
    /// is not for another pool. Ranges and jobs run in a hook as anywhere, but a gang of the hook's own pool is refused with
    /// [`Refused::CallerInPool`](crate::Refused::CallerInPool): it would wait for the worker.
    pub fn on_start(mut self, f: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(f));
        self
    }

    /// Called by worker `i` when it leaves the pool: to take off the thread what must not outlive the pool. Not called for a
    /// worker that never came.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use threadteam::{Exec, Pool};
    ///
    /// static LEFT: AtomicUsize = AtomicUsize::new(0);
    /// let pool = Pool::builder().threads(2).on_stop(|_| drop(LEFT.fetch_add(1, Ordering::Relaxed))).build()?;
    /// Exec::new(&pool, 2)?.broadcast(|_| ()).unwrap();
    /// drop(pool);
    /// assert_eq!(LEFT.load(Ordering::Relaxed), 1);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn on_stop(mut self, f: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_stop = Some(Arc::new(f));
        self
    }

    /// Starts new threads for this pool, and joins them when it is dropped: their thread-locals are made anew and destroyed.
    ///
    /// Otherwise workers come from, and go back to, a cache of sleeping threads (see
    /// [`keep_workers`](crate::keep_workers)), where their thread-locals live on.
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::{kept_workers, Pool};
    ///
    /// let before = kept_workers();
    /// drop(Pool::builder().threads(2).fresh_workers(true).build()?);
    /// assert_eq!(kept_workers(), before);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn fresh_workers(mut self, on: bool) -> Self {
        self.fresh = on;
        self
    }

    /// How participants wait; [`WaitPolicy::DEFAULT`] unless said otherwise.
    pub fn wait(mut self, policy: WaitPolicy) -> Self {
        self.wait = policy;
        self
    }

    /// How long an idle member spins before it parks; zero parks after one short episode.
    pub fn idle_spin(mut self, spin: Duration) -> Self {
        self.wait = self.wait.with(WaitOverride::new().idle_spin(spin));
        self
    }

    /// Accepted for callers of the published crate; see [`WaitPolicy::new`].
    pub fn idle_runs_rayon(mut self, on: bool) -> Self {
        self.wait = self.wait.with(WaitOverride::new().idle_runs_rayon(on));
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

    /// Asks root team scopes to place their members on the caller's CPUs, or on those of their domains (Linux).
    pub fn pin_participants(mut self, on: bool) -> Self {
        self.pin_participants = on;
        self
    }

    /// Lays the pool over cache domains: disjoint sets of CPUs that share a cache.
    ///
    /// Participants fill the domains in order, one a CPU; without [`threads`](Self::threads) there are as many as CPUs. The
    /// caller counts to the first domain and stays where it is; every worker keeps to the CPUs of its domain (Linux). A fork of
    /// a token with slots in several domains is cut at their boundaries first: each child that fits a domain gets slots of one,
    /// and neither it nor what it forks leaves that. Other sections take workers of the leader's domain first. CPUs that are not
    /// in the affinity mask of the thread that builds the pool do not count.
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// # fn machine() -> [[usize; 2]; 2] { [[0, 1], [2, 3]] }
    /// let [near, far] = machine(); // CPUs 0 and 1 share a cache, and so do 2 and 3
    /// if let Ok(pool) = Pool::builder().domains([near, far]).build() {
    ///     // One job a domain: each child works on one cache.
    ///     Exec::new(&pool, 4)?.fork(2, |_half, child| assert_eq!(child.budget().get(), 2));
    /// }
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn domains(mut self, domains: impl IntoIterator<Item = impl IntoIterator<Item = usize>>) -> Self {
        self.domains = Some(domains.into_iter().map(|domain| domain.into_iter().collect()).collect());
        self
    }

    /// Makes the pool.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroThreads`], [`Error::TooManyThreads`], [`Error::InvalidDomains`], [`Error::ThreadsExceedDomains`], or
    /// [`Error::ThreadStart`] when the system refuses a worker.
    pub fn build(mut self) -> Result<Pool, Error> {
        if self.threads == Some(0) {
            return Err(Error::ZeroThreads);
        }
        let domains = self.domains.take().map(|domains| Domains::new(domains, self.threads)).transpose()?;
        self.build_over(domains)
    }

    pub(crate) fn build_over(self, domains: Option<Domains>) -> Result<Pool, Error> {
        let threads = match (&domains, self.threads) {
            (Some(domains), _) => domains.width(),
            (None, Some(n)) => n,
            (None, None) => width::default_width().get().min(Pool::MAX_THREADS),
        };
        if threads > Pool::MAX_THREADS {
            return Err(Error::TooManyThreads { wanted: threads, most: Pool::MAX_THREADS });
        }
        let name = self.name.unwrap_or_else(|| Box::new(|index| format!("threadteam-{index}")));
        let mut inner = Inner::new(threads - 1, self.wait, self.acquire_timeout);
        if let Some(domains) = domains {
            inner = inner.over(domains);
        }
        let pool = Pool {
            inner: Arc::new(inner),
            recipe: Recipe {
                names: (0..threads - 1).map(name).collect(),
                lasting_names: !self.system_name,
                stack_size: self.stack_size,
                qos: self.qos,
                cached: !self.fresh && self.on_start.is_none(),
                on_start: self.on_start,
                on_stop: self.on_stop,
            },
            pin_participants: self.pin_participants,
            costs: self.costs.unwrap_or_else(DispatchCosts::host_default),
            reserved: ForkLock::new(Vec::new()),
            crew: ForkLock::default(),
        };
        if !self.lazy {
            pool.start()?;
        }
        Ok(pool)
    }
}
