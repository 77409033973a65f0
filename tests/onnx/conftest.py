"""The two programs that tests run on: the native one, and the NumPy interpreter of the same steps."""

from __future__ import annotations

import numpy as np
import pytest
import threadteam.onnx.stage
from small_models import interpret


@pytest.fixture(params=["native", "interpreted"])
def program(request, monkeypatch):
    """Runs the test once on the native program and once on the interpreter."""
    if request.param == "interpreted":
        monkeypatch.setattr(threadteam.onnx.stage, "make_program", interpret)
    return request.param


@pytest.fixture
def random():
    return np.random.default_rng(20)
