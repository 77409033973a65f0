"""Nodes merged before anything is planned: a batch normalisation becomes part of the convolution it follows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ._extra import onnx
from .graph import Graph, Node
from .values import Array

__all__ = ["merge_batch_normalizations"]


def merge_batch_normalizations(graph: Graph, constants: dict[str, Array]) -> tuple[Node, ...]:
    """The nodes with each normalisation of a convolution's result folded into its weights and bias.

    Parameters
    ----------
    graph : Graph
        The model; constants that nothing reads any more are dropped from it.
    constants : dict
        All known values; gets the new weights and biases, loses those dropped.

    Returns
    -------
    tuple of Node
        In running order.
    """
    readers = Counter(name for node in graph.nodes for name in node.needs)
    readers.update(spec.name for spec in graph.outputs)
    producers = {name: node for node in graph.nodes for name in node.outputs}
    gone: set[Node] = set()
    kept: list[Node] = []
    for node in graph.nodes:
        conv = producers.get(node.inputs[0]) if is_inference(node) else None
        merged = None
        if conv is not None and conv.op == "Conv" and not conv.domain and readers[conv.outputs[0]] == 1:
            merged = merge(conv, node, constants)
        if conv is None or merged is None:
            kept.append(node)
            continue
        gone.add(conv)
        kept.append(merged)
        for name in (*conv.inputs[1:], *node.inputs[1:]):
            readers[name] -= 1
            if name and not readers[name]:
                constants.pop(name, None)
                graph.constants.pop(name, None)
    return tuple(node for node in kept if node not in gone)


def is_inference(node: Node) -> bool:
    """Whether a node normalises with stored statistics and gives nothing else."""
    if node.op != "BatchNormalization" or node.domain or sum(map(bool, node.outputs)) != 1:
        return False
    training = node.attrs.get("training_mode", 0) or (node.version < 7 and not node.attrs.get("is_test", 0))
    return not training and bool(node.attrs.get("spatial", 1))


def merge(conv: Node, node: Node, constants: dict[str, Array]) -> Node | None:
    """The convolution that normalises its own result, or None when not all parameters are known."""
    names = [*conv.inputs[1:], *node.inputs[1:]]
    arrays = [constants.get(name) for name in names if name]
    if len(node.inputs) != 5 or any(array is None for array in arrays):
        return None
    known = [array for array in arrays if array is not None]
    weights = known[0]
    if weights.dtype.kind != "f" or weights.dtype.itemsize < 4 or any(a.dtype != weights.dtype for a in known):
        return None
    scale, shift, mean, variance = (array.astype(np.float64) for array in known[-4:])
    bias = known[1].astype(np.float64) if len(known) == 6 else 0.0
    factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
    if factor.shape != weights.shape[:1]:
        return None
    scaled = weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
    made = {
        f"{node.outputs[0]} weights": scaled.astype(weights.dtype),
        f"{node.outputs[0]} bias": ((bias - mean) * factor + shift).astype(weights.dtype),
    }
    if made.keys() & constants.keys():
        return None
    constants.update(made)
    proto = onnx.NodeProto()
    proto.CopyFrom(conv.proto)
    inputs, outputs = (conv.inputs[0], *made), node.outputs[:1]
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.extend(outputs)
    return Node(node.index, conv.op, conv.domain, conv.version, inputs, outputs, proto)
