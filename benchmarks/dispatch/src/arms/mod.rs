//! The systems that are compared, one file each, behind one trait.

mod chili;
mod floor;
mod fork_union;
mod openmp;
mod rayon;
mod serial;
mod threadteam_013;
mod threadteam_030;
mod token;

use std::ops::Range;

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
pub fn all(openmp_library: &str) -> Arms {
    let mut found: Vec<Box<dyn Arm>> = vec![Box::new(serial::Serial), Box::new(floor::Floor)];
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
    Arms { found, missing }
}

/// The parts that participant `index` of `of` runs when they are dealt out evenly beforehand.
#[inline]
fn share(index: usize, of: usize, parts: usize) -> Range<usize> {
    index * parts / of..(index + 1) * parts / of
}

#[cfg(test)]
mod tests {
    use super::*;

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
