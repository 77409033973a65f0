"""The command line as a program; says which extra is missing instead of failing to import it."""

from __future__ import annotations

import signal
import sys

from _threadteam_command import INTERRUPTED
from _threadteam_command import main as begin

from threadteam.errors import MissingExtra
from threadteam.extras import require

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        for module in ("typer", "rich"):
            require(module, "cli", "the command line")
    except MissingExtra as error:
        sys.exit(f"threadteam: error: {error}")
    from threadteam.cli import run

    try:
        # From here on Ctrl-C is an exception, which the command turns into its last line.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # before the command began, or after it ended
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    begin()
