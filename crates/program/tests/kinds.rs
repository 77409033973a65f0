//! Every kind of step computes what its kernel does, from and to every space.

mod common;

use std::f64::consts::FRAC_1_SQRT_2;

use common::{Builder, ABSENT};
use threadteam::Exec;
use threadteam_kernels::{Binary, Compare, Reduction, Unary};
use threadteam_program::{Buffer, BufferMut, Dtype, Element, Operation, Program, RunContext, Space};

fn run<X: Element, Y: Element + Default>(builder: Builder, inputs: &[&[X]], len: usize) -> Vec<Y> {
    let program = Program::new(builder.0).unwrap();
    let mut y = vec![Y::default(); len];
    let inputs: Vec<_> = inputs.iter().map(|input| Buffer::from_slice(input)).collect();
    program.run(Exec::serial(), &inputs, &mut [BufferMut::from_slice(&mut y)], RunContext::default()).unwrap();
    y
}

fn assert_close(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= 1e-5 * e.abs().max(1.0), "{actual:?} is not {expected:?}");
    }
}

#[test]
fn matmul_scales_the_product_and_adds_a_broadcast_bias() {
    let mut b = Builder::default();
    let left = b.input(Dtype::Float32, &[2, 3]);
    let right = b.constant(vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]);
    b.constant(vec![10f32, 20.0], &[2]);
    let bias = b.value(Space::Constant(1), 0, Dtype::Float32, &[2, 2], &[0, 1]);
    let y = b.output(Dtype::Float32, &[2, 2]);
    b.step(Operation::Matmul { alpha: 2.0, beta: 0.5 }, &[left, right, bias], &[y]);
    assert_close(&run(b, &[&[1f32, 1.0, 1.0, 0.0, 1.0, 0.0]], 4), &[23.0, 34.0, 11.0, 18.0]);
}

#[test]
fn matmul_reads_a_transposed_view_without_a_bias() {
    let mut b = Builder::default();
    let left = b.input(Dtype::Float64, &[1, 2]);
    b.constant(vec![1f64, 2.0, 3.0, 4.0], &[2, 2]);
    let right = b.value(Space::Constant(0), 0, Dtype::Float64, &[2, 2], &[1, 2]);
    let y = b.output(Dtype::Float64, &[1, 2]);
    b.step(Operation::Matmul { alpha: 1.0, beta: 1.0 }, &[left, right, ABSENT], &[y]);
    assert_eq!(run::<f64, f64>(b, &[&[1.0, 10.0]], 2), [21.0, 43.0]);
}

#[test]
fn attention_is_two_products_around_a_softmax() {
    let mut b = Builder::default();
    let left = b.input(Dtype::Float32, &[2, 1]);
    let right = b.constant(vec![1f32, 3.0], &[1, 2]);
    let values = b.constant(vec![10f32, 20.0], &[2, 1]);
    b.constant(vec![0f32, 1.0], &[2]);
    let bias = b.value(Space::Constant(2), 0, Dtype::Float32, &[2, 2], &[0, 1]);
    let y = b.output(Dtype::Float32, &[2, 1]);
    b.step(Operation::Attention { alpha: 0.5, beta: -1.0 }, &[left, right, values, bias], &[y]);
    // The weights are softmax([0.5, 1.5 - 1]) and softmax([0, -1]).
    let low = (-1f32).exp() / (1.0 + (-1f32).exp());
    assert_close(&run(b, &[&[1f32, 0.0]], 2), &[15.0, 10.0 + 10.0 * low]);
}

#[test]
fn softmax_adds_up_to_one_along_its_axis() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[2, 2]);
    let y = b.output(Dtype::Float32, &[2, 2]);
    b.step(Operation::Softmax { axis: 0, log: false }, &[x], &[y]);
    assert_close(&run(b, &[&[0f32, 1.0, 0.0, 1.0]], 4), &[0.5; 4]);
}

