//! Forced interleavings: a thread is held at one step of the protocol while the others go on.
//!
//! Each interleaving is run twice: the real protocol completes it, and the protocol without the step that is there for it
//! stalls or runs something twice. A stalled run is recovered by waking everybody, which also shows that nothing but a wake
//! was missing. Orderings, which only a weaker machine would break, are the models' part (`src/models.rs`).

mod common;

use common::wait_until;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use threadteam::test_hooks::{self, Mutation, Point};
use threadteam::{Exec, Pool};

const NEVER: Duration = Duration::from_secs(100_000);

/// A run that a missing step should stall is stalled when it has not ended after so long; others may take a minute.
const STALLED: Duration = Duration::from_millis(700);

/// Hooks belong to the process: one scenario at a time.
static BUSY: AtomicBool = AtomicBool::new(false);

/// The turn of one scenario.
struct Turn;

impl Turn {
    fn take() -> Turn {
        while BUSY.swap(true, Ordering::SeqCst) {
            thread::yield_now();
        }
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        BUSY.store(false, Ordering::SeqCst);
    }
}

/// Notes that a thread came to a point, and holds it there until it is opened.
struct Gate {
    point: Point,
    /// The name of the only thread that it is for.
    thread: &'static str,
    reached: AtomicBool,
    open: AtomicBool,
}

impl Gate {
    fn reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }

    fn wait_until_reached(&self) {
        wait_until(&format!("{} at {:?}", self.thread, self.point), || self.reached());
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

/// How a scenario ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Completed,
    Stalled,
    /// Something ran twice, or was given to two.
    Wrong,
}

/// The gates of one scenario.
type Gates = Arc<Mutex<Vec<Arc<Gate>>>>;

