"""What the planner knows of a value: where its elements lie, in which type and shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_RANK", "Array", "Buffer", "Opaque", "Shape", "Space", "Step", "Tensor", "Value", "row_major"]

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
Space: TypeAlias = Literal["arena", "input", "output", "const"]

MAX_RANK = 8
"""The highest rank a native kernel takes."""


class Buffer:
    """A block of memory of a program: part of the arena, one input, one output or one constant.

    Parameters
    ----------
    space : {"arena", "input", "output", "const"}
        Who owns the memory.
    nbytes : int
        Its size in bytes.
    index : int, optional
        The number of the input or output.
    array : ndarray, optional
        The contents of a constant, C-contiguous.

    Examples
    --------
    >>> Buffer("arena", 64)
    Buffer(arena, 64 bytes)
    """

    __slots__ = ("array", "index", "nbytes", "space")

    def __init__(self, space: Space, nbytes: int, index: int = 0, array: Array | None = None) -> None:
        self.space = space
        self.nbytes = nbytes
        self.index = index
        self.array = array

    def __repr__(self) -> str:
        return f"Buffer({self.space}, {self.nbytes} bytes)"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A strided view of a buffer.

    Parameters
    ----------
    buffer : Buffer
        The memory.
    dtype : numpy.dtype
        The type of an element.
    shape : tuple of int
        Extents.
    strides : tuple of int
        Distances in elements; zero for a broadcast axis, negative for a reversed one.
    offset : int
        The element of the buffer at index zero.

    Examples
    --------
    >>> x = Tensor.allocate(np.dtype("float32"), (2, 3))
    >>> x.permute((1, 0)).strides
    (1, 3)
    >>> x.slice(1, 2, -1, 3).offset
    2
    """

    buffer: Buffer
    dtype: np.dtype[Any]
    shape: Shape
    strides: Shape
    offset: int = 0

    @classmethod
    def allocate(cls, dtype: np.dtype[Any], shape: Sequence[int], space: Space = "arena", index: int = 0) -> Tensor:
        """A row-major tensor that fills a buffer of its own."""
        shape = tuple(shape)
        buffer = Buffer(space, math.prod(shape) * dtype.itemsize, index)
        return cls(buffer, dtype, shape, row_major(shape))

    @classmethod
    def constant(cls, array: Array) -> Tensor:
        """A tensor over the contents of `array`; broadcast and permuted axes become strides, not copies."""
        still = [axis for axis, step in enumerate(array.strides) if step == 0 and array.shape[axis] > 1]
        core = array[(*(slice(0, 1) if axis in still else slice(None) for axis in range(array.ndim)), ...)]
        order = sorted(range(core.ndim), key=lambda axis: -core.strides[axis])
        if not core.transpose(order).flags.c_contiguous:
            order, core = list(range(core.ndim)), np.array(core, order="C")
        dense = core.transpose(order)
        steps = dict(zip(order, row_major(dense.shape), strict=True))
        strides = tuple(0 if axis in still else steps[axis] for axis in range(core.ndim))
        return cls(Buffer("const", dense.nbytes, array=dense), array.dtype, array.shape, strides)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements when laid out in row-major order."""
        return self.size * self.dtype.itemsize

    @property
    def is_row_major(self) -> bool:
        """Whether the elements follow each other in index order without gaps."""
        if self.size == 0:
            return True
        expected = row_major(self.shape)
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, expected, strict=True))

    @property
    def fills_buffer(self) -> bool:
        """Whether it is the whole buffer in row-major order."""
        return self.offset == 0 and self.is_row_major and self.nbytes == self.buffer.nbytes

    def permute(self, axes: Sequence[int]) -> Tensor:
        """The view with its axes in the order `axes`."""
        return replace(self, shape=tuple(self.shape[a] for a in axes), strides=tuple(self.strides[a] for a in axes))

    def expand(self, shape: Sequence[int]) -> Tensor:
        """The view broadcast to `shape` by zero strides; extents must be equal or one."""
        lead = len(shape) - self.rank
        strides = [0] * lead
        for have, want, step in zip(self.shape, tuple(shape)[lead:], self.strides, strict=True):
            strides.append(step if have == want else 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def slice(self, axis: int, start: int, step: int, length: int) -> Tensor:
        """The `length` elements `start`, `start + step`, ... along `axis`."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + (start * strides[axis] if length and self.size else 0)
        shape[axis], strides[axis] = length, strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def drop(self, axes: Sequence[int]) -> Tensor:
        """The view without `axes`, each of extent one."""
        keep = [axis for axis in range(self.rank) if axis not in axes]
        return self.permute(keep)

    def insert(self, axes: Sequence[int]) -> Tensor:
        """The view with extent-one axes at the positions `axes` of the result."""
        shape, strides = list(self.shape), list(self.strides)
        for axis in sorted(axes):
            shape.insert(axis, 1)
            strides.insert(axis, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def reshape(self, shape: Sequence[int]) -> Tensor | None:
        """The view in another shape of the same size, or None when only a copy can have it."""
        shape = tuple(shape)
        if self.size == 0:
            return replace(self, shape=shape, strides=row_major(shape))
        groups = merge_axes(self.shape, self.strides)
        strides: list[int] = []
        pending = [n for n in shape if n != 1]
        for extent, step in groups:
            part: list[int] = []
            product = 1
            while product < extent:
                if not pending or product * pending[0] > extent:
                    return None
                part.append(pending.pop(0))
                product *= part[-1]
            if product != extent:
                return None
            inner = row_major(tuple(part))
            strides.extend(step * s for s in inner)
        real = iter(strides)
        return replace(self, shape=shape, strides=tuple(0 if n == 1 else next(real) for n in shape))

    def diagonal_windows(self, axis: int, count: int, step: int, taps: int, dilation: int) -> Tensor:
        """The overlapping windows along `axis`: it becomes `count` windows, and an axis of `taps` comes last."""
        shape, strides = list(self.shape), list(self.strides)
        inner = strides[axis] * dilation
        shape[axis], strides[axis] = count, strides[axis] * step
        return replace(self, shape=(*shape, taps), strides=(*strides, inner))


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is not a tensor: a sequence, a map, an optional without a value."""

    python: Any = None


Value: TypeAlias = "Tensor | Array | Opaque"


@dataclass(slots=True)
class Step:
    """One kernel call of a program.

    Parameters
    ----------
    kind : str
        The kernel, as `_native.Program` names it.
    ins, outs : list of Tensor
        Operands; None for an absent optional one.
    attrs : dict
        The kernel's parameters.
    label : str
        The node it comes from.
    flops : int
        Floating point operations, multiply and add counted apart.
    fills_alone : bool
        Whether nothing else ever writes the elements that the step writes, and all reads come later than every such
        step of its buffer (the parts of a Concat).
    """

    kind: str
    ins: list[Tensor | None]
    outs: list[Tensor]
    attrs: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    flops: int = 0
    fills_alone: bool = False

    def reads(self) -> list[Tensor]:
        """The operands that are present."""
        return [tensor for tensor in self.ins if tensor is not None]


def row_major(shape: Sequence[int]) -> Shape:
    """Element strides of the row-major layout of `shape`.

    Examples
    --------
    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def merge_axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Extents and strides with neighbouring axes merged where one stride reaches both; extent-one axes dropped."""
    groups: list[tuple[int, int]] = []
    for extent, step in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if groups and groups[-1][1] == extent * step:
            groups[-1] = (groups[-1][0] * extent, step)
        else:
            groups.append((extent, step))
    return groups
