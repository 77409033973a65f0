//! Values, checked: where every element lies, in bytes.

use std::ops::Range;

use threadteam_kernels::{Layout, MAX_RANK};

use crate::description::{Space, ValueSpec};
use crate::Dtype;

/// A tensor whose elements all lie inside its space, at addresses that suit its type.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) space: Space,
    pub(crate) dtype: Dtype,
    /// Strides of axes of extent one, and of empty tensors, are those of a dense tensor: they reach nothing, so kernels
    /// may compare and multiply them freely.
    pub(crate) layout: Layout,
    /// Bytes from the start of the space to the element at index zero.
    pub(crate) offset: usize,
    /// From the first byte reached to behind the last one.
    pub(crate) span: Range<usize>,
}

impl Value {
    /// Checks `spec` against the size of its space and, outside the arena, the type that lies there.
    pub(crate) fn new(spec: &ValueSpec, space_bytes: usize, declared: Option<Dtype>) -> Result<Value, String> {
        let ValueSpec { space, offset, dtype, ref dims, ref strides } = *spec;
        if dims.len() > MAX_RANK {
            return Err(format!("has {} axes, more than {MAX_RANK}", dims.len()));
        }
        if dims.len() != strides.len() {
            return Err(format!("has {} extents but {} strides", dims.len(), strides.len()));
        }
        if let Some(declared) = declared.filter(|&declared| declared != dtype) {
            return Err(format!("is {dtype}, but {space} is {declared}"));
        }
        if !offset.is_multiple_of(dtype.alignment()) {
            return Err(format!("starts at byte {offset}, which is no multiple of {}", dtype.alignment()));
        }
        if byte_size(dtype, dims).is_none() {
            return Err(format!("of shape {dims:?} has more bytes than the address space"));
        }
        let span = if dims.contains(&0) {
            (offset <= space_bytes).then_some(offset..offset)
        } else {
            span(offset, dtype.size(), dims, strides).filter(|span| span.end <= space_bytes)
        };
        let Some(span) = span else {
            return Err(format!(
                "of shape {dims:?} and strides {strides:?} at byte {offset} reaches outside {space}, which has \
                 {space_bytes} bytes"
            ));
        };
        let layout = Layout::new(dims, &canonical(dims, strides)).expect("the rank was checked");
        Ok(Value { space, dtype, layout, offset, span })
    }

    /// Extents.
    pub(crate) fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Whether every index reaches another element.
    ///
    /// Sufficient, not necessary: each stride must pass over all that the smaller ones reach, as in every slice and
    /// permutation of a dense tensor.
    pub(crate) fn is_injective(&self) -> bool {
        let mut reach = 0;
        self.layout.is_empty()
            || self.axes_by_stride().into_iter().all(|(stride, extent)| {
                let passes = stride > reach;
                reach += stride * (extent - 1);
                passes
            })
    }

    /// Whether some byte might be reached by both.
    pub(crate) fn overlaps(&self, other: &Value) -> bool {
        self.space == other.space
            && !self.span.is_empty()
            && !other.span.is_empty()
            && self.span.start < other.span.end
            && other.span.start < self.span.end
    }

    /// Whether both are the same elements in the same order.
    pub(crate) fn is_same(&self, other: &Value) -> bool {
        self.space == other.space
            && self.offset == other.offset
            && self.dtype == other.dtype
            && self.layout == other.layout
    }

    /// Calls `visit` with disjoint byte ranges, in no particular order, that together are all bytes reached, until it
    /// returns false. Returns false then, or when there would be more than `most` ranges.
    pub(crate) fn visit_runs(&self, most: usize, mut visit: impl FnMut(Range<usize>) -> bool) -> bool {
        if self.span.is_empty() {
            return true;
        }
        let size = self.dtype.size();
        let mut run = size;
        let mut outer: Vec<(usize, usize)> = Vec::new();
        for (stride, extent) in self.axes_by_stride() {
            let step = stride * size;
            if outer.is_empty() && step <= run {
                run += step * (extent - 1);
            } else {
                outer.push((step, extent));
            }
        }
        let count = outer.iter().try_fold(1usize, |count, &(_, extent)| count.checked_mul(extent));
        if count.is_none_or(|count| count > most) {
            return false;
        }
        let mut index = vec![0; outer.len()];
        let mut start = self.span.start;
        loop {
            if !visit(start..start + run) {
                return false;
            }
            let mut axis = 0;
            loop {
                let Some(&(step, extent)) = outer.get(axis) else { return true };
                index[axis] += 1;
                start += step;
                if index[axis] < extent {
                    break;
                }
                start -= step * extent;
                index[axis] = 0;
                axis += 1;
            }
        }
    }

    /// Magnitude of the stride and extent of every axis that reaches more than one element, by ascending stride.
    fn axes_by_stride(&self) -> Vec<(usize, usize)> {
        let strides = self.layout.strides().iter().map(|stride| stride.unsigned_abs());
        let mut axes: Vec<_> = strides.zip(self.layout.dims().iter().copied()).filter(|axis| axis.1 > 1).collect();
        axes.sort_unstable();
        axes
    }
}

