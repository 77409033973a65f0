"""NumPy: chains as a user writes them, models through the reference evaluator of the onnx package."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from threadteam.compare.case import Case
from threadteam.compare.systems.base import Loaded, System, Unavailable
from threadteam.extras import require

__all__ = ["NumPy"]


class NumPy(System):
    """NumPy with its BLAS on the given number of threads."""

    name: ClassVar[str] = "numpy"
    threads_at_import: ClassVar[bool] = True

    @classmethod
    def environment(cls, threads: int) -> dict[str, str]:
        """The width of whichever BLAS NumPy was built with; it is read when that library is loaded."""
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
        return dict.fromkeys(names, str(threads))

    def version(self) -> str:
        """NumPy's version and its BLAS."""
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"NumPy {np.__version__} with {blas['name']} {blas['version']}"

    def load(self, case: Case) -> Loaded:
        """The chain's expression, or the model in the reference evaluator."""
        inputs = dict(case.inputs)
        if case.chain is not None:
            chain = case.chain
            return Loaded(run=lambda: chain.evaluate(inputs), close=lambda: None)
        reference = require("onnx.reference", "onnx", "NumPy on an ONNX model")
        evaluator = reference.ReferenceEvaluator(case.model)
        try:
            evaluator.run(None, inputs)
        except Exception as error:  # the evaluator lets through whatever NumPy raises in an operator
            raise Unavailable(f"the reference evaluator of onnx fails on this model ({error})") from None
        return Loaded(run=lambda: list(evaluator.run(None, inputs)), close=lambda: None)
