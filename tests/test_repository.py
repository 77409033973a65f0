"""The repository's own checks: dependency rules, commands, what the package carries."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check_dependencies = script("check_dependencies")
check = script("check")
requirements = script("requirements")


def prerequisites(*items: str, path: str | None = None, cwd: Path = ROOT, **variables: str) -> str:
    environment = {**os.environ, **variables, **({} if path is None else {"PATH": path})}
    command = ["/bin/sh", str(ROOT / "scripts" / "prerequisites.sh"), *items]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=60).stdout.strip()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A search path with nothing but what the script itself calls."""
    for name in ("awk", "sed"):
        found = subprocess.run(["/bin/sh", "-c", f"command -v {name}"], capture_output=True, text=True).stdout.strip()
        (tmp_path / name).symlink_to(found)
    return tmp_path


def command(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_continuous_integration_calls_make_test_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ['cd "$(dirname "$0")/.." && exec make test']
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_a_missing_cargo_is_one_line_that_says_how_to_get_it(tools: Path) -> None:
    assert re.fullmatch(
        r"threadteam needs cargo, Rust [\d.]+ or newer, .*rustup.*", prerequisites("cargo", path=str(tools))
    )


def test_an_old_cargo_is_named_with_its_version(tools: Path) -> None:
    command(tools, "cargo", "echo 'cargo 1.60.0 (abc 2022-04-07)'")
    assert "found 1.60.0" in prerequisites("cargo", path=str(tools))


def test_a_missing_python_is_one_line(tools: Path) -> None:
    assert prerequisites("python", path=str(tools)).startswith("threadteam needs Python 3.11 or newer")


def test_a_launcher_of_a_version_that_is_not_installed_is_passed_over(tools: Path) -> None:
    command(tools, "python3", "exit 127")
    command(tools, "python3.12", "exit 0")
    assert prerequisites("interpreter", path=str(tools)) == "python3.12"


def test_a_python_without_venv_is_named(tools: Path) -> None:
    command(tools, "python3", 'case "$2" in *venv*) exit 1;; esac; exit 0')
    assert "venv module" in prerequisites("python", path=str(tools))


def test_missing_components_are_named(tools: Path) -> None:
    command(tools, "cargo", "exit 1")
    assert "rustup component add rustfmt clippy" in prerequisites("components", path=str(tools))


def test_nothing_is_printed_when_all_is_there() -> None:
    assert prerequisites("python", "cargo", "components") == ""


def test_the_environment_installs_everything_that_pyproject_names() -> None:
    text = """
        [project]
        name = "p"
        dependencies = ["a>=1"]
        [project.optional-dependencies]
        x = ["b>=2"]
        all = ["p[x]"]
        [dependency-groups]
        dev = ["c>=3"]
    """
    assert requirements.requirements(text) == ["a>=1", "b>=2", "c>=3"]


def test_the_product_needs_numpy_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.split(r"[<>=]", requirement)[0] for requirement in project["dependencies"]] == ["numpy"]


@pytest.mark.parametrize(
    "pair",
    [
        ("threadteam-team", "pyo3"),
        ("threadteam-kernels", "threadteam-program"),
        ("threadteam-team", "threadteam-kernels"),
    ],
    ids=" to ".join,
)
def test_a_crate_that_knows_of_a_higher_layer_is_found(pair: tuple[str, str]) -> None:
    assert check_dependencies.upward([("threadteam-team", "libc"), pair]) == [" -> ".join(pair)]


def test_the_layers_of_the_workspace_are_read_from_its_manifests() -> None:
    found = check_dependencies.dependencies()
    assert {crate for crate, _ in found} == set(check_dependencies.LAYERS)
    assert ("threadteam-python", "pyo3") in found
    assert check_dependencies.upward(found) == []


@pytest.mark.parametrize(
    "line", ["rayon v1.10.0", "rayon-core v1.12.1", 'faer feature "rayon"', "gemm v0.18.0 (rayon)"]
)
def test_rayon_in_the_tree_is_found_as_crate_and_as_feature(line: str) -> None:
    assert check_dependencies.rayon_lines(["libc v0.2.1", line]) == [line]


def test_crates_whose_names_contain_rayon_by_accident_are_let_through() -> None:
    assert check_dependencies.rayon_lines(["crayons v1.0.0"]) == []


@pytest.mark.parametrize(
    "line",
    [
        "std::thread::spawn(f);",
        "thread::scope(|s| ());",
        "let b = thread::Builder::new();",
        "use std::thread::{self, spawn};",
    ],
)
def test_a_second_spawner_is_found(line: str) -> None:
    assert check_dependencies.spawning_lines(f"fn f() {{\n    {line}\n}}\n") == [2]


@pytest.mark.parametrize(
    "source",
    [
        "// std::thread::spawn\n",
        "/* thread::scope */\n",
        "#[cfg(test)]\nmod tests { fn f() { std::thread::spawn(g); } }\n",
        "#[cfg(all(test, not(loom)))]\nmod tests { fn f() { if x { } std::thread::spawn(g); } }\n",
        "fn f() { thread::yield_now(); }\n",
    ],
)
def test_comments_tests_and_other_uses_of_threads_are_let_through(source: str) -> None:
    assert check_dependencies.spawning_lines(source) == []


def test_what_follows_a_test_module_is_still_checked() -> None:
    source = "#[cfg(test)]\nmod tests { fn f() {} }\nfn g() { std::thread::spawn(h); }\n"
    assert check_dependencies.spawning_lines(source) == [3]


def test_the_counts_of_all_rust_test_binaries_are_added_up() -> None:
    results = ["ok. 3 passed; 0 failed; 1 ignored; 0 measured", "FAILED. 2 passed; 1 failed; 0 ignored; 0 measured"]
    output = "".join(f"running\ntest result: {result}\n" for result in results)
    assert check.rust_counts(output) == "5 passed, 1 failed, 1 ignored"


def test_the_counts_of_the_python_tests_are_those_of_the_last_line() -> None:
    assert (
        check.python_counts("FAILED 9 passed\n1 failed, 12 passed, 2 skipped in 3.4s\n")
        == "1 failed, 12 passed, 2 skipped"
    )


def test_the_package_carries_its_workloads() -> None:
    text = resources.files("threadteam.compare").joinpath("workloads/gsg.json").read_text()
    assert len(json.loads(text)["cases"]) == 25


def test_importing_the_package_starts_no_thread() -> None:
    code = "import os, threadteam, threadteam.compare; print(len(os.listdir('/proc/self/task')))"
    if sys.platform != "linux":
        pytest.skip("threads are counted in /proc")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    )
    assert done.stdout.strip() == "1"
