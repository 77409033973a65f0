"""What the planner leaves out, joins and places, and that buffers never overlap while they live."""

from __future__ import annotations

import numpy as np
import pytest
import threadteam.onnx as tt_onnx
from onnx import helper
from small_models import build
from threadteam import _native

pytestmark = pytest.mark.usefixtures("program")


def kinds(model, **shapes):
    return [step.kind for step in tt_onnx.InferenceSession(model).plan(shapes or None).steps]


def matches_reference(model, feeds):
    """The session gives what the evaluator of the onnx package gives."""
    from onnx.reference import ReferenceEvaluator

    results = tt_onnx.InferenceSession(model).run(None, feeds)
    for result, expected in zip(results, ReferenceEvaluator(model).run(None, feeds), strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, 1e-5, 1e-5)
    return results


def test_shape_computations_leave_no_step(random):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "axis": np.array([0], np.int64), "rest": np.array([-1], np.int64)}
    model = build(nodes, {"x": ("f4", ["n", 3, 4])}, {"y": ("f4", None)}, constants)
    assert kinds(model) == ["unary"]
    for count in (1, 5):
        matches_reference(model, {"x": random.standard_normal((count, 3, 4)).astype(np.float32)})


def test_a_transpose_before_a_product_costs_no_step(random):
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["a", "t"], ["y"])]
    model = build(nodes, {"a": ("f4", (3, 4)), "b": ("f4", (5, 4))}, {"y": ("f4", None)})
    assert kinds(model) == ["matmul"]
    matches_reference(model, {n: random.standard_normal(s).astype("f4") for n, s in (("a", (3, 4)), ("b", (5, 4)))})


def test_the_parts_of_a_concat_are_made_where_they_belong(random):
    nodes = [
        helper.make_node("Relu", ["a"], ["p"]),
        helper.make_node("Neg", ["a"], ["q"]),
        helper.make_node("Concat", ["p", "q", "a"], ["y"], axis=1),
    ]
    model = build(nodes, {"a": ("f4", (3, 4))}, {"y": ("f4", None)})
    assert kinds(model) == ["unary", "unary", "copy"]
    matches_reference(model, {"a": random.standard_normal((3, 4)).astype(np.float32)})


def test_a_part_that_is_a_result_itself_is_copied(random):
    nodes = [helper.make_node("Relu", ["a"], ["p"]), helper.make_node("Concat", ["p", "a"], ["y"], axis=0)]
    model = build(nodes, {"a": ("f4", (3, 4))}, {"y": ("f4", None), "p": ("f4", None)})
    matches_reference(model, {"a": random.standard_normal((3, 4)).astype(np.float32)})


def test_the_same_part_twice_is_made_once_and_copied_once(random):
    nodes = [helper.make_node("Relu", ["a"], ["p"]), helper.make_node("Concat", ["p", "p"], ["y"], axis=0)]
    model = build(nodes, {"a": ("f4", (3, 4))}, {"y": ("f4", None)})
    assert kinds(model) == ["unary", "copy"]
    matches_reference(model, {"a": random.standard_normal((3, 4)).astype(np.float32)})


def test_a_chain_of_functions_needs_no_arena(random):
    nodes = [helper.make_node(op, [f"v{n}"], [f"v{n + 1}"]) for n, op in enumerate(["Exp", "Neg", "Tanh", "Relu"])]
    model = build(nodes, {"v0": ("f4", (8, 8))}, {"v4": ("f4", None)})
    assert tt_onnx.InferenceSession(model).plan().arena_bytes == 0
    matches_reference(model, {"v0": random.standard_normal((8, 8)).astype(np.float32)})


def test_an_input_is_never_written(random):
    x = random.standard_normal((8, 8)).astype(np.float32)
    before = x.copy()
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("Relu", ["i"], ["y"])]
    model = build(nodes, {"x": ("f4", (8, 8))}, {"y": ("f4", None), "i": ("f4", None)})
    (_, copy) = matches_reference(model, {"x": x})
    copy[...] = 0
    assert (x == before).all()


def test_a_bias_after_a_product_becomes_part_of_it(random):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["b", "p"], ["y"])]
    constants = {"w": random.standard_normal((4, 5)).astype("f4"), "b": random.standard_normal(5).astype("f4")}
    model = build(nodes, {"x": ("f4", (2, 3, 4))}, {"y": ("f4", None)}, constants)
    assert kinds(model) == ["matmul"]
    matches_reference(model, {"x": random.standard_normal((2, 3, 4)).astype(np.float32)})


