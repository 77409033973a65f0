"""oneTBB, whose width is the least of the limits that anybody in the process has set."""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["Tbb", "loaded"]

#: The library's file by platform. The version in it stands for the form of what follows.
_FILES = {"linux": "libtbb.so.12", "darwin": "libtbb.12.dylib"}
_MAX_ALLOWED_PARALLELISM = 0


class _Control(ctypes.Structure):
    """A `tbb::global_control`: a limit from its `create` to its `destroy`."""

    _fields_ = (("value", ctypes.c_size_t), ("reserved", ctypes.c_ssize_t), ("parameter", ctypes.c_int))


class Tbb:
    """The loaded library, with at most one limit of this package's."""

    def __init__(self, library: ctypes.CDLL) -> None:
        # The C++ functions by the names that the linker knows: tbb::detail::r1::...
        self._active_value = library["_ZN3tbb6detail2r127global_control_active_valueEi"]
        self._active_value.restype = ctypes.c_size_t
        self._create = library["_ZN3tbb6detail2r16createERNS0_2d114global_controlE"]
        self._destroy = library["_ZN3tbb6detail2r17destroyERNS0_2d114global_controlE"]
        self._control: _Control | None = None
        self._unlimited = 0

    def width(self) -> int:
        """The threads that an arena may have, the caller included."""
        return int(self._active_value(_MAX_ALLOWED_PARALLELISM))

    def limit(self, width: int) -> None:
        """Replace this package's limit; one that changes nothing is none."""
        earlier = self._control
        if earlier is None:
            self._unlimited = self.width()
        self._control = None
        if width < self._unlimited:
            self._control = _Control(width, 0, _MAX_ALLOWED_PARALLELISM)
            self._create(ctypes.byref(self._control))
        if earlier is not None:
            self._destroy(ctypes.byref(earlier))


_found: list[Tbb] = []


def loaded() -> Tbb | None:
    """The library if somebody has loaded it; looking does not load it."""
    if not _found and sys.platform in _FILES:
        try:
            library = ctypes.CDLL(_FILES[sys.platform], mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            _found.append(Tbb(library))
        except (OSError, AttributeError):  # not loaded, or of another make
            return None
    return _found[0] if _found else None
