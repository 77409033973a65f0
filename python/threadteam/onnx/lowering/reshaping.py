"""Operators that only rename elements: views, with a copy where no strides describe the result."""

from __future__ import annotations

import math

import numpy as np

from threadteam.errors import InvalidGraph
from threadteam.onnx.values import Array, Shape, Tensor, Value

from .context import Context, Unsupported, lowers

__all__: list[str] = []


def target_shape(context: Context, given: list[int], shape: Shape, allow_zero: bool) -> Shape:
    """The shape that a Reshape asks for, with 0 and -1 resolved."""
    size = math.prod(shape)
    resolved = list(given)
    for axis, extent in enumerate(given):
        if extent == 0 and not allow_zero:
            if axis >= len(shape):
                raise InvalidGraph(f"node {context.node}: shape {given} copies axis {axis} of {list(shape)}")
            resolved[axis] = shape[axis]
    if resolved.count(-1) == 1:
        rest = -math.prod(resolved)
        if rest == 0 or size % rest:
            raise InvalidGraph(f"node {context.node}: a tensor of shape {list(shape)} does not reshape to {given}")
        resolved[resolved.index(-1)] = size // rest
    if min(resolved, default=0) < 0 or math.prod(resolved) != size:
        raise InvalidGraph(f"node {context.node}: a tensor of shape {list(shape)} does not reshape to {given}")
    return tuple(resolved)


@lowers("Reshape")
def lower_reshape(context: Context) -> None:
    """The target shape is an attribute (before operator set 5) or a known input."""
    given = list(context.attr("shape", ())) if context.opset < 5 else context.integers(1)
    shape = target_shape(context, given, context.shape(0), bool(context.attr("allowzero", 0)))
    context.bind(context.reshape(context.tensor(0), shape))


@lowers("Flatten")
def lower_flatten(context: Context) -> None:
    """All axes before `axis` as rows, the others as columns."""
    shape = context.shape(0)
    axis = context.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    context.bind(context.reshape(context.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:]))))


@lowers("Squeeze")
def lower_squeeze(context: Context) -> None:
    """Extent-one axes dropped."""
    x = context.tensor(0)
    given = context.integers(1) if context.has(1) else list(context.attr("axes", ()))
    axes = context.axes(given, x.rank) if given else [axis for axis, extent in enumerate(x.shape) if extent == 1]
    wrong = [axis for axis in axes if x.shape[axis] != 1]
    if wrong:
        raise InvalidGraph(f"node {context.node}: axis {wrong[0]} of shape {list(x.shape)} is not of extent one")
    context.bind(x.drop(axes))


@lowers("Unsqueeze")
def lower_unsqueeze(context: Context) -> None:
    """Extent-one axes added."""
    x = context.tensor(0)
    given = context.integers(1) if context.has(1) else list(context.attr("axes", ()))
    context.bind(x.insert(context.axes(given, x.rank + len(given))))


@lowers("Transpose")
def lower_transpose(context: Context) -> None:
    """Axes in another order: a view, which products and element-wise kernels read in place."""
    x = context.tensor(0)
    order = list(context.attr("perm", tuple(reversed(range(x.rank)))))
    if sorted(order) != list(range(x.rank)):
        raise InvalidGraph(f"node {context.node}: perm {order} is not an order of the axes of {list(x.shape)}")
    context.bind(x.permute(order))


@lowers("Expand")
def lower_expand(context: Context) -> None:
    """Broadcasting by zero strides."""
    x = context.tensor(0)
    context.bind(x.expand(context.broadcast(x.shape, context.integers(1))))


@lowers("Identity")
def lower_identity(context: Context) -> None:
    """The operand itself."""
    context.bind(value_of(context))


@lowers("Dropout")
def lower_dropout(context: Context) -> None:
    """Inference passes the operand on; a requested mask is all true."""
    training = context.known(2) if context.has(2) else None
    if context.has(2) and (training is None or bool(training.reshape(-1)[0])):
        raise Unsupported
    if context.opset < 7 and not context.attr("is_test", 0):
        raise Unsupported
    context.bind(value_of(context))
    if len(context.node.outputs) > 1 and context.node.outputs[1]:
        context.bind(mask(context), 1)


