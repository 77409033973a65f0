//! What is wrong with a description is said in one sentence that names the step.

mod common;

use common::{Builder, ABSENT};
use threadteam_kernels::{Binary, Reduction, Unary};
use threadteam_program::{Constant, Dtype, Operation, Port, Program, Space};

const RELU: Operation = Operation::Unary(Unary::Relu);

fn refusal(builder: Builder) -> String {
    Program::new(builder.0).expect_err("the description is wrong").to_string()
}

/// A builder with a float32 input (value 0) and output (value 1) of `dims`.
fn pair(dims: &[usize]) -> Builder {
    let mut b = Builder::default();
    b.input(Dtype::Float32, dims);
    b.output(Dtype::Float32, dims);
    b
}

#[test]
fn a_value_outside_its_space() {
    for (offset, strides) in [(4, 1), (0, -1), (0, 2), (0, isize::MIN), (0, isize::MAX)] {
        let mut b = pair(&[4]);
        let x = b.value(Space::Input(0), offset, Dtype::Float32, &[4], &[strides]);
        b.step(RELU, &[x], &[1]);
        let message = refusal(b);
        assert!(message.contains("value 2 of step 0 (node0)"), "{message}");
        assert!(message.contains("reaches outside input 0, which has 16 bytes"), "{message}");
    }
}

#[test]
fn a_value_in_a_space_that_does_not_exist() {
    for space in [Space::Input(1), Space::Output(7), Space::Constant(0)] {
        let mut b = pair(&[4]);
        b.value(space, 0, Dtype::Float32, &[4], &[1]);
        assert!(refusal(b).contains("does not exist"));
    }
}

#[test]
fn a_value_of_another_type_than_its_space() {
    let mut b = pair(&[4]);
    b.value(Space::Input(0), 0, Dtype::Int32, &[4], &[1]);
    assert_eq!(refusal(b), "value 2 is int32, but input 0 is float32");
}

#[test]
fn an_unaligned_value() {
    let mut b = pair(&[4]);
    b.value(Space::Input(0), 2, Dtype::Float32, &[1], &[1]);
    assert_eq!(refusal(b), "value 2 starts at byte 2, which is no multiple of 4");
}

#[test]
fn too_many_axes_or_strides() {
    let mut b = pair(&[1]);
    b.value(Space::Input(0), 0, Dtype::Float32, &[1; 9], &[1; 9]);
    assert_eq!(refusal(b), "value 2 has 9 axes, more than 8");
    let mut b = pair(&[1]);
    b.value(Space::Input(0), 0, Dtype::Float32, &[1], &[1, 1]);
    assert_eq!(refusal(b), "value 2 has 1 extents but 2 strides");
}

#[test]
fn sizes_beyond_the_address_space() {
    let mut b = pair(&[1]);
    b.0.arena_bytes = usize::MAX;
    assert!(refusal(b).contains("exceeds the address space"));
    let mut b = Builder::default();
    b.0.inputs.push(Port { name: "x".into(), dtype: Dtype::Float64, dims: vec![1 << 40, 1 << 40] });
    assert!(refusal(b).starts_with("input 0 (x) of shape"));
}

#[test]
fn an_operand_that_is_missing_or_unknown() {
    let mut b = pair(&[4]);
    b.step(RELU, &[ABSENT], &[1]);
    assert_eq!(refusal(b), "step 0 (node0) lacks input 0, which unary needs");
    let mut b = pair(&[4]);
    b.step(RELU, &[0], &[5]);
    assert_eq!(refusal(b), "step 0 (node0) refers to value 5, but there are 2");
    let mut b = pair(&[4]);
    b.step(RELU, &[0, 0], &[1]);
    assert_eq!(refusal(b), "step 0 (node0) has 2 inputs, but unary takes 1");
    let mut b = pair(&[4, 4]);
    b.step(Operation::Matmul { alpha: 1.0, beta: 1.0 }, &[0], &[1]);
    assert_eq!(refusal(b), "step 0 (node0) has 1 inputs, but matmul takes 2 to 3");
}

