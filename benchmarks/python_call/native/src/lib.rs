//! The sections of the benchmark `python_call`, led from Rust with the same native body on the same runtime: the twin of
//! each Python call, loaded through `ctypes`.
//!
//! A section is timed here exactly as the Python side times its own: one by one, after the caller was busy for the gap,
//! with a warm-up before the first that counts.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};
use threadteam::{Exec, Pool, Team};

/// A body for ranges, as `threadteam.h` declares it.
type RangeBody = unsafe extern "C" fn(i64, i64, *mut c_void);
/// A body for indices.
type IndexBody = unsafe extern "C" fn(i64, *mut c_void);

/// The kinds of tokens, as the Python side numbers them.
const SERIAL: u32 = 0;
const PLAIN: u32 = 1;
const TEAM: u32 = 2;
const RUN: u32 = 3;

/// What one kind of section runs on.
enum Place {
    /// `Exec::for_ranges` on the calling thread alone.
    Serial,
    /// `Exec::for_ranges` on a plain token.
    Plain(Pool),
    /// `Exec::for_ranges` on a token of a team.
    Team(Team),
    /// `TeamExec::run` inside a reservation.
    Run(Pool),
}

/// An open place, of one width.
pub struct System {
    place: Place,
    threads: usize,
}

/// What to run and for how long.
#[repr(C)]
pub struct Request {
    /// A `RangeBody`, or an `IndexBody` for `RUN`.
    body: *const c_void,
    /// Its last argument.
    data: *mut c_void,
    /// Items of a range section.
    parts: usize,
    warm_up_ns: u64,
    gap_ns: u64,
    /// At most so many sections, for at most so long.
    sections: usize,
    limit_ns: u64,
    /// Sections between two time stamps.
    batch: usize,
}

/// Opens a place; null when the kind is unknown or the threads cannot be had.
#[no_mangle]
pub extern "C" fn system_open(kind: u32, threads: usize) -> *mut System {
    let pool = || Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(10)).build().ok();
    let place = match kind {
        SERIAL => Some(Place::Serial),
        PLAIN => pool().map(Place::Plain),
        TEAM => pool().and_then(|pool| pool.into_team(threads).ok()).map(Place::Team),
        RUN => pool().map(Place::Run),
        _ => None,
    };
    place.map_or(std::ptr::null_mut(), |place| Box::into_raw(Box::new(System { place, threads })))
}

/// Closes a place.
///
/// # Safety
///
/// `system` came from [`system_open`] and is not used again.
#[no_mangle]
pub unsafe extern "C" fn system_close(system: *mut System) {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(system) });
}

/// Times sections as `request` says; stores the nanoseconds of each to `times`, which has room for all of them, and returns
/// how many there were. What timing nothing gives is taken off.
///
/// # Safety
///
/// `system` is open, `request` and `times` are valid, and the body may run on several threads at once.
#[no_mangle]
pub unsafe extern "C" fn system_sample(system: *const System, request: *const Request, times: *mut f64) -> usize {
    // SAFETY: the caller's contract.
    let (system, request) = unsafe { (&*system, &*request) };
    // SAFETY: `times` has room for `sections` numbers.
    let times = unsafe { std::slice::from_raw_parts_mut(times, request.sections) };
    let (body, data) = (request.body, Shared(request.data));
    let ranges = move |range: std::ops::Range<usize>| {
        let data = data;
        // SAFETY: for every kind but `RUN` the body is a `RangeBody`.
        let function = unsafe { std::mem::transmute::<*const c_void, RangeBody>(body) };
        // SAFETY: the caller vouches for the body.
        unsafe { function(range.start as i64, range.end as i64, data.0) }
    };
    let ranges = Shareable(ranges);
    let index = Shareable(move |index: usize| {
        let data = data;
        // SAFETY: for `RUN` the body is an `IndexBody`.
        let function = unsafe { std::mem::transmute::<*const c_void, IndexBody>(body) };
        // SAFETY: as above.
        unsafe { function(index as i64, data.0) }
    });
    let one = NonZeroUsize::MIN;
    match &system.place {
        Place::Serial => sample(request, times, || Exec::serial().for_ranges(request.parts, one, |r| ranges.call(r))),
        Place::Plain(pool) => {
            let Ok(mut exec) = Exec::new(pool, system.threads) else { return 0 };
            sample(request, times, || exec.reborrow().for_ranges(request.parts, one, |r| ranges.call(r)))
        }
        Place::Team(team) => {
            let mut exec = team.exec(system.threads);
            sample(request, times, || exec.reborrow().for_ranges(request.parts, one, |r| ranges.call(r)))
        }
        Place::Run(pool) => {
            let Ok(mut exec) = Exec::new(pool, system.threads) else { return 0 };
            let sampled =
                exec.team(|mut team| sample(request, times, || team.reborrow().run(|i, _size| index.call(i))));
            sampled.unwrap_or(0)
        }
    }
}

/// The address that the body is given.
#[derive(Clone, Copy)]
struct Shared(*mut c_void);

/// A closure around the body.
struct Shareable<F>(F);

// SAFETY: the caller of `system_sample` vouches that the body may run on several threads at once with this address.
unsafe impl<F> Sync for Shareable<F> {}

impl<F> Shareable<F> {
    fn call<A>(&self, argument: A)
    where
        F: Fn(A),
    {
        (self.0)(argument);
    }
}

fn sample(request: &Request, times: &mut [f64], mut section: impl FnMut()) -> usize {
    let gap = Duration::from_nanos(request.gap_ns);
    let warm = Instant::now();
    while warm.elapsed().as_nanos() < u128::from(request.warm_up_ns) {
        busy(gap);
        section();
    }
    let stamp = stamp_ns();
    let begun = Instant::now();
    let mut count = 0;
    while count < times.len() && begun.elapsed().as_nanos() < u128::from(request.limit_ns) {
        busy(gap);
        let start = Instant::now();
        for _ in 0..request.batch {
            section();
        }
        times[count] = start.elapsed().as_nanos() as f64 - stamp;
        count += 1;
    }
    count
}

/// What timing nothing gives: the median.
fn stamp_ns() -> f64 {
    let mut times: Vec<u128> = (0..2001)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[1000] as f64
}

fn busy(gap: Duration) {
    if gap > Duration::ZERO {
        let start = Instant::now();
        while start.elapsed() < gap {}
    }
}
