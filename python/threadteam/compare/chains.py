"""The Gemm-Softmax-Gemm chains of the comparison, as data and as ONNX models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from threadteam.compare.case import Array, Case
from threadteam.extras import require

__all__ = ["CHAIN_TOLERANCE", "Chain", "chains"]

CHAIN_TOLERANCE = 1e-5
_OPSET = 17
_IR_VERSION = 8


@dataclass(frozen=True)
class Chain:
    """One chain ``Y = softmax(scale * A @ B + mask) @ C`` with `A` (m, k), `B` (k, n), `C` (n, p).

    Parameters
    ----------
    name, group : str
        The case of the workload file; `group` is "plain" (two-dimensional, `Gemm`) or "attention" (batched, `MatMul`).
    batch : tuple of int
        Leading axes of every operand.
    m, k, n, p : int
        The extents.
    scale : float
        The factor of the first product.
    mask_shape : tuple of int or None
        The shape of the additive mask, broadcast against the first product.
    """

    name: str
    group: str
    batch: tuple[int, ...]
    m: int
    k: int
    n: int
    p: int
    scale: float
    mask_shape: tuple[int, ...] | None = None

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products; the softmax is not counted."""
        return 2 * self.m * self.n * (self.k + self.p) * int(np.prod(self.batch, dtype=np.int64))

    @property
    def title(self) -> str:
        """The operators with their shapes, in one line."""
        batch = "x".join(map(str, self.batch))
        products = "Gemm" if self.group == "plain" else "MatMul"
        where = f" of {batch}" if batch else ""
        mask = ", masked" if self.mask_shape else ""
        return (
            f"{products} {self.m}x{self.k}x{self.n}, Softmax, {products} {self.m}x{self.n}x{self.p}"
            f"{where}{mask} ({self.flops / 1e6:.3g} Mflop)"
        )

    def inputs(self, dtype: str = "float32", seed: int = 0) -> dict[str, Array]:
        """Reproducible operands; those of the first product are scaled so that the softmax is not one-hot."""
        random = np.random.default_rng(seed)
        spread = 1.0 if self.scale != 1.0 else self.k**-0.5
        operands: dict[str, Array] = {
            "A": random.standard_normal((*self.batch, self.m, self.k)) * spread,
            "B": random.standard_normal((*self.batch, self.k, self.n)),
            "C": random.standard_normal((*self.batch, self.n, self.p)),
        }
        if self.mask_shape is not None:
            # The mask of padded sequences: positions from a random length on are excluded.
            extent = self.mask_shape[-1]
            lengths = random.integers(extent // 2, extent + 1, size=(*self.mask_shape[:-1], 1))
            operands["mask"] = np.where(np.arange(extent) < lengths, 0.0, -1e9)
        return {name: np.ascontiguousarray(operand.astype(dtype)) for name, operand in operands.items()}

    def model(self, dtype: str = "float32") -> bytes:
        """The serialised ONNX model with `A`, `B`, `C` (and `mask`) as inputs and `Y` as output."""
        onnx = require("onnx", "onnx", "the comparison")
        helper = onnx.helper
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs = {"A": (*self.batch, self.m, self.k), "B": (*self.batch, self.k, self.n)}
        inputs["C"] = (*self.batch, self.n, self.p)
        nodes, constants = [], []
        if self.group == "plain":
            nodes += [
                helper.make_node("Gemm", ["A", "B"], ["Y1"], name="Gemm 1"),
                helper.make_node("Softmax", ["Y1"], ["P"], name="Softmax", axis=-1),
                helper.make_node("Gemm", ["P", "C"], ["Y"], name="Gemm 2"),
            ]
        else:
            constants.append(onnx.numpy_helper.from_array(np.asarray(self.scale, dtype), "scale"))
            nodes += [
                helper.make_node("MatMul", ["A", "B"], ["AB"], name="MatMul 1"),
                helper.make_node("Mul", ["AB", "scale"], ["Y1"], name="Scale"),
            ]
            scores = "Y1"
            if self.mask_shape is not None:
                inputs["mask"] = self.mask_shape
                nodes.append(helper.make_node("Add", ["Y1", "mask"], ["Y1m"], name="Mask"))
                scores = "Y1m"
            nodes += [
                helper.make_node("Softmax", [scores], ["P"], name="Softmax", axis=-1),
                helper.make_node("MatMul", ["P", "C"], ["Y"], name="MatMul 2"),
            ]
        graph = helper.make_graph(
            nodes,
            self.name,
            [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info("Y", element, (*self.batch, self.m, self.p))],
            constants,
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="threadteam")
        onnx.checker.check_model(model, full_check=True)
        serialised: bytes = model.SerializeToString()
        return serialised

    def evaluate(self, inputs: dict[str, Array]) -> list[Array]:
        """The chain in NumPy, as a careful user writes it: intermediates updated in place.

        Examples
        --------
        >>> chain = chains()[1]
        >>> [result.shape for result in chain.evaluate(chain.inputs())]
        [(8, 64)]
        """
        scores = np.matmul(inputs["A"], inputs["B"])
        if self.scale != 1.0:
            scores *= scores.dtype.type(self.scale)
        if self.mask_shape is not None:
            scores += inputs["mask"]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return [np.matmul(scores, inputs["C"])]

    def case(self, dtype: str = "float32") -> Case:
        """The chain as a case of the comparison."""
        return Case(self.name, self.title, self.model(dtype), self.inputs(dtype), CHAIN_TOLERANCE, self)


def chains() -> Sequence[Chain]:
    """The chains of the workload file that the package carries, smallest plain ones first.

    Examples
    --------
    >>> chains()[0].name
    'gsg_1_64_64_64'
    """
    text = resources.files("threadteam.compare").joinpath("workloads/gsg.json").read_text(encoding="utf-8")
    return [_chain(entry) for entry in json.loads(text)["cases"]]


def _chain(entry: dict[str, Any]) -> Chain:
    mask_shape = entry.get("mask_shape")
    return Chain(
        name=entry["name"],
        group=entry["group"],
        batch=tuple(entry["batch"]),
        m=entry["m"],
        k=entry["k"],
        n=entry["n"],
        p=entry["p"],
        scale=entry["scale"],
        mask_shape=None if mask_shape is None else tuple(mask_shape),
    )
