"""Comparisons, truth values and Where."""

from __future__ import annotations

import numpy as np

from threadteam.onnx.types import native_dtype
from threadteam.onnx.values import Tensor

from .arithmetic import aligned
from .context import Context, Unsupported, lowers

__all__: list[str] = []

_BOOL = np.dtype(bool)
_COMPARE = {
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
}


@lowers(*_COMPARE)
def lower_compare(context: Context) -> None:
    """Comparisons of numbers of one type."""
    a, b = context.tensor(0), context.tensor(1)
    if a.dtype != b.dtype or not native_dtype(a.dtype):
        raise Unsupported
    b = aligned(context, a, b)
    shape = context.broadcast(a.shape, b.shape)
    y = context.new(_BOOL, shape)
    context.emit("compare", [a.expand(shape), b.expand(shape)], [y], op=_COMPARE[context.op])
    context.bind(y)


def select(context: Context, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a` where the condition holds, else `b`, all broadcast."""
    shape = context.broadcast(condition.shape, a.shape, b.shape)
    y = context.new(a.dtype, shape)
    context.emit("select", [condition.expand(shape), a.expand(shape), b.expand(shape)], [y])
    return y


@lowers("Where")
def lower_where(context: Context) -> None:
    """A choice for each element."""
    condition, a, b = (context.tensor(index) for index in range(3))
    if condition.dtype != _BOOL or a.dtype != b.dtype:
        raise Unsupported
    context.bind(select(context, condition, a, b))


@lowers("Not")
def lower_not(context: Context) -> None:
    """Truth values inverted."""
    x = context.tensor(0)
    context.bind(select(context, x, context.scalar(False, _BOOL), context.scalar(True, _BOOL)))


@lowers("And", "Or", "Xor")
def lower_connective(context: Context) -> None:
    """Truth values combined."""
    a, b = context.tensor(0), context.tensor(1)
    b = aligned(context, a, b)
    false, true = context.scalar(False, _BOOL), context.scalar(True, _BOOL)
    if context.op == "And":
        context.bind(select(context, a, b, false))
    elif context.op == "Or":
        context.bind(select(context, a, true, b))
    else:
        context.bind(select(context, a, select(context, b, false, true), b))
