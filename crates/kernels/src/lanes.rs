//! Inner loops along one run of an element-wise nest, compiled for the widest vectors that the CPU has.
//!
//! A loop reads a block of lanes from every input before it writes the block to the output. So the output may be one
//! of the inputs, which a plain loop over pointers would have to exclude at run time before it could use vectors.

use rten_simd::{Isa, SimdUnaryOp};

/// Lanes in a block: two AVX2 vectors of 32-bit elements, enough for the compiler to use vectors throughout.
const LANES: usize = 16;

/// Runs `body`, and what is inlined into it, compiled for AVX2 where the CPU has it.
///
/// Only code that is inlined profits, so closures given here are marked `#[inline(always)]`. Most loops wait for memory
/// with AVX2 already, so only what is bound by arithmetic has a third copy, by [`vectorized_wide`].
#[inline(always)]
pub(crate) fn vectorized(body: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn with_avx2(body: impl FnOnce()) {
            body()
        }

        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has the features.
            return unsafe { with_avx2(body) };
        }
    }
    body()
}

/// Whether [`vectorized_wide`] has wider vectors than [`vectorized`].
#[inline]
pub(crate) fn wide_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// As [`vectorized`], but for AVX-512 where the CPU has it.
#[inline(always)]
pub(crate) fn vectorized_wide(body: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn with_avx512(body: impl FnOnce()) {
            body()
        }

        if wide_vectors() {
            // SAFETY: the CPU has the features; AVX-512 implies the others.
            return unsafe { with_avx512(body) };
        }
    }
    vectorized(body);
}

/// One operand along a run: its address and what lies between neighbours.
pub(crate) trait Line<T: Copy>: Copy {
    /// The lanes from `at` on.
    ///
    /// # Safety
    ///
    /// The run has elements `at..at + LANES`.
    unsafe fn block(self, at: usize) -> [T; LANES];

    /// The element at `at`.
    ///
    /// # Safety
    ///
    /// The run has an element `at`.
    unsafe fn one(self, at: usize) -> T;
}

/// Neighbours in memory.
#[derive(Clone, Copy)]
struct Dense<T>(*const T);

impl<T: Copy> Line<T> for Dense<T> {
    #[inline(always)]
    unsafe fn block(self, at: usize) -> [T; LANES] {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(at).cast::<[T; LANES]>().read() }
    }

    #[inline(always)]
    unsafe fn one(self, at: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { *self.0.add(at) }
    }
}

/// One element for the whole run.
#[derive(Clone, Copy)]
struct Splat<T>(T);

impl<T: Copy> Line<T> for Splat<T> {
    #[inline(always)]
    unsafe fn block(self, _at: usize) -> [T; LANES] {
        [self.0; LANES]
    }

    #[inline(always)]
    unsafe fn one(self, _at: usize) -> T {
        self.0
    }
}

/// Keeps the compiler from making vectors across the turns of a loop.
///
/// A block is vectors already. Given the chance, the compiler joins the same lane of several blocks into vectors and
/// shuffles them (4 times slower for a maximum), and makes vectors of the few elements after the last block.
#[inline(always)]
pub(crate) fn blocks_stay_apart() {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction; the statement touches nothing.
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}

/// Writes `one(i)` for each place of a dense run, or a block at a time what `block(i)` gives.
#[inline(always)]
unsafe fn fill<D: Copy>(y: *mut D, len: usize, block: impl Fn(usize) -> [D; LANES], one: impl Fn(usize) -> D) {
    let mut at = 0;
    // SAFETY: the output's run has `len` elements.
    unsafe {
        while at + LANES <= len {
            y.add(at).cast::<[D; LANES]>().write(block(at));
            at += LANES;
            blocks_stay_apart();
        }
        while at < len {
            *y.add(at) = one(at);
            at += 1;
            blocks_stay_apart();
        }
    }
}

