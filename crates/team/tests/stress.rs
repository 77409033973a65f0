//! Random sections of every kind from several callers on one pool: every index exactly once.
//!
//! With the feature `test-hooks` every thread is also delayed at random at every step of the protocol.
//!
//! About five seconds by default. `THREADTEAM_STRESS_SECTIONS=10000000` runs that many sections instead, and
//! `THREADTEAM_STRESS_SEED` repeats a run (its choices; the interleaving is the machine's).

use std::num::NonZeroUsize;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use threadteam::{Exec, Pool, Refused, Team, TeamExec, WaitOverride};

/// A stall of this long is a hang: the longest pause of a healthy run is a few scheduler time slices.
const STALL: Duration = Duration::from_secs(120);

/// The widest of most pools.
const WIDEST: u64 = 8;

/// The widest of some: their sections are relayed through captains.
const RELAYED: u64 = 40;

/// Indices that one section can have.
const LONGEST: u64 = 300;

/// SplitMix64: small, seedable, good enough to choose with.
#[derive(Clone, Copy)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn between(&mut self, low: u64, high: u64) -> usize {
        (low + self.below(high - low + 1)) as usize
    }
}

/// Aborts the process when `progress` stands still: a hang must not be killed as a mere timeout.
struct Watchdog {
    progress: AtomicU64,
    done: AtomicBool,
}

impl Watchdog {
    fn watch(&self, seed: u64) {
        let mut last = (0, Instant::now());
        while !self.done.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(200));
            let now = self.progress.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > STALL {
                eprintln!("stress: no progress for {STALL:?} after {now} calls with seed {seed}");
                std::process::abort();
            }
        }
    }
}

/// Ends the watchdog when dropped, also by a failing check.
struct Ended<'a>(&'a Watchdog, &'a std::thread::Thread);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// One caller's counters: how often each index ran.
struct Seen(Vec<AtomicU32>);

impl Seen {
    fn new() -> Self {
        Seen((0..LONGEST * 4).map(|_| AtomicU32::new(0)).collect())
    }

