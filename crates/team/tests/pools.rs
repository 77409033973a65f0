//! Building, naming, limiting and dropping pools.

mod common;
#[path = "common/kept.rs"]
mod kept;

use common::wait_until;
use kept::count_end_of_thread;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use threadteam::{Error, Exec, Pool, Qos, Refused};

fn patient(threads: usize) -> threadteam::PoolBuilder {
    Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(30))
}

fn everywhere(pool: &Pool, f: impl Fn(usize) + Sync) {
    Exec::new(pool, pool.width().get()).unwrap().broadcast(f).unwrap();
}

#[test]
fn a_pool_of_no_threads_is_refused() {
    assert_eq!(Pool::builder().threads(0).build().unwrap_err(), Error::ZeroThreads);
}

#[test]
fn a_pool_wider_than_the_runtime_numbers_is_refused_before_a_thread_starts() {
    let error = Pool::builder().threads(1026).build().unwrap_err();
    assert_eq!(error, Error::TooManyThreads { wanted: 1026, most: 1025 });
    assert!(error.to_string().contains("1025"));
    assert_eq!(Pool::builder().threads(1025).lazy(true).build().unwrap().width().get(), 1025);
}

#[test]
fn more_than_sixty_four_workers_are_numbered_woken_and_joined() {
    let pool = patient(100).idle_spin(Duration::ZERO).build().unwrap();
    for _ in 0..5 {
        wait_until("all workers to park", || pool.resident_members() == 0);
        let seen: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        let met = AtomicUsize::new(0);
        everywhere(&pool, |index| {
            seen[index].fetch_add(1, Ordering::Relaxed);
            met.fetch_add(1, Ordering::SeqCst);
            wait_until("the others", || met.load(Ordering::SeqCst) == 100);
        });
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn a_pool_of_one_runs_everything_on_the_caller_and_starts_nothing() {
    let pool = Pool::builder().threads(1).on_start(|_| panic!("a worker started")).build().unwrap();
    let own = std::thread::current().id();
    let mut exec = Exec::new(&pool, 1).unwrap();
    assert!(exec.is_serial());
    exec.reborrow().for_ranges(10, NonZeroUsize::MIN, |_| assert_eq!(std::thread::current().id(), own));
    exec.reborrow().broadcast(|_| assert_eq!(std::thread::current().id(), own)).unwrap();
    exec.team(|team| team.run(|index, size| assert_eq!((index, size), (0, 1)))).unwrap();
    drop(exec);
    assert_eq!(pool.into_team(1).unwrap().size().get(), 1);
}

#[test]
fn a_budget_is_clamped_to_the_width_and_never_zero() {
    let pool = Pool::builder().threads(3).lazy(true).build().unwrap();
    assert_eq!(Exec::new(&pool, usize::MAX).unwrap().budget().get(), 3);
    assert_eq!(Exec::new(&pool, 2).unwrap().budget().get(), 2);
    assert_eq!(Exec::new(&pool, 0).unwrap_err(), Error::ZeroBudget);
    let two = NonZeroUsize::new(2).unwrap();
    assert_eq!(Exec::new(&pool, 3).unwrap().limit(two).budget().get(), 2);
    assert_eq!(Exec::new(&pool, 1).unwrap().limit(two).budget().get(), 1);
}

#[test]
fn without_a_width_the_pool_takes_what_the_process_may_use() {
    let pool = Pool::builder().lazy(true).build().unwrap();
    // Fewer where a core runs several threads.
    assert!(pool.width() <= std::thread::available_parallelism().unwrap());
    let again = Pool::builder().lazy(true).build().unwrap();
    assert_eq!(pool.width(), again.width());
}

#[test]
fn workers_carry_the_names_they_were_given() {
    let names = Arc::new(Mutex::new(Vec::new()));
    let pool = patient(3).thread_name(|index| format!("crew-{}", 10 + index)).build().unwrap();
    everywhere(&pool, |index| {
        if index > 0 {
            names.lock().unwrap().push(std::thread::current().name().unwrap().to_owned());
        }
    });
    let mut names = names.lock().unwrap().clone();
    names.sort();
    assert_eq!(names, ["crew-10", "crew-11"]);
}

#[test]
fn a_name_may_come_from_a_closure_that_stays_on_its_thread() {
    let prefix = std::rc::Rc::new("here");
    let pool = Pool::builder().threads(2).thread_name(move |index| format!("{prefix}-{index}")).build().unwrap();
    everywhere(&pool, |index| assert!(index == 0 || std::thread::current().name() == Some("here-0")));
}

#[test]
fn each_worker_calls_on_start_once_on_its_own_thread() {
    let started = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&started);
    let pool = patient(4).on_start(move |index| record.lock().unwrap().push((index, std::thread::current().id())));
    let pool = pool.build().unwrap();
    everywhere(&pool, |_| ());
    let mut started = started.lock().unwrap().clone();
    started.sort_by_key(|&(index, _)| index);
    assert_eq!(started.iter().map(|&(index, _)| index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(started.iter().all(|&(_, thread)| thread != std::thread::current().id()));
}

#[test]
fn a_start_hook_may_run_ranges_on_its_own_pool_but_is_refused_a_gang() {
    static POOL: OnceLock<Pool> = OnceLock::new();
    static SEEN: Mutex<Vec<(bool, Refused, Refused)>> = Mutex::new(Vec::new());
    let hook = |_| {
        let mut exec = Exec::new(POOL.get().unwrap(), 2).unwrap();
        exec.reborrow().for_ranges(8, NonZeroUsize::MIN, |_| ());
        let may = exec.can_broadcast();
        let team = exec.team(|_| ()).unwrap_err();
        SEEN.lock().unwrap().push((may, exec.broadcast(|_| ()).unwrap_err(), team));
    };
    let pool = POOL.get_or_init(|| patient(2).lazy(true).on_start(hook).build().unwrap());
    Exec::new(pool, 2).unwrap().for_ranges(8, NonZeroUsize::MIN, |_| ());
    wait_until("the hook", || !SEEN.lock().unwrap().is_empty());
    everywhere(pool, |_| ());
    assert_eq!(*SEEN.lock().unwrap(), [(false, Refused::CallerInPool, Refused::CallerInPool)]);
}

/// Uses about `depth` KiB of stack.
fn deep(depth: usize) -> usize {
    let frame = std::hint::black_box([depth as u8; 1024]);
    if depth == 0 {
        0
    } else {
        deep(depth - 1) + usize::from(std::hint::black_box(frame)[depth % 1024] == depth as u8)
    }
}

#[test]
fn workers_have_the_stack_they_were_given() {
    let pool = patient(2).stack_size(64 << 20).build().unwrap();
    everywhere(&pool, |index| {
        if index == 1 {
            assert_eq!(deep(16 << 10), 16 << 10);
        }
    });
}

#[test]
fn the_options_of_other_platforms_are_accepted() {
    let pool = patient(2).qos(Qos::UserInteractive).pin_participants(true).idle_runs_rayon(true).build().unwrap();
    assert!(pool.pin_participants() && pool.wait_policy().idle_runs_rayon());
    threadteam::raise_current_thread_qos(Qos::Utility);
    everywhere(&pool, |_| ());
}

#[test]
fn dropping_a_pool_ends_its_threads_and_what_they_keep() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let pool = patient(4).on_start(|_| count_end_of_thread(&ENDED)).build().unwrap();
    everywhere(&pool, |_| ());
    drop(pool);
    assert_eq!(ENDED.load(Ordering::SeqCst), 3);
}

#[test]
fn dropping_a_team_drops_its_pool() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let pool = patient(3).on_start(move |_| drop(Arc::clone(&held))).build().unwrap();
    let team = pool.into_team(2).unwrap();
    team.exec(2).broadcast(|_| ()).unwrap();
    drop(team);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_lazy_pool_can_be_started_by_hand() {
    let pool = Pool::builder().threads(2).lazy(true).idle_spin(Duration::from_secs(1000)).build().unwrap();
    assert_eq!(pool.resident_members(), 0);
    pool.start().unwrap();
    pool.start().unwrap();
    assert_eq!(pool.resident_members(), 1);
}

#[test]
fn a_team_narrower_than_its_pool_leaves_the_rest_to_plain_tokens() {
    let team = patient(4).build().unwrap().into_team(3).unwrap();
    assert_eq!(team.size().get(), 3);
    let lead = team.exec(99);
    assert_eq!(lead.budget().get(), 3);
    Exec::new(team.pool(), 2).unwrap().broadcast(|_| ()).unwrap();
    let wide = Pool::builder().threads(3).acquire_timeout(Duration::ZERO).build().unwrap().into_team(2).unwrap();
    assert_eq!(Exec::new(wide.pool(), 3).unwrap().broadcast(|_| panic!("must not run")), Err(Refused::Unavailable));
}

#[test]
fn a_team_gives_its_pool_back_with_every_member_free() {
    let team = patient(3).build().unwrap().into_team(3).unwrap();
    team.exec(3).broadcast(|_| ()).unwrap();
    let pool = team.into_pool();
    everywhere(&pool, |_| ());
    assert_eq!(pool.into_team(3).unwrap().size().get(), 3);
}

#[test]
fn a_pool_whose_members_are_lent_comes_back_from_a_refused_team() {
    let pool = Pool::builder().threads(2).acquire_timeout(Duration::ZERO).build().unwrap();
    let pool = Arc::new(pool);
    let lender = Arc::clone(&pool);
    let (lent, back) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
    let (lent_there, back_there) = (Arc::clone(&lent), Arc::clone(&back));
    let thread = std::thread::spawn(move || {
        let mut exec = Exec::new(&lender, 2).unwrap();
        let reserved = exec.reserve(threadteam::WaitOverride::new()).unwrap();
        lent_there.wait();
        back_there.wait();
        drop(reserved);
    });
    lent.wait();
    assert_eq!(Exec::new(&pool, 2).unwrap().team(|_| panic!("must not run")), Err(Refused::Unavailable));
    back.wait();
    thread.join().unwrap();
    Exec::new(&pool, 2).unwrap().broadcast(|_| ()).unwrap();
}

#[test]
fn the_external_width_is_the_budget() {
    let pool = Pool::builder().threads(3).lazy(true).build().unwrap();
    assert_eq!(Exec::new(&pool, 2).unwrap().external(|width| width.get()), 2);
    assert_eq!(Exec::serial().external(|width| width.get()), 1);
}