#[test]
fn layer_norm_gives_mean_and_inverse_deviation_when_asked() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[1, 2]);
    let scale = b.constant(vec![2f32, 2.0], &[1, 2]);
    let (normal, mean) = (b.arena(Dtype::Float32, &[1, 2]), b.arena(Dtype::Float32, &[1, 1]));
    b.0.outputs.push(threadteam_program::Port { name: "y".into(), dtype: Dtype::Float32, dims: vec![4] });
    let inverse = b.value(Space::Output(0), 12, Dtype::Float32, &[1, 1], &[1, 1]);
    b.step(Operation::LayerNorm { axis: 1, epsilon: 0.0 }, &[x, scale, ABSENT], &[normal, mean, inverse]);
    let first = b.value(Space::Output(0), 0, Dtype::Float32, &[1, 2], &[2, 1]);
    let third = b.value(Space::Output(0), 8, Dtype::Float32, &[1, 1], &[1, 1]);
    b.step(Operation::Copy, &[normal], &[first]);
    b.step(Operation::Copy, &[mean], &[third]);
    assert_close(&run(b, &[&[1f32, 5.0]], 4), &[-2.0, 2.0, 3.0, 0.5]);
}

#[test]
fn reduce_keeps_the_rank() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float64, &[2, 3]);
    let y = b.output(Dtype::Float64, &[2, 1]);
    b.step(Operation::Reduce { op: Reduction::Max, axes: vec![1] }, &[x], &[y]);
    assert_eq!(run::<f64, f64>(b, &[&[1.0, 3.0, 2.0, -1.0, -3.0, -2.0]], 2), [3.0, -1.0]);
}

#[test]
fn unary_works_in_place() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[3]);
    let y = b.output(Dtype::Float32, &[3]);
    b.step(Operation::Copy, &[x], &[y]);
    b.step(Operation::Unary(Unary::Clip { min: -1.0, max: 1.0 }), &[y], &[y]);
    b.step(Operation::Unary(Unary::LeakyRelu(0.5)), &[y], &[y]);
    assert_close(&run(b, &[&[-4f32, 0.25, 4.0]], 3), &[-0.5, 0.25, 1.0]);
}

#[test]
fn gelu_matches_its_definition() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float64, &[1]);
    let y = b.output(Dtype::Float64, &[1]);
    b.step(Operation::Unary(Unary::Gelu), &[x], &[y]);
    let gelu = run::<f64, f64>(b, &[&[FRAC_1_SQRT_2]], 1)[0];
    assert!((gelu - FRAC_1_SQRT_2 * 0.5 * (1.0 + 0.520_499_877_813_046_5)).abs() < 1e-7);
}

#[test]
fn binary_broadcasts_by_zero_strides() {
    let mut b = Builder::default();
    b.input(Dtype::Int64, &[2]);
    let column = b.value(Space::Input(0), 0, Dtype::Int64, &[2, 3], &[1, 0]);
    b.constant(vec![1i64, 2, 3], &[3]);
    let row = b.value(Space::Constant(0), 0, Dtype::Int64, &[2, 3], &[0, 1]);
    let y = b.output(Dtype::Int64, &[2, 3]);
    b.step(Operation::Binary(Binary::Mul), &[column, row], &[y]);
    assert_eq!(run::<i64, i64>(b, &[&[10, 100]], 6), [10, 20, 30, 100, 200, 300]);
}

#[test]
fn compare_and_select_choose_elements() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Int16, &[4]);
    b.constant(vec![2i16], &[1]);
    let two = b.value(Space::Constant(0), 0, Dtype::Int16, &[4], &[0]);
    let less = b.arena(Dtype::Bool, &[4]);
    let y = b.output(Dtype::Int16, &[4]);
    b.step(Operation::Compare(Compare::Less), &[x, two], &[less]);
    b.step(Operation::Select, &[less, x, two], &[y]);
    assert_eq!(run::<i16, i16>(b, &[&[5, 1, 2, -7]], 4), [2, 1, 2, -7]);
}

#[test]
fn copies_concatenate_along_the_last_axis_of_reversed_rows() {
    let mut b = Builder::default();
    b.input(Dtype::Uint8, &[2, 2]);
    let reversed = b.value(Space::Input(0), 3, Dtype::Uint8, &[2, 2], &[-2, -1]);
    let nine = b.constant(vec![9u8, 9], &[2, 1]);
    b.output(Dtype::Uint8, &[2, 3]);
    let left = b.value(Space::Output(0), 0, Dtype::Uint8, &[2, 2], &[3, 1]);
    let right = b.value(Space::Output(0), 2, Dtype::Uint8, &[2, 1], &[3, 1]);
    b.step(Operation::Copy, &[reversed], &[left]);
    b.step(Operation::Copy, &[nine], &[right]);
    assert_eq!(run::<u8, u8>(b, &[&[1, 2, 3, 4]], 6), [4, 3, 9, 2, 1, 9]);
}

