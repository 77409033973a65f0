"""Limiting other libraries to a token's budget, and restoring them whatever the order in which scopes end."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from threadteam import _forks
from threadteam.interop import tbb

T = TypeVar("T")


class Width(int):
    """The width that a scope of `Exec.external` hands out: an int that knows what is held to it.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Exec.serial().external() as width:
    ...     int(width)
    1
    """

    limited: tuple[str, ...] = ()
    """The libraries that are limited to this width."""
    unlimited: tuple[str, ...] = ()
    """The loaded libraries that are not, each with the reason."""


@dataclass
class _Setting:
    """One number of threads that some library reads: who may use how many now, and what it was before."""

    original: int
    write: Callable[[int], object]
    active: dict[int, int] = field(default_factory=dict)

    def apply(self) -> None:
        # A cap: what the user set lower stays, and of several scopes at once the narrowest holds.
        self.write(min([self.original, *self.active.values()]))


@dataclass(frozen=True)
class _Library:
    """How to read and write one library's setting."""

    key: tuple[str, ...]
    name: str
    per_thread: bool
    read: Callable[[], int]
    write: Callable[[int], object]


# The collector may end a forgotten limit at any moment, in the middle of a change by the same thread too: such a limit
# waits in the queue until the change is complete.
_changes: list[str] = []
_ended: deque[Limit] = deque()
_settings: dict[tuple[object, ...], _Setting] = {}
_controllers: dict[int, Any] = {}


def controller() -> Any | None:
    """Return threadpoolctl's view of the loaded libraries, or None when it is not installed.

    Finding them reads the list of all shared objects, so the view is kept until another module is imported.
    """
    with _forks.lock:
        loaded = len(sys.modules)
        if loaded not in _controllers:
            try:
                threadpoolctl = _forks.load("threadpoolctl")
            except ImportError:
                return None
            _controllers.clear()
            _controllers[loaded] = threadpoolctl.ThreadpoolController()
        return _controllers[loaded]


@contextmanager
def _change() -> Iterator[None]:
    """Change the settings alone; the limits that ended meanwhile are taken away afterwards."""
    with _forks.lock:
        _changes.append("begin")
        try:
            yield
        finally:
            _changes.pop()
            _restore_ended()


def _restore_ended() -> None:
    """Take ended limits away, under the lock."""
    while _ended and not _changes:
        _changes.append("end")
        try:
            _ended.popleft()._restore()
        finally:
            _changes.pop()


class Limit:
    """A limit on all libraries that can be limited, until `close`."""

    def __init__(self, width: int) -> None:
        thread = threading.get_ident()
        self._held: list[tuple[object, ...]] = []
        names = []
        with _change():
            for library in _libraries():
                # What a library keeps per thread is a setting of its own on each.
                key = (*library.key, thread if library.per_thread else None)
                setting = _settings.get(key)
                if setting is None:
                    setting = _settings[key] = _Setting(library.read(), library.write)
                setting.active[id(self)] = width
                setting.apply()
                self._held.append(key)
                names.append(library.name)
            unlimited = tuple(_unlimited())
        self.width = Width(width)
        self.width.limited = tuple(names)
        self.width.unlimited = unlimited

    def close(self) -> None:
        """End the limit; libraries go back to the limits that are left, or to what they were."""
        _ended.append(self)
        with _forks.lock:
            _restore_ended()

    def _restore(self) -> None:
        for key in self._held:
            setting = _settings[key]
            del setting.active[id(self)]
            setting.apply()
            if not setting.active:
                del _settings[key]
        self._held = []

    def __enter__(self) -> Width:
        return self.width

    def __exit__(self, *_: object) -> None:
        self.close()


def call_limited(function: Callable[[Width], T], width: int) -> T:
    """Call `function(width)` while the other libraries are limited to `width`."""
    with Limit(width) as handed:
        return function(handed)


def _libraries() -> Iterator[_Library]:
    found = controller()
    for library in found.lib_controllers if found is not None else ():
        name = str(library.prefix or library.internal_api)
        per_thread = library.user_api == "openmp"
        yield _Library(("lib", library.filepath), name, per_thread, library.get_num_threads, library.set_num_threads)
    found_tbb = tbb.loaded()
    if found_tbb is not None:
        yield _Library(("tbb",), "TBB", False, found_tbb.width, found_tbb.limit)
    numba: Any = sys.modules.get("numba")
    if numba is not None:
        yield _Library(("numba",), "numba", True, numba.get_num_threads, numba.set_num_threads)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        yield _Library(("torch",), "torch", False, torch.get_num_threads, torch.set_num_threads)


def _unlimited() -> Iterator[str]:
    if controller() is None:
        yield "BLAS and OpenMP libraries: threadpoolctl is not installed"
    if "onnxruntime" in sys.modules:
        yield "ONNX Runtime: a session's width is fixed when it is made"
