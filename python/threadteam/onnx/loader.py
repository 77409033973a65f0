"""From a path, bytes or a `ModelProto` to a checked `Graph`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from threadteam.errors import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, OnnxError

from ._extra import numpy_helper, onnx
from .graph import Graph, build_graph
from .options import External
from .reference import check_operators
from .types import dtype_of

__all__ = ["load_graph", "load_model"]

_CHECKER_LIMIT = 1 << 30
"""Models above this size are not given to the checker of `onnx`, which serializes them and stops at 2 GiB."""


def load_graph(source: Any, external: External | None = None) -> Graph:
    """Read, check and order a model.

    Parameters
    ----------
    source : path, bytes or ModelProto
        The model.
    external : External, optional
        What stands for files beside it.

    Raises
    ------
    NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented, InvalidArgument, Fail
        With one sentence that names the file, node or value.
    """
    model = load_model(source, external or External())
    try:
        graph = build_graph(model)
    except OnnxError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        # A protobuf message holds anything: names that are no text, types that no version of ONNX knows.
        raise InvalidGraph(f"the model holds fields that do not fit together, so it is damaged: {error}") from error
    check_operators(graph)
    check_rules(graph)
    # The arrays of the graph hold the constants from here on.
    del model.graph.initializer[:]
    del model.graph.sparse_initializer[:]
    return graph


def load_model(source: Any, external: External) -> Any:
    """The `ModelProto` of `source` with its external data loaded and its local functions inlined."""
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        try:
            model.CopyFrom(source)
        except RecursionError as error:  # protobuf without its C part copies by recursion
            raise InvalidProtobuf("the given ModelProto has bodies nested more deeply than protobuf copies") from error
        base, origin = "", "the given ModelProto"
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model, base, origin = parse(bytes(source), "the given bytes"), "", "the given bytes"
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        origin = repr(str(path))
        model, base = parse(read_file(path), origin), str(path.parent)
    else:
        raise InvalidArgument(
            f"a model is given by a path, bytes or an onnx.ModelProto, not by an object of type {type(source).__name__}"
        )
    check_frame(model, origin)
    replace_external(model, external.arrays)
    load_external_data(model, base, origin, external.files)
    return inline_functions(model)


def read_file(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NoSuchFile(f"model file {str(path)!r} does not exist") from error
    except IsADirectoryError as error:
        raise NoSuchFile(f"{str(path)!r} is a directory, not a model file") from error
    except OSError as error:
        raise NoSuchFile(f"model file {str(path)!r} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a path with a null byte
        raise NoSuchFile(f"model file {str(path)!r} cannot be read: {error}") from error


def parse(data: bytes, origin: str) -> Any:
    """Decode a serialized model."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf implementations differ in their DecodeError
        raise InvalidProtobuf(
            f"{origin}: {len(data)} bytes that are not an ONNX model, or a truncated one: {first_line(error)}"
        ) from error
    return model


def check_frame(model: Any, origin: str) -> None:
    """Refuse a message without the fields that every model has; unrelated bytes can parse as an empty message."""
    if not model.HasField("graph") or model.ir_version <= 0:
        raise InvalidProtobuf(f"{origin} is not an ONNX model: it has no graph or no IR version")
    if model.ir_version >= 3 and not model.opset_import:
        raise InvalidProtobuf(f"{origin} imports no operator set: it is truncated or not an ONNX model")
    if not model.opset_import:
        model.opset_import.add(domain="", version=1)


def replace_external(model: Any, arrays: Mapping[str, Any]) -> None:
    """Use the caller's arrays for initializers that are stored in files beside the model."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, given in arrays.items():
        tensor = stored.get(name)
        if tensor is None:
            raise Fail(f"the model has no initializer {name!r} to replace")
        if not onnx.external_data_helper.uses_external_data(tensor):
            raise Fail(f"initializer {name!r} is stored in the model; only those in files beside it are replaced")
        array = np.asarray(given.numpy() if hasattr(given, "numpy") else given)
        expected = dtype_of(tensor.data_type)
        if array.dtype != expected or list(array.shape) != list(tensor.dims):
            raise Fail(f"initializer {name!r} is {expected}{list(tensor.dims)}, given {array.dtype}{list(array.shape)}")
        tensor.CopyFrom(numpy_helper.from_array(array, name))


def load_external_data(model: Any, base: str, origin: str, files: Mapping[str, bytes]) -> None:
    """Read the tensors that are stored in files beside the model, or in what stands for them."""
    helper = onnx.external_data_helper
    for tensor in helper._get_all_tensors(model):
        if not helper.uses_external_data(tensor):
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        try:
            if location in files:
                tensor.raw_data = part_of(files[location], tensor)
            else:
                helper.load_external_data_for_tensor(tensor, base)
        except Exception as error:  # the package raises ValidationError, OSError or ValueError
            message = f"external data of {tensor.name!r} in {origin}: file {location!r}"
            if location not in files and not os.path.exists(os.path.join(base, location)):
                raise NoSuchFile(f"{message} does not exist in {base or os.getcwd()!r}") from error
            raise InvalidGraph(f"{message} cannot be used: {first_line(error)}") from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def part_of(contents: bytes, tensor: Any) -> bytes:
    """The bytes of a tensor in a file's contents.

    Raises
    ------
    ValueError
        The file has fewer.
    """
    place = {entry.key: entry.value for entry in tensor.external_data}
    offset = int(place.get("offset", 0))
    length = int(place.get("length", len(contents) - offset))
    if offset < 0 or length < 0 or offset + length > len(contents):
        raise ValueError(f"{length} bytes from {offset} on are not in the {len(contents)} bytes that stand for it")
    return contents[offset : offset + length]


def inline_functions(model: Any) -> Any:
    """Replace calls of the model's own functions by their bodies, where the package can; else keep them."""
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except Exception:  # a body that cannot be inlined is called as a function instead
        return model


def check_rules(graph: Graph) -> None:
    """What the checker of `onnx` knows: attributes, types and structure of every node."""
    try:
        ordered = reordered(graph)
        if ordered.ByteSize() <= _CHECKER_LIMIT:
            onnx.checker.check_model(ordered)
    except Exception as error:  # what the checker finds, and bodies nested deeper than protobuf reads
        raise InvalidGraph(f"the model breaks a rule of ONNX: {first_line(error)}") from error


def reordered(graph: Graph) -> Any:
    """The model with its nodes in the order in which they run."""
    ordered = onnx.ModelProto()
    ordered.CopyFrom(graph.model)
    del ordered.graph.node[:]
    ordered.graph.node.extend(node.proto for node in graph.nodes)
    for value in (*ordered.graph.input, *ordered.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()  # exporters leave it out, which the checker alone minds
    return ordered


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
