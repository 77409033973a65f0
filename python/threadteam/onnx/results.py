"""Results that belong to the caller: in the arrays it gave, or in arrays of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from threadteam.errors import InvalidArgument

from .stage import Stage
from .values import Array

__all__ = ["deliver", "own", "separate"]


def separate(given: Mapping[str, Array] | None, values: dict[str, Any]) -> Mapping[str, Array] | None:
    """The preallocated outputs that a program may write directly: row-major, and apart from all inputs."""
    if not given:
        return None
    inputs = [value for value in values.values() if isinstance(value, np.ndarray)]
    return {
        name: array
        for name, array in given.items()
        if array.flags.c_contiguous and array.flags.writeable and not any(np.may_share_memory(array, x) for x in inputs)
    }


def deliver(name: str, value: Any, target: Array | None) -> Any:
    """Copy a result into the caller's array unless it is there already."""
    if target is None or value is target:
        return value
    if not isinstance(value, np.ndarray) or value.dtype != target.dtype or value.shape != target.shape:
        made = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InvalidArgument(
            f"output {name!r} is {made}, but the array bound to it is {target.dtype}{list(target.shape)}"
        )
    target[...] = value
    return target


def own(results: list[Any], values: Mapping[str, Any], stage: Stage) -> list[Any]:
    """Results that belong to the caller: copies of inputs, constants and views."""
    if stage.direct:
        return results
    seen: set[int] = set()
    owned = []
    given = {id(value) for value in values.values()}
    for result in results:
        value = result
        if isinstance(value, np.ndarray) and (
            id(value) in given
            or id(value) in seen
            or not (value.flags.writeable and value.flags.owndata and value.flags.c_contiguous)
        ):
            value = np.array(value, order="C")
        seen.add(id(value))
        owned.append(value)
    return owned
