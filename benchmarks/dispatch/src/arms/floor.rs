//! The store-and-poll floor: the least that any dispatch with an epoch and a completion word can do.
//!
//! The leader writes the job and a plain epoch to one line; every worker polls that line with PAUSE, runs its share,
//! and stores the epoch to a line of its own, which the leader polls. No locked instruction, no fence, no system call,
//! no parking: it is not a usable runtime, it is a ruler.

use super::{share, Arm, Kind, Section, Visitor, FLOOR};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Floor;

const STOP: u64 = u64::MAX;

type Body = *const (dyn Fn(usize) + Sync);

/// Written by the leader only. The job shares the epoch's line, so that one transfer brings both.
#[repr(align(128))]
struct Post {
    epoch: AtomicU64,
    job: UnsafeCell<(Body, usize)>,
}

// SAFETY: `job` is written by the leader before it stores `epoch` with release, and read by workers after they load
// that epoch with acquire; it is written again only after every worker has stored the epoch to its done word.
unsafe impl Sync for Post {}

/// Written by one worker, polled by the leader.
#[repr(align(128))]
struct Done(AtomicU64);

impl Arm for Floor {
    fn name(&self) -> &str {
        FLOOR
    }

    fn kind(&self) -> Kind {
        Kind::Gang
    }

    fn about(&self) -> &str {
        "plain-store epoch, plain-store done, workers poll with PAUSE for ever; always pinned"
    }

    fn is_floor(&self) -> bool {
        true
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        fn nothing(_: usize) {}
        let post = Post { epoch: AtomicU64::new(0), job: UnsafeCell::new((&nothing as Body, 0)) };
        let done: Vec<Done> = (1..threads).map(|_| Done(AtomicU64::new(0))).collect();
        std::thread::scope(|scope| {
            for (worker, done) in done.iter().enumerate() {
                let post = &post;
                scope.spawn(move || serve(worker + 1, threads, post, done));
            }
            visit(&mut Leader { post: &post, done: &done });
            post.epoch.store(STOP, Ordering::Release);
        });
        Ok(())
    }
}

fn serve(index: usize, threads: usize, post: &Post, done: &Done) {
    let mut seen = 0;
    loop {
        let epoch = post.epoch.load(Ordering::Acquire);
        if epoch == seen {
            spin_loop();
            continue;
        }
        if epoch == STOP {
            return;
        }
        seen = epoch;
        // SAFETY: the epoch was loaded with acquire, so the job written before it is visible and stays unchanged
        // until this worker's done word carries the epoch.
        let (body, parts) = unsafe { *post.job.get() };
        // SAFETY: the leader does not return from `run`, which borrows the body, before the done word is stored.
        let body = unsafe { &*body };
        for part in share(index, threads, parts) {
            body(part);
        }
        done.0.store(epoch, Ordering::Release);
    }
}

struct Leader<'f> {
    post: &'f Post,
    done: &'f [Done],
}

impl Section for Leader<'_> {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        let epoch = self.post.epoch.load(Ordering::Relaxed) + 1;
        // SAFETY: only the lifetime changes; the workers are done with the body before this function returns.
        let erased: Body = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Body>(body) };
        // SAFETY: every worker has finished the previous epoch, so nobody reads the job now.
        unsafe { *self.post.job.get() = (erased, parts) };
        self.post.epoch.store(epoch, Ordering::Release);
        for part in share(0, self.done.len() + 1, parts) {
            body(part);
        }
        for done in self.done {
            while done.0.load(Ordering::Acquire) != epoch {
                spin_loop();
            }
        }
    }
}
