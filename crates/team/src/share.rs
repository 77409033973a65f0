//! How a budget or a team is cut into parts.

use std::ops::Range;

/// Sizes of the parts, in order.
#[derive(Clone, Copy)]
pub(crate) enum Shares<'a> {
    /// `total` in `count` parts that differ by at most one, the larger ones first.
    Even { total: usize, count: usize },
    /// As given.
    Sized(&'a [usize]),
}

impl<'a> Shares<'a> {
    pub(crate) fn even(total: usize, count: usize) -> Self {
        Shares::Even { total, count }
    }

    pub(crate) fn sized(sizes: &'a [usize]) -> Self {
        Shares::Sized(sizes)
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Shares::Even { count, .. } => *count,
            Shares::Sized(sizes) => sizes.len(),
        }
    }

    pub(crate) fn size(&self, part: usize) -> usize {
        match self {
            Shares::Even { total, count } => total / count + usize::from(part < total % count),
            Shares::Sized(sizes) => sizes[part],
        }
    }

    /// The sum of the sizes before `part`.
    pub(crate) fn start(&self, part: usize) -> usize {
        match self {
            Shares::Even { total, count } => part * (total / count) + part.min(total % count),
            Shares::Sized(sizes) => sizes[..part].iter().sum(),
        }
    }
}

/// Some children of a fork that share the slots of one domain, or one child that has slots of several.
#[derive(Clone)]
pub(crate) struct Part<'a> {
    /// Numbers of the children.
    pub(crate) jobs: Range<usize>,
    /// How its slots are cut among them.
    pub(crate) shares: Shares<'a>,
    /// Its slots, among all.
    pub(crate) slots: Range<usize>,
    /// Its domains, counted from the first one that has slots.
    pub(crate) domains: Range<usize>,
}

