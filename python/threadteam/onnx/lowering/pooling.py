"""Pooling as reductions over strided windows."""

from __future__ import annotations

import numpy as np

from threadteam.onnx.values import Array, Shape

from .arithmetic import binary
from .context import Context, Unsupported, lowers
from .conv import Window, padded
from .reduction import reduce

__all__: list[str] = []


@lowers("GlobalMaxPool", "GlobalAveragePool")
def lower_global_pool(context: Context) -> None:
    """A reduction over all spatial axes."""
    context.require_real(0)
    x = context.tensor(0)
    if x.rank < 3 or x.size == 0:
        raise Unsupported
    op = "max" if context.op == "GlobalMaxPool" else "mean"
    context.bind(reduce(context, op, x, list(range(2, x.rank)), True))


@lowers("MaxPool", "AveragePool")
def lower_pool(context: Context) -> None:
    """A reduction over the taps of each window; windows are views that overlap."""
    context.require_real(0)
    x = context.tensor(0)
    if sum(map(bool, context.node.outputs)) > 1 or x.rank not in (3, 4, 5) or x.size == 0:
        raise Unsupported
    spatial = x.shape[2:]
    window = Window.read(context, spatial, tuple(context.attr("kernel_shape", ())), bool(context.attr("ceil_mode", 0)))
    reaching = window.reaching(spatial)
    average = context.op == "AveragePool"
    windows = reaching.view(padded(context, x, reaching, 0.0 if average else -np.inf))
    taps = list(range(x.rank, windows.rank))
    if not average:
        context.bind(reduce(context, "max", windows, taps, False))
    elif not any(map(any, reaching.pads)):
        context.bind(reduce(context, "mean", windows, taps, False))
    else:
        total = reduce(context, "sum", windows, taps, False)
        counts = members(window, spatial, bool(context.attr("count_include_pad", 0))).astype(x.dtype)
        context.bind(binary(context, "div", total, context.materialise(counts)))


def members(window: Window, spatial: Shape, with_padding: bool) -> Array:
    """How many elements each window averages: those of the input, and of the declared padding if that counts."""
    counts: Array = np.ones((), np.int64)
    for extent, pads, count, step, dilation, taps in zip(
        spatial, window.pads, window.out, window.strides, window.dilations, window.kernel, strict=True
    ):
        at = np.arange(count)[:, None] * step + np.arange(taps) * dilation - pads[0]
        low, high = (-pads[0], extent + pads[1]) if with_padding else (0, extent)
        counts = counts[..., None] * ((at >= low) & (at < high)).sum(1)
    return counts


@lowers("LRN")
def lower_lrn(context: Context) -> None:
    """`x / (bias + alpha / size * sum(x ** 2 over neighbouring channels)) ** beta`."""
    context.require_real(0)
    x = context.tensor(0)
    size = context.attr("size", 0)
    if x.rank < 2 or x.size == 0 or size < 1:
        raise Unsupported
    before = (size - 1) // 2
    shape = (x.shape[0], x.shape[1] + size - 1, *x.shape[2:])
    squares = context.new(x.dtype, shape)
    context.emit("copy", [context.scalar(0, x.dtype).expand(shape)], [squares])
    inside = squares.slice(1, before, 1, x.shape[1])
    context.emit("binary", [x, x], [inside], flops=x.size, op="mul")
    windows = squares.diagonal_windows(1, x.shape[1], 1, size, 1)
    total = reduce(context, "sum", windows, [x.rank], False)
    scaled = binary(context, "mul", total, context.scalar(float(context.attr("alpha", 1e-4)) / size, x.dtype))
    base = binary(context, "add", scaled, context.scalar(float(context.attr("bias", 1.0)), x.dtype))
    power = binary(context, "pow", base, context.scalar(float(context.attr("beta", 0.75)), x.dtype))
    context.bind(binary(context, "div", x, power))
