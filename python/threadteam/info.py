"""What this installation is and what it found on this machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
from typing import Any

from threadteam import calibrated, openmp
from threadteam._native import DispatchCosts, HostClass
from threadteam.cpus import cpu_budget

__all__ = ["describe"]

#: The module that shows whether an extra is installed.
_EXTRAS = {"onnx": "onnx", "plot": "matplotlib", "cli": "typer"}


def describe() -> dict[str, Any]:
    """The versions, the CPU budget with its reason, dispatch costs, extras, and the OpenMP runtime of comparisons.

    Examples
    --------
    >>> from threadteam.info import describe
    >>> sorted(describe())
    ['cpu_budget', 'dispatch_costs', 'extras', 'openmp', 'python', 'system', 'threadteam']
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
        "dispatch_costs": _dispatch_costs(),
        "extras": {extra: importlib.util.find_spec(module) is not None for extra, module in _EXTRAS.items()},
        "openmp": openmp.find(),
    }


def _dispatch_costs() -> dict[str, Any]:
    """The costs that pools charge here, and where they come from."""
    kept = calibrated.kept()
    host_class = HostClass.detect()
    costs = kept.costs or DispatchCosts.for_class(host_class)
    return {
        "calibrated": kept.costs is not None,
        "file": None if kept.file is None else str(kept.file),
        "problem": kept.problem or None,
        "host_class": host_class.name,
        "cpu": calibrated.cpu_model(),
        "costs": {name: costs.row(kind).anchors for name, kind in calibrated.KINDS.items()},
    }
