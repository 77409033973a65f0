"""Operators that write several pieces into one result: Concat, Pad, Tile."""

from __future__ import annotations

import math

import numpy as np

from threadteam.errors import InvalidGraph
from threadteam.onnx.values import MAX_RANK, Tensor

from .context import Context, Unsupported, lowers

__all__: list[str] = []


@lowers("Concat")
def lower_concat(context: Context) -> None:
    """Each operand is copied into its part of the result, or made there to begin with."""
    parts = [context.tensor(index) for index in range(len(context.values))]
    rank, dtype = parts[0].rank, parts[0].dtype
    axis = context.axis(context.attr("axis", 1), rank)
    frame = [extent for number, extent in enumerate(parts[0].shape) if number != axis]
    for part in parts:
        if part.rank != rank or frame != [extent for number, extent in enumerate(part.shape) if number != axis]:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in parts)
            raise InvalidGraph(f"node {context.node}: shapes {shapes} do not join along axis {axis}")
    if any(part.dtype != dtype for part in parts):
        raise Unsupported
    if len(parts) == 1:
        context.bind(parts[0])
        return
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    y = context.new(dtype, shape)
    start = 0
    for part in parts:
        extent = part.shape[axis]
        context.emit("copy", [part], [y.slice(axis, start, 1, extent)], fills_alone=True)
        start += extent
    context.bind(y)


@lowers("Pad")
def lower_pad(context: Context) -> None:
    """A constant border around the operand; negative amounts cut it off."""
    if context.text("mode", "constant") != "constant":
        raise Unsupported
    x = context.tensor(0)
    if context.opset < 11:
        amounts = list(context.attr("pads", context.attr("paddings", ())))
        value: Tensor | None = context.scalar(context.attr("value", 0.0), x.dtype)
    else:
        amounts = context.integers(1)
        value = context.tensor(2) if context.has(2) else None
    axes = context.axes(context.integers(3), x.rank) if context.has(3) else list(range(x.rank))
    if len(amounts) != 2 * len(axes):
        raise InvalidGraph(f"node {context.node}: {len(amounts)} pads for {len(axes)} axes, expected {2 * len(axes)}")
    if value is None:
        value = context.materialise(np.zeros((), x.dtype))
    if value.dtype != x.dtype or value.size != 1:
        raise Unsupported
    before, after = [0] * x.rank, [0] * x.rank
    for axis, low, high in zip(axes, amounts[: len(axes)], amounts[len(axes) :], strict=True):
        before[axis], after[axis] = low, high
    for axis in range(x.rank):
        cut = (max(-before[axis], 0), max(-after[axis], 0))
        if cut[0] + cut[1] > x.shape[axis]:
            raise InvalidGraph(f"node {context.node}: pads {amounts} cut more than shape {list(x.shape)} has")
        x = x.slice(axis, cut[0], 1, x.shape[axis] - sum(cut))
    shape = [n + max(b, 0) + max(a, 0) for n, b, a in zip(x.shape, before, after, strict=True)]
    if tuple(shape) == x.shape:
        context.bind(x)
        return
    y = context.new(x.dtype, shape)
    context.emit("copy", [value.drop(range(value.rank)).expand(shape)], [y])
    inside = y
    for axis in range(x.rank):
        inside = inside.slice(axis, max(before[axis], 0), 1, x.shape[axis])
    context.emit("copy", [x], [inside])
    context.bind(y)


@lowers("Tile")
def lower_tile(context: Context) -> None:
    """A copy from a broadcast view: every repeated axis is split into repetitions and extent."""
    if context.opset < 6:
        raise Unsupported
    x = context.tensor(0)
    repeats = context.integers(1)
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        raise InvalidGraph(f"node {context.node}: repeats {repeats} do not fit shape {list(x.shape)}")
    target = [n * r for n, r in zip(x.shape, repeats, strict=True)]
    split: list[int] = []
    source = x
    position = 0
    for extent, count in zip(x.shape, repeats, strict=True):
        if count > 1 and extent > 1:
            source = source.insert([position])
            split += [count, extent]
            position += 2
        else:
            split.append(extent * count)
            position += 1
    if math.prod(target) and len(split) > MAX_RANK:
        raise Unsupported
    if 0 in target:
        context.bind(context.new(x.dtype, target))
        return
    y = context.new(x.dtype, target)
    view = y.reshape(split)
    assert view is not None
    context.emit("copy", [source.expand(split)], [view])
    context.bind(y)
