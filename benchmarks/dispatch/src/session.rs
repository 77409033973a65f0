//! One arm in one round of one case: open the pool, find and pin its threads, take the samples, close the pool.

use crate::arms::{Arm, Section};
use crate::clock::{ticks, Clock};
use crate::scenarios::{Body, Case, Metric};
use crate::stats::median;
use crate::system::{self, Tid};
use crate::work::{chain, Work};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long an idle pool is watched.
pub const IDLE: Duration = Duration::from_secs(1);

/// Sections in a batch.
const BATCH: usize = 20;

/// What every session needs to know.
#[derive(Clone, Debug)]
pub struct Bench {
    pub clock: Clock,
    pub work: Work,
    pub cpus: Vec<usize>,
    pub threads: usize,
    /// Whether arms other than the floor are pinned in the cases that pin.
    pub pin_all: bool,
}

/// The samples of one session.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case's metric for each section, in ns.
    pub samples: Vec<f64>,
    /// The same, averaged over batches of sections that follow one another without a stamp between them.
    pub batches: Vec<f64>,
    /// The measured time of one body, in ns. Zero without work.
    pub body_ns: f64,
    /// How many threads were seen running parts.
    pub participants: usize,
    pub pinned: bool,
    /// Whether every thread of the pool had stopped spinning within half a second of its end.
    pub quiet_after: bool,
    /// The floor's figure right before, where ratios to it mean something.
    pub floor_ns: Option<f64>,
}

impl Outcome {
    /// What ratios are formed of: the median batch if there are any, else the median section.
    pub fn figure(&self) -> f64 {
        match self.batches.is_empty() {
            true => median(&mut self.samples.clone()),
            false => median(&mut self.batches.clone()),
        }
    }
}

/// Runs a session of `arm`, and one of the `floor` right before it where the case compares the two: a virtual machine's CPUs move on
/// their host, and every cost with them, so what is divided by each other is measured next to each other.
pub fn measure_beside(bench: &Bench, floor: Option<&dyn Arm>, arm: &dyn Arm, case: &Case) -> Result<Outcome, String> {
    let floor = floor.filter(|_| case.versus_floor && !arm.is_floor());
    let floor_ns = floor.map(|floor| Ok::<_, String>(measure(bench, floor, case)?.figure())).transpose()?;
    Ok(Outcome { floor_ns, ..measure(bench, arm, case)? })
}

/// Runs one session.
fn measure(bench: &Bench, arm: &dyn Arm, case: &Case) -> Result<Outcome, String> {
    let threads = bench.threads * if arm.is_floor() { 1 } else { case.crowd };
    let mut outcome = Err("its pool never called back".to_string());
    let opened = arm.with(threads, &mut |section| outcome = visit(bench, arm, case, threads, section));
    let quiet_after = system::wait_until_quiet(Duration::from_millis(500));
    opened?;
    outcome.map(|outcome| Outcome { quiet_after, ..outcome })
}

fn visit(
    bench: &Bench,
    arm: &dyn Arm,
    case: &Case,
    threads: usize,
    section: &mut dyn Section,
) -> Result<Outcome, String> {
    let crew = muster(bench, threads, section)?;
    let pinned = arm.is_floor() || (case.pinned && bench.pin_all);
    if pinned {
        pin(bench, &crew)?;
    }
    let parts = threads * case.parts_per_thread;
    let mut body_ns = 0.0;
    let (mut samples, mut batches) = match case.body {
        _ if case.metric == Metric::IdleCpu => (idle(bench, case, section, parts), Vec::new()),
        Body::Empty => sample(bench, case, section, parts, &|_| {}),
        Body::Environment => {
            let words = Environment::default();
            sample(bench, case, &mut Fresh { section, words: &words }, parts, &|_| words.read())
        }
        Body::Rendezvous => {
            let meeting = Meeting::new(parts);
            let times = sample(bench, case, section, parts, &|part| meeting.join(part));
            if meeting.missed.load(Ordering::Relaxed) {
                return Err("parts ran one after another".into());
            }
            times
        }
        Body::Work(ns) => {
            let steps = bench.work.steps(ns);
            body_ns = Work::measure(&bench.clock, steps);
            section.expect(Duration::from_nanos((ns * parts as f64) as u64));
            sample(bench, case, section, parts, &|_| chain(steps))
        }
    };
    if pinned {
        unpin(bench, &crew);
    }
    if case.metric == Metric::Overhead {
        let ideal = case.parts_per_thread as f64 * body_ns;
        samples.iter_mut().chain(&mut batches).for_each(|time| *time -= ideal);
    }
    Ok(Outcome { samples, batches, body_ns, participants: crew.len(), pinned, quiet_after: true, floor_ns: None })
}

