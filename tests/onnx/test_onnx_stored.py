"""The models that the `onnx` package stores with their inputs and outputs, and its architectures of the past decade."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
import pytest
import threadteam.onnx as tt_onnx
from onnx import numpy_helper

DATA = Path(onnx.backend.test.__file__).parent / "data"
STORED = sorted(
    folder
    for kind in ("simple", "pytorch-converted", "pytorch-operator")
    for folder in (DATA / kind).iterdir()
    if (folder / "model.onnx").exists() and "gradient" not in folder.name
)
ARCHITECTURES = sorted((DATA / "light").glob("*.onnx"))


def read(path, declared):
    """A stored tensor, sequence or optional value."""
    kinds = {
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    kind, convert = kinds.get(declared.type.WhichOneof("value"), (onnx.TensorProto, numpy_helper.to_array))
    proto = kind()
    proto.ParseFromString(path.read_bytes())
    return convert(proto)


@pytest.mark.parametrize("folder", STORED, ids=lambda folder: folder.name)
def test_stored_models_give_their_stored_outputs(folder):
    graph = onnx.load(folder / "model.onnx").graph
    session = tt_onnx.InferenceSession(folder / "model.onnx")
    for data in sorted(folder.glob("test_data_set_*")):
        paths = {value.name: data / f"input_{number}.pb" for number, value in enumerate(graph.input)}
        declared = {value.name: value for value in graph.input}
        given = {name: read(path, declared[name]) for name, path in paths.items() if path.exists()}
        for number, (result, value) in enumerate(zip(session.run(None, given), graph.output, strict=True)):
            expected = read(data / f"output_{number}.pb", value)
            if not isinstance(expected, np.ndarray):
                assert [item.tolist() for item in result] == [item.tolist() for item in expected]
            elif expected.dtype.kind == "O":
                assert result.tolist() == expected.tolist()
            else:
                assert result.dtype == expected.dtype
                np.testing.assert_allclose(result, expected, 1e-3, 1e-5)


@pytest.mark.parametrize("path", ARCHITECTURES, ids=lambda path: path.stem)
def test_whole_architectures_agree_with_onnx_runtime_without_python_steps(path, random):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    other = onnxruntime.InferenceSession(path, options)
    given = {arg.name: random.standard_normal(arg.shape).astype(np.float32) for arg in other.get_inputs()}
    session = tt_onnx.InferenceSession(path)
    for result, expected in zip(session.run(None, given), other.run(None, given), strict=True):
        assert np.abs(result - expected).max() <= 1e-4 * max(np.abs(expected).max(), 1e-9)
    plan = session.plan()
    assert not plan.python_steps
    assert not plan.later
