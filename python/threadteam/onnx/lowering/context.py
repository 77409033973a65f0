"""What a lowering sees of the planner: the node, its operands, and where steps go."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from threadteam.errors import InvalidGraph
from threadteam.onnx.graph import Graph, Node
from threadteam.onnx.types import storage_dtype
from threadteam.onnx.values import MAX_RANK, Array, Opaque, Shape, Step, Tensor, Value

__all__ = ["REAL", "Context", "NeedsValue", "Unsupported", "is_lowered", "lower", "lowers"]

T = TypeVar("T")
Lowering = Callable[["Context"], None]

REAL = (np.dtype("float32"), np.dtype("float64"))
"""The types that arithmetic kernels take."""

ELEMENT_WISE = frozenset({"unary", "binary", "compare", "select", "copy", "cast"})
"""Kernels for which axes of all operands can be merged together."""

_LOWERINGS: dict[str, Lowering] = {}


class Unsupported(Exception):
    """No kernel takes these operands; the planner uses the reference implementation."""


class NeedsValue(Exception):
    """The shapes depend on the contents of the value `name`, known only when the model runs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def lowers(*operators: str) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of operators of the main domain.

    Examples
    --------
    >>> is_lowered("Gemm"), is_lowered("Einsum")
    (True, False)
    """

    def register(function: Lowering) -> Lowering:
        for operator in operators:
            _LOWERINGS[operator] = function
        return function

    return register


def is_lowered(operator: str) -> bool:
    """Whether kernels exist for an operator of the main domain."""
    return operator in _LOWERINGS


def lower(context: Context) -> None:
    """Emit the steps of the context's node.

    Raises
    ------
    Unsupported, NeedsValue
        As the names say.
    """
    if context.node.domain or context.node.op not in _LOWERINGS:
        raise Unsupported
    _LOWERINGS[context.node.op](context)


@dataclass
class Context:
    """One node being lowered.

    Parameters
    ----------
    graph, node
        The model and the node.
    values : list
        The node's inputs; None where an optional one is absent.
    constants : dict
        Tensors made of constants so far in this program, by the identity of the array.
    """

    graph: Graph
    node: Node
    values: list[Value | None]
    constants: dict[int, tuple[Array, Tensor]]
    steps: list[Step] = field(default_factory=list)
    results: dict[int, Value] = field(default_factory=dict)

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.node.op

    @property
    def opset(self) -> int:
        """The operator set that the model imports."""
        return self.node.version

    def attr(self, name: str, default: T) -> T:
        """An attribute, or `default` when the node does not set it."""
        value: T = self.node.attrs.get(name, default)
        return value

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.node.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def has(self, index: int) -> bool:
        """Whether input `index` is present."""
        return index < len(self.values) and self.values[index] is not None

    def tensor(self, index: int) -> Tensor:
        """Input `index` as memory that a kernel reads."""
        value = self.values[index] if index < len(self.values) else None
        if value is None or isinstance(value, Opaque):
            raise Unsupported
        return value if isinstance(value, Tensor) else self.materialise(value)

    def materialise(self, array: Array) -> Tensor:
        """The tensor of a constant, one for each array in a program."""
        held = self.constants.get(id(array))
        if held is None:
            if array.dtype.hasobject:
                raise Unsupported
            held = self.constants[id(array)] = (array, Tensor.constant(array))
        return held[1]

    def scalar(self, value: Any, dtype: np.dtype[Any]) -> Tensor:
        """A constant of rank zero."""
        key = ("scalar", dtype, np.asarray(value, dtype).tobytes())
        return self.materialise(self.memo(key, lambda: np.asarray(value, dtype)))

    def memo(self, key: Hashable, make: Callable[[], Array], *owners: Array) -> Array:
        """A constant derived from `owners`, made once for all plans when those belong to the model itself."""
        if not all(id(owner) in self.graph.lasting for owner in owners):
            return make()
        found: Array | None = self.graph.memo.get(key)
        if found is None:
            found = self.graph.memo.setdefault(key, make())
        return found

    def known(self, index: int) -> Array | None:
        """The contents of input `index` when they are constant."""
        value = self.values[index] if index < len(self.values) else None
        return value if isinstance(value, np.ndarray) else None

    def contents(self, index: int) -> Array:
        """The contents of input `index`, which the output shapes depend on."""
        value = self.values[index]
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, Tensor):
            raise NeedsValue(self.node.inputs[index])
        raise Unsupported

    def integers(self, index: int) -> list[int]:
        """The contents of input `index` as a list of integers."""
        return [int(item) for item in self.contents(index).reshape(-1)]

    def shape(self, index: int) -> Shape:
        """The shape of input `index`."""
        value = self.values[index]
        if value is None or isinstance(value, Opaque):
            raise Unsupported
        return tuple(value.shape)

    def dtype(self, index: int) -> np.dtype[Any]:
        """The element type of input `index`."""
        value = self.values[index]
        if value is None or isinstance(value, Opaque):
            raise Unsupported
        return value.dtype

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis, or an error that names the node."""
        if not -rank <= axis < rank:
            raise InvalidGraph(f"node {self.node}: axis {axis} is out of range for a tensor of rank {rank}")
        return axis % rank if rank else 0

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Non-negative axes without repetition."""
        found = [self.axis(int(axis), rank) for axis in axes]
        if len(set(found)) != len(found):
            raise InvalidGraph(f"node {self.node}: an axis is repeated in {list(axes)}")
        return found

    def require_real(self, *indices: int) -> None:
        """Leave the node to the reference implementation unless these inputs are float32 or all float64."""
        dtypes = {self.dtype(index) for index in indices}
        if len(dtypes) != 1 or not dtypes <= set(REAL):
            raise Unsupported

    def new(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Tensor:
        """A tensor in the arena for a result."""
        return Tensor.allocate(dtype, shape)

    def row_major(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or a copy of it, in row-major order without gaps."""
        if tensor.is_row_major:
            return tensor
        copy = self.new(tensor.dtype, tensor.shape)
        self.emit("copy", [tensor], [copy])
        return copy

    def reshape(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """The tensor in another shape, copied only when no strides describe it."""
        view = tensor.reshape(shape)
        if view is not None:
            return view
        copied = self.row_major(tensor).reshape(shape)
        assert copied is not None
        return copied

    def broadcast(self, *shapes: Sequence[int]) -> Shape:
        """The common shape of operands, or an error that names the node and the shapes."""
        try:
            return tuple(np.broadcast_shapes(*(tuple(shape) for shape in shapes)))
        except ValueError as error:
            given = " and ".join(str(list(shape)) for shape in shapes)
            raise InvalidGraph(f"node {self.node}: shapes {given} do not broadcast together") from error

    def emit(
        self,
        kind: str,
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        flops: int = 0,
        fills_alone: bool = False,
        **attrs: Any,
    ) -> None:
        """Add a step; none is needed when all results are empty."""
        if all(tensor.size == 0 for tensor in outs):
            return
        operands = [*(tensor for tensor in ins if tensor is not None), *outs]
        if any(storage_dtype(tensor.dtype) is None for tensor in operands):
            raise Unsupported
        ins, outs = list(ins), list(outs)
        if any(tensor.rank > MAX_RANK for tensor in operands):
            if kind not in ELEMENT_WISE:
                raise Unsupported
            ins, outs = merge_together(ins, outs)
        self.steps.append(Step(kind, ins, outs, attrs, self.node.label, flops, fills_alone))

    def bind(self, value: Value, index: int = 0) -> None:
        """Make `value` the node's output `index`."""
        self.results[index] = value


def merge_together(ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
    """The operands of an element-wise kernel with neighbouring axes merged wherever all of them allow it."""
    operands = [*(tensor for tensor in ins if tensor is not None), *outs]
    shape = operands[0].shape
    groups: list[tuple[int, tuple[int, ...]]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        steps = tuple(tensor.strides[axis] for tensor in operands)
        if groups and all(outer == extent * inner for outer, inner in zip(groups[-1][1], steps, strict=True)):
            groups[-1] = (groups[-1][0] * extent, steps)
        else:
            groups.append((extent, steps))
    if len(groups) > MAX_RANK:
        raise Unsupported
    merged = iter(
        [
            Tensor(
                tensor.buffer,
                tensor.dtype,
                tuple(extent for extent, _ in groups),
                tuple(steps[number] for _, steps in groups),
                tensor.offset,
            )
            for number, tensor in enumerate(operands)
        ]
    )
    return [None if tensor is None else next(merged) for tensor in ins], [next(merged) for _ in outs]
