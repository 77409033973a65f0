"""From a graph and the types of its inputs to steps: abstract interpretation in running order.

Each value is constant (an array), static (type, shape and place known) or opaque (a sequence or map). A node with
constant inputs is folded; one with a lowering becomes kernel steps; another one becomes a Python step when its output
shapes follow from its inputs. What remains waits: its inputs are results of this stage, and the next stage is planned
when they are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from threadteam.errors import Fail, InvalidGraph, OnnxError

from .fusion import fuse
from .graph import Graph, Node
from .lowering import Context, NeedsValue, Unsupported, is_lowered, lower
from .reference import NONDETERMINISTIC, Reference, infer_outputs
from .rewriting import merge_batch_normalizations
from .types import storage_dtype
from .values import MAX_RANK, Array, Opaque, Shape, Step, Tensor, Value, row_major

__all__ = ["Planner", "PythonCall", "ShapeSurprise", "StageDraft", "input_tensor"]

_KNOWN_WHEN_PLANNED = frozenset({"Constant", "ConstantOfShape", "Range", "Shape", "Size"})
"""Operators whose lowering gives constants, without memory for each element."""

_FOLD_LIMIT = 1 << 26
"""A node is not folded when that would make a constant of more than this many bytes out of smaller ones."""


class PythonCall:
    """A node in the middle of a program, evaluated by the reference implementation.

    Parameters
    ----------
    reference : Reference
        The node.
    names : tuple of str
        The values given at run time, in the order of the step's operands.
    constants : dict
        The values known when planning.
    ins, outs : list of (dtype, shape)
        The operands as the node sees them; the program moves some types under another name.
    """

    def __init__(
        self,
        reference: Reference,
        names: tuple[str, ...],
        constants: Mapping[str, Array],
        ins: Sequence[tuple[np.dtype[Any], Shape]],
        outs: Sequence[tuple[np.dtype[Any], Shape]],
    ) -> None:
        self.reference = reference
        self.names = names
        self.constants = dict(constants)
        self.ins = list(ins)
        self.outs = list(outs)

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Evaluate the node on copies of its operands."""
        given: dict[str, Any] = dict(self.constants)
        for name, array, (dtype, shape) in zip(self.names, arrays, self.ins, strict=True):
            given[name] = array.view(dtype).reshape(shape)
        produced = self.reference(given)
        results = []
        for (name, value), (dtype, shape) in zip(produced.items(), self.outs, strict=True):
            if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
                raise ShapeSurprise(self.reference.node, name, value, dtype, shape)
            dense = np.ascontiguousarray(value).reshape(shape)
            stored = storage_dtype(dtype)
            assert stored is not None
            results.append(dense.view(stored))
        return tuple(results)


class ShapeSurprise(Fail):
    """Shape inference promised another type or shape than the reference implementation gave."""

    def __init__(self, node: Node, name: str, value: Any, dtype: np.dtype[Any], shape: Shape) -> None:
        given = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        super().__init__(f"node {node}: output {name!r} is {given}, not {dtype}{list(shape)} as inferred")
        self.node = node


