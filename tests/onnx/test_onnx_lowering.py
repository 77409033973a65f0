"""Kernels chosen by the planner give what ONNX Runtime gives, at every layout and operator set that matters."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import threadteam.onnx as tt_onnx
from onnx import TensorProto, helper
from small_models import build, feed, one_node

pytestmark = pytest.mark.usefixtures("program")


def check(model, given, tolerance=1e-5, native=True):
    """Both runtimes agree, and no node needed the reference implementation."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, given)
    session = tt_onnx.InferenceSession(model)
    results = session.run(None, given)
    for result, reference in zip(results, expected, strict=True):
        assert result.dtype == reference.dtype
        assert result.shape == reference.shape
        scale = max(1.0, float(np.abs(reference[np.isfinite(reference)]).max(initial=0))) if reference.size else 1.0
        np.testing.assert_allclose(result, reference, tolerance, tolerance * scale)
    if native:
        plan = session.plan({name: array.shape for name, array in given.items()})
        assert not plan.python_steps
        assert not plan.later
    return results


CONVOLUTIONS = {
    "plain 2-D": ((2, 3, 9, 8), (4, 3, 3, 3), {}),
    "padded": ((1, 3, 7, 7), (4, 3, 3, 3), {"pads": [1, 2, 0, 1]}),
    "strided and dilated": ((2, 2, 11, 12), (3, 2, 3, 2), {"strides": [2, 3], "dilations": [2, 1]}),
    "grouped": ((1, 6, 5, 5), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ((2, 4, 6, 6), (4, 1, 3, 3), {"group": 4}),
    "pointwise": ((2, 5, 4, 3), (7, 5, 1, 1), {}),
    "same upper": ((1, 2, 7, 8), (3, 2, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 2, 7, 8), (3, 2, 4, 3), {"auto_pad": "SAME_LOWER"}),
    "3-D": ((1, 2, 5, 4, 6), (3, 2, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 1]}),
    "1-D": ((2, 3, 12), (4, 3, 5), {"strides": [2], "pads": [1, 1]}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_convolutions_agree(case, biased, random):
    shape, kernel, attrs = CONVOLUTIONS[case]
    arrays = [random.standard_normal(shape), random.standard_normal(kernel)]
    arrays += [random.standard_normal(kernel[:1])] * biased
    arrays = [array.astype(np.float32) for array in arrays]
    check(one_node("Conv", arrays, **attrs), feed(arrays))


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_with_constant_weights_rearrange_them_when_planned(case, random):
    shape, kernel, attrs = CONVOLUTIONS[case]
    weights = random.standard_normal(kernel).astype(np.float32)
    x = random.standard_normal(shape).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attrs)
    check(build([node], {"x": ("f4", shape)}, {"y": ("f4", None)}, {"w": weights}), {"x": x})


def test_a_channels_last_convolution_reads_its_windows_in_place(random):
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["t", "w"], ["y"]),
    ]
    weights = random.standard_normal((6, 4, 3)).astype(np.float32)
    model = build(nodes, {"x": ("f4", (2, 10, 4))}, {"y": ("f4", None)}, {"w": weights})
    check(model, {"x": random.standard_normal((2, 10, 4)).astype(np.float32)})
    assert [step.kind for step in tt_onnx.InferenceSession(model).plan().steps] == ["matmul"]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [2, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2]},
        {"kernel_shape": [2, 2], "auto_pad": "VALID", "strides": [2, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 2]},
        {"kernel_shape": [3, 2], "strides": [3, 3], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ],
)
def test_pools_agree(op, attrs, random):
    x = random.standard_normal((2, 3, 8, 9)).astype(np.float32)
    check(one_node(op, [x], **attrs), feed([x]))


def test_averages_may_count_the_border(random):
    x = random.standard_normal((2, 3, 8, 9)).astype(np.float32)
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    check(one_node("AveragePool", [x], **attrs), feed([x]))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalization_agrees(size, random):
    x = (random.standard_normal((2, 6, 3, 4)) * 50).astype(np.float32)
    check(one_node("LRN", [x], size=size, alpha=1e-2, beta=0.6, bias=1.5), feed([x]))


