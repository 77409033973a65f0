//! Which bytes of a space have been written, byte by byte.

use std::collections::BTreeMap;
use std::ops::Range;

use rangemap::RangeSet;

const PAGE: usize = 512;
const WORDS: usize = PAGE / 64;

/// A set of bytes that stays small for dense ranges and bounded for scattered ones: ranges of full pages, and a bit for
/// every byte of the pages that are written in part.
#[derive(Debug, Default)]
pub(crate) struct Written {
    full: RangeSet<usize>,
    partial: BTreeMap<usize, [u64; WORDS]>,
}

impl Written {
    /// Adds all bytes of `range`.
    pub(crate) fn insert(&mut self, range: Range<usize>) {
        for (page, part) in ends(&range) {
            self.insert_part(page, part);
        }
        let inside = whole_pages(&range);
        if !inside.is_empty() {
            let swallowed: Vec<_> = self.partial.range(inside.clone()).map(|(&page, _)| page).collect();
            for page in swallowed {
                self.partial.remove(&page);
            }
            self.full.insert(inside);
        }
    }

    /// Whether all bytes of `range` are in the set.
    pub(crate) fn covers(&self, range: Range<usize>) -> bool {
        let inside = whole_pages(&range);
        (inside.is_empty() || self.full.get(&inside.start).is_some_and(|full| inside.end <= full.end))
            && ends(&range).all(|(page, part)| self.covers_part(page, part))
    }

    fn insert_part(&mut self, page: usize, part: Range<usize>) {
        if part.is_empty() || self.full.contains(&page) {
            return;
        }
        let bits = self.partial.entry(page).or_insert([0; WORDS]);
        for (word, mask) in masks(part) {
            bits[word] |= mask;
        }
        if bits.iter().all(|&word| word == u64::MAX) {
            self.partial.remove(&page);
            self.full.insert(page..page + 1);
        }
    }

    fn covers_part(&self, page: usize, part: Range<usize>) -> bool {
        part.is_empty()
            || self.full.contains(&page)
            || self.partial.get(&page).is_some_and(|bits| masks(part).all(|(word, mask)| bits[word] & mask == mask))
    }
}

/// The pages that lie in `range` as a whole.
fn whole_pages(range: &Range<usize>) -> Range<usize> {
    range.start.div_ceil(PAGE)..range.end / PAGE
}

/// The parts of `range` in pages that do not lie in it as a whole: none, one or two, as ranges within the page.
fn ends(range: &Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (first, last) = (range.start / PAGE, range.end / PAGE);
    let head = if first == last { range.start % PAGE..range.end % PAGE } else { range.start % PAGE..PAGE };
    let head_is_part = first == last || head.start != 0;
    let tail = 0..range.end % PAGE;
    [head_is_part.then_some((first, head)), (first != last).then_some((last, tail))].into_iter().flatten()
}

/// The words and bits of a non-empty range of bits.
fn masks(bits: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    (bits.start / 64..bits.end.div_ceil(64)).map(move |word| {
        let low = bits.start.saturating_sub(word * 64);
        let high = (bits.end - word * 64).min(64);
        (word, (u64::MAX >> (64 - (high - low))) << low)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_cover_their_union() {
        let mut written = Written::default();
        written.insert(5..PAGE + 3);
        assert!(written.covers(5..PAGE + 3));
        assert!(!written.covers(4..6));
        assert!(!written.covers(PAGE..PAGE + 4));
        written.insert(PAGE + 3..4 * PAGE);
        written.insert(0..5);
        assert!(written.covers(0..4 * PAGE));
        assert!(!written.covers(0..4 * PAGE + 1));
        assert!(written.partial.is_empty());
    }

    #[test]
    fn a_page_filled_byte_by_byte_becomes_full() {
        let mut written = Written::default();
        (0..PAGE).rev().for_each(|byte| written.insert(byte..byte + 1));
        assert!(written.covers(0..PAGE));
        assert!(written.partial.is_empty());
    }

    #[test]
    fn a_large_range_swallows_scattered_parts() {
        let mut written = Written::default();
        (0..8).for_each(|page| written.insert(page * PAGE + 7..page * PAGE + 9));
        written.insert(PAGE..7 * PAGE);
        assert_eq!(written.partial.keys().copied().collect::<Vec<_>>(), [0, 7]);
        assert!(written.covers(PAGE..7 * PAGE));
        assert!(written.covers(7 * PAGE + 7..7 * PAGE + 9));
        assert!(!written.covers(7 * PAGE..7 * PAGE + 9));
    }

    #[test]
    fn empty_ranges_are_covered_anywhere() {
        let mut written = Written::default();
        written.insert(3..3);
        assert!(written.covers(PAGE..PAGE));
        assert!(written.covers(9..9));
        assert!(written.partial.is_empty());
    }
}
