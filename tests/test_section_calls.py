"""What a section costs in allocations and uses of the interpreter lock, counted in libc and the interpreter."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from script import run

SOURCE = Path(__file__).with_name("call_counter.c")
SECTIONS = 5_000

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_ENABLE_SHARED") or not os.path.exists("/lib64/ld-linux-x86-64.so.2"),
    reason="preloading counts calls of glibc and of a shared libpython",
)

KINDS = {
    "for_ranges of a plain token": ("pool.exec()", "token.for_ranges(64, 1, ranges)"),
    "for_ranges of a serial token": ("tt.Exec.serial()", "token.for_ranges(64, 1, ranges)"),
    "for_ranges of a team token": (
        "tt.Pool(3, acquire_timeout=10).into_team().exec()",
        "token.for_ranges(64, 1, ranges)",
    ),
    "fork": ("pool.exec()", "token.fork(8, jobs)"),
    "broadcast": ("tt.Pool(3, acquire_timeout=10).into_team().exec()", "token.broadcast(jobs)"),
    "run of a team": ("pool.exec().team().__enter__()", "token.run(jobs)"),
}
"""A token, and a section of it."""

COUNT = """
import ctypes, gc, itertools, os
import threadteam as tt

library = ctypes.CDLL({library!r})
counters = [getattr(library, name) for name in ("allocated", "released", "returned", "ensured")]
for counter in counters:
    counter.restype = ctypes.c_long
done = ctypes.c_longlong()
ranges = tt.native(ctypes.cast(library.range_body, ctypes.c_void_p).value, data=done, signature="range")
jobs = tt.native(ctypes.cast(library.index_body, ctypes.c_void_p).value, data=done, signature="index")
pool = tt.Pool(3, acquire_timeout=10)
token = {token}

def sections(count):
    for _ in itertools.repeat(None, count):
        {section}

gc.disable()
sections(100)
before = [counter() for counter in counters]
sections({sections})
after = [counter() for counter in counters]
# Nothing waits for the workers here: their last steps may still run.
print([b - a for a, b in zip(before, after, strict=True)], flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    built = tmp_path_factory.mktemp("counter") / "call_counter.so"
    subprocess.run([compiler, "-O1", "-fno-builtin", "-shared", "-fPIC", SOURCE, "-o", built, "-ldl"], check=True)
    return str(built)


@pytest.mark.parametrize("kind", KINDS)
def test_a_section_of_native_code_allocates_nothing_and_releases_the_interpreter_lock_once(
    kind: str, library: str
) -> None:
    token, section = KINDS[kind]
    code = COUNT.format(library=library, token=token, section=section, sections=SECTIONS)
    allocated, released, returned, ensured = ast.literal_eval(run(code, env={"LD_PRELOAD": library}))
    # The lists of the counters themselves take a few.
    assert allocated < 20
    # A leader that waits long looks for signals now and then, on a machine that is busy.
    assert SECTIONS <= released < 1.1 * SECTIONS
    assert SECTIONS <= returned < 1.1 * SECTIONS
    assert ensured < 0.1 * SECTIONS
