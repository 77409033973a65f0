"""Files that are not models, or broken ones: each gives one exception that names what is wrong."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
import threadteam as tt
import threadteam.onnx as tt_onnx
from onnx import helper
from small_models import build
from test_onnx_random_graphs import Grower


@pytest.fixture
def model(random):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    constants = {"w": random.standard_normal((40, 50)).astype(np.float32)}
    return build([node], {"x": ("f4", ["n", 40])}, {"y": ("f4", ["n", 50])}, constants)


def test_a_model_is_read_from_a_path_bytes_or_an_object(model, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = np.ones((2, 40), np.float32)
    results = [
        tt_onnx.InferenceSession(source).run(None, {"x": x})[0]
        for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), model)
    ]
    assert all((result == results[0]).all() for result in results)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(tt_onnx.NoSuchFile, match=r"absent\.onnx' does not exist"):
        tt_onnx.InferenceSession(tmp_path / "absent.onnx")


def test_a_directory_is_not_a_model(tmp_path):
    with pytest.raises(tt_onnx.NoSuchFile, match="is a directory"):
        tt_onnx.InferenceSession(tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"hello, this is text\n" * 20, b"\x00" * 100, b"\x89PNG\r\n\x1a\n" + bytes(range(256))]
)
def test_bytes_that_are_not_a_model_are_refused(data):
    with pytest.raises(tt_onnx.InvalidProtobuf, match="not an ONNX model"):
        tt_onnx.InferenceSession(data)


def test_a_truncated_model_is_refused_wherever_it_ends(model):
    data = model.SerializeToString()
    for length in range(0, len(data) - 1, 97):
        with pytest.raises((tt_onnx.InvalidProtobuf, tt_onnx.InvalidGraph)):
            tt_onnx.InferenceSession(data[:length])


@pytest.mark.parametrize("seed", range(60))
def test_a_corrupt_model_runs_or_is_refused(seed):
    random = np.random.default_rng(seed)
    data = bytearray(Grower(seed).model(8).SerializeToString())
    for position in random.integers(len(data), size=random.integers(1, 4)):
        data[position] = random.integers(256)
    with contextlib.suppress(tt.ThreadteamError):
        session = tt_onnx.InferenceSession(data)
        given = {}
        for arg in session.get_inputs():
            shape = [extent if isinstance(extent, int) and 0 <= extent < 100 else 2 for extent in arg.shape]
            given[arg.name] = np.zeros(shape, np.float32)
        session.run(None, given)


def test_an_element_type_that_does_not_exist_is_refused(model):
    model.graph.input[0].type.tensor_type.elem_type = 111
    with pytest.raises(tt_onnx.InvalidGraph, match="'x' is declared with an element type"):
        tt_onnx.InferenceSession(model)


def test_an_object_of_another_type_is_refused():
    with pytest.raises(tt_onnx.InvalidArgument, match="int"):
        tt_onnx.InferenceSession(7)


def test_external_data_are_found_beside_the_model(model, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    expected = tt_onnx.InferenceSession(model).run(None, {"x": np.ones((1, 40), np.float32)})[0]
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    result = tt_onnx.InferenceSession(path).run(None, {"x": np.ones((1, 40), np.float32)})[0]
    assert (result == expected).all()
    monkeypatch.chdir(tmp_path)
    result = tt_onnx.InferenceSession(path.read_bytes()).run(None, {"x": np.ones((1, 40), np.float32)})[0]
    assert (result == expected).all()


def test_missing_external_data_are_named(model, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(tt_onnx.NoSuchFile, match=r"'w' .*weights\.bin' does not exist"):
        tt_onnx.InferenceSession(path)


def test_external_data_that_are_too_short_are_named(model, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    data = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(data[:100])
    with pytest.raises(tt_onnx.InvalidGraph, match="'w'"):
        tt_onnx.InferenceSession(path)


@pytest.mark.parametrize("place", [{"offset": "-5"}, {"offset": "first"}, {"length": "all"}])
def test_external_data_at_a_place_that_is_none_are_refused(model, tmp_path, place):
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="data.bin", size_threshold=0)
    stored = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    for entry in stored.graph.initializer[0].external_data:
        entry.value = place.get(entry.key, entry.value)
    (tmp_path / "model.onnx").write_bytes(stored.SerializeToString())
    with pytest.raises(tt_onnx.InvalidGraph, match=r"data\.bin"):
        tt_onnx.InferenceSession(tmp_path / "model.onnx")


def test_a_path_that_no_file_has_is_named():
    with pytest.raises(tt_onnx.NoSuchFile, match=r"'a\\x00b'"):
        tt_onnx.InferenceSession("a\0b")


def test_external_data_outside_the_models_folder_are_refused(model, tmp_path):
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "inner" / "weights.bin").rename(tmp_path / "weights.bin")
    altered = onnx.load(path, load_external_data=False)
    for entry in altered.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../weights.bin"
    path.write_bytes(altered.SerializeToString())
    with pytest.raises(tt_onnx.OnnxError, match="'w'"):
        tt_onnx.InferenceSession(path)


def test_a_cycle_is_named():
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Neg", ["b"], ["c"], name="third"),
    ]
    with pytest.raises(tt_onnx.InvalidGraph, match=r"cycle.*first.*second.*third"):
        tt_onnx.InferenceSession(build(nodes, {"x": ("f4", (2,))}, {"b": ("f4", (2,))}))


def test_nodes_in_any_order_are_sorted():
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    model = build(nodes, {"x": ("f4", (2,))}, {"y": ("f4", (2,))})
    (result,) = tt_onnx.InferenceSession(model).run(None, {"x": np.array([1, -1], np.float32)})
    assert result.tolist() == [-1, 0]


def test_all_unknown_operators_are_named_at_once():
    nodes = [
        helper.make_node("Nothing", ["x"], ["a"]),
        helper.make_node("FusedThing", ["a"], ["b"], domain="com.example"),
        helper.make_node("Other", ["b"], ["y"], domain="not.imported"),
    ]
    model = build(nodes, {"x": ("f4", (2,))}, {"y": ("f4", (2,))}, domains=["com.example"])
    with pytest.raises(tt_onnx.NotImplemented, match=r"ai\.onnx:Nothing, com\.example:FusedThing, not\.imported:Other"):
        tt_onnx.InferenceSession(model)


def test_an_unknown_operator_inside_a_body_is_named():
    branch = helper.make_graph(
        [helper.make_node("Nothing", ["x"], ["b"])], "branch", [], [helper.make_tensor_value_info("b", 1, [2])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    with pytest.raises(tt_onnx.NotImplemented, match="Nothing"):
        tt_onnx.InferenceSession(build([node], {"c": (bool, ()), "x": ("f4", (2,))}, {"y": ("f4", (2,))}))


def test_a_value_defined_twice_is_named():
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="one"), helper.make_node("Neg", ["x"], ["y"], name="two")]
    with pytest.raises(tt_onnx.InvalidGraph, match=r"'two' defines 'y'.*'one'"):
        tt_onnx.InferenceSession(build(nodes, {"x": ("f4", (2,))}, {"y": ("f4", (2,))}))


def test_a_value_defined_nowhere_is_named():
    with pytest.raises(tt_onnx.InvalidGraph, match="'ghost'"):
        tt_onnx.InferenceSession(
            build([helper.make_node("Add", ["x", "ghost"], ["y"])], {"x": ("f4", (2,))}, {"y": ("f4", (2,))})
        )


def test_a_missing_attribute_is_named():
    node = helper.make_node("Concat", ["x", "x"], ["y"])
    with pytest.raises(tt_onnx.InvalidGraph, match="axis"):
        tt_onnx.InferenceSession(build([node], {"x": ("f4", (2,))}, {"y": ("f4", (4,))}))


def test_a_constant_without_its_data_is_named(model):
    model.graph.initializer[0].raw_data = b"1234"
    with pytest.raises(tt_onnx.InvalidGraph, match="'w'"):
        tt_onnx.InferenceSession(model)


@pytest.mark.parametrize(
    "name",
    "InvalidArgument NoSuchFile InvalidProtobuf InvalidGraph NotImplemented Fail RuntimeException".split(),  # noqa: SIM905
)
def test_every_error_is_a_threadteam_error(name):
    assert issubclass(getattr(tt_onnx, name), tt.ThreadteamError)


def test_without_the_onnx_package_the_error_names_the_extra():
    code = "import sys; sys.modules['onnx'] = None; import threadteam as tt; tt.onnx"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'threadteam[onnx]'" in done.stderr
