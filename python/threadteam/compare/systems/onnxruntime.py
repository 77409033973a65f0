"""ONNX Runtime on the CPU, one session a case, with its own intra-operator pool."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from threadteam.compare.case import Case
from threadteam.compare.systems.base import Loaded, System, Unavailable

__all__ = ["OnnxRuntime"]


class OnnxRuntime(System):
    """ONNX Runtime with default options, apart from the number of threads."""

    name: ClassVar[str] = "onnxruntime"

    def version(self) -> str:
        """ONNX Runtime's version."""
        try:
            self._runtime: Any = importlib.import_module("onnxruntime")
        except ImportError:
            raise Unavailable("it is not installed: pip install onnxruntime") from None
        return f"ONNX Runtime {self._runtime.__version__}"

    def load(self, case: Case) -> Loaded:
        """A session of `threads` intra-operator threads."""
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        try:
            session = self._runtime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no common base
            raise Unavailable(f"it refuses this model ({str(error).splitlines()[0]})") from None
        inputs = dict(case.inputs)
        holder = [session]
        del session
        # Closing drops the last reference: the session joins its threads when it is collected.
        return Loaded(run=lambda: holder[0].run(None, inputs), close=holder.clear)
