//! `fork_union`: a broadcast on an epoch, to workers that spin for ever.

use super::stage::STAGE;
use super::{Arm, Kind, Section, Visitor};
use ::fork_union::ThreadPool;
use std::sync::atomic::{AtomicUsize, Ordering};

pub fn arms() -> Vec<Box<dyn Arm>> {
    vec![Box::new(Threads), Box::new(Dynamic)]
}

struct Threads;
struct Dynamic;

fn pool(threads: usize) -> Result<ThreadPool, String> {
    ThreadPool::try_spawn(threads).map_err(|error| format!("no pool: {error}"))
}

impl Arm for Threads {
    fn name(&self) -> &str {
        "fork_union"
    }

    fn kind(&self) -> Kind {
        Kind::Gang
    }

    fn about(&self) -> &str {
        "fork_union: for_threads, one share per thread; its workers spin for ever"
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        let pool = pool(threads)?;
        THREADS.store(pool.threads(), Ordering::Relaxed);
        visit(&mut Shares(pool));
        Ok(())
    }
}

impl Arm for Dynamic {
    fn name(&self) -> &str {
        "fork_union.dynamic"
    }

    fn kind(&self) -> Kind {
        Kind::Claimed
    }

    fn about(&self) -> &str {
        "fork_union: for_n_dynamic, parts taken from a counter"
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        visit(&mut Prongs(pool(threads)?));
        Ok(())
    }
}

struct Shares(ThreadPool);

/// How many threads the open pool has. A static, for a closure that captures nothing; see [`stage`](super::stage).
static THREADS: AtomicUsize = AtomicUsize::new(0);

impl Section for Shares {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        // The operation runs when it is dropped.
        drop(self.0.for_threads(|index, _colocation| STAGE.share(index, THREADS.load(Ordering::Relaxed))));
    }
}

struct Prongs(ThreadPool);

impl Section for Prongs {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        drop(self.0.for_n_dynamic(parts, |prong| STAGE.part(prong.task_index)));
    }
}
