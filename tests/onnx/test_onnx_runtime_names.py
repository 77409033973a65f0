"""Names of ONNX Runtime beside sessions and their runs: what has a meaning here does the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import threadteam as tt
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_state

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)
X = np.ones((1, 2), np.float32)
BOTH = pytest.mark.parametrize("system", [tt.onnx, onnxruntime], ids=["threadteam", "onnxruntime"])


def product(*, external: bool, dims: tuple[Any, ...] = (1, 2)) -> bytes:
    """A model that multiplies by weights that it stores in a file that does not exist, or by its own ones."""
    weights = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    if external:
        onnx.external_data_helper.set_external_data(weights, "missing.bin", 0, 24)
        weights.ClearField("raw_data")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    x.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [dims[0], 3])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def session(system: Any, model: bytes, options: Any = None) -> Any:
    return system.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def quiet_options(system: Any) -> Any:
    options = system.SessionOptions()
    options.log_severity_level = 4
    return options


def failure_of(system: Any, name: str) -> type[Exception]:
    kind: type[Exception] = getattr(system if system is tt.onnx else runtime_state, name)
    return kind


def test_every_exception_of_onnxruntime_has_its_name_here() -> None:
    kinds = {name: kind for name, kind in vars(runtime_state).items() if isinstance(kind, type)}
    names = [name for name, kind in kinds.items() if issubclass(kind, Exception)]
    assert len(names) >= 15
    assert all(issubclass(getattr(tt.onnx, name), tt.onnx.OnnxError) for name in names)
    assert set(names) <= set(tt.onnx.__all__)


@BOTH
def test_external_initializers_stand_for_files_that_are_not_there(system: Any) -> None:
    options = quiet_options(system)
    options.add_external_initializers(["w"], [system.OrtValue.ortvalue_from_numpy(WEIGHTS)])
    (y,) = session(system, product(external=True), options).run(None, {"x": X})
    assert np.array_equal(y, X @ WEIGHTS)


@BOTH
@pytest.mark.parametrize(
    ("names", "values", "external"),
    [
        (["w"], [WEIGHTS], False),
        (["w", "other"], [WEIGHTS, WEIGHTS], True),
        (["w"], [WEIGHTS.reshape(3, 2).copy()], True),
        (["w"], [WEIGHTS.astype(np.float64)], True),
    ],
    ids=["stored in the model", "no such name", "another shape", "another type"],
)
def test_external_initializers_that_do_not_fit_fail(
    system: Any, names: list[str], values: list[Any], external: bool
) -> None:
    options = quiet_options(system)
    options.add_external_initializers(names, [system.OrtValue.ortvalue_from_numpy(value) for value in values])
    with pytest.raises(failure_of(system, "Fail")):
        session(system, product(external=external), options)


def test_as_many_external_initializers_as_names_are_asked_for() -> None:
    with pytest.raises(tt.onnx.InvalidArgument, match="got 1 names and 0 values; expected one for each"):
        tt.onnx.SessionOptions().add_external_initializers(["w"], [])


@BOTH
def test_buffers_stand_for_the_files_of_initializers(system: Any) -> None:
    options, contents = quiet_options(system), WEIGHTS.tobytes()
    options.add_external_initializers_from_files_in_memory(["missing.bin"], [contents], [len(contents)])
    (y,) = session(system, product(external=True), options).run(None, {"x": X})
    assert np.array_equal(y, X @ WEIGHTS)


def test_buffers_that_are_too_short_are_named() -> None:
    options = tt.onnx.SessionOptions()
    with pytest.raises(tt.onnx.InvalidArgument, match=r"the buffer of 'missing.bin' has 4 bytes, not 24"):
        options.add_external_initializers_from_files_in_memory(["missing.bin"], [b"1234"], [24])
    options.add_external_initializers_from_files_in_memory(["missing.bin"], [b"1234"], [4])
    with pytest.raises(tt.onnx.InvalidGraph, match=r"24 bytes from 0 on are not in the 4 bytes"):
        session(tt.onnx, product(external=True), options)


@BOTH
def test_a_load_that_was_cancelled_raises(system: Any) -> None:
    options = quiet_options(system)
    options.set_load_cancellation_flag(True)
    with pytest.raises(failure_of(system, "ModelLoadCanceled")):
        session(system, product(external=False), options)
    options.set_load_cancellation_flag(False)
    session(system, product(external=False), options)


@BOTH
def test_a_dimension_is_fixed_by_what_it_denotes(system: Any) -> None:
    options = quiet_options(system)
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 5)
    assert session(system, product(external=False, dims=("n", 2)), options).get_inputs()[0].shape == [5, 2]
    with pytest.raises(failure_of(system, "InvalidArgument")):
        session(system, product(external=False, dims=(1, 2)), options)


@BOTH
def test_the_device_is_the_cpu(system: Any) -> None:
    device = system.OrtDevice.make("cpu", 0)
    assert (device.device_type(), device.device_id(), device.device_vendor_id(), device.device_mem_type()) == (0,) * 4


def test_another_device_is_refused() -> None:
    with pytest.raises(tt.onnx.InvalidArgument, match="device 'cuda' is not available"):
        tt.onnx.OrtDevice.make("cuda", 0)


@BOTH
def test_a_wrapped_array_tells_its_type_size_and_address(system: Any) -> None:
    value = system.OrtValue.ortvalue_from_numpy(WEIGHTS)
    assert (value.element_type(), value.tensor_size_in_bytes()) == (TensorProto.FLOAT, 24)
    assert value.data_ptr() == WEIGHTS.ctypes.data
    assert (value.is_tensor(), value.is_sparse_tensor(), value.is_tensor_sequence()) == (True, False, False)
    assert np.array_equal(np.asarray(value), WEIGHTS)
    assert np.asarray(value, np.float64).dtype == np.float64


@BOTH
def test_the_version_is_that_of_the_module(system: Any) -> None:
    assert system.get_version_string() == system.__version__


def random_model() -> bytes:
    """Two outputs of nodes without a seed, and one with a seed."""
    floats = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8])  # noqa: E731
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[8]),
        helper.make_node("RandomUniform", [], ["b"], shape=[8]),
        helper.make_node("RandomUniform", [], ["c"], shape=[8], seed=3.0),
    ]
    graph = helper.make_graph(nodes, "g", [], [floats("a"), floats("b"), floats("c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@BOTH
def test_the_same_seed_gives_sessions_the_same_numbers_and_runs_different_ones(system: Any) -> None:
    def two_runs(seed: int) -> list[Any]:
        system.set_seed(seed)
        made = session(system, random_model())
        return [*made.run(["a", "b"], {}), *made.run(["a", "b"], {})]

    first, again, other = two_runs(7), two_runs(7), two_runs(-8)
    assert all(map(np.array_equal, first, again))
    assert not any(map(np.array_equal, first, other))
    assert not any(map(np.array_equal, first[:2], first[2:]))


def test_a_seed_of_a_node_outweighs_that_of_the_process() -> None:
    found = []
    for seed in (1, 2):
        tt.onnx.set_seed(seed)
        found.append(session(tt.onnx, random_model()).run(["c"], {})[0])
    assert np.array_equal(*found)


@pytest.mark.parametrize("odd", [1.5, "1", None, True, 1 << 63])
def test_what_is_no_seed_is_refused(odd: Any) -> None:
    with pytest.raises(tt.onnx.InvalidArgument, match="a seed is an integer of 64 bits with a sign, got"):
        tt.onnx.set_seed(odd)


def test_a_profile_that_cannot_be_written_keeps_its_steps(tmp_path: Path) -> None:
    options = tt.onnx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "missing" / "profile_")
    with session(tt.onnx, product(external=False), options) as made:
        made.run(None, {"x": X})
        with pytest.raises(FileNotFoundError):
            made.end_profiling()
        options.profile_file_prefix = str(tmp_path / "profile_")
        assert [event["cat"] for event in json.loads(Path(made.end_profiling()).read_text())] == ["Node"]
        assert json.loads(Path(made.end_profiling()).read_text()) == []
