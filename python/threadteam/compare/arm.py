"""One arm of the comparison as its controller sees it: a process for a system at a width, and the pipe to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import cast

from threadteam.compare.case import Case
from threadteam.compare.systems import Decomposition, system
from threadteam.compare.worker import FirstRun, Opened, Skipped, Turn
from threadteam.errors import ThreadteamError

__all__ = ["Arm", "ArmFailed"]

_ENTRY = "from threadteam.compare.worker import main; main()"
#: How long a request may take, in seconds: loading and running the largest case on one thread of a busy machine.
_PATIENCE = 300.0
#: How long idle threads may go on spinning after a turn before the next arm starts; libomp blocks after 0.2 s.
_QUIET = 0.5
_QUIET_POLL = 0.0005


class ArmFailed(ThreadteamError):
    """The process of an arm ended, or reported an error."""


class Arm:
    """A process that runs one system on a number of threads.

    Parameters
    ----------
    name : str
        The system.
    threads : int
        Its width.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self._pipe, other = Pipe()
        environment = {**os.environ, **system(name).environment(threads)}
        command = [sys.executable, "-c", _ENTRY, name, str(threads), str(other.fileno())]
        # Its standard output must not mix with the tables; its errors, a crash's report for instance, are passed on.
        # In a process group of its own Ctrl-C does not reach it: this process decides, and closing the pipe ends it.
        self._process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,
        )
        other.close()

    def open(self) -> Opened | Skipped:
        """Wait until the system is imported."""
        return cast(Opened | Skipped, self._request("open"))

    def load(self, case: Case) -> FirstRun | Skipped:
        """Load `case` and run it once."""
        return cast(FirstRun | Skipped, self._request("load", case))

    def time(self, runs: int, warm_up: int) -> Turn:
        """Run the loaded case `warm_up` times untimed, then `runs` times under the clock."""
        return cast(Turn, self._request("time", runs, warm_up))

    def decompose(self, runs: int) -> Decomposition | None:
        """Where the time of the loaded case goes, over `runs` traced runs; it is not loaded any more afterwards."""
        return cast(Decomposition | None, self._request("decompose", runs))

    def unload(self) -> None:
        """Release the loaded case."""
        self._request("unload")

    def settle(self) -> None:
        """Wait, for a bounded time, until no thread of the process runs: idle workers spin before they sleep."""
        tasks = Path(f"/proc/{self._process.pid}/task")
        limit = time.monotonic() + _QUIET
        while time.monotonic() < limit and _any_runs(tasks):
            time.sleep(_QUIET_POLL)

    def close(self) -> None:
        """End the process; idempotent."""
        self._pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _request(self, name: str, *arguments: object) -> object:
        try:
            self._pipe.send((name, arguments))
            if not self._pipe.poll(_PATIENCE):
                self._process.kill()
                raise ArmFailed(f"it gave no answer in {_PATIENCE:.0f} s and was stopped")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            status = self._process.wait()
            raise ArmFailed(f"its process ended with status {status} during {name!r}") from None
        if isinstance(answer, Exception):
            raise ArmFailed(str(answer))
        return answer


def _any_runs(tasks: Path) -> bool:
    """Whether a thread under a /proc task directory is in state R; False where there is none to look at."""
    try:
        for stat in tasks.glob("*/stat"):
            # The state follows the name in parentheses, which may contain anything.
            if stat.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    except OSError:  # a thread or the process has just ended
        return False
    return False
