//! The runtime: skeleton.
use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;
/// A token.
pub struct Exec<'p> {
    budget: NonZeroUsize,
    m: std::marker::PhantomData<&'p ()>,
}
impl<'p> Exec<'p> {
    /// Serial token.
    pub const fn serial() -> Exec<'static> {
        Exec { budget: NonZeroUsize::MIN, m: std::marker::PhantomData }
    }
    /// Slots.
    pub fn budget(&self) -> NonZeroUsize {
        self.budget
    }
    /// Whether serial.
    pub fn is_serial(&self) -> bool {
        true
    }
    /// Lend.
    pub fn reborrow(&mut self) -> Exec<'_> {
        Exec::serial()
    }
    /// Narrow.
    pub fn limit(self, _max: NonZeroUsize) -> Exec<'p> {
        self
    }
    /// Ranges.
    pub fn for_ranges<F: Fn(Range<usize>) + Sync>(self, len: usize, _grain: NonZeroUsize, f: F) {
        f(0..len)
    }
    /// Jobs.
    pub fn fork<F: Fn(usize, Exec<'_>) + Sync>(self, jobs: usize, f: F) {
        for i in 0..jobs {
            f(i, Exec::serial())
        }
    }
    /// Width that pays.
    pub fn width_for(&self, _estimate: Duration, _sections: u32) -> NonZeroUsize {
        NonZeroUsize::MIN
    }
    /// Rule.
    pub fn pays(&self, _estimate: Duration, _sections: u32, _width: NonZeroUsize) -> bool {
        false
    }
}