#[test]
fn types_that_a_kernel_does_not_take() {
    let mut b = Builder::default();
    let x = b.input(Dtype::Int32, &[4]);
    let y = b.output(Dtype::Int32, &[4]);
    b.step(RELU, &[x], &[y]);
    assert_eq!(refusal(b), "step 0 (node0) takes float32 or float64, but value 0 is int32");

    let mut b = pair(&[4]);
    let other = b.input(Dtype::Float64, &[4]);
    b.step(Operation::Binary(Binary::Add), &[0, other], &[1]);
    assert_eq!(refusal(b), "step 0 (node0) needs value 2 to be float32, not float64");

    let mut b = pair(&[4]);
    let half = b.input(Dtype::Float16, &[4]);
    b.step(Operation::Cast, &[half], &[1]);
    assert_eq!(refusal(b), "step 0 (node0) takes bool, an integer, float32 or float64, but value 2 is float16");
}

#[test]
fn attention_of_operands_that_do_not_fit() {
    let attention = Operation::Attention { alpha: 1.0, beta: 1.0 };
    let mut b = pair(&[4, 4]);
    b.step(attention.clone(), &[0, 0], &[1]);
    assert_eq!(refusal(b), "step 0 (node0) has 2 inputs, but attention takes 3 to 4");

    let mut b = Builder::default();
    let (left, right) = (b.input(Dtype::Float32, &[4, 2]), b.input(Dtype::Float32, &[2, 5]));
    let (values, y) = (b.input(Dtype::Float32, &[4, 3]), b.output(Dtype::Float32, &[4, 3]));
    b.step(attention.clone(), &[left, right, values], &[y]);
    assert_eq!(
        refusal(b),
        "step 0 (node0) takes [batch.., m, k], [batch.., k, n] and [batch.., n, p] to [batch.., m, p], but the shapes are \
         [4, 2], [2, 5], [4, 3] and [4, 3]"
    );

    let mut b = Builder::default();
    let x = b.input(Dtype::Float32, &[3, 3]);
    let (bias, y) = (b.input(Dtype::Float32, &[3]), b.output(Dtype::Float32, &[3, 3]));
    b.step(attention, &[x, x, x, bias], &[y]);
    assert_eq!(refusal(b), "step 0 (node0) needs value 1 to have the shape [3, 3], not [3]");
}

#[test]
fn shapes_that_do_not_fit() {
    let mut b = Builder::default();
    let (x, y) = (b.input(Dtype::Float32, &[4]), b.output(Dtype::Float32, &[3]));
    b.step(RELU, &[x], &[y]);
    assert_eq!(refusal(b), "step 0 (node0) needs value 0 to have the shape [3], not [4]");

    let mut b = Builder::default();
    let (x, y) = (b.input(Dtype::Float32, &[2, 3]), b.output(Dtype::Float32, &[2, 2]));
    b.step(Operation::Matmul { alpha: 1.0, beta: 0.0 }, &[x, x], &[y]);
    assert!(refusal(b).contains("the shapes are [2, 3], [2, 3] and [2, 2]"));

    let mut b = Builder::default();
    let (x, y) = (b.input(Dtype::Float32, &[2, 3]), b.output(Dtype::Float32, &[2, 3]));
    b.step(Operation::Reduce { op: Reduction::Sum, axes: vec![0] }, &[x], &[y]);
    assert_eq!(refusal(b), "step 0 (node0) needs value 1 to have the shape [1, 3], not [2, 3]");
}

#[test]
fn an_axis_out_of_range() {
    let mut b = pair(&[2, 3]);
    b.step(Operation::Softmax { axis: 2, log: false }, &[0], &[1]);
    assert_eq!(refusal(b), "step 0 (node0) names axis 2, but value 0 has 2 axes");
}

