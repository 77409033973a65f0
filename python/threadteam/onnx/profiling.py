"""The record of every step of a session's runs, written in the trace format of ONNX Runtime's profiles."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from threadteam.outputs import writing

from .stage import Stage

__all__ = ["Profile"]


class Profile:
    """Collects steps and writes them as a JSON trace that Perfetto and Chrome read.

    Attributes
    ----------
    start_ns : int
        When it began, as `time.monotonic_ns` counts.
    """

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._start = time.perf_counter()
        self.start_ns = time.monotonic_ns()

    def add(self, stage: Stage) -> None:
        """Record the run that the stage's program has just ended on this thread."""
        program: Any = stage.program
        seconds = program.profile()
        end = time.perf_counter() - self._start
        begin = end - sum(seconds)
        with self._lock:
            for step, duration in zip(stage.description.drafted, seconds, strict=False):
                self._events.append(
                    {
                        "cat": "Node",
                        "name": step.label,
                        "ph": "X",
                        "ts": round(begin * 1e6, 3),
                        "dur": round(duration * 1e6, 3),
                        "pid": os.getpid(),
                        "tid": threading.get_ident(),
                        "args": {"kind": step.kind, "flops": step.flops},
                    }
                )
                begin += duration

    def write(self, prefix: str) -> str:
        """Write what was recorded since the last file into a new one, and return its name.

        A file that cannot be written loses nothing: the next one has the same steps.
        """
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        path = f"{prefix}{stamp}.json"
        with self._writing:
            with self._lock:
                events = self._events.copy()
            with writing(path):
                Path(path).write_text(json.dumps(events), encoding="utf-8")
            with self._lock:
                del self._events[: len(events)]
        return path
