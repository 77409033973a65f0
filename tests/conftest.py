"""What every test starts from."""

import signal
import sys
from collections.abc import Iterator

import pytest

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every process that a test starts:
# the tests of interrupts would wait for ever. A handler here is the default again in those processes.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can, where they do."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