/// Writes `f` of each element of a run of `x` to `y`, one at a time: for functions that are calls, or too rare to be
/// compiled several times.
///
/// # Safety
///
/// Both runs have `len` elements, and they are the same elements or disjoint.
#[inline(always)]
pub(crate) unsafe fn plain1<S: Copy, D: Copy>(
    y: (*mut D, isize),
    x: (*const S, isize),
    len: usize,
    f: impl Fn(S) -> D,
) {
    for i in 0..len as isize {
        // SAFETY: the caller's promise.
        unsafe { *y.0.offset(i * y.1) = f(*x.0.offset(i * x.1)) };
    }
}

/// As [`plain1`] for pairs of elements.
///
/// # Safety
///
/// All runs have `len` elements, and each input is the same elements as the output or disjoint from it.
#[inline(always)]
pub(crate) unsafe fn plain2<S: Copy, D: Copy>(
    y: (*mut D, isize),
    a: (*const S, isize),
    b: (*const S, isize),
    len: usize,
    f: impl Fn(S, S) -> D,
) {
    for i in 0..len as isize {
        // SAFETY: the caller's promise.
        unsafe { *y.0.offset(i * y.1) = f(*a.0.offset(i * a.1), *b.0.offset(i * b.1)) };
    }
}

/// Writes `f` of each element of a run of `x` to `y`; operands are given as address and stride.
///
/// # Safety
///
/// Both runs have `len` elements, and they are the same elements or disjoint.
#[inline(always)]
pub(crate) unsafe fn map1<S: Copy, D: Copy>(y: (*mut D, isize), x: (*const S, isize), len: usize, f: impl Fn(S) -> D) {
    // SAFETY: the caller's promise; a run that is mapped has an element 0.
    unsafe {
        match (y.1, x.1) {
            (1, 1) => each1(y.0, Dense(x.0), len, f),
            _ => plain1(y, x, len, f),
        }
    }
}

#[inline(always)]
unsafe fn each1<S: Copy, D: Copy>(y: *mut D, x: impl Line<S>, len: usize, f: impl Fn(S) -> D) {
    // SAFETY: the caller's promise.
    unsafe {
        fill(
            y,
            len,
            #[inline(always)]
            |at| {
                let x = x.block(at);
                std::array::from_fn(
                    #[inline(always)]
                    |lane| f(x[lane]),
                )
            },
            #[inline(always)]
            |at| f(x.one(at)),
        );
    }
}

/// Writes `f` of each pair of elements of runs of `a` and `b` to `y`; operands are given as address and stride.
///
/// # Safety
///
/// All runs have `len` elements, and each input is the same elements as the output or disjoint from it.
#[inline(always)]
pub(crate) unsafe fn map2<S: Copy, D: Copy>(
    y: (*mut D, isize),
    a: (*const S, isize),
    b: (*const S, isize),
    len: usize,
    f: impl Fn(S, S) -> D,
) {
    // SAFETY: the caller's promise; a run that is mapped has an element 0.
    unsafe {
        match (y.1, a.1, b.1) {
            (1, 1, 1) => each2(y.0, Dense(a.0), Dense(b.0), len, f),
            (1, 1, 0) => each2(y.0, Dense(a.0), Splat(*b.0), len, f),
            (1, 0, 1) => each2(y.0, Splat(*a.0), Dense(b.0), len, f),
            _ => plain2(y, a, b, len, f),
        }
    }
}

#[inline(always)]
unsafe fn each2<S: Copy, D: Copy>(y: *mut D, a: impl Line<S>, b: impl Line<S>, len: usize, f: impl Fn(S, S) -> D) {
    // SAFETY: the caller's promise.
    unsafe {
        fill(
            y,
            len,
            #[inline(always)]
            |at| {
                let (a, b) = (a.block(at), b.block(at));
                std::array::from_fn(
                    #[inline(always)]
                    |lane| f(a[lane], b[lane]),
                )
            },
            #[inline(always)]
            |at| f(a.one(at), b.one(at)),
        );
    }
}

