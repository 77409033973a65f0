"""A checked model: typed inputs and outputs, constants, and nodes in an order in which they can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from threadteam.errors import InvalidGraph

from ._extra import helper, numpy_helper, onnx
from .randomness import RandomStream
from .types import dtype_of, type_string
from .values import Array

__all__ = ["Graph", "Node", "ValueSpec", "build_graph"]


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """A declared input or output.

    Parameters
    ----------
    name : str
        Its name.
    type : str
        Its type as ONNX Runtime writes it, such as `tensor(float)`.
    dtype : numpy.dtype or None
        The element type; None for anything but a tensor.
    dims : tuple or None
        An int, a symbol's name or None for each axis; None when the rank is not declared.
    """

    name: str
    type: str
    dtype: np.dtype[Any] | None
    dims: tuple[int | str | None, ...] | None

    @classmethod
    def from_proto(cls, proto: Any) -> ValueSpec:
        """Read a `ValueInfoProto`."""
        tensor = proto.type.tensor_type if proto.type.WhichOneof("value") == "tensor_type" else None
        try:
            name = type_string(proto.type)
            dtype = None if tensor is None else dtype_of(tensor.elem_type)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidGraph(f"{proto.name!r} is declared with an element type that ONNX does not have") from error
        if tensor is None:
            return cls(proto.name, name, None, None)
        dims = None
        if tensor.HasField("shape"):
            dims = tuple(
                dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or None) for dim in tensor.shape.dim
            )
        return cls(proto.name, name, dtype, dims)


@dataclass(eq=False)
class Node:
    """One operator of the graph.

    Parameters
    ----------
    op, domain, version
        The operator's name, its domain, and the operator set that the model imports of it.
    inputs, outputs : tuple of str
        Names of values; empty for an absent optional one.
    proto : NodeProto
        The node as the file has it.
    captured : tuple of str
        Outer values that the bodies of If, Loop and Scan read.
    """

    index: int
    op: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    proto: Any
    captured: tuple[str, ...] = ()

    @cached_property
    def attrs(self) -> dict[str, Any]:
        """The attributes that the node sets, as Python values."""
        return {a.name: helper.get_attribute_value(a) for a in self.proto.attribute}

    @property
    def has_body(self) -> bool:
        """Whether a subgraph belongs to it."""
        kinds = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        return any(attribute.type in kinds for attribute in self.proto.attribute)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The names of all values that it reads, captured ones included."""
        return tuple(dict.fromkeys((*filter(None, self.inputs), *self.captured)))

    def __str__(self) -> str:
        name = self.proto.name or next((f"-> {name}" for name in self.outputs if name), "")
        return f"{printable(self.domain) + '.' if self.domain else ''}{printable(self.op)} {name!r}"

    @property
    def label(self) -> str:
        """What a profile calls it."""
        return f"{self.proto.name} ({self.op})" if self.proto.name else self.op


@dataclass(eq=False)
class Graph:
    """A model, ready to be planned.

    Parameters
    ----------
    model : ModelProto
        The model without the contents of its constants.
    inputs, outputs : tuple of ValueSpec
        What a caller gives and gets.
    overridable : tuple of ValueSpec
        Inputs that have a default.
    constants : dict
        Name to contents, overridable inputs included.
    nodes : tuple of Node
        In an order in which they can run.
    opsets : dict
        Domain to the imported operator set.
    memo : dict
        Constants derived from the model's own, shared by all plans.
    lasting : set of int
        The identities of the arrays in `constants`, which live as long as the graph.
    random : RandomStream or None
        Where random numbers come from; None for the system.
    """

    model: Any
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    overridable: tuple[ValueSpec, ...]
    constants: dict[str, Array]
    nodes: tuple[Node, ...]
    opsets: dict[str, int]
    memo: dict[Any, Any] = field(default_factory=dict)
    lasting: set[int] = field(default_factory=set)
    random: RandomStream | None = None

    def needed_for(self, outputs: Iterable[str]) -> tuple[Node, ...]:
        """The nodes that the values `outputs` depend on, in running order."""
        wanted = set(outputs)
        kept = []
        for node in reversed(self.nodes):
            if any(name in wanted for name in node.outputs if name):
                kept.append(node)
                wanted.update(node.needs)
        return tuple(reversed(kept))


