//! A rod of metal cools: an engine owns a team for good, and its kernel uses barriers.
//!
//! Each participant keeps a part of the rod and shows the temperatures at its ends to its neighbours. The barrier says
//! when they may be read; in a `for_ranges` or a `fork` a body must not wait for another.
//!
//! `cargo run --release -p threadteam-team --example barriers`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Duration;
use threadteam::{Cancelled, Participant, Pool, Team};

const CELLS: usize = 12_000;
const STEPS: usize = 500;

/// Temperatures at both ends of each part, of the steps that are even and of those that are odd: nobody writes what a
/// neighbour that is a step behind still reads.
struct Ends(Vec<[[AtomicU64; 2]; 2]>);

impl Ends {
    fn show(&self, part: usize, step: usize, cells: &[f64]) {
        let ends = [cells[0], cells[cells.len() - 1]];
        for (shown, end) in self.0[part][step % 2].iter().zip(ends) {
            shown.store(end.to_bits(), Ordering::Relaxed);
        }
    }

    /// The temperature beyond an end; the rod's own ends lose nothing.
    fn beyond(&self, part: usize, step: usize, cells: &[f64], right: bool) -> f64 {
        let neighbour = if right { part.checked_add(1) } else { part.checked_sub(1) };
        match neighbour.and_then(|neighbour| self.0.get(neighbour)) {
            // The barrier orders this after the neighbour's store.
            Some(ends) => f64::from_bits(ends[step % 2][usize::from(!right)].load(Ordering::Relaxed)),
            None if right => cells[cells.len() - 1],
            None => cells[0],
        }
    }
}

fn part_of(index: usize, size: usize) -> std::ops::Range<usize> {
    index * CELLS / size..(index + 1) * CELLS / size
}

fn cool(participant: &Participant<'_>, ends: &Ends) -> Result<Vec<f64>, Cancelled> {
    let part = participant.index();
    let hot = |cell: usize| if cell < CELLS / 10 { 100.0 } else { 20.0 };
    let mut cells: Vec<f64> = part_of(part, participant.size()).map(hot).collect();
    for step in 0..STEPS {
        ends.show(part, step, &cells);
        participant.barrier()?;
        let (mut left, beyond) = (ends.beyond(part, step, &cells, false), ends.beyond(part, step, &cells, true));
        for at in 0..cells.len() {
            let right = cells.get(at + 1).copied().unwrap_or(beyond);
            let here = cells[at];
            cells[at] += 0.25 * (left - 2.0 * here + right);
            left = here;
        }
    }
    Ok(cells)
}

/// The rod after the last step.
fn rod(team: &Team) -> Vec<f64> {
    let size = team.size().get();
    let ends = Ends((0..size).map(|_| Default::default()).collect());
    let parts = Mutex::new(vec![Vec::new(); size]);
    team.exec(size)
        .team(|team| {
            team.run_with(|participant| {
                // A barrier is refused when another participant panicked: its panic reaches the caller of `run_with`.
                if let Ok(cells) = cool(participant, &ends) {
                    parts.lock().expect("nobody panics here")[participant.index()] = cells;
                }
            });
        })
        .expect("a persistent team has its members");
    parts.into_inner().expect("nobody panicked").concat()
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rods: Vec<Vec<f64>> = [1, 2, 3]
        .into_iter()
        .map(|width| {
            let pool = Pool::builder().threads(width).acquire_timeout(Duration::from_secs(10)).build()?;
            // An engine keeps the team, or the pool when the members cannot be had.
            Ok(rod(&pool.into_team(width)?))
        })
        .collect::<Result<_, Box<dyn std::error::Error>>>()?;
    assert!(rods.iter().all(|rod| rod == &rods[0]), "the width changes nothing but the time");
    let lukewarm = rods[0].iter().filter(|&&degrees| (21.0..99.0).contains(&degrees)).count();
    println!("after {STEPS} steps heat has crossed {lukewarm} cells; 1, 2 and 3 threads give the same bits");
    Ok(())
}