def test_padded_max_pools_ignore_the_border(random):
    x = random.standard_normal((2, 3, 8, 9)).astype(np.float32) - 9
    check(one_node("MaxPool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), feed([x]))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((5, 1, 3, 4), (2, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((0, 4), (4, 5)),
    ],
)
def test_matrix_products_agree(a, b, dtype, random):
    arrays = [random.standard_normal(a).astype(dtype), random.standard_normal(b).astype(dtype)]
    check(one_node("MatMul", arrays), feed(arrays))


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bias", [None, (), (1,), (5,), (3, 1), (3, 5)])
def test_gemm_agrees_for_every_transpose_and_bias(transposed, bias, random):
    a = random.standard_normal((3, 4)[:: -1 if transposed[0] else 1]).astype(np.float32)
    b = random.standard_normal((4, 5)[:: -1 if transposed[1] else 1]).astype(np.float32)
    arrays = [a, b] + ([] if bias is None else [random.standard_normal(bias).astype(np.float32)])
    model = one_node("Gemm", arrays, alpha=0.5, beta=2.0, transA=transposed[0], transB=transposed[1])
    check(model, feed(arrays))


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_agrees_under_the_old_and_the_new_meaning_of_its_axis(op, axis, opset, random):
    x = random.standard_normal((2, 3, 4)).astype(np.float32)
    check(one_node(op, [x], opset=opset, axis=axis), feed([x]))


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_of_half_precision_keeps_the_old_meaning_of_its_axis(op, axis, random):
    x = random.standard_normal((2, 3, 4)).astype(np.float16)
    attrs = {} if axis is None else {"axis": axis}
    (result,) = tt_onnx.InferenceSession(one_node(op, [x], opset=11, **attrs)).run(None, feed([x]))
    wide = x.astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(one_node(op, [wide], opset=11, **attrs).SerializeToString()).run(
        None, feed([wide])
    )
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected, 2e-2, 2e-3)


UNARY = "Relu Sigmoid Tanh Erf Softplus Exp Log Sqrt Reciprocal Neg Abs Floor Ceil Round Sign Sin Cos".split()  # noqa: SIM905


@pytest.mark.parametrize("op", [*UNARY, "LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "Mish"])
def test_functions_of_one_operand_agree(op, random):
    x = np.abs(random.standard_normal((3, 7)).astype(np.float32)) + 0.1
    x = x if op in ("Log", "Sqrt") else x * np.where(random.random(x.shape) < 0.5, -1, 1).astype(np.float32)
    check(one_node(op, [x]), feed([x]))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_arithmetic_broadcasts_and_agrees(op, dtype, random):
    arrays = [random.integers(-9, 9, (3, 1, 4)).astype(dtype), random.integers(1, 9, (5, 1)).astype(dtype)]
    check(one_node(op, arrays), feed(arrays))


@pytest.mark.parametrize("power", [2.0, 3.0, 1.0, 0.5, -1.5])
def test_powers_agree(power, random):
    x = (random.random((3, 4)) + 0.5).astype(np.float32)
    node = helper.make_node("Pow", ["x", "p"], ["y"])
    check(build([node], {"x": ("f4", (3, 4))}, {"y": ("f4", None)}, {"p": np.float32(power)}), {"x": x})


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
def test_operators_of_any_number_of_operands_agree(op, random):
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4,), (3, 1))]
    check(one_node(op, arrays), feed(arrays))


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_a_nan_wins_a_comparison(op):
    a, b = np.array([np.nan, 1, 2], np.float32), np.array([0, np.nan, 3], np.float32)
    (result,) = tt_onnx.InferenceSession(one_node(op, [a, b])).run(None, feed([a, b]))
    assert np.isnan(result).tolist() == [True, True, False]


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"])
@pytest.mark.parametrize("axes", [(0,), (1, -1), (0, 1, 2)])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_agree(op, axes, keep, random):
    x = (random.random((2, 3, 4)) + 0.5).astype(np.float32)
    node = helper.make_node(f"Reduce{op}", ["x", "axes"], ["y"], keepdims=keep)
    constants = {"axes": np.array(axes, np.int64)}
    check(build([node], {"x": ("f4", x.shape)}, {"y": ("f4", None)}, constants), {"x": x})


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@pytest.mark.parametrize("dtype", ["f4", "i4", "i8"])
def test_comparisons_agree(op, dtype, random):
    arrays = [random.integers(0, 3, (4, 5)).astype(dtype), random.integers(0, 3, (5,)).astype(dtype)]
    check(one_node(op, arrays, dtype=bool), feed(arrays))


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_connectives_agree(op, random):
    arrays = [random.random((4, 5)) < 0.5, random.random((5,)) < 0.5]
    check(one_node(op, arrays, dtype=bool), feed(arrays))


