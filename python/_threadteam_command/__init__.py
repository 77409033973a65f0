"""Where the `threadteam` command begins: Ctrl-C ends it without a traceback while it is still importing.

Apart from the package, because importing that takes longer than many a command, and must itself leave signals alone.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["INTERRUPTED", "main"]

#: The exit status of a program that Ctrl-C ended, as shells have it.
INTERRUPTED = 130


def _end(_number: int, _frame: FrameType | None) -> None:
    """End the process: nothing but imports has run."""
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line and exit with its status."""
    # An exception would pass through modules that are half imported, some of which would take it for their own.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from threadteam.__main__ import main as command

    command()
