"""Element-wise functions of one operand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from threadteam.onnx.values import Tensor

from .arithmetic import binary
from .context import REAL, Context, Unsupported, lowers

__all__ = ["unary"]

_PLAIN = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Erf": "erf",
    "Softplus": "softplus",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Neg": "neg",
    "Abs": "abs",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Cos": "cos",
}
_PARAMETERS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "LeakyRelu": ("leaky_relu", (("alpha", 0.01),)),
    "Elu": ("elu", (("alpha", 1.0),)),
    "HardSigmoid": ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
}


def unary(context: Context, op: str, x: Tensor, params: Sequence[float] = ()) -> Tensor:
    """One element-wise step; the layout of a dense operand is kept."""
    y = context.new(x.dtype, x.shape)
    context.emit("unary", [x], [y], flops=x.size, op=op, params=list(params))
    return y


@lowers(*_PLAIN)
def lower_plain(context: Context) -> None:
    """Functions without parameters."""
    context.require_real(0)
    context.bind(unary(context, _PLAIN[context.op], context.tensor(0)))


@lowers(*_PARAMETERS)
def lower_parametric(context: Context) -> None:
    """Functions with attributes."""
    context.require_real(0)
    op, parameters = _PARAMETERS[context.op]
    values = [float(context.attr(name, default)) for name, default in parameters]
    context.bind(unary(context, op, context.tensor(0), values))


@lowers("Gelu")
def lower_gelu(context: Context) -> None:
    """The exact Gelu or its approximation by tanh."""
    context.require_real(0)
    op = "gelu_tanh" if context.text("approximate", "none") == "tanh" else "gelu"
    context.bind(unary(context, op, context.tensor(0)))


@lowers("Swish")
def lower_swish(context: Context) -> None:
    """`x * sigmoid(alpha * x)`."""
    context.require_real(0)
    x = context.tensor(0)
    alpha = float(context.attr("alpha", 1.0))
    if alpha == 1.0:
        context.bind(unary(context, "silu", x))
        return
    scaled = binary(context, "mul", x, context.scalar(alpha, x.dtype))
    context.bind(binary(context, "mul", x, unary(context, "sigmoid", scaled)))


@lowers("HardSwish")
def lower_hard_swish(context: Context) -> None:
    """`x * max(0, min(1, x / 6 + 1 / 2))`."""
    context.require_real(0)
    x = context.tensor(0)
    context.bind(binary(context, "mul", x, unary(context, "hard_sigmoid", x, (1 / 6, 0.5))))


@lowers("Mish")
def lower_mish(context: Context) -> None:
    """`x * tanh(softplus(x))`."""
    context.require_real(0)
    x = context.tensor(0)
    context.bind(binary(context, "mul", x, unary(context, "tanh", unary(context, "softplus", x))))


@lowers("PRelu")
def lower_prelu(context: Context) -> None:
    """`max(x, 0) + slope * min(x, 0)` with a broadcast slope."""
    context.require_real(0, 1)
    x, slope = context.tensor(0), context.tensor(1)
    if context.opset < 7 and slope.rank == 1 and slope.size > 1:
        slope = slope.insert(range(1, x.rank - 1))
    zero = context.scalar(0, x.dtype)
    below = binary(context, "mul", slope, binary(context, "min", x, zero))
    context.bind(binary(context, "add", binary(context, "max", x, zero), below))


@lowers("Clip")
def lower_clip(context: Context) -> None:
    """Limits from attributes (before operator set 11) or inputs; absent ones do not bind."""
    x = context.tensor(0)
    if context.opset < 11:
        context.require_real(0)
        limits = [float(context.attr("min", -np.inf)), float(context.attr("max", np.inf))]
        context.bind(unary(context, "clip", x, limits))
        return
    given = [index for index in (1, 2) if context.has(index)]
    known = [context.known(index) for index in given]
    if x.dtype in REAL and all(array is not None and array.size == 1 for array in known):
        limits = [-np.inf, np.inf]
        for index, array in zip(given, known, strict=True):
            if array is not None:
                limits[index - 1] = float(array.reshape(-1)[0])
        context.bind(unary(context, "clip", x, limits))
        return
    if x.dtype not in (*REAL, np.dtype("int32"), np.dtype("int64")):
        raise Unsupported
    for index in given:
        x = binary(context, "max" if index == 1 else "min", x, context.tensor(index))
    context.bind(x)
