//! The memory of one run in flight: an arena and the table of addresses.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;

/// What arenas are aligned to: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// Zeroed memory, aligned to [`ALIGNMENT`].
#[derive(Debug)]
struct Arena {
    block: NonNull<u8>,
    layout: Layout,
}

impl Arena {
    /// Memory for `bytes` bytes, or `None` when the system refuses.
    fn new(bytes: usize) -> Option<Self> {
        // Asking for the alignment itself would make the allocator write zeros over every page; this way large arenas
        // are fresh pages of the system, which are zero already.
        let layout = Layout::from_size_align(bytes.checked_add(ALIGNMENT)?, 16).ok()?;
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Arena { block, layout })
    }

    fn start(&self) -> *mut u8 {
        let skip = self.block.as_ptr().align_offset(ALIGNMENT);
        // SAFETY: the block has `ALIGNMENT` bytes more than the arena, so the skipped ones are inside.
        unsafe { self.block.as_ptr().add(skip) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `block` was allocated with `layout` and is freed once.
        unsafe { dealloc(self.block.as_ptr(), self.layout) };
    }
}

/// An arena, and the address of every space by base number.
#[derive(Debug)]
pub(crate) struct Frame {
    _arena: Arena,
    pub(crate) bases: Box<[*mut u8]>,
}

// SAFETY: a frame owns its arena; the other addresses are used only with the borrows of the run that set them.
unsafe impl Send for Frame {}

impl Frame {
    /// A frame whose base 0 is a new arena, or `None` when the system refuses the memory.
    pub(crate) fn new(arena_bytes: usize, others: impl Iterator<Item = *mut u8>) -> Option<Self> {
        let arena = Arena::new(arena_bytes)?;
        let bases = std::iter::once(arena.start()).chain(others).collect();
        Some(Frame { _arena: arena, bases })
    }
}
