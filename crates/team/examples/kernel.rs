//! A kernel takes a token by value, and knows itself how wide its work is worth.
//!
//! `cargo run --release -p threadteam-team --example kernel`

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;
use threadteam::{Error, Exec, Pool};

/// Divides every row by its length, on as many CPUs as the caller grants and the work deserves.
fn normalise(exec: Exec<'_>, values: &mut [f32], columns: usize) {
    // About a nanosecond an element on one thread. Less than three times a section's cost stays on this one.
    let exec = exec.sized_for(Duration::from_nanos(values.len() as u64));
    // Whoever takes a row owns it: a lock that nobody else wants costs less than any row.
    let rows: Vec<_> = values.chunks_mut(columns).map(Mutex::new).collect();
    let grain = NonZeroUsize::new(4096 / columns).unwrap_or(NonZeroUsize::MIN);
    exec.for_ranges(rows.len(), grain, |range| {
        for row in &rows[range] {
            let mut row = row.lock().expect("no body panics while it holds a row");
            let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            row.iter_mut().for_each(|x| *x /= length);
        }
    });
}

pub(crate) fn main() -> Result<(), Error> {
    let pool = Pool::builder().threads(4).build()?;
    let mut token = Exec::new(&pool, 4)?;
    for (rows, columns) in [(2, 16), (512, 1024)] {
        let values: Vec<f32> = (0..rows * columns).map(|i| (i % 101) as f32 + 1.0).collect();
        let (mut serial, mut parallel) = (values.clone(), values);
        normalise(Exec::serial(), &mut serial, columns);
        // The token is lent, not given: the next iteration has it again.
        normalise(token.reborrow(), &mut parallel, columns);
        assert_eq!(serial, parallel);
        println!("{rows} x {columns}: the same bits on one thread and on the pool");
    }
    println!("sections that reached the pool: {}", pool.stats().sections);
    Ok(())
}
