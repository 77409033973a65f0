//! Element offsets of the leading axes of a layout.

use crate::Layout;

/// The offset of the `at`-th index (row-major) over the first `axes` axes of `layout`.
pub(crate) fn offset_of(layout: &Layout, axes: usize, at: usize) -> isize {
    let (mut rest, mut offset) = (at, 0);
    for axis in (0..axes).rev() {
        let extent = layout.dims()[axis];
        offset += (rest % extent) as isize * layout.strides()[axis];
        rest /= extent;
    }
    offset
}