/// Runs sections whose parts dwell, ever longer, until every participant has shown up or is known not to.
///
/// Also checks that each part runs exactly once. The leader comes first in the list, if it takes part.
fn muster(bench: &Bench, threads: usize, section: &mut dyn Section) -> Result<Vec<Tid>, String> {
    let seen = Mutex::new(Vec::new());
    let mut dwell = 20_000.0;
    while dwell < 2e7 {
        let runs: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
        let steps = bench.work.steps(dwell);
        section.run(threads, &|part| {
            runs[part].fetch_add(1, Ordering::Relaxed);
            let tid = system::tid();
            let mut seen = seen.lock().expect("no part panics while it holds the lock");
            if !seen.contains(&tid) {
                seen.push(tid);
            }
            drop(seen);
            chain(steps);
        });
        if let Some(part) = runs.iter().position(|count| count.load(Ordering::Relaxed) != 1) {
            return Err(format!("part {part} ran {} times", runs[part].load(Ordering::Relaxed)));
        }
        if seen.lock().expect("as above").len() == threads {
            break;
        }
        dwell *= 2.0;
    }
    let mut crew = seen.into_inner().expect("as above");
    let leader = system::tid();
    crew.sort_by_key(|&tid| (tid != leader, tid));
    Ok(crew)
}

fn pin(bench: &Bench, crew: &[Tid]) -> Result<(), String> {
    for (index, &tid) in crew.iter().enumerate() {
        let cpu = bench.cpus[index % bench.cpus.len()];
        system::restrict(tid, &[cpu]).map_err(|error| format!("thread {tid} cannot be pinned: {error}"))?;
    }
    Ok(())
}

fn unpin(bench: &Bench, crew: &[Tid]) {
    for &tid in crew {
        // A participant may have ended meanwhile; then there is nothing to restore.
        let _ = system::restrict(tid, &bench.cpus);
    }
}

/// Times sections one by one, and batches of them where the case asks for it, after a millisecond of warm-up.
fn sample(
    bench: &Bench,
    case: &Case,
    section: &mut dyn Section,
    parts: usize,
    body: &(dyn Fn(usize) + Sync),
) -> (Vec<f64>, Vec<f64>) {
    let clock = &bench.clock;
    let mut samples = Vec::with_capacity(case.sections);
    let mut batches = Vec::with_capacity(case.sections / BATCH);
    let warm = clock.after(ticks(), Duration::from_millis(1));
    while ticks() < warm {
        busy(clock, case.gap);
        section.run(parts, body);
    }
    // One stall of a busy machine may eat all the time: a few batches are taken all the same.
    let start = ticks();
    let (end, last) = (clock.after(start, case.time), clock.after(start, 10 * case.time));
    let enough = if case.batches { 10 * BATCH } else { 1 };
    while samples.len() < case.sections && ticks() < if samples.len() < enough { last } else { end } {
        busy(clock, case.gap);
        let start = ticks();
        section.run(parts, body);
        samples.push(clock.elapsed_ns(start, ticks()));
        if case.batches && samples.len().is_multiple_of(BATCH) {
            let start = ticks();
            for _ in 0..BATCH {
                section.run(parts, body);
            }
            batches.push(clock.elapsed_ns(start, ticks()) / BATCH as f64);
        }
    }
    (samples, batches)
}

/// Keeps the calling CPU busy with work, not with PAUSE: a leader between two sections computes.
fn busy(clock: &Clock, gap: Duration) {
    if gap.is_zero() {
        return;
    }
    let end = clock.after(ticks(), gap);
    while ticks() < end {
        chain(50);
    }
}

/// The CPU time this process uses while the leader sleeps after some sections.
fn idle(bench: &Bench, case: &Case, section: &mut dyn Section, parts: usize) -> Vec<f64> {
    let warm = Case { sections: 200, gap: Duration::ZERO, ..case.clone() };
    // Their times are of no interest.
    let _ = sample(bench, &warm, section, parts, &|_| {});
    std::thread::sleep(case.gap);
    let before = system::cpu_time();
    std::thread::sleep(IDLE);
    vec![(system::cpu_time() - before).as_nanos() as f64]
}

/// Three words, as many as a slice and a number need, on a line of their own.
#[derive(Default)]
#[repr(align(128))]
struct Environment([AtomicU64; 3]);

impl Environment {
    fn read(&self) {
        black_box(self.0.iter().map(|word| word.load(Ordering::Relaxed)).sum::<u64>());
    }
}

/// Writes the environment anew before each section.
struct Fresh<'a> {
    section: &'a mut dyn Section,
    words: &'a Environment,
}

impl Section for Fresh<'_> {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        for word in &self.words.0 {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.section.run(parts, body);
    }
}

/// A meeting of all parts of a section.
struct Meeting {
    arrived: Vec<Arrival>,
    missed: AtomicBool,
}

/// How often a part has arrived; on a line of its own.
#[repr(align(128))]
struct Arrival(AtomicU64);

impl Meeting {
    /// After so long a part stops waiting: its system runs parts one after another.
    const PATIENCE: Duration = Duration::from_millis(200);

    fn new(parts: usize) -> Meeting {
        let arrived = (0..parts).map(|_| Arrival(AtomicU64::new(0))).collect();
        Meeting { arrived, missed: AtomicBool::new(false) }
    }

    fn join(&self, part: usize) {
        let own = &self.arrived[part].0;
        let turn = own.load(Ordering::Relaxed) + 1;
        own.store(turn, Ordering::Release);
        for other in &self.arrived {
            let mut polls = 0_u32;
            let mut since = None;
            while other.0.load(Ordering::Acquire) < turn && !self.missed.load(Ordering::Relaxed) {
                spin_loop();
                polls += 1;
                if polls.is_multiple_of(1024) && since.get_or_insert_with(Instant::now).elapsed() > Meeting::PATIENCE {
                    self.missed.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}
