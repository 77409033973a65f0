//! Pools over cache domains: which CPUs count, and where workers run. Masks are read inside the shares.
#![cfg(target_os = "linux")]

#[path = "common/mask.rs"]
mod mask;

use mask::{alone, masks_of, own_mask, set_own_mask, Mask};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;
use threadteam::{Error, Exec, Pool, PoolBuilder};

fn over(domains: &[&[usize]]) -> PoolBuilder {
    Pool::builder().acquire_timeout(Duration::from_secs(30)).domains(domains.iter().map(|cpus| cpus.iter().copied()))
}

/// A domain for each of the first two CPUs of `allowed`; of one alone if that is all.
fn first_two(allowed: &Mask) -> Vec<[usize; 1]> {
    allowed.iter().take(2).map(|&cpu| [cpu]).collect()
}

fn slices(domains: &[[usize; 1]]) -> Vec<&[usize]> {
    domains.iter().map(|domain| &domain[..]).collect()
}

/// What participants of a pool over one CPU each may run on: the caller where it could before, each worker on its own.
fn expected(allowed: &Mask, domains: &[[usize; 1]]) -> Vec<Mask> {
    let workers = domains[1..].iter().map(|&domain| Mask::from(domain));
    std::iter::once(allowed.clone()).chain(workers).collect()
}

fn error(builder: PoolBuilder) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn each_worker_keeps_to_the_cpus_of_its_domain_and_the_caller_where_it_was() {
    let alone = alone();
    let domains = first_two(&alone.before);
    let pool = over(&slices(&domains)).build().unwrap();
    assert_eq!(pool.width().get(), domains.len());
    let expected = expected(&alone.before, &domains);
    for _ in 0..3 {
        assert_eq!(masks_of(&pool), expected);
        Exec::new(&pool, 2).unwrap().for_ranges(64, NonZeroUsize::MIN, |_| {
            assert!(expected.contains(&own_mask()));
        });
    }
    let cpus: Vec<usize> = alone.before.iter().copied().collect();
    let one = over(&[&cpus]).build().unwrap();
    assert_eq!(masks_of(&one), vec![alone.before.clone(); cpus.len()]);
}

#[test]
fn a_job_of_each_domain_runs_there() {
    let alone = alone();
    let domains = first_two(&alone.before);
    let pool = over(&slices(&domains)).build().unwrap();
    let expected = expected(&alone.before, &domains);
    for _ in 0..100 {
        Exec::new(&pool, 2).unwrap().fork(domains.len(), |job, child| {
            assert_eq!(own_mask(), expected[job]);
            child.fork(3, |_, _| assert_eq!(own_mask(), expected[job]));
        });
    }
}

#[test]
fn a_worker_has_its_own_mask_in_another_librarys_code_and_returns_to_its_domain_after_its_share() {
    let alone = alone();
    let domains = first_two(&alone.before);
    let pool = over(&slices(&domains)).build().unwrap();
    for _ in 0..3 {
        Exec::new(&pool, 2).unwrap().fork(domains.len(), |_, child| {
            assert_eq!(child.external(|_| own_mask()), alone.before);
        });
        assert_eq!(masks_of(&pool), expected(&alone.before, &domains));
    }
}

#[test]
fn members_of_a_placed_team_are_pinned_within_their_domain_and_return_to_it() {
    let alone = alone();
    let cpus: Vec<usize> = alone.before.iter().copied().collect();
    for domains in [cpus.chunks(cpus.len()), cpus.chunks(1)] {
        let domains: Vec<&[usize]> = domains.collect();
        let pool = over(&domains).pin_participants(true).build().unwrap();
        let between: Vec<Mask> = masks_of(&pool);
        let seen: Vec<Mutex<Mask>> = cpus.iter().map(|_| Mutex::default()).collect();
        Exec::new(&pool, cpus.len())
            .unwrap()
            .team(|team| team.run(|index, _| *seen[index].lock().unwrap() = own_mask()))
            .unwrap();
        let mut seen: Vec<Mask> = seen.into_iter().map(|mask| mask.into_inner().unwrap()).collect();
        // Of one domain, members that are awake come first.
        seen[1..].sort();
        let own = cpus.iter().skip(1).map(|&cpu| Mask::from([cpu]));
        assert_eq!(seen, std::iter::once(alone.before.clone()).chain(own).collect::<Vec<_>>());
        assert_eq!(masks_of(&pool), between);
    }
}

