//! Two jobs of unequal size share a pool, and each goes parallel inside its share.
//!
//! `cargo run --release -p threadteam-team --example nested`

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use threadteam::{Error, Exec, Pool};

/// Counts the tasks that run at once.
#[derive(Default)]
struct Live {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Live {
    fn run(&self, task: impl FnOnce()) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        task();
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sum of the first `n` square roots: work that knows nothing of the pool it runs on.
fn roots(exec: Exec<'_>, n: usize, live: &Live) -> usize {
    let done = AtomicUsize::new(0);
    exec.for_ranges(n, NonZeroUsize::new(1000).expect("not zero"), |range| {
        live.run(|| {
            let sum: f64 = range.clone().map(|x| (x as f64).sqrt()).sum();
            assert!(sum.is_finite());
            done.fetch_add(range.len(), Ordering::Relaxed);
        });
    });
    done.into_inner()
}

pub(crate) fn main() -> Result<(), Error> {
    let pool = Pool::builder().threads(4).build()?;
    let mut token = Exec::new(&pool, 4)?;
    let live = Live::default();
    // Three slots for the job with most of the work, one for the other.
    token.reborrow().fork_sized(&[3, 1], |job, child| {
        assert_eq!(child.budget().get(), [3, 1][job]);
        let n = [300_000, 100_000][job];
        assert_eq!(roots(child, n, &live), n);
    })?;
    // Ten equal jobs: four at a time, on a token of one slot each.
    token.reborrow().fork(10, |_, child| {
        assert!(child.is_serial());
        assert_eq!(roots(child, 50_000, &live), 50_000);
    });
    // More slots than the token has are refused before anything runs.
    assert!(token.fork_sized(&[3, 2], |_, _| ()).is_err());
    let most = live.most.into_inner();
    assert!(most <= 4, "{most} tasks at once on four slots");
    println!("every item once, and never more tasks at once than slots");
    Ok(())
}
