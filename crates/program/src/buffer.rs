//! Memory that a program borrows: constants for its life, inputs and outputs for one run.

use std::any::Any;
use std::marker::PhantomData;

use crate::{Dtype, Element};

/// Memory to read during a run: row-major elements without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    ptr: *const u8,
    bytes: usize,
    borrow: PhantomData<&'a [u8]>,
}

// SAFETY: a `Buffer` is a shared borrow of plain bytes (its constructors' contract).
unsafe impl Send for Buffer<'_> {}
// SAFETY: as above.
unsafe impl Sync for Buffer<'_> {}

impl<'a> Buffer<'a> {
    /// Borrows a slice.
    pub fn from_slice<T: Element>(data: &'a [T]) -> Self {
        Buffer { ptr: data.as_ptr().cast(), bytes: size_of_val(data), borrow: PhantomData }
    }

    /// Borrows `bytes` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// They are initialised, valid for reads for `'a`, and not written during `'a`.
    pub unsafe fn from_raw(ptr: *const u8, bytes: usize) -> Self {
        Buffer { ptr, bytes, borrow: PhantomData }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Memory to write during a run: row-major elements without gaps.
#[derive(Debug)]
pub struct BufferMut<'a> {
    ptr: *mut u8,
    bytes: usize,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `BufferMut` is an exclusive borrow of plain bytes (its constructors' contract).
unsafe impl Send for BufferMut<'_> {}
// SAFETY: sharing it gives the address only.
unsafe impl Sync for BufferMut<'_> {}

impl<'a> BufferMut<'a> {
    /// Borrows a slice.
    pub fn from_slice<T: Element>(data: &'a mut [T]) -> Self {
        BufferMut { ptr: data.as_mut_ptr().cast(), bytes: size_of_val(data), borrow: PhantomData }
    }

    /// Borrows `bytes` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// They are valid for writes for `'a`, and nothing else reaches them during `'a`.
    pub unsafe fn from_raw(ptr: *mut u8, bytes: usize) -> Self {
        BufferMut { ptr, bytes, borrow: PhantomData }
    }

    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A constant of a program: row-major elements without gaps, kept alive with their owner.
pub struct Constant {
    dtype: Dtype,
    ptr: *const u8,
    bytes: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the bytes are only read (the constructors' contract), and the owner is `Send + Sync`.
unsafe impl Send for Constant {}
// SAFETY: as above.
unsafe impl Sync for Constant {}

impl Constant {
    /// Takes the elements of `data`.
    pub fn from_vec<T: Element>(data: Vec<T>) -> Self {
        let (ptr, bytes) = (data.as_ptr().cast(), size_of_val(data.as_slice()));
        Constant { dtype: T::DTYPE, ptr, bytes, _owner: Box::new(data) }
    }

    /// Refers to `bytes` bytes at `ptr`, which live as long as `owner`.
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, the bytes are initialised, valid for reads, and not written.
    pub unsafe fn from_raw(dtype: Dtype, ptr: *const u8, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Constant { dtype, ptr, bytes, _owner: owner }
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constant").field("dtype", &self.dtype).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Whether `ptr` may hold elements of `dtype`.
pub(crate) fn is_aligned(ptr: *const u8, dtype: Dtype) -> bool {
    ptr.addr().is_multiple_of(dtype.alignment())
}
