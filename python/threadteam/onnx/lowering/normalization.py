"""Softmax and normalisations."""

from __future__ import annotations

import math

import numpy as np

from threadteam.onnx.values import Array, Tensor

from .arithmetic import binary
from .context import Context, Unsupported, lowers

__all__: list[str] = []


@lowers("Softmax", "LogSoftmax")
def lower_softmax(context: Context) -> None:
    """Softmax along one axis; before operator set 13 over all axes from `axis` on, taken together."""
    context.require_real(0)
    x = context.tensor(0)
    attrs = {"log": context.op == "LogSoftmax"}
    if context.opset >= 13:
        axis = context.axis(context.attr("axis", -1), x.rank)
        if x.rank == 0:
            x = x.insert([0])
        y = context.new(x.dtype, x.shape)
        context.emit("softmax", [x], [y], flops=4 * x.size, axis=axis, **attrs)
        context.bind(y.drop([0]) if not context.shape(0) else y)
        return
    axis = context.attr("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    matrix = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    flat = context.reshape(x, matrix)
    y = context.new(x.dtype, matrix)
    context.emit("softmax", [flat], [y], flops=4 * x.size, axis=1, **attrs)
    context.bind(context.reshape(y, x.shape))


@lowers("LayerNormalization")
def lower_layer_norm(context: Context) -> None:
    """Normalisation over the axes from `axis` on, with optional mean and inverse deviation."""
    context.require_real(0, 1, *([2] if context.has(2) else []))
    x = context.tensor(0)
    axis = context.axis(context.attr("axis", -1), x.rank)
    wants = [index < len(context.node.outputs) and bool(context.node.outputs[index]) for index in (1, 2)]
    if (any(wants) and x.dtype != np.float32) or context.attr("stash_type", 1) not in (1, 11):
        raise Unsupported
    if x.size == 0:
        raise Unsupported
    scale = context.tensor(1).expand(x.shape)
    bias = context.tensor(2).expand(x.shape) if context.has(2) else None
    y = context.new(x.dtype, x.shape)
    moments = (*x.shape[:axis], *(1 for _ in x.shape[axis:]))
    outs = [y]
    if any(wants):
        outs += [context.new(x.dtype, moments), context.new(x.dtype, moments)]
    epsilon = float(context.attr("epsilon", 1e-5))
    context.emit("layer_norm", [x, scale, bias], outs, flops=8 * x.size, axis=axis, epsilon=epsilon)
    for index, tensor in enumerate(outs):
        context.bind(tensor, index)


@lowers("InstanceNormalization")
def lower_instance_norm(context: Context) -> None:
    """Normalisation of each channel of each sample over its spatial axes."""
    context.require_real(0, 1, 2)
    x = context.tensor(0)
    if x.rank < 3 or x.size == 0:
        raise Unsupported
    scale, bias = (per_channel(context.tensor(index), x) for index in (1, 2))
    y = context.new(x.dtype, x.shape)
    epsilon = float(context.attr("epsilon", 1e-5))
    context.emit("layer_norm", [x, scale, bias], [y], flops=8 * x.size, axis=2, epsilon=epsilon)
    context.bind(y)


def per_channel(vector: Tensor, x: Tensor) -> Tensor:
    """A vector over the channels (axis 1) of `x`, broadcast to it."""
    return vector.insert(range(1, x.rank - 1)).expand(x.shape)


@lowers("BatchNormalization")
def lower_batch_norm(context: Context) -> None:
    """Inference with stored statistics: one product and one sum with factors made when planning."""
    if context.attr("training_mode", 0) or sum(map(bool, context.node.outputs)) > 1:
        raise Unsupported
    if context.opset < 7 and not context.attr("is_test", 0):
        raise Unsupported
    if not context.attr("spatial", 1):
        raise Unsupported
    context.require_real(0)
    stored = [context.known(index) for index in range(1, 5)]
    if any(array is None or array.dtype != context.dtype(0) for array in stored):
        raise Unsupported
    arrays = [array for array in stored if array is not None]
    epsilon = float(context.attr("epsilon", 1e-5))
    x = context.tensor(0)
    if x.rank < 2:
        raise Unsupported
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in arrays)

    def slope() -> Array:
        return np.asarray(scale / np.sqrt(variance + epsilon), x.dtype)

    def shift() -> Array:
        return np.asarray(bias - mean * scale / np.sqrt(variance + epsilon), x.dtype)

    identity = (epsilon, *map(id, arrays))
    factor = context.materialise(context.memo(("batch norm factor", *identity), slope, *arrays))
    offset = context.materialise(context.memo(("batch norm offset", *identity), shift, *arrays))
    scaled = binary(context, "mul", x, per_channel(factor, x))
    context.bind(binary(context, "add", scaled, per_channel(offset, x)))
