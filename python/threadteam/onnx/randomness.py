"""Random numbers of nodes that have no seed of their own, as `set_seed` decides them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from threadteam.errors import InvalidArgument

from ._extra import onnx

__all__ = ["RandomStream", "random_stream", "seeded_operators", "set_seed"]

_seed: int | None = None


def set_seed(seed: int) -> None:
    """Let sessions that are made from now on draw the same random numbers as others made after the same seed.

    It decides for nodes such as `RandomNormal` that have no seed of their own; the numbers are not ONNX Runtime's.

    Parameters
    ----------
    seed : int
        Of 64 bits, with a sign.

    Raises
    ------
    InvalidArgument
        No such integer.

    Examples
    --------
    >>> set_seed(7)
    """
    global _seed  # noqa: PLW0603 - one seed for the process, as in ONNX Runtime
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not -(1 << 63) <= seed < 1 << 63:
        raise InvalidArgument(f"a seed is an integer of 64 bits with a sign, got {seed!r}")
    _seed = int(seed)


class RandomStream:
    """The random numbers of one session's nodes, for any thread.

    Parameters
    ----------
    seed : int
        Of 64 bits, with a sign.
    """

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._seeds = np.random.default_rng(seed % (1 << 64))

    def next_seed(self) -> int:
        """A seed for one evaluation of one node."""
        with self._lock:
            return int(self._seeds.integers(1 << 32))


def random_stream() -> RandomStream | None:
    """Where a new session's random numbers come from; None before any `set_seed`: from the system."""
    return None if _seed is None else RandomStream(_seed)


def seeded_operators(stream: RandomStream | None) -> list[Any]:
    """The random operators, with seeds of `stream` for nodes that have none; none of them without a stream."""
    if stream is None:
        return []

    def state(_: Any, seed: float | None) -> np.random.RandomState:
        return np.random.RandomState(stream.next_seed() if seed is None or np.isnan(seed) else int(seed))

    names = ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
    newest = onnx.defs.onnx_opset_version()
    found = [onnx.reference.ops.load_op("", name, newest) for name in names]
    return [type(base.__name__, (base,), {"op_domain": "", "_get_state": state}) for base in found]
