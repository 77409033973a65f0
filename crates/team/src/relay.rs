//! Wide sections: members look for chunks near them only, and beyond [`FAN`] members captains post for the leader.
//!
//! Transfers of posted lines overlap, but with a hundred members the posts are the section all the same. So the section's
//! list is cut into groups; the leader posts only to the first member of each, the captain, with the work of the whole group. A captain keeps its own part when it enters and posts the rest, to captains of smaller groups if
//! there are many.
//!
//! What was not relayed yet is still in the captain's word, so taking chunks from there revokes a whole group, and nobody
//! waits for a captain that has not entered.

use crate::inner::Inner;
use crate::parking::Parking;
use crate::share::Shares;
use crate::slot::{Job, Post};
use crate::sync::mutated;
use crate::word::Word;

/// The most members that one participant posts to. A relay costs a transfer and an entry more, in which a leader posts to
/// about thirty members itself (`benchmarks/scaling`).
pub(crate) const FAN: usize = 32;

/// Beyond so many members a section is wide: with one chunk each, a member looks for chunks at so many others.
const NEAR: usize = 8;

/// Whether members must know their positions in the list, to look near them and to relay.
#[inline(always)]
pub(crate) fn is_wide(members: &[u16]) -> bool {
    members.len() > fan().min(NEAR)
}

/// The same, where a model can change it: models have two workers.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn fan() -> usize {
    FAN
}

#[cfg(loom)]
std::thread_local! {
    /// The threads of a model share one thread of the system.
    pub(crate) static MODEL_FAN: std::cell::Cell<usize> = const { std::cell::Cell::new(FAN) };
}

#[cfg(loom)]
pub(crate) fn fan() -> usize {
    MODEL_FAN.with(std::cell::Cell::get)
}

/// A captain and the members that it answers for: `count` positions of the section's member list from `first` on.
///
/// Groups of groups stand after their captain, so whoever goes through the list in order meets every participant after
/// the one that posts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// Bits of a position and of a count in [`Group::packed`].
const FIELD: u32 = 10;

impl Group {
    /// The group of a member that the leader of a small section posts to.
    pub(crate) const NONE: Group = Group { first: 0, count: 0 };

    /// Every member of a section.
    pub(crate) fn all(members: &[u16]) -> Self {
        Group { first: 0, count: members.len() }
    }

    /// Whether the section is relayed.
    pub(crate) fn is_some(self) -> bool {
        self.count > 0
    }

    /// Whether the first member posts to others.
    pub(crate) fn relays(self) -> bool {
        self.count > 1
    }

    /// The group without its captain.
    fn below(self) -> Self {
        Group { first: self.first + 1, count: self.count - 1 }
    }

    fn end(self) -> usize {
        self.first + self.count
    }

    /// The groups that one participant posts this one's work to.
    fn parts(self) -> impl Iterator<Item = Group> {
        let shares = Shares::even(self.count, self.count.min(fan()));
        (0..shares.count()).map(move |part| Group { first: self.first + shares.start(part), count: shares.size(part) })
    }

    /// The members that a captain answers for.
    pub(crate) fn others(self, members: &[u16]) -> &[u16] {
        &members[self.first + 1..self.end()]
    }

    /// Where the captain looks for chunks, its own group first, then round the list: at everybody when participants have
    /// `several` chunks each, else at its group and the next few, so that an empty section of many does not cost each a
    /// look at all.
    pub(crate) fn reach<'m>(self, members: &'m [u16], several: bool) -> impl Iterator<Item = u16> + 'm {
        let others = members.len() - 1;
        let reach = if several { others } else { others.min(fan().min(NEAR).max(self.count - 1)) };
        let (before, after) = members.split_at(self.first);
        after[1..].iter().chain(before).copied().take(reach)
    }

    /// In the upper bits of a word whose lowest ten have another use.
    pub(crate) fn packed(self) -> usize {
        (self.first | self.count << FIELD) << FIELD
    }

    pub(crate) fn unpacked(word: usize) -> Self {
        let field = |at: u32| word >> at & ((1 << FIELD) - 1);
        Group { first: field(FIELD), count: field(2 * FIELD) }
    }
}

