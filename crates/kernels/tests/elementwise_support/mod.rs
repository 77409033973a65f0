//! Random tensors in random layouts, and the naive loops that kernels are checked against.
#![allow(dead_code)]

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use threadteam::{Exec, Pool};
use threadteam_kernels::{Layout, View, ViewMut, MAX_RANK};

/// A tensor that owns its memory, gaps included.
#[derive(Clone, Debug)]
pub struct Tensor<T> {
    pub memory: Vec<T>,
    base: usize,
    pub layout: Layout,
}

impl<T: Copy> Tensor<T> {
    /// A row-major tensor of `values`.
    pub fn of(dims: &[usize], values: Vec<T>) -> Self {
        let layout = Layout::contiguous(dims).unwrap();
        assert_eq!(layout.len(), values.len());
        Tensor { memory: values, base: 0, layout }
    }

    /// A tensor of `dims` placed as `place` says, its memory filled from `values` over and over.
    pub fn placed(dims: &[usize], place: &Place, values: &[T]) -> Self {
        let (layout, base, len) = place.layout(dims);
        Tensor { memory: values.iter().copied().cycle().take(len.max(1)).collect(), base, layout }
    }

    pub fn view(&self) -> View<'_, T> {
        // SAFETY: the layout was made for this memory and base.
        unsafe { View::from_raw(self.memory.as_ptr().add(self.base), self.layout) }
    }

    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        // SAFETY: as above, and the layout is injective.
        unsafe { ViewMut::from_raw(self.memory.as_mut_ptr().add(self.base), self.layout) }
    }

    /// Both views of the same memory, for kernels that work in place.
    pub fn aliased(&mut self) -> (View<'_, T>, ViewMut<'_, T>) {
        let start = self.memory.as_mut_ptr().wrapping_add(self.base);
        // SAFETY: as above; kernels allow an output that is exactly an input.
        unsafe { (View::from_raw(start, self.layout), ViewMut::from_raw(start, self.layout)) }
    }

    pub fn at(&self, index: &[usize]) -> T {
        self.memory[place_of(&self.layout, self.base, index)]
    }

    /// The elements in row-major order of their indices.
    pub fn values(&self) -> Vec<T> {
        indices(self.layout.dims()).iter().map(|index| self.at(index)).collect()
    }

    /// Whether the elements that no index reaches are as they were in `before`.
    pub fn gaps_are_untouched(&self, before: &Tensor<T>) -> bool
    where
        T: PartialEq,
    {
        let mut reached = vec![false; self.memory.len()];
        for index in indices(self.layout.dims()) {
            reached[place_of(&self.layout, self.base, &index)] = true;
        }
        (0..reached.len()).all(|i| reached[i] || self.memory[i] == before.memory[i])
    }
}

fn place_of(layout: &Layout, base: usize, index: &[usize]) -> usize {
    let offset: isize = index.iter().zip(layout.strides()).map(|(i, s)| *i as isize * s).sum();
    base.checked_add_signed(offset).unwrap()
}

/// Every index of `dims`, in row-major order.
pub fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
    (0..dims.iter().product())
        .map(|mut at: usize| {
            let mut index = vec![0; dims.len()];
            for axis in (0..dims.len()).rev() {
                index[axis] = at % dims[axis];
                at /= dims[axis];
            }
            index
        })
        .collect()
}

/// How a tensor lies in memory: for each axis its place in the storage order, whether it runs backwards, how many
/// elements lie between its slices, and whether it is broadcast.
#[derive(Clone, Debug)]
pub struct Place {
    axes: Vec<(u8, bool, usize, bool)>,
}

impl Place {
    fn layout(&self, dims: &[usize]) -> (Layout, usize, usize) {
        let mut order: Vec<usize> = (0..dims.len()).collect();
        order.sort_by_key(|&axis| self.axes[axis].0);
        let (mut strides, mut base, mut step) = (vec![0isize; dims.len()], 0, 1);
        for axis in order {
            let (_, backwards, gap, broadcast) = self.axes[axis];
            if broadcast {
                continue;
            }
            let step_here = step * (1 + gap);
            strides[axis] = if backwards { -(step_here as isize) } else { step_here as isize };
            if backwards {
                base += dims[axis].saturating_sub(1) * step_here;
            }
            step = step_here * dims[axis].max(1);
        }
        (Layout::new(dims, &strides).unwrap(), base, step)
    }
}

/// Shapes of every rank, some empty, of at most a few thousand elements.
pub fn shape() -> impl Strategy<Value = Vec<usize>> {
    let extent = prop_oneof![6 => 1usize..4, 3 => 4usize..9, 2 => 15usize..70, 1 => Just(1usize), 1 => Just(0usize)];
    vec(extent, 0..=MAX_RANK).prop_map(|mut dims| {
        let mut len = 1;
        for extent in &mut dims {
            if len * (*extent).max(1) > 3000 {
                *extent = 1;
            }
            len *= (*extent).max(1);
        }
        dims
    })
}

/// Places of an output: no broadcast.
pub fn output() -> impl Strategy<Value = Place> {
    place(Just(false).boxed())
}

/// Places of an input.
pub fn input() -> impl Strategy<Value = Place> {
    place(prop_oneof![4 => Just(false), 1 => Just(true)].boxed())
}

fn place(broadcast: BoxedStrategy<bool>) -> impl Strategy<Value = Place> {
    let gap = prop_oneof![5 => Just(0usize), 1 => 1usize..3];
    let plain = prop::bool::ANY;
    let axes = vec((any::<u8>(), prop::bool::weighted(0.2), gap, broadcast), MAX_RANK);
    // Half of the places are in row-major order, as most arrays are.
    (plain, axes).prop_map(|(plain, mut axes)| {
        if plain {
            for (axis, settings) in axes.iter_mut().enumerate() {
                settings.0 = u8::MAX - axis as u8;
                settings.2 = 0;
            }
        }
        for settings in &mut axes {
            // Eight gaps on top of each other would take too much memory.
            settings.2 = settings.2.min(1);
        }
        Place { axes }
    })
}

/// Numbers with NaN, infinities, zeros of both signs and subnormal ones among them.
pub fn reals() -> impl Strategy<Value = Vec<f64>> {
    let special = prop::sample::select(vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-40,
        -1e-40,
        3e38,
        -3e38,
        0.5,
        2.5,
        -2.5,
    ]);
    vec(prop_oneof![3 => -8.0..8.0f64, 1 => -200.0..200.0f64, 1 => special], 1..200)
}

/// The widths that results must not depend on: none, even, odd, and more than most test machines have processors.
pub const WIDTHS: [usize; 4] = [1, 2, 3, 5];

/// A pool of each of [`WIDTHS`], made once.
pub fn pools() -> &'static [Pool] {
    static POOLS: LazyLock<Vec<Pool>> =
        LazyLock::new(|| WIDTHS.iter().map(|&width| Pool::builder().threads(width).build().unwrap()).collect());
    &POOLS
}

/// Runs `body` without a pool, then on a token for the whole of each pool.
pub fn at_every_width(mut body: impl FnMut(Exec<'_>)) {
    body(Exec::serial());
    for (pool, width) in pools().iter().zip(WIDTHS) {
        body(Exec::new(pool, width).unwrap());
    }
}

/// Whether two numbers are the same bits, or both NaN.
pub fn identical(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}
