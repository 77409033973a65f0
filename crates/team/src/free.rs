//! Which workers no caller has claimed.

use crate::sync::{at, mutated, AtomicU64, Ordering, OwnLine};
use std::mem::MaybeUninit;
use std::ops::Range;

/// The most workers of one pool.
pub(crate) const MAX_WORKERS: usize = 1024;

const BITS: usize = 64;

/// Worker numbers of one claim, held inline: a claim allocates nothing.
pub(crate) struct Claim {
    ids: [MaybeUninit<u16>; MAX_WORKERS],
    count: usize,
}

impl Claim {
    pub(crate) fn empty() -> Self {
        Claim { ids: [const { MaybeUninit::uninit() }; MAX_WORKERS], count: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, id: usize) {
        self.ids[self.count].write(id as u16);
        self.count += 1;
    }

    #[inline]
    pub(crate) fn ids(&self) -> &[u16] {
        // SAFETY: `push` wrote the first `count` entries.
        unsafe { std::slice::from_raw_parts(self.ids.as_ptr().cast(), self.count) }
    }
}

/// One bit a worker; a set bit can be claimed.
#[derive(Debug)]
pub(crate) struct FreeMask {
    words: Box<[OwnLine<AtomicU64>]>,
}

impl FreeMask {
    pub(crate) fn new(workers: usize) -> Self {
        FreeMask { words: (0..workers.div_ceil(BITS)).map(|_| OwnLine(AtomicU64::new(0))).collect() }
    }

    /// Claims up to `want` workers for the caller, awake ones first, lowest numbers first: a lone caller gets the same
    /// workers every time, so the same rows stay in the same caches. Only workers of `among`, one bit each in words by number.
    #[inline]
    pub(crate) fn claim(
        &self,
        want: usize,
        among: impl Fn(usize) -> u64,
        parked: impl Fn(usize) -> u64,
        claim: &mut Claim,
    ) {
        let mut left = want;
        for asleep in [false, true] {
            for index in 0..self.words.len() {
                let mut rest = self.claim_in(index, left, among(index), asleep, &parked);
                while rest != 0 {
                    claim.push(index * BITS + rest.trailing_zeros() as usize);
                    rest &= rest - 1;
                    left -= 1;
                }
                if left == 0 {
                    return;
                }
            }
        }
    }

    /// Claims up to `want` workers of one word for the caller, awake ones of `among` or any of them; their bits.
    #[inline]
    fn claim_in(&self, index: usize, want: usize, among: u64, asleep: bool, parked: &impl Fn(usize) -> u64) -> u64 {
        let word = &self.words[index];
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let sleepers = if asleep { 0 } else { parked(index) };
            let taken = lowest(seen & among & !sleepers, want);
            if taken == 0 {
                return 0;
            }
            at!(BeforeClaim);
            // Acquire: what the last holder of these slots wrote to them comes first.
            let acquire = if mutated!(RelaxedClaim) { Ordering::Relaxed } else { Ordering::Acquire };
            if mutated!(ClaimByStore) {
                word.store(seen & !taken, Ordering::Relaxed);
                return taken;
            }
            match word.compare_exchange_weak(seen, seen & !taken, acquire, Ordering::Relaxed) {
                Ok(_) => return taken,
                Err(now) => seen = now,
            }
        }
    }

    /// Orders the caller's earlier writes against every release: each either comes before this, and its workers are seen
    /// to be free, or after it, and who releases sees those writes.
    pub(crate) fn meet_releases(&self) {
        for word in &self.words {
            if !mutated!(SkipCallerMeeting) {
                word.fetch_or(0, Ordering::AcqRel);
            }
        }
    }

    /// Gives workers back (or, at start, gives them out for the first time).
    pub(crate) fn release(&self, ids: &[u16]) {
        at!(BeforeRelease);
        let mut at = 0;
        while at < ids.len() {
            let index = usize::from(ids[at]) / BITS;
            let mut bits = 0u64;
            while at < ids.len() && usize::from(ids[at]) / BITS == index {
                bits |= 1 << (usize::from(ids[at]) % BITS);
                at += 1;
            }
            // Acquire: a caller that counted itself before it met this word is seen to wait.
            let release = if mutated!(RelaxedRelease) { Ordering::Relaxed } else { Ordering::AcqRel };
            self.words[index].fetch_or(bits, release);
        }
    }

