//! What a section costs on this machine, and what pays on it.
//!
//! `cargo run --release -p threadteam-team --example measure`

use std::num::NonZeroUsize;
use std::time::Duration;
use threadteam::{DispatchCosts, DispatchKind, Error, Exec, Pool, Sample, WidthCosts};

/// Of each width; odd, so that one of them is the median.
const SAMPLES: usize = 101;
const SECTIONS: u32 = 50;

/// Median costs at the widths of a pool; `None` when its members were kept busy by other programs.
fn measure(pool: &Pool, kind: DispatchKind) -> Result<Option<WidthCosts>, Error> {
    let mut anchors = Vec::new();
    for width in (2..=pool.width().get()).take(WidthCosts::MAX_ANCHORS).filter_map(NonZeroUsize::new) {
        let samples =
            (0..SAMPLES).map(|_| Sample::take(pool, kind, width, SECTIONS)).collect::<Result<Vec<Sample>, Error>>()?;
        // A sample whose members did not come says what the caller's own work takes.
        let mut costs: Vec<Duration> =
            samples.iter().filter(|sample| sample.members > 0.9 * (width.get() - 1) as f64).map(Sample::cost).collect();
        if costs.len() < SAMPLES / 2 {
            return Ok(None);
        }
        costs.sort_unstable();
        anchors.push((width.get(), costs[costs.len() / 2]));
    }
    Ok(WidthCosts::from_anchors(&anchors))
}

pub(crate) fn main() -> Result<(), Error> {
    let pool = Pool::builder().acquire_timeout(Duration::from_secs(10)).build()?;
    let mut costs = DispatchCosts::host_default();
    for kind in [DispatchKind::Team, DispatchKind::Outside] {
        match measure(&pool, kind)? {
            Some(row) => costs = costs.with(kind, row),
            None => {
                println!("{kind:?}: other programs are in the way, or there is one CPU only; the class's row stays")
            }
        }
        for (width, cost) in costs.row(kind).anchors() {
            println!("{kind:?} of {width}: {cost:?} a section");
        }
    }
    // A pool is given what was measured; kernels ask their token.
    let pool = Pool::builder().threads(pool.width().get()).dispatch_costs(costs).build()?;
    let exec = Exec::new(&pool, pool.width().get())?;
    for micros in [1, 2, 5, 20, 100] {
        let width = exec.width_for(Duration::from_micros(micros), 1);
        println!("a loop of {micros} us is fastest on {width} of {}", pool.width());
    }
    Ok(())
}