@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_a_scaled_and_masked_product_is_one_step(op, random):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node(op, ["p", "scale"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["t"]),
        helper.make_node("Softmax", ["t"], ["y"], axis=-1),
    ]
    inputs = {"x": ("f4", (2, 3, 4)), "w": ("f4", (2, 4, 5)), "mask": ("f4", (3, 5))}
    model = build(nodes, inputs, {"y": ("f4", None)}, {"scale": np.float32(0.25)})
    assert kinds(model) == ["matmul", "softmax"]
    matches_reference(model, {n: random.standard_normal(shape).astype("f4") for n, (_, shape) in inputs.items()})


def test_a_product_scaled_by_zero_in_the_divisor_is_divided(random):
    nodes = [helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("Div", ["p", "zero"], ["y"])]
    model = build(nodes, {"x": ("f4", (3, 3))}, {"y": ("f4", None)}, {"zero": np.float32(0)})
    assert kinds(model) == ["matmul", "binary"]


def test_a_product_that_others_read_keeps_its_own_result(random):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
        helper.make_node("Relu", ["p"], ["z"]),
    ]
    constants = {"w": random.standard_normal((4, 5)).astype("f4"), "b": random.standard_normal(5).astype("f4")}
    model = build(nodes, {"x": ("f4", (3, 4))}, {"y": ("f4", None), "z": ("f4", None)}, constants)
    assert sorted(kinds(model)) == ["binary", "matmul", "unary"]
    matches_reference(model, {"x": random.standard_normal((3, 4)).astype(np.float32)})


@pytest.mark.parametrize(
    ("ops", "factor", "x", "result"),
    [
        ("MulMul", 1e30, 1e-30, 1e30),
        ("DivDiv", 1e30, 1e30, 1e-30),
        ("DivMul", 1e-40, 1e-5, 1e-5),
        ("AddMul", 0.0, 1.0, np.nan),
    ],
)
def test_factors_that_are_out_of_range_as_one_are_applied_one_by_one(ops, factor, x, result):
    names = {"Mul": "f", "Div": "f", "Add": "inf"}
    nodes = [helper.make_node("MatMul", ["x", "one"], ["p"])]
    nodes += [helper.make_node(ops[:3], ["p", names[ops[:3]]], ["s"]), helper.make_node(ops[3:], ["s", "f"], ["y"])]
    constants = {"one": np.ones((1, 1), "f4"), "f": np.float32(factor), "inf": np.float32(np.inf)}
    model = build(nodes, {"x": ("f4", (1, 1))}, {"y": ("f4", None)}, constants)
    (found,) = tt_onnx.InferenceSession(model).run(None, {"x": np.full((1, 1), x, np.float32)})
    np.testing.assert_allclose(found, [[result]], 1e-5)


ATTENTION = [
    helper.make_node("MatMul", ["q", "k"], ["s"]),
    helper.make_node("Mul", ["s", "c"], ["t"]),
    helper.make_node("Add", ["t", "mask"], ["u"]),
    helper.make_node("Softmax", ["u"], ["w"], axis=-1),
    helper.make_node("MatMul", ["w", "v"], ["y"]),
]
ATTENTION_SHAPES = {"q": (2, 3, 9, 4), "k": (2, 3, 4, 11), "v": (2, 3, 11, 5), "mask": (2, 1, 1, 11)}


def attention_model(nodes=ATTENTION, shapes=ATTENTION_SHAPES, outputs=("y",)):
    inputs = {name: ("f4", shape) for name, shape in shapes.items()}
    return build(nodes, inputs, dict.fromkeys(outputs, ("f4", None)), {"c": np.float32(0.5)})