@dataclass
class StageDraft:
    """What one walk over the waiting nodes gave.

    Parameters
    ----------
    steps : list of Step
        Kernel calls, before buffers are assigned.
    inputs : dict
        Name to tensor for the values the steps read from outside.
    results : dict
        Name to tensor for the values that later stages or the caller need.
    constants : dict
        Such values that are already known.
    ready : list of Node
        Nodes to evaluate by the reference implementation when the steps have run.
    rest : list of Node
        Nodes that wait for those.
    wanted : set of str
        Values whose contents the next stage must know when it is planned.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    results: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    ready: list[Node] = field(default_factory=list)
    rest: list[Node] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)


class Planner:
    """Plans stages of one graph.

    Parameters
    ----------
    graph : Graph
        The model.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.unpredictable: set[Node] = set()
        """Nodes of which shape inference was seen to be wrong."""
        self._references: dict[Node, Reference] = {}
        self._folded: dict[str, Array] = {}
        self._fold_model()

    def reference(self, node: Node) -> Reference:
        """The node as a Python function, made once."""
        found = self._references.get(node)
        if found is None:
            found = self._references.setdefault(node, Reference(self.graph, node))
        return found

    def _fold_model(self) -> None:
        """Evaluate once what depends on nothing but the model's own constants."""
        graph = self.graph
        replaceable = {spec.name for spec in graph.overridable}
        values: dict[str, Array] = {name: a for name, a in graph.constants.items() if name not in replaceable}
        for node in graph.nodes:
            if all(name in values for name in node.needs):
                folded = self._fold(node, dict(values))
                if folded is not None:
                    values.update(folded)
        graph.nodes = merge_batch_normalizations(graph, values)
        for array in values.values():
            array.flags.writeable = False
        self._folded = values
        graph.lasting.update(map(id, values.values()))

    def _fold(self, node: Node, values: Mapping[str, Value]) -> dict[str, Array] | None:
        """The results of a node with constant inputs, or None when it is not to be folded."""
        if (node.op in NONDETERMINISTIC and not node.domain) or node.has_body:
            return None
        inputs = {name: values[name] for name in node.needs}
        if not all(isinstance(value, np.ndarray) for value in inputs.values()):
            return None
        if node.op == "Expand" and not node.domain:
            shape = np.broadcast_shapes(inputs[node.inputs[0]].shape, tuple(inputs[node.inputs[1]].tolist()))  # type: ignore[union-attr]
            return {node.outputs[0]: np.broadcast_to(inputs[node.inputs[0]], shape)}  # type: ignore[arg-type]
        if node.op in _KNOWN_WHEN_PLANNED and not node.domain:
            context = Context(self.graph, node, [values.get(name) for name in node.inputs], {})
            try:
                lower(context)
            except Unsupported:
                pass
            else:
                found = context.results.get(0)
                return {node.outputs[0]: found} if isinstance(found, np.ndarray) else None
        given = sum(value.nbytes for value in inputs.values() if isinstance(value, np.ndarray))
        specs = infer_outputs(self.graph, node, types_of(inputs), arrays_of(inputs))
        if specs is not None:
            made = sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in filter(None, specs))
            if made > max(_FOLD_LIMIT, 2 * given):
                return None
        produced = self.reference(node)(inputs)
        if not all(isinstance(value, np.ndarray) for value in produced.values()):
            return None
        return produced

    def draft(self, todo: Sequence[Node], known: Mapping[str, Value], outputs: Sequence[str]) -> StageDraft:
        """Plan as many of the waiting nodes as the known values allow.

        Parameters
        ----------
        todo : sequence of Node
            In running order.
        known : mapping
            Name to a tensor in the space "input", a constant, or an opaque value.
        outputs : sequence of str
            What the caller wants.

        Raises
        ------
        InvalidGraph, RuntimeException
            A node cannot have the inputs it gets.
        """
        stage = StageDraft()
        values: dict[str, Value] = {**self._folded, **known}
        constants: dict[int, tuple[Array, Tensor]] = {}
        later: set[str] = set()
        for node in todo:
            if all(name in values for name in node.outputs if name):
                continue
            if any(name in later or name not in values for name in node.needs):
                stage.rest.append(node)
            elif not self._place(node, values, constants, stage):
                pass
            else:
                continue
            later.update(filter(None, node.outputs))
        needed = set(outputs)
        for node in (*stage.ready, *stage.rest):
            needed.update(node.needs)
        ordered = dict.fromkeys((*outputs, *sorted(needed)))
        for name in (name for name in ordered if name in values):
            value = values[name]
            if isinstance(value, np.ndarray):
                stage.constants[name] = value
            elif isinstance(value, Tensor) and name not in known:
                stage.results[name] = value
        stage.steps = fuse(stage.steps, list(stage.results.values()))
        stage.inputs = {name: value for name, value in known.items() if isinstance(value, Tensor)}
        return stage

    def _place(
        self,
        node: Node,
        values: dict[str, Value],
        constants: dict[int, tuple[Array, Tensor]],
        stage: StageDraft,
    ) -> bool:
        """Fold the node, lower it, or make it a Python step; else put it among the waiting ones."""
        if any(isinstance(values[name], Opaque) for name in node.needs):
            stage.ready.append(node)
            return False
        if all(isinstance(values[name], np.ndarray) for name in node.needs):
            folded = self._fold(node, values)
            if folded is not None:
                for array in folded.values():
                    array.flags.writeable = False
                values.update(folded)
                return True
        if not node.domain and is_lowered(node.op):
            context = Context(self.graph, node, [values[name] if name else None for name in node.inputs], constants)
            try:
                lower(context)
            except NeedsValue as need:
                return self._wait_for(need.name, node, values, stage)
            except Unsupported:
                pass
            except OnnxError:
                raise
            except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
                raise InvalidGraph(f"node {node} has inputs or attributes that do not fit: {error}") from error
            else:
                stage.steps.extend(context.steps)
                for index, value in context.results.items():
                    if isinstance(value, np.ndarray):
                        value.flags.writeable = False
                    if index < len(node.outputs) and node.outputs[index]:
                        values[node.outputs[index]] = value
                if all(name in values for name in node.outputs if name):
                    return True
        if self._python_step(node, values, stage):
            return True
        stage.ready.append(node)
        return False

    def _wait_for(self, name: str, node: Node, values: Mapping[str, Value], stage: StageDraft) -> bool:
        """Put a node off until the contents of one of its inputs are there, if they are few."""
        value = values[name]
        if isinstance(value, Tensor) and value.size <= 64:
            stage.wanted.add(name)
            stage.rest.append(node)
        else:
            stage.ready.append(node)
        return False

    def _python_step(
        self,
        node: Node,
        values: dict[str, Value],
        stage: StageDraft,
    ) -> bool:
        """Evaluate the node between kernel steps, if the shapes of its results are known."""
        if node in self.unpredictable or (node.op in NONDETERMINISTIC and not node.domain):
            return False
        inputs = {name: values[name] for name in node.needs}
        types = types_of(inputs)
        known = arrays_of(inputs)
        specs = infer_outputs(self.graph, node, types, known)
        if specs is None or not any(specs):
            return False
        names = tuple(name for name, value in inputs.items() if isinstance(value, Tensor))
        specs_out = [spec for spec in specs if spec is not None]
        ins = [types[name] for name in names]
        if any(storage_dtype(dtype) is None for dtype, _ in (*ins, *specs_out)):
            return False
        operands: list[Tensor | None] = []
        for name in names:
            tensor = values[name]
            assert isinstance(tensor, Tensor)
            flat = low_rank(tensor)
            if flat is None:
                return False
            operands.append(flat)
        outs = [Tensor.allocate(dtype, shape) for dtype, shape in specs_out]
        call = PythonCall(self.reference(node), names, known, ins, specs_out)
        placed = [low_rank(tensor) for tensor in outs]
        stage.steps.append(
            Step("python", operands, [tensor for tensor in placed if tensor is not None], {"call": call}, node.label)
        )
        values.update(zip(filter(None, node.outputs), outs, strict=True))
        return True


def low_rank(tensor: Tensor) -> Tensor | None:
    """The tensor, flattened when its rank is above what a program holds."""
    if tensor.rank <= MAX_RANK:
        return tensor
    return tensor.reshape((tensor.size,)) if tensor.is_row_major else None


def types_of(values: Mapping[str, Value]) -> dict[str, tuple[np.dtype[Any], Shape]]:
    """Element types and shapes of tensors and constants."""
    return {name: (value.dtype, tuple(value.shape)) for name, value in values.items() if not isinstance(value, Opaque)}


def arrays_of(values: Mapping[str, Value]) -> dict[str, Array]:
    """The constants among the values."""
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def input_tensor(dtype: np.dtype[Any], shape: Shape, index: int) -> Tensor:
    """A value that the caller, or an earlier stage, gives in row-major order."""
    tensor = Tensor.allocate(dtype, shape, "input", index)
    assert tensor.strides == row_major(shape)
    return tensor
