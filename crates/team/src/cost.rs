//! What a section costs, and when it pays to run one.

use std::num::NonZeroUsize;
use std::time::Duration;

/// A region runs in parallel when it takes at least this many times what its sections cost: below it the gain is within
/// the noise, and a section that a busy CPU delays loses more than it gains.
pub const PAYS: f64 = TIMES as f64;

/// [`PAYS`] for the rule, which compares whole nanoseconds: in seconds, 2.1 us would not be three times 0.7 us.
const TIMES: u128 = 3;

/// How a token reaches its participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DispatchKind {
    /// Reserved members.
    Team,
    /// A plain token used by a worker of its pool.
    InPool,
    /// A plain token used from outside.
    Outside,
}

/// The cost of one section by width: measured anchors, interpolated between them.
///
/// Below the first anchor its value holds; above the last, the cost grows in proportion to the width. A cost is whole
/// nanoseconds, rounded down, and `u64::MAX` of them at most.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::time::Duration;
/// use threadteam::WidthCosts;
///
/// let costs = WidthCosts::from_anchors(&[(2, Duration::from_micros(1)), (4, Duration::from_micros(2))]).unwrap();
/// assert_eq!(costs.at(NonZeroUsize::new(3).unwrap()), Duration::from_nanos(1500));
/// assert_eq!(costs.at(NonZeroUsize::new(8).unwrap()), Duration::from_micros(4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WidthCosts {
    /// Widths and nanoseconds; zeros after the first `count`, so that equal rows compare equal.
    anchors: [(u16, u64); WidthCosts::MAX_ANCHORS],
    count: usize,
}

impl WidthCosts {
    /// The most anchors of one row.
    pub const MAX_ANCHORS: usize = 12;

    /// Costs at widths 2, 4 and 6.
    pub const fn new(at_2_4_6: [Duration; 3]) -> Self {
        let mut anchors = [(0, 0); Self::MAX_ANCHORS];
        anchors[0] = (2, nanos(at_2_4_6[0]));
        anchors[1] = (4, nanos(at_2_4_6[1]));
        anchors[2] = (6, nanos(at_2_4_6[2]));
        WidthCosts { anchors, count: 3 }
    }

    /// The same cost at widths 2, 4 and 6.
    pub const fn flat(cost: Duration) -> Self {
        Self::new([cost; 3])
    }

    /// A row of measured anchors, or `None` unless their widths rise strictly from at least 2 to at most `u16::MAX` and
    /// there are 1 to [`MAX_ANCHORS`](Self::MAX_ANCHORS).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::WidthCosts;
    ///
    /// const MEASURED: Option<WidthCosts> =
    ///     WidthCosts::from_anchors(&[(2, Duration::from_nanos(480)), (16, Duration::from_nanos(1900))]);
    /// assert_eq!(MEASURED.unwrap().min(), Duration::from_nanos(480));
    /// assert!(WidthCosts::from_anchors(&[(1, Duration::from_nanos(480))]).is_none());
    /// ```
    pub const fn from_anchors(anchors: &[(usize, Duration)]) -> Option<Self> {
        if anchors.is_empty() || anchors.len() > Self::MAX_ANCHORS {
            return None;
        }
        let mut row = [(0, 0); Self::MAX_ANCHORS];
        let mut last = 1;
        let mut at = 0;
        while at < anchors.len() {
            let (width, cost) = anchors[at];
            if width <= last || width > u16::MAX as usize {
                return None;
            }
            row[at] = (width as u16, nanos(cost));
            last = width;
            at += 1;
        }
        Some(WidthCosts { anchors: row, count: anchors.len() })
    }

    /// The cost of one section of `width` participants.
    pub fn at(&self, width: NonZeroUsize) -> Duration {
        let width = width.get();
        let anchors = &self.anchors[..self.count];
        let nanos = match anchors.iter().position(|&(anchor, _)| usize::from(anchor) >= width) {
            Some(0) => anchors[0].1,
            Some(at) => {
                let ((lo, low), (hi, high)) = (anchors[at - 1], anchors[at]);
                let part = |difference: u64| scaled(difference, width - usize::from(lo), hi - lo);
                if high < low {
                    low - part(low - high)
                } else {
                    low + part(high - low)
                }
            }
            None => {
                let (widest, cost) = anchors[self.count - 1];
                scaled(cost, width, widest)
            }
        };
        Duration::from_nanos(nanos)
    }

    /// The measured widths and what a section of each costs.
    pub fn anchors(&self) -> impl Iterator<Item = (usize, Duration)> + '_ {
        self.anchors[..self.count].iter().map(|&(width, nanos)| (usize::from(width), Duration::from_nanos(nanos)))
    }

    /// The least of the anchors, which no width is below: a region under [`PAYS`] times this pays at none.
    pub const fn min(&self) -> Duration {
        let mut least = u64::MAX;
        let mut at = 0;
        while at < self.count {
            if self.anchors[at].1 < least {
                least = self.anchors[at].1;
            }
            at += 1;
        }
        Duration::from_nanos(least)
    }
}

