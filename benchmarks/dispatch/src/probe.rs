//! The cost of a cache-line round trip between two CPUs, the unit in which every dispatch is paid, and of a wake.
//!
//! A virtual machine's CPUs move on their host, and the round trip moves with them by a factor of up to seven. So it is
//! probed in each round, and ratios are formed inside a round.

use crate::clock::{ticks, Clock};
use crate::stats;
use crate::system;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[repr(align(128))]
struct Line(AtomicU64);

const BATCHES: usize = 15;
const TRIPS: u64 = 200;

/// The median time of a round trip between the first two CPUs, in ns: each side stores to a line of its own and polls
/// the other's.
pub fn round_trip(clock: &Clock, cpus: &[usize]) -> io::Result<f64> {
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let wait_for = |line: &Line, value| {
        while line.0.load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    };
    let mut times = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A probe on the wrong CPU would still end, only slower; nothing is lost by carrying on.
            let _ = system::restrict(0, &cpus[1..2]);
            for value in 1..=TRIPS * BATCHES as u64 {
                wait_for(&there, value);
                back.0.store(value, Ordering::Release);
            }
        });
        let pinned = system::restrict(0, &cpus[..1]);
        let mut value = 0;
        let times: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let start = ticks();
                for _ in 0..TRIPS {
                    value += 1;
                    there.0.store(value, Ordering::Release);
                    wait_for(&back, value);
                }
                clock.elapsed_ns(start, ticks()) / TRIPS as f64
            })
            .collect();
        pinned.and(system::restrict(0, cpus)).map(|()| times)
    })?;
    Ok(stats::median(&mut times))
}

const WAKES: usize = 25;

/// The pause of the case that is judged by it: after 2 ms a wake takes half as long as after 20 ms, because the CPU sleeps
/// less deeply.
const SLEEP: Duration = Duration::from_millis(20);

/// The median time, in ns, from unparking a thread that has slept for 20 ms on the second CPU until it shows itself.
pub fn wake(clock: &Clock, cpus: &[usize]) -> io::Result<f64> {
    let (asked, shown) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let mut times = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            // As above: on the wrong CPU the probe would be slower, not wrong.
            let _ = system::restrict(0, &cpus[1..2]);
            for number in 1..=WAKES as u64 {
                while asked.0.load(Ordering::Acquire) != number {
                    std::thread::park();
                }
                shown.0.store(number, Ordering::Release);
            }
        });
        let pinned = system::restrict(0, &cpus[..1]);
        let times: Vec<f64> = (1..=WAKES as u64)
            .map(|number| {
                let end = clock.after(ticks(), SLEEP);
                while ticks() < end {
                    std::hint::spin_loop();
                }
                let start = ticks();
                asked.0.store(number, Ordering::Release);
                sleeper.thread().unpark();
                while shown.0.load(Ordering::Acquire) != number {
                    std::hint::spin_loop();
                }
                clock.elapsed_ns(start, ticks())
            })
            .collect();
        pinned.and(system::restrict(0, cpus)).map(|()| times)
    })?;
    Ok(stats::median(&mut times))
}