def value_of(context: Context) -> Value:
    """The first input as it is."""
    value = context.values[0]
    if value is None:
        raise Unsupported
    return value


def mask(context: Context) -> Array:
    """All true, of the operand's shape, without memory for each element."""
    array: Array = np.broadcast_to(np.asarray(True), context.shape(0))
    return array


def sliced(context: Context, x: Tensor, axis: int, start: int, stop: int, step: int) -> Tensor:
    """The elements that Python's slice of an axis selects, with bounds clamped as ONNX does."""
    if step == 0:
        raise InvalidGraph(f"node {context.node}: a slice cannot have step 0")
    extent = x.shape[axis]
    start = start + extent if start < 0 else start
    stop = stop + extent if stop < 0 else stop
    if step > 0:
        start, stop = min(max(start, 0), extent), min(max(stop, 0), extent)
    else:
        start, stop = min(max(start, 0), extent - 1), min(max(stop, -1), extent - 1)
    length = max(0, -(-(stop - start) // step))
    return x.slice(axis, start, step, length if extent else 0)


@lowers("Slice")
def lower_slice(context: Context) -> None:
    """A view with bounds from attributes (before operator set 10) or known inputs."""
    x = context.tensor(0)
    if context.opset < 10:
        starts: list[int] = list(context.attr("starts", ()))
        stops: list[int] = list(context.attr("ends", ()))
        given = list(context.attr("axes", tuple(range(len(starts)))))
        steps = [1] * len(starts)
    else:
        starts, stops = context.integers(1), context.integers(2)
        given = context.integers(3) if context.has(3) else list(range(len(starts)))
        steps = context.integers(4) if context.has(4) else [1] * len(starts)
    if not len(starts) == len(stops) == len(given) == len(steps):
        raise InvalidGraph(f"node {context.node}: starts, ends, axes and steps have different lengths")
    for axis, start, stop, step in zip(context.axes(given, x.rank), starts, stops, steps, strict=True):
        x = sliced(context, x, axis, start, stop, step)
    context.bind(x)


@lowers("Split")
def lower_split(context: Context) -> None:
    """Views of the parts."""
    x = context.tensor(0)
    axis = context.axis(context.attr("axis", 0), x.rank)
    extent, count = x.shape[axis], len(context.node.outputs)
    sizes = context.integers(1) if context.has(1) else list(context.attr("split", ()))
    if not sizes:
        count = context.attr("num_outputs", count)
        part = -(-extent // count)
        sizes = [max(0, min(part, extent - number * part)) for number in range(count)]
    if sum(sizes) != extent or len(sizes) != len(context.node.outputs):
        raise InvalidGraph(
            f"node {context.node}: axis {axis} of extent {extent} does not split into {sizes}"
            f" for {len(context.node.outputs)} outputs"
        )
    start = 0
    for index, size in enumerate(sizes):
        context.bind(x.slice(axis, start, 1, size), index)
        start += size


@lowers("DepthToSpace", "SpaceToDepth")
def lower_blocks(context: Context) -> None:
    """Blocks of channels exchanged with blocks of positions."""
    x = context.tensor(0)
    size = context.attr("blocksize", 1)
    if x.rank != 4:
        raise InvalidGraph(f"node {context.node}: blocks need an input of rank 4, given shape {list(x.shape)}")
    n, c, h, w = x.shape
    if context.op == "SpaceToDepth":
        if h % size or w % size:
            raise InvalidGraph(f"node {context.node}: {h} x {w} is not a multiple of the block size {size}")
        order = (0, 3, 5, 1, 2, 4) if context.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
        view = context.reshape(x, (n, c, h // size, size, w // size, size)).permute(order)
        context.bind(context.reshape(view, (n, c * size * size, h // size, w // size)))
        return
    if c % (size * size):
        raise InvalidGraph(f"node {context.node}: {c} channels are not a multiple of the block size {size} squared")
    if context.text("mode", "DCR") == "DCR":
        view = context.reshape(x, (n, size, size, c // (size * size), h, w)).permute((0, 3, 4, 1, 5, 2))
    else:
        view = context.reshape(x, (n, c // (size * size), size, size, h, w)).permute((0, 1, 4, 2, 5, 3))
    context.bind(context.reshape(view, (n, c // (size * size), h * size, w * size)))
