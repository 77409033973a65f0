"""Running a plan: stages of kernel steps, with nodes of unpredictable shape between them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from threadteam.errors import InvalidArgument

from .graph import Node
from .planner import Planner, StageDraft, input_tensor
from .program import Description, Executable, describe, make_program
from .types import storage_dtype
from .values import MAX_RANK, Array, Opaque, Shape, Value

__all__ = ["Runner", "Stage"]

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Runner:
    """How the stages of a run are executed.

    Parameters
    ----------
    on : Pool, Exec, Team, TeamExec or None
        Where kernels run.
    cancelled : object, optional
        What a native program looks at between its steps.
    profile : callable, optional
        Called with each stage whose program has run.
    """

    on: Any
    cancelled: Any = None
    profile: Callable[[Stage], None] | None = None


class Stage:
    """The part of a model that could be planned with what was known, and the stages that follow it.

    Parameters
    ----------
    planner : Planner
        Plans what follows.
    todo : sequence of Node
        The nodes that have not run.
    known : mapping
        Values from outside: tensors in the space "input", constants, opaque ones.
    outputs : tuple of str
        What the caller wants.
    capacity : int
        How many following stages are kept, one for each combination of shapes.
    """

    def __init__(
        self,
        planner: Planner,
        todo: Sequence[Node],
        known: Mapping[str, Value],
        outputs: tuple[str, ...],
        capacity: int,
    ) -> None:
        self.planner = planner
        self.outputs = outputs
        self.capacity = capacity
        self.draft: StageDraft = planner.draft(todo, known, outputs)
        self.description: Description = describe(self.draft)
        self.program: Executable | None = make_program(self.description) if self.draft.results else None
        self.input_names = [name for name, _, _ in self.description.inputs]
        self.result_names = list(self.draft.results)
        self.complete = not self.draft.ready and not self.draft.rest
        self.direct = (
            self.complete
            and self.program is not None
            and tuple(self.result_names) == outputs
            and all(plain(t.dtype, t.shape) for t in (*self.draft.inputs.values(), *self.draft.results.values()))
        )
        """Whether the program's results are the caller's as they are."""
        self.constants: dict[str, Array] = {
            **{name: value for name, value in known.items() if isinstance(value, np.ndarray)},
            **self.draft.constants,
        }
        self._next: OrderedDict[Key, Stage] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, values: dict[str, Any], runner: Runner, given: Mapping[str, Array] | None = None) -> dict[str, Any]:
        """Run this stage and those after it; `values` is filled with all results.

        Parameters
        ----------
        values : dict
            Name to array for everything the caller and earlier stages gave.
        given : mapping, optional
            Preallocated arrays for some results.
        """
        if self.program is not None:
            arrays = [self._stored(values[name]) for name in self.input_names]
            outputs = None
            if given:
                outputs = [self._target(name, given.get(name)) for name in self.result_names]
            results = self.program.run(arrays, outputs, runner.on, runner.profile is not None, runner.cancelled)
            if runner.profile is not None:
                runner.profile(self)
            for (name, tensor), array in zip(self.draft.results.items(), results, strict=True):
                values[name] = (
                    array if plain(tensor.dtype, tensor.shape) else array.view(tensor.dtype).reshape(tensor.shape)
                )
        values.update(self.draft.constants)
        for node in self.draft.ready:
            values.update(self.planner.reference(node)(values))
        if self.draft.rest:
            self._following(values).run(values, runner, given)
        return values

    def _target(self, name: str, array: Array | None) -> Array | None:
        """A preallocated array that a result is written to."""
        tensor = self.draft.results[name]
        if array is None:
            return None
        if array.dtype != tensor.dtype or array.shape != tensor.shape:
            raise InvalidArgument(
                f"output {name!r} is {tensor.dtype}{list(tensor.shape)},"
                f" but the array bound to it is {array.dtype}{list(array.shape)}"
            )
        return self._stored(array)

    @staticmethod
    def _stored(array: Array) -> Array:
        """The array as the program holds it."""
        dtype = storage_dtype(array.dtype)
        assert dtype is not None
        view = array if dtype == array.dtype else array.view(dtype)
        return view if view.ndim <= MAX_RANK else view.reshape(-1)

    def _following(self, values: Mapping[str, Any]) -> Stage:
        """The stage for what is known now, planned at first need."""
        needed = set(self.outputs)
        for node in self.draft.rest:
            needed.update(node.needs)
        fixed = {name: self.constants[name] for name in needed if name in self.constants}
        names = [name for name in sorted(needed) if name in values and name not in fixed]
        wanted = self.draft.wanted
        key = tuple(describe_value(name, values[name], name in wanted) for name in names)
        with self._lock:
            found = self._next.get(key)
            if found is None:
                given = {name: values[name] for name in names}
                known = {**fixed, **known_values(given, wanted)}
                found = Stage(self.planner, self.draft.rest, known, self.outputs, self.capacity)
                self._next[key] = found
                while len(self._next) > self.capacity:
                    self._next.popitem(last=False)
            else:
                self._next.move_to_end(key)
        return found


def plain(dtype: np.dtype[Any], shape: Shape) -> bool:
    """Whether a program holds such a tensor under its own type and shape."""
    return storage_dtype(dtype) == dtype and len(shape) <= MAX_RANK


def describe_value(name: str, value: Any, contents: bool) -> Key:
    """What distinguishes plans for different values."""
    if not isinstance(value, np.ndarray):
        return (name, type(value).__name__)
    if contents:
        return (name, value.dtype, value.shape, value.tobytes())
    return (name, value.dtype, value.shape)


def known_values(values: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Value]:
    """Run-time values as the planner sees them; the contents of the wanted ones are fixed."""
    known: dict[str, Value] = {}
    inputs = 0
    for name, value in values.items():
        if not isinstance(value, np.ndarray) or storage_dtype(value.dtype) is None:
            known[name] = Opaque()
        elif name in wanted:
            known[name] = value.copy()
        else:
            known[name] = input_tensor(value.dtype, value.shape, inputs)
            inputs += 1
    return known
