//! What is measured: each case is a body, how many parts, the pause before a section, and the company it has.

use std::time::Duration;

/// What one part does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// Waits until every other part of the section has started.
    Rendezvous,
    /// Reads words that the leader wrote just before the section, as a closure made for it would.
    Environment,
    /// Works for so many ns.
    Work(f64),
}

/// Which figure is reported for a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Its time less the time of the largest share in a perfect split.
    Overhead,
    /// Its time.
    Total,
    /// No section: the CPU time that an open pool uses while its owner sleeps.
    IdleCpu,
}

/// Another process, all the while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    Nobody,
    /// It uses all of the last CPU.
    Hog,
    /// On each CPU one uses what it gets, in the class for batch work.
    Batch,
}

/// One scenario.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    pub about: &'static str,
    pub body: Body,
    pub metric: Metric,
    pub parts_per_thread: usize,
    /// The leader is busy for so long before each section; an idle pool is left alone so long before it is watched.
    pub gap: Duration,
    /// Participants for each thread of an ordinary case. The floor is never crowded.
    pub crowd: usize,
    /// What runs beside this process.
    pub neighbour: Neighbour,
    /// Whether leader and workers are pinned, one per CPU.
    pub pinned: bool,
    /// The ratios that mean something here.
    pub versus_floor: bool,
    pub versus_serial: bool,
    /// Whether batches of sections are timed too, and ratios formed of those: some counters advance in steps of 10 ns,
    /// too coarse for a ratio of single sections.
    pub batches: bool,
    /// The most sections and the most time per arm and round.
    pub sections: usize,
    pub time: Duration,
    /// The share of the rounds that this case runs.
    pub rounds: f64,
}

impl Case {
    /// A case on a quiet machine with nothing between sections.
    fn quiet(name: &'static str, about: &'static str, body: Body) -> Case {
        Case {
            name,
            about,
            body,
            metric: Metric::Overhead,
            parts_per_thread: 1,
            gap: Duration::ZERO,
            crowd: 1,
            neighbour: Neighbour::Nobody,
            pinned: true,
            versus_floor: true,
            versus_serial: false,
            batches: true,
            sections: 2000,
            time: Duration::from_millis(40),
            rounds: 1.0,
        }
    }

    fn gap(name: &'static str, about: &'static str, micros: u64, sections: usize) -> Case {
        Case {
            metric: Metric::Total,
            gap: Duration::from_micros(micros),
            versus_serial: true,
            batches: false,
            sections,
            time: Duration::from_secs(1),
            rounds: if micros < 1000 { 1.0 } else { 0.5 },
            ..Case::quiet(name, about, Body::Work(2000.0))
        }
    }

    /// Sections of so much work, of which callers that can say so know how long they take.
    fn size(name: &'static str, about: &'static str, serial_ns: f64, sections: usize) -> Case {
        Case {
            metric: Metric::Total,
            versus_floor: false,
            versus_serial: true,
            sections,
            time: Duration::from_millis(15),
            ..Case::quiet(name, about, Body::Work(serial_ns / 2.0))
        }
    }

    /// A case in which nothing is pinned, because the scheduler's choices are part of what is measured.
    fn disturbed(name: &'static str, about: &'static str, body: Body) -> Case {
        Case {
            metric: Metric::Total,
            pinned: false,
            versus_floor: false,
            versus_serial: true,
            batches: false,
            // Long enough for several of the scheduler's slices.
            sections: 100_000,
            time: Duration::from_millis(100),
            rounds: 0.5,
            ..Case::quiet(name, about, body)
        }
    }

    /// The number of rounds this case runs when `all` are asked for.
    pub fn rounds_of(&self, all: usize) -> usize {
        let rounds = ((all as f64 * self.rounds).ceil() as usize).max(1);
        if self.metric == Metric::IdleCpu {
            1
        } else {
            rounds
        }
    }
}

