"""Every example runs and says what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SAYS = {
    "batched_solve.py": ["residual below 1e-10: True", "BLAS threads in each job"],
    "compare_systems.py": ["gsg_32_64_64_64  threadteam", "results agree: True"],
    "numba_body.py": ["heat left: 1.000000"],
    "serve_model.py": ["matmul", "all results the same bits: True"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_and_says_what_it_should(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / name], capture_output=True, text=True, timeout=180, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for text in SAYS[name]:
        assert text in done.stdout
