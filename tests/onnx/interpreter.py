"""The step list of a program, interpreted with NumPy alone: an oracle for the planner."""

from __future__ import annotations

import math

import numpy as np

_UNARY = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x, a: np.where(x >= 0, x, a * x),
    "elu": lambda x, a: np.where(x > 0, x, a * (np.exp(np.minimum(x, 0)) - 1)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "tanh": np.tanh,
    "erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "neg": np.negative,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
}


def _divide(a, b):
    return np.trunc(a / b).astype(a.dtype) if a.dtype.kind in "iu" else a / b


_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
}
_COMPARE = {
    "equal": np.equal,
    "less": np.less,
    "less_or_equal": np.less_equal,
    "greater": np.greater,
    "greater_or_equal": np.greater_equal,
}


def _log_sum_exp(x, axis):
    top = np.max(x, axis=axis, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0)
    return np.log(np.sum(np.exp(x - safe), axis=axis, keepdims=True)) + safe


_REDUCE = {
    "sum": lambda x, axis: np.sum(x, axis=axis, keepdims=True),
    "mean": lambda x, axis: np.mean(x, axis=axis, keepdims=True),
    "max": lambda x, axis: np.max(x, axis=axis, keepdims=True),
    "min": lambda x, axis: np.min(x, axis=axis, keepdims=True),
    "prod": lambda x, axis: np.prod(x, axis=axis, keepdims=True),
    "sum_square": lambda x, axis: np.sum(x * x, axis=axis, keepdims=True),
    "l1": lambda x, axis: np.sum(np.abs(x), axis=axis, keepdims=True),
    "l2": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis, keepdims=True)),
    "log_sum": lambda x, axis: np.log(np.sum(x, axis=axis, keepdims=True)),
    "log_sum_exp": _log_sum_exp,
}


class NumpyProgram:
    """Takes and does what `threadteam._native.Program` does, and checks that no step leaves its buffer."""

    def __init__(self, values, constants, inputs, outputs, steps, arena_bytes):
        self.values, self.constants, self.inputs = values, constants, inputs
        self.outputs, self.rows, self.arena_bytes = outputs, steps, arena_bytes

    def steps(self):
        return [(kind, label) for kind, *_, label in self.rows]

    def profile(self):
        return [0.0] * len(self.rows)

    def run(self, inputs, outputs=None, on=None, profile=False, cancelled=None):
        for array, (name, dtype, shape) in zip(inputs, self.inputs, strict=True):
            if array.dtype != np.dtype(dtype) or array.shape != shape or not array.flags.c_contiguous:
                raise ValueError(f"input {name} is {array.dtype}{array.shape}, not {dtype}{shape}")
        arena = np.full(self.arena_bytes, 0xFB, np.uint8)
        made = [
            np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0xFB, np.uint8) for _, dtype, shape in self.outputs
        ]
        results = [
            block.view(dtype).reshape(shape) for block, (_, dtype, shape) in zip(made, self.outputs, strict=True)
        ]
        memory = {
            "arena": [arena],
            "input": [flat(a) for a in inputs],
            "output": made,
            "const": [flat(c) for c in self.constants],
        }
        tensors = [self._tensor(row, memory) for row in self.values]
        with np.errstate(all="ignore"):
            for kind, ins, outs, attrs, _ in self.rows:
                operands = [None if number < 0 else tensors[number].copy() for number in ins]
                produced = evaluate(kind, operands, attrs, [tensors[number].shape for number in outs])
                for number, value in zip(outs, produced, strict=False):
                    assert tensors[number].shape == value.shape, (kind, tensors[number].shape, value.shape)
                    tensors[number][...] = value
        for position, array in enumerate(outputs or []):
            if array is not None:
                array[...] = results[position]
                results[position] = array
        return [
            np.array(array) if array.base is not None and not (outputs and outputs[i] is array) else array
            for i, array in enumerate(results)
        ]

    @staticmethod
    def _tensor(row, memory):
        space, index, offset, dtype, shape, strides = row
        block = memory[space][index]
        dtype = np.dtype(dtype)
        if not int(np.prod(shape)):
            return np.zeros(shape, dtype)
        reach = [s * (n - 1) * dtype.itemsize for s, n in zip(strides, shape, strict=True)]
        low, high = offset + sum(min(r, 0) for r in reach), offset + sum(max(r, 0) for r in reach) + dtype.itemsize
        assert low >= 0, f"a view of {row} begins before its buffer"
        assert high <= block.nbytes, f"a view of {row} leaves its {block.nbytes} bytes"
        steps = tuple(s * dtype.itemsize for s in strides)
        return np.ndarray(shape, dtype, buffer=block, offset=offset, strides=steps)


def flat(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def softmax(x, axis, log=False):
    shifted = x - np.max(x, axis=axis, keepdims=True)
    total = np.sum(np.exp(shifted), axis=axis, keepdims=True)
    return shifted - np.log(total) if log else np.exp(shifted) / total


def evaluate(kind, ins, attrs, shapes):
    if kind == "python":
        return attrs["call"](*ins)
    x = ins[0]
    if kind == "matmul":
        y = attrs["alpha"] * (x @ ins[1])
        return [(y if len(ins) < 3 or ins[2] is None else y + attrs["beta"] * ins[2]).astype(x.dtype)]
    if kind == "softmax":
        return [softmax(x, attrs["axis"], attrs["log"])]
    if kind == "attention":
        [weights] = evaluate("matmul", [x, ins[1], *ins[3:]], attrs, None)
        return [softmax(weights, -1) @ ins[2]]
    if kind == "layer_norm":
        axes = tuple(range(attrs["axis"], x.ndim))
        mean = x.mean(axes, keepdims=True)
        inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + attrs["epsilon"])
        y = (x - mean) * inverse * ins[1]
        return [y if len(ins) < 3 or ins[2] is None else y + ins[2], mean, inverse]
    if kind == "reduce":
        return [_REDUCE[attrs["op"]](x, tuple(attrs["axes"])).astype(x.dtype)]
    if kind == "unary":
        return [np.asarray(_UNARY[attrs["op"]](x, *attrs["params"]), x.dtype)]
    if kind == "binary":
        return [_BINARY[attrs["op"]](x, ins[1])]
    if kind == "compare":
        return [_COMPARE[attrs["op"]](x, ins[1])]
    if kind == "select":
        return [np.where(x, ins[1], ins[2])]
    if kind == "gather":
        return [np.take(x, ins[1], axis=attrs["axis"])]
    assert kind in ("copy", "cast"), kind
    return [x]