#[test]
fn workers_leave_their_domain_with_the_pool() {
    let alone = alone();
    let domains = first_two(&alone.before);
    for _ in 0..3 {
        drop(over(&slices(&domains)).build().unwrap());
        let plain = Pool::builder().threads(2).acquire_timeout(Duration::from_secs(30)).build().unwrap();
        assert_eq!(masks_of(&plain), vec![alone.before.clone(); 2]);
        drop(plain);
        assert_eq!(masks_of(&over(&slices(&domains)).build().unwrap()), expected(&alone.before, &domains));
    }
}

#[test]
fn cpus_outside_the_mask_do_not_count_and_are_never_used() {
    let alone = alone();
    let last = Mask::from([*alone.before.last().unwrap()]);
    set_own_mask(&last);
    let all: Vec<usize> = alone.before.iter().copied().chain([5000]).collect();
    let pool = over(&[&all]).build().unwrap();
    assert_eq!(pool.width().get(), 1);
    assert_eq!(pool.domains().unwrap().collect::<Vec<_>>(), [last.iter().copied().collect::<Vec<_>>()]);
    let pool = over(&[&all]).pin_participants(true).lazy(true);
    assert_eq!(error(pool.threads(2)), Error::ThreadsExceedDomains { threads: 2, cpus: 1 }.to_string());
    for outside in alone.before.difference(&last) {
        assert!(error(over(&[&[*outside]])).contains("affinity mask has no CPU of domain 0"));
    }
}

#[test]
fn a_worker_whose_thread_may_not_use_its_domain_stays_where_it_is() {
    let alone = alone();
    let domains = first_two(&alone.before);
    let pool = over(&slices(&domains)).lazy(true).build().unwrap();
    let first = Mask::from(domains[0]);
    set_own_mask(&first);
    assert_eq!(masks_of(&pool), vec![first; domains.len()]);
}

#[test]
fn the_number_of_participants_is_that_of_the_cpus_or_what_is_asked_for() {
    let alone = alone();
    let cpus: Vec<usize> = alone.before.iter().copied().collect();
    let domains = [&cpus[..1], &cpus[1..]];
    let domains = if cpus.len() > 1 { &domains[..] } else { &domains[..1] };
    assert_eq!(over(domains).build().unwrap().width().get(), cpus.len());
    let narrow = over(domains).threads(1).build().unwrap();
    assert_eq!((narrow.width().get(), narrow.domains().unwrap().len()), (1, domains.len()));
    Exec::new(&narrow, 1).unwrap().fork(2, |_, child| assert!(child.is_serial()));
    let threads = cpus.len() + 1;
    assert_eq!(
        error(over(domains).threads(threads)),
        format!(
            "{threads} participants were requested over cache domains of {} usable CPUs; ask for at most one a CPU",
            cpus.len()
        )
    );
    assert_eq!(over(domains).threads(0).build().unwrap_err(), Error::ZeroThreads);
}

#[test]
fn what_are_no_domains_is_refused() {
    let alone = alone();
    let cpu = *alone.before.first().unwrap();
    for (domains, expected) in [
        (vec![], "there are none"),
        (vec![vec![cpu], vec![]], "domain 1 has no CPU"),
        (vec![vec![cpu], vec![cpu]], "is in domains 0 and 1"),
        (vec![vec![cpu], vec![usize::MAX]], "mask has no CPU of domain 1"),
    ] {
        let refused = Pool::builder().domains(domains).build().unwrap_err();
        assert!(matches!(&refused, Error::InvalidDomains(what) if what.contains(expected)), "{refused}");
    }
}

#[cfg(unix)]
#[test]
fn workers_of_a_forked_child_keep_to_the_domains_too() {
    let alone = alone();
    let domains = first_two(&alone.before);
    let pool = over(&slices(&domains)).build().unwrap();
    let expected = expected(&alone.before, &domains);
    assert_eq!(masks_of(&pool), expected);
    // SAFETY: the child uses the pool, which starts threads of its own, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let as_expected = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Exec::new(&pool, 2).unwrap().fork(domains.len(), |job, _| assert_eq!(own_mask(), expected[job]));
            masks_of(&pool) == expected
        }));
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!as_expected.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process that nobody else waits for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
