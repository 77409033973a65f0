"""ONNX models on a share of one thread pool, with the surface of ONNX Runtime.

Needs the `onnx` package: `pip install 'threadteam[onnx]'`.
"""

from __future__ import annotations

from threadteam import __version__
from threadteam.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,  # noqa: A004 - the name in ONNX Runtime
    OnnxError,
    RunTerminated,
    RuntimeException,
)

from .binding import IOBinding, OrtValue
from .device import OrtDevice
from .environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_device,
    get_version_string,
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
from .randomness import set_seed
from .registry import ExecutorInfo, Policy, Registry, registry
from .session import InferenceSession
from .table import Plan

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
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
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OnnxError",
    "OrtDevice",
    "OrtValue",
    "Plan",
    "Policy",
    "Registry",
    "RunOptions",
    "RunTerminated",
    "RuntimeException",
    "SessionOptions",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "registry",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]
