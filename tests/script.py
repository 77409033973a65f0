"""Running a piece of Python in a process of its own, under a watchdog."""

from __future__ import annotations

import os
import signal
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
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, complained = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # Its children too: they hold the pipes open.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == status, f"status {process.returncode}\n{printed}\n{complained}"
    assert "Fatal Python error" not in complained, complained
    assert not (silent and complained), complained
    return printed
