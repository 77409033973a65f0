//! The systems that are compared, one file each, behind one trait.

mod chili;
mod floor;
mod fork_union;
mod onetbb;
mod openmp;
mod ours;
mod rayon;
mod serial;
mod stage;
mod threadteam_013;
mod threadteam_030;
mod token;
mod word;

use std::ops::Range;
use std::time::Duration;

/// What a system promises about the parts of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All parts on the calling thread.
    Serial,
    /// One share on every participant, at the same time.
    Gang,
    /// Participants take parts; the caller may end up with all of them.
    Claimed,
}

impl Kind {
    pub fn label(self) -> &'static str {
        match self {
            Kind::Serial => "serial",
            Kind::Gang => "gang",
            Kind::Claimed => "claimed",
        }
    }
}

/// An open pool, ready to run sections one after another.
pub trait Section {
    /// Calls `body` once for every number below `parts` and returns when all calls have.
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync));

    /// Says how long each of the sections that follow takes on one thread, for systems that can use it.
    fn expect(&mut self, _serial: Duration) {}
}

/// What is done with an open pool.
pub type Visitor<'v> = &'v mut (dyn FnMut(&mut dyn Section) + Send);

/// One way to run parallel sections.
pub trait Arm: Sync {
    fn name(&self) -> &str;

    fn kind(&self) -> Kind;

    /// One line for the legend.
    fn about(&self) -> &str;

    /// Whether parts that wait for one another make progress, one part per participant.
    fn overlaps(&self) -> bool {
        self.kind() == Kind::Gang
    }

    /// Whether this arm is the reference, which is pinned in every scenario.
    fn is_floor(&self) -> bool {
        false
    }

    /// Makes a pool of `threads` participants, calls `visit` once on the thread that leads sections, and ends the
    /// pool, so that nothing of it disturbs the arm that is measured next.
    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String>;
}

/// The name of the reference arm.
pub const FLOOR: &str = "floor";
/// The name of the arm without a dispatch.
pub const SERIAL: &str = "serial";

/// The arms of this machine.
pub struct Arms {
    pub found: Vec<Box<dyn Arm>>,
    /// The names of those that cannot be loaded, with the reasons.
    pub missing: Vec<(String, String)>,
}

/// Every arm, in the order of the tables.
pub fn all(openmp_library: &str, onetbb_library: Option<&str>) -> Arms {
    let mut found: Vec<Box<dyn Arm>> = vec![Box::new(serial::Serial), Box::new(floor::Floor), Box::new(word::BareWord)];
    found.extend(ours::arms());
    found.push(Box::new(ours::Sized));
    found.extend(threadteam_013::arms());
    found.extend(threadteam_030::arms());
    found.extend(fork_union::arms());
    found.extend(rayon::arms());
    found.push(Box::new(chili::Join));
    let mut missing = Vec::new();
    match openmp::OpenMp::load(openmp_library) {
        Ok(arm) => found.push(Box::new(arm)),
        Err(reason) => missing.push(("openmp".to_string(), reason)),
    }
    match onetbb_library.map(onetbb::load) {
        Some(Ok(arms)) => found.extend(arms),
        Some(Err(reason)) => missing.push(("onetbb".to_string(), reason)),
        None => missing.push(("onetbb".to_string(), "no --onetbb was given".to_string())),
    }
    Arms { found, missing }
}

/// The parts that participant `index` of `of` runs when they are dealt out evenly beforehand.
#[inline]
fn share(index: usize, of: usize, parts: usize) -> Range<usize> {
    if parts == of {
        // Two divisions would cost as much as a tenth of an empty section.
        return index..index + 1;
    }
    index * parts / of..(index + 1) * parts / of
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_arm_runs_every_part_once() {
        for arm in all("libgomp.so.1", None).found {
            let visited = arm.with(2, &mut |section| {
                for parts in 0..12 {
                    let runs: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                    section.run(parts, &|part| {
                        runs[part].fetch_add(1, Ordering::Relaxed);
                    });
                    let counts: Vec<usize> = runs.into_iter().map(AtomicUsize::into_inner).collect();
                    assert_eq!(counts, vec![1; parts], "{} with {parts} parts", arm.name());
                }
            });
            assert_eq!(visited, Ok(()), "{}", arm.name());
        }
    }

    #[test]
    fn the_names_of_the_arms_differ() {
        let arms = all("libgomp.so.1", None).found;
        let mut names: Vec<&str> = arms.iter().map(|arm| arm.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), arms.len());
    }

    #[test]
    fn a_library_that_is_not_there_is_named_as_missing() {
        let missing = all("libnosuchopenmp.so.7", Some("libnosuchtbb.so.9")).missing;
        assert_eq!(missing.len(), 2);
        assert!(missing[0].1.contains("libnosuchopenmp.so.7"), "{}", missing[0].1);
        assert!(missing[1].1.contains("libnosuchtbb.so.9"), "{}", missing[1].1);
    }

    #[test]
    fn shares_cover_the_parts_once() {
        for of in 1..6 {
            for parts in 0..20 {
                let dealt: Vec<usize> = (0..of).flat_map(|index| share(index, of, parts)).collect();
                assert_eq!(dealt, (0..parts).collect::<Vec<_>>());
            }
        }
    }
}
