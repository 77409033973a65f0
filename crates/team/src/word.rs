//! The range word: publication, entry, queue, theft, revocation and completion of one worker's share in 64 bits.
//!
//! `lo` and `hi` are chunk numbers (claimed section) or participant index and team size (gang section). The word is the
//! whole truth about the share, so a compare-and-swap that succeeds is right at that instant; there is no epoch.

/// A value of a worker's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

/// The most chunks that one section hands out: `lo` and `hi` have 30 bits.
pub(crate) const MAX_CHUNKS: usize = (1 << 30) - 1;

const ENTERED: u64 = 1;
const LEADER_WAITS: u64 = 2;
const GANG: u64 = 4;
const FLAGS: u64 = 0b1111;
const LO: u32 = 4;
const HI: u32 = 34;
const FIELD: u64 = (1 << 30) - 1;

impl Word {
    /// Nothing posted, or everything done.
    pub(crate) const IDLE: Word = Word(0);

    /// Chunks `lo..hi`, open for entry.
    pub(crate) fn range(lo: usize, hi: usize) -> Word {
        debug_assert!(lo <= hi && hi <= MAX_CHUNKS);
        Word(((lo as u64) << LO) | ((hi as u64) << HI))
    }

    /// Share `index` of a gang of `size`.
    pub(crate) fn gang(index: usize, size: usize) -> Word {
        Word(Word::range(index, size).0 | GANG)
    }

    pub(crate) fn lo(self) -> usize {
        ((self.0 >> LO) & FIELD) as usize
    }

    pub(crate) fn hi(self) -> usize {
        (self.0 >> HI) as usize
    }

    /// No chunk is left in it.
    pub(crate) fn is_empty(self) -> bool {
        self.lo() == self.hi()
    }

    pub(crate) fn is_entered(self) -> bool {
        self.0 & ENTERED != 0
    }

    pub(crate) fn is_gang(self) -> bool {
        self.0 & GANG != 0
    }

    pub(crate) fn leader_waits(self) -> bool {
        self.0 & LEADER_WAITS != 0
    }

    /// A worker may enter: chunks are left and nobody entered yet.
    pub(crate) fn is_open(self) -> bool {
        !self.is_gang() && !self.is_entered() && !self.is_empty()
    }

    /// Nobody is inside and nobody can enter any more.
    pub(crate) fn is_done(self) -> bool {
        self == Word::IDLE || (self.is_empty() && !self.is_entered() && !self.is_gang())
    }

    /// Entered, with the first chunk taken.
    pub(crate) fn entered(self) -> Word {
        Word(self.without_front().0 | ENTERED)
    }

    pub(crate) fn with_leader_waits(self) -> Word {
        Word(self.0 | LEADER_WAITS)
    }

    /// The first chunk taken.
    pub(crate) fn without_front(self) -> Word {
        debug_assert!(!self.is_empty());
        Word(self.0 + (1 << LO))
    }

    /// The last chunk taken.
    pub(crate) fn without_back(self) -> Word {
        debug_assert!(!self.is_empty());
        Word(self.0 - (1 << HI))
    }

    /// The chunks from `end` on taken, flags kept.
    pub(crate) fn ending_at(self, end: usize) -> Word {
        debug_assert!(self.lo() <= end && end <= self.hi());
        Word(self.0 - (((self.hi() - end) as u64) << HI))
    }

    /// Every chunk taken, flags kept.
    pub(crate) fn emptied(self) -> Word {
        Word((self.0 & FLAGS) | Word::range(self.hi(), self.hi()).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_word_carries_both_ends_up_to_the_limit() {
        for (lo, hi) in [(0, 0), (0, 1), (5, 9), (MAX_CHUNKS - 1, MAX_CHUNKS), (0, MAX_CHUNKS)] {
            let word = Word::range(lo, hi);
            assert_eq!((word.lo(), word.hi()), (lo, hi));
            assert_eq!(word.is_open(), lo < hi);
        }
    }

    #[test]
    fn taking_chunks_keeps_the_flags() {
        let word = Word::range(2, 5).entered().with_leader_waits();
        assert_eq!((word.lo(), word.hi()), (3, 5));
        let word = word.without_back().without_front();
        assert!(word.is_empty() && word.is_entered() && word.leader_waits() && !word.is_done());
    }

    #[test]
    fn chunks_taken_from_the_end_leave_the_flags_and_the_rest() {
        let word = Word::range(2, 9).entered().with_leader_waits();
        assert_eq!(word.ending_at(9), word);
        let word = word.ending_at(5);
        assert_eq!((word.lo(), word.hi()), (3, 5));
        assert!(word.is_entered() && word.leader_waits());
    }

    #[test]
    fn an_emptied_word_is_done_only_when_nobody_entered() {
        assert!(Word::range(1, 4).emptied().is_done());
        assert!(!Word::range(1, 4).entered().emptied().is_done());
        assert!(!Word::gang(1, 1).is_done());
    }
}