#[test]
fn a_value_read_before_all_of_it_is_written() {
    let mut b = pair(&[4]);
    let scratch = b.arena(Dtype::Float32, &[4]);
    b.step(RELU, &[scratch], &[1]);
    assert!(refusal(b).contains("reads value 2 in the arena, of which a part was not written before"));

    let mut b = pair(&[4]);
    let scratch = b.arena(Dtype::Float32, &[4]);
    let half = b.value(Space::Arena, 0, Dtype::Float32, &[2, 2], &[2, 1]);
    let left = b.value(Space::Arena, 0, Dtype::Float32, &[2, 1], &[2, 1]);
    let right = b.value(Space::Arena, 4, Dtype::Float32, &[2, 1], &[2, 1]);
    let part = b.value(Space::Input(0), 0, Dtype::Float32, &[2, 1], &[1, 1]);
    b.step(Operation::Copy, &[part], &[left]);
    b.step(Operation::Unary(Unary::Neg), &[left], &[left]);
    b.step(RELU, &[half], &[half]);
    b.step(Operation::Copy, &[part], &[right]);
    b.step(RELU, &[scratch], &[1]);
    let message = refusal(b);
    assert!(message.starts_with("step 2 (node2) reads value 3 in the arena"), "{message}");
}

#[test]
fn an_output_that_is_not_filled() {
    let mut b = pair(&[2, 2]);
    let column = b.value(Space::Output(0), 0, Dtype::Float32, &[2, 1], &[2, 1]);
    let source = b.value(Space::Input(0), 0, Dtype::Float32, &[2, 1], &[2, 1]);
    b.step(Operation::Copy, &[source], &[column]);
    assert_eq!(refusal(b), "output 0 (y0) is not written in full by the steps");
}

#[test]
fn an_output_with_an_element_reached_twice() {
    let mut b = pair(&[4]);
    let folded = b.value(Space::Output(0), 0, Dtype::Float32, &[4], &[0]);
    b.step(RELU, &[0], &[folded]);
    assert!(refusal(b).starts_with("step 0 (node0) writes value 2, whose strides [0] reach some element"));
}

#[test]
fn a_write_to_an_input_or_a_constant() {
    let mut b = pair(&[4]);
    b.step(RELU, &[0], &[0]);
    assert_eq!(refusal(b), "step 0 (node0) writes value 0, which lies in input 0");
    let mut b = pair(&[4]);
    let constant = b.constant(vec![0f32; 4], &[4]);
    b.step(RELU, &[0], &[constant]);
    assert_eq!(refusal(b), "step 0 (node0) writes value 2, which lies in constant 0");
}

#[test]
fn an_output_over_an_input_that_is_not_the_same_elements() {
    let mut b = pair(&[4]);
    let reversed = b.value(Space::Output(0), 12, Dtype::Float32, &[4], &[-1]);
    b.step(Operation::Copy, &[0], &[1]);
    b.step(RELU, &[1], &[reversed]);
    assert!(refusal(b).starts_with("step 1 (node1) writes value 2 over its input, value 1, in output 0"));

    let mut b = pair(&[4]);
    b.step(Operation::Copy, &[0], &[1]);
    b.step(Operation::Softmax { axis: 0, log: false }, &[1], &[1]);
    assert!(refusal(b).starts_with("step 1 (node1) writes value 1 over its input, value 1, in output 0"));
}

#[test]
fn outputs_that_overlap_each_other() {
    let mut b = pair(&[2, 2]);
    let scale = b.constant(vec![1f32; 4], &[2, 2]);
    let mean = b.value(Space::Output(0), 0, Dtype::Float32, &[2, 1], &[1, 1]);
    b.step(Operation::LayerNorm { axis: 1, epsilon: 1e-5 }, &[0, scale], &[1, mean]);
    assert_eq!(refusal(b), "step 0 (node0) writes values 1 and 3, which overlap in output 0");
}

#[test]
fn an_unaligned_constant() {
    let data = vec![0u64; 2];
    // SAFETY: eight bytes from byte one of sixteen that live as long as the boxed vector.
    let constant = unsafe { Constant::from_raw(Dtype::Float64, data.as_ptr().cast::<u8>().add(1), 8, Box::new(data)) };
    let mut b = pair(&[1]);
    b.0.constants.push(constant);
    assert_eq!(refusal(b), "constant 0 lies at an address that is no multiple of 8, as float64 needs");
}
