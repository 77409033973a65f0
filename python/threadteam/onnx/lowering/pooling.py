"""Pooling as reductions over strided windows."""

from __future__ import annotations

import numpy as np

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
    average = context.op == "AveragePool"
    if sum(map(bool, context.node.outputs)) > 1 or x.rank not in (3, 4) or x.size == 0:
        raise Unsupported
    window = Window.read(context, x.shape[2:], tuple(context.attr("kernel_shape", ())))
    if context.attr("ceil_mode", 0):
        raise Unsupported
    if average and any(map(any, window.pads)) and not context.attr("count_include_pad", 0):
        raise Unsupported
    x = padded(context, x, window, 0.0 if average else -np.inf)
    windows = window.view(x)
    taps = list(range(x.rank, windows.rank))
    context.bind(reduce(context, "mean" if average else "max", windows, taps, False))
