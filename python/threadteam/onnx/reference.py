"""Nodes evaluated by the reference implementation of the `onnx` package."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from threadteam import errors
from threadteam.errors import RunTerminated, RuntimeException

from ._extra import helper, onnx
from .bodies import Loop, Scan
from .graph import Graph, Node, printable
from .lowering import is_lowered
from .randomness import seeded_operators
from .types import dtype_of, elem_type_of
from .values import Array, Shape

__all__ = ["NONDETERMINISTIC", "Reference", "check_operators", "infer_outputs", "stopping"]

NONDETERMINISTIC = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose result is not a function of their inputs."""

_SMALL = 4096
"""Constants up to this many elements are shown to shape inference; larger ones never decide a shape."""

_TYPED_KEPT = 16
"""Evaluators kept of a node whose body depends on the types of its operands."""

_stop = threading.local()


@contextmanager
def stopping(stopped: Callable[[], bool]) -> Iterator[None]:
    """Let every evaluation on this thread ask whether the run was terminated, at each node and each turn of a body."""
    before = getattr(_stop, "stopped", None)
    _stop.stopped = stopped
    try:
        yield
    finally:
        _stop.stopped = before


class _Evaluator(onnx.reference.ReferenceEvaluator):  # type: ignore[misc, name-defined, unused-ignore]
    """The evaluator of `onnx` that asks, each time a body is entered, whether the run was terminated."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        stopped: Callable[[], bool] | None = getattr(_stop, "stopped", None)
        if stopped is not None and stopped():
            raise RunTerminated("the run was terminated by RunOptions.terminate")
        return super().run(*args, **kwargs)


class Reference:
    """One node as a Python function.

    Parameters
    ----------
    graph : Graph
        The model, for its operator sets and functions.
    node : Node
        The node.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self.node = node
        self._names = node.needs
        self._proto = evaluable(node.proto)
        # The package evaluates these as of operator set 13; before it, all axes from `axis` on count as one.
        self._flat = node.op in ("Softmax", "LogSoftmax", "Hardmax") and not node.domain and node.version < 13
        if self._flat:
            self._proto = helper.make_node(node.op, node.proto.input, node.proto.output, axis=1)
        self._imports = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
        self._functions = list(graph.model.functions)
        self._operators = [Loop, Scan, *seeded_operators(graph.random)]
        # A function body that depends on the types of its operands needs an evaluator for each combination.
        self._by_types = depends_on_types(node)
        self._evaluators: dict[Any, Any] = {}
        if not self._by_types:
            self._evaluators[()] = self._make({})

    def _make(self, types: Mapping[str, Any]) -> Any:
        """An evaluator of a model that is only this node."""
        body = helper.make_graph(
            [self._proto],
            "node",
            [helper.make_value_info(name, types.get(name, onnx.TypeProto())) for name in self._names],
            [helper.make_value_info(name, onnx.TypeProto()) for name in self.node.outputs if name],
        )
        model = helper.make_model(body, opset_imports=self._imports, functions=self._functions)
        if self._by_types:
            operator = (self._proto.domain, self._proto.op_type)
            model = onnx.inliner.inline_selected_functions(model, [operator], inline_schema_functions=True)
        return _Evaluator(model, new_ops=self._operators)

    def _for(self, feeds: Mapping[str, Any]) -> Any:
        """The evaluator for operands of these types."""
        if not self._by_types:
            return self._evaluators[()]
        arrays = {name: value for name, value in feeds.items() if isinstance(value, np.ndarray)}
        key = tuple((name, str(array.dtype), array.shape) for name, array in arrays.items())
        found = self._evaluators.get(key)
        if found is None:
            types = {
                name: helper.make_tensor_type_proto(elem_type_of(array.dtype), array.shape)
                for name, array in arrays.items()
            }
            if len(self._evaluators) >= _TYPED_KEPT:
                self._evaluators.clear()
            found = self._evaluators[key] = self._make(types)
        return found

    def _evaluate(self, feeds: dict[str, Any]) -> list[Any]:
        """The results in order."""
        if not self._flat:
            return list(self._for(feeds).run(None, feeds))
        (name,) = self._names
        x, axis = feeds[name], int(self.node.attrs.get("axis", 1))
        axis = axis + x.ndim if axis < 0 else axis
        rows = math.prod(x.shape[:axis])
        matrix = x.reshape(rows, math.prod(x.shape[axis:]))
        return [self._for(feeds).run(None, {name: matrix})[0].reshape(x.shape)]

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate the node on the named values.

        Raises
        ------
        RuntimeException
            The reference implementation failed; the message names the node and the shapes it was given.
        """
        feeds = {name: values[name] for name in self._names}
        try:
            with np.errstate(all="ignore"):
                results = self._evaluate(feeds)
        except (RunTerminated, MemoryError):
            raise
        except Exception as error:
            cause = error.__cause__ or error
            given = ", ".join(f"{name!r} {describe(feeds[name])}" for name in self._names)
            raise RuntimeException(f"node {self.node} failed on {given or 'no input'}: {cause}") from error
        names = [name for name in self.node.outputs if name]
        return {name: as_value(result) for name, result in zip(names, results, strict=True)}


def depends_on_types(node: Node) -> bool:
    """Whether the node has no implementation but a function body made for the types of its operands."""
    if node.domain:
        return False
    try:
        onnx.reference.ops.load_op(node.domain, node.op, node.version, evaluator_cls=_Evaluator)
    except onnx.reference.op_run.RuntimeContextError:
        return True
    except Exception:  # evaluated in another way, or not at all
        return False
    return False


def evaluable(proto: Any) -> Any:
    """The node under names that the evaluator knows: one of the main domain's two, and none that was replaced."""
    if proto.domain != "ai.onnx" and (proto.domain or proto.op_type != "Scatter"):
        return proto
    renamed = onnx.NodeProto()
    renamed.CopyFrom(proto)
    renamed.domain = ""
    renamed.op_type = "ScatterElements" if proto.op_type == "Scatter" else proto.op_type
    return renamed


