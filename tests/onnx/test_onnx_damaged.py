"""Damaged models: always an exception of `tt.onnx`."""

from __future__ import annotations

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
