//! Cache domains: sets of CPUs that share a cache, and which participants count to which.
//!
//! Participants fill the domains in order, so those of a domain, and its workers, have consecutive numbers. The calling thread
//! is participant 0 and counts to the first domain, wherever it runs.

use crate::error::Error;
use crate::pin::{CpuSet, Seat};
use std::ops::Range;

/// Some consecutive domains of a pool: those whose workers a token may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    first: u16,
    end: u16,
}

impl Reach {
    /// Of a pool without domains: every worker.
    pub(crate) const ANYWHERE: Reach = Reach { first: 0, end: 0 };

    /// Whether the pool has no domains.
    #[inline]
    pub(crate) fn is_anywhere(self) -> bool {
        self.end == 0
    }

    /// Whether there are several domains to cut at.
    #[inline]
    pub(crate) fn spans(self) -> bool {
        self.end - self.first > 1
    }

    pub(crate) fn domains(self) -> Range<usize> {
        usize::from(self.first)..usize::from(self.end)
    }

    /// Some of its domains, counted from its first.
    pub(crate) fn narrowed(self, domains: Range<usize>) -> Reach {
        Reach { first: self.first + domains.start as u16, end: self.first + domains.end as u16 }
    }

    pub(crate) fn only(domain: usize) -> Reach {
        Reach { first: domain as u16, end: domain as u16 + 1 }
    }
}

/// The domains of one pool.
#[derive(Debug)]
pub(crate) struct Domains {
    /// The CPUs of each that the process may use, in order.
    cpus: Box<[Box<[usize]>]>,
    /// The first participant after those of each.
    ends: Box<[usize]>,
}

impl Domains {
    /// Lays `threads` participants over the `given` sets of CPUs; by default as many as there are CPUs.
    ///
    /// CPUs outside of the calling thread's affinity mask do not count, where there are masks.
    pub(crate) fn new(given: Vec<Vec<usize>>, threads: Option<usize>) -> Result<Domains, Error> {
        let usable = CpuSet::of_this_thread();
        let cpus = checked(given, |cpu| usable.as_ref().is_none_or(|usable| usable.has(cpu)))?;
        let most = cpus.iter().map(|domain| domain.len()).sum();
        let threads = threads.unwrap_or(most);
        if threads > most {
            return Err(Error::ThreadsExceedDomains { threads, cpus: most });
        }
        Ok(Domains::laid(cpus, threads))
    }

    fn laid(cpus: Box<[Box<[usize]>]>, threads: usize) -> Domains {
        let mut end = 0;
        let ends = cpus.iter().map(|domain| {
            end = threads.min(end + domain.len());
            end
        });
        Domains { ends: ends.collect(), cpus }
    }

    /// Domains of so many CPUs each, which this machine need not have.
    #[cfg(test)]
    pub(crate) fn of_sizes(sizes: &[usize], threads: usize) -> Domains {
        let mut cpu = 0;
        let cpus = sizes.iter().map(|&size| {
            cpu += size;
            (cpu - size..cpu).collect()
        });
        Domains::laid(cpus.collect(), threads)
    }

    /// Participants, the calling thread included.
    pub(crate) fn width(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The CPUs of each domain.
    pub(crate) fn cpus(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.cpus.iter().map(|domain| &**domain)
    }

    /// Every domain that has participants.
    pub(crate) fn reach(&self) -> Reach {
        let last = self.ends.partition_point(|&end| end < self.width());
        Reach { first: 0, end: last as u16 + 1 }
    }

    fn participants(&self, domain: usize) -> Range<usize> {
        let start = domain.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[domain]
    }

    /// The numbers of a domain's workers.
    pub(crate) fn workers(&self, domain: usize) -> Range<usize> {
        let participants = self.participants(domain);
        participants.start.saturating_sub(1)..participants.end.saturating_sub(1)
    }

    /// The domain that a worker belongs to.
    pub(crate) fn of_worker(&self, id: usize) -> usize {
        self.ends.partition_point(|&end| end <= id + 1)
    }

    /// The CPUs that a worker keeps to, and its number among its domain's participants.
    pub(crate) fn seat(&self, id: usize) -> Seat {
        let domain = self.of_worker(id);
        Seat { cpus: CpuSet::of(&self.cpus[domain]), number: id + 1 - self.participants(domain).start }
    }

    /// How many slots of each domain a token of `budget` slots has: they fill its domains in order.
    pub(crate) fn slots(&self, reach: Reach, budget: usize) -> impl Iterator<Item = usize> + Clone + Sync + '_ {
        let mut left = budget;
        reach.domains().map_while(move |domain| {
            let slots = self.participants(domain).len().min(left);
            left -= slots;
            (slots > 0).then_some(slots)
        })
    }

