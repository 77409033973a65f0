//! What many cache lines cost one participant: how far apart its stores to lines that another CPU reads take effect, and
//! its loads of lines that another CPU wrote.
//!
//! One line costs a transfer; further ones overlap as far as the CPU lets them. These gaps decide how many posts a
//! leader should make itself, and `benchmarks/scaling` takes them as parameters.

use crate::clock::{ticks, Clock};
use crate::probe;
use crate::stats;
use crate::system;
use serde::Serialize;
use std::io;
use std::sync::atomic::{fence, AtomicU64, Ordering};

#[repr(align(128))]
struct Line(AtomicU64);

/// How many lines are touched in one go.
const COUNTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

const TURNS: u64 = 400;

/// The round trip between the first two CPUs, in ns, and what lines cost there.
#[derive(Serialize)]
pub struct Lines {
    pub round_trip_ns: f64,
    /// What one more line costs.
    pub store_gap_ns: f64,
    pub load_gap_ns: f64,
    pub touched: Vec<Touched>,
}

/// The median time, in ns, that so many stores or loads take until all are done.
#[derive(Serialize)]
pub struct Touched {
    pub lines: usize,
    pub stores_ns: f64,
    pub loads_ns: f64,
}

/// Measures both between the first two CPUs.
pub fn measure(clock: &Clock, cpus: &[usize]) -> io::Result<Lines> {
    let round_trip_ns = probe::round_trip(clock, cpus)?;
    let touched: Vec<Touched> = COUNTS.iter().map(|&lines| touched(clock, cpus, lines)).collect::<io::Result<_>>()?;
    let store_gap_ns = gap(&touched, |row| row.stores_ns);
    let load_gap_ns = gap(&touched, |row| row.loads_ns);
    Ok(Lines { round_trip_ns, store_gap_ns, load_gap_ns, touched })
}

fn touched(clock: &Clock, cpus: &[usize], count: usize) -> io::Result<Touched> {
    let fresh = || (0..count).map(|_| Line(AtomicU64::new(0))).collect::<Vec<_>>();
    // The other CPU reads `posts`, as idle workers do, and writes `words`, as workers that leave.
    let (posts, words) = (fresh(), fresh());
    let (turn, ready) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let (mut stores, mut loads) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // On the wrong CPU the measurement would be slower, not wrong; the caller pins its own thread or fails.
            let _ = system::restrict(0, &cpus[1..2]);
            for number in 1..=TURNS {
                while turn.0.load(Ordering::Acquire) != number {
                    std::hint::spin_loop();
                }
                posts.iter().for_each(|line| while line.0.load(Ordering::Relaxed) + 1 != number {});
                words.iter().for_each(|line| line.0.store(number, Ordering::Relaxed));
                fence(Ordering::SeqCst);
                ready.0.store(number, Ordering::Release);
            }
        });
        let pinned = system::restrict(0, &cpus[..1]);
        for number in 1..=TURNS {
            turn.0.store(number, Ordering::Release);
            while ready.0.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
            let start = ticks();
            posts.iter().for_each(|line| line.0.store(number, Ordering::Relaxed));
            fence(Ordering::SeqCst);
            let stored = ticks();
            let sum: u64 = words.iter().map(|line| line.0.load(Ordering::Relaxed)).sum();
            std::hint::black_box(sum);
            let loaded = ticks();
            assert_eq!(sum, number * count as u64);
            stores.push(clock.elapsed_ns(start, stored));
            loads.push(clock.elapsed_ns(stored, loaded));
        }
        pinned.and(system::restrict(0, cpus))
    })?;
    Ok(Touched { lines: count, stores_ns: stats::median(&mut stores), loads_ns: stats::median(&mut loads) })
}

/// The cost of one more line: the slope between a few and the most.
fn gap(touched: &[Touched], time: impl Fn(&Touched) -> f64) -> f64 {
    let (few, most) = (&touched[2], &touched[touched.len() - 1]);
    (time(most) - time(few)) / (most.lines - few.lines) as f64
}

/// The table of `--lines`.
pub fn table(lines: &Lines) -> String {
    let mut text = format!(
        "round trip {:.0} ns\n  {:>5} {:>12} {:>12}\n",
        lines.round_trip_ns, "lines", "stores, ns", "loads, ns"
    );
    for row in &lines.touched {
        text += &format!("  {:>5} {:>12.0} {:>12.0}\n", row.lines, row.stores_ns, row.loads_ns);
    }
    text + &format!("one more line: a store {:.1} ns, a load {:.1} ns\n", lines.store_gap_ns, lines.load_gap_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_the_slope_between_four_lines_and_all() {
        let rows: Vec<Touched> = COUNTS
            .iter()
            .map(|&lines| Touched {
                lines,
                stores_ns: 100.0 + 20.0 * lines as f64,
                loads_ns: 90.0 + 5.0 * lines as f64,
            })
            .collect();
        assert_eq!((gap(&rows, |row| row.stores_ns), gap(&rows, |row| row.loads_ns)), (20.0, 5.0));
    }
}
