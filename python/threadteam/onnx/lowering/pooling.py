"""Pooling: shifted views of the input, combined element by element."""

from __future__ import annotations

import numpy as np

from threadteam.onnx.values import Array, Shape, Tensor

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
    """One spatial axis after the other, since the largest of the largest is the largest, and so for sums."""
    context.require_real(0)
    x = context.tensor(0)
    if sum(map(bool, context.node.outputs)) > 1 or x.rank < 3 or x.size == 0:
        raise Unsupported
    spatial = x.shape[2:]
    window = Window.read(context, spatial, tuple(context.attr("kernel_shape", ())), bool(context.attr("ceil_mode", 0)))
    reaching = window.reaching(spatial)
    average = context.op == "AveragePool"
    y = padded(context, x, reaching, 0.0 if average else -np.inf)
    axes = zip(window.out, window.strides, window.kernel, window.dilations, strict=True)
    for axis, (count, step, taps, dilation) in reversed(list(enumerate(axes, start=2))):
        y = combined(context, "add" if average else "max", y, axis, count, step, taps, dilation)
    if average:
        counts = members(window, spatial, bool(context.attr("count_include_pad", 0))).astype(x.dtype)
        same = counts.size > 0 and bool((counts == counts.flat[0]).all())
        y = binary(context, "div", y, context.materialise(counts.reshape(-1)[:1].reshape(()) if same else counts))
    context.bind(y)


def combined(
    context: Context, op: str, x: Tensor, axis: int, count: int, step: int, taps: int, dilation: int
) -> Tensor:
    """The windows of one axis combined: as many whole-tensor steps as the window has further elements.

    Shifted views keep the innermost loops long; a reduction over the few taps of each window would not.
    """
    total = x.slice(axis, 0, step, count)
    for tap in range(1, taps):
        total = binary(context, op, total, x.slice(axis, tap * dilation, step, count))
    return total


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
    total = combined(context, "add", squares, 1, x.shape[1], 1, size, 1)
    scaled = binary(context, "mul", total, context.scalar(float(context.attr("alpha", 1e-4)) / size, x.dtype))
    base = binary(context, "add", scaled, context.scalar(float(context.attr("bias", 1.0)), x.dtype))
    power = binary(context, "pow", base, context.scalar(float(context.attr("beta", 0.75)), x.dtype))
    context.bind(binary(context, "div", x, power))
