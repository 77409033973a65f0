"""Broadcast arithmetic: Add to Pow, and the operators that fold any number of operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from threadteam.onnx.values import Tensor

from .context import REAL, Context, Unsupported, lowers

__all__ = ["binary"]

_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_FOLDED = {"Max": "max", "Min": "min", "Sum": "add", "Mean": "add"}
_NUMBERS = (*REAL, np.dtype("int32"), np.dtype("int64"))


def binary(context: Context, op: str, a: Tensor, b: Tensor) -> Tensor:
    """One broadcast arithmetic step."""
    shape = context.broadcast(a.shape, b.shape)
    y = context.new(a.dtype, shape)
    context.emit("binary", [a.expand(shape), b.expand(shape)], [y], flops=y.size, op=op)
    return y


def aligned(context: Context, a: Tensor, b: Tensor) -> Tensor:
    """The second operand under the rules before operator set 7, where an attribute places its axes."""
    if context.opset >= 7 or not context.attr("broadcast", 0) or b.rank == 0:
        return b
    axis = context.attr("axis", a.rank - b.rank)
    axis = axis + a.rank if axis < 0 else axis
    return b.insert(range(b.rank, b.rank + a.rank - axis - b.rank))


@lowers("Add", "Sub", "Mul", "Div")
def lower_binary(context: Context) -> None:
    """Element-wise arithmetic of two operands."""
    a, b = context.tensor(0), context.tensor(1)
    if a.dtype != b.dtype or a.dtype not in _NUMBERS:
        raise Unsupported
    context.bind(binary(context, _BINARY[context.op], a, aligned(context, a, b)))


@lowers("Pow")
def lower_pow(context: Context) -> None:
    """Powers; common constant exponents become products and roots."""
    base, exponent = context.tensor(0), context.tensor(1)
    if base.dtype not in REAL:
        raise Unsupported
    exponent = aligned(context, base, exponent)
    shape = context.broadcast(base.shape, exponent.shape)
    power = single(context.known(1))
    if power == 2.0 and shape == base.shape:
        context.bind(binary(context, "mul", base, base))
        return
    if power == 1.0 and shape == base.shape:
        context.bind(base)
        return
    if power == 3.0 and shape == base.shape:
        context.bind(binary(context, "mul", binary(context, "mul", base, base), base))
        return
    if exponent.dtype != base.dtype:
        if exponent.dtype.kind not in "fiu" or (exponent.dtype.itemsize < 4 and exponent.dtype.kind == "f"):
            raise Unsupported
        cast = context.new(base.dtype, exponent.shape)
        context.emit("cast", [exponent], [cast])
        exponent = cast
    context.bind(binary(context, "pow", base, exponent))


def single(array: np.ndarray[Any, Any] | None) -> float | None:
    """The value of a constant with one element."""
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


@lowers("Max", "Min", "Sum", "Mean")
def lower_folded(context: Context) -> None:
    """Any number of operands, folded pairwise from the left."""
    operands = [context.tensor(index) for index in range(len(context.values))]
    dtype = operands[0].dtype
    allowed = _NUMBERS if context.op in ("Max", "Min") else REAL
    if any(tensor.dtype != dtype for tensor in operands) or dtype not in allowed:
        raise Unsupported
    total = operands[0]
    for tensor in operands[1:]:
        total = binary(context, _FOLDED[context.op], total, tensor)
    if context.op == "Mean" and len(operands) > 1:
        total = binary(context, "div", total, context.scalar(len(operands), dtype))
    context.bind(total)
