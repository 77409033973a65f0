//! The least that a range word can do: post, entry and completion on one line per worker.
//!
//! The leader writes the job and a word to each worker's line; the worker polls it with PAUSE, runs its share and swaps the
//! word to zero, which the leader polls. As the floor it parks nobody and checks nothing: what this runtime's gangs cost
//! beyond it is their bookkeeping, what it costs beyond nothing is the line's way there and back.

use super::{share, Arm, Kind, Section, Visitor};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct BareWord;

const STOP: u64 = u64::MAX;

type Body = *const (dyn Fn(usize) + Sync);

#[repr(align(128))]
struct Post {
    word: AtomicU64,
    job: UnsafeCell<(Body, usize)>,
}

// SAFETY: the leader writes `job` while the word is zero, then stores the word with release; the worker reads it after an
// acquire load of that word and before it swaps the word back to zero, which the leader loads with acquire.
unsafe impl Sync for Post {}

impl Arm for BareWord {
    fn name(&self) -> &str {
        "bare.word"
    }

    fn kind(&self) -> Kind {
        Kind::Gang
    }

    fn about(&self) -> &str {
        "a ruler: post, entry and completion in one word per worker, polled with PAUSE for ever"
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        if std::thread::available_parallelism().is_ok_and(|cpus| threads > cpus.get()) {
            return Err("it only spins, so it needs a CPU for each thread".into());
        }
        fn nothing(_: usize) {}
        let post = || Post { word: AtomicU64::new(0), job: UnsafeCell::new((&nothing as Body, 0)) };
        let posts: Vec<Post> = (1..threads).map(|_| post()).collect();
        std::thread::scope(|scope| {
            for (worker, post) in posts.iter().enumerate() {
                scope.spawn(move || serve(worker + 1, threads, post));
            }
            visit(&mut Leader(&posts));
            posts.iter().for_each(|post| post.word.store(STOP, Ordering::Release));
        });
        Ok(())
    }
}

fn serve(index: usize, threads: usize, post: &Post) {
    loop {
        match post.word.load(Ordering::Acquire) {
            0 => spin_loop(),
            STOP => return,
            _ => {
                // SAFETY: the word is set, so the job is this section's and stays until it is zero again.
                let (body, parts) = unsafe { *post.job.get() };
                // SAFETY: the leader does not return from `run`, which borrows the body, before the word is zero.
                let body = unsafe { &*body };
                for part in share(index, threads, parts) {
                    body(part);
                }
                post.word.swap(0, Ordering::AcqRel);
            }
        }
    }
}

struct Leader<'p>(&'p [Post]);

impl Section for Leader<'_> {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; every word is zero again before this function returns.
        let erased: Body = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Body>(body) };
        for post in self.0 {
            // SAFETY: the word is zero, so the worker reads nothing.
            unsafe { *post.job.get() = (erased, parts) };
            post.word.store(1, Ordering::Release);
        }
        for part in share(0, self.0.len() + 1, parts) {
            body(part);
        }
        for post in self.0 {
            while post.word.load(Ordering::Acquire) != 0 {
                spin_loop();
            }
        }
    }
}
