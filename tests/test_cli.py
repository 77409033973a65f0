"""The command line: statuses, one-line errors, JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import threadteam as tt
from script import WATCHDOG, run
from threadteam.compare import chains

pytest.importorskip("typer")
pytest.importorskip("onnx")

CHAIN = chains()[1]


def threadteam(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "threadteam", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **variables}, timeout=300
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The only line on standard error."""
    (line,) = done.stderr.splitlines()
    assert line.startswith("threadteam: error: ")
    return line


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    path.write_bytes(CHAIN.model())
    return path


def test_without_arguments_the_commands_are_listed() -> None:
    done = threadteam()
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("info", "run", "compare", "trace"))


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["info", "--nothing"], ["compare", "--repeat", "0"], ["run"], ["run", "x.onnx", "--input", "x"]],
)
def test_wrong_usage_is_status_2_and_one_line(arguments: Sequence[str]) -> None:
    done = threadteam(*arguments)
    assert done.returncode == 2
    assert "--help" in one_line(done)


def test_the_version_is_shown() -> None:
    done = threadteam("--version")
    assert (done.returncode, done.stdout) == (0, f"threadteam {tt.__version__}\n")


def test_info_shows_the_cpu_budget_and_its_reason() -> None:
    done = threadteam("info", THREADTEAM_NUM_THREADS="3")
    assert done.returncode == 0
    assert "THREADTEAM_NUM_THREADS" in done.stdout


def test_info_prints_json() -> None:
    found = json.loads(threadteam("info", "--json").stdout)
    assert found["cpu_budget"]["count"] >= 1
    assert found["extras"]["cli"] is True


def test_an_unusable_variable_is_one_line() -> None:
    done = threadteam("info", THREADTEAM_NUM_THREADS="abc")
    assert done.returncode == 1
    assert "THREADTEAM_NUM_THREADS" in one_line(done)
    assert "abc" in one_line(done)


def test_run_shows_outputs_and_times(model: Path) -> None:
    done = threadteam("run", model, "--threads", "2", "--repeat", "2")
    assert done.returncode == 0, done.stderr
    assert "Y: float32 [8, 64]" in done.stdout
    assert "2 threads" in done.stdout


def test_run_takes_inputs_from_files_and_writes_outputs(model: Path, tmp_path: Path) -> None:
    inputs = CHAIN.inputs()
    options: list[str | Path] = []
    for name, value in inputs.items():
        np.save(tmp_path / f"{name}.npy", value)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    done = threadteam("run", model, *options, "--output", tmp_path / "out.npz", "--repeat", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["Y"]["shape"] == [8, 64]
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["Y"], CHAIN.evaluate(inputs)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["missing.onnx"], "missing.onnx"),
        (["{model}", "--input", "Z=a.npy"], "'Z'"),
        (["{model}", "--input", "A=missing.npy"], "missing.npy"),
        (["{model}", "--input", f"A={os.devnull}"], os.devnull),
        (["{model}", "--input", f"A={__file__}"], __file__),
    ],
)
def test_what_run_cannot_do_is_one_line_that_names_it(model: Path, arguments: Sequence[str], named: str) -> None:
    done = threadteam("run", *(argument.format(model=model) for argument in arguments))
    assert done.returncode == 1
    assert named in one_line(done)


@pytest.mark.parametrize("shape", [[-2], [2**40, 2**20]])
def test_an_input_that_cannot_have_random_values_is_one_line_that_names_it(tmp_path: Path, shape: list[int]) -> None:
    save_model(tmp_path / "odd.onnx", "y", shape)
    done = threadteam("run", tmp_path / "odd.onnx")
    assert done.returncode == 1
    assert "input 'x'" in one_line(done)
    assert "MemoryError" not in done.stderr


def test_outputs_of_any_name_are_written_to_the_file_that_was_named(tmp_path: Path) -> None:
    save_model(tmp_path / "named.onnx", "file", [2])
    done = threadteam("run", tmp_path / "named.onnx", "--repeat", "1", "--output", tmp_path / "result")
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "result")["file"].shape == (2,)


def save_model(path: Path, output: str, shape: list[int]) -> None:
    from onnx import TensorProto, helper, save

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], [output])], "graph", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_commands_run_without_a_standard_stream(stream: str) -> None:
    number = {"stdout": 1, "stderr": 2}[stream]
    script = f"import os, sys; os.close({number}); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = ["-m", "threadteam", "compare", "--models", "gsg_1_64", "--systems", "numpy", "--repeat", "1"]
    assert subprocess.run([sys.executable, "-c", script, *command], timeout=300, check=False).returncode == 0


