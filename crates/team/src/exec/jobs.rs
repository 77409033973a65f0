//! The claimed sections of a token: jobs and ranges.

use super::{Exec, Held, Place};
use crate::error::Error;
use crate::foreign::dispatch_chunks;
use crate::free::Claim;
use crate::inner::Inner;
use crate::pool::Pool;
use crate::section::{Chunks, Leader};
use crate::share::Shares;
use crate::slot::Call;
use crate::word::MAX_CHUNKS;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Chunks that [`Exec::for_ranges`] makes for each participant when `grain` allows: with one, the slowest CPU gates the
/// section; a chunk costs about one locked instruction.
const CHUNKS_PER_PARTICIPANT: usize = 4;

impl Exec<'_> {
    /// Runs `f(i, child)` for `i` in `0..jobs` on `min(jobs, budget)` tasks. The children's budgets add up to this one's;
    /// with more jobs than budget, tasks take jobs from a shared range and every child has one slot.
    ///
    /// Slots in several [domains](crate::PoolBuilder::domains) are cut at their boundaries first; this then waits for a worker of
    /// each.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// let mut token = Exec::new(&pool, 4)?;
    /// // Two jobs: each child may use two of the four slots, in a `fork` of its own perhaps.
    /// token.reborrow().fork(2, |_, child| assert_eq!(child.budget().get(), 2));
    /// // A hundred jobs: four at a time, each on one slot.
    /// let ran = AtomicUsize::new(0);
    /// token.fork(100, |_, child| {
    ///     assert!(child.is_serial());
    ///     ran.fetch_add(1, Ordering::Relaxed);
    /// });
    /// assert_eq!(ran.into_inner(), 100);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn fork<F>(self, jobs: usize, f: F)
    where
        F: Fn(usize, Exec<'_>) + Sync,
    {
        let tasks = jobs.min(self.budget.get());
        if tasks == 0 {
            return;
        }
        let shares = Shares::even(self.budget.get(), tasks);
        // With more jobs than slots each child has one.
        if tasks < jobs || !self.forks_over_domains(shares, &f) {
            self.fork_shares(jobs, shares, &f);
        }
    }

    /// Runs `f(i, child)` for each share, where child `i` has `shares[i]` slots; in a pool over
    /// [domains](crate::PoolBuilder::domains) those of the first domain, after its predecessors', that has so many left.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroBudget`] when a share is zero, [`Error::SharesExceedBudget`] when they add up to more than the budget.
    /// Nothing ran then.
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// // One job has three times the work of the other.
    /// Exec::new(&pool, 4)?.fork_sized(&[3, 1], |job, child| assert_eq!(child.budget().get(), [3, 1][job]))?;
    /// assert!(Exec::new(&pool, 4)?.fork_sized(&[3, 2], |_, _| ()).is_err());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn fork_sized<F>(self, shares: &[usize], f: F) -> Result<(), Error>
    where
        F: Fn(usize, Exec<'_>) + Sync,
    {
        if shares.contains(&0) {
            return Err(Error::ZeroBudget);
        }
        let sum = shares.iter().fold(0usize, |sum, &share| sum.saturating_add(share));
        if sum > self.budget.get() {
            return Err(Error::SharesExceedBudget { budget: self.budget.get(), sum });
        }
        let jobs = shares.len();
        let shares = Shares::sized(shares);
        if jobs > 0 && !self.forks_over_domains(shares, &f) {
            self.fork_shares(jobs, shares, &f);
        }
        Ok(())
    }

    pub(super) fn fork_shares<F>(self, jobs: usize, shares: Shares<'_>, f: &F)
    where
        F: Fn(usize, Exec<'_>) + Sync,
    {
        // Jobs are worth a wake unless their caller says how long they take: the leader looks at its debt between jobs
        // only, and the first may be the longest.
        let this = if self.estimate == 0 { self.expecting(Duration::MAX) } else { self };
        let (reach, hook, wait) = (this.reach, this.hook, this.wait);
        let ticket = this.ticket.clone();
        let _leads = ticket.lead();
        let child = move |place: Place<'_>, job: usize| {
            let (place, budget, hook) = if jobs > shares.count() {
                (without_members(place), 1, None)
            } else {
                let at = shares.start(job);
                let budget = shares.size(job);
                (with_members(place, at..at + budget - 1), budget, hook)
            };
            let budget = NonZeroUsize::new(budget).unwrap_or(NonZeroUsize::MIN);
            let ticket = ticket.derive("a job", budget);
            let _task = ticket.enter();
            f(job, Exec { place, budget, reach, fork_child: true, hook, wait, ticket, ..Exec::serial() });
        };
        // A member takes the first chunk of its own block, so with as many jobs as tasks job `k` starts on the member that
        // leads its share.
        let place = this.place;
        let tasks = shares.count();
        if let Place::Team(pool, members) = place {
            let mut leads = Claim::empty();
            (1..tasks).for_each(|task| leads.push(usize::from(members[shares.start(task) - 1])));
            this.run_chunks(Some((pool, leads.ids())), tasks, jobs, |range| range.for_each(|job| child(place, job)));
        } else {
            this.run_chunks(None, tasks, jobs, |range| range.for_each(|job| child(place, job)));
        }
    }

    /// Calls `f` with disjoint ranges that cover `0..len`, each of at least `grain` items but the last, on at most `budget`
    /// participants. There may be more ranges than participants: those who finish early take what others have left.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let data: Vec<u64> = (0..10_000).collect();
    /// let total = AtomicU64::new(0);
    /// Exec::new(&pool, 2)?.for_ranges(data.len(), NonZeroUsize::new(1000).unwrap(), |range| {
    ///     total.fetch_add(data[range].iter().sum(), Ordering::Relaxed);
    /// });
    /// assert_eq!(total.into_inner(), 49_995_000);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn for_ranges<F>(self, len: usize, grain: NonZeroUsize, f: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        if len == 0 {
            return;
        }
        let ticket = self.ticket.clone();
        let _leads = ticket.lead();
        let f = |range| {
            let _task = ticket.enter();
            f(range);
        };
        let most = if grain == NonZeroUsize::MIN { len } else { (len / grain).max(1) };
        let tasks = most.min(self.budget.get());
        if tasks == 1 {
            return f(0..len);
        }
        let chunks = most.min(tasks * CHUNKS_PER_PARTICIPANT);
        self.run(None, tasks, Chunks::of(len, chunks), f);
    }

    /// `jobs` jobs, one a chunk (several beyond 2^30 jobs).
    fn run_chunks<F>(self, members: Option<(&Pool, &[u16])>, tasks: usize, jobs: usize, f: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        if tasks == 1 {
            return f(0..jobs);
        }
        self.run(members, tasks, Chunks::of(jobs, jobs.min(MAX_CHUNKS)), f);
    }

    /// One claimed section on at most `tasks >= 2` participants: `members` if given, else the token's own.
    fn run<F>(self, members: Option<(&Pool, &[u16])>, tasks: usize, chunks: Chunks, f: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        let whole = chunks.count * chunks.base + chunks.extra;
        match (members, self.place) {
            (_, Place::Here) => f(0..whole),
            (_, Place::Foreign(system)) => {
                let f = &f;
                dispatch_chunks(system, tasks, chunks.count, &move |chunk| {
                    let start = chunk * chunks.base + chunk.min(chunks.extra);
                    f(start..start + chunks.base + usize::from(chunk < chunks.extra));
                });
            }
            (Some((pool, members)), _) | (None, Place::Team(pool, members)) => {
                self.lead(pool.running(), &members[..tasks - 1], chunks, &f);
            }
            (None, Place::Pool(pool)) => {
                let inner = pool.running();
                let mut claim = Claim::empty();
                inner.claim(self.reach, tasks - 1, &mut claim);
                if claim.ids().is_empty() {
                    return f(0..whole);
                }
                let held = Held { inner, ids: claim.ids(), epoch: inner.epoch() };
                self.lead(inner, held.ids, chunks, &f);
            }
        }
    }

    fn lead<F>(&self, inner: &Inner, members: &[u16], chunks: Chunks, f: &F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        let (call, data) = erase_range(f);
        let leader = Leader { inner, hook: self.hook, wait: self.wait, estimate: self.estimate };
        // SAFETY: `f` outlives the call and is `Sync`; `members` are claimed by this token and at least one; every caller
        // passes at least two chunks.
        unsafe { leader.claimed(members, chunks, call, data) };
    }
}

