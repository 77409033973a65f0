//! Every public signature of the published crate 0.1.3, used the way its user would: what compiles there compiles here.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use threadteam::{
    pays_at, raise_current_thread_qos, width_for_by, Cancelled, DispatchCosts, DispatchKind, Error, Exec, HostClass,
    IntoTeamError, Participant, Pool, PoolBuilder, Qos, Refused, Team, TeamExec, WaitOverride, WaitPolicy, WidthCosts,
    PAYS,
};

const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// An engine as a user of the published crate writes one: it owns a team, or a pool when it could have none.
enum Engine {
    Team(Team),
    Pool(Pool),
}

impl Engine {
    fn new(threads: usize) -> Result<Engine, Error> {
        let pool = Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(10)).build()?;
        Ok(match pool.into_team(threads) {
            Ok(team) => Engine::Team(team),
            Err(error) => {
                let _: Refused = error.reason();
                Engine::Pool(error.into_pool())
            }
        })
    }

    fn exec(&self, budget: usize) -> Result<Exec<'_>, Error> {
        match self {
            Engine::Team(team) => Ok(team.exec(budget)),
            Engine::Pool(pool) => Exec::new(pool, budget),
        }
    }
}

/// A kernel: takes its token by value, decides by the rule, hands children on.
fn kernel(mut exec: Exec<'_>, data: &[AtomicUsize]) {
    let estimate = Duration::from_nanos(data.len() as u64 * 10);
    let width: NonZeroUsize = exec.width_for(estimate, 1);
    let _: bool = exec.pays(estimate, 1, width);
    let _: Duration = exec.dispatch_cost(width);
    let add = |range: Range<usize>| {
        for cell in &data[range] {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    };
    exec.reborrow().limit(width).for_ranges(data.len(), NonZeroUsize::new(16).unwrap(), add);
    let half = data.len() / 2;
    exec.fork(2, |job: usize, child: Exec<'_>| {
        let part = if job == 0 { 0..half } else { half..data.len() };
        let start = part.start;
        child.for_ranges(part.len(), NonZeroUsize::MIN, |range| add(range.start + start..range.end + start));
    });
}

#[test]
fn an_engine_and_its_kernel_compile_and_run() {
    let engine = Engine::new(2).unwrap();
    let data: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
    kernel(engine.exec(2).unwrap(), &data);
    kernel(Exec::serial(), &data);
    assert!(data.iter().all(|cell| cell.load(Ordering::Relaxed) == 4));
}

#[test]
fn the_builder_takes_every_option_by_value() {
    let builder: PoolBuilder = Pool::builder()
        .threads(2)
        .thread_name(|index: usize| format!("engine-{index}"))
        .stack_size(2 << 20)
        .on_start(|_index: usize| ())
        .idle_spin(Duration::from_millis(1))
        .idle_runs_rayon(false)
        .acquire_timeout(Duration::from_secs(10))
        .qos(Qos::UserInitiated)
        .dispatch_costs(DispatchCosts::host_default())
        .pin_participants(false);
    assert!(format!("{builder:?}").contains("stack_size"));
    let pool: Pool = builder.build().unwrap();
    let _: NonZeroUsize = pool.width();
    let policy: WaitPolicy = pool.wait_policy();
    assert_eq!(policy, WaitPolicy::new(Duration::from_millis(1), false));
    let _: DispatchCosts = pool.dispatch_costs();
    let _: bool = pool.pin_participants();
    let _: usize = pool.resident_members();
    pool.release_idle();
    raise_current_thread_qos(Qos::Utility);
}