/// Bytes of a dense tensor, counting empty axes as one so that no partial product overflows; `None` above `isize::MAX`.
fn padded_bytes(dtype: Dtype, dims: &[usize]) -> Option<usize> {
    let count = dims.iter().try_fold(dtype.size(), |count, &extent| count.checked_mul(extent.max(1)))?;
    (count <= isize::MAX as usize).then_some(count)
}

/// Bytes of a dense tensor, or `None` when they exceed the address space.
pub(crate) fn byte_size(dtype: Dtype, dims: &[usize]) -> Option<usize> {
    let padded = padded_bytes(dtype, dims)?;
    Some(if dims.contains(&0) { 0 } else { padded })
}

/// The bytes between the lowest and the highest element of a tensor without empty axes, or `None` when some would have
/// negative positions.
///
/// The product of the extents times `size` is at most `isize::MAX`, so the sum of all `(extent - 1) * stride * size` is
/// below 2^126.
fn span(offset: usize, size: usize, dims: &[usize], strides: &[isize]) -> Option<Range<usize>> {
    let (mut low, mut high) = (offset as i128, offset as i128 + size as i128);
    for (&extent, &stride) in dims.iter().zip(strides) {
        let reach = (extent as i128 - 1) * stride as i128 * size as i128;
        if reach < 0 {
            low += reach;
        } else {
            high += reach;
        }
    }
    Some(usize::try_from(low).ok()?..usize::try_from(high).ok()?)
}

/// `strides` with those that are never used replaced by a dense tensor's.
fn canonical(dims: &[usize], strides: &[isize]) -> Vec<isize> {
    let empty = dims.contains(&0);
    let mut canonical = strides.to_vec();
    let mut next = 1isize;
    for axis in (0..dims.len()).rev() {
        if empty || dims[axis] == 1 {
            canonical[axis] = next;
        }
        // Fits: a used stride times its extent is at most twice the span, and a dense stride at most the padded size.
        next = canonical[axis].saturating_mul(dims[axis].max(1) as isize);
    }
    canonical
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(offset: usize, dims: &[usize], strides: &[isize], bytes: usize) -> Result<Value, String> {
        let (dims, strides) = (dims.to_vec(), strides.to_vec());
        Value::new(&ValueSpec { space: Space::Arena, offset, dtype: Dtype::Float32, dims, strides }, bytes, None)
    }

    fn runs(value: &Value) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        assert!(value.visit_runs(1000, |run| {
            runs.push((run.start, run.end));
            true
        }));
        runs.sort_unstable();
        runs
    }

    #[test]
    fn a_negative_stride_counts_down_from_the_offset() {
        assert_eq!(value(12, &[4], &[-1], 16).unwrap().span, 0..16);
        assert!(value(8, &[4], &[-1], 16).is_err());
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        let (most, least) = (usize::MAX, isize::MIN);
        assert!(value(0, &[2, 2], &[isize::MAX, isize::MAX], most).is_err());
        assert!(value(0, &[2, 2], &[least, least], most).is_err());
        assert!(value(0, &[most, most], &[0, 0], most).is_err());
        assert!(value(0, &[1 << 60], &[0], most).is_ok());
        assert!(value(0, &[1 << 62], &[0], most).is_err());
        assert!(value(0, &[0, most, most], &[1, 1, 1], most).is_err());
        assert!(value(most - 3, &[1], &[1], most).is_err());
    }

    #[test]
    fn unused_strides_become_dense() {
        let odd = value(0, &[1, 3, 1], &[least(), 1, isize::MAX], 12).unwrap();
        assert_eq!(odd.layout.strides(), &[3, 1, 1]);
        let empty = value(0, &[2, 0], &[isize::MAX, 7], 0).unwrap();
        assert_eq!(empty.layout.strides(), &[1, 1]);
    }

    fn least() -> isize {
        isize::MIN
    }

    #[test]
    fn broadcast_and_folded_strides_are_not_injective() {
        assert!(value(0, &[2, 3], &[1, 2], 24).unwrap().is_injective());
        assert!(value(20, &[2, 3], &[-3, -1], 24).unwrap().is_injective());
        assert!(!value(0, &[2, 3], &[0, 1], 24).unwrap().is_injective());
        assert!(!value(0, &[2, 3], &[2, 1], 24).unwrap().is_injective());
        assert!(value(0, &[1, 3], &[0, 1], 24).unwrap().is_injective());
    }

    #[test]
    fn runs_merge_whatever_touches() {
        assert_eq!(runs(&value(0, &[3, 2], &[1, 3], 24).unwrap()), [(0, 24)]);
        assert_eq!(runs(&value(0, &[2, 3], &[4, 1], 28).unwrap()), [(0, 12), (16, 28)]);
        assert_eq!(runs(&value(0, &[4, 3], &[1, 1], 24).unwrap()), [(0, 24)]);
        assert_eq!(runs(&value(8, &[2, 2], &[3, -2], 24).unwrap()), [(0, 4), (8, 12), (12, 16), (20, 24)]);
    }
}