fn without_members(place: Place<'_>) -> Place<'_> {
    with_members(place, 0..0)
}

/// The place narrowed to some of a team's members.
fn with_members(place: Place<'_>, members: Range<usize>) -> Place<'_> {
    match place {
        Place::Team(pool, all) => Place::Team(pool, &all[members]),
        // A section of another system inside one of its own is not dispatched again.
        Place::Foreign(_) => Place::Here,
        other => other,
    }
}

/// The body of a claimed section, erased.
fn erase_range<F: Fn(Range<usize>) + Sync>(f: &F) -> (Call, *const ()) {
    unsafe fn call<F: Fn(Range<usize>)>(data: *const (), start: usize, stop: usize) {
        // SAFETY: `data` is the `&F` that `erase_range` erased; the section keeps it alive.
        (unsafe { &*data.cast::<F>() })(start..stop);
    }
    (call::<F>, std::ptr::from_ref(f).cast())
}

/// A counter that several leaders of one section pull job numbers from.
pub(crate) struct JobCounter(AtomicUsize);

impl JobCounter {
    pub(crate) fn new() -> Self {
        JobCounter(AtomicUsize::new(0))
    }

    /// The next of `jobs` job numbers.
    pub(crate) fn next(&self, jobs: usize) -> Option<usize> {
        let job = self.0.fetch_add(1, Ordering::Relaxed);
        (job < jobs).then_some(job)
    }
}