/// Every case, in the order in which they run.
pub fn all() -> Vec<Case> {
    let chunks = |case: Case| Case { parts_per_thread: 4, ..case };
    let hog = |case: Case| Case { neighbour: Neighbour::Hog, ..case };
    let batch = |case: Case| Case { neighbour: Neighbour::Batch, ..case };
    let crowd = |case: Case| Case { crowd: 2, ..case };
    let throng = |case: Case| Case { crowd: 4, ..case };
    vec![
        Case::quiet("empty", "one empty part per participant", Body::Empty),
        Case::quiet(
            "environment",
            "one part per participant that reads what the leader wrote just before",
            Body::Environment,
        ),
        Case::quiet("rendezvous", "each part waits until the others have started", Body::Rendezvous),
        Case::quiet("work-2us", "one 2 us part per participant: time over the ideal", Body::Work(2000.0)),
        chunks(Case::quiet(
            "chunks-250ns",
            "four 250 ns parts per participant: time over the ideal",
            Body::Work(250.0),
        )),
        chunks(Case::quiet("chunks-2us", "four 2 us parts per participant: time over the ideal", Body::Work(2000.0))),
        Case::size("size-200ns", "sections of 200 ns of work", 200.0, 2000),
        Case::size("size-1us", "sections of 1 us of work", 1000.0, 2000),
        Case::size("size-4us", "sections of 4 us of work", 4000.0, 1000),
        Case::size("size-20us", "sections of 20 us of work", 20_000.0, 400),
        Case { batches: false, ..Case::size("size-400us", "sections of 400 us of work", 400_000.0, 30) },
        Case::gap("gap-10us", "leader busy for 10 us, then one 2 us part per participant", 10, 1000),
        Case::gap("gap-100us", "leader busy for 100 us, then one 2 us part per participant", 100, 200),
        Case::gap("gap-1ms", "leader busy for 1 ms, then one 2 us part per participant", 1000, 40),
        Case::gap("gap-20ms", "leader busy for 20 ms, then one 2 us part per participant", 20_000, 6),
        hog(Case::disturbed("hog-2us", "one 2 us part per participant beside a CPU hog", Body::Work(2000.0))),
        hog(Case::disturbed("hog-10us", "one 10 us part per participant beside a CPU hog", Body::Work(10_000.0))),
        chunks(hog(Case::disturbed(
            "hog-chunks",
            "four 2.5 us parts per participant beside a CPU hog",
            Body::Work(2500.0),
        ))),
        crowd(Case {
            versus_floor: true,
            versus_serial: false,
            ..Case::disturbed("crowd-empty", "twice the participants, one empty part each", Body::Empty)
        }),
        batch(Case::disturbed(
            "batch-10us",
            "one 10 us part per participant beside a batch process on each CPU",
            Body::Work(10_000.0),
        )),
        chunks(batch(Case::disturbed(
            "batch-chunks",
            "four 2.5 us parts per participant beside a batch process on each CPU",
            Body::Work(2500.0),
        ))),
        crowd(Case::disturbed("crowd-2us", "twice the participants, one 2 us part each", Body::Work(2000.0))),
        crowd(Case::disturbed("crowd-10us", "twice the participants, one 10 us part each", Body::Work(10_000.0))),
        throng(Case::disturbed("throng-2us", "four times the participants, one 2 us part each", Body::Work(2000.0))),
        throng(Case::disturbed(
            "throng-10us",
            "four times the participants, one 10 us part each",
            Body::Work(10_000.0),
        )),
        Case {
            metric: Metric::IdleCpu,
            versus_serial: false,
            ..Case::disturbed("idle", "CPU time of an open pool while its owner sleeps for 1 s", Body::Empty)
        },
        Case {
            metric: Metric::IdleCpu,
            versus_serial: false,
            gap: Duration::from_millis(100),
            ..Case::disturbed("idle-later", "the same, but for the first 100 ms", Body::Empty)
        },
    ]
}
