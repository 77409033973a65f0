//! How idle members wait, and the scheduling class of workers.

use std::time::Duration;

/// How a pool's members wait when there is nothing to do.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use threadteam::{WaitOverride, WaitPolicy};
///
/// let policy = WaitPolicy::DEFAULT.with(WaitOverride::new().idle_spin(Duration::ZERO));
/// assert_eq!(policy.idle_spin(), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    idle_spin: Duration,
    idle_runs_rayon: bool,
}

impl WaitPolicy {
    /// Spin 200 us, then park. A wake costs 10 to 50 us, so a member spins a few wakes' worth before it gives its CPU back.
    pub const DEFAULT: WaitPolicy = WaitPolicy { idle_spin: Duration::from_micros(200), idle_runs_rayon: false };

    /// A policy of `idle_spin`; `idle_runs_rayon` is accepted for callers of the published crate and has no effect here,
    /// where no worker belongs to Rayon.
    pub const fn new(idle_spin: Duration, idle_runs_rayon: bool) -> Self {
        WaitPolicy { idle_spin, idle_runs_rayon }
    }

    /// How long an idle member spins before it parks.
    pub const fn idle_spin(&self) -> Duration {
        self.idle_spin
    }

    /// What [`new`](Self::new) was given.
    pub const fn idle_runs_rayon(&self) -> bool {
        self.idle_runs_rayon
    }

    /// This policy with the parts that `over` sets.
    pub fn with(self, over: WaitOverride) -> Self {
        WaitPolicy {
            idle_spin: over.idle_spin.unwrap_or(self.idle_spin),
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitOverride {
    idle_spin: Option<Duration>,
    idle_runs_rayon: Option<bool>,
}

impl WaitOverride {
    /// An override that changes nothing.
    pub const fn new() -> Self {
        WaitOverride { idle_spin: None, idle_runs_rayon: None }
    }

    /// Overrides how long an idle member spins.
    #[must_use]
    pub const fn idle_spin(mut self, spin: Duration) -> Self {
        self.idle_spin = Some(spin);
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
