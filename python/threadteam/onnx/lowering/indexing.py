"""Gather: rows chosen by indices."""

from __future__ import annotations

import itertools

import numpy as np

from threadteam.errors import InvalidGraph
from threadteam.onnx.values import MAX_RANK, Tensor

from .context import Context, Unsupported, lowers

__all__: list[str] = []


@lowers("Gather")
def lower_gather(context: Context) -> None:
    """A known single index or an evenly spaced run is a view; other indices are looked up when the model runs."""
    data = context.tensor(0)
    axis = context.axis(context.attr("axis", 0), data.rank)
    known = context.known(1)
    if known is not None:
        check_range(context, known, data.shape[axis])
        view = evenly_spaced(data, known, axis)
        if view is not None:
            context.bind(view)
            return
    indices = context.tensor(1)
    if indices.dtype not in (np.dtype("int32"), np.dtype("int64")):
        raise Unsupported
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if len(shape) > MAX_RANK:
        raise Unsupported
    y = context.new(data.dtype, shape)
    context.emit("gather", [data, indices], [y], axis=axis)
    context.bind(y)


def check_range(context: Context, indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]], extent: int) -> None:
    """Constant indices are refused before anything runs."""
    wrong = indices[(indices < -extent) | (indices >= extent)]
    if wrong.size:
        raise InvalidGraph(
            f"node {context.node}: index {int(wrong.reshape(-1)[0])} is out of range for an axis of extent {extent}"
        )


def evenly_spaced(data: Tensor, indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]], axis: int) -> Tensor | None:
    """The view that constant indices select, when they are one index or equally far apart."""
    flat = [int(item) % data.shape[axis] for item in indices.reshape(-1)] if data.shape[axis] else []
    if indices.ndim > 1 or not flat:
        return None
    step = flat[1] - flat[0] if len(flat) > 1 else 1
    if step == 0 or any(b - a != step for a, b in itertools.pairwise(flat)):
        return None
    view = data.slice(axis, flat[0], step, len(flat))
    return view.drop([axis]) if indices.ndim == 0 else view
