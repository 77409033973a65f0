//! Members that a busy CPU keeps from running.
//!
//! A worker that shares its CPU with another process may be descheduled with a chunk in hand, and the leader has to wait
//! for a time slice, milliseconds, to get it back. The leader that slept at such a join asks the scheduler how long the
//! worker waited for a CPU meanwhile. If that was most of the time, it leaves the worker out of claimed sections for a
//! while, twice as long each time it happens again. So a neighbour costs one slice in many sections, not in each.

use crate::sync::{AtomicU64, Ordering};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

/// How long a member is left out at first: a few time slices.
const FIRST_NS: u64 = 5_000_000;
/// The longest that it is left out: what one lagging section in so much time costs is a few percent.
const MOST_NS: u64 = 80_000_000;
/// Sleeps of the leader below this say nothing: a wake takes tens of microseconds.
const LEAST_SLEEP_NS: u64 = 200_000;

/// A join that takes so many times the usual wait lags.
const LAGS_FROM: u32 = 4;
/// No join lags before this: a member that had to be woken, after a long gap from a deep sleep of its CPU, takes 50 to 100 us.
const LEAST_PATIENCE: Duration = Duration::from_micros(100);
/// The weight of one join among the recent ones: an eighth.
const JOINS_FADE: u64 = 8;

/// How long the leader usually waits for a member at joins. Written at joins that wait long enough to look at the clock;
/// shorter ones count as no wait, by the number of shares that the member has run meanwhile.
#[derive(Debug)]
pub(crate) struct Joins {
    /// Nanoseconds; `u64::MAX` before the first long join.
    usual: std::sync::atomic::AtomicU64,
    shares: std::sync::atomic::AtomicU64,
}

impl Joins {
    pub(crate) fn none() -> Self {
        Joins { usual: std::sync::atomic::AtomicU64::new(u64::MAX), shares: std::sync::atomic::AtomicU64::new(0) }
    }

    /// How long to stay awake at the join after the member's share number `shares`: a join that takes much longer than
    /// usual waits for a member without a CPU, to which the leader's is better left.
    pub(crate) fn patience(&self, shares: u64, longest: Duration) -> Duration {
        match self.usual_by(shares) {
            u64::MAX => longest,
            usual => (Duration::from_nanos(usual).saturating_mul(LAGS_FROM)).max(LEAST_PATIENCE).min(longest),
        }
    }

    /// Such a join took `waited` nanoseconds.
    pub(crate) fn note(&self, shares: u64, waited: u64) {
        let usual = match self.usual_by(shares) {
            u64::MAX => waited,
            usual => usual - usual / JOINS_FADE + waited / JOINS_FADE,
        };
        self.usual.store(usual, Ordering::Relaxed);
        self.shares.store(shares, Ordering::Relaxed);
    }