def test_where_agrees(random):
    arrays = [random.random((4, 1)) < 0.5, random.standard_normal((4, 5)), random.standard_normal((1, 5))]
    check(one_node("Where", arrays, dtype="f8"), feed(arrays))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_agrees_with_negative_indices(axis, random):
    data = random.standard_normal((3, 4, 5)).astype(np.float32)
    indices = np.array([[0, -1], [2, 1]], np.int64)
    check(one_node("Gather", [data, indices], axis=axis), feed([data, indices]))


@pytest.mark.parametrize(("source", "target"), [("f4", "i4"), ("i8", "f4"), ("f4", "f8"), ("f4", bool), (bool, "f4")])
def test_casts_agree(source, target, random):
    x = (random.standard_normal((3, 4)) * 5).astype(source)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    check(one_node("Cast", [x], dtype=target, to=to), feed([x]))


@pytest.mark.parametrize(
    "bounds", [([1], [9], [0], [2]), ([-1], [-100], [1], [-1]), ([3, 0], [0, 2], [0, 2], [-1, 1]), ([5], [2], [0], [1])]
)
def test_slices_agree(bounds, random):
    x = random.standard_normal((6, 5, 4)).astype(np.float32)
    names = ["starts", "ends", "axes", "steps"]
    node = helper.make_node("Slice", ["x", *names], ["y"])
    constants = {name: np.array(value, np.int64) for name, value in zip(names, bounds, strict=True)}
    check(build([node], {"x": ("f4", x.shape)}, {"y": ("f4", None)}, constants), {"x": x})


@pytest.mark.parametrize("pads", [[1, 0, 2, 3], [0, -1, 1, 0], [-1, -1, 0, 0]])
def test_pads_agree(pads, random):
    x = random.standard_normal((4, 5)).astype(np.float32)
    node = helper.make_node("Pad", ["x", "pads", "value"], ["y"])
    constants = {"pads": np.array(pads, np.int64), "value": np.float32(7)}
    check(build([node], {"x": ("f4", x.shape)}, {"y": ("f4", None)}, constants), {"x": x})


@pytest.mark.parametrize("repeats", [[2, 3], [1, 1], [3, 1], [0, 2]])
def test_tiles_agree(repeats, random):
    x = random.standard_normal((4, 5)).astype(np.float32)
    node = helper.make_node("Tile", ["x", "r"], ["y"])
    check(build([node], {"x": ("f4", (4, 5))}, {"y": ("f4", None)}, {"r": np.array(repeats, np.int64)}), {"x": x})


def test_layer_normalization_agrees_with_mean_and_deviation(random):
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 8), (8,), (8,))]
    check(one_node("LayerNormalization", arrays, outputs=3), feed(arrays))


