"""Conversions between element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from threadteam.onnx.types import dtype_of, native_dtype

from .context import Context, Unsupported, lowers

__all__: list[str] = []


def convert(context: Context, target: np.dtype[Any]) -> None:
    """Bind the first input in another element type."""
    x = context.tensor(0)
    if x.dtype == target:
        context.bind(x)
        return
    if not (native_dtype(x.dtype) and native_dtype(target)):
        raise Unsupported
    y = context.new(target, x.shape)
    context.emit("cast", [x], [y])
    context.bind(y)


@lowers("Cast")
def lower_cast(context: Context) -> None:
    """The target is an attribute: a number, or in operator set 1 a name."""
    target = context.attr("to", 0)
    if not isinstance(target, int):
        raise Unsupported
    convert(context, dtype_of(target))


@lowers("CastLike")
def lower_cast_like(context: Context) -> None:
    """The target is the type of the second input."""
    convert(context, context.dtype(1))