/// Cuts slots at the boundaries of domains first: `domains` says how many slots lie in each, in order, and `wanted` which
/// children there are. `None` when that makes fewer than two parts, or the children do not fit.
///
/// Even children: each domain gets at least one, in proportion to its slots, and they share its slots evenly; with
/// fewer children than domains, each gets whole domains. Children of given sizes: in order, each has its slots in the first
/// domain after its predecessors' with so many left; one that is larger than a domain starts with a domain of its own.
pub(crate) fn parts<'a, D>(domains: D, wanted: Shares<'a>) -> Option<impl Iterator<Item = Part<'a>> + Clone + Sync>
where
    D: Iterator<Item = usize> + Clone + Sync,
{
    let (count, total) = domains.clone().fold((0, 0), |(count, total), slots| (count + 1, total + slots));
    let mut rest = domains.enumerate();
    let mut slot = 0;
    let mut job = 0;
    let parts = std::iter::from_fn(move || {
        let (number, first) = rest.next().filter(|_| job < wanted.count())?;
        let (start, before) = (slot, job);
        slot += first;
        let mut last = number;
        let used = match wanted {
            Shares::Even { count: tasks, .. } if tasks >= count => {
                // One more job for each domain than its part of those beyond one a domain, which is at most its other slots.
                let further =
                    |slots: usize, domains: usize| (slots - domains) * (tasks - count) / (total - count).max(1);
                job = number + 1 + further(slot, number + 1);
                slot - start
            }
            Shares::Even { count: tasks, .. } => {
                job += 1;
                while last + 1 < job * count / tasks {
                    last += 1;
                    slot += rest.next()?.1;
                }
                slot - start
            }
            Shares::Sized(sizes) => {
                let mut used = sizes[job];
                job += 1;
                while used > slot - start {
                    last += 1;
                    slot += rest.next()?.1;
                }
                while number == last && job < sizes.len() && used + sizes[job] <= slot - start {
                    used += sizes[job];
                    job += 1;
                }
                used
            }
        };
        let shares = match wanted {
            Shares::Even { .. } => Shares::even(used, job - before),
            Shares::Sized(sizes) => Shares::sized(&sizes[before..job]),
        };
        Some(Part { jobs: before..job, shares, slots: start..start + used, domains: number..last + 1 })
    });
    let (parted, placed) = parts.clone().fold((0, 0), |(parted, _), part| (parted + 1, part.jobs.end));
    (parted > 1 && placed == wanted.count()).then_some(parts)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of each part: its children's sizes and its domains.
    fn cut(domains: &[usize], wanted: Shares<'_>) -> Option<Vec<(Vec<usize>, Range<usize>)>> {
        let sizes = |part: &Part<'_>| (0..part.shares.count()).map(|job| part.shares.size(job)).collect();
        Some(parts(domains.iter().copied(), wanted)?.map(|part| (sizes(&part), part.domains)).collect())
    }

    #[test]
    fn a_fork_gives_each_domain_children_in_proportion_to_its_slots() {
        let even = |domains: &[usize], tasks| cut(domains, Shares::even(domains.iter().sum(), tasks)).unwrap();
        assert_eq!(even(&[4, 4], 2), [(vec![4], 0..1), (vec![4], 1..2)]);
        assert_eq!(even(&[4, 4], 3), [(vec![4], 0..1), (vec![2, 2], 1..2)]);
        assert_eq!(even(&[2, 6], 4), [(vec![2], 0..1), (vec![2, 2, 2], 1..2)]);
        assert_eq!(even(&[1, 1, 1], 3), [(vec![1], 0..1), (vec![1], 1..2), (vec![1], 2..3)]);
        assert_eq!(even(&[4, 4, 4, 2], 2), [(vec![8], 0..2), (vec![6], 2..4)]);
        assert_eq!(even(&[4, 4, 4], 2), [(vec![4], 0..1), (vec![8], 1..3)]);
    }

    #[test]
    fn children_of_given_sizes_take_domains_in_order() {
        let sized = |domains: &[usize], sizes: &[usize]| cut(domains, Shares::sized(sizes));
        assert_eq!(sized(&[4, 4], &[3, 1, 4]).unwrap(), [(vec![3, 1], 0..1), (vec![4], 1..2)]);
        assert_eq!(sized(&[4, 4], &[3, 2, 2]).unwrap(), [(vec![3], 0..1), (vec![2, 2], 1..2)]);
        assert_eq!(sized(&[2, 2, 2], &[1, 3]).unwrap(), [(vec![1], 0..1), (vec![3], 1..3)]);
        assert_eq!(sized(&[4, 4], &[3, 3, 2]), None);
        assert_eq!(sized(&[4, 4], &[1, 1]), None);
        assert_eq!(sized(&[8], &[4, 4]), None);
    }

    proptest! {
        #[test]
        fn parts_cover_children_and_slots_once_and_keep_to_one_domain_when_the_children_suffice(
            domains in prop::collection::vec(1usize..9, 2..9),
            tasks in 1usize..70,
        ) {
            let total: usize = domains.iter().sum();
            let tasks = tasks.min(total);
            let Some(parts) = parts(domains.iter().copied(), Shares::even(total, tasks)) else {
                prop_assert_eq!(tasks, 1);
                return Ok(());
            };
            let (mut job, mut slot, mut domain) = (0, 0, 0);
            for part in parts {
                prop_assert_eq!((part.jobs.start, part.slots.start, part.domains.start), (job, slot, domain));
                (job, slot, domain) = (part.jobs.end, part.slots.end, part.domains.end);
                prop_assert_eq!(part.slots.len(), domains[part.domains.clone()].iter().sum::<usize>());
                prop_assert_eq!(part.shares.count(), part.jobs.len());
                let sizes: Vec<usize> = (0..part.jobs.len()).map(|job| part.shares.size(job)).collect();
                prop_assert!(sizes.iter().all(|&size| size > 0));
                prop_assert_eq!(sizes.iter().sum::<usize>(), part.slots.len());
                prop_assert!(part.domains.len() == 1 || part.jobs.len() == 1 && tasks < domains.len());
            }
            prop_assert_eq!((job, slot, domain), (tasks, total, domains.len()));
        }

        #[test]
        fn children_of_given_sizes_never_share_a_slot_and_have_one_domain_if_they_fit_one(
            domains in prop::collection::vec(1usize..9, 2..9),
            sizes in prop::collection::vec(1usize..9, 1..9),
        ) {
            let first: Vec<usize> = domains.iter().scan(0, |end, &slots| {
                *end += slots;
                Some(*end - slots)
            }).collect();
            let Some(parts) = parts(domains.iter().copied(), Shares::sized(&sizes)) else { return Ok(()) };
            let (mut job, mut slot, mut domain) = (0, 0, 0);
            for part in parts {
                prop_assert_eq!(part.jobs.start, job);
                prop_assert!(part.slots.start >= slot && part.domains.start == domain);
                prop_assert_eq!(part.slots.start, first[part.domains.start]);
                (job, slot, domain) = (part.jobs.end, part.slots.end, part.domains.end);
                prop_assert!(part.slots.end <= first[domain - 1] + domains[domain - 1]);
                prop_assert_eq!(part.slots.len(), sizes[part.jobs.clone()].iter().sum::<usize>());
                prop_assert!(part.domains.len() == 1 || sizes[part.jobs.start] > domains[part.domains.start]);
            }
            prop_assert_eq!(job, sizes.len());
        }
    }

    #[test]
    fn even_shares_conserve_the_total_and_differ_by_at_most_one() {
        for total in 1..40 {
            for count in 1..=total {
                let shares = Shares::even(total, count);
                let sizes: Vec<usize> = (0..count).map(|part| shares.size(part)).collect();
                assert_eq!(sizes.iter().sum::<usize>(), total);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
                for part in 0..count {
                    assert_eq!(shares.start(part), sizes[..part].iter().sum::<usize>());
                }
            }
        }
    }
}
