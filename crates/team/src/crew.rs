//! A pool's worker threads: taken from the cache or started, and given back or ended.

use crate::berth::Berth;
use crate::cache::{self, Key};
use crate::fork;
use crate::inner::Inner;
use crate::pin::CpuSet;
use crate::policy::Qos;
use crate::worker;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What a pool calls on each of its workers, with the worker's index.
pub(crate) type Hook = Arc<dyn Fn(usize) + Send + Sync>;

/// What sleeping threads of the cache are called: no pool's workers.
const IDLE_NAME: &str = "idle-threadteam";

/// How a pool's workers are made.
pub(crate) struct Recipe {
    /// One a worker: made when the pool is built, so that the caller's closure need not be `Send`.
    pub(crate) names: Box<[String]>,
    /// Whether the names are also what `std::thread::current().name()` says.
    pub(crate) lasting_names: bool,
    pub(crate) stack_size: Option<usize>,
    pub(crate) qos: Option<Qos>,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
    /// Whether workers come from the cache and go back there.
    pub(crate) cached: bool,
}

/// One pool's use of a thread.
struct Job {
    inner: Arc<Inner>,
    index: usize,
    name: String,
    /// The mask of the thread that started the pool, which a new thread would have got from it.
    cpus: Option<CpuSet>,
    on_start: Option<Hook>,
    on_stop: Option<Hook>,
}

impl Job {
    /// Works for the pool until it stops. Nothing of the pool is left on the thread afterwards but its thread-locals.
    fn run(self) {
        if let Some(cpus) = self.cpus {
            cpus.adopt();
        }
        name_this_thread(&self.name);
        let hook = |hook: &Option<Hook>| call(hook.as_ref(), self.index);
        let on_stop = || {
            hook(&self.on_stop);
            name_this_thread(IDLE_NAME);
        };
        worker::run(&self.inner, self.index, || hook(&self.on_start), on_stop);
    }
}

/// A hook that panics has been reported by the panic hook; its thread works on.
fn call(hook: Option<&Hook>, index: usize) {
    if let Some(hook) = hook {
        let _ = catch_unwind(AssertUnwindSafe(|| hook(index)));
    }
}

/// A worker thread, in the hands of a pool or of the cache.
pub(crate) struct Hand {
    key: Key,
    berth: Arc<Berth<Job>>,
    thread: JoinHandle<()>,
}