/// The leader posts a section's chunks, its own first `chunks.size(0)` excepted, to the captains.
#[inline(never)]
pub(crate) fn post_chunks(inner: &Inner, members: &[u16], job: &Job, chunks: &Shares<'_>) {
    post_ranges(inner, members, Group::all(members), job, |position| chunks.start(position + 1));
}

/// A captain that entered a claimed section with `chunk` posts its group's chunks. Returns its word as it stands then.
pub(crate) fn relay_chunks(inner: &Inner, members: &[u16], own: &Post, job: &Job, chunk: usize) -> Word {
    let group = job.group;
    let (after, rest) = own.cede(|left| Shares::even(left, group.count).size(0));
    if !rest.is_empty() {
        // The captain has its part; the others share the rest by the same rule as all of it.
        let shares = Shares::even(rest.end - chunk, group.count);
        post_ranges(inner, members, group.below(), job, |position| chunk + shares.start(position - group.first));
    }
    after
}

fn post_ranges(inner: &Inner, members: &[u16], group: Group, job: &Job, first: impl Fn(usize) -> usize) {
    for part in group.parts() {
        let word = Word::range(first(part.first), first(part.end()));
        // Thieves may have left fewer chunks than members.
        if !word.is_empty() {
            inner.slots[usize::from(members[part.first])].post.post(&Job { group: part, ..*job }, word);
        }
    }
}

/// The leader of a gang posts to the captains.
#[inline(never)]
pub(crate) fn post_gang(inner: &Inner, members: &[u16], job: &Job) {
    post_shares(inner, members, Group::all(members), job);
}

/// A captain of a gang posts to its group, and wakes one of it if some sleep; as a leader does, and for the same reasons.
pub(crate) fn relay_gang(inner: &Inner, members: &[u16], job: &Job) -> usize {
    post_shares(inner, members, job.group.below(), job);
    Parking::post_fence();
    let others = job.group.others(members);
    if mutated!(SkipRelayLook) || !inner.parking.any_parked(others) {
        return 0;
    }
    inner.wake_some(others, 1)
}

