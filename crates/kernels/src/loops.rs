//! The loop nest of an element-wise kernel: which elements of which operands belong together, in which order.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

use threadteam::Exec;

use crate::layout::{Layout, MAX_RANK};
use crate::rates;

/// Ranges given to participants start at multiples of this many elements, so that two of them rarely write to one
/// cache line and vector loops rarely start in the middle of a vector.
const UNIT: usize = 64;

/// The least work in one range: well above what taking a range costs.
const RANGE_NANOS: f64 = 2_000.0;

/// A loop nest over `N` operands of one shape. Operand 0 is the output.
///
/// Axes of extent one are dropped, the others are ordered so that the output is walked in memory order (an axis with
/// a negative output stride is walked backwards), and neighbours are merged wherever they merge for every operand.
/// Places in the nest are numbered in that order.
#[derive(Clone, Copy, Debug)]
pub struct Loops<const N: usize> {
    rank: usize,
    /// Extents, innermost first; one axis at least.
    dims: [usize; MAX_RANK],
    /// Element strides of each operand along each axis, innermost first.
    strides: [[isize; N]; MAX_RANK],
    /// The offset in elements of place 0 from each operand's index zero.
    start: [isize; N],
    len: usize,
}

impl<const N: usize> Loops<N> {
    /// The loop nest over `operands`.
    ///
    /// # Panics
    ///
    /// When the operands differ in shape.
    pub fn new(operands: [&Layout; N]) -> Self {
        let shape = operands[0].dims();
        for operand in &operands[1..] {
            assert_eq!(operand.dims(), shape, "the operands of an element-wise kernel have one shape");
        }
        let mut nest =
            Loops { rank: 0, dims: [1; MAX_RANK], strides: [[0; N]; MAX_RANK], start: [0; N], len: operands[0].len() };
        for axis in (0..shape.len()).rev() {
            if shape[axis] != 1 {
                nest.insert(shape[axis], std::array::from_fn(|i| operands[i].strides()[axis]));
            }
        }
        nest.merge();
        nest
    }

    /// Adds an axis outside all those whose output stride is not larger.
    fn insert(&mut self, extent: usize, mut strides: [isize; N]) {
        if strides[0] < 0 && extent > 0 {
            for (start, stride) in self.start.iter_mut().zip(&mut strides) {
                *start += (extent as isize - 1) * *stride;
                *stride = -*stride;
            }
        }
        let mut at = self.rank;
        while at > 0 && self.strides[at - 1][0] > strides[0] {
            self.dims[at] = self.dims[at - 1];
            self.strides[at] = self.strides[at - 1];
            at -= 1;
        }
        self.dims[at] = extent;
        self.strides[at] = strides;
        self.rank += 1;
    }

    /// Joins each axis to the next inner one where every operand's strides continue.
    fn merge(&mut self) {
        let mut kept = 0;
        for axis in 1..self.rank {
            let extent = self.dims[kept] as isize;
            if (0..N).all(|i| self.strides[axis][i] == self.strides[kept][i] * extent) {
                self.dims[kept] *= self.dims[axis];
            } else {
                kept += 1;
                self.dims[kept] = self.dims[axis];
                self.strides[kept] = self.strides[axis];
            }
        }
        self.rank = kept + 1;
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of axes left, at least one.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Extents, innermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Each operand's element stride along `axis`, counted from the innermost.
    pub fn strides(&self, axis: usize) -> [isize; N] {
        self.strides[axis]
    }

    /// The offset in elements of place 0 from each operand's index zero.
    pub fn start(&self) -> [isize; N] {
        self.start
    }

    /// Runs `body` on disjoint ranges of places that cover the nest, as wide as `nanos` per place pays for.
    pub fn run(&self, exec: Exec<'_>, nanos: f64, body: &(dyn Fn(Range<usize>) + Sync)) {
        distribute(exec, self.len, UNIT, nanos, body);
    }

    /// Moves `offsets` by `count` steps along `axis`.
    #[inline(always)]
    fn shift(&self, offsets: &mut [isize; N], axis: usize, count: isize) {
        for (offset, stride) in offsets.iter_mut().zip(&self.strides[axis]) {
            *offset += count * stride;
        }
    }

    /// Calls `row` with each operand's offset and the length of each run along the innermost axis in `places`.
    #[inline(always)]
    pub fn walk(&self, places: Range<usize>, mut row: impl FnMut([isize; N], usize)) {
        let mut left = places.len();
        if left == 0 {
            return;
        }
        let mut index = [0usize; MAX_RANK];
        let mut offsets = self.start;
        if places.start > 0 {
            let mut rest = places.start;
            for (axis, extent) in self.dims().iter().enumerate() {
                index[axis] = rest % extent;
                rest /= extent;
                self.shift(&mut offsets, axis, index[axis] as isize);
            }
        }
        loop {
            let run = left.min(self.dims[0] - index[0]);
            row(offsets, run);
            left -= run;
            if left == 0 {
                return;
            }
            self.shift(&mut offsets, 0, -(index[0] as isize));
            index[0] = 0;
            let mut axis = 1;
            loop {
                index[axis] += 1;
                self.shift(&mut offsets, axis, 1);
                if index[axis] < self.dims[axis] {
                    break;
                }
                self.shift(&mut offsets, axis, -(self.dims[axis] as isize));
                index[axis] = 0;
                axis += 1;
            }
        }
    }
}

/// Runs `body` on disjoint ranges that cover `0..len` and start at multiples of `unit`, as wide as `nanos` per item
/// pays for.
pub(crate) fn distribute(exec: Exec<'_>, len: usize, unit: usize, nanos: f64, body: &(dyn Fn(Range<usize>) + Sync)) {
    if len == 0 {
        return;
    }
    let total = len as f64 * nanos;
    if total < rates::SERIAL_NANOS || exec.is_serial() {
        return body(0..len);
    }
    let width = exec.width_for(Duration::from_nanos(total as u64), 1);
    if width == NonZeroUsize::MIN {
        return body(0..len);
    }
    let grain = NonZeroUsize::new((RANGE_NANOS / (nanos * unit as f64)) as usize).unwrap_or(NonZeroUsize::MIN);
    exec.limit(width).for_ranges(len.div_ceil(unit), grain, |units| {
        body(units.start * unit..(units.end * unit).min(len));
    });
}

/// The address of an operand's index zero, for use by every participant.
#[derive(Debug)]
pub struct Base<T>(*mut T);

impl<T> Clone for Base<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Base<T> {}

// SAFETY: an address; what is reached through it is governed by the views that it was taken from.
unsafe impl<T: Send + Sync> Send for Base<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Base<T> {}

impl<T> Base<T> {
    /// The base of an input.
    pub fn of(view: &crate::View<'_, T>) -> Self {
        Base(view.as_ptr().cast_mut())
    }

