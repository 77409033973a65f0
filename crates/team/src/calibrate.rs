//! What a section costs on this machine, measured.

use crate::cost::DispatchKind;
use crate::error::Error;
use crate::exec::Exec;
use crate::pool::Pool;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Items of one share: enough for the chunks that a participant's range is cut into.
const ITEMS: usize = 16;

/// Dependent multiplications of one item, of four or five cycles each: a share takes about 5 us, as long as the smallest
/// work that is worth a section.
const STEPS: u64 = 256;

/// Sections before those that are timed: members are awake then, and a calling thread that only waits has gone to sleep.
const WARM_UP: u32 = 100;

/// One comparison of sections with the same shares on one thread.
///
/// # Examples
///
/// What a Rust program does to charge its pool what this machine really costs:
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::time::Duration;
/// use threadteam::{DispatchCosts, DispatchKind, Pool, Sample, WidthCosts};
///
/// let width = NonZeroUsize::new(2).unwrap();
/// let pool = Pool::builder().threads(2).acquire_timeout(Duration::from_secs(10)).build()?;
/// let mut costs: Vec<Duration> = (0..9)
///     .map(|_| Sample::take(&pool, DispatchKind::Team, width, 20).map(|sample| sample.cost()))
///     .collect::<Result<_, _>>()?;
/// costs.sort();
/// let team = WidthCosts::from_anchors(&[(2, costs[costs.len() / 2])]).unwrap();
/// let costs = DispatchCosts::host_default().with(DispatchKind::Team, team);
/// let pool = Pool::builder().threads(2).dispatch_costs(costs).build()?;
/// # assert_eq!(pool.dispatch_costs(), costs);
/// # Ok::<(), threadteam::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// One section of as many shares as participants.
    pub section: Duration,
    /// One of its shares alone on the calling thread.
    pub share: Duration,
    /// Members that took part in a section, on average: fewer than `width - 1` when they were kept out, by other
    /// programs perhaps, and the sample says little about what they would have cost.
    pub members: f64,
}

impl Sample {
    /// Times `sections` sections of `width` participants back to back, and as many single shares just before.
    ///
    /// One sample says little: take the median of many, in turns with those of other widths and kinds.
    ///
    /// # Errors
    ///
    /// [`Error::NotMeasured`] when the pool has no such section, because it is too narrow (a worker that leads has one
    /// member fewer than the pool has participants), or its members could not be had.
    pub fn take(pool: &Pool, kind: DispatchKind, width: NonZeroUsize, sections: u32) -> Result<Self, Error> {
        let not_measured = Error::NotMeasured { kind, width: width.get() };
        let leaders = usize::from(kind == DispatchKind::InPool);
        if width.get() < 2 || width.get() + leaders > pool.width().get() || sections == 0 {
            return Err(not_measured);
        }
        let mut exec = Exec::new(pool, width.get())?;
        match kind {
            DispatchKind::Outside => Some(Self::of(pool, exec, sections)),
            DispatchKind::Team => exec.team(|mut team| Self::of(pool, team.exec(), sections)).ok(),
            DispatchKind::InPool => in_pool(pool, width, sections),
        }
        .ok_or(not_measured)
    }

    fn of(pool: &Pool, mut exec: Exec<'_>, sections: u32) -> Self {
        let width = exec.budget().get();
        for _ in 0..WARM_UP {
            section(&mut exec, width);
        }
        let start = Instant::now();
        for _ in 0..sections {
            share(0..ITEMS);
        }
        let between = Instant::now();
        let entered = pool.stats().entered;
        for _ in 0..sections {
            section(&mut exec, width);
        }
        let section = between.elapsed() / sections;
        let members = pool.stats().entered.saturating_sub(entered) as f64 / f64::from(sections);
        Sample { section, share: (between - start) / sections, members }
    }

    /// What the section took beyond its share; zero when the share happened to be measured slower.
    pub fn cost(&self) -> Duration {
        self.section.saturating_sub(self.share)
    }
}

/// A worker leads, and the calling thread sleeps at the join of the broadcast that told it to.
fn in_pool(pool: &Pool, width: NonZeroUsize, sections: u32) -> Option<Sample> {
    let sample = Mutex::new(None);
    let told = Exec::new(pool, 2).ok()?.broadcast(|index| {
        if index == 1 {
            let taken = Exec::new(pool, width.get()).map(|exec| Sample::of(pool, exec, sections));
            *sample.lock().unwrap_or_else(PoisonError::into_inner) = taken.ok();
        }
    });
    told.ok()?;
    sample.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn section(exec: &mut Exec<'_>, width: usize) {
    exec.reborrow().for_ranges(width * ITEMS, NonZeroUsize::MIN, share);
}

/// A chain of multiplications: nothing but the CPU's clock decides how long it takes.
fn share(items: std::ops::Range<usize>) {
    let mut value = items.start as u64 | 1;
    for _ in items {
        for _ in 0..STEPS {
            value = std::hint::black_box(value).wrapping_mul(6_364_136_223_846_793_005);
        }
    }
    std::hint::black_box(value);
}
