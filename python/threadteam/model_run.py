"""One model run a number of times, for the command line: outputs in short, and times."""

from __future__ import annotations

import statistics
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from threadteam.compare.models import random_inputs
from threadteam.cpus import cpu_budget
from threadteam.extras import require
from threadteam.outputs import writing

__all__ = ["run_model"]


def run_model(
    model: Path,
    files: Mapping[str, Path],
    threads: int | None,
    repeat: int,
    output: Path | None,
    on_step: Callable[[str], None],
) -> dict[str, Any]:
    """Run `model` once and then `repeat` times under the clock.

    Parameters
    ----------
    model : Path
        The ONNX file.
    files : mapping of str to Path
        ``.npy`` files of inputs by name; the others get reproducible random values, symbolic extents 1.
    threads : int or None
        The width; None takes the CPU budget.
    repeat : int
        Timed runs after the first.
    output : Path or None
        Where to write the outputs, as ``.npz``.
    on_step : callable
        Told what is being done, `repeat` + 2 times.

    Returns
    -------
    dict
        Times in seconds (``load``, ``first_run``, ``median``, ``worst``, ``runs``) and each output's dtype, shape and
        range, ready for JSON.
    """
    onnx = require("onnx", "onnx", "running a model")
    from threadteam import Pool
    from threadteam.onnx import InferenceSession

    on_step("loading")
    width = cpu_budget().count if threads is None else threads
    start = time.perf_counter()
    with Pool(width) as pool, InferenceSession(str(model), on=pool) as session:
        load = time.perf_counter() - start
        names = [value.name for value in session.get_inputs()]
        if unknown := sorted(set(files) - set(names)):
            raise ValueError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(map(repr, names))}")
        feeds = {name: read_input(name, path) for name, path in files.items()}
        if len(feeds) < len(names):
            graph = onnx.load(str(model), load_external_data=False).graph
            feeds = {**random_inputs(graph, without=feeds), **feeds}
        on_step("first run")
        start = time.perf_counter()
        outputs = session.run(None, feeds)
        first = time.perf_counter() - start
        seconds = []
        for number in range(repeat):
            on_step(f"run {number + 1} of {repeat}")
            start = time.perf_counter()
            outputs = session.run(None, feeds)
            seconds.append(time.perf_counter() - start)
        named = {value.name: np.asarray(array) for value, array in zip(session.get_outputs(), outputs, strict=True)}
    if output is not None:
        write_outputs(output, named)
    return {
        "model": str(model),
        "threads": width,
        "load": load,
        "first_run": first,
        "median": statistics.median(seconds),
        "worst": max(seconds),
        "runs": seconds,
        "inputs": {name: {"dtype": str(array.dtype), "shape": list(array.shape)} for name, array in feeds.items()},
        "outputs": {name: _summary(array) for name, array in named.items()},
    }


def read_input(name: str, path: Path) -> np.ndarray[Any, Any]:
    """The array in a ``.npy`` file."""
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"input {name!r}: {str(path)!r} is not a .npy file of numbers: {error}") from error


def write_outputs(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """An ``.npz`` file at `path` itself; `numpy.savez` adds a suffix, and takes some names for its own parameters."""
    with writing(path), zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                plain = array.astype(str) if array.dtype.hasobject else array
                np.lib.format.write_array(cast(BinaryIO, file), plain, allow_pickle=False)


def _summary(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An output's type, shape and range; the range is absent for empty outputs and for those that are not numbers."""
    summary: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape), "least": None, "largest": None}
    if array.size and array.dtype.kind in "biuf":
        least, largest = (float(limit) for limit in (array.min(), array.max()))
        # JSON has no NaN and no infinity.
        summary["least"], summary["largest"] = (x if np.isfinite(x) else str(x) for x in (least, largest))
    return summary
