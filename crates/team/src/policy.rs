//! How participants wait, and the scheduling class of workers.

use crate::rhythm::LONGEST_NS;
use std::time::Duration;

/// How the participants of a pool wait.
///
/// Who waits polls first, may then yield its CPU between polls, and sleeps in the end. Two waits have limits of their own:
///
/// * an **idle member** waits for its next section, awake for at most [`idle_spin`](Self::idle_spin). An adaptive policy
///   decides inside that bound, by the gaps that the member has seen, whether staying awake pays;
/// * a leader at a **join**, a participant at a **barrier** and a caller that **acquires** members wait for others that
///   work, awake for at most [`park_after`](Self::park_after).
///
/// Both poll without a yield for [`spin`](Self::spin). Where more participants are awake than CPUs, every wait polls
/// briefly, yields a few times and sleeps, whatever the policy.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use threadteam::{WaitOverride, WaitPolicy};
///
/// assert!(WaitPolicy::DEFAULT.is_adaptive());
/// let sleepy = WaitPolicy::DEFAULT.with(WaitOverride::new().idle_spin(Duration::ZERO));
/// assert!(!sleepy.is_adaptive());
/// assert_eq!(sleepy.park_after(), WaitPolicy::DEFAULT.park_after());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaitPolicy {
    idle_spin: Duration,
    adaptive: bool,
    spin: Duration,
    park_after: Duration,
    idle_runs_rayon: bool,
}

impl WaitPolicy {
    /// Idle members stay awake while their next section is expected soon, for at most 1.6 ms; joins, barriers and
    /// acquisitions sleep after 200 us; nobody yields unless there are more participants than CPUs.
    ///
    /// A wake costs 10 to 50 us, so 200 us are a few wakes' worth.
    pub const DEFAULT: WaitPolicy = WaitPolicy {
        idle_spin: Duration::from_nanos(LONGEST_NS),
        adaptive: true,
        spin: Duration::MAX,
        park_after: Duration::from_micros(200),
        idle_runs_rayon: false,
    };

    /// Idle members stay awake for `idle_spin` after each share; the rest is as in [`DEFAULT`](Self::DEFAULT).
    ///
    /// `idle_runs_rayon` is accepted for callers of the published crate and has no effect here, where no worker belongs to
    /// Rayon.
    pub const fn new(idle_spin: Duration, idle_runs_rayon: bool) -> Self {
        WaitPolicy { idle_spin, adaptive: false, idle_runs_rayon, ..WaitPolicy::DEFAULT }
    }

    /// The longest that an idle member stays awake before it parks.
    pub const fn idle_spin(&self) -> Duration {
        self.idle_spin
    }

    /// Whether idle members park earlier than [`idle_spin`](Self::idle_spin) when their next section is not expected soon.
    pub const fn is_adaptive(&self) -> bool {
        self.adaptive
    }

    /// How long a waiter polls before it begins to yield its CPU between polls.
    pub const fn spin(&self) -> Duration {
        self.spin
    }

    /// How long joins, barriers and acquisitions stay awake before they sleep.
    pub const fn park_after(&self) -> Duration {
        self.park_after
    }

    /// What [`new`](Self::new) was given.
    pub const fn idle_runs_rayon(&self) -> bool {
        self.idle_runs_rayon
    }

    /// This policy with the parts that `over` sets.
    pub fn with(self, over: WaitOverride) -> Self {
        let (idle_spin, adaptive) = match (over.idle, over.park_after) {
            (Some(Idle::Fixed(spin)), _) => (spin, false),
            (Some(Idle::Adaptive), _) => (WaitPolicy::DEFAULT.idle_spin, true),
            (None, Some(park_after)) => (park_after, false),
            (None, None) => (self.idle_spin, self.adaptive),
        };
        WaitPolicy {
            idle_spin,
            adaptive,
            spin: over.spin.unwrap_or(self.spin),
            park_after: over.park_after.unwrap_or(self.park_after),
            idle_runs_rayon: over.idle_runs_rayon.unwrap_or(self.idle_runs_rayon),
        }
    }
}

impl Default for WaitPolicy {
    fn default() -> Self {
        WaitPolicy::DEFAULT
    }
}

