"""What callers give as inputs, turned into row-major arrays of the declared type, or refused by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from threadteam.errors import InvalidArgument

from .graph import ValueSpec
from .types import array_type_string
from .values import Array

__all__ = ["InputReader", "check_names"]


def check_names(given: Collection[str], required: Collection[str], optional: Collection[str]) -> None:
    """Refuse missing and unexpected inputs, naming all of them.

    Raises
    ------
    InvalidArgument
        With the names that are missing, unexpected and expected.
    """
    missing = [name for name in required if name not in given]
    unexpected = [name for name in given if name not in required and name not in optional]
    if not missing and not unexpected:
        return
    parts = []
    if missing:
        parts.append(f"missing input{'s' * (len(missing) > 1)} {quoted(missing)}")
    if unexpected:
        parts.append(f"unexpected input{'s' * (len(unexpected) > 1)} {quoted(unexpected)}")
    raise InvalidArgument(f"{' and '.join(parts)}; the model takes {quoted(required) or 'no input'}")


def quoted(names: Collection[str]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(map(repr, names))


class InputReader:
    """Reads one declared input.

    Parameters
    ----------
    spec : ValueSpec
        The declaration.
    """

    def __init__(self, spec: ValueSpec) -> None:
        self.spec = spec

    def __call__(self, value: Any) -> Any:
        """The value as the model takes it.

        Raises
        ------
        InvalidArgument
            Its type, rank or shape is not the declared one.
        """
        spec = self.spec
        if spec.dtype is None:
            return self._structure(value)
        array = self._array(value, spec.dtype)
        self._check_shape(array)
        return array

    def _structure(self, value: Any) -> Any:
        """A sequence, map or optional value; arrays inside are made native."""
        kind = self.spec.type.partition("(")[0]
        if kind == "seq" and not isinstance(value, (list, tuple)):
            raise InvalidArgument(
                f"input {self.spec.name!r} is {self.spec.type}: expected a list, given {type(value).__name__}"
            )
        if kind == "map" and not isinstance(value, Mapping):
            raise InvalidArgument(
                f"input {self.spec.name!r} is {self.spec.type}: expected a dict, given {type(value).__name__}"
            )
        if isinstance(value, tuple):
            value = list(value)
        if isinstance(value, list):
            return [row_major(item) if isinstance(item, np.ndarray) else item for item in value]
        return row_major(value) if isinstance(value, np.ndarray) else value

    def _array(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """An array of the declared type."""
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
        elif hasattr(value, "numpy") and not isinstance(value, type):
            array = np.asarray(value.numpy())
        else:
            return self._from_python(value, dtype)
        if dtype.hasobject:
            if array.dtype.kind not in "OUST":
                raise self._wrong_type(array_type_string(array))
            return row_major(array.astype(object))
        if array.dtype.newbyteorder("=") != dtype:
            raise self._wrong_type(array_type_string(array))
        return row_major(array)

    def _from_python(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """A number or nested lists of numbers, where they fit the declared type without loss of meaning."""
        try:
            array = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise InvalidArgument(f"input {self.spec.name!r} is not an array: {error}") from error
        if array.dtype.kind in "OUS" and dtype.hasobject:
            return np.asarray(value, object)
        allowed = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc", "V": "iuf"}
        if array.size and array.dtype.kind not in allowed.get(dtype.kind, ""):
            name = f"{type(value).__name__} of {array.dtype}" if array.ndim else type(value).__name__
            raise self._wrong_type(name)
        with np.errstate(all="ignore"):
            converted = array.astype(dtype)
        if dtype.kind in "iu" and array.size and not np.array_equal(converted, array):
            raise InvalidArgument(f"input {self.spec.name!r} has values outside the range of {dtype}")
        return row_major(converted)

    def _wrong_type(self, given: str) -> InvalidArgument:
        return InvalidArgument(f"input {self.spec.name!r} has type {given}, expected {self.spec.type}")

    def _check_shape(self, array: Array) -> None:
        """Rank and fixed extents."""
        dims = self.spec.dims
        if dims is None:
            return
        if len(dims) != array.ndim:
            raise InvalidArgument(
                f"input {self.spec.name!r} has rank {array.ndim} (shape {list(array.shape)}),"
                f" expected rank {len(dims)} (shape {shape_text(dims)})"
            )
        for axis, (extent, dim) in enumerate(zip(array.shape, dims, strict=True)):
            if isinstance(dim, int) and dim != extent:
                raise InvalidArgument(
                    f"input {self.spec.name!r} has shape {list(array.shape)}, expected {shape_text(dims)}:"
                    f" axis {axis} is {extent} instead of {dim}"
                )


def shape_text(dims: Sequence[int | str | None]) -> str:
    """A declared shape, free extents by their symbol."""
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def row_major(array: Array) -> Array:
    """The array in native byte order and row-major layout, itself when it is so already; the rank is kept."""
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        return array
    dtype = array.dtype if array.dtype.hasobject else array.dtype.newbyteorder("=")
    return np.array(array, dtype=dtype, order="C")
