//! The fork of a token whose slots lie in several cache domains.

use super::{erase_share, Exec, Held, Place};
use crate::domains::Reach;
use crate::free::Claim;
use crate::inner::Inner;
use crate::section::Leader;
use crate::share::{parts, Part, Shares};
use crate::worker;
use std::num::NonZeroUsize;

/// The job of a fork, for code that is not compiled anew for each.
type JobFn<'a> = &'a (dyn Fn(usize, Exec<'_>) + Sync);

impl Exec<'_> {
    /// Forks domain by domain; `false` when nothing ran, because the slots or the children do not lie so, or a domain has no
    /// free worker now.
    #[inline]
    pub(super) fn forks_over_domains<F>(&self, shares: Shares<'_>, f: &F) -> bool
    where
        F: Fn(usize, Exec<'_>) + Sync,
    {
        self.reach.spans() && shares.count() > 1 && self.fork_over_domains(shares, f)
    }

    #[cold]
    #[inline(never)]
    fn fork_over_domains(&self, shares: Shares<'_>, f: JobFn<'_>) -> bool {
        let (Place::Pool(pool) | Place::Team(pool, _)) = self.place else { return false };
        let inner = pool.running();
        let Some(domains) = &inner.domains else { return false };
        let home = inner.own_domain(domains);
        let mut leads = Claim::empty();
        if let Place::Team(_, members) = self.place {
            let Some(parts) = parts(domains.runs(home, members), shares) else { return false };
            parts.clone().skip(1).for_each(|part| leads.push(usize::from(members[part.slots.start - 1])));
            self.lead_parts(inner, leads.ids(), 0, parts, f);
            return true;
        }
        // A gang in a hook of a worker could wait for that worker itself.
        if worker::in_hook_of(inner) {
            return false;
        }
        let Some(parts) = parts(domains.slots(self.reach, self.budget.get()), shares) else { return false };
        let reach = |part: &Part<'_>| self.reach.narrowed(part.domains.clone());
        let own = parts.clone().position(|part| reach(&part).domains().contains(&home)).unwrap_or(0);
        for (number, part) in parts.clone().enumerate().filter(|&(number, _)| number != own) {
            inner.claim(Reach::only(reach(&part).domains().start), leads.ids().len() + 1, &mut leads);
            if leads.ids().len() < number + usize::from(number < own) {
                inner.release(leads.ids());
                return false;
            }
        }
        let held = Held { inner, ids: leads.ids(), epoch: inner.epoch() };
        self.lead_parts(inner, held.ids, own, parts, f);
        true
    }

    /// One gang section, in which the calling thread forks part number `own` and each of `leads` another.
    ///
    /// A gang, not jobs that who is early takes from others: they would take them to their own domain. Each lead is claimed,
    /// so waiting for it is safe.
    fn lead_parts<'a>(
        &self,
        inner: &Inner,
        leads: &[u16],
        own: usize,
        parts: impl Iterator<Item = Part<'a>> + Clone + Sync,
        f: JobFn<'_>,
    ) {
        let (place, reach, hook, wait, estimate) = (self.place, self.reach, self.hook, self.wait, self.estimate);
        let ticket = &self.ticket;
        let _leads = ticket.lead();
        let share = move |index: usize, _size: usize| {
            let number = match index.checked_sub(1) {
                None => own,
                Some(other) => other + usize::from(other >= own),
            };
            let Some(part) = parts.clone().nth(number) else { return };
            let budget = NonZeroUsize::new(part.slots.len()).unwrap_or(NonZeroUsize::MIN);
            let (place, reach) = match place {
                Place::Team(pool, members) => {
                    (Place::Team(pool, &members[part.slots.start..part.slots.end - 1]), reach)
                }
                place => (place, reach.narrowed(part.domains)),
            };
            let ticket = ticket.derive("a domain", budget);
            let exec = Exec { place, budget, reach, fork_child: true, hook, wait, estimate, ticket, ..Exec::serial() };
            let first = part.jobs.start;
            exec.fork_shares(part.jobs.len(), part.shares, &|job, child: Exec<'_>| f(first + job, child));
        };
        let (call, data) = erase_share(&share);
        let leader = Leader { inner, hook, wait, estimate: 0 };
        // SAFETY: `share` outlives the call and is `Sync`; `leads` are claimed by this token, and there are at least two parts.
        unsafe { leader.gang(leads, call, data) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::domains::Domains;
    use crate::pool::Pool;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::time::Duration;

    /// A pool over domains of so many participants each, whether or not the machine has such.
    fn pool(sizes: &[usize]) -> Pool {
        let domains = Domains::of_sizes(sizes, sizes.iter().sum());
        Pool::builder().acquire_timeout(Duration::from_secs(30)).build_over(Some(domains)).unwrap()
    }

    fn root(pool: &Pool) -> Exec<'_> {
        Exec::new(pool, pool.width().get()).unwrap()
    }

    /// The domain that the calling thread counts to.
    fn here(pool: &Pool) -> usize {
        pool.inner().own_domain(pool.inner().domains.as_ref().unwrap())
    }

    /// What was noted, once each.
    struct Seen<T>(Mutex<BTreeSet<T>>);

    impl<T: Ord> Seen<T> {
        fn new() -> Self {
            Seen(Mutex::default())
        }

        fn note(&self, what: T) {
            self.0.lock().unwrap().insert(what);
        }

        fn list(self) -> Vec<T> {
            self.0.into_inner().unwrap().into_iter().collect()
        }
    }

    /// Runs sections of every kind on `exec`, two levels deep, and notes the domains in which they run.
    fn work(pool: &Pool, mut exec: Exec<'_>, note: &(dyn Fn(usize) + Sync)) {
        note(here(pool));
        exec.reborrow().for_ranges(64, NonZeroUsize::MIN, |_| note(here(pool)));
        exec.reborrow().fork(2, |_, mut child| {
            note(here(pool));
            child.reborrow().for_ranges(16, NonZeroUsize::MIN, |_| note(here(pool)));
            child.fork(100, |_, _| note(here(pool)));
        });
        exec.team(|mut team| {
            team.reborrow().run(|_, _| note(here(pool)));
            team.fork(2, |_, mut child| child.exec().fork(2, |_, _| note(here(pool))));
        })
        .unwrap();
    }

    #[test]
    fn a_child_of_a_fork_over_domains_runs_in_one_domain_at_every_depth() {
        let pool = pool(&[3, 4, 2]);
        for _ in 0..50 {
            let (seen, budgets) = (Seen::new(), Seen::new());
            root(&pool).fork(3, |job, child| {
                budgets.note((job, child.budget().get()));
                work(&pool, child, &|domain| seen.note((job, domain)));
            });
            assert_eq!(seen.list(), [(0, 0), (1, 1), (2, 2)]);
            assert_eq!(budgets.list(), [(0, 3), (1, 4), (2, 2)]);
        }
    }

    #[test]
    fn several_children_of_a_domain_share_its_slots_and_stay_there() {
        let pool = pool(&[4, 4]);
        for _ in 0..50 {
            let seen = Seen::new();
            root(&pool).fork(4, |job, child| {
                assert_eq!(child.budget().get(), 2);
                child.fork(2, |_, _| seen.note((job, here(&pool))));
            });
            assert_eq!(seen.list(), [(0, 0), (1, 0), (2, 1), (3, 1)]);
        }
    }

    #[test]
    fn a_child_with_slots_of_several_domains_is_cut_at_them_when_it_forks() {
        let pool = pool(&[2, 2, 2, 2]);
        for _ in 0..50 {
            let seen = Seen::new();
            root(&pool).fork(2, |half, child| {
                assert_eq!(child.budget().get(), 4);
                child.fork(2, |job, child| {
                    work(&pool, child, &|domain| seen.note((half, job, domain)));
                });
            });
            assert_eq!(seen.list(), [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)]);
        }
    }

    #[test]
    fn children_of_given_sizes_keep_to_the_domains_that_they_fit() {
        let pool = pool(&[3, 3, 3]);
        let seen = Seen::new();
        root(&pool)
            .fork_sized(&[2, 1, 4], |job, child| {
                assert_eq!(child.budget().get(), [2, 1, 4][job]);
                work(&pool, child, &|domain| seen.note((job, domain)));
            })
            .unwrap();
        let seen = seen.list();
        assert!(seen.iter().all(|&(job, domain)| (job < 2) == (domain == 0)), "{seen:?}");
        assert!(seen.contains(&(0, 0)) && seen.contains(&(1, 0)) && seen.contains(&(2, 1)));
    }

    #[test]
    fn a_team_is_cut_where_its_members_are() {
        let pool = pool(&[2, 3]);
        for _ in 0..50 {
            let (children, jobs) = (Seen::new(), Seen::new());
            root(&pool)
                .team(|mut team| {
                    team.reborrow().fork(2, |child, mut team| {
                        assert_eq!(team.size().get(), [2, 3][child]);
                        team.reborrow().run(|_, _| children.note((child, here(&pool))));
                        work(&pool, team.exec(), &|domain| children.note((child, domain)));
                    });
                    team.exec().fork(2, |job, child| {
                        assert_eq!((child.budget().get(), child.carries_team()), ([2, 3][job], true));
                        work(&pool, child, &|domain| jobs.note((job, domain)));
                    });
                })
                .unwrap();
            assert_eq!((children.list(), jobs.list()), (vec![(0, 0), (1, 1)], vec![(0, 0), (1, 1)]));
        }
        let team = pool.into_team(5).unwrap();
        let seen = Seen::new();
        team.exec(5).fork(2, |job, child| work(team.pool(), child, &|domain| seen.note((job, domain))));
        assert_eq!(seen.list(), [(0, 0), (1, 1)]);
    }

    #[test]
    fn a_section_takes_workers_of_its_leaders_domain_first() {
        let pool = pool(&[3, 3]);
        let seen = Seen::new();
        root(&pool).limit(NonZeroUsize::new(3).unwrap()).broadcast(|_| seen.note(here(&pool))).unwrap();
        assert_eq!(seen.list(), [0]);
        let seen = Seen::new();
        root(&pool).fork(2, |job, _| {
            // A root token that a worker mints.
            let mut narrow = Exec::new(&pool, 2).unwrap();
            narrow.team(|team| team.run(|_, _| seen.note((job, here(&pool))))).unwrap();
        });
        assert_eq!(seen.list(), [(0, 0), (1, 1)]);
    }

    #[test]
    fn gangs_of_the_whole_pool_span_the_domains() {
        let pool = pool(&[1, 2, 3]);
        let seen = Seen::new();
        let workers = Seen::new();
        root(&pool)
            .broadcast(|index| {
                seen.note((index, here(&pool)));
                workers.note(worker::own_index(pool.inner()));
            })
            .unwrap();
        assert_eq!(seen.list(), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 2)]);
        assert_eq!(workers.list(), [None, Some(0), Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(root(&pool).team(|team| team.size().get()).unwrap(), 6);
    }

    #[test]
    fn a_fork_does_not_wait_for_a_domain_that_others_use() {
        let pool = pool(&[2, 2]);
        let inner = pool.running();
        let mut taken = Claim::empty();
        inner.claim(Reach::only(1), 2, &mut taken);
        let jobs = Seen::new();
        root(&pool).fork(2, |job, child| jobs.note((job, child.budget().get(), here(&pool))));
        inner.release(taken.ids());
        assert_eq!(jobs.list(), [(0, 2, 0), (1, 2, 0)]);
    }

    #[test]
    fn a_panic_in_another_domain_reaches_the_caller_and_the_pool_goes_on() {
        let pool = pool(&[2, 2]);
        for bad in 0..2 {
            let forked = std::panic::AssertUnwindSafe(|| {
                root(&pool).fork(2, |job, _| assert!(job != bad, "expected"));
            });
            assert!(std::panic::catch_unwind(forked).is_err());
        }
        let jobs = Seen::new();
        root(&pool).fork(4, |job, _| jobs.note(job));
        assert_eq!((jobs.list(), pool.inner().free.count()), (vec![0, 1, 2, 3], 3));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_fork_over_any_domains_runs_each_job_once_with_slots_that_add_up(
            sizes in prop::collection::vec(1usize..4, 1..5),
            budget in 1usize..16,
            jobs in 1usize..20,
        ) {
            let pool = pool(&sizes);
            let exec = Exec::new(&pool, budget).unwrap();
            let budget = exec.budget().get();
            let ran = Mutex::new(Vec::new());
            exec.fork(jobs, |job, child| ran.lock().unwrap().push((job, child.budget().get())));
            let mut ran = ran.into_inner().unwrap();
            ran.sort_unstable();
            prop_assert!(ran.iter().map(|&(job, _)| job).eq(0..jobs));
            let slots: usize = ran.iter().map(|&(_, slots)| slots).sum();
            prop_assert_eq!(slots, budget.max(jobs));
            prop_assert_eq!(pool.inner().free.count(), pool.width().get() - 1);
        }
    }
}
