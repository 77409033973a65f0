"""What ONNX Runtime's module says of the process, and what it lets one set there."""

from __future__ import annotations

from .arguments import PROVIDER

__all__ = [
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]


def get_available_providers() -> list[str]:
    """The one provider there is, under ONNX Runtime's name.

    Examples
    --------
    >>> get_available_providers()
    ['CPUExecutionProvider']
    """
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """The one provider there is: no other was left out of this build."""
    return [PROVIDER]


def get_device() -> str:
    """The device that models run on, under ONNX Runtime's name."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Accepted: nothing is logged, at any severity."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: nothing is logged, however verbosely."""


def disable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""


def enable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""
