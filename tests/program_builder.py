"""A short way to write descriptions of programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadteam import _native

Array = NDArray[Any]
Shape = tuple[int, ...]

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def dense(shape: Shape) -> Shape:
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


class Builder:
    """A description under construction; arena values are placed one behind the other."""

    def __init__(self) -> None:
        self.values: list[tuple[Any, ...]] = []
        self.constants: list[Array] = []
        self.inputs: list[tuple[str, str, Shape]] = []
        self.outputs: list[tuple[str, str, Shape]] = []
        self.steps: list[tuple[Any, ...]] = []
        self.arena_bytes = 0

    def value(self, space: str, index: int, offset: int, dtype: str, shape: Shape, strides: Shape) -> int:
        self.values.append((space, index, offset, dtype, shape, strides))
        return len(self.values) - 1

    def input(self, dtype: str, shape: Shape) -> int:
        self.inputs.append((f"x{len(self.inputs)}", dtype, shape))
        return self.value("input", len(self.inputs) - 1, 0, dtype, shape, dense(shape))

    def output(self, dtype: str, shape: Shape) -> int:
        self.outputs.append((f"y{len(self.outputs)}", dtype, shape))
        return self.value("output", len(self.outputs) - 1, 0, dtype, shape, dense(shape))

    def constant(self, array: Array) -> int:
        self.constants.append(array)
        return self.value("const", len(self.constants) - 1, 0, array.dtype.name, array.shape, dense(array.shape))

    def arena(self, dtype: str, shape: Shape) -> int:
        offset = self.arena_bytes
        self.arena_bytes += -(-int(np.prod(shape)) * 16 // 64) * 64
        return self.value("arena", 0, offset, dtype, shape, dense(shape))

    def step(self, kind: str, ins: Sequence[int], outs: Sequence[int], label: str = "node", **attrs: Any) -> None:
        self.steps.append((kind, list(ins), list(outs), attrs, label))

    def build(self) -> _native.Program:
        return _native.Program(self.values, self.constants, self.inputs, self.outputs, self.steps, self.arena_bytes)
