"""The kept row: found when it is this machine's, ignored with one warning when it is not."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import threadteam as tt
from fake_machine import tree
from hypothesis import given
from hypothesis import strategies as st
from threadteam.calibrated import Host, cache_directory, cpu_model, forget, host_row, kept, store

HOST = Host("x86_64-avx2", "A model (tm) @ 3 GHz", 8, "0.0.1")
COSTS = tt.DispatchCosts(*(tt.WidthCosts.from_anchors([(2, cost), (8, 4 * cost)]) for cost in (5e-7, 6e-7, 7e-7)))


def test_a_row_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    file = store(COSTS, HOST, tmp_path / "new" / "directory")
    assert file.name == "dispatch-costs-x86_64-avx2-a-model-tm-3-ghz-8.json"
    found = kept(file.parent, HOST)
    assert (found.file, found.costs, found.problem) == (file, COSTS, "")


def test_nothing_but_the_file_is_left_in_the_directory(tmp_path: Path) -> None:
    file = store(COSTS, HOST, tmp_path)
    store(COSTS, HOST, tmp_path)
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_keeps_the_old_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = store(COSTS, HOST, tmp_path)

    def full(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("threadteam.calibrated.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        store(tt.DispatchCosts.for_class(tt.HostClass("generic")), HOST, tmp_path)
    assert list(tmp_path.iterdir()) == [file]
    assert kept(tmp_path, HOST).costs == COSTS


@pytest.mark.parametrize("cost", [0.0, 0.02, 1e9])
def test_a_row_that_would_not_be_believed_is_not_kept(tmp_path: Path, cost: float) -> None:
    with pytest.raises(ValueError, match=r"costs more than nothing and 10\.0 ms at most, got"):
        store(tt.DispatchCosts(*[tt.WidthCosts.flat(cost)] * 3), HOST, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_machine_of_the_same_home_finds_nothing(tmp_path: Path) -> None:
    store(COSTS, HOST, tmp_path)
    other = Host(HOST.host_class, "Another model", HOST.width, HOST.version)
    assert kept(tmp_path, other) == kept(tmp_path / "nowhere", HOST)


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("version", "0.0.0", "another version of threadteam ('0.0.0', here '0.0.1')"),
        ("cpu", "Another model", "another CPU ('Another model'"),
        ("host_class", "generic", "another host class"),
        ("width", 4, "another width (4, here 8)"),
        ("width", True, "another width (True, here 8)"),
    ],
)
def test_a_stale_row_is_not_used(tmp_path: Path, field: str, value: Any, named: str) -> None:
    file = store(COSTS, HOST, tmp_path)
    change(file, **{field: value})
    found = kept(tmp_path, HOST)
    assert (found.file, found.costs) == (file, None)
    assert named in found.problem


ROWS = {"team": [[2, 1e-6]], "in_pool": [[2, 1e-6]], "outside": [[2, 1e-6]]}


@pytest.mark.parametrize(
    "costs",
    [
        None,
        [],
        {},
        {**ROWS, "more": []},
        {**ROWS, "team": []},
        {**ROWS, "team": {"2": 1e-6}},
        {**ROWS, "team": [[1, 1e-6]]},
        {**ROWS, "team": [[2, 1e-6], [2, 1e-6]]},
        {**ROWS, "team": [[2, -1e-6]]},
        {**ROWS, "team": [[2, 0]]},
        {**ROWS, "team": [[2, 0.02]]},
        {**ROWS, "team": [[2, float("nan")]]},
        {**ROWS, "team": [[2, float("inf")]]},
        {**ROWS, "team": [[2, 10**400]]},
        {**ROWS, "team": [[2, "1e-6"]]},
        {**ROWS, "team": [["2", 1e-6]]},
        {**ROWS, "team": [[2]]},
        {**ROWS, "team": [2, 1e-6]},
        {**ROWS, "team": [[width, 1e-6] for width in range(2, 15)]},
    ],
)
def test_a_damaged_row_is_not_used(tmp_path: Path, costs: Any) -> None:
    change(store(COSTS, HOST, tmp_path), costs=costs)
    found = kept(tmp_path, HOST)
    assert found.costs is None
    assert "damaged" in found.problem
    assert "\n" not in found.problem


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_a_file_holds_it_is_a_problem_and_no_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("cache")
    (directory / HOST.file_name).write_bytes(content)
    found = kept(directory, HOST)
    assert found.costs is None
    assert found.problem


@pytest.mark.parametrize("content", [b"[" * 50_000, b" " * 70_000, b"9" * 60_000, b'"\xff"'])
def test_a_file_made_to_hurt_is_a_problem_and_no_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / HOST.file_name).write_bytes(content)
    assert kept(tmp_path, HOST).problem


def test_a_directory_or_a_dangling_link_in_its_place_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / HOST.file_name).mkdir()
    assert "directory" in kept(tmp_path, HOST).problem
    (tmp_path / HOST.file_name).rmdir()
    (tmp_path / HOST.file_name).symlink_to(tmp_path / "nowhere")
    assert "nowhere" in kept(tmp_path, HOST).problem or "No such file" in kept(tmp_path, HOST).problem


def test_the_row_of_this_machine_is_the_default_of_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadteam.calibrated.cache_directory", lambda: tmp_path)
    forget()
    try:
        assert tt.DispatchCosts.host_default() == tt.DispatchCosts.for_class(tt.HostClass.detect())
        store(COSTS, Host.here(), tmp_path)
        assert tt.DispatchCosts.host_default() == COSTS
        with tt.Pool(2) as pool, tt.Pool(2, dispatch_costs=tt.DispatchCosts(*[tt.WidthCosts.flat(1.0)] * 3)) as other:
            assert pool.dispatch_costs == COSTS
            assert pool.exec().dispatch_cost(2) == 7e-7
            assert other.exec().dispatch_cost(2) == 1.0
    finally:
        forget()


def test_a_row_that_is_not_used_is_reported_once_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadteam.calibrated.cache_directory", lambda: tmp_path)
    file = store(COSTS, Host.here(), tmp_path)
    change(file, version="0.0.0")
    forget()
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(3):
                tt.Pool(1).close()
                assert host_row() is None
        (warning,) = seen
        assert issubclass(warning.category, RuntimeWarning)
        assert str(file) in str(warning.message)
        assert "run `threadteam calibrate` to measure again" in str(warning.message)
    finally:
        forget()


IMPORTED = """
import os, sys
import numpy
opened = []
def audit(event, arguments):
    if event in ("open", "os.scandir", "os.listdir") and isinstance(arguments[0], (str, bytes)):
        opened.append(os.fsdecode(arguments[0]))
