"""A Python script run under a trace, for the command line."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _threadteam_command import INTERRUPTED

from threadteam.errors import MissingExtra
from threadteam.tracing import trace

__all__ = ["trace_script"]


def trace_script(script: Path, arguments: Sequence[str], output: Path) -> dict[str, Any]:
    """Run `script` as ``__main__`` and write what its pools did.

    Parameters
    ----------
    script : Path
        The script.
    arguments : sequence of str
        Its arguments, as it finds them in ``sys.argv``.
    output : Path
        The Perfetto JSON; the pictures take its name with ``.png`` and ``.svg`` when matplotlib is installed.

    Returns
    -------
    dict
        ``status`` (the script's exit status, 130 after Ctrl-C), ``error`` (one line about what it raised, or None),
        ``events``, ``overwritten``, ``parts`` (seconds by operator, in dispatch and in barriers, idle share), ``text``
        (the timeline) and ``written`` (the files).
    """
    if not script.is_file():
        raise FileNotFoundError(f"no script at {script}")
    status, error = 0, None
    with _as_main(script, arguments), trace() as recorded:
        try:
            runpy.run_path(str(script), run_name="__main__")
        except KeyboardInterrupt:  # how a server ends: what it did until then is what was asked for
            status = INTERRUPTED
        except SystemExit as ended:
            status, error = _exit_status(ended)
        except Exception as raised:
            status, error = 1, _where(raised, script)
    timeline = recorded.timeline()
    recorded.save(output)
    written = [str(output)]
    pictures = [output.with_suffix(suffix) for suffix in (".png", ".svg")]
    if timeline.intervals:
        try:
            timeline.draw(*pictures, title=script.name)
            written += map(str, pictures)
        except MissingExtra as missing:
            print(f"threadteam: no picture: {missing}", file=sys.stderr)
    parts = timeline.parts()
    return {
        "status": status,
        "error": error,
        "events": len(timeline.events),
        "overwritten": recorded.overwritten,
        "parts": {
            "operators": parts.operators,
            "dispatch": parts.dispatch,
            "barrier": parts.barrier,
            "idle_share": parts.idle_share,
            "sections": parts.sections,
        },
        "text": str(timeline),
        "written": written,
    }


@contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """The arguments and the import path that `python SCRIPT ARGUMENTS` would have."""
    argv, path = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *arguments], [str(script.resolve().parent), *path]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path


def _exit_status(ended: SystemExit) -> tuple[int, str | None]:
    """What `sys.exit(code)` means: nothing, a status, or a message."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0, None
    return 1, str(ended.code)


def _where(raised: Exception, script: Path) -> str:
    """The exception in one line, with the script's own line that led to it."""
    frames = [frame for frame in traceback.extract_tb(raised.__traceback__) if _same_file(frame.filename, script)]
    place = f"{script}, line {frames[-1].lineno}" if frames else str(script)
    return f"{place}: {type(raised).__name__}: {raised}"


def _same_file(name: str, script: Path) -> bool:
    return os.path.realpath(name) == os.path.realpath(script)