def attention_feeds(random, shapes=ATTENTION_SHAPES):
    return {name: random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


def test_attention_is_one_step_and_right(random):
    model = attention_model()
    assert kinds(model) == ["attention"]
    matches_reference(model, attention_feeds(random))


def test_attention_without_a_mask_is_one_step_and_right(random):
    nodes = [ATTENTION[0], helper.make_node("Softmax", ["s"], ["w"], axis=-1), ATTENTION[4]]
    shapes = {name: ATTENTION_SHAPES[name] for name in "qkv"}
    model = attention_model(nodes, shapes)
    assert kinds(model) == ["attention"]
    matches_reference(model, attention_feeds(random, shapes))


def test_attention_in_one_step_names_all_of_its_nodes_and_their_work():
    fused = tt_onnx.InferenceSession(attention_model()).plan().steps
    apart = tt_onnx.InferenceSession(attention_model(outputs=("y", "u", "w"))).plan().steps
    assert [step.node for step in fused] == [" + ".join(step.node for step in apart) + " (Attention)"]
    assert fused[0].flops == sum(step.flops for step in apart)


@pytest.mark.parametrize("watched", ["u", "w"])
def test_attention_whose_scores_or_weights_are_wanted_stays_three_steps(watched, random):
    model = attention_model(outputs=("y", watched))
    assert kinds(model) == ["matmul", "softmax", "matmul"]
    matches_reference(model, attention_feeds(random))


def test_attention_whose_weights_are_read_twice_stays_three_steps(random):
    nodes = [*ATTENTION[:4], helper.make_node("MatMul", ["w", "v"], ["z"])]
    nodes += [helper.make_node("ReduceSum", ["w", "last"], ["r"]), helper.make_node("Add", ["z", "r"], ["y"])]
    inputs = {name: ("f4", shape) for name, shape in ATTENTION_SHAPES.items()}
    constants = {"c": np.float32(0.5), "last": np.array([-1], np.int64)}
    model = build(nodes, inputs, {"y": ("f4", None)}, constants)
    assert "attention" not in kinds(model)
    matches_reference(model, attention_feeds(random))


@pytest.mark.parametrize(("op", "axis"), [("Softmax", -2), ("LogSoftmax", -1)])
def test_other_functions_of_the_scores_are_no_attention(op, axis, random):
    nodes = [*ATTENTION[:3], helper.make_node(op, ["u"], ["w"], axis=axis), ATTENTION[4]]
    model = attention_model(nodes)
    assert kinds(model) == ["matmul", "softmax", "matmul"]
    matches_reference(model, attention_feeds(random))


def test_weights_that_a_larger_batch_of_values_shares_are_made_once(random):
    shapes = {"q": (1, 9, 4), "k": (1, 4, 11), "v": (6, 11, 5), "mask": (1, 1, 11)}
    model = attention_model(shapes=shapes)
    assert kinds(model) == ["matmul", "softmax", "matmul"]
    matches_reference(model, attention_feeds(random, shapes))


def test_values_that_the_batch_of_weights_shares_are_one_larger_product(random):
    shapes = {"q": (6, 9, 4), "k": (6, 4, 11), "v": (1, 11, 5), "mask": (11,)}
    model = attention_model(shapes=shapes)
    assert kinds(model) == ["matmul", "softmax", "matmul"]
    matches_reference(model, attention_feeds(random, shapes))


def test_keys_that_the_batch_of_queries_shares_are_one_larger_product(random):
    shapes = {"q": (2, 9, 4), "k": (1, 4, 11), "v": (2, 11, 5), "mask": (11,)}
    model = attention_model(shapes=shapes)
    assert "attention" not in kinds(model)
    matches_reference(model, attention_feeds(random, shapes))


@pytest.mark.parametrize(("batch", "columns"), [((6,), 11), ((2, 3), 9)])
def test_attention_whose_scores_are_reshaped_stays_three_steps(batch, columns, random):
    rows = 99 // columns
    nodes = [
        ATTENTION[0],
        helper.make_node("Reshape", ["s", "shape"], ["u"]),
        helper.make_node("Softmax", ["u"], ["w"], axis=-1),
        ATTENTION[4],
    ]
    shapes = {"q": (2, 3, 9, 4), "k": (2, 3, 4, 11), "v": (*batch, columns, 5)}
    inputs = {name: ("f4", shape) for name, shape in shapes.items()}
    model = build(nodes, inputs, {"y": ("f4", None)}, {"shape": np.array([*batch, rows, columns], np.int64)})
    assert kinds(model) == ["matmul", "softmax", "matmul"]
    matches_reference(model, attention_feeds(random, shapes))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_attention_of_any_rows_is_one_step_where_its_operands_are_read_in_place(rows, random):
    shapes = {"q": (3, rows, 4), "k": (3, 4, 11), "v": (3, 11, 5), "mask": (11,)}
    model = attention_model(shapes=shapes)
    assert ("attention" in kinds(model)) == (rows > 0)
    matches_reference(model, attention_feeds(random, shapes))


@pytest.mark.parametrize("rows", [1, 7])
def test_attention_of_few_rows_whose_keys_must_be_transposed_stays_three_steps(rows, random):
    transposed = helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 2, 1])
    nodes = [transposed, helper.make_node("MatMul", ["q", "turned"], ["s"]), *ATTENTION[1:]]
    shapes = {"q": (3, rows, 4), "k": (3, 11, 4), "v": (3, 11, 5), "mask": (11,)}
    model = attention_model(nodes, shapes)
    assert "attention" not in kinds(model)
    matches_reference(model, attention_feeds(random, shapes))


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "heads", "fused"),
    [
        # Operands that are read where they are, and ones whose rows are a page apart.
        (65, 17, 67, 1, True),
        (9, 33, 1024, 1, True),
        (9, 300, 1024, 1, False),
        (7, 3, 1024, 1, False),
        (8, 129, 1024, 2, False),
    ],
)
def test_attention_is_one_step_where_that_was_measured_to_be_faster(rows, depth, columns, heads, fused, random):
    matrices = {"q": (rows, depth), "k": (depth, columns), "v": (columns, 5), "mask": (columns,)}
    shapes = {name: (heads, *dims) if heads > 1 and name != "mask" else dims for name, dims in matrices.items()}
    model = attention_model(shapes=shapes)
    assert ("attention" in kinds(model)) == fused
    matches_reference(model, attention_feeds(random, shapes))