#[test]
fn tokens_have_their_methods() {
    let pool = Pool::builder().threads(2).acquire_timeout(Duration::from_secs(10)).build().unwrap();
    let mut exec: Exec<'_> = Exec::new(&pool, 2).unwrap();
    let _: NonZeroUsize = exec.budget();
    let _: (bool, bool, bool) = (exec.is_serial(), exec.carries_team(), exec.can_broadcast());
    let refused: Result<(), Refused> = exec.reborrow().broadcast(|_index: usize| ());
    refused.unwrap();
    let width: usize = exec.reborrow().external(|width: NonZeroUsize| width.get());
    assert_eq!(width, 2);
    let size: Result<usize, Refused> = exec.team(|team: TeamExec<'_>| team.size().get());
    assert_eq!(size, Ok(2));
    let over = WaitOverride::new().idle_spin(Duration::ZERO).idle_runs_rayon(false);
    let policy: WaitPolicy = exec.team_with(over, |team| team.policy()).unwrap();
    assert_eq!((policy.idle_spin(), policy.idle_runs_rayon()), (Duration::ZERO, false));
    const SERIAL: Exec<'static> = Exec::serial();
    assert!(SERIAL.is_serial());
}

#[test]
fn teams_have_their_methods() {
    let pool = Pool::builder().threads(3).acquire_timeout(Duration::from_secs(10)).build().unwrap();
    let made: Result<Team, IntoTeamError> = pool.into_team_with(3, WaitOverride::new());
    let team: Team = made.unwrap();
    let _: (&Pool, NonZeroUsize) = (team.pool(), team.size());
    let tried: Result<Exec<'_>, Refused> = team.try_exec(3);
    drop(tried.unwrap());
    let mut exec = team.exec(3);
    exec.team(|mut team: TeamExec<'_>| {
        let _: (Duration, DispatchCosts) = (team.dispatch_cost(TWO), team.dispatch_costs());
        let _: (bool, NonZeroUsize) = (team.pays(Duration::ZERO, 1, TWO), team.width_for(Duration::ZERO, 1));
        team.reborrow().run(|_index: usize, _size: usize| ());
        team.reborrow().run_with(|participant: &Participant<'_>| {
            let _: (usize, usize, bool) = (participant.index(), participant.size(), participant.is_cancelled());
            let met: Result<(), Cancelled> = participant.barrier();
            met.unwrap();
        });
        let split: Result<(), Error> = team.reborrow().split(&[1, 2], |_child: usize, team: TeamExec<'_>| {
            team.with_wait(WaitOverride::new()).run(|_, _| ());
        });
        split.unwrap();
        team.fork(4, |_child: usize, _team: TeamExec<'_>| ());
    })
    .unwrap();
    drop(exec);
    let _: Pool = team.into_pool();
}

#[test]
fn the_cost_model_has_its_functions_and_is_const_where_it_was() {
    const FLAT: WidthCosts = WidthCosts::flat(Duration::from_micros(1));
    const ROW: Option<WidthCosts> = WidthCosts::from_anchors(&[(2, Duration::from_micros(1))]);
    const NEW: WidthCosts = WidthCosts::new([Duration::ZERO; 3]);
    const NAME: &str = HostClass::Generic.name();
    let _: (usize, f64, &str) = (WidthCosts::MAX_ANCHORS, PAYS, NAME);
    let _: (Duration, Duration) = (FLAT.at(TWO), NEW.min());
    let costs = DispatchCosts::new(FLAT, ROW.unwrap(), NEW).with(DispatchKind::Outside, FLAT);
    let _: (Duration, Duration) = (costs.min_cost(DispatchKind::Team), costs.cost(DispatchKind::InPool, TWO));
    let class: HostClass = HostClass::detect();
    // A table of one's own, keyed by class or kind, needs no arm for what there may be some day.
    let _rate = match class {
        HostClass::X86_64Avx512 | HostClass::X86_64Avx2 | HostClass::X86_64Scalar => 2,
        HostClass::Aarch64Apple | HostClass::Aarch64 | HostClass::Generic => 1,
    };
    let _kind = |kind| match kind {
        DispatchKind::Team => 0,
        DispatchKind::InPool => 1,
        DispatchKind::Outside => 2,
    };
    assert_eq!(DispatchCosts::for_class(class), DispatchCosts::host_default());
    assert_eq!(DispatchCosts::default(), DispatchCosts::host_default());
    assert!(pays_at(Duration::from_secs(1), 1, Duration::from_micros(1)));
    assert_eq!(width_for_by(Duration::ZERO, 1, TWO, |_width: NonZeroUsize| Duration::MAX).get(), 1);
}

#[test]
fn errors_are_values_that_can_be_compared_and_shown() {
    fn an_error(_: impl std::error::Error + Send + Sync + 'static) {}
    for error in [Error::ZeroBudget, Error::ZeroThreads, Error::PoolBuild("why".into()), Error::InvalidSplit] {
        assert_eq!(error.clone(), error);
        an_error(error);
    }
    for refused in [Refused::ForkChild, Refused::CallerInPool, Refused::Unavailable, Refused::Busy] {
        assert!(!refused.to_string().is_empty());
        an_error(refused);
    }
    an_error(Cancelled);
}

#[test]
fn tokens_pools_and_teams_cross_threads_as_before() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Pool>();
    sync::<Pool>();
    send::<Team>();
    sync::<Team>();
    send::<Exec<'static>>();
    send::<TeamExec<'static>>();
    send::<WaitPolicy>();
    send::<Error>();
}