    fn hit(&self, index: usize) {
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Indices `0..length` ran once each and no other ran.
    fn check(&self, length: usize, what: &str) {
        for (index, count) in self.0.iter().enumerate() {
            let count = count.swap(0, Ordering::Relaxed);
            assert_eq!(count, u32::from(index < length), "{what}: index {index} of {length}");
        }
    }
}

/// Sometimes spins, yields or sleeps, as `choice` says.
fn delay(choice: u64) {
    let mut random = Random(choice);
    match random.below(4096) {
        0 => std::thread::sleep(Duration::from_micros(50)),
        1..=16 => std::thread::yield_now(),
        17..=256 => (0..random.below(400)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

/// Every thread is delayed at random where the protocol has a step.
#[cfg(feature = "test-hooks")]
fn delay_at_every_point(seed: u64) {
    let steps = AtomicU64::new(seed);
    threadteam::test_hooks::set_hook(Some(std::sync::Arc::new(move |_point| {
        delay(steps.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    })));
}

fn nz(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

/// One call on a token of `budget` slots, checked.
fn call(exec: &mut Exec<'_>, random: &mut Random, seen: &Seen) {
    let salt = random.next();
    let length = random.below(LONGEST + 1) as usize;
    let grain = nz(random.between(1, 1 + random.0 % 40));
    match random.below(16) {
        0..=6 => {
            exec.reborrow().for_ranges(length, grain, |range| {
                delay(salt ^ range.start as u64);
                range.for_each(|index| seen.hit(index));
            });
            seen.check(length, "for_ranges");
        }
        7..=8 => {
            let jobs = random.between(0, 20);
            exec.reborrow().fork(jobs, |job, _child| {
                delay(salt ^ job as u64);
                seen.hit(job);
            });
            seen.check(jobs, "fork");
        }
        9 => {
            let (jobs, inner) = (random.between(1, 6), random.between(0, 40));
            exec.reborrow().fork(jobs, |job, mut child| {
                child.reborrow().for_ranges(inner, nz(1), |range| {
                    delay(salt ^ range.start as u64);
                    range.for_each(|index| seen.hit(job * inner + index));
                });
                let _ = child.reborrow().broadcast(|_| delay(salt));
                child.fork(2, |_, grandchild| grandchild.fork(2, |_, _| delay(salt)));
            });
            seen.check(jobs * inner, "nested fork");
        }
        10 => {
            let shares: Vec<usize> = (0..random.between(1, exec.budget().get() as u64)).map(|_| 1).collect();
            exec.reborrow().fork_sized(&shares, |job, _| seen.hit(job)).unwrap();
            seen.check(shares.len(), "fork_sized");
        }
        11 => {
            let budget = exec.budget().get();
            match exec.reborrow().broadcast(|index| {
                delay(salt ^ index as u64);
                seen.hit(index);
            }) {
                Ok(()) => seen.check(budget, "broadcast"),
                Err(refused) => assert_eq!(refused, Refused::Unavailable),
            }
        }
        12 => {
            let culprit = random.between(0, LONGEST);
            let section = || {
                exec.reborrow().for_ranges(length, grain, |range| {
                    if range.contains(&culprit) {
                        resume_unwind(Box::new(culprit));
                    }
                    range.for_each(|index| seen.hit(index));
                });
            };
            match catch_unwind(AssertUnwindSafe(section)) {
                Ok(()) => seen.check(length, "for_ranges without its culprit"),
                Err(payload) => {
                    assert_eq!(payload.downcast_ref(), Some(&culprit));
                    for count in &seen.0 {
                        assert!(count.swap(0, Ordering::Relaxed) <= 1, "an index ran twice before a panic");
                    }
                }
            }
        }
        // On a team's token: its members serve the other callers meanwhile.
        13 => exec.reborrow().external(|_| delay(salt)),
        _ => {
            let mut over = WaitOverride::new();
            if random.below(4) == 0 {
                over = over.idle_spin(Duration::from_micros(random.below(100)));
            }
            match exec.team_with(over, |team| team_calls(team, random, seen)) {
                Ok(()) => {}
                Err(refused) => assert_eq!(refused, Refused::Unavailable),
            }
        }
    }
}

/// A few sections on a team, checked.
fn team_calls(mut team: TeamExec<'_>, random: &mut Random, seen: &Seen) {
    let size = team.size().get();
    for _ in 0..random.between(1, 6) {
        let salt = random.next();
        match random.below(6) {
            0 | 1 => {
                team.reborrow().run(|index, count| {
                    assert_eq!(count, size);
                    delay(salt ^ index as u64);
                    seen.hit(index);
                });
                seen.check(size, "run");
            }
            2 => {
                let rounds = random.between(1, 4);
                let arrived = AtomicU32::new(0);
                team.reborrow().run_with(|participant| {
                    for round in 1..=rounds {
                        delay(salt ^ (participant.index() * 7 + round) as u64);
                        arrived.fetch_add(1, Ordering::Relaxed);
                        participant.barrier().unwrap();
                        assert!(arrived.load(Ordering::Relaxed) as usize >= round * size);
                        seen.hit((round - 1) * size + participant.index());
                    }
                });
                seen.check(rounds * size, "barriers");
            }
            3 => {
                let first = random.between(1, size as u64);
                let sizes = [first, size - first];
                let sizes = if sizes[1] == 0 { &sizes[..1] } else { &sizes[..] };
                team.reborrow()
                    .split(sizes, |child, team| {
                        team.run(|index, _| {
                            delay(salt ^ index as u64);
                            seen.hit(child * first + index);
                        });
                    })
                    .unwrap();
                seen.check(size, "split");
            }
            4 => {
                let children = random.between(1, 12);
                team.reborrow().fork(children, |child, mut team| {
                    team.reborrow().run_with(|participant| participant.barrier().unwrap());
                    team.run(|index, _| {
                        if index == 0 {
                            seen.hit(child);
                        }
                    });
                });
                seen.check(children, "fork of a team");
            }
            _ => {
                let length = random.below(LONGEST + 1) as usize;
                team.exec().for_ranges(length, nz(1), |range| {
                    delay(salt ^ range.start as u64);
                    range.for_each(|index| seen.hit(index));
                });
                seen.check(length, "for_ranges of a team");
            }
        }
    }
}

/// What the callers of one round share.
enum Shared {
    Pool(Pool),
    Team(Team),
}

/// One pool, its callers, `calls` calls each; returns how many sections reached a worker.
fn round(random: &mut Random, calls: u64, watchdog: &Watchdog) -> u64 {
    let widest = if random.below(6) == 0 { RELAYED } else { WIDEST };
    let width = random.between(1, widest);
    let spin = [0, 5, 50, 200, 2000][random.below(5) as usize];
    let pool = Pool::builder().threads(width).idle_spin(Duration::from_micros(spin));
    let pool = pool.acquire_timeout(Duration::from_micros(random.below(300))).build().unwrap();
    let shared = if random.below(3) == 0 {
        match pool.into_team(width) {
            Ok(team) => Shared::Team(team),
            Err(error) => Shared::Pool(error.into_pool()),
        }
    } else {
        Shared::Pool(pool)
    };
    std::thread::scope(|scope| {
        for _ in 0..random.between(1, 4) {
            let mut random = Random(random.next());
            let shared = &shared;
            scope.spawn(move || {
                let seen = Seen::new();
                for _ in 0..calls {
                    let budget = random.between(1, width as u64);
                    let mut exec = match shared {
                        Shared::Pool(pool) => Exec::new(pool, budget).unwrap(),
                        Shared::Team(team) => team.exec(budget),
                    };
                    call(&mut exec, &mut random, &seen);
                    watchdog.progress.fetch_add(1, Ordering::Relaxed);
                    drop(exec);
                    delay(random.next());
                }
            });
        }
    });
    let pool = match shared {
        Shared::Pool(pool) => pool,
        Shared::Team(team) => team.into_pool(),
    };
    let stats = pool.stats();
    stats.sections + stats.gangs
}

#[test]
fn every_index_runs_once_under_random_load() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let wanted = number("THREADTEAM_STRESS_SECTIONS");
    let seed = number("THREADTEAM_STRESS_SEED").unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    });
    println!("stress: seed {seed}");
    let watchdog = Watchdog { progress: AtomicU64::new(0), done: AtomicBool::new(false) };
    let since = Instant::now();
    #[cfg(feature = "test-hooks")]
    delay_at_every_point(seed);
    let mut random = Random(seed);
    let (mut sections, mut rounds) = (0, 0u64);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watchdog.watch(seed));
        let _ended = Ended(&watchdog, watcher.thread());
        while wanted.map_or(since.elapsed() < Duration::from_secs(5), |wanted| sections < wanted) {
            sections += round(&mut random, if wanted.is_some() { 2000 } else { 100 }, &watchdog);
            rounds += 1;
            if rounds.is_multiple_of(200) {
                println!("stress: {sections} sections in {:.0} s", since.elapsed().as_secs_f64());
            }
        }
    });
    let calls = watchdog.progress.into_inner();
    println!("stress: {sections} sections, {calls} calls, {rounds} pools in {:.1} s", since.elapsed().as_secs_f64());
}
