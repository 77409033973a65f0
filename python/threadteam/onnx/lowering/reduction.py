"""Reductions over any set of axes."""

from __future__ import annotations

from threadteam.onnx.values import Tensor

from .context import Context, Unsupported, lowers

__all__ = ["reduce"]

_OPERATIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSumSquare": "sum_square",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}
_UNCHANGED_WITHOUT_AXES = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def reduce(context: Context, op: str, x: Tensor, axes: list[int], keep: bool) -> Tensor:
    """One reduction step; reduced axes have extent one, or are dropped."""
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    y = context.new(x.dtype, shape)
    context.emit("reduce", [x], [y], flops=x.size, op=op, axes=axes)
    return y if keep else y.drop(axes)


@lowers(*_OPERATIONS)
def lower_reduce(context: Context) -> None:
    """Axes come from an attribute or, in later operator sets, from an input."""
    context.require_real(0)
    x = context.tensor(0)
    axes = context.integers(1) if context.has(1) else list(context.attr("axes", ()))
    if not axes and context.attr("noop_with_empty_axes", 0):
        if context.op not in _UNCHANGED_WITHOUT_AXES:
            raise Unsupported
        context.bind(x)
        return
    chosen = context.axes(axes, x.rank) if axes else list(range(x.rank))
    if not chosen or x.size == 0:
        raise Unsupported
    context.bind(reduce(context, _OPERATIONS[context.op], x, chosen, bool(context.attr("keepdims", 1))))
