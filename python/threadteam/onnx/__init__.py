"""ONNX models on a share of one thread pool, with the surface of ONNX Runtime.

Needs the `onnx` package: `pip install 'threadteam[onnx]'`.
"""

from __future__ import annotations

from threadteam.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,  # noqa: A004 - the name in ONNX Runtime
    OnnxError,
    RunTerminated,
    RuntimeException,
)

from .binding import IOBinding, OrtValue
from .environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_device,
    set_default_logger_severity,
    set_default_logger_verbosity,
)
from .options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    ModelMetadata,
    NodeArg,
    RunOptions,
    SessionOptions,
)
from .registry import ExecutorInfo, Policy, Registry, registry
from .session import InferenceSession
from .table import Plan

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "ExecutorInfo",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelMetadata",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OnnxError",
    "OrtValue",
    "Plan",
    "Policy",
    "Registry",
    "RunOptions",
    "RunTerminated",
    "RuntimeException",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "registry",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]
