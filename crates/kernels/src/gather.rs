//! Elements taken along an axis by index.

use std::fmt;

use threadteam::Exec;

use crate::bits::{with_bits, Size};
use crate::copy::run;
use crate::loops::{Base, Loops};
use crate::{rates, Layout, View, ViewMut, MAX_RANK};

mod sealed {
    pub trait Sealed: Copy + Send + Sync + 'static {
        fn widen(self) -> i64;
    }

    impl Sealed for i32 {
        #[inline(always)]
        fn widen(self) -> i64 {
            i64::from(self)
        }
    }

    impl Sealed for i64 {
        #[inline(always)]
        fn widen(self) -> i64 {
            self
        }
    }
}

/// The index types of [`gather`]: `i32` and `i64`.
pub trait Index: sealed::Sealed {}

impl Index for i32 {}
impl Index for i64 {}

/// An index outside the axis that [`gather`] takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherError {
    /// The index as given.
    pub index: i64,
    /// The extent of the axis.
    pub extent: usize,
}

impl fmt::Display for GatherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GatherError { index, extent } = self;
        if *extent == 0 {
            return write!(f, "index {index} was given for an axis of extent 0, which has no elements to take");
        }
        write!(f, "index {index} is out of range for an axis of extent {extent}: give -{extent} to {}", extent - 1)
    }
}

impl std::error::Error for GatherError {}

/// Takes the slices of `data` along `axis` that `indices` names; negative ones count from the end.
///
/// `y` has the shape of `data` with `axis` replaced by the axes of `indices`.
///
/// # Errors
///
/// [`GatherError`] for the first index out of range; then nothing is written.
///
/// # Panics
///
/// When the shapes do not fit.
pub fn gather<T: Copy + Send + Sync, I: Index>(
    exec: Exec<'_>,
    data: &View<T>,
    indices: &View<I>,
    axis: usize,
    y: &mut ViewMut<T>,
) -> Result<(), GatherError> {
    let (dl, il) = (*data.layout(), *indices.layout());
    assert!(axis < dl.rank(), "gather takes along one of the axes of the data");
    let extent = dl.dims()[axis];
    let after = axis + il.rank();
    let rank = dl.rank() - 1 + il.rank();
    assert_eq!(rank, y.layout().rank(), "gather replaces the axis by the axes of the indices");

    // Both inputs are laid over the output's axes: the data stands still along those of the indices and the reverse.
    let (mut dims, mut from, mut by) = ([0; MAX_RANK], [0; MAX_RANK], [0; MAX_RANK]);
    for at in 0..rank {
        if (axis..after).contains(&at) {
            dims[at] = il.dims()[at - axis];
            by[at] = il.strides()[at - axis];
        } else {
            let source = if at < axis { at } else { at + 1 - il.rank() };
            dims[at] = dl.dims()[source];
            from[at] = dl.strides()[source];
        }
    }
    let over = |strides: &[isize]| Layout::new(&dims[..rank], &strides[..rank]).expect("the output has this rank");
    let loops = Loops::new([y.layout(), &over(&from), &over(&by)]);
    let (data, index, y) = (Base::of(data), Base::of(indices), Base::of_mut(y));

    let checked = Loops::new([&il]);
    let mut error = None;
    let [step] = checked.strides(0);
    checked.walk(0..checked.len(), |[at], len| {
        for i in 0..len as isize {
            // SAFETY: the nest reaches elements of the view only.
            let given = unsafe { *index.at(at + i * step) }.widen();
            if (given < -(extent as i64) || given >= extent as i64) && error.is_none() {
                error = Some(GatherError { index: given, extent });
            }
        }
    });
    if let Some(error) = error {
        return Err(error);
    }

    let take = Take { extent, along: dl.strides()[axis], data, index, y };
    match Size::of::<T>() {
        Some(size) => take_bits(exec, size, &loops, take.cast()),
        None => take.all(exec, &loops),
    }
    Ok(())
}

fn take_bits<I: Index>(exec: Exec<'_>, size: Size, loops: &Loops<3>, take: Take<u8, I>) {
    with_bits!(size, Bits => take.cast::<Bits>().all(exec, loops));
}

/// The operands of a gather whose indices are all inside the axis.
struct Take<T, I> {
    /// The extent of the axis, and the data's stride along it.
    extent: usize,
    along: isize,
    data: Base<T>,
    index: Base<I>,
    y: Base<T>,
}

impl<T: Copy, I: Index> Take<T, I> {
    fn cast<U>(self) -> Take<U, I> {
        let Take { extent, along, data, index, y } = self;
        Take { extent, along, data: data.cast(), index, y: y.cast() }
    }

    fn all(self, exec: Exec<'_>, loops: &Loops<3>)
    where
        T: Send + Sync,
    {
        let [ys, ds, is] = loops.strides(0);
        let nanos = match (ys, ds, is) {
            (1, 1, 0) => rates::COPY_BYTE * size_of::<T>() as f64 + rates::ROW / loops.dims()[0].max(1) as f64,
            _ => rates::MOVE,
        };
        loops.run(exec, nanos, &|places| {
            loops.walk(
                places,
                #[inline(always)]
                |[yo, from, by], len| {
                    // SAFETY: the nest reaches elements of the views only, and every index is inside the axis.
                    unsafe {
                        if is == 0 {
                            let x = self.data.at(from + self.offset(by));
                            return run((self.y.at(yo), ys), (x, ds), len);
                        }
                        for i in 0..len as isize {
                            *self.y.at(yo + i * ys) = *self.data.at(from + i * ds + self.offset(by + i * is));
                        }
                    }
                },
            );
        });
    }

    /// How far along the data the index at offset `at` leads.
    ///
    /// # Safety
    ///
    /// There is an index at `at`, inside the axis.
    #[inline(always)]
    unsafe fn offset(&self, at: isize) -> isize {
        // SAFETY: the caller's promise.
        let index = unsafe { *self.index.at(at) }.widen() as isize;
        // Bounded, so that another thread that writes to the indices meanwhile cannot lead outside the data.
        let index = if index < 0 { index + self.extent as isize } else { index };
        index.clamp(0, self.extent as isize - 1) * self.along
    }
}