const fn nanos(time: Duration) -> u64 {
    let nanos = time.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}

/// `nanos * times / by`, rounded down, `u64::MAX` at most.
fn scaled(nanos: u64, times: usize, by: u16) -> u64 {
    let times = times as u64;
    match nanos.checked_mul(times) {
        Some(product) => product / u64::from(by),
        // A division of 128 bits is a call of tens of nanoseconds: only for costs that nothing measured.
        None => u64::try_from(u128::from(nanos) * u128::from(times) / u128::from(by)).unwrap_or(u64::MAX),
    }
}

/// The kernels that a machine takes, which is how its costs are keyed.
///
/// # Examples
///
/// ```
/// use threadteam::{DispatchCosts, HostClass};
///
/// println!("this is an {} machine", HostClass::detect().name());
/// assert_eq!(HostClass::X86_64Avx2.name(), "x86_64-avx2");
/// assert_eq!(DispatchCosts::for_class(HostClass::detect()), DispatchCosts::host_default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostClass {
    /// x86-64 with AVX-512.
    X86_64Avx512,
    /// x86-64 with AVX2 and FMA.
    X86_64Avx2,
    /// x86-64 with neither.
    X86_64Scalar,
    /// aarch64 on macOS.
    Aarch64Apple,
    /// aarch64 elsewhere.
    Aarch64,
    /// Anything else.
    Generic,
}

impl HostClass {
    /// The class of this machine; the processor is asked once per process.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx512f") {
                return HostClass::X86_64Avx512;
            }
            if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                return HostClass::X86_64Avx2;
            }
            HostClass::X86_64Scalar
        }
        #[cfg(not(target_arch = "x86_64"))]
        match (cfg!(target_arch = "aarch64"), cfg!(target_os = "macos")) {
            (true, true) => HostClass::Aarch64Apple,
            (true, false) => HostClass::Aarch64,
            _ => HostClass::Generic,
        }
    }

    /// The name under which tables are kept.
    pub const fn name(self) -> &'static str {
        match self {
            HostClass::X86_64Avx512 => "x86_64-avx512",
            HostClass::X86_64Avx2 => "x86_64-avx2",
            HostClass::X86_64Scalar => "x86_64-scalar",
            HostClass::Aarch64Apple => "aarch64-apple",
            HostClass::Aarch64 => "aarch64",
            HostClass::Generic => "generic",
        }
    }
}

/// The cost of one section for each [`DispatchKind`].
///
/// The costs are of the steady state: sections one after the other, members awake. Waking them is not in it, or a caller
/// with few sections would stay on one thread and never wake them.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::time::Duration;
/// use threadteam::{DispatchCosts, DispatchKind, WidthCosts};
///
/// let measured = WidthCosts::flat(Duration::from_micros(2));
/// let costs = DispatchCosts::host_default().with(DispatchKind::Outside, measured);
/// let four = NonZeroUsize::new(4).unwrap();
/// assert_eq!(costs.cost(DispatchKind::Outside, four), Duration::from_micros(2));
/// assert_eq!(costs.cost(DispatchKind::Team, four), DispatchCosts::default().cost(DispatchKind::Team, four));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchCosts {
    team: WidthCosts,
    in_pool: WidthCosts,
    outside: WidthCosts,
    /// What a section takes at least on one thread if it pays at any width, of any kind.
    pays_from: Duration,
}

const fn micros(tenths: u64) -> Duration {
    Duration::from_nanos(tenths * 100)
}

/// One more member costs one more line that moves to it and back: half of the 290 ns round trip of the machines below.
const fn growing(at_2: u64) -> WidthCosts {
    WidthCosts::new([micros(at_2), micros(at_2 + 3), micros(at_2 + 6)])
}

/// [`Sample`](crate::Sample) on a two-CPU virtual machine (AMD EPYC, Zen 3), shares of 4 us, medians of 300 to 400 samples:
/// a team 0.53 us, from outside 0.57, a worker 0.60 when the machine was fast (round trip 260 ns); 1.04, 1.20 when it was
/// slow (350 ns). The row is two thirds of the slow state, so that a region that just pays (`PAYS` times this) is never
/// slower than on one thread, in neither state.
static X86_64_AVX2: DispatchCosts = DispatchCosts::new(growing(7), growing(8), growing(8));

/// As above on a two-CPU virtual machine (AMD EPYC with AVX-512): a team 0.48 us, from outside 0.53, quartiles 6 to 8 %
/// apart, in two runs; 0.58 and 0.64 in a third that builds disturbed.
static X86_64_AVX512: DispatchCosts = DispatchCosts::new(growing(5), growing(6), growing(6));

/// For classes that nobody has measured: twice the most that was measured anywhere.
static UNMEASURED: DispatchCosts = DispatchCosts::new(twice(10), twice(12), twice(12));

