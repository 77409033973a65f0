"""Damaged models: always an exception of `tt.onnx`."""

from __future__ import annotations

import gc
import sys

import numpy as np
import onnx
import pytest
import threadteam as tt
from onnx import helper
from small_models import build


def test_names_that_are_no_text_are_refused():
    branch = helper.make_graph(
        [helper.make_node("Identity", ["namA"], ["o"]), helper.make_node("Neg", ["namB"], ["p"])],
        "branch",
        [],
        [helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, [2])],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = build([node], {"c": (bool, []), "x": ("float32", [2])}, {"y": ("float32", [2])}).SerializeToString()
    damaged = model.replace(b"namA", b"nam\xc1")
    assert damaged != model
    with pytest.raises(tt.onnx.OnnxError):
        tt.onnx.InferenceSession(damaged)


def test_an_element_type_that_does_not_exist_is_refused():
    node = helper.make_node("Cast", ["x"], ["y"], to=127)
    model = build([node], {"x": ("float32", [2])}, {"y": ("float32", [2])})
    with pytest.raises(tt.onnx.OnnxError):
        tt.onnx.InferenceSession(model.SerializeToString()).run(None, {"x": np.ones(2, np.float32)})


@pytest.mark.parametrize("operator", ["Expand", "ConstantOfShape"])
def test_a_result_larger_than_memory_is_refused_by_name(operator):
    inputs = ["x", "shape"] if operator == "Expand" else ["shape"]
    model = build(
        [helper.make_node(operator, inputs, ["y"])],
        {"x": ("float32", [1])},
        {"y": ("float32", None)},
        constants={"shape": np.array([1 << 48], np.int64)},
    )
    with pytest.raises(tt.onnx.OnnxError, match=r"memory|large"):
        tt.onnx.InferenceSession(model.SerializeToString()).run(None, {"x": np.ones(1, np.float32)})


RELU = helper.make_node("Relu", ["x"], ["y"])
X = {"x": ("float32", [2])}
Y = {"y": ("float32", [2])}
HOSTILE = "a\nb\x1b[31m'c"


@pytest.mark.parametrize(
    "use",
    [
        lambda: tt.onnx.InferenceSession(build([helper.make_node(HOSTILE, ["x"], ["y"], name=HOSTILE)], X, Y)),
        lambda: tt.onnx.InferenceSession(build([helper.make_node("Relu", ["x"], ["y"], domain=HOSTILE)], X, Y)),
        lambda: tt.onnx.InferenceSession(build([helper.make_node("Relu", [HOSTILE], ["y"])], X, Y)),
        lambda: tt.onnx.InferenceSession(build([RELU], X, {HOSTILE: ("float32", [2])})),
        lambda: tt.onnx.InferenceSession(build([RELU, RELU], X, Y)),
        lambda: tt.onnx.InferenceSession(HOSTILE),
        lambda: tt.onnx.InferenceSession(build([RELU], X, Y)).run(None, {HOSTILE: 1}),
        lambda: tt.onnx.InferenceSession(build([RELU], X, Y)).run([HOSTILE], {"x": np.ones(2, np.float32)}),
        lambda: tt.onnx.InferenceSession(build([RELU], X, Y), providers=[HOSTILE]),
        lambda: tt.onnx.SessionOptions().get_session_config_entry(HOSTILE),
    ],
)
def test_a_name_with_control_characters_leaves_the_message_one_line(use):
    with pytest.raises(tt.onnx.OnnxError) as caught:
        use()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("version", [999, 2**31])
def test_an_operator_set_that_is_not_known_yet_is_refused(version):
    with pytest.raises(tt.onnx.NotImplemented, match=rf"operator set {version} .* the newest that the onnx package"):
        tt.onnx.InferenceSession(build([RELU], X, Y, opset=version).SerializeToString())


def test_bodies_nested_deeper_than_the_file_format_allows_are_refused():
    model = build([], X, Y)
    graph = model.graph
    for level in range(200):
        node = graph.node.add(op_type="If", input=["x"], output=["y" if level == 0 else f"y{level}"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # protobuf without its C part writes by recursion
    try:
        encoded = model.SerializeToString()
    finally:
        sys.setrecursionlimit(limit)
    for source in (model, encoded):
        with pytest.raises((tt.onnx.InvalidProtobuf, tt.onnx.InvalidGraph)):
            tt.onnx.InferenceSession(source)


@pytest.mark.parametrize(
    ("option", "value"),
    [("intra_op_num_threads", width) for width in (-1, 1.5, "two", None, 10**9, 10**30)] + [("plan_cache_size", 0)],
)
def test_an_option_out_of_range_is_refused_when_the_session_is_made(option, value):
    options = tt.onnx.SessionOptions()
    setattr(options, option, value)
    with pytest.raises(tt.onnx.InvalidArgument, match=option):
        tt.onnx.InferenceSession(build([RELU], X, Y), options)


@pytest.mark.parametrize("given", [{"sess_options": 5}, {"providers": 5}, {"providers": "CPUExecutionProvider"}])
def test_an_argument_of_another_kind_is_refused_by_name(given):
    with pytest.raises(tt.onnx.InvalidArgument, match=next(iter(given))):
        tt.onnx.InferenceSession(build([RELU], X, Y), **given)


SOUND = build([helper.make_node("Relu", ["x"], ["y"])], {"x": ("f4", ["n", 1000])}, {"y": ("f4", ["n", 1000])})
INPUT = np.ones((500, 1000), np.float32)
REFUSED_MODELS = {
    "no model": b"nothing",
    "truncated": SOUND.SerializeToString()[:-9],
    "missing": "no_such_model.onnx",
    "unknown domain": build([helper.make_node("F", ["x"], ["y"], domain="d")], {"x": ("f4", [1])}, {"y": ("f4", [1])}),
    "cyclic": build(
        [helper.make_node("Add", ["x", "y"], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
        {"x": ("f4", [1])},
        {"y": ("f4", [1])},
    ),
}
REFUSED_INPUTS = {
    "missing": {},
    "shape": {"x": INPUT[:, 1:]},
    "type": {"x": INPUT.astype("f8")},
    "rank": {"x": INPUT[0]},
    "unexpected": {"x": INPUT, "z": INPUT},
}


@pytest.mark.parametrize("refused", REFUSED_MODELS)
def test_a_refused_model_leaves_nothing_behind_and_the_pool_usable(refused):
    with tt.Pool(2) as pool:

        def refuse():
            with pytest.raises(tt.onnx.OnnxError):
                tt.onnx.InferenceSession(REFUSED_MODELS[refused], on=pool)

        assert grown_blocks(refuse) < 100
        with tt.onnx.InferenceSession(SOUND, on=pool) as session:
            assert (session.run(None, {"x": INPUT})[0] == INPUT).all()


@pytest.mark.parametrize("refused", REFUSED_INPUTS)
def test_a_refused_input_leaves_nothing_behind_and_the_session_usable(refused):
    with tt.Pool(2) as pool, tt.onnx.InferenceSession(SOUND, on=pool) as session:

        def refuse():
            with pytest.raises(tt.onnx.InvalidArgument):
                session.run(None, REFUSED_INPUTS[refused])

        assert grown_blocks(refuse) < 100
        assert (session.run(None, {"x": INPUT})[0] == INPUT).all()


def grown_blocks(action):
    """How many blocks more than before are allocated after 200 calls, which would be 200 if each forgot one."""

    def blocks_after(count):
        for _ in range(count):
            action()
        gc.collect()
        return sys.getallocatedblocks()

    return -blocks_after(20) + blocks_after(200)