#[test]
fn copy_moves_types_that_nothing_computes_with() {
    for dtype in [Dtype::Float16, Dtype::Bfloat16, Dtype::Complex64, Dtype::Complex128] {
        let mut b = Builder::default();
        b.input(dtype, &[3]);
        let reversed = b.value(Space::Input(0), 2 * dtype.size(), dtype, &[3], &[-1]);
        let y = b.output(dtype, &[3]);
        b.step(Operation::Copy, &[reversed], &[y]);
        let program = Program::new(b.0).unwrap();
        let words: Vec<u64> = (1..=6).collect();
        let mut y = [0u64; 6];
        let bytes = 3 * dtype.size();
        // SAFETY: both arrays have 48 bytes, the most that three elements of these types take.
        let (x, out) = unsafe {
            (Buffer::from_raw(words.as_ptr().cast(), bytes), BufferMut::from_raw(y.as_mut_ptr().cast(), bytes))
        };
        program.run(Exec::serial(), &[x], &mut [out], RunContext::default()).unwrap();
        // SAFETY: plain bytes.
        let (x, y) = unsafe { (words.align_to::<u8>().1, y.align_to::<u8>().1) };
        let expected: Vec<_> = x[..bytes].chunks(dtype.size()).rev().flatten().copied().collect();
        assert_eq!(&y[..bytes], expected, "{dtype}");
    }
}

#[test]
fn cast_saturates_and_truth_is_zero_or_one() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float64, &[3]);
    let bytes = b.arena(Dtype::Int8, &[3]);
    let truth = b.arena(Dtype::Bool, &[3]);
    let y = b.output(Dtype::Int32, &[2, 3]);
    b.step(Operation::Cast, &[x], &[bytes]);
    b.step(Operation::Cast, &[x], &[truth]);
    let first = b.value(Space::Output(0), 0, Dtype::Int32, &[3], &[1]);
    let second = b.value(Space::Output(0), 12, Dtype::Int32, &[3], &[1]);
    b.step(Operation::Cast, &[bytes], &[first]);
    b.step(Operation::Cast, &[truth], &[second]);
    let _ = y;
    assert_eq!(run::<f64, i32>(b, &[&[-1e9, 0.0, 1.9]], 6), [-128, 0, 1, 1, 0, 1]);
}

#[test]
fn gather_replaces_an_axis_by_the_axes_of_the_indices() {
    let mut b = Builder::default();
    let indices = b.input(Dtype::Int64, &[2, 1]);
    let data = b.constant(vec![1u16, 2, 3, 4, 5, 6], &[2, 3]);
    let y = b.output(Dtype::Uint16, &[2, 2, 1]);
    b.step(Operation::Gather { axis: 1 }, &[data, indices], &[y]);
    assert_eq!(run::<i64, u16>(b, &[&[-1, 0]], 4), [3, 1, 6, 4]);
}

#[test]
fn empty_tensors_are_nothing_to_do() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[0, 3]);
    let y = b.output(Dtype::Float32, &[0, 3]);
    b.step(Operation::Softmax { axis: 1, log: true }, &[x], &[y]);
    assert_eq!(run::<f32, f32>(b, &[&[]], 0), [0f32; 0]);
}

#[test]
fn reducing_nothing_gives_the_neutral_element() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[2, 0]);
    let y = b.output(Dtype::Float32, &[2, 1]);
    b.step(Operation::Reduce { op: Reduction::Sum, axes: vec![1] }, &[x], &[y]);
    assert_eq!(run::<f32, f32>(b, &[&[]], 2), [0.0, 0.0]);
}

#[test]
fn scalars_have_no_axes() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[]);
    let y = b.output(Dtype::Float32, &[]);
    b.step(Operation::Binary(Binary::Add), &[x, x], &[y]);
    assert_eq!(run::<f32, f32>(b, &[&[1.5]], 1), [3.0]);
}