def test_a_file_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07 this is no model")
    done = threadteam("run", tmp_path / "broken.onnx")
    assert done.returncode == 1
    assert "broken.onnx" in one_line(done)


def test_compare_prints_a_table_and_writes_its_files(tmp_path: Path) -> None:
    done = threadteam("compare", "--models", "gsg_8_64", "--threads", "1,2", "--repeat", "1", "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gsg_8_64_64_64" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120 + len(str(tmp_path))
    assert json.loads((tmp_path / "compare.json").read_text())["correct"] is True
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "timeline.svg").read_text()


def test_compare_prints_nothing_but_json_when_asked() -> None:
    done = threadteam(
        "compare",
        "--models",
        "gsg_8_64",
        "--systems",
        "threadteam,openmp",
        "--threads",
        "1,2",
        "--repeat",
        "1",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    assert case["same_bits"] in (True, None)
    ours = [row for row in case["arms"] if row["system"] == "threadteam"]
    assert [row["problem"] for row in ours] == [None, None]
    assert set(ours[1]["decomposition"]) == {"operators", "dispatch", "barrier", "idle_share", "sections"}


UNKNOWN = [
    ("--models", "nothing"),
    ("--systems", "nothing"),
    *(("--threads", what) for what in ("0", "100000", "9" * 5000)),
    ("--dtype", "int8"),
]


@pytest.mark.parametrize("option", UNKNOWN, ids=lambda option: " ".join(option)[:20])
def test_what_compare_does_not_know_is_one_line(option: Sequence[str]) -> None:
    done = threadteam("compare", *option)
    assert done.returncode == 1
    assert repr(option[1]) in one_line(done)


SCRIPT = """
import sys
import threadteam as tt

with tt.Pool(2) as pool:
    pool.exec().for_ranges(1000, 10, lambda start, stop: None)
print("arguments", sys.argv[1:])
"""


def test_trace_runs_a_script_with_its_arguments_and_writes_its_files(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = threadteam("trace", "--output", tmp_path / "t.json", tmp_path / "script.py", "-x", "--json")
    assert done.returncode == 0, done.stderr
    assert "arguments ['-x', '--json']" in done.stdout
    assert "caller" in done.stdout
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (tmp_path / "t.png").exists()


def test_the_json_of_a_trace_stands_alone_on_standard_output(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = threadteam("trace", "--json", tmp_path / "script.py", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == 0
    assert "arguments []" in done.stderr


def test_trace_ends_with_the_scripts_own_status(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + "sys.exit(7)\n")
    assert threadteam("trace", tmp_path / "script.py", cwd=tmp_path).returncode == 7


def test_what_a_script_raises_is_one_line_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + "raise KeyError('no')\n")
    done = threadteam("trace", tmp_path / "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "line 8: KeyError: 'no'" in one_line(done)


def test_a_script_that_is_missing_is_one_line(tmp_path: Path) -> None:
    done = threadteam("trace", tmp_path / "missing.py")
    assert done.returncode == 1
    assert "missing.py" in one_line(done)


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("typer", ["info"], "cli"),
        ("rich", ["info"], "cli"),
        ("onnx", ["run", "model.onnx"], "onnx"),
        ("onnx", ["compare", "--models", CHAIN.name, "--repeat", "1"], "onnx"),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, module: str, arguments: list[str], extra: str) -> None:
    # One that cannot be found, first on the path.
    missing = f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')"
    (tmp_path / f"{module}.py").write_text(missing)
    done = threadteam(*arguments, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert f"pip install 'threadteam[{extra}]'" in one_line(done)


#: The command, whose user presses Ctrl-C when the import of a module begins.
INTERRUPTED_IMPORT = """
import os, signal, sys

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Impatient())
sys.argv = ["threadteam", "info"]
from _threadteam_command import main
main()
"""


@pytest.mark.parametrize(
    "module", ["threadteam", "threadteam._native", "threadteam.cpus", "typer", "rich.console", "threadteam.cli"]
)
def test_ctrl_c_while_the_command_is_importing_ends_it_without_a_word(module: str) -> None:
    assert run(INTERRUPTED_IMPORT.format(module=module), status=130, silent=True) == ""


def test_ctrl_c_later_is_one_line() -> None:
    code = INTERRUPTED_IMPORT.format(module="threadteam.info")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WATCHDOG)
    assert (done.returncode, done.stderr) == (130, "threadteam: error: interrupted\n")


def test_a_command_that_is_told_to_ignore_ctrl_c_does_so() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + INTERRUPTED_IMPORT.format(module="typer")
    assert "CPU budget" in run(code)
