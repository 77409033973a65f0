"""The optional `onnx` package, or the error that names how to get it."""

from __future__ import annotations

from typing import Any

from threadteam.errors import MissingExtra

__all__ = ["helper", "numpy_helper", "onnx"]

onnx: Any
helper: Any
numpy_helper: Any
try:
    import onnx
    import onnx.external_data_helper
    import onnx.inliner
    import onnx.reference
    import onnx.shape_inference
    from onnx import helper, numpy_helper
except ImportError as error:
    raise MissingExtra(
        f"threadteam.onnx needs the onnx package ({error}); install it with: pip install 'threadteam[onnx]'"
    ) from error
