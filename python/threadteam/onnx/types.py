"""Element types: ONNX numbers, NumPy dtypes, and the strings that ONNX Runtime uses for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._extra import helper, onnx
from .values import Array

__all__ = ["dtype_of", "elem_type_of", "native_dtype", "storage_dtype", "type_string"]

_NAMES = {"FLOAT": "float", "DOUBLE": "double"}

_STORAGE: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype("float16"): np.dtype("uint16"),
    np.dtype("complex64"): np.dtype("uint64"),
}
_NATIVE = frozenset(
    np.dtype(name)
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
)


def dtype_of(elem_type: int) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX element type; strings are `object`.

    Examples
    --------
    >>> dtype_of(1)
    dtype('float32')
    """
    if elem_type == onnx.TensorProto.STRING:
        return np.dtype(object)
    found: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    return found


def elem_type_of(dtype: np.dtype[Any]) -> int:
    """The ONNX element type of a NumPy dtype."""
    if dtype.kind in "OUST":
        return int(onnx.TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(dtype.newbyteorder("=")))


def native_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether the kernels know `dtype` under its own name."""
    return dtype in _NATIVE


def storage_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype under which the kernels move elements of `dtype`, or None when they cannot.

    Examples
    --------
    >>> storage_dtype(np.dtype("float16"))
    dtype('uint16')
    """
    if dtype in _NATIVE:
        return dtype
    if dtype in _STORAGE:
        return _STORAGE[dtype]
    if dtype.kind == "V" and dtype.itemsize in (1, 2):
        return np.dtype(f"uint{8 * dtype.itemsize}")
    return None


def tensor_type_name(elem_type: int) -> str:
    """The name that ONNX Runtime gives an element type, such as `float` or `int64`."""
    name: str = onnx.TensorProto.DataType.Name(elem_type)
    return _NAMES.get(name, name.lower())


def array_type_string(array: Array) -> str:
    """The type string of an array, such as `tensor(float)`; the NumPy name when ONNX has no such type."""
    try:
        return f"tensor({tensor_type_name(elem_type_of(array.dtype))})"
    except (KeyError, ValueError, TypeError):
        return f"array({array.dtype})"


def type_string(proto: Any) -> str:
    """The type string of a `TypeProto`, as ONNX Runtime writes it.

    Examples
    --------
    >>> type_string(helper.make_tensor_type_proto(1, [2]))
    'tensor(float)'
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return f"tensor({tensor_type_name(proto.tensor_type.elem_type)})"
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({tensor_type_name(proto.sparse_tensor_type.elem_type)})"
    if kind == "sequence_type":
        return f"seq({type_string(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_string(proto.optional_type.elem_type)})"
    if kind == "map_type":
        key = tensor_type_name(proto.map_type.key_type)
        return f"map({key},{type_string(proto.map_type.value_type)})"
    return "unknown"
