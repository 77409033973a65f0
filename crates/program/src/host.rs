//! Steps that the host of the program computes, in whatever language it is written.

use std::fmt;

use threadteam::Exec;
use threadteam_kernels::{copy, Layout, View, ViewMut};

use crate::buffer::is_aligned;
use crate::dtype::with_unit;
use crate::error::Cause;
use crate::{Buffer, BufferMut, Dtype};

/// A step computed outside this crate.
///
/// It is called on the thread that leads the run, once per run, possibly by several runs at once.
pub trait HostCall: Send + Sync {
    /// Reads `inputs` (`None` where the description has an absent one) and fills all of `outputs` (likewise).
    fn call(&self, inputs: &[Option<HostInput<'_>>], outputs: &mut [Option<HostOutput<'_>>]) -> Result<(), HostError>;
}

impl fmt::Debug for dyn HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostCall")
    }
}

/// Why a host step failed.
#[derive(Debug)]
pub struct HostError {
    /// One sentence.
    pub message: String,
    /// The error behind it, if the host has one.
    pub cause: Option<Cause>,
}

/// An input of a host step.
#[derive(Clone, Copy, Debug)]
pub struct HostInput<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) ptr: *const u8,
    pub(crate) layout: &'a Layout,
}

impl HostInput<'_> {
    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Extents.
    pub fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Copies all elements to `target`, row-major, or returns false when it has another size or an unsuitable address.
    pub fn copy_to(&self, target: &mut BufferMut<'_>) -> bool {
        let Some(dense) = dense(self.dtype, self.layout, target.as_mut_ptr(), target.bytes()) else { return false };
        if !dense.is_empty() {
            // SAFETY: the run borrows the value for `'a`; `target` is exclusive, aligned, and as large as `dense`.
            with_unit!(self.dtype.unit(), T => unsafe {
                let x = View::<T>::from_raw(self.ptr.cast(), *self.layout);
                copy(Exec::serial(), &x, &mut ViewMut::from_raw(target.as_mut_ptr().cast(), dense));
            });
        }
        true
    }
}

/// An output of a host step.
#[derive(Debug)]
pub struct HostOutput<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) ptr: *mut u8,
    pub(crate) layout: &'a Layout,
}

impl HostOutput<'_> {
    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Extents.
    pub fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Copies all elements from `source`, row-major, or returns false when it has another size or an unsuitable address.
    pub fn copy_from(&mut self, source: &Buffer<'_>) -> bool {
        let Some(dense) = dense(self.dtype, self.layout, source.as_ptr(), source.bytes()) else { return false };
        if !dense.is_empty() {
            // SAFETY: the run lends the value exclusively for `'a`; `source` is aligned and as large as `dense`.
            with_unit!(self.dtype.unit(), T => unsafe {
                let x = View::<T>::from_raw(source.as_ptr().cast(), dense);
                copy(Exec::serial(), &x, &mut ViewMut::from_raw(self.ptr.cast(), *self.layout));
            });
        }
        true
    }
}

/// The row-major layout of a value in the `bytes` bytes at `ptr`, if they suit it.
fn dense(dtype: Dtype, layout: &Layout, ptr: *const u8, bytes: usize) -> Option<Layout> {
    (is_aligned(ptr, dtype) && bytes == layout.len() * dtype.size()).then(|| Layout::contiguous(layout.dims()))?
}
