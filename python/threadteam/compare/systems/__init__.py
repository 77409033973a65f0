"""The execution systems of the comparison, by name in the order of its tables."""

from __future__ import annotations

import importlib

from threadteam.compare.systems.base import Decomposition, Loaded, System, Unavailable

__all__ = ["SYSTEMS", "Decomposition", "Loaded", "System", "Unavailable", "system"]

#: Where each system is defined. The modules are imported by name, so that a process holds only its own system.
SYSTEMS = {
    "threadteam": "threadteam.compare.systems.threadteam:Threadteam",
    "openmp": "threadteam.compare.systems.openmp:OpenMp",
    "onnxruntime": "threadteam.compare.systems.onnxruntime:OnnxRuntime",
    "numpy": "threadteam.compare.systems.numpy:NumPy",
}


def system(name: str) -> type[System]:
    """The class of the system called `name`.

    Raises
    ------
    ValueError
        When there is none.

    Examples
    --------
    >>> system("numpy").name
    'numpy'
    """
    if name not in SYSTEMS:
        raise ValueError(f"no execution system is named {name!r}; there are {', '.join(SYSTEMS)}")
    module, _, attribute = SYSTEMS[name].partition(":")
    found: type[System] = getattr(importlib.import_module(module), attribute)
    return found
