"""threadteam: a session on a pool of its own."""

from __future__ import annotations

import importlib.metadata
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from threadteam.compare.case import Case
from threadteam.compare.systems.base import Decomposition, Loaded, System, Unavailable
from threadteam.errors import MissingExtra
from threadteam.timeline import Event, Timeline

__all__ = ["Session", "Threadteam"]

#: Events per participant that the trace of a decomposition holds.
_EVENTS = 1 << 17


class Session(System):
    """Our session and kernels, whatever dispatches their sections: what `threadteam` and `openmp` share."""

    @abstractmethod
    def place(self, trace: Any = None) -> tuple[Any, Callable[[], None]]:
        """What a session is given as `on=`, recording into `trace`, and what closes it."""

    def load(self, case: Case) -> Loaded:
        """A session on its own `place`."""
        on, close = self.place()
        return self._load(case, on, close)

    def decompose(self, case: Case, runs: int) -> Decomposition | None:
        """Where the time goes, by the dispatches, shares and barriers of traced runs."""
        from threadteam import _native

        trace = _native.Trace(self.threads, _EVENTS)
        on, close = self.place(trace)
        loaded = self._load(case, on, close)
        for _ in range(runs):
            loaded.run()
        loaded.close()
        timeline = Timeline((Event(*event) for event in trace.events()), trace.labels(), self.threads)
        typical = timeline.typical_runs()
        parts, counted = timeline.parts(typical), max(1, len(typical))
        return Decomposition(
            operators={label: seconds / counted for label, seconds in parts.operators.items()},
            dispatch=parts.dispatch / counted,
            barrier=parts.barrier / counted,
            idle_share=parts.idle_share,
            sections=parts.sections / counted,
        )

    def _load(self, case: Case, on: Any, close: Callable[[], None]) -> Loaded:
        try:
            from threadteam.onnx import InferenceSession
        except MissingExtra as error:
            raise Unavailable(str(error)) from None
        session = InferenceSession(case.model, on=on)
        inputs = dict(case.inputs)

        def close_both() -> None:
            session.close()
            close()

        return Loaded(run=lambda: session.run(None, inputs), close=close_both)


class Threadteam(Session):
    """Our own workers."""

    name: ClassVar[str] = "threadteam"

    def version(self) -> str:
        """The package's version."""
        return f"threadteam {importlib.metadata.version('threadteam')}"

    def place(self, trace: Any = None) -> tuple[Any, Callable[[], None]]:
        """A pool of `threads` participants."""
        from threadteam import Pool

        pool = Pool(self.threads)
        if trace is not None:
            pool._set_trace(trace)
        return pool, pool.close