sys.addaudithook(audit)
import threadteam
assert any("threadteam" in name for name in opened), "nothing was seen"
print(*[name for name in opened if "dispatch-costs" in name or name.startswith(("/sys", "/proc", "CACHE"))])
"""


def test_importing_reads_no_row_and_nothing_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "threadteam").mkdir()
    script = IMPORTED.replace("CACHE", str(tmp_path))
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environ)
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.parametrize(
    ("system", "environ", "expected"),
    [
        ("linux", {"HOME": "/home/a"}, "/home/a/.cache/threadteam"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": "/c"}, "/c/threadteam"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": "relative"}, "/home/a/.cache/threadteam"),
        ("darwin", {"HOME": "/Users/a"}, "/Users/a/Library/Caches/threadteam"),
        ("win32", {"LOCALAPPDATA": "/L"}, "/L/threadteam"),
        ("linux", {"HOME": "relative"}, None),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the paths are those of a system with one root")
def test_the_directory_follows_the_platforms_rules(system: str, environ: dict[str, str], expected: str | None) -> None:
    found = cache_directory(environ, system)
    assert (None if found is None else found.as_posix()) == expected


def test_the_model_of_an_arm_processor_is_its_numbers(tmp_path: Path) -> None:
    text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n"
    assert cpu_model(tree(tmp_path, {"proc/cpuinfo": text})) == "0x41 0xd40 0x1"
    assert cpu_model(tmp_path / "nowhere") != ""
