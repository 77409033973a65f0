"""What a fork waits for: its child would wait for ever for the end of what a thread of the parent was doing."""

from __future__ import annotations

import importlib
import os
import threading
from types import ModuleType

lock = threading.RLock()
"""Held by a thread that imports a part of the package or changes another library's width, and by one that forks."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def load(name: str) -> ModuleType:
    """Import a module at first use, in no thread's fork."""
    with lock:
        return importlib.import_module(name)