    /// Claims worker `id` for the caller if nobody has it.
    pub(crate) fn take(&self, id: u16) -> bool {
        let (word, bit) = self.place(id);
        // A look first: who waits for a worker does not write to the line at each poll.
        if word.load(Ordering::Relaxed) & bit == 0 {
            return false;
        }
        // Acquire, as in `claim`.
        let acquire = if mutated!(RelaxedClaim) { Ordering::Relaxed } else { Ordering::Acquire };
        word.fetch_and(!bit, acquire) & bit != 0
    }

    /// Whether nobody has worker `id`.
    pub(crate) fn has(&self, id: u16) -> bool {
        let (word, bit) = self.place(id);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn place(&self, id: u16) -> (&AtomicU64, u64) {
        (&self.words[usize::from(id) / BITS], 1 << (usize::from(id) % BITS))
    }

    /// How many workers can be claimed now.
    pub(crate) fn count(&self) -> usize {
        self.count_among(anybody)
    }

    /// How many of the workers of `among` can be claimed now.
    pub(crate) fn count_among(&self, among: impl Fn(usize) -> u64) -> usize {
        let count = |(index, word): (usize, &OwnLine<AtomicU64>)| word.load(Ordering::Relaxed) & among(index);
        self.words.iter().enumerate().map(|word| count(word).count_ones() as usize).sum()
    }

    /// Nobody can be claimed until the next release.
    pub(crate) fn reset(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Every worker, for [`FreeMask::claim`].
#[inline(always)]
pub(crate) fn anybody(_word: usize) -> u64 {
    !0
}

/// The workers of `range`, for [`FreeMask::claim`].
pub(crate) fn numbered(range: Range<usize>) -> impl Fn(usize) -> u64 {
    let below = |end: usize| if end < BITS { (1 << end) - 1 } else { !0 };
    move |word| {
        let bits = |end: usize| below(end.saturating_sub(word * BITS));
        bits(range.end) & !bits(range.start)
    }
}

/// The lowest `count` set bits of `mask`, fewer if it has fewer.
#[inline]
fn lowest(mask: u64, count: usize) -> u64 {
    let (mut rest, mut left) = (mask, count);
    while left > 0 && rest != 0 {
        rest &= rest - 1;
        left -= 1;
    }
    mask & !rest
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_claim_prefers_awake_workers_and_gives_back_what_it_took() {
        let free = FreeMask::new(70);
        let all: Vec<u16> = (0..70).collect();
        free.release(&all);
        let mut claim = Claim::empty();
        free.claim(3, anybody, |index| if index == 0 { 0b11 } else { 0 }, &mut claim);
        assert_eq!(claim.ids(), [2, 3, 4]);
        assert_eq!(free.count(), 67);
        let mut rest = Claim::empty();
        free.claim(1000, anybody, |_| 0, &mut rest);
        assert_eq!((rest.ids().len(), free.count()), (67, 0));
        free.release(claim.ids());
        free.release(rest.ids());
        assert_eq!(free.count(), 70);
    }

    #[test]
    fn a_claim_among_some_takes_nobody_else() {
        let free = FreeMask::new(200);
        let all: Vec<u16> = (0..200).collect();
        free.release(&all);
        for (range, want) in [(60..70, 100), (0..0, 5), (64..128, 3), (199..200, 2), (3..150, 1000)] {
            let mut claim = Claim::empty();
            let wanted = range.len().min(want);
            assert_eq!(free.count_among(numbered(range.clone())), range.len());
            free.claim(want, numbered(range.clone()), |_| 0, &mut claim);
            let expected: Vec<u16> = range.map(|id| id as u16).take(wanted).collect();
            assert_eq!(claim.ids(), expected);
            free.release(claim.ids());
        }
    }

    #[test]
    fn lowest_bits_are_taken_in_order() {
        assert_eq!(lowest(0b1011_0100, 2), 0b0001_0100);
        assert_eq!(lowest(0b101, 7), 0b101);
        assert_eq!(lowest(!0, 0), 0);
    }
}
