"""Convolutions as matrix products over strided windows of the input."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from threadteam.errors import InvalidGraph
from threadteam.onnx.values import Array, Shape, Tensor

from .context import Context, Unsupported, lowers
from .matmul import product

__all__ = ["Window", "padded"]


@dataclass(frozen=True)
class Window:
    """How a kernel slides over the spatial axes.

    Parameters
    ----------
    kernel, strides, dilations, out : tuple of int
        One for each spatial axis; `out` is the number of windows.
    pads : tuple of (int, int)
        Elements added before and after each spatial axis.
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: tuple[tuple[int, int], ...]
    out: Shape

    @classmethod
    def read(cls, context: Context, spatial: Shape, kernel: Shape, ceil: bool = False) -> Window:
        """The window that a node's attributes describe.

        With `ceil` a last window may reach beyond the padding, if it starts before it; the end is then padded further.
        """
        rank = len(spatial)
        strides = tuple(context.attr("strides", (1,) * rank))
        dilations = tuple(context.attr("dilations", (1,) * rank))
        given = tuple(context.attr("pads", (0,) * 2 * rank))
        if not len(kernel) == len(strides) == len(dilations) == rank or len(given) != 2 * rank:
            raise InvalidGraph(f"node {context.node}: kernel, strides, dilations and pads must have {rank} axes")
        if min((*kernel, *strides, *dilations), default=1) < 1:
            raise InvalidGraph(f"node {context.node}: kernel, strides and dilations must be positive")
        spans = tuple(d * (n - 1) + 1 for n, d in zip(kernel, dilations, strict=True))
        mode = context.text("auto_pad", "NOTSET")
        if mode.startswith("SAME"):
            pads = tuple(
                same_padding(extent, span, step, mode == "SAME_UPPER")
                for extent, span, step in zip(spatial, spans, strides, strict=True)
            )
        elif mode == "VALID":
            pads = ((0, 0),) * rank
        else:
            pads = tuple(zip(given[:rank], given[rank:], strict=True))
        if any(min(pair) < 0 for pair in pads):
            raise Unsupported
        out = tuple(
            count_windows(extent, pair, span, step, ceil)
            for extent, pair, span, step in zip(spatial, pads, spans, strides, strict=True)
        )
        if 0 in out:
            raise Unsupported
        return cls(kernel, strides, dilations, pads, out)

    def reaching(self, spatial: Shape) -> Window:
        """The window with the end padded as far as its last windows reach."""
        pads = tuple(
            (pair[0], max(pair[1], (count - 1) * step + dilation * (taps - 1) + 1 - pair[0] - extent))
            for extent, pair, count, step, dilation, taps in zip(
                spatial, self.pads, self.out, self.strides, self.dilations, self.kernel, strict=True
            )
        )
        return replace(self, pads=pads)

    def view(self, x: Tensor) -> Tensor:
        """All windows of a padded `[N, C, spatial..]`: `[N, C, out.., kernel..]`."""
        for number, (count, step, taps, dilation) in enumerate(
            zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        ):
            x = x.diagonal_windows(2 + number, count, step, taps, dilation)
        return x


