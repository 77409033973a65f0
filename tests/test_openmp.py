"""An OpenMP runtime in the place of our workers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from threadteam import Pool, _native, openmp
from threadteam.compare import chains

FOUND = openmp.find()
needs_openmp = pytest.mark.skipif(FOUND is None, reason="no OpenMP runtime on this machine")


def run(on: object, chain: int = 3) -> bytes:
    """The bytes of a chain's result on `on`."""
    pytest.importorskip("onnx")
    from threadteam.onnx import InferenceSession

    with InferenceSession(chains()[chain].model(), on=on) as session:
        (result,) = session.run(None, chains()[chain].inputs())
    return np.ascontiguousarray(result).tobytes()


@pytest.mark.parametrize(
    ("path", "reason"), [("no_such_library.so", "no_such_library.so"), (sys.executable, "executable|GOMP_parallel")]
)
def test_what_is_no_openmp_runtime_is_refused_by_name(path: str, reason: str) -> None:
    with pytest.raises(OSError, match=rf"is no usable OpenMP runtime: .*(?:{reason})"):
        _native.OpenMp(path, 2)


@needs_openmp
@pytest.mark.parametrize("threads", [0, 2**40])
def test_a_team_of_no_or_too_many_threads_is_refused(threads: int) -> None:
    with pytest.raises(ValueError, match=f"not {threads}"):
        _native.OpenMp(FOUND, threads)


@needs_openmp
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_a_model_gives_the_same_bits_on_openmp_and_on_a_pool(threads: int) -> None:
    with Pool(2) as pool:
        assert run(_native.OpenMp(FOUND, threads)) == run(pool)


@needs_openmp
def test_sections_on_openmp_are_recorded_with_every_participant() -> None:
    trace = _native.Trace(2, 1 << 12)
    run(_native.OpenMp(FOUND, 2, trace), chain=5)
    events = trace.events()
    assert {participant for participant, _, kind, _ in events if kind == "share_begin"} == {0, 1}
    assert set(trace.labels().values()) >= {"Softmax (Softmax)"}


@needs_openmp
def test_openmp_threads_run_only_while_a_process_asks_for_them() -> None:
    code = (
        "import os; from threadteam import _native; before = len(os.listdir('/proc/self/task'));"
        f"_native.OpenMp({FOUND!r}, 2); print(before, len(os.listdir('/proc/self/task')))"
    )
    if sys.platform != "linux":
        pytest.skip("threads are counted in /proc")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["1", "1"]


def test_a_runtime_that_is_loaded_already_comes_first(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libgomp_helper/other.so\n"
        "7f01-7f02 r-xp 00000000 08:01 2 /opt/wheels/scikit.libs/libgomp-a34b3233.so.1.0.0\n"
        "7f02-7f03 r--p 00000000 08:01 2 /opt/wheels/scikit.libs/libgomp-a34b3233.so.1.0.0\n"
    )
    found = list(openmp.candidates(maps))
    assert found[0] == "/opt/wheels/scikit.libs/libgomp-a34b3233.so.1.0.0"
    assert found.count(found[0]) == 1


def test_without_a_list_of_loaded_libraries_the_systems_names_are_tried(tmp_path: Path) -> None:
    assert any("omp" in candidate for candidate in openmp.candidates(tmp_path / "missing"))