@pytest.mark.parametrize("fits", [True, False])
def test_attention_without_a_batch_is_one_step_up_to_the_size_of_operands_read_in_place(fits, random):
    columns = 80
    depth = _native.IN_PLACE_BYTES // (4 * columns) + (0 if fits else 1)
    shapes = {"q": (3, depth), "k": (depth, columns), "v": (columns, 5), "mask": (columns,)}
    model = attention_model(shapes=shapes)
    assert ("attention" in kinds(model)) == fits
    matches_reference(model, attention_feeds(random, shapes))


def test_gelu_spelled_out_with_tanh_is_one_step(random):
    nodes = [
        helper.make_node("Mul", ["c", "x"], ["a"]),
        helper.make_node("Mul", ["x", "a"], ["b"]),
        helper.make_node("Mul", ["x", "b"], ["d"]),
        helper.make_node("Add", ["x", "d"], ["e"]),
        helper.make_node("Mul", ["k", "e"], ["f"]),
        helper.make_node("Tanh", ["f"], ["g"]),
        helper.make_node("Add", ["one", "g"], ["h"]),
        helper.make_node("Mul", ["half", "h"], ["i"]),
        helper.make_node("Mul", ["x", "i"], ["y"]),
    ]
    constants = {"c": 0.044715, "k": np.sqrt(2 / np.pi), "one": 1.0, "half": 0.5}
    model = build(nodes, {"x": ("f4", (3, 4))}, {"y": ("f4", None)}, {n: np.float32(v) for n, v in constants.items()})
    assert kinds(model) == ["unary"]
    matches_reference(model, {"x": random.standard_normal((3, 4)).astype(np.float32)})