    /// The base of an output.
    pub fn of_mut(view: &mut crate::ViewMut<'_, T>) -> Self {
        Base(view.as_mut_ptr())
    }

    /// The same address as one of elements of another type.
    pub fn cast<U>(self) -> Base<U> {
        Base(self.0.cast())
    }

    /// The address `offset` elements on.
    #[inline(always)]
    pub fn at(self, offset: isize) -> *mut T {
        self.0.wrapping_offset(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of each place of `places`, in order.
    fn visited(nest: &Loops<2>, places: Range<usize>) -> Vec<[isize; 2]> {
        let mut seen = Vec::new();
        let strides = nest.strides(0);
        nest.walk(places, |offsets, len| {
            seen.extend((0..len as isize).map(|i| [offsets[0] + i * strides[0], offsets[1] + i * strides[1]]));
        });
        seen
    }

    fn nests() -> Vec<Loops<2>> {
        [
            (&[7, 5][..], &[5, 1][..], &[5, 1][..]),
            (&[7, 5], &[5, 1], &[1, 7]),
            (&[3, 4, 5], &[20, 5, 1], &[0, 1, 4]),
            (&[3, 4, 5], &[1, 15, 3], &[-20, 5, -1]),
            (&[2, 3, 1, 4, 2], &[48, -16, 7, 4, 2], &[0, 0, 9, 1, 4]),
            (&[1, 1], &[1, 1], &[0, 0]),
            (&[], &[], &[]),
        ]
        .into_iter()
        .map(|(dims, y, x)| Loops::new([&Layout::new(dims, y).unwrap(), &Layout::new(dims, x).unwrap()]))
        .collect()
    }

    #[test]
    fn a_walk_cut_anywhere_visits_the_same_places() {
        for nest in nests() {
            let whole = visited(&nest, 0..nest.len());
            assert_eq!(whole.len(), nest.len());
            for from in 0..=nest.len() {
                for to in from..=nest.len() {
                    assert_eq!(visited(&nest, from..to), whole[from..to]);
                }
            }
        }
    }

    #[test]
    fn the_output_is_walked_in_memory_order() {
        for nest in nests() {
            let whole = visited(&nest, 0..nest.len());
            assert!(whole.windows(2).all(|pair| pair[0][0] < pair[1][0]));
        }
    }

    #[test]
    fn axes_that_continue_each_other_are_one() {
        let merged = |dims: &[usize], y: &[isize], x: &[isize]| {
            Loops::new([&Layout::new(dims, y).unwrap(), &Layout::new(dims, x).unwrap()]).dims().to_vec()
        };
        assert_eq!(merged(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1]), [24]);
        assert_eq!(merged(&[2, 3, 4], &[12, 4, 1], &[0, 0, 0]), [24]);
        assert_eq!(merged(&[2, 3, 4], &[12, 4, 1], &[4, 0, 1]), [4, 3, 2]);
        assert_eq!(merged(&[2, 3, 4], &[12, 4, 1], &[0, 4, 1]), [12, 2]);
        assert_eq!(merged(&[4, 3, 2], &[-6, -2, -1], &[-6, -2, -1]), [24]);
    }
}