def as_value(result: Any) -> Any:
    """A result with NumPy scalars as arrays of rank zero, and text as objects."""
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if isinstance(result, np.ndarray) and result.dtype.kind in "UST":
        return result.astype(object)
    return result


def describe(value: Any) -> str:
    """Type and shape of a value, for messages."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__


def check_operators(graph: Graph) -> None:
    """Refuse a model with operators that nothing here can evaluate, naming all of them.

    Raises
    ------
    NotImplemented
        With every such operator, its domain and operator set.
    """
    newest = onnx.defs.onnx_opset_version()
    if graph.opsets.get("", 1) > newest:
        raise errors.NotImplemented(
            f"the model is for operator set {graph.opsets['']} of ai.onnx, and the newest that the onnx package "
            f"{onnx.__version__} knows is {newest}: pip install --upgrade onnx"
        )
    functions = {(function.domain, function.name) for function in graph.model.functions}
    bodies = [graph.model.graph.node, *(function.node for function in graph.model.functions)]
    unknown: dict[tuple[str, str], None] = {}
    undeclared: dict[str, None] = {}
    for proto in (node for body in bodies for node in walk(body)):
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if domain not in graph.opsets and (domain, proto.op_type) not in functions:
            undeclared[domain] = None
            unknown[domain, proto.op_type] = None
        elif not can_evaluate(domain, proto, graph, functions):
            unknown[domain, proto.op_type] = None
    if unknown:
        names = ", ".join(f"{printable(domain or 'ai.onnx')}:{printable(op)}" for domain, op in unknown)
        sets = ", ".join(f"{printable(domain or 'ai.onnx')} {version}" for domain, version in graph.opsets.items())
        missing = "".join(f"; the domain {domain or 'ai.onnx'!r} is not imported" for domain in undeclared)
        raise errors.NotImplemented(f"operators without an implementation: {names} (operator sets: {sets}){missing}")


def walk(nodes: Iterable[Any]) -> Iterable[Any]:
    """All nodes, those of bodies included."""
    for proto in nodes:
        yield proto
        for attribute in proto.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from walk(body.node)


def can_evaluate(domain: str, proto: Any, graph: Graph, functions: set[tuple[str, str]]) -> bool:
    """Whether a kernel, the reference implementation or a function evaluates the operator."""
    if (domain, proto.op_type) in functions:
        return True
    version = graph.opsets[domain]
    if domain == "" and is_lowered(proto.op_type):
        return bool(onnx.defs.has(proto.op_type, version, domain))
    probe = object.__new__(_Evaluator)
    probe.opsets_, probe.new_ops_, probe.functions_ = graph.opsets, {}, {}
    renamed = evaluable(proto)
    try:
        probe._load_impl(renamed)
    except onnx.reference.op_run.RuntimeContextError:
        return True  # a function body that depends on the types, instantiated when they are known
    except Exception:  # each domain's table raises its own error for an unknown operator
        return False
    return version > 0


def infer_outputs(
    graph: Graph, node: Node, inputs: Mapping[str, tuple[np.dtype[Any], Shape]], constants: Mapping[str, Array]
) -> list[tuple[np.dtype[Any], Shape] | None] | None:
    """Types and shapes of a node's outputs, or None when they depend on data.

    Parameters
    ----------
    inputs : mapping
        Type and shape of each input by name.
    constants : mapping
        The contents of those inputs that are known.
    """
    if node.has_body:
        return None
    try:
        schema = onnx.defs.get_schema(node.op, node.version, node.domain)
        types = {
            name: helper.make_tensor_type_proto(elem_type_of(dtype), shape) for name, (dtype, shape) in inputs.items()
        }
        data = {
            name: onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            for name, array in constants.items()
            if array.size <= _SMALL
        }
        imports = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
        found = onnx.shape_inference.infer_node_outputs(schema, node.proto, types, data, opset_imports=imports)
    except Exception:  # no schema, no inference function, or inputs that the node itself will refuse by name
        return None
    specs: list[tuple[np.dtype[Any], Shape] | None] = []
    for name in node.outputs:
        if not name:
            specs.append(None)
            continue
        spec = concrete(found.get(name))
        if spec is None:
            return None
        specs.append(spec)
    return specs


def concrete(proto: Any) -> tuple[np.dtype[Any], Shape] | None:
    """Type and shape of a fully known tensor type."""
    if proto is None or proto.WhichOneof("value") != "tensor_type" or not proto.tensor_type.HasField("shape"):
        return None
    dims: Sequence[Any] = proto.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims) or proto.tensor_type.elem_type == 0:
        return None
    return dtype_of(proto.tensor_type.elem_type), tuple(dim.dim_value for dim in dims)
