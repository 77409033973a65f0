"""Files that commands write: refused before the work, named when the disk is full after it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from threadteam.compare import chains
from threadteam.outputs import check_file, make_folder, writing

pytest.importorskip("typer")
pytest.importorskip("onnx")

SCRIPT = """
import threadteam as tt

with tt.Pool(2) as pool:
    for _ in range(200):
        pool.exec().for_ranges(100, 1, lambda start, stop: None)
print("ran", flush=True)
"""


def threadteam(
    *arguments: str | Path, limit: int | None = None, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run a command; `limit` is the size in bytes above which no file grows, like a disk that is full."""

    def set_limit() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "threadteam", *map(str, arguments)]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=300, check=False, preexec_fn=set_limit
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    path.write_bytes(chains()[0].model())
    return path


def test_a_script_is_not_run_when_its_trace_cannot_be_written(script: Path, tmp_path: Path) -> None:
    for output in (tmp_path, tmp_path / "missing/t.json"):
        done = threadteam("trace", "--output", output, script)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"threadteam: error: cannot write '{output}': ")


def test_a_model_is_not_run_when_its_outputs_cannot_be_written(model: Path, tmp_path: Path) -> None:
    done = threadteam("run", model, "--output", tmp_path / "missing/out.npz")
    assert done.returncode == 1
    assert "its folder does not exist" in done.stderr


def test_nothing_is_compared_when_the_figures_cannot_be_written(script: Path) -> None:
    for output, reason in ((script, "it is a file"), (script / "out", "Not a directory")):
        done = threadteam("compare", "--models", "gsg_1_64", "--output", output)
        assert (done.returncode, done.stdout) == (1, "")
        assert reason in done.stderr


def test_a_trace_without_room_on_the_disk_is_named_and_not_half_written(script: Path, tmp_path: Path) -> None:
    done = threadteam("trace", "--output", tmp_path / "t.json", script, limit=1000)
    assert done.returncode == 1
    assert done.stderr == f"threadteam: error: File too large: '{tmp_path / 't.json'}'\n"
    assert not (tmp_path / "t.json").exists()


def test_the_figures_are_kept_when_the_disk_has_no_room_for_the_trace(tmp_path: Path) -> None:
    # Runs so long that there are few, whose times fit.
    options = ["--models", "gsg_256_512", "--systems", "threadteam", "--threads", "1", "--repeat", "1", "--json"]
    done = threadteam("compare", *options, "--output", tmp_path, limit=8000)
    assert done.returncode == 1
    assert done.stderr == f"threadteam: error: File too large: '{tmp_path / 'trace.json'}'\n"
    assert json.loads((tmp_path / "compare.json").read_text())["correct"] is True
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["--help"]])
def test_a_full_standard_output_is_named(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = threadteam(*arguments, stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == "threadteam: error: No space left on device: standard output\n"


def test_an_error_of_the_system_that_is_no_write_blames_no_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: Path, tmp_path: Path
) -> None:
    from threadteam.cli import run

    def getcwd() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getcwd", getcwd)  # as in a folder that has been removed
    assert run(["trace", "--output", str(tmp_path / "t.json"), script.name]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "threadteam: error: No such file or directory (THREADTEAM_TRACEBACK=1 shows where)"


def test_a_script_that_is_interrupted_leaves_its_trace(script: Path, tmp_path: Path) -> None:
    script.write_text(f"{SCRIPT}import time\nwhile True: time.sleep(10)\n")
    command = [sys.executable, "-m", "threadteam", "trace", "--output", tmp_path / "t.json", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ran\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (130, "threadteam: error: interrupted\n")
    assert "caller" in out
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_write_that_fails_names_its_file_and_removes_the_half(tmp_path: Path) -> None:
    path = tmp_path / "half"
    path.write_text("half")
    with pytest.raises(OSError, match="half") as caught, writing(path):
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(path)
    assert not path.exists()


def test_a_file_that_cannot_be_opened_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("kept")
    with pytest.raises(FileNotFoundError), writing(path):
        (tmp_path / "missing/other").read_text()
    assert path.read_text() == "kept"


def test_places_that_can_be_written_are_accepted(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b")
    make_folder(tmp_path / "a/b")
    check_file(tmp_path / "a/b/new.json")
    (tmp_path / "old.json").write_text("")
    check_file(tmp_path / "old.json")
    check_file(Path("relative.json"))


@pytest.mark.parametrize("check", [lambda folder: check_file(folder / "file"), make_folder])
def test_a_folder_without_permission_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for who is not the superuser
    with pytest.raises(ValueError, match=f"{tmp_path}.*the system does not permit it"):
        check(tmp_path)
