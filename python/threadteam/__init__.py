"""One explicit token for a share of one thread pool, for a whole CPU numeric stack.

Importing the package starts no thread, reads no file below ``/sys`` and changes no other library.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from threadteam import _forks
from threadteam._native import (
    PAYS,
    DispatchCosts,
    DispatchKind,
    Exec,
    HostClass,
    Participant,
    Pool,
    PoolStats,
    Team,
    TeamExec,
    WaitOverride,
    WaitPolicy,
    WidthCosts,
    __version__,
    pays_at,
    width_for_by,
)
from threadteam.cpus import Cache, CpuBudget, Topology, cpu_budget, topology
from threadteam.errors import (
    CalibrationError,
    Cancelled,
    InternalError,
    IntoTeamError,
    MissingExtra,
    PoolClosed,
    Refused,
    RefusedReason,
    SplitError,
    ThreadStartError,
    ThreadteamError,
    TokenBusy,
    TokenError,
    TokenExpired,
    TokenLent,
)
from threadteam.native import NativeBody, get_include, native
from threadteam.tracing import Trace, trace

if TYPE_CHECKING:
    from threadteam import interop, testing
    from threadteam import onnx as onnx  # not in __all__: `import *` needs no extra

__all__ = [
    "PAYS",
    "Cache",
    "CalibrationError",
    "Cancelled",
    "CpuBudget",
    "DispatchCosts",
    "DispatchKind",
    "Exec",
    "HostClass",
    "InternalError",
    "IntoTeamError",
    "MissingExtra",
    "NativeBody",
    "Participant",
    "Pool",
    "PoolClosed",
    "PoolStats",
    "Refused",
    "RefusedReason",
    "SplitError",
    "Team",
    "TeamExec",
    "ThreadStartError",
    "ThreadteamError",
    "TokenBusy",
    "TokenError",
    "TokenExpired",
    "TokenLent",
    "Topology",
    "Trace",
    "WaitOverride",
    "WaitPolicy",
    "WidthCosts",
    "__version__",
    "cpu_budget",
    "get_include",
    "interop",
    "native",
    "pays_at",
    "testing",
    "topology",
    "trace",
    "width_for_by",
]

_LAZY = {"interop", "onnx", "testing"}
"""Front ends that are imported at first use: some need an extra, and none should slow the import of the rest."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return _forks.load(f"threadteam.{name}")
    raise AttributeError(f"module 'threadteam' has no attribute {name!r}")


def __dir__() -> list[str]:
    # Who looks at every name, as `help` does, would meet the error of the missing extra.
    installed = all(map(importlib.util.find_spec, ("onnx", "ml_dtypes")))
    return sorted({*globals(), *_LAZY} - (set() if installed else {"onnx"}))
