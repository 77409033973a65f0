"""How operators become kernel steps: one module for each family, found through a registry."""

from __future__ import annotations

from .context import Context, NeedsValue, Unsupported, is_lowered, lower, lowers

__all__ = ["Context", "NeedsValue", "Unsupported", "is_lowered", "lower", "lowers"]

from . import (  # noqa: F401  # isort: skip - each module registers its operators
    activation,
    arithmetic,
    conv,
    creation,
    indexing,
    joining,
    logic,
    matmul,
    normalization,
    pooling,
    reduction,
    reshaping,
    types,
)