/// The calling thread is at `point`.
fn come_to(gates: &Gates, point: Point) {
    let current = thread::current();
    let here = |gate: &Arc<Gate>| gate.point == point && Some(gate.thread) == current.name();
    let gate = gates.lock().unwrap().iter().find(|gate| here(gate) && !gate.reached()).cloned();
    if let Some(gate) = gate {
        gate.reached.store(true, Ordering::SeqCst);
        while !gate.open.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

/// One pool whose threads stop at gates. Worker `i` is called `wi`, the leader `leader`.
struct Scene {
    pool: Pool,
    gates: Gates,
    /// Given up after the pool has ended.
    _turn: Turn,
}

impl Scene {
    fn new(threads: usize, spin: Duration) -> Scene {
        let turn = Turn::take();
        let gates = Gates::default();
        let seen = Arc::clone(&gates);
        test_hooks::set_hook(Some(Arc::new(move |point| come_to(&seen, point))));
        let pool = Pool::builder().threads(threads).idle_spin(spin).thread_name(|index| format!("w{index}"));
        let pool = pool.acquire_timeout(Duration::from_secs(60)).build().unwrap();
        Scene { pool, gates, _turn: turn }
    }

    /// Notes the next time that `thread` comes to `point`, and holds it there.
    fn gate(&self, thread: &'static str, point: Point) -> Arc<Gate> {
        let gate = Gate { point, thread, reached: AtomicBool::new(false), open: AtomicBool::new(false) };
        let gate = Arc::new(gate);
        self.gates.lock().unwrap().push(Arc::clone(&gate));
        gate
    }

    /// The same without holding it.
    fn note(&self, thread: &'static str, point: Point) -> Arc<Gate> {
        let gate = self.gate(thread, point);
        gate.open();
        gate
    }

    fn wait_until_all_sleep(&self) {
        wait_until("every worker to sleep", || self.pool.resident_members() == 0);
    }

    /// All participants at the same time, on the thread called `leader`.
    fn gang(&self, body: impl Fn(usize) + Sync) {
        Exec::new(&self.pool, self.pool.width().get()).unwrap().broadcast(body).unwrap();
    }

    /// Runs `section` on a thread called `leader` and `steps` on this one, with `mutation` from now on.
    fn play(&self, mutation: Option<Mutation>, section: impl FnOnce() + Send, steps: impl FnOnce()) -> Outcome {
        test_hooks::set_mutation(mutation);
        thread::scope(|scope| {
            let leader = thread::Builder::new().name("leader".to_owned());
            let leader = leader.spawn_scoped(scope, || catch_unwind(AssertUnwindSafe(section)).is_err()).unwrap();
            steps();
            let ends = matches!(mutation, None | Some(Mutation::EnterByStore | Mutation::ClaimByStore));
            let patience = if ends { Duration::from_secs(60) } else { STALLED };
            let since = Instant::now();
            while !leader.is_finished() && since.elapsed() < patience {
                thread::yield_now();
            }
            let stalled = !leader.is_finished();
            test_hooks::set_mutation(None);
            self.gates.lock().unwrap().iter().for_each(|gate| gate.open());
            wait_until("a stalled section to end once everybody was woken", || {
                test_hooks::wake_everybody(&self.pool);
                leader.is_finished()
            });
            match (stalled, leader.join().unwrap()) {
                (true, _) => Outcome::Stalled,
                (false, true) => Outcome::Wrong,
                (false, false) => Outcome::Completed,
            }
        })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        test_hooks::set_hook(None);
        test_hooks::set_mutation(None);
        self.gates.lock().unwrap().iter().for_each(|gate| gate.open());
    }
}

/// The real protocol completes `scenario`; without one of `steps` it ends in `outcome`.
fn completes_but_not_without(steps: &[Mutation], outcome: Outcome, scenario: impl Fn(Option<Mutation>) -> Outcome) {
    assert_eq!(scenario(None), Outcome::Completed);
    for &step in steps {
        assert_eq!(scenario(Some(step)), outcome, "without {step:?}");
    }
}

#[test]
fn a_post_before_the_parked_bit_is_seen_by_the_second_look() {
    completes_but_not_without(&[Mutation::SkipRecheck], Outcome::Stalled, |mutation| {
        let scene = Scene::new(2, Duration::ZERO);
        scene.wait_until_all_sleep();
        let gate = scene.gate("w0", Point::BeforePark);
        scene.gang(|_| ());
        gate.wait_until_reached();
        let looked = AtomicBool::new(false);
        let section = || scene.gang(|index| looked.store(index == 0, Ordering::SeqCst));
        scene.play(mutation, section, || {
            // The leader runs its share only after it looked at the parked mask.
            wait_until("the leader's share", || looked.load(Ordering::SeqCst));
            gate.open();
        })
    });
}

#[test]
fn a_wake_between_the_second_look_and_the_sleep_is_in_the_bed() {
    completes_but_not_without(&[Mutation::SkipBedStore], Outcome::Stalled, |mutation| {
        let scene = Scene::new(2, Duration::ZERO);
        scene.wait_until_all_sleep();
        let gate = scene.gate("w0", Point::BeforeSleep);
        scene.gang(|_| ());
        gate.wait_until_reached();
        let looked = AtomicBool::new(false);
        let section = || scene.gang(|index| looked.store(index == 0, Ordering::SeqCst));
        scene.play(mutation, section, || {
            wait_until("the leader's share", || looked.load(Ordering::SeqCst));
            gate.open();
        })
    });
}

#[test]
fn a_member_that_sleeps_while_its_waker_is_held_before_the_bed_is_woken() {
    completes_but_not_without(&[Mutation::SkipBedStore], Outcome::Stalled, |mutation| {
        let scene = Scene::new(2, Duration::ZERO);
        scene.wait_until_all_sleep();
        let gate = scene.gate("leader", Point::BeforeBedStore);
        scene.play(
            mutation,
            || scene.gang(|_| ()),
            || {
                gate.wait_until_reached();
                // The parked bit is clear and the bed is still 1: a worker that finds this sleeps on.
                gate.open();
            },
        )
    });
}

#[test]
fn a_leader_held_between_look_and_wake_wakes_a_member_that_is_still_there() {
    let scenario = |mutation| {
        let scene = Scene::new(2, Duration::ZERO);
        scene.wait_until_all_sleep();
        let gate = scene.gate("leader", Point::BeforeWake);
        scene.play(
            mutation,
            || scene.gang(|_| ()),
            || {
                gate.wait_until_reached();
                gate.open();
            },
        )
    };
    completes_but_not_without(&[Mutation::SkipBedStore], Outcome::Stalled, scenario);
}

#[test]
fn woken_members_wake_those_that_the_leader_did_not_pay_for() {
    completes_but_not_without(&[Mutation::SkipPassingOn], Outcome::Stalled, |mutation| {
        let scene = Scene::new(4, Duration::ZERO);
        scene.wait_until_all_sleep();
        scene.play(mutation, || scene.gang(|_| ()), || ())
    });
}

#[test]
fn a_wake_is_not_spent_on_a_member_that_has_left_already() {
    completes_but_not_without(&[Mutation::CountEveryWake], Outcome::Stalled, |mutation| {
        let scene = Scene::new(3, NEVER);
        wait_until("every worker to sleep", || {
            scene.pool.release_idle();
            scene.pool.resident_members() == 0
        });
        // Only w0 is awake now, and spins.
        Exec::new(&scene.pool, 2).unwrap().broadcast(|_| ()).unwrap();
        let posted = scene.gate("leader", Point::Posted);
        let left = scene.note("w0", Point::BeforeLeave);
        scene.play(
            mutation,
            || scene.gang(|_| ()),
            || {
                posted.wait_until_reached();
                left.wait_until_reached();
                wait_until("w0 to sleep again", || {
                    scene.pool.release_idle();
                    scene.pool.resident_members() == 0
                });
                posted.open();
            },
        )
    });
}

#[test]
fn a_leave_after_the_announcement_sees_that_the_leader_waits() {
    completes_but_not_without(&[Mutation::LeaveByStore], Outcome::Stalled, |mutation| {
        let scene = Scene::new(2, NEVER);
        let leaving = scene.gate("w0", Point::BeforeLeave);
        let sleeping = scene.note("leader", Point::BeforeLeaderSleep);
        scene.play(
            mutation,
            || scene.gang(|_| ()),
            || {
                leaving.wait_until_reached();
                sleeping.wait_until_reached();
                leaving.open();
            },
        )
    });
}

#[test]
fn a_leave_between_the_announcement_and_the_sleep_is_in_the_leaders_bed() {
    completes_but_not_without(&[Mutation::SkipLeaderBedStore], Outcome::Stalled, |mutation| {
        let scene = Scene::new(2, Duration::ZERO);
        let leaving = scene.gate("w0", Point::BeforeLeave);
        let sleeping = scene.gate("leader", Point::BeforeLeaderSleep);
        let gone = scene.note("w0", Point::BeforeLeaderWake);
        scene.play(
            mutation,
            || scene.gang(|_| ()),
            || {
                leaving.wait_until_reached();
                sleeping.wait_until_reached();
                leaving.open();
                gone.wait_until_reached();
                scene.wait_until_all_sleep();
                sleeping.open();
            },
        )
    });
}

#[test]
fn a_leave_before_the_announcement_leaves_nothing_to_wait_for() {
    let scene = Scene::new(2, NEVER);
    let leaving = scene.gate("w0", Point::BeforeLeave);
    let announcing = scene.gate("leader", Point::BeforeAnnounce);
    let outcome = scene.play(
        None,
        || scene.gang(|_| ()),
        || {
            leaving.wait_until_reached();
            announcing.wait_until_reached();
            leaving.open();
            wait_until("the word to be idle", || scene.pool.stats().entered == 1 && leaving.reached());
            announcing.open();
        },
    );
    assert_eq!(outcome, Outcome::Completed);
}

#[test]
fn a_worker_held_before_its_entry_finds_its_chunk_taken_back() {
    completes_but_not_without(&[Mutation::EnterByStore], Outcome::Wrong, |mutation| {
        let scene = Scene::new(2, NEVER);
        let entering = scene.gate("w0", Point::BeforeEntry);
        let lost = scene.note("w0", Point::EntryLost);
        let ran = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let body = |range: std::ops::Range<usize>| {
            let chunk = range.start;
            let count = ran[chunk].fetch_add(1, Ordering::SeqCst) + 1;
            if thread::current().name() != Some("leader") {
                return;
            }
            if chunk == 0 {
                entering.wait_until_reached();
            } else if count == 1 {
                // Taken back while w0 stands before its entry; the section lives until w0 has lost it, or run it again.
                entering.open();
                wait_until("the worker's entry", || lost.reached() || ran[1].load(Ordering::SeqCst) > 1);
            }
        };
        let section = || {
            Exec::new(&scene.pool, 2).unwrap().for_ranges(2, NonZeroUsize::MIN, body);
            if ran.each_ref().map(|count| count.load(Ordering::SeqCst)) != [1, 1] {
                std::panic::resume_unwind(Box::new(format!("the chunks ran {ran:?} times")));
            }
        };
        scene.play(mutation, section, || ())
    });
}

#[test]
fn two_callers_that_saw_the_same_worker_free_do_not_both_get_it() {
    completes_but_not_without(&[Mutation::ClaimByStore], Outcome::Wrong, |mutation| {
        let scene = Scene::new(2, NEVER);
        let claiming = scene.gate("leader", Point::BeforeClaim);
        let (inside, end) = (AtomicUsize::new(0), AtomicBool::new(false));
        let hold = |_| {
            inside.fetch_add(1, Ordering::SeqCst);
            wait_until("the first caller to end", || end.load(Ordering::SeqCst));
        };
        // The first caller ends alone, or by the panic of a post to a worker that has one already.
        let first = || {
            let _ended = OnDrop(|| end.store(true, Ordering::SeqCst));
            Exec::new(&scene.pool, 2).unwrap().for_ranges(2, NonZeroUsize::MIN, |_| ());
        };
        thread::scope(|scope| {
            scene.play(mutation, first, || {
                claiming.wait_until_reached();
                scope.spawn(|| Exec::new(&scene.pool, 2).unwrap().for_ranges(2, NonZeroUsize::MIN, hold));
                wait_until("the other caller and the worker", || inside.load(Ordering::SeqCst) == 2);
                claiming.open();
            })
        })
    });
}

/// Calls its function when it is dropped, by a panic too.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A section of two whose participants meet at a barrier once `before` has run on each.
fn meet(scene: &Scene, before: impl Fn(usize) + Sync, after: impl Fn(usize) + Sync) {
    let mut exec = Exec::new(&scene.pool, 2).unwrap();
    let both = |participant: &threadteam::Participant<'_>| {
        before(participant.index());
        if participant.barrier().is_ok() {
            after(participant.index());
        }
    };
    exec.team(|team| team.run_with(both)).unwrap();
}

/// The leader arrives at a barrier while the worker that waits there is held at `point`; without the step, it stalls.
fn arrival_while_the_waiter_is_held(point: Point, step: Mutation) {
    completes_but_not_without(&[step], Outcome::Stalled, |mutation| {
        let scene = Scene::new(2, NEVER);
        let held = scene.gate("w0", point);
        let passed = AtomicBool::new(false);
        let before = |index| {
            if index == 0 {
                held.wait_until_reached();
            }
        };
        let after = |index| {
            if index == 0 {
                passed.store(true, Ordering::SeqCst);
            }
        };
        scene.play(
            mutation,
            || meet(&scene, before, after),
            || {
                wait_until("the leader to pass the barrier", || passed.load(Ordering::SeqCst));
                held.open();
            },
        )
    });
}

#[test]
fn an_arrival_before_the_waiter_counted_itself_is_seen_by_its_second_look() {
    arrival_while_the_waiter_is_held(Point::BeforeBarrierCount, Mutation::SkipBarrierRecheck);
}

#[test]
fn an_arrival_after_the_waiter_counted_itself_wakes_it() {
    arrival_while_the_waiter_is_held(Point::BeforeBarrierSleep, Mutation::SkipBarrierWake);
}

#[test]
fn a_waiter_counted_but_not_yet_asleep_sees_an_arrival_that_is_held_before_its_look() {
    let scene = Scene::new(2, NEVER);
    let counted = scene.gate("w0", Point::BarrierCounted);
    let arrived = scene.gate("leader", Point::Arrived);
    let before = |index| {
        if index == 0 {
            counted.wait_until_reached();
        }
    };
    let outcome = scene.play(
        None,
        || meet(&scene, before, |_| ()),
        || {
            arrived.wait_until_reached();
            counted.open();
            arrived.open();
        },
    );
    assert_eq!(outcome, Outcome::Completed);
}

#[test]
fn a_section_that_fails_wakes_those_who_sleep_at_its_barrier() {
    completes_but_not_without(&[Mutation::SkipCancelWake], Outcome::Stalled, |mutation| {
        let scene = Scene::new(2, NEVER);
        let sleeping = scene.note("w0", Point::BeforeBarrierSleep);
        let section = || {
            let failing = AssertUnwindSafe(|| {
                let before = |index| {
                    if index == 0 {
                        sleeping.wait_until_reached();
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                };
                meet(&scene, before, |_| ());
            });
            assert_eq!(catch_unwind(failing).unwrap_err().downcast_ref(), Some(&"on purpose"));
        };
        scene.play(mutation, section, || ())
    });
}

/// Every point, for a run that holds each in turn.
const POINTS: [Point; 25] = [
    Point::BeforeClaim,
    Point::BeforeRelease,
    Point::Posted,
    Point::BeforeWake,
    Point::BeforeBedStore,
    Point::BeforeRevoke,
    Point::BeforeLeaderBed,
    Point::BeforeAnnounce,
    Point::BeforeLeaderSleep,
    Point::BeforeEntry,
    Point::EntryLost,
    Point::Entered,
    Point::BeforeRelay,
    Point::BeforeLeave,
    Point::BeforeLeaderWake,
    Point::BeforePark,
    Point::Parked,
    Point::BeforeSleep,
    Point::Woken,
    Point::Arrived,
    Point::BeforeBarrierWake,
    Point::BeforeBarrierCount,
    Point::BarrierCounted,
    Point::BeforeBarrierSleep,
    Point::BeforeCancelWake,
];

/// Sections of each kind on a pool of three, every index counted.
fn sections_of_each_kind(pool: &Pool) {
    let seen: Vec<AtomicUsize> = (0..24).map(|_| AtomicUsize::new(0)).collect();
    let hit = |index: usize| {
        seen[index].fetch_add(1, Ordering::SeqCst);
    };
    let mut exec = Exec::new(pool, 3).unwrap();
    exec.reborrow().for_ranges(8, NonZeroUsize::MIN, |range| range.for_each(hit));
    exec.reborrow().fork(6, |job, _| hit(8 + job));
    exec.reborrow().broadcast(|index| hit(14 + index)).unwrap();
    exec.team(|mut team| {
        team.reborrow().run_with(|participant| {
            participant.barrier().unwrap();
            hit(17 + participant.index());
        });
        team.split(&[1, 2], |child, team| team.run(|index, _| hit(20 + child + index))).unwrap();
    })
    .unwrap();
    let failing = AssertUnwindSafe(|| {
        exec.reborrow().for_ranges(4, NonZeroUsize::MIN, |_| std::panic::resume_unwind(Box::new("on purpose")));
    });
    assert!(catch_unwind(failing).is_err());
    hit(23);
    assert!(seen.iter().all(|count| count.load(Ordering::SeqCst) == 1), "{seen:?}");
}

#[test]
fn a_thread_held_for_a_while_at_any_point_loses_nothing() {
    for point in POINTS {
        for spin in [Duration::ZERO, Duration::from_micros(20)] {
            let scene = Scene::new(3, spin);
            let came = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&came);
            test_hooks::set_hook(Some(Arc::new(move |here| {
                // Every third thread that comes by is held while the others go on.
                if here == point && counter.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                    (0..100).for_each(|_| thread::yield_now());
                }
            })));
            (0..4).for_each(|_| sections_of_each_kind(&scene.pool));
        }
    }
}
