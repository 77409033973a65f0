"""What ONNX Runtime's module says of the process, and what it lets one set there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from threadteam import __version__
from threadteam.errors import InvalidArgument

__all__ = [
    "PROVIDER",
    "check_providers",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]

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


def get_version_string() -> str:
    """The version of threadteam.

    Examples
    --------
    >>> import threadteam as tt
    >>> get_version_string() == tt.__version__
    True
    """
    return __version__
