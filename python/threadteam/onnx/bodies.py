"""Loop and Scan with all that the specification allows, for the evaluator of the `onnx` package.

Its own classes join the rows of a Loop along an existing axis, and know neither reversed nor transposed scans, nor the
batched Scan of operator set 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._extra import onnx
from .types import dtype_of
from .values import Array

__all__ = ["Loop", "Scan"]

_OpRun: Any = onnx.reference.op_run.OpRun


class Loop(_OpRun):  # type: ignore[misc, unused-ignore]
    """A body run while its condition holds, at most a given number of times."""

    def need_context(self) -> bool:
        """Bodies read values from around them."""
        return True

    def _run(
        self,
        limit: Array | None,
        condition: Array | None = None,
        *initial: Any,
        context: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        names = self.body.input_names
        states = list(initial)
        rows: list[list[Any]] = [[] for _ in self.body.output_names[1 + len(states) :]]
        going = condition is None or bool(np.all(condition))
        turn = 0
        while going and (limit is None or turn < int(limit)):
            feeds = {**(context or {}), **dict(zip(names[2:], states, strict=True))}
            feeds[names[0]], feeds[names[1]] = np.asarray(turn, np.int64), np.asarray(going)
            found = self._run_body(feeds, attributes=attributes)
            going = bool(np.all(found[0]))
            states = list(found[1 : 1 + len(states)])
            for row, value in zip(rows, found[1 + len(states) :], strict=True):
                row.append(value)
            turn += 1
        types = self.body.output_types_[1 + len(states) :]
        return (*states, *(stacked(row, proto, 0) for row, proto in zip(rows, types, strict=True)))


class Scan(_OpRun):  # type: ignore[misc, unused-ignore]
    """A body run once for each slice of its scan inputs."""

    def need_context(self) -> bool:
        """Bodies read values from around them."""
        return True

    def _run(
        self,
        *args: Any,
        context: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        count = int(self.num_scan_inputs)
        if self.run_params["opsets"].get("", 1) < 9:
            return self._batched(args[0], args[1:], count, context, attributes)
        split = len(args) - count
        states, scanned = list(args[:split]), list(args[split:])
        results = len(self.body.output_names) - split
        axes = self._option("scan_input_axes", count)
        backward = self._option("scan_input_directions", count)
        slices = [
            np.moveaxis(array, axis, 0)[:: -1 if back else 1]
            for array, axis, back in zip(scanned, axes, backward, strict=True)
        ]
        states, rows = self._turns(states, slices, len(slices[0]), context, attributes)
        types = self.body.output_types_[split:]
        joined = [
            stacked(row[:: -1 if back else 1], proto, axis)
            for row, proto, axis, back in zip(
                rows,
                types,
                self._option("scan_output_axes", results),
                self._option("scan_output_directions", results),
                strict=True,
            )
        ]
        return (*states, *joined)

    def _option(self, name: str, count: int) -> list[int]:
        """A list attribute, zeros when it is not set."""
        given = getattr(self, name, None)
        return [int(item) for item in given] if given else [0] * count

    def _turns(
        self,
        states: list[Any],
        slices: Sequence[Array],
        turns: int,
        context: Mapping[str, Any] | None,
        attributes: Mapping[str, Any] | None,
    ) -> tuple[list[Any], list[list[Any]]]:
        """The last states and the rows of each scan output."""
        names = self.body.input_names
        rows: list[list[Any]] = [[] for _ in self.body.output_names[len(states) :]]
        for turn in range(turns):
            given = [*states, *(array[turn] for array in slices)]
            feeds = {**(context or {}), **dict(zip(names, given, strict=True))}
            found = self._run_body(feeds, attributes=attributes)
            states = list(found[: len(states)])
            for row, value in zip(rows, found[len(states) :], strict=True):
                row.append(value)
        return states, rows

    def _batched(
        self,
        lengths: Array | None,
        args: Sequence[Array],
        count: int,
        context: Mapping[str, Any] | None,
        attributes: Mapping[str, Any] | None,
    ) -> tuple[Any, ...]:
        """Operator set 8: axis 0 of everything is a batch, and each member may have its own length."""
        split = len(args) - count
        backward = self._option("directions", count)
        longest = args[split].shape[1]
        states: list[list[Any]] = []
        joined: list[list[Any]] = []
        for member in range(args[0].shape[0]):
            turns = longest if lengths is None else int(lengths[member])
            slices = [
                array[member][:turns][:: -1 if back else 1] for array, back in zip(args[split:], backward, strict=True)
            ]
            last, rows = self._turns([array[member] for array in args[:split]], slices, turns, context, attributes)
            states.append(last)
            full = []
            for row, proto in zip(rows, self.body.output_types_[split:], strict=True):
                made = stacked(row, proto, 0)
                rest = np.zeros((longest - len(row), *made.shape[1:]), made.dtype)
                full.append(np.concatenate([made, rest]))
            joined.append(full)
        return tuple(
            np.stack(column) for column in zip(*([*s, *j] for s, j in zip(states, joined, strict=True)), strict=True)
        )


def stacked(rows: Sequence[Any], proto: Any, axis: int) -> Array:
    """The rows along a new axis; of no rows an empty array of the declared type."""
    if rows:
        return np.stack([np.asarray(row) for row in rows], axis)
    tensor = proto.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim]
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
    return np.zeros(shape, dtype_of(tensor.elem_type))
