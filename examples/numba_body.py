"""Run compiled code on all CPUs: a `numba.cfunc` as the body of a section.

    python examples/numba_body.py

Needs `pip install threadteam numba`. The body never takes the interpreter lock, so it scales in any Python.
"""

from __future__ import annotations

import numpy as np
import threadteam as tt
from numba import carray, cfunc, types

COUNT = 1_000_000


@cfunc(types.void(types.int64, types.int64, types.CPointer(types.float64)))
def heat(start, stop, data):  # type: ignore[no-untyped-def]
    """One step of the heat equation from row 0 of `data` to row 1, for the points `start` to `stop`."""
    rows = carray(data, (2, COUNT))
    for point in range(max(start, 1), min(stop, COUNT - 1)):
        rows[1, point] = 0.25 * rows[0, point - 1] + 0.5 * rows[0, point] + 0.25 * rows[0, point + 1]


def main() -> None:
    field = np.zeros((2, COUNT))
    field[0, COUNT // 2] = 1.0
    # The body and the memory that it works on, kept alive together.
    body = tt.native(heat, field)
    with tt.Pool() as pool:
        token = pool.exec()
        for _ in range(100):
            # Equal ranges go to the same participant each time, so its part of the field stays in its cache.
            token.for_ranges(COUNT, 16_384, body)
            field[0] = field[1]
        print(f"{pool.stats().sections} sections on {pool.width} CPUs, heat left: {field[0].sum():.6f}")


if __name__ == "__main__":
    main()
