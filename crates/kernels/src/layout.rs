//! Shapes, strides and borrowed views: what every kernel takes.

use std::marker::PhantomData;

/// The highest rank a kernel takes; front ends merge axes or use another route above it.
pub const MAX_RANK: usize = 8;

/// Extents and element strides of a tensor, at most [`MAX_RANK`] axes, held inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    rank: usize,
    dims: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl Layout {
    /// A layout of `dims` and element `strides`, or `None` when their lengths differ or exceed [`MAX_RANK`].
    pub fn new(dims: &[usize], strides: &[isize]) -> Option<Self> {
        if dims.len() != strides.len() || dims.len() > MAX_RANK {
            return None;
        }
        let mut layout = Layout { rank: dims.len(), dims: [1; MAX_RANK], strides: [0; MAX_RANK] };
        layout.dims[..dims.len()].copy_from_slice(dims);
        layout.strides[..dims.len()].copy_from_slice(strides);
        Some(layout)
    }

    /// The C-contiguous (row-major) layout of `dims`, or `None` above [`MAX_RANK`].
    pub fn contiguous(dims: &[usize]) -> Option<Self> {
        let mut strides = [0isize; MAX_RANK];
        let mut step = 1isize;
        for axis in (0..dims.len().min(MAX_RANK)).rev() {
            strides[axis] = step;
            step *= dims[axis].max(1) as isize;
        }
        Layout::new(dims, strides.get(..dims.len())?)
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The extent of each axis.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The distance in elements between neighbours along each axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank]
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.dims().iter().product()
    }

    /// Whether some axis is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A borrowed tensor: a pointer to the element at index zero and a [`Layout`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    ptr: *const T,
    layout: Layout,
    borrow: PhantomData<&'a T>,
}

// SAFETY: a `View` is a shared borrow of `T`s (its constructor's contract), so it moves and is shared as `&T` does.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<'_, T> {}

impl<'a, T> View<'a, T> {
    /// A view of the elements that `layout` reaches from `ptr`.
    ///
    /// # Safety
    ///
    /// Every element that `layout` reaches from `ptr` is valid for reads for `'a`, aligned, and not written during
    /// `'a`, except through a [`ViewMut`] given to the same element-wise kernel with the same pointer and layout.
    pub unsafe fn from_raw(ptr: *const T, layout: Layout) -> Self {
        View { ptr, layout, borrow: PhantomData }
    }

    /// A row-major view of `data`, or `None` when `dims` does not have `data.len()` elements.
    pub fn from_slice(data: &'a [T], dims: &[usize]) -> Option<Self> {
        let layout = Layout::contiguous(dims)?;
        // SAFETY: a contiguous layout of `data.len()` elements reaches exactly the slice, borrowed for `'a`.
        (layout.len() == data.len()).then(|| unsafe { View::from_raw(data.as_ptr(), layout) })
    }

    /// The address of the element at index zero.
    pub fn as_ptr(&self) -> *const T {
        self.ptr
    }

    /// Extents and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// A mutably borrowed tensor: a pointer to the element at index zero and an injective [`Layout`].
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    ptr: *mut T,
    layout: Layout,
    borrow: PhantomData<&'a mut T>,
}

// SAFETY: a `ViewMut` is an exclusive borrow of `T`s (its constructor's contract), so it moves as `&mut T` does.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}
// SAFETY: sharing a `ViewMut` gives its pointer only; kernels write disjoint elements from each participant.
unsafe impl<T: Send> Sync for ViewMut<'_, T> {}

impl<'a, T> ViewMut<'a, T> {
    /// A view of the elements that `layout` reaches from `ptr`.
    ///
    /// # Safety
    ///
    /// Every element that `layout` reaches from `ptr` is valid for writes for `'a`, aligned, reached by one index only,
    /// and not reached by any other view during `'a`, except as [`View::from_raw`] allows.
    pub unsafe fn from_raw(ptr: *mut T, layout: Layout) -> Self {
        ViewMut { ptr, layout, borrow: PhantomData }
    }

    /// A row-major view of `data`, or `None` when `dims` does not have `data.len()` elements.
    pub fn from_slice(data: &'a mut [T], dims: &[usize]) -> Option<Self> {
        let layout = Layout::contiguous(dims)?;
        // SAFETY: a contiguous layout of `data.len()` elements reaches exactly the slice, borrowed for `'a`.
        (layout.len() == data.len()).then(|| unsafe { ViewMut::from_raw(data.as_mut_ptr(), layout) })
    }

    /// The address of the element at index zero.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.ptr
    }

    /// Extents and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}