def build_graph(model: Any) -> Graph:
    """Check the graph of `model` and put its nodes in order.

    Raises
    ------
    InvalidGraph
        A name is defined twice or never, nodes form a cycle, or a constant's data do not have its shape.
    """
    graph = model.graph
    check_names_are_text(graph)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if "ai.onnx" in opsets:
        opsets.setdefault("", opsets.pop("ai.onnx"))
    constants = {tensor.name: read_tensor(tensor) for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        constants[sparse.values.name] = read_sparse(sparse)
    specs = [ValueSpec.from_proto(proto) for proto in graph.input]
    check_single_definitions(graph, specs)
    nodes = [read_node(index, proto, opsets) for index, proto in enumerate(graph.node)]
    given = {spec.name for spec in specs} | constants.keys()
    ordered = in_running_order(nodes, given)
    known = given | {name for node in nodes for name in node.outputs}
    for proto in graph.output:
        if proto.name not in known:
            raise InvalidGraph(f"graph output {proto.name!r} is not produced by any node, input or initializer")
    outputs = tuple(
        ValueSpec.from_proto(proto) if proto.type.WhichOneof("value") else untyped(proto.name) for proto in graph.output
    )
    return Graph(
        model=model,
        inputs=tuple(spec for spec in specs if spec.name not in constants),
        outputs=outputs,
        # Before IR version 4 every initializer had to be listed as an input too, which says nothing about overriding.
        overridable=tuple(spec for spec in specs if spec.name in constants and model.ir_version >= 4),
        constants=constants,
        nodes=ordered,
        opsets=opsets,
    )


def untyped(name: str) -> ValueSpec:
    """An output of which the file says no more than the name."""
    return ValueSpec(name, "unknown", None, None)


def read_tensor(proto: Any) -> Array:
    """The contents of a constant."""
    try:
        array: Array = numpy_helper.to_array(proto)
    except Exception as error:  # a malformed tensor raises whatever NumPy raised
        raise InvalidGraph(
            f"initializer {proto.name!r} of shape {tuple(proto.dims)} does not have the data of that shape: {error}"
        ) from error
    return array


def read_sparse(proto: Any) -> Array:
    """The dense contents of a sparse constant."""
    values, indices = read_tensor(proto.values), read_tensor(proto.indices)
    dense = np.zeros(tuple(proto.dims), values.dtype)
    try:
        if indices.ndim == 2:
            dense[tuple(indices.T)] = values
        else:
            dense.reshape(-1)[indices] = values
    except IndexError as error:
        raise InvalidGraph(f"sparse initializer {proto.values.name!r} has an index out of range: {error}") from error
    return dense


def printable(text: str) -> str:
    """A name as a line of a message shows it: nothing in it ends the line or moves the cursor."""
    return text if text.isprintable() else repr(text)[1:-1]


def read_node(index: int, proto: Any, opsets: Mapping[str, int]) -> Node:
    """Read a `NodeProto`; the main domain has two names."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    captured: set[str] = set()
    for attribute in proto.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            captured |= captured_names(body)
    return Node(
        index,
        proto.op_type,
        domain,
        opsets.get(domain, 0),
        tuple(proto.input),
        tuple(proto.output),
        proto,
        tuple(sorted(captured)),
    )


def captured_names(body: Any) -> set[str]:
    """The names that a subgraph reads and does not define."""
    defined = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    defined |= {sparse.values.name for sparse in body.sparse_initializer}
    defined |= {name for node in body.node for name in node.output}
    read = {name for node in body.node for name in node.input if name}
    for node in body.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                read |= captured_names(inner)
    read |= {value.name for value in body.output}
    return read - defined


def check_names_are_text(graph: Any) -> None:
    """A corrupt file can have names that are no text."""
    values = (*graph.input, *graph.output, *graph.initializer)
    names = [value.name for value in values]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
    for name in names:
        if not isinstance(name, str):
            raise InvalidGraph(f"the name {name!r} is not text in UTF-8: the file is corrupt")


def check_single_definitions(graph: Any, specs: Iterable[ValueSpec]) -> None:
    """Every name has one definition."""
    origin: dict[str, str] = {}
    for spec in specs:
        if spec.name in origin:
            raise InvalidGraph(f"input {spec.name!r} is declared twice")
        origin[spec.name] = "a graph input"
    seen: set[str] = set()
    for name in (*(t.name for t in graph.initializer), *(s.values.name for s in graph.sparse_initializer)):
        if name in seen:
            raise InvalidGraph(f"initializer {name!r} is defined twice")
        seen.add(name)
        origin.setdefault(name, "an initializer")
    for node in graph.node:
        title = f"node {printable(node.op_type)} {node.name!r}"
        for name in filter(None, node.output):
            if name in origin:
                raise InvalidGraph(f"{title} defines {name!r}, which is already defined by {origin[name]}")
            origin[name] = title
    names = [value.name for value in graph.output]
    for name in names:
        if names.count(name) > 1:
            raise InvalidGraph(f"output {name!r} is declared twice")


def in_running_order(nodes: list[Node], given: Iterable[str]) -> tuple[Node, ...]:
    """The nodes so that each comes after those it reads from, otherwise in file order."""
    producer = {name: node for node in nodes for name in node.outputs if name}
    known = set(given)
    for node in nodes:
        for name in node.needs:
            if name not in known and name not in producer:
                raise InvalidGraph(f"node {node} reads {name!r}, which no node, input or initializer defines")
    waiting = {
        node: {producer[name] for name in node.needs if name in producer and name not in known} for node in nodes
    }
    if all(parent.index < node.index for node, parents in waiting.items() for parent in parents):
        return tuple(nodes)
    ordered: list[Node] = []
    done: set[Node] = set()
    remaining = nodes
    while remaining:
        later = []
        for node in remaining:
            if waiting[node] <= done:
                ordered.append(node)
                done.add(node)
            else:
                later.append(node)
        if len(later) == len(remaining):
            raise InvalidGraph(f"the graph has a cycle through: {', '.join(map(str, find_cycle(later, waiting)))}")
        remaining = later
    return tuple(ordered)


def find_cycle(nodes: list[Node], parents: Mapping[Node, set[Node]]) -> list[Node]:
    """A cycle among nodes of which each waits for another of them."""
    stuck = set(nodes)
    path: list[Node] = [nodes[0]]
    while True:
        above = min((node for node in parents[path[-1]] if node in stuck), key=lambda node: node.index)
        if above in path:
            cycle = list(reversed(path[path.index(above) :]))
            first = min(range(len(cycle)), key=lambda at: cycle[at].index)
            return cycle[first:] + cycle[:first]
        path.append(above)