impl Hand {
    /// A new thread, which has taken its first job: a start hook runs even if the pool is dropped at once.
    fn start(key: Key, job: Job) -> std::io::Result<Hand> {
        let mut builder = std::thread::Builder::new();
        builder = builder.name(key.name.clone().unwrap_or_else(|| "threadteam worker".to_owned()));
        if let Some(bytes) = key.stack_size {
            builder = builder.stack_size(bytes);
        }
        let berth = Arc::new(Berth::serving());
        let (theirs, qos) = (Arc::clone(&berth), key.qos);
        // Before it starts, so that no thread is there uncounted.
        fork::count_worker(1);
        let thread = with_signals_blocked(|| builder.spawn(move || live(&theirs, qos, job)));
        let thread = thread.inspect_err(|_| fork::count_worker(-1))?;
        Ok(Hand { key, berth, thread })
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    fn is_this_thread(&self) -> bool {
        self.thread.thread().id() == std::thread::current().id()
    }

    /// Tells the thread to end, after its job if it has one.
    pub(crate) fn dismiss(&self) {
        drop(self.berth.dismiss());
    }

    /// Waits for the end of a dismissed thread, thread-local destructors included; not for the calling one.
    pub(crate) fn join(self) {
        if !self.is_this_thread() {
            // A worker catches every panic of a body; its own end says nothing more.
            let _ = self.thread.join();
        }
    }

    /// Drops what belongs to a thread of the parent process without touching the thread, which does not exist.
    pub(crate) fn forget(self) {
        mem::forget(self);
    }
}

/// The life of a worker thread.
fn live(berth: &Berth<Job>, qos: Option<Qos>, first: Job) {
    if let Some(qos) = qos {
        qos.apply();
    }
    let process = fork::generation();
    let mut job = first;
    loop {
        job.run();
        // After a fork by a body this is the child's first thread: it ends, and the process with it, unless others are there.
        if process != fork::generation() {
            return;
        }
        let next = if berth.vacate() { berth.next() } else { None };
        match next {
            Some(next) => job = *next,
            None => break fork::count_worker(-1),
        }
    }
}

/// The threads that a pool has. In a forked child, of no use: see [`forget`](Crew::forget).
#[derive(Default)]
pub(crate) struct Crew(Vec<Hand>);

impl Crew {
    /// One worker for each name, as many as the system gives; why not all, if so.
    pub(crate) fn start(&mut self, inner: &Arc<Inner>, recipe: &Recipe) -> Option<std::io::Error> {
        debug_assert!(self.0.is_empty());
        let mut cpus = None;
        for (index, name) in recipe.names.iter().enumerate() {
            let key = Key {
                name: recipe.lasting_names.then(|| name.clone()),
                stack_size: recipe.stack_size,
                qos: recipe.qos,
            };
            let mut job = Job {
                inner: Arc::clone(inner),
                index,
                name: name.clone(),
                cpus: None,
                on_start: recipe.on_start.clone(),
                on_stop: recipe.on_stop.clone(),
            };
            let cached = if recipe.cached { cache::take(&key) } else { None };
            let hand = match cached {
                Some(hand) => {
                    cpus = cpus.or_else(CpuSet::of_this_thread);
                    job.cpus = cpus;
                    hand.berth.assign(Box::new(job));
                    hand
                }
                None => match Hand::start(key, job) {
                    Ok(hand) => hand,
                    Err(refusal) => return Some(refusal),
                },
            };
            self.0.push(hand);
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The pool has stopped: gives its threads to the cache, or ends and joins them.
    ///
    /// Returns when none of them works for the pool any more. A pool dropped by one of its own workers does not wait for it.
    pub(crate) fn leave(&mut self, cached: bool) {
        let mut hands = mem::take(&mut self.0);
        let room = if cached { cache::room(hands.len()) } else { 0 };
        let mut ended = hands.split_off(room);
        if let Some(own) = hands.iter().position(Hand::is_this_thread) {
            ended.push(hands.remove(own));
        }
        ended.iter().for_each(Hand::dismiss);
        hands.iter().for_each(|hand| drop(hand.berth.recall()));
        ended.into_iter().for_each(Hand::join);
        if !hands.is_empty() {
            cache::keep(hands);
        }
    }

    /// In the child of a fork, whose threads these are not.
    pub(crate) fn forget(&mut self) {
        self.0.drain(..).for_each(Hand::forget);
    }
}

/// Gives the calling thread a name for the system: what `top`, debuggers and profilers show.
fn name_this_thread(name: &str) {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        // The kernel keeps 15 bytes and refuses more.
        let mut short = [0u8; 16];
        let length = name.len().min(15);
        short[..length].copy_from_slice(&name.as_bytes()[..length]);
        // SAFETY: the name ends with a zero byte, and the calling thread exists.
        unsafe {
            #[cfg(target_os = "linux")]
            libc::pthread_setname_np(libc::pthread_self(), short.as_ptr().cast());
            #[cfg(target_vendor = "apple")]
            libc::pthread_setname_np(short.as_ptr().cast());
        }
    }
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    let _ = name;
}

/// Runs `start` with signals blocked on the calling thread, so that a thread it starts never handles one that was sent to the
/// process: those go to the application's threads, and interrupt their waits.
///
/// Signals that a thread raises by what it does are not blocked: a stack overflow or a bad access in a body is reported as on
/// any other thread.
fn with_signals_blocked<R>(start: impl FnOnce() -> R) -> R {
    #[cfg(unix)]
    // SAFETY: both sets are valid for the calls, which change the calling thread's mask and put it back.
    unsafe {
        let mut sent = mem::zeroed();
        let mut before = mem::zeroed();
        libc::sigfillset(&mut sent);
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS]
        {
            libc::sigdelset(&mut sent, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &sent, &mut before);
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
    #[cfg(not(unix))]
    start()
}
