"""Values that are known when the model is planned: constants, shapes, filled tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from threadteam.errors import InvalidGraph
from threadteam.onnx._extra import numpy_helper
from threadteam.onnx.values import Array

from .context import Context, Unsupported, lowers

__all__: list[str] = []


@lowers("Constant")
def lower_constant(context: Context) -> None:
    """The attribute that holds the value."""
    attrs = context.node.attrs
    if "value" in attrs:
        context.bind(numpy_helper.to_array(attrs["value"]))
    elif "value_float" in attrs or "value_floats" in attrs:
        context.bind(np.asarray(attrs.get("value_float", attrs.get("value_floats")), np.float32))
    elif "value_int" in attrs or "value_ints" in attrs:
        context.bind(np.asarray(attrs.get("value_int", attrs.get("value_ints")), np.int64))
    else:
        raise Unsupported


@lowers("Shape")
def lower_shape(context: Context) -> None:
    """The extents, or a run of them."""
    shape = context.shape(0)
    start, end = context.attr("start", 0), context.attr("end", len(shape))
    context.bind(np.asarray(shape[slice(clamp(start, len(shape)), clamp(end, len(shape)))], np.int64))


def clamp(bound: int, rank: int) -> int:
    """A bound of a run of axes, counted from the end when negative."""
    return min(max(bound + rank if bound < 0 else bound, 0), rank)


@lowers("Size")
def lower_size(context: Context) -> None:
    """The number of elements."""
    context.bind(np.asarray(np.prod(context.shape(0), dtype=np.int64), np.int64))


@lowers("ConstantOfShape")
def lower_constant_of_shape(context: Context) -> None:
    """One value broadcast to a known shape, without memory for each element."""
    shape = context.integers(0)
    if min(shape, default=0) < 0:
        raise InvalidGraph(f"node {context.node}: shape {shape} has a negative extent")
    value: Any = context.node.attrs.get("value")
    fill: Array = np.zeros((), np.float32) if value is None else numpy_helper.to_array(value).reshape(())
    context.bind(np.broadcast_to(fill, shape))


@lowers("Range")
def lower_range(context: Context) -> None:
    """Evenly spaced numbers between known bounds."""
    start, limit, delta = (context.contents(index).reshape(()) for index in range(3))
    if delta == 0:
        raise InvalidGraph(f"node {context.node}: a range cannot have step 0")
    count = max(int(np.ceil((limit.astype(np.float64) - start) / delta)), 0)
    context.bind((start + np.arange(count, dtype=start.dtype) * delta).astype(start.dtype))