def test_batch_normalization_becomes_a_product_and_a_sum(random):
    stored = {name: (random.random(3) + 0.5).astype(np.float32) for name in ("scale", "bias", "mean", "variance")}
    node = helper.make_node("BatchNormalization", ["x", *stored], ["y"])
    model = build([node], {"x": ("f4", (2, 3, 4, 4))}, {"y": ("f4", None)}, stored)
    check(model, {"x": random.standard_normal((2, 3, 4, 4)).astype(np.float32)})
    assert [step.kind for step in tt_onnx.InferenceSession(model).plan().steps] == ["binary", "binary"]


@pytest.mark.parametrize("biased", [False, True])
def test_batch_normalization_after_a_convolution_becomes_part_of_it(biased, random):
    stored = {name: (random.random(4) + 0.5).astype(np.float32) for name in ("scale", "shift", "mean", "variance")}
    kernel = {"w": random.standard_normal((4, 3, 2, 2)).astype(np.float32)}
    kernel.update({"b": random.standard_normal(4).astype(np.float32)} if biased else {})
    nodes = [
        helper.make_node("Conv", ["x", *kernel], ["c"]),
        helper.make_node("BatchNormalization", ["c", *stored], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    model = build(nodes, {"x": ("f4", (2, 3, 5, 5))}, {"y": ("f4", None)}, {**kernel, **stored})
    check(model, {"x": random.standard_normal((2, 3, 5, 5)).astype(np.float32)})
    assert [step.kind for step in tt_onnx.InferenceSession(model).plan().steps] == ["copy", "matmul", "unary"]


def test_a_convolution_that_others_read_keeps_its_own_result(random):
    stored = {name: (random.random(4) + 0.5).astype(np.float32) for name in ("scale", "shift", "mean", "variance")}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *stored], ["n"]),
        helper.make_node("Add", ["n", "c"], ["y"]),
    ]
    constants = {"w": random.standard_normal((4, 3, 2, 2)).astype(np.float32), **stored}
    model = build(nodes, {"x": ("f4", (2, 3, 5, 5))}, {"y": ("f4", None)}, constants)
    check(model, {"x": random.standard_normal((2, 3, 5, 5)).astype(np.float32)})


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("op", ["Relu", "Softmax", "Transpose"])
def test_empty_tensors_give_empty_results(op, shape):
    x = np.zeros(shape, np.float32)
    (result,) = tt_onnx.InferenceSession(one_node(op, [x])).run(None, feed([x]))
    assert result.shape == (shape[::-1] if op == "Transpose" else shape)


@pytest.mark.parametrize("dtype", ["f2", "i1", "u8", bool, "c8"])
def test_elements_of_every_type_move(dtype, random):
    x = random.integers(0, 2, (2, 3, 4)).astype(dtype)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        helper.make_node("Concat", ["t", "t"], ["y"], axis=1),
    ]
    model = build(nodes, {"x": (dtype, x.shape)}, {"y": (dtype, None)})
    session = tt_onnx.InferenceSession(model)
    (result,) = session.run(None, {"x": x})
    turned = x.transpose(2, 0, 1)
    assert result.dtype == x.dtype
    assert (result == np.concatenate([turned, turned], 1)).all()
    assert not session.plan().python_steps


def test_tensors_of_more_axes_than_a_kernel_takes_are_right(random):
    shape = (2, 1, 2, 1, 3, 1, 2, 1, 2)
    x = random.standard_normal(shape).astype(np.float32)
    (result,) = tt_onnx.InferenceSession(one_node("Relu", [x])).run(None, feed([x]))
    assert (result == np.maximum(x, 0)).all()


def test_bfloat16_is_computed_by_the_reference(random):
    import ml_dtypes

    x = random.standard_normal((3, 4)).astype(ml_dtypes.bfloat16)
    node = helper.make_node("Relu", ["x"], ["y"])
    kind = (int(TensorProto.BFLOAT16), (3, 4))
    (result,) = tt_onnx.InferenceSession(build([node], {"x": kind}, {"y": kind})).run(None, {"x": x})
    assert result.dtype == x.dtype
    assert (result.astype("f4") == np.maximum(x.astype("f4"), 0)).all()
