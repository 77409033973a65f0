"""From a planned stage to a native program and the table that describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from threadteam import _native

from .arena import Arena, assign_offsets, place_outputs, share_in_place, write_parts_in_place
from .planner import StageDraft
from .types import storage_dtype
from .values import MAX_RANK, Array, Buffer, Shape, Step, Tensor

__all__ = ["Description", "Executable", "describe", "make_program"]

ValueRow = tuple[str, int, int, str, Shape, Shape]
Port = tuple[str, str, Shape]
StepRow = tuple[str, list[int], list[int], dict[str, Any], str]


class Executable(Protocol):
    """What runs a description: the native program, or a stand-in for it in tests."""

    def run(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array | None] | None = None,
        on: Any = None,
        profile: bool = False,
        cancelled: Any = None,
    ) -> list[Array]:
        """Run the steps."""
        ...


@dataclass(frozen=True)
class Description:
    """The arguments of a program, and what a table shows of it.

    Parameters
    ----------
    values, constants, inputs, outputs, steps, arena_bytes
        As `_native.Program` takes them.
    drafted : list of Step
        The steps with their tensors.
    arena : Arena
        Offsets and lifetimes.
    """

    values: list[ValueRow]
    constants: list[Array]
    inputs: list[Port]
    outputs: list[Port]
    steps: list[StepRow]
    arena_bytes: int
    drafted: list[Step]
    arena: Arena


def stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype under which a program holds elements of `dtype`."""
    found = storage_dtype(dtype)
    assert found is not None, dtype
    return found


def port(name: str, dtype: np.dtype[Any], shape: Shape) -> Port:
    """An input or output; one of high rank is flat in the program."""
    flat = shape if len(shape) <= MAX_RANK else (int(np.prod(shape)),)
    return name, stored(dtype).name, flat


def describe(draft: StageDraft) -> Description:
    """Assign all buffers of a stage and number its values."""
    results = list(draft.results.values())
    steps = write_parts_in_place(draft.steps, results)
    place_outputs(steps, results)
    share_in_place(steps)
    arena = assign_offsets(steps)
    constants: list[Array] = []
    constant_numbers: dict[Buffer, int] = {}
    values: list[ValueRow] = []
    numbers: dict[ValueRow, int] = {}

    def number(tensor: Tensor | None) -> int:
        if tensor is None:
            return -1
        buffer = tensor.buffer
        index, start = buffer.index, 0
        if buffer.space == "const":
            if buffer not in constant_numbers:
                assert buffer.array is not None
                constant_numbers[buffer] = len(constants)
                constants.append(buffer.array.view(stored(buffer.array.dtype)))
            index = constant_numbers[buffer]
        elif buffer.space == "arena":
            index, start = 0, arena.offsets[buffer]
        row = (
            buffer.space,
            index,
            start + tensor.offset * tensor.dtype.itemsize,
            stored(tensor.dtype).name,
            tensor.shape,
            tensor.strides,
        )
        if row not in numbers:
            numbers[row] = len(values)
            values.append(row)
        return numbers[row]

    rows = [
        (step.kind, [number(t) for t in step.ins], [number(t) for t in step.outs], step.attrs, step.label)
        for step in steps
    ]
    inputs = sorted(draft.inputs.items(), key=lambda item: item[1].buffer.index)
    return Description(
        values,
        constants,
        [port(name, tensor.dtype, tensor.shape) for name, tensor in inputs],
        [port(name, tensor.dtype, tensor.shape) for name, tensor in draft.results.items()],
        rows,
        arena.nbytes,
        steps,
        arena,
    )


def make_program(description: Description) -> Executable:
    """The native program of a description."""
    program: Executable = _native.Program(
        description.values,
        description.constants,
        description.inputs,
        description.outputs,
        description.steps,
        description.arena_bytes,
    )
    return program
