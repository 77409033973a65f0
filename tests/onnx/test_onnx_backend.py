"""The node cases that the `onnx` package ships, run through sessions.

Making all cases takes longer than running them, so each of the package's modules is imported by its own test. Of a
module with many cases every n-th is run, so that at most `MOST` remain.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings

import numpy as np
import onnx
import onnx.backend.test.case.node as cases
import pytest
import threadteam.onnx as tt_onnx
from onnx import numpy_helper

MOST = 16
RANDOM = ("bernoulli", "random_", "multinomial", "test_training_dropout")
BEYOND = {
    "test_if_opt": "the expected value is not of the declared optional type",
}


def modules():
    names = [info.name for info in pkgutil.iter_modules(cases.__path__) if not info.name.startswith("_")]
    names.remove("ai_onnx_ml")
    folder = importlib.import_module("onnx.backend.test.case.node.ai_onnx_ml")
    return names + [f"ai_onnx_ml.{info.name}" for info in pkgutil.iter_modules(folder.__path__)]


def made_by(module):
    """The cases that importing a module adds to the package's list."""
    before = len(cases._NodeTestCases)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    return cases._NodeTestCases[before:]


@pytest.mark.parametrize("module", modules())
def test_cases_of_the_onnx_package_give_the_expected_outputs(module):
    found = [
        case for case in made_by(module) if case.name not in BEYOND and not any(word in case.name for word in RANDOM)
    ]
    for case in found[:: max(1, -(-len(found) // MOST))]:
        session = tt_onnx.InferenceSession(case.model)
        names = [value.name for value in case.model.graph.input]
        for inputs, outputs in case.data_sets:
            given = dict(zip(names, map(plain, inputs), strict=False))
            results = session.run(None, given)
            for result, expected in zip(results, map(plain, outputs), strict=True):
                compare(result, expected, case)


def plain(value):
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compare(result, expected, case):
    if expected is None or isinstance(expected, (list, tuple)):
        assert type(result) is type(expected) or expected is not None, case.name
        for one, other in zip(result or [], expected or [], strict=True):
            compare(one, other, case)
        return
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.dtype == expected.dtype, case.name
    assert result.shape == expected.shape, case.name
    if expected.dtype.kind in "OUS":
        assert (result == expected).all(), case.name
        return
    if expected.dtype.kind == "V":
        result, expected = result.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(result, expected, max(case.rtol, 1e-3), max(case.atol, 1e-5), err_msg=case.name)