    fn usual_by(&self, shares: u64) -> u64 {
        let usual = self.usual.load(Ordering::Relaxed);
        if usual == u64::MAX {
            return usual;
        }
        // The joins since then were short: each takes an eighth off, so it halves about every five.
        let halvings = shares.saturating_sub(self.shares.load(Ordering::Relaxed)) / 5;
        usual.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

/// Whether a member is left out, and for how long. Written by the leader that has claimed the member.
#[derive(Debug)]
pub(crate) struct Lag {
    /// Nanoseconds since the pool was built; 0: not left out.
    until: AtomicU64,
    /// The last time it was left out, and when that ended.
    length: AtomicU64,
    ended: AtomicU64,
}

impl Lag {
    pub(crate) fn none() -> Self {
        Lag { until: AtomicU64::new(0), length: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// Whether the clock has to be asked: one load, nearly always of 0.
    pub(crate) fn is_set(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Whether the member is left out at `now`.
    pub(crate) fn is_left_out(&self, now: u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        if until != 0 && now >= until {
            self.until.store(0, Ordering::Relaxed);
        }
        now < until
    }

    /// The leader slept `slept` nanoseconds at a join, of which the member waited `delayed` for a CPU.
    pub(crate) fn note(&self, now: u64, slept: u64, delayed: u64) {
        if slept < LEAST_SLEEP_NS || delayed < slept / 2 {
            return;
        }
        let before = self.length.load(Ordering::Relaxed);
        let again = now.saturating_sub(self.ended.load(Ordering::Relaxed)) < 2 * before;
        let length = if again { (2 * before).min(MOST_NS) } else { FIRST_NS };
        self.length.store(length, Ordering::Relaxed);
        self.ended.store(now + length, Ordering::Relaxed);
        self.until.store(now + length, Ordering::Relaxed);
    }
}

/// The kernel's number of the calling thread, 0 where there is none.
pub(crate) fn thread_number() -> u64 {
    #[cfg(target_os = "linux")]
    // SAFETY: the call has no precondition and returns a positive number.
    return unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    #[cfg(not(target_os = "linux"))]
    0
}

/// Nanoseconds that a thread of this process was ready to run and had no CPU, as far as the system tells.
pub(crate) fn run_delay(thread: u64) -> Option<u64> {
    if thread == 0 || !cfg!(target_os = "linux") || cfg!(loom) {
        return None;
    }
    // On the stack throughout: a section allocates nothing, not even a late one.
    let mut path = [0; 64];
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/task/{thread}/schedstat").ok()?;
    let unused = rest.len();
    let path = std::str::from_utf8(&path[..path.len() - unused]).ok()?;
    let mut text = [0; 96];
    let count = File::open(path).ok()?.read(&mut text).ok()?;
    parse_run_delay(std::str::from_utf8(&text[..count]).ok()?)
}

/// The second of the three numbers in `schedstat`: run time, run delay, time slices.
fn parse_run_delay(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_waited_for_a_cpu_is_left_out_for_a_while() {
        let lag = Lag::none();
        lag.note(1_000, 3_000_000, 2_900_000);
        assert!(lag.is_set() && lag.is_left_out(2_000));
        assert!(!lag.is_left_out(1_000 + FIRST_NS) && !lag.is_set());
    }

    #[test]
    fn a_long_share_or_a_short_sleep_is_no_lag() {
        let lag = Lag::none();
        lag.note(1_000, 3_000_000, 100_000);
        lag.note(1_000, LEAST_SLEEP_NS - 1, LEAST_SLEEP_NS - 1);
        assert!(!lag.is_set());
    }

    #[test]
    fn it_is_left_out_longer_each_time_and_briefly_again_after_a_quiet_while() {
        let lag = Lag::none();
        let mut now = 0;
        let mut lengths = Vec::new();
        for _ in 0..6 {
            lag.note(now, 3_000_000, 3_000_000);
            let length = lag.length.load(Ordering::Relaxed);
            lengths.push(length);
            now += length + 1;
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 16].map(|times| times * FIRST_NS));
        lag.note(now + 3 * MOST_NS, 3_000_000, 3_000_000);
        assert_eq!(lag.length.load(Ordering::Relaxed), FIRST_NS);
    }

    #[test]
    fn a_join_lags_when_it_takes_much_longer_than_usual() {
        let (joins, longest) = (Joins::none(), Duration::from_micros(200));
        assert_eq!(joins.patience(1, longest), longest);
        joins.note(1, 30_000);
        assert_eq!(joins.patience(2, longest), Duration::from_micros(120));
        joins.note(2, 20_000_000);
        assert_eq!(joins.patience(3, longest), longest);
    }

    #[test]
    fn short_joins_make_a_leader_less_patient() {
        let (joins, longest) = (Joins::none(), Duration::from_micros(200));
        joins.note(1, 3_000_000);
        assert_eq!(joins.patience(1000, longest), LEAST_PATIENCE);
        assert_eq!(joins.patience(1000, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_run_delay_is_the_second_number() {
        assert_eq!(parse_run_delay("123 456 7\n"), Some(456));
        assert_eq!(parse_run_delay("123"), None);
        assert_eq!(run_delay(0), None);
        assert_eq!(run_delay(thread_number()).is_some(), std::path::Path::new("/proc/self/schedstat").exists());
    }
}
