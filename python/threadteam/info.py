"""What this installation is and what it found on this machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
from typing import Any

from threadteam import openmp
from threadteam.cpus import cpu_budget

__all__ = ["describe"]

#: The module that shows whether an extra is installed.
_EXTRAS = {"onnx": "onnx", "plot": "matplotlib", "cli": "typer"}


def describe() -> dict[str, Any]:
    """The versions, the CPU budget with its reason, the extras, and the OpenMP runtime that a comparison would use.

    Examples
    --------
    >>> from threadteam.info import describe
    >>> sorted(describe())
    ['cpu_budget', 'extras', 'openmp', 'python', 'system', 'threadteam']
    """
    budget = cpu_budget()
    return {
        "threadteam": importlib.metadata.version("threadteam"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "cpu_budget": {
            "count": budget.count,
            "source": budget.source,
            "affinity": sorted(budget.affinity),
            "quota": budget.quota,
            "physical": budget.physical,
            "domains": [sorted(domain) for domain in budget.domains],
            "explained": str(budget),
        },
        "extras": {extra: importlib.util.find_spec(module) is not None for extra, module in _EXTRAS.items()},
        "openmp": openmp.find(),
    }
