"""The entry point of the command line; says which extra is missing instead of failing to import it."""

from __future__ import annotations

import sys

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

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