/// Writes the element of a run of `a` where that of `cond` is not zero, else that of `b`, to `y`; operands are given as
/// address and stride.
///
/// # Safety
///
/// All runs have `len` elements, and each input is the same elements as the output or disjoint from it.
#[inline(always)]
pub(crate) unsafe fn choose<T: Copy>(
    y: (*mut T, isize),
    cond: (*const u8, isize),
    a: (*const T, isize),
    b: (*const T, isize),
    len: usize,
) {
    // SAFETY: the caller's promise; a run that is mapped has an element 0.
    unsafe {
        match (y.1, cond.1, a.1, b.1) {
            (1, 1, 1, 1) => pick(y.0, Dense(cond.0), Dense(a.0), Dense(b.0), len),
            (1, 1, 1, 0) => pick(y.0, Dense(cond.0), Dense(a.0), Splat(*b.0), len),
            (1, 1, 0, 1) => pick(y.0, Dense(cond.0), Splat(*a.0), Dense(b.0), len),
            _ => {
                for i in 0..len as isize {
                    let from = if *cond.0.offset(i * cond.1) != 0 { a } else { b };
                    *y.0.offset(i * y.1) = *from.0.offset(i * from.1);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn pick<T: Copy>(y: *mut T, cond: impl Line<u8>, a: impl Line<T>, b: impl Line<T>, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        fill(
            y,
            len,
            #[inline(always)]
            |at| {
                let (cond, a, b) = (cond.block(at), a.block(at), b.block(at));
                std::array::from_fn(
                    #[inline(always)]
                    |lane| if cond[lane] != 0 { a[lane] } else { b[lane] },
                )
            },
            #[inline(always)]
            |at| if cond.one(at) != 0 { a.one(at) } else { b.one(at) },
        );
    }
}

/// Writes `op` of each element of a run of `x` to `y`; operands are given as address and stride.
///
/// # Safety
///
/// Both runs have `len` elements, and they are the same elements or disjoint.
#[inline(always)]
pub(crate) unsafe fn simd1<I: Isa>(
    isa: I,
    op: &impl SimdUnaryOp<f32>,
    y: (*mut f32, isize),
    x: (*const f32, isize),
    len: usize,
) {
    /// Elements staged at a time when a run is strided.
    const STAGE: usize = 64;

    let dense = y.1 == 1 && x.1 == 1;
    let mut stage = [0f32; STAGE];
    let mut at = 0;
    // SAFETY: the caller's promise; the stage is as long as what is moved through it.
    unsafe {
        while at < len {
            let count = if dense { len } else { STAGE.min(len - at) };
            let (to, from) = if dense {
                (y.0, x.0)
            } else {
                plain1((stage.as_mut_ptr(), 1), (x.0.offset(at as isize * x.1), x.1), count, |value| value);
                (stage.as_mut_ptr(), stage.as_ptr())
            };
            simd_run(isa, op, to, from, count);
            if !dense {
                plain1((y.0.offset(at as isize * y.1), y.1), (stage.as_ptr(), 1), count, |value| value);
            }
            at += count;
        }
    }
}

#[inline(always)]
unsafe fn simd_run<I: Isa>(isa: I, op: &impl SimdUnaryOp<f32>, y: *mut f32, x: *const f32, len: usize) {
    use rten_simd::ops::BitOps;

    let ops = isa.f32();
    let lanes = ops.len();
    let mut at = 0;
    // SAFETY: both runs have `len` elements, and a mask has the lanes below its count only.
    unsafe {
        while at + lanes <= len {
            ops.store_ptr(op.eval(isa, ops.load_ptr(x.add(at))), y.add(at));
            at += lanes;
        }
        if at < len {
            let mask = ops.first_n_mask(len - at);
            ops.store_ptr_mask(op.eval(isa, ops.load_ptr_mask(x.add(at), mask)), y.add(at), mask);
        }
    }
}