def count_windows(extent: int, pads: tuple[int, int], span: int, step: int, ceil: bool) -> int:
    """How many windows of `span` elements fit along an axis."""
    room = extent + sum(pads) - span
    if room < 0:
        return 0
    if not ceil:
        return room // step + 1
    count = -(-room // step) + 1
    return count - 1 if (count - 1) * step >= extent + pads[0] else count


def same_padding(extent: int, span: int, step: int, upper: bool) -> tuple[int, int]:
    """The padding that gives one window for every `step` elements; an odd one goes to the end when `upper`."""
    total = max((math.ceil(extent / step) - 1) * step + span - extent, 0)
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def padded(context: Context, x: Tensor, window: Window, fill: float) -> Tensor:
    """`x` with the window's padding around its spatial axes."""
    if not any(map(any, window.pads)):
        return x
    shape = (*x.shape[:2], *(n + sum(pair) for n, pair in zip(x.shape[2:], window.pads, strict=True)))
    y = context.new(x.dtype, shape)
    context.emit("copy", [context.scalar(fill, x.dtype).expand(shape)], [y])
    inside = y
    for axis, (extent, pair) in enumerate(zip(x.shape[2:], window.pads, strict=True), start=2):
        inside = inside.slice(axis, pair[0], 1, extent)
    context.emit("copy", [x], [inside])
    return y


@lowers("Conv")
def lower_conv(context: Context) -> None:
    """Each group is a product of the kernel matrix with the matrix of windows.

    The windows are read in place when one stride runs through channels and taps together (channels-last input of one
    spatial axis, pointwise kernels); otherwise they are copied into a matrix first.
    """
    context.require_real(0, 1)
    x, w = context.tensor(0), context.tensor(1)
    if x.rank not in (3, 4, 5) or w.rank != x.rank or x.size == 0 or w.size == 0:
        raise Unsupported
    groups = context.attr("group", 1)
    samples, channels, filters = x.shape[0], x.shape[1], w.shape[0]
    if w.shape[1] * groups != channels or filters % groups:
        raise InvalidGraph(
            f"node {context.node}: weights {list(w.shape)} in {groups} groups do not fit {channels} channels"
        )
    window = Window.read(context, x.shape[2:], w.shape[2:])
    columns, depth = math.prod(window.out), w.shape[1] * math.prod(window.kernel)
    windows = split_channels(window.view(padded(context, x, window, 0.0)), groups)
    matrix, taps_first = window_matrix(context, windows, len(window.out), (samples, groups, depth, columns))
    weights = kernel_matrix(context, groups, taps_first)
    bias = None
    if context.has(2):
        context.require_real(0, 2)
        bias = context.reshape(context.tensor(2), (1, groups, filters // groups, 1))
    y = context.new(x.dtype, (samples, filters, *window.out))
    grouped = y.reshape((samples, groups, filters // groups, columns))
    assert grouped is not None
    product(context, weights, matrix, bias, y=grouped)
    context.bind(y)


def split_channels(windows: Tensor, groups: int) -> Tensor:
    """`[N, C, ..]` as `[N, G, C / G, ..]`."""
    inner = windows.shape[1] // groups
    shape = (windows.shape[0], groups, inner, *windows.shape[2:])
    strides = (windows.strides[0], windows.strides[1] * inner, *windows.strides[1:])
    return Tensor(windows.buffer, windows.dtype, shape, strides, windows.offset)


def window_matrix(context: Context, windows: Tensor, spatial: int, shape: Shape) -> tuple[Tensor, bool]:
    """`[N, G, depth, columns]` and whether the taps come before the channels in its depth.

    A view when one of the two orders has a single stride along the depth and along the columns, else a copy.
    """
    out, taps = list(range(3, 3 + spatial)), list(range(3 + spatial, 3 + 2 * spatial))
    orders = {False: [0, 1, 2, *taps, *out], True: [0, 1, *taps, 2, *out]}
    for taps_first, order in orders.items():
        view = windows.permute(order).reshape(shape)
        if view is not None:
            return view, taps_first
    return context.reshape(windows.permute(orders[False]), shape), False


def kernel_matrix(context: Context, groups: int, taps_first: bool) -> Tensor:
    """The weights as `[1, G, filters / G, depth]`, rearranged when planning if they are constant."""
    shape = context.shape(1)
    grouped = (groups, shape[0] // groups, *shape[1:])
    order = [0, 1, *range(3, len(grouped)), 2] if taps_first else list(range(len(grouped)))
    matrix = (1, groups, shape[0] // groups, math.prod(shape[1:]))
    known = context.known(1)
    if known is None:
        split = context.reshape(context.tensor(1), grouped)
        return context.reshape(split.permute(order), matrix)

    def rearranged(weights: Array = known) -> Array:
        return np.ascontiguousarray(weights.reshape(grouped).transpose(order)).reshape(matrix)

    return context.materialise(context.memo(("conv weights", id(known), groups, taps_first), rearranged, known))
