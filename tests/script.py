"""Running a piece of Python in a process of its own, under a watchdog."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping

WATCHDOG = 60.0
"""Seconds after which a process counts as hung."""


def run(
    code: str, *, env: Mapping[str, str] | None = None, timeout: float = WATCHDOG, status: int = 0, silent: bool = False
) -> str:
    """Run `code`; return what it printed. A status other than `status`, or a hang, fails the test.

    With `silent` a word on standard error does so too.
    """
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Fatal Python error" not in done.stderr, done.stderr
    assert not (silent and done.stderr), done.stderr
    return done.stdout