    /// How many slots of each domain a team has whose leader counts to domain `home`: members of one domain stand together.
    pub(crate) fn runs<'a>(
        &'a self,
        home: usize,
        members: &'a [u16],
    ) -> impl Iterator<Item = usize> + Clone + Sync + 'a {
        let domain = move |slot: usize| match slot.checked_sub(1) {
            None => home,
            Some(member) => self.of_worker(usize::from(members[member])),
        };
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            while next <= members.len() && domain(next) == domain(start) {
                next += 1;
            }
            (next > start).then_some(next - start)
        })
    }
}

/// The usable CPUs of each of the `given` domains, in order, if these are domains.
fn checked(given: Vec<Vec<usize>>, usable: impl Fn(usize) -> bool) -> Result<Box<[Box<[usize]>]>, Error> {
    let refuse = |what: String| Err(Error::InvalidDomains(what));
    if given.is_empty() {
        return refuse("there are none; give at least one, or leave them out".to_owned());
    }
    if given.len() > usize::from(u16::MAX) {
        return refuse(format!("there are {}, and a pool has at most {}", given.len(), u16::MAX));
    }
    let mut seen = std::collections::HashMap::new();
    let mut cpus = Vec::with_capacity(given.len());
    for (number, mut domain) in given.into_iter().enumerate() {
        domain.sort_unstable();
        domain.dedup();
        if domain.is_empty() {
            return refuse(format!("domain {number} has no CPU; leave it out"));
        }
        for &cpu in &domain {
            if let Some(other) = seen.insert(cpu, number) {
                return refuse(format!("CPU {cpu} is in domains {other} and {number}; put it in one"));
            }
        }
        domain.retain(|&cpu| usable(cpu));
        if domain.is_empty() {
            return refuse(format!(
                "the calling thread's affinity mask has no CPU of domain {number}; leave the domain out, or change the mask"
            ));
        }
        cpus.push(domain.into_boxed_slice());
    }
    Ok(cpus.into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn participants_fill_the_domains_in_order_and_the_caller_is_the_first() {
        let laid = Domains::of_sizes(&[1, 3, 2, 4], 5);
        assert_eq!(laid.reach().domains(), 0..3);
        assert_eq!(laid.reach().domains().map(|at| laid.workers(at)).collect::<Vec<_>>(), [0..0, 0..3, 3..4]);
        assert_eq!((0..4).map(|id| laid.of_worker(id)).collect::<Vec<_>>(), [1, 1, 1, 2]);
        assert_eq!((0..4).map(|id| laid.seat(id).number).collect::<Vec<_>>(), [0, 1, 2, 0]);
        assert_eq!(laid.workers(3), 4..4);
        assert_eq!(Domains::of_sizes(&[2, 2], 2).reach().domains(), 0..1);
    }

    #[test]
    fn the_slots_of_a_token_fill_its_domains_in_order() {
        let laid = Domains::of_sizes(&[2, 3, 4], 9);
        let slots = |reach, budget| laid.slots(reach, budget).collect::<Vec<_>>();
        assert_eq!(slots(laid.reach(), 9), [2, 3, 4]);
        assert_eq!(slots(laid.reach(), 6), [2, 3, 1]);
        assert_eq!(slots(laid.reach(), 2), [2]);
        assert_eq!(slots(laid.reach().narrowed(1..3), 5), [3, 2]);
    }

    #[test]
    fn the_slots_of_a_team_are_counted_where_its_members_are() {
        let laid = Domains::of_sizes(&[3, 3, 3], 9);
        let runs = |home, members: &[u16]| laid.runs(home, members).collect::<Vec<_>>();
        assert_eq!(runs(0, &[0, 1, 2, 3, 7]), [3, 2, 1]);
        assert_eq!(runs(0, &[3, 4]), [1, 2]);
        assert_eq!(runs(2, &[7, 0]), [2, 1]);
        assert_eq!(runs(0, &[]), [1]);
    }

    #[test]
    fn cpus_that_the_process_may_not_use_do_not_count() {
        let cpus = checked(vec![vec![5, 4, 4], vec![9, 8]], |cpu| cpu != 5).unwrap();
        assert_eq!(cpus.iter().map(|domain| domain.to_vec()).collect::<Vec<_>>(), [vec![4], vec![8, 9]]);
    }

    #[test]
    fn what_are_no_domains_is_said_with_the_way_out() {
        for (given, expected) in [
            (vec![], "there are none; give at least one"),
            (vec![vec![0], vec![]], "domain 1 has no CPU; leave it out"),
            (vec![vec![0, 1], vec![2, 1]], "CPU 1 is in domains 0 and 1; put it in one"),
            (vec![vec![0], vec![70]], "mask has no CPU of domain 1; leave the domain out"),
        ] {
            let refused = checked(given, |cpu| cpu < 64).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
