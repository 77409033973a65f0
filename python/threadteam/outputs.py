"""Files that commands and traces write: refused before a long run, and named when a disk is full after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["check_file", "make_folder", "writing"]


def check_file(path: Path) -> None:
    """Refuse a file that could not be written at the end of a run that may take minutes.

    Raises
    ------
    ValueError
        Names the file, the reason and what to do.

    Examples
    --------
    >>> check_file(Path("no/such/folder/trace.json"))
    Traceback (most recent call last):
        ...
    ValueError: cannot write 'no/such/folder/trace.json': its folder does not exist; make it, or name another file
    """
    if path.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: its folder does not exist; make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"cannot write {str(path)!r}: the system does not permit it; name another file")


def make_folder(path: Path) -> None:
    """Make a folder with its parents, if it is missing, and refuse one in which no file can be made.

    Raises
    ------
    ValueError
        Names the folder, the reason and what to do.
    """
    if path.exists() and not path.is_dir():
        raise ValueError(f"cannot write into {str(path)!r}: it is a file; name a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {str(path)!r}: {error.strerror}; name another one") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write into {str(path)!r}: the system does not permit it; name another folder")


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name `path` in the error of a write that fails in the block, and leave no half of a file.

    A full disk fails a write, not the opening, and such an error knows no file.

    Examples
    --------
    >>> with writing("trace.json"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
        ...
    OSError: [Errno 28] No space left on device: 'trace.json'
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
            with suppress(OSError):
                if os.path.isfile(path):  # never a device or a pipe
                    os.unlink(path)
        raise
