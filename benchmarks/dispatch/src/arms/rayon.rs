//! `rayon`, on a private pool: from inside it, from outside it, and as a broadcast.

use super::stage::STAGE;
use super::{Arm, Kind, Section, Visitor};
use ::rayon::{ThreadPool, ThreadPoolBuilder};

pub fn arms() -> Vec<Box<dyn Arm>> {
    vec![Box::new(Join), Box::new(Install), Box::new(Broadcast)]
}

struct Join;
struct Install;
struct Broadcast;

fn pool(threads: usize) -> Result<ThreadPool, String> {
    ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| format!("no pool: {error}"))
}

fn split(first: usize, end: usize) {
    match end - first {
        0 => {}
        1 => STAGE.part(first),
        parts => {
            let middle = first + parts / 2;
            ::rayon::join(|| split(first, middle), || split(middle, end));
        }
    }
}

impl Arm for Join {
    fn name(&self) -> &str {
        "rayon.join"
    }

    fn kind(&self) -> Kind {
        Kind::Claimed
    }

    fn about(&self) -> &str {
        "rayon: nested join, the leader is a worker of the pool"
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        pool(threads)?.install(|| visit(&mut Inside));
        Ok(())
    }
}

impl Arm for Install {
    fn name(&self) -> &str {
        "rayon.install"
    }

    fn kind(&self) -> Kind {
        Kind::Claimed
    }

    fn about(&self) -> &str {
        "rayon: install and nested join, the leader is outside the pool"
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        visit(&mut Outside(pool(threads)?));
        Ok(())
    }
}

impl Arm for Broadcast {
    fn name(&self) -> &str {
        "rayon.broadcast"
    }

    fn kind(&self) -> Kind {
        Kind::Gang
    }

    fn about(&self) -> &str {
        "rayon: broadcast, one share per worker, the leader is outside the pool"
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        visit(&mut Everyone(pool(threads)?));
        Ok(())
    }
}

struct Inside;

impl Section for Inside {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        split(0, parts);
    }
}

struct Outside(ThreadPool);

impl Section for Outside {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        self.0.install(|| split(0, parts));
    }
}

struct Everyone(ThreadPool);

impl Section for Everyone {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        self.0.broadcast(|context| STAGE.share(context.index(), context.num_threads()));
    }
}
