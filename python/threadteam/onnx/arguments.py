"""What a session is given when it is made: checked, and applied to the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from threadteam._native import MOST_THREADS
from threadteam.errors import InvalidArgument

from .graph import Graph, ValueSpec
from .inputs import row_major
from .options import SessionOptions

__all__ = ["checked_options", "fix_dimensions", "replace_initializers"]


def checked_options(options: Any) -> SessionOptions:
    """The options, of which every one that is read has a value it can have."""
    if options is None:
        return SessionOptions()
    if not isinstance(options, SessionOptions):
        raise InvalidArgument(
            f"sess_options is a threadteam.onnx.SessionOptions, got {type(options).__module__}.{type(options).__name__}"
        )
    width = options.intra_op_num_threads
    if not isinstance(width, int) or not 0 <= width <= MOST_THREADS:
        raise InvalidArgument(
            f"intra_op_num_threads is {width!r}; expected 0 (the CPU budget) or a width from 1 to {MOST_THREADS}"
        )
    kept = options.plan_cache_size
    if not isinstance(kept, int) or kept < 1:
        raise InvalidArgument(f"plan_cache_size is {kept!r}; expected a number of plans from 1 on")
    return options


def replace_initializers(graph: Graph, replacements: Mapping[str, Any]) -> None:
    """Use the caller's arrays as constants."""
    for name, value in replacements.items():
        if name not in graph.constants:
            raise InvalidArgument(f"the model has no initializer {name!r} to replace")
        array = row_major(np.asarray(value.numpy() if hasattr(value, "numpy") else value))
        old = graph.constants[name]
        if array.dtype != old.dtype or array.shape != old.shape:
            raise InvalidArgument(
                f"initializer {name!r} is {old.dtype}{list(old.shape)}, given {array.dtype}{list(array.shape)}"
            )
        graph.constants[name] = array.view()


def fix_dimensions(graph: Graph, by_name: Mapping[str, int], by_denotation: Mapping[str, int]) -> None:
    """Fix dimensions of the inputs that have no extent, by their symbol or by what the model says they denote."""
    declared = {value.name: value.type.tensor_type.shape.dim for value in graph.model.graph.input}

    def fixed(spec: ValueSpec) -> ValueSpec:
        if spec.dims is None:
            return spec
        dims = list(spec.dims)
        for axis, (dim, proto) in enumerate(zip(spec.dims, declared.get(spec.name, ()), strict=False)):
            denoted = by_denotation.get(proto.denotation)
            if not isinstance(dim, int):
                dims[axis] = by_name.get(dim or "", dim if denoted is None else denoted)
            elif denoted not in (None, dim):
                raise InvalidArgument(
                    f"input {spec.name!r} has {dim} for {proto.denotation!r}, which the options fix to {denoted}"
                )
        return ValueSpec(spec.name, spec.type, spec.dtype, tuple(dims))

    graph.inputs = tuple(map(fixed, graph.inputs))
