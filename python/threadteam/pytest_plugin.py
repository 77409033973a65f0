"""The pytest plugin: a fixture that holds every token of a test to its budget.

pytest finds it by the entry point that the package declares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from threadteam.testing import Ledger


@pytest.fixture
def threadteam_ledger() -> Iterator[Ledger]:
    """Record the tasks of the tokens minted by a test, and fail it when one exceeds its budget."""
    # Nobody who does not ask for the fixture loads the extension module.
    from threadteam import testing

    with testing.ledger() as seen:
        yield seen