fn post_shares(inner: &Inner, members: &[u16], group: Group, job: &Job) {
    for part in group.parts() {
        let word = Word::gang(part.first + 1, members.len() + 1);
        inner.slots[usize::from(members[part.first])].post.post(&Job { group: part, ..*job }, word);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::WaitPolicy;
    use crate::sync::Ordering;
    use std::time::Duration;

    /// Every member that is posted to below `group`, in the order of the list.
    fn reached(group: Group, posts: &mut Vec<usize>) {
        let parts: Vec<Group> = group.parts().collect();
        assert!(parts.len() <= FAN);
        for part in parts {
            posts.push(part.first);
            if part.relays() {
                reached(part.below(), posts);
            }
        }
    }

    #[test]
    fn every_member_of_any_section_is_posted_to_once_after_its_captain() {
        for count in FAN + 1..1024 {
            let mut posts = Vec::new();
            reached(Group { first: 0, count }, &mut posts);
            assert_eq!(posts, (0..count).collect::<Vec<_>>());
        }
    }

    /// A pool without threads, whose words tell who was posted to.
    fn pool(workers: usize) -> (Inner, Vec<u16>) {
        let inner = Inner::new(workers, WaitPolicy::DEFAULT, Duration::ZERO);
        (inner, (0..workers as u16).collect())
    }

    fn job(steal: bool) -> Job {
        unsafe fn nothing(_: *const (), _: usize, _: usize) {}
        Job { call: nothing, data: std::ptr::null(), base: 1, extra: 0, home: 0, steal, group: Group::NONE }
    }

    fn posted(inner: &Inner) -> Vec<usize> {
        (0..inner.slots.len()).filter(|&id| !inner.slots[id].post.is_done()).collect()
    }

    #[test]
    fn a_leader_posts_to_at_most_so_many_and_their_captains_to_the_rest() {
        for workers in [9, 15, 63, 127, 300] {
            let (inner, members) = pool(workers);
            post_gang(&inner, &members, &job(false));
            assert_eq!(posted(&inner).len(), workers.min(FAN));
            for position in 0..workers {
                let post = &inner.slots[position].post;
                let word = post.load(Ordering::Acquire);
                assert_eq!((word.lo(), word.hi()), (position + 1, workers + 1), "nobody posted to {position}");
                let before = posted(&inner).len();
                if post.job().group.relays() {
                    assert_eq!(relay_gang(&inner, &members, &post.job()), 0);
                }
                assert!(posted(&inner).len() - before <= FAN);
            }
        }
    }

    /// Every worker enters in turn; `steal` of each captain's chunks are taken before. Returns the chunks by worker.
    fn entered(inner: &Inner, members: &[u16], chunks: &Shares<'_>, steal: usize) -> (Vec<Vec<usize>>, Vec<usize>) {
        post_chunks(inner, members, &job(true), chunks);
        let (mut taken, mut stolen) = (vec![Vec::new(); members.len()], Vec::new());
        for (position, own) in taken.iter_mut().enumerate() {
            let post = &inner.slots[position].post;
            for _ in 0..if posted(inner).contains(&position) { steal } else { 0 } {
                stolen.extend(post.steal_back().map(|(chunk, _)| chunk));
            }
            let word = post.load(Ordering::Acquire);
            if !word.is_open() {
                continue;
            }
            let (chunk, mut after) = post.try_enter(word).unwrap();
            if post.job().group.relays() {
                after = relay_chunks(inner, members, post, &post.job(), chunk);
            }
            own.push(chunk);
            own.extend(after.lo()..after.hi());
            post.leave();
        }
        assert_eq!(posted(inner), []);
        (taken, stolen)
    }

    #[test]
    fn captains_deal_the_same_chunks_as_a_leader_that_posts_to_everybody() {
        for workers in [9, 63, 127] {
            for each in [1, 4] {
                let (inner, members) = pool(workers);
                let chunks = Shares::even((workers + 1) * each + 5, workers + 1);
                let (taken, _) = entered(&inner, &members, &chunks, 0);
                let sizes: Vec<usize> = taken.iter().map(Vec::len).collect();
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
                let all: Vec<usize> = taken.concat();
                assert_eq!(all, (chunks.size(0)..(workers + 1) * each + 5).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn chunks_stolen_before_a_captain_enters_are_not_dealt() {
        for steal in 1..10 {
            let (inner, members) = pool(4 * FAN);
            let chunks = Shares::even(4 * FAN + 1, 4 * FAN + 1);
            let (taken, stolen) = entered(&inner, &members, &chunks, steal);
            let mut all = [taken.concat(), stolen].concat();
            all.sort_unstable();
            assert_eq!(all, (1..=4 * FAN).collect::<Vec<_>>());
        }
    }

    #[test]
    fn emptying_a_captains_word_revokes_its_whole_group() {
        let (inner, members) = pool(8 * FAN);
        post_chunks(&inner, &members, &job(false), &Shares::even(8 * FAN + 1, 8 * FAN + 1));
        let captain = posted(&inner)[1];
        let post = &inner.slots[captain].post;
        let open = post.load(Ordering::Acquire);
        assert_eq!(open.hi() - open.lo(), 8);
        while post.steal_back().is_some() {}
        assert!(post.is_done());
        assert!(post.try_enter(open).is_none());
    }

    #[test]
    fn a_group_survives_packing_beside_ten_other_bits() {
        for group in [Group::NONE, Group { first: 1022, count: 1 }, Group { first: 0, count: 1023 }] {
            assert_eq!(Group::unpacked(group.packed() | 0x3ff), group);
            assert_eq!(group.packed() & 0x3ff, 0);
        }
    }

    #[test]
    fn a_captain_looks_at_its_own_group_first_and_then_at_the_next_captain() {
        let members: Vec<u16> = (100..120).collect();
        let captain = Group { first: 3, count: 3 };
        let near: Vec<u16> = captain.reach(&members, false).collect();
        assert_eq!(near, (104..112).collect::<Vec<u16>>());
        let far: Vec<u16> = captain.reach(&members, true).collect();
        assert_eq!(far, (104..120).chain(100..103).collect::<Vec<u16>>());
        let last = Group { first: 19, count: 1 };
        assert_eq!(last.reach(&members, false).collect::<Vec<_>>(), (100..108).collect::<Vec<u16>>());
    }
}
