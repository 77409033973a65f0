"""Solve a batch of linear systems: one job each, with no library starting threads of its own inside.

    python examples/batched_solve.py

Needs `pip install threadteam threadpoolctl`. Each job gets a token for its share of the pool, and hands exactly that
share to BLAS.
"""

from __future__ import annotations

import numpy as np
import threadteam as tt

JOBS = 24
SIZE = 200


def main() -> None:
    random = np.random.default_rng(0)
    matrices = random.standard_normal((JOBS, SIZE, SIZE)) + SIZE * np.eye(SIZE)
    right = random.standard_normal((JOBS, SIZE))
    solutions = np.empty_like(right)
    widths = set()

    def solve(job: int, token: tt.Exec) -> None:
        # The one place where a bare width exists: NumPy's BLAS is limited to the share of this job meanwhile.
        with token.external() as width:
            widths.add(int(width))
            solutions[job] = np.linalg.solve(matrices[job], right[job])

    with tt.Pool() as pool, tt.testing.ledger() as seen:
        pool.exec().fork(JOBS, solve)
    residual = np.abs(np.einsum("jmn,jn->jm", matrices, solutions) - right).max()
    print(f"{JOBS} systems, residual below 1e-10: {residual < 1e-10}")
    print(f"BLAS threads in each job: {sorted(widths)}; jobs at once: at most {seen.most} of {pool.width}")


if __name__ == "__main__":
    main()