def test_gelu_spelled_out_with_erf_is_one_step(random):
    nodes = [
        helper.make_node("Div", ["x", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["x", "c"], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["y"]),
    ]
    constants = {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    model = build(nodes, {"x": ("f4", (3, 4))}, {"y": ("f4", None)}, constants)
    assert kinds(model) == ["unary"]
    matches_reference(model, {"x": random.standard_normal((3, 4)).astype(np.float32)})


def test_an_almost_gelu_is_left_as_it_is(random):
    nodes = [
        helper.make_node("Div", ["x", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["z", "c"], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["y"]),
    ]
    constants = {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    model = build(nodes, {"x": ("f4", (3, 4)), "z": ("f4", (3, 4))}, {"y": ("f4", None)}, constants)
    assert len(kinds(model)) == 5
    matches_reference(model, {name: random.standard_normal((3, 4)).astype(np.float32) for name in "xz"})


@pytest.mark.parametrize("bias", [False, True])
def test_a_one_hot_product_looks_rows_up_also_outside_the_range(bias, random):
    nodes = [
        helper.make_node("Equal", ["x", "range"], ["e"]),
        helper.make_node("Cast", ["e"], ["c"], to=1),
        helper.make_node("MatMul", ["c", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ][: 4 if bias else 3]
    constants = {
        "range": np.arange(3, 10, dtype=np.int32)[None, None],
        "w": random.standard_normal((7, 5)).astype(np.float32),
        "b": random.standard_normal(5).astype(np.float32),
    }
    model = build(nodes, {"x": ("i4", (2, 4, 1))}, {"y" if bias else "p": ("f4", None)}, constants)
    assert kinds(model)[-1] == "gather"
    matches_reference(model, {"x": np.array([3, 9, 2, 10, -5, 2**31 - 1, -(2**31), 5], np.int32).reshape(2, 4, 1)})


def test_a_one_hot_product_with_an_infinite_table_stays_a_product():
    nodes = [
        helper.make_node("Equal", ["x", "range"], ["e"]),
        helper.make_node("Cast", ["e"], ["c"], to=1),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    constants = {"range": np.arange(3, dtype=np.int32), "w": np.full((3, 2), np.inf, np.float32)}
    assert "matmul" in kinds(build(nodes, {"x": ("i4", (4, 1))}, {"y": ("f4", None)}, constants))


def test_nodes_that_no_wanted_output_needs_do_not_run(random):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("MatMul", ["x", "x"], ["z"])]
    model = build(nodes, {"x": ("f4", (4, 4))}, {"y": ("f4", None), "z": ("f4", None)})
    session = tt_onnx.InferenceSession(model)
    (result,) = session.run(["y"], {"x": np.ones((4, 4), np.float32)})
    assert (result == 1).all()
    outputs = [stage.result_names for stage in session._plans.values()]
    assert outputs == [["y"]]


def test_constants_are_shared_by_all_plans_of_a_session(random):
    nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    model = build(nodes, {"x": ("f4", ["n", 4])}, {"y": ("f4", None)}, {"w": np.ones((5, 4), np.float32)})
    session = tt_onnx.InferenceSession(model)
    for count in (2, 3):
        session.run(None, {"x": np.ones((count, 4), np.float32)})
    first, second = (stage.description.constants for stage in session._plans.values())
    assert all(np.shares_memory(a, b) for a, b in zip(first, second, strict=True))


def test_a_shape_that_only_the_data_tell_cuts_the_plan(random):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["where"]),
        helper.make_node("Transpose", ["where"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["y"], to=1),
    ]
    model = build(nodes, {"x": ("f4", (3, 4))}, {"y": ("f4", None)})
    session = tt_onnx.InferenceSession(model)
    assert session.plan().later
    for _ in range(3):
        x = random.standard_normal((3, 4)).astype(np.float32)
        (result,) = session.run(None, {"x": x})
        assert (result == np.argwhere(x > 0)).all()


def test_a_target_shape_given_at_run_time_is_obeyed(random):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    model = build(nodes, {"x": ("f4", (3, 4)), "s": ("i8", (2,))}, {"y": ("f4", None)})
    session = tt_onnx.InferenceSession(model)
    x = random.standard_normal((3, 4)).astype(np.float32)
    for shape in ([2, 6], [4, -1], [2, 6]):
        (result,) = session.run(None, {"x": x, "s": np.array(shape)})
        assert (result == np.maximum(x, 0).reshape(shape)).all()


def test_loops_branches_and_scans_read_values_from_around_them(random):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Identity", ["keep"], ["going"]),
            helper.make_node("ReduceSum", ["next"], ["row"], keepdims=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", 7, []),
            helper.make_tensor_value_info("keep", 9, []),
            helper.make_tensor_value_info("state", 1, [2]),
        ],
        [
            helper.make_tensor_value_info("going", 9, []),
            helper.make_tensor_value_info("next", 1, [2]),
            helper.make_tensor_value_info("row", 1, []),
        ],
    )
    nodes = [
        helper.make_node("Relu", ["a"], ["x"]),
        helper.make_node("Loop", ["count", "", "x"], ["last", "rows"], body=body),
        helper.make_node("Exp", ["rows"], ["y"]),
    ]
    model = build(nodes, {"a": ("f4", (2,)), "count": ("i8", ())}, {"last": ("f4", None), "y": ("f4", None)})
    session = tt_onnx.InferenceSession(model)
    a = np.array([1, 0.5], np.float32)
    for count in (3, 0, 1):
        last, y = session.run(None, {"a": a, "count": np.int64(count)})
        np.testing.assert_allclose(last, a * (count + 1))
        np.testing.assert_allclose(y, np.exp([1.5 * (turn + 2) for turn in range(count)]), rtol=1e-5)


def test_functions_of_the_model_become_steps(random):
    function = helper.make_function(
        "mine", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    node = helper.make_node("twice", ["x"], ["y"], domain="mine")
    model = build([node], {"x": ("f4", (3,))}, {"y": ("f4", None)}, functions=[function], domains=["mine"])
    assert kinds(model) == ["binary"]


def test_random_operators_give_something_new_each_time():
    node = helper.make_node("RandomNormal", [], ["y"], shape=[100])
    session = tt_onnx.InferenceSession(build([node], {}, {"y": ("f4", (100,))}))
    assert (session.run(None, {})[0] != session.run(None, {})[0]).any()
