"""Small models, and the interpreter in the place of the native program."""

from __future__ import annotations

import numpy as np
import onnx
from interpreter import NumpyProgram
from onnx import helper, numpy_helper


def build(nodes, inputs, outputs, constants=None, opset=18, functions=(), domains=()):
    """A model; inputs and outputs map a name to (element type, shape) or to a `TypeProto`."""

    def declare(name, kind):
        if isinstance(kind, onnx.TypeProto):
            return helper.make_value_info(name, kind)
        dtype, shape = kind
        elem = dtype if isinstance(dtype, int) else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, elem, shape)

    graph = helper.make_graph(
        nodes,
        "graph",
        [declare(name, kind) for name, kind in inputs.items()],
        [declare(name, kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def one_node(op, arrays, opset=18, outputs=1, dtype=None, **attrs):
    """A model of one node whose inputs are like the arrays."""
    names = [f"in{number}" for number in range(len(arrays))]
    results = [f"out{number}" for number in range(outputs)]
    node = helper.make_node(
        op, [n if a is not None else "" for n, a in zip(names, arrays, strict=True)], results, **attrs
    )
    inputs = {n: (a.dtype, a.shape) for n, a in zip(names, arrays, strict=True) if a is not None}
    kind = arrays[0].dtype if dtype is None else dtype
    return build([node], inputs, dict.fromkeys(results, (kind, None)), opset=opset)


def feed(arrays):
    return {f"in{number}": array for number, array in enumerate(arrays) if array is not None}


def interpret(description):
    return NumpyProgram(
        description.values,
        description.constants,
        description.inputs,
        description.outputs,
        description.steps,
        description.arena_bytes,
    )
