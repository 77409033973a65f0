"""What every test starts from."""

import signal

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every process that a test starts:
# the tests of interrupts would wait for ever. A handler here is the default again in those processes.
signal.signal(signal.SIGINT, signal.default_int_handler)
