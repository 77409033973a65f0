"""Random graphs against the evaluator of the onnx package: fusing, sharing and placing buffers change no result."""

from __future__ import annotations

import numpy as np
import pytest
import threadteam.onnx as tt_onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from small_models import build


class Grower:
    """Adds random nodes to a graph whose values stay small, so that results are comparable."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants = [], {}
        self.shapes = {"x0": (2, 3, 4), "x1": (3, 4), "x2": (4, 4)}
        self.inputs = dict(self.shapes)

    def pick(self, least_rank=0):
        names = [name for name, shape in self.shapes.items() if len(shape) >= least_rank]
        return names[int(self.random.integers(len(names)))]

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def node(self, op, inputs, shape, **attrs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.shapes[name] = tuple(shape)

    def grow(self):
        kinds = [name for name in dir(self) if name.startswith("add_")]
        getattr(self, kinds[int(self.random.integers(len(kinds)))])()

    def add_unary(self):
        op = self.random.choice(["Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Sin", "Erf"])
        x = self.pick()
        self.node(str(op), [x], self.shapes[x])

    def add_binary(self):
        a = self.pick()
        fitting = [n for n, s in self.shapes.items() if s == self.shapes[a] or s == self.shapes[a][1:]]
        b = fitting[int(self.random.integers(len(fitting)))]
        op = str(self.random.choice(["Add", "Sub", "Max", "Min"]))
        self.node(op, [a, b] if self.random.random() < 0.5 else [b, a], self.shapes[a])

    def add_scale(self):
        x = self.pick()
        self.node("Mul", [x, self.constant(np.float32(self.random.choice([0.5, -0.25])))], self.shapes[x])

    def add_transpose(self):
        x = self.pick()
        order = [int(axis) for axis in self.random.permutation(len(self.shapes[x]))]
        self.node("Transpose", [x], [self.shapes[x][axis] for axis in order], perm=order)

    def add_reshape(self):
        x = self.pick()
        shape = list(self.shapes[x])
        size = int(np.prod(shape))
        target = [(size,), (1, size), tuple(reversed(shape)), (*shape, 1)][int(self.random.integers(4))]
        self.node("Reshape", [x, self.constant(np.array(target, np.int64))], target)

    def add_concat(self):
        x = self.pick(1)
        axis = int(self.random.integers(len(self.shapes[x])))
        fitting = [n for n, s in self.shapes.items() if s == self.shapes[x]]
        parts = [x, *(fitting[int(self.random.integers(len(fitting)))] for _ in range(int(self.random.integers(1, 3))))]
        shape = list(self.shapes[x])
        shape[axis] *= len(parts)
        if shape[axis] < 40:
            self.node("Concat", parts, shape, axis=axis)

    def add_slice(self):
        x = self.pick(1)
        axis = int(self.random.integers(len(self.shapes[x])))
        extent = self.shapes[x][axis]
        backward = self.random.random() < 0.3
        values = ([extent - 1], [-extent - 1], [axis], [-1]) if backward else ([extent // 3], [extent], [axis], [1])
        shape = list(self.shapes[x])
        shape[axis] = extent if backward else extent - extent // 3
        self.node("Slice", [x, *(self.constant(np.array(value, np.int64)) for value in values)], shape)

    def add_softmax(self):
        x = self.pick(1)
        self.node("Softmax", [x], self.shapes[x], axis=int(self.random.integers(len(self.shapes[x]))))

    def add_reduce(self):
        x = self.pick(1)
        axis = int(self.random.integers(len(self.shapes[x])))
        op = str(self.random.choice(["ReduceMean", "ReduceMax", "ReduceMin"]))
        shape = [1 if number == axis else extent for number, extent in enumerate(self.shapes[x])]
        self.node(op, [x, self.constant(np.array([axis], np.int64))], shape, keepdims=1)

    def add_product(self):
        a = self.pick(2)
        inner = self.shapes[a][-1]
        weights = self.random.standard_normal((inner, int(self.random.integers(1, 6)))) / inner
        self.node("MatMul", [a, self.constant(weights.astype(np.float32))], (*self.shapes[a][:-1], weights.shape[1]))

    def add_bias(self):
        x = self.pick(1)
        bias = self.random.standard_normal(self.shapes[x][-1]).astype(np.float32)
        self.node("Add", [x, self.constant(bias)], self.shapes[x])

    def add_where(self):
        x = self.pick()
        condition = self.constant(self.random.random(self.shapes[x]) < 0.5)
        self.node("Where", [condition, x, self.constant(np.float32(0.5))], self.shapes[x])

    def model(self, length):
        while len(self.nodes) < length:
            self.grow()
        made = [node.output[0] for node in self.nodes]
        wanted = {made[-1], *(str(name) for name in self.random.choice(made, 3))}
        return build(
            self.nodes,
            {name: ("f4", shape) for name, shape in self.inputs.items()},
            {name: ("f4", self.shapes[name]) for name in sorted(wanted)},
            self.constants,
        )


@pytest.mark.parametrize("seed", range(80))
def test_random_graphs_give_what_the_evaluator_gives(seed, program):
    grower = Grower(seed)
    model = grower.model(6 + seed % 25)
    given = {
        name: np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        for name, shape in grower.inputs.items()
    }
    session = tt_onnx.InferenceSession(model)
    assert not session.plan().python_steps
    for _ in range(2):
        results = session.run(None, given)
        for result, expected in zip(results, ReferenceEvaluator(model).run(None, given), strict=True):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, 1e-4, 1e-5)
