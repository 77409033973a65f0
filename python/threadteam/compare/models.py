"""Real models of the comparison, and the choice of cases by name."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from threadteam.compare.case import Array, Case
from threadteam.compare.chains import chains
from threadteam.extras import require

__all__ = ["MODEL_TOLERANCE", "random_inputs", "select"]

MODEL_TOLERANCE = 1e-4
_MAGIKA_MODEL = "models/standard_v3_3/model.onnx"
_MAGIKA_BATCHES = (1, 8)
# How magika turns a file into features: bytes from both ends of the stripped first and last block, padded.
_MAGIKA_ENDS = 1024
_MAGIKA_BLOCK = 4096
_MAGIKA_PADDING = 256


def select(names: Sequence[str] = (), dtype: str = "float32") -> tuple[list[Case], dict[str, str]]:
    """The cases that `names` selects, in order.

    Parameters
    ----------
    names : sequence of str
        Names or prefixes of names of chains, a group ("plain", "attention"), "magika", or paths of ONNX files.
        Empty selects every chain and magika.
    dtype : str
        The element type of the chains, "float32" or "float64".

    Returns
    -------
    cases : list of Case
        Each case once.
    skipped : dict of str to str
        Why a model was left out, by its name.

    Raises
    ------
    ValueError
        When a name selects nothing, or there is no such element type.

    Examples
    --------
    >>> cases, skipped = select(["gsg_1_64"])
    >>> [case.name for case in cases]
    ['gsg_1_64_64_64']
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"the element type of the chains is float32 or float64, not {dtype!r}")
    found: dict[str, Case] = {}
    skipped: dict[str, str] = {}
    for name in names or ("plain", "attention", "magika"):
        if name.endswith(".onnx"):
            cases = [_file_case(Path(name))]
        elif name.startswith("magika"):
            cases = [case for case in _magika_cases(skipped) if case.name.startswith(name)]
        else:
            wanted = [chain for chain in chains() if chain.group == name or chain.name.startswith(name)]
            if not wanted:
                raise ValueError(
                    f"no chain or model is named {name!r}; use 'plain', 'attention', 'magika', "
                    f"a chain's name or its beginning ({chains()[0].name!r}, ...), or the path of an .onnx file"
                )
            cases = [chain.case(dtype) for chain in wanted]
        found.update((case.name, case) for case in cases)
    return list(found.values()), skipped


def _magika_cases(skipped: dict[str, str]) -> list[Case]:
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        skipped["magika"] = "the package magika is not installed: pip install magika"
        return []
    path = Path(spec.origin).parent / _MAGIKA_MODEL
    if not path.is_file():
        version = importlib.metadata.version("magika")
        skipped["magika"] = f"magika {version} does not contain {_MAGIKA_MODEL}"
        return []
    features = _features(max(_MAGIKA_BATCHES))
    model = path.read_bytes()
    return [
        Case(
            name=f"magika_{count}",
            title=f"magika's file type model on {count} real file{'s' if count > 1 else ''}",
            model=model,
            inputs={"bytes": features[:count]},
            tolerance=MODEL_TOLERANCE,
        )
        for count in _MAGIKA_BATCHES
    ]


def _features(count: int) -> Array:
    """The features of `count` files, taken in the order of their paths and repeated when there are fewer."""
    files = sorted(_real_files())
    rows = [_file_features(files[index % len(files)].read_bytes()) for index in range(count)]
    return np.stack(rows)


def _real_files() -> Iterator[Path]:
    """The sources of the repository when this is a checkout, else those of the installed package."""
    package = Path(__file__).parent.parent
    root = package.parent.parent
    trees = [root / "crates", root / "python"] if (root / "Cargo.toml").is_file() else [package]
    for tree in trees:
        for path in tree.rglob("*"):
            if path.suffix in {".rs", ".py", ".toml", ".md", ".json"} and path.is_file() and path.stat().st_size > 64:
                yield path


def _file_features(content: bytes) -> Array:
    begin = content[:_MAGIKA_BLOCK].lstrip()[:_MAGIKA_ENDS]
    end = content[-_MAGIKA_BLOCK:].rstrip()[-_MAGIKA_ENDS:]
    row = np.full(2 * _MAGIKA_ENDS, _MAGIKA_PADDING, np.int32)
    row[: len(begin)] = np.frombuffer(begin, np.uint8)
    row[len(row) - len(end) :] = np.frombuffer(end, np.uint8)
    return row


def _file_case(path: Path) -> Case:
    onnx = require("onnx", "onnx", "the comparison")
    if not path.is_file():
        raise FileNotFoundError(f"no model at {path}")
    model = path.read_bytes()
    try:
        graph = onnx.load_from_string(model).graph
    except Exception as error:  # whatever protobuf's parser raises for bytes that are no model
        raise ValueError(f"{path} is not an ONNX model: {error}") from None
    inputs = random_inputs(graph)
    return Case(path.stem, f"{path.name} on random inputs", model, inputs, MODEL_TOLERANCE)


def random_inputs(graph: Any, *, without: Container[str] = (), seed: int = 0) -> dict[str, Array]:
    """Reproducible inputs for an ONNX graph: symbolic extents are 1, integers 0 or 1, floats normal.

    Inputs whose name is in `without` are left out.

    Raises
    ------
    ValueError
        When an input is not a tensor of numbers, or has a shape that no array has.
    """
    onnx = require("onnx", "onnx", "random inputs for a model")
    random = np.random.default_rng(seed)
    constants = {tensor.name for tensor in graph.initializer}
    inputs: dict[str, Array] = {}
    for value in graph.input:
        if value.name in constants or value.name in without:
            continue
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or tensor.elem_type == onnx.TensorProto.STRING:
            raise ValueError(f"input {value.name!r} is not a tensor of numbers; it needs an explicit value")
        shape = [dimension.dim_value or 1 for dimension in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        try:
            values = random.integers(0, 2, shape) if dtype.kind in "iub" else random.standard_normal(shape)
        except (ValueError, MemoryError) as error:
            raise ValueError(f"input {value.name!r} cannot have random values of its shape {shape}: {error}") from error
        inputs[value.name] = np.ascontiguousarray(np.asarray(values).astype(dtype))
    return inputs
