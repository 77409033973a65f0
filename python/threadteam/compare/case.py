"""What is compared: one ONNX model with one set of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from threadteam.compare.chains import Chain

__all__ = ["Array", "Case"]

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@dataclass(frozen=True)
class Case:
    """One model and the inputs it is run on, the same for every execution system.

    Parameters
    ----------
    name : str
        What `--models` selects it by.
    title : str
        One line for the head of its table.
    model : bytes
        The serialised ONNX model.
    inputs : mapping of str to ndarray
        The inputs by name, C-contiguous.
    tolerance : float
        The largest accepted difference between two systems, relative to the largest magnitude of an output.
    chain : Chain or None
        What the model was built from, for systems that do not read ONNX.
    """

    name: str
    title: str
    model: bytes = field(repr=False)
    inputs: Mapping[str, Array] = field(repr=False)
    tolerance: float
    chain: Chain | None = None


def largest_difference(results: list[Array], expected: list[Array]) -> float:
    """The largest difference between two lists of outputs, relative to the largest magnitude of each expected output.

    Outputs of another count, shape or kind, and values that are not a number in only one of them, differ infinitely.

    Examples
    --------
    >>> import numpy as np
    >>> largest_difference([np.array([1.0, 3.0])], [np.array([1.0, 4.0])])
    0.25
    >>> largest_difference([np.zeros(3)], [np.zeros(4)])
    inf
    """
    if len(results) != len(expected):
        return float("inf")
    return max((_difference(result, wanted) for result, wanted in zip(results, expected, strict=True)), default=0.0)


def _difference(result: Array, wanted: Array) -> float:
    if result.shape != wanted.shape or result.dtype.kind != wanted.dtype.kind:
        return float("inf")
    if wanted.size == 0:
        return 0.0
    if wanted.dtype.kind not in "fiu":
        return 0.0 if np.array_equal(result, wanted) else float("inf")
    one, other = result.astype(np.float64), wanted.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(one - other))
    largest = float(np.nan_to_num(distance, nan=np.inf, posinf=np.inf).max())
    magnitude = float(np.max(np.abs(other[np.isfinite(other)]), initial=0.0))
    return largest / magnitude if magnitude > 0.0 else largest
