"""What a session is given when it is made: checked, and applied to the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from threadteam.cpus import MOST_THREADS
from threadteam.errors import InvalidArgument

from .graph import Graph, ValueSpec
from .inputs import row_major
from .options import SessionOptions

__all__ = ["PROVIDER", "check_providers", "checked_options", "fix_dimensions", "replace_initializers"]

PROVIDER = "CPUExecutionProvider"
"""The only execution provider."""


def check_providers(providers: Any) -> None:
    """Refuse a list of providers without the CPU."""
    if providers is None:
        return
    if isinstance(providers, (str, bytes)) or not isinstance(providers, Sequence):
        raise InvalidArgument(f"providers is a list such as [{PROVIDER!r}], got {providers!r}")
    names = [item[0] if isinstance(item, tuple) and item else item for item in providers or [PROVIDER]]
    if PROVIDER not in names:
        raise InvalidArgument(f"providers {names} are not available; this package runs on {PROVIDER!r}")


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


def fix_dimensions(graph: Graph, extents: Mapping[str, int]) -> None:
    """Fix symbolic dimensions of the inputs."""

    def fixed(spec: ValueSpec) -> ValueSpec:
        if spec.dims is None:
            return spec
        dims = tuple(extents.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.dims)
        return ValueSpec(spec.name, spec.type, spec.dtype, dims)

    graph.inputs = tuple(map(fixed, graph.inputs))