/// A partial [`WaitPolicy`] for one operation: what it leaves out stays as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct WaitOverride {
    idle: Option<Idle>,
    spin: Option<Duration>,
    park_after: Option<Duration>,
    idle_runs_rayon: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Idle {
    Adaptive,
    Fixed(Duration),
}

impl WaitOverride {
    /// An override that changes nothing.
    pub const fn new() -> Self {
        WaitOverride { idle: None, spin: None, park_after: None, idle_runs_rayon: None }
    }

    /// Idle members stay awake for exactly so long after each share; zero: not at all.
    #[must_use]
    pub const fn idle_spin(mut self, spin: Duration) -> Self {
        self.idle = Some(Idle::Fixed(spin));
        self
    }

    /// Idle members stay awake as the gaps between sections suggest, for at most the default's bound.
    #[must_use]
    pub const fn adaptive(mut self) -> Self {
        self.idle = Some(Idle::Adaptive);
        self
    }

    /// Everything that `policy` says, but for what is accepted without effect.
    pub fn all_of(policy: WaitPolicy) -> Self {
        let over = WaitOverride::new().spin(policy.spin).park_after(policy.park_after);
        if policy.adaptive {
            over.adaptive()
        } else {
            over.idle_spin(policy.idle_spin)
        }
    }

    /// How long any waiter polls before it yields.
    #[must_use]
    pub const fn spin(mut self, spin: Duration) -> Self {
        self.spin = Some(spin);
        self
    }

    /// How long any waiter stays awake; for idle members what [`idle_spin`](Self::idle_spin) or
    /// [`adaptive`](Self::adaptive) says comes first.
    #[must_use]
    pub const fn park_after(mut self, time: Duration) -> Self {
        self.park_after = Some(time);
        self
    }

    /// Accepted for callers of the published crate; see [`WaitPolicy::new`].
    #[must_use]
    pub const fn idle_runs_rayon(mut self, on: bool) -> Self {
        self.idle_runs_rayon = Some(on);
        self
    }
}

/// Scheduling class of the pool's workers on Apple targets; without effect elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Qos {
    /// The system's default class.
    Default,
    /// Long work that nobody waits for.
    Utility,
    /// Work that a user started and waits for.
    UserInitiated,
    /// The highest class.
    UserInteractive,
}

impl Qos {
    /// The class of a pool that was not given one.
    pub(crate) const PLATFORM_DEFAULT: Option<Qos> =
        if cfg!(target_vendor = "apple") { Some(Qos::UserInitiated) } else { None };

    #[cfg(target_vendor = "apple")]
    fn class(self) -> libc::qos_class_t {
        match self {
            Qos::Default => libc::qos_class_t::QOS_CLASS_DEFAULT,
            Qos::Utility => libc::qos_class_t::QOS_CLASS_UTILITY,
            Qos::UserInitiated => libc::qos_class_t::QOS_CLASS_USER_INITIATED,
            Qos::UserInteractive => libc::qos_class_t::QOS_CLASS_USER_INTERACTIVE,
        }
    }

    /// Gives the calling thread this class.
    pub(crate) fn apply(self) {
        #[cfg(target_vendor = "apple")]
        // SAFETY: the call changes the calling thread only and takes any class with relative priority 0.
        unsafe {
            libc::pthread_set_qos_class_self_np(self.class(), 0);
        }
    }
}

/// Raises the calling thread to at least `qos` and never lowers it; the leader of a team calls it once. Without effect
/// off Apple targets.
pub fn raise_current_thread_qos(qos: Qos) {
    #[cfg(target_vendor = "apple")]
    {
        let mut class = libc::qos_class_t::QOS_CLASS_UNSPECIFIED;
        let mut priority = 0;
        // SAFETY: reads the calling thread's own class into two values that live through the call.
        let read = unsafe { libc::pthread_get_qos_class_np(libc::pthread_self(), &mut class, &mut priority) };
        if read == 0 && (class as u32) < qos.class() as u32 {
            qos.apply();
        }
    }
    #[cfg(not(target_vendor = "apple"))]
    let _ = qos;
}