const fn twice(at_2: u64) -> WidthCosts {
    WidthCosts::new([micros(2 * at_2), micros(2 * at_2 + 6), micros(2 * at_2 + 12)])
}

impl DispatchCosts {
    /// Costs of a caller's own.
    pub const fn new(team: WidthCosts, in_pool: WidthCosts, outside: WidthCosts) -> Self {
        let rows = [nanos(team.min()), nanos(in_pool.min()), nanos(outside.min())];
        let mut least = rows[0];
        if rows[1] < least {
            least = rows[1];
        }
        if rows[2] < least {
            least = rows[2];
        }
        let pays_from = Duration::from_nanos(least.saturating_mul(TIMES as u64));
        DispatchCosts { team, in_pool, outside, pays_from }
    }

    /// The row of a class.
    pub fn for_class(class: HostClass) -> Self {
        *Self::of_class(class)
    }

    pub(crate) const fn of_class(class: HostClass) -> &'static Self {
        match class {
            HostClass::X86_64Avx512 => &X86_64_AVX512,
            HostClass::X86_64Avx2 => &X86_64_AVX2,
            _ => &UNMEASURED,
        }
    }

    /// The row of this machine's class.
    pub fn host_default() -> Self {
        *Self::of_host()
    }

    pub(crate) fn of_host() -> &'static Self {
        Self::of_class(HostClass::detect())
    }

    /// This row with the costs of one kind replaced.
    #[must_use]
    pub fn with(mut self, kind: DispatchKind, costs: WidthCosts) -> Self {
        *match kind {
            DispatchKind::Team => &mut self.team,
            DispatchKind::InPool => &mut self.in_pool,
            DispatchKind::Outside => &mut self.outside,
        } = costs;
        Self::new(self.team, self.in_pool, self.outside)
    }

    /// Whether one section of `estimate` serial time pays at no width, whatever its kind: one comparison, where the whole rule
    /// takes a tenth of such a section.
    #[inline]
    pub(crate) fn are_too_high_for(&self, estimate: Duration) -> bool {
        estimate < self.pays_from
    }

    /// The least cost of a kind at any anchor.
    pub fn min_cost(&self, kind: DispatchKind) -> Duration {
        self.row(kind).min()
    }

    /// The cost of one section.
    pub fn cost(&self, kind: DispatchKind, width: NonZeroUsize) -> Duration {
        self.row(kind).at(width)
    }

    /// The costs of one kind, by width.
    pub fn row(&self, kind: DispatchKind) -> &WidthCosts {
        match kind {
            DispatchKind::Team => &self.team,
            DispatchKind::InPool => &self.in_pool,
            DispatchKind::Outside => &self.outside,
        }
    }
}

impl Default for DispatchCosts {
    fn default() -> Self {
        Self::host_default()
    }
}

/// The one rule: `estimate >= PAYS * sections * dispatch_cost`, exact to the nanosecond. Never at a cost of
/// [`Duration::MAX`], where there is nothing to dispatch to; else always for zero sections.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use threadteam::pays_at;
///
/// assert!(pays_at(Duration::from_micros(9), 3, Duration::from_micros(1)));
/// assert!(!pays_at(Duration::from_micros(8), 3, Duration::from_micros(1)));
/// assert!(!pays_at(Duration::from_secs(1), 0, Duration::MAX));
/// ```
pub fn pays_at(estimate: Duration, sections: u32, dispatch_cost: Duration) -> bool {
    let due = TIMES * u128::from(sections) * u128::from(nanos(dispatch_cost));
    dispatch_cost != Duration::MAX && u128::from(nanos(estimate)) >= due
}

/// The width in `1..=budget` that minimises `sections * cost(width) + estimate / width` among those that pay, 1 if none
/// does; ties go to the smaller width.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::time::Duration;
/// use threadteam::width_for_by;
///
/// let budget = NonZeroUsize::new(6).unwrap();
/// let flat = |_| Duration::from_micros(2);
/// assert_eq!(width_for_by(Duration::from_micros(1), 1, budget, flat).get(), 1);
/// assert_eq!(width_for_by(Duration::from_millis(1), 1, budget, flat).get(), 6);
/// ```
pub fn width_for_by(
    estimate: Duration,
    sections: u32,
    budget: NonZeroUsize,
    cost: impl Fn(NonZeroUsize) -> Duration,
) -> NonZeroUsize {
    let serial = nanos(estimate) as f64;
    let mut best = (NonZeroUsize::MIN, serial);
    for width in (2..=budget.get()).filter_map(NonZeroUsize::new) {
        let cost = cost(width);
        if pays_at(estimate, sections, cost) {
            let time = f64::from(sections) * nanos(cost) as f64 + serial / width.get() as f64;
            if time < best.1 {
                best = (width, time);
            }
        }
    }
    best.0
}
