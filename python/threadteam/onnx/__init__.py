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
    "get_available_providers",
    "get_device",
    "registry",
]


def get_available_providers() -> list[str]:
    """The one provider there is, under ONNX Runtime's name.

    Examples
    --------
    >>> get_available_providers()
    ['CPUExecutionProvider']
    """
    return ["CPUExecutionProvider"]


def get_device() -> str:
    """The device that models run on, under ONNX Runtime's name."""
    return "CPU"
