"""Serve one ONNX model to several client threads on one pool.

    python examples/serve_model.py [MODEL.onnx]

Needs `pip install 'threadteam[onnx]'`. Without an argument a small classifier is built, so that nothing is downloaded.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import threadteam as tt
from onnx import TensorProto, helper, numpy_helper

CLIENTS = 4
REQUESTS = 200


def classifier(features: int = 64, hidden: int = 128, classes: int = 10) -> onnx.ModelProto:
    """Gemm, Relu, Gemm, Softmax with random weights, for any number of rows."""
    random = np.random.default_rng(0)
    shapes = {"w1": (features, hidden), "b1": (hidden,), "w2": (hidden, classes), "b2": (classes,)}
    weights = [
        numpy_helper.from_array((random.standard_normal(shape) / 8).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["l"]),
        helper.make_node("Softmax", ["l"], ["probabilities"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", features])]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["rows", classes])]
    graph = helper.make_graph(nodes, "classifier", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed(session: tt.onnx.InferenceSession, seed: int) -> dict[str, np.ndarray]:
    """Random inputs that fit the model; axes without a fixed extent get 8."""
    random = np.random.default_rng(seed)
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int32)": np.int32}
    return {
        put.name: random.integers(0, 2, [extent if isinstance(extent, int) else 8 for extent in put.shape]).astype(
            kinds.get(put.type, np.int64)
        )
        for put in session.get_inputs()
    }


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else classifier()
    # One pool for the process: sessions and client threads share it, so CPUs are never oversubscribed.
    with tt.Pool() as pool, tt.onnx.InferenceSession(model, on=pool) as session:
        inputs = feed(session, seed=1)
        print(session.plan({name: array.shape for name, array in inputs.items()}))
        expected = session.run(None, inputs)

        def request(_: int) -> bool:
            results = session.run(None, inputs)
            return all(np.array_equal(result, wanted) for result, wanted in zip(results, expected, strict=True))

        with ThreadPoolExecutor(CLIENTS) as clients:
            same = list(clients.map(request, range(REQUESTS)))
        print(
            f"{len(same)} requests from {CLIENTS} clients on {pool.width} CPUs, all results the same bits: {all(same)}"
        )


if __name__ == "__main__":
    main()
