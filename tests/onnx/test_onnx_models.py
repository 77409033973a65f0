"""Whole models against ONNX Runtime, and the same bits at every width."""

from __future__ import annotations

from pathlib import Path

import magika
import numpy as np
import onnxruntime
import pytest
import threadteam as tt
import threadteam.onnx as tt_onnx
from onnx import helper
from small_models import build

MAGIKA = Path(magika.__file__).parent / "models" / "standard_v3_3" / "model.onnx"
PADDING = 256
FILES = [Path(__file__), Path(onnxruntime.__file__), Path(np.__file__), MAGIKA]


def chain(batch, m, k, n, p, scale, dtype, weights):
    """`softmax(scale * a @ b) @ d`."""
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["t"]),
        helper.make_node("Softmax", ["t"], ["q"], axis=-1),
        helper.make_node("MatMul", ["q", "d"], ["y"]),
    ]
    shapes = {"a": (*batch, m, k), "b": (*batch, k, n), "d": (*batch, n, p)}
    inputs = {name: (dtype, shape) for name, shape in shapes.items() if not (weights and name in "bd")}
    random = np.random.default_rng(3)
    constants = {name: random.standard_normal(shapes[name]).astype(dtype) for name in "bd"} if weights else {}
    return build(nodes, inputs, {"y": (dtype, (*batch, m, p))}, {**constants, "scale": np.asarray(scale, dtype)})


def gemm_chain(m, k, n, p, dtype):
    nodes = [
        helper.make_node("Gemm", ["a", "b"], ["s"]),
        helper.make_node("Softmax", ["s"], ["q"], axis=-1),
        helper.make_node("Gemm", ["q", "d"], ["y"]),
    ]
    shapes = {"a": (m, k), "b": (k, n), "d": (n, p)}
    return build(nodes, {name: (dtype, shape) for name, shape in shapes.items()}, {"y": (dtype, (m, p))})


CHAINS = {
    "one row": chain((), 1, 64, 64, 64, 1.0, "f4", True),
    "small": chain((), 8, 64, 64, 64, 0.125, "f4", False),
    "odd": chain((), 33, 17, 65, 9, 0.2, "f4", True),
    "middle": chain((), 128, 256, 256, 256, 0.0625, "f4", False),
    "attention": chain((2, 3), 32, 16, 48, 16, 0.25, "f4", False),
    "double": chain((), 24, 32, 40, 16, 0.2, "f8", False),
    "gemm": gemm_chain(32, 64, 64, 64, "f4"),
}


def inputs_of(session, seed=11):
    random = np.random.default_rng(seed)
    kinds = {"tensor(float)": "f4", "tensor(double)": "f8"}
    return {arg.name: random.standard_normal(arg.shape).astype(kinds[arg.type]) for arg in session.get_inputs()}


def bytes_of(files):
    """The first and last 1024 bytes of each file as numbers, short ones filled up."""
    rows = []
    for file in files:
        data = np.frombuffer(file.read_bytes(), np.uint8).astype(np.int32)
        row = np.full(2048, PADDING, np.int32)
        row[: min(1024, data.size)] = data[:1024]
        row[2048 - min(1024, data.size) :] = data[-1024:]
        rows.append(row)
    return np.stack(rows)


@pytest.mark.parametrize("name", CHAINS)
def test_chains_agree_with_onnx_runtime(name):
    model = CHAINS[name]
    other = onnxruntime.InferenceSession(model.SerializeToString())
    given = inputs_of(other)
    (expected,) = other.run(None, given)
    (result,) = tt_onnx.InferenceSession(model).run(None, given)
    assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("count", [1, 3])
def test_magika_agrees_with_onnx_runtime_on_real_files(count):
    given = {"bytes": bytes_of(FILES[:count])}
    (expected,) = onnxruntime.InferenceSession(MAGIKA).run(None, given)
    (result,) = tt_onnx.InferenceSession(MAGIKA).run(None, given)
    assert np.abs(result - expected).max() <= 1e-4
    assert (result.argmax(-1) == expected.argmax(-1)).all()


def test_magika_runs_without_python_between_its_steps():
    plan = tt_onnx.InferenceSession(MAGIKA).plan({"bytes": (1, 2048)})
    assert not plan.python_steps
    assert not plan.later


@pytest.mark.parametrize("name", [*CHAINS, "magika"])
def test_results_are_the_same_bits_at_every_width(name):
    model = MAGIKA if name == "magika" else CHAINS[name]
    results = []
    for width in (1, 2, 3, 8):
        with tt.Pool(width) as pool:
            session = tt_onnx.InferenceSession(model, on=pool)
            given = {"bytes": bytes_of(FILES[:1])} if name == "magika" else inputs_of(session)
            results.append(session.run(None, given)[0].tobytes())
    assert len(set(results)) == 1


def test_a_nan_reaches_the_results_it_concerns():
    session = tt_onnx.InferenceSession(CHAINS["small"])
    given = inputs_of(session)
    given["a"][2, 5] = np.nan
    (result,) = session.run(None, given)
    assert np.isnan(result[2]).all()
    assert np.isfinite(np.delete(result, 2, 0)).all()
