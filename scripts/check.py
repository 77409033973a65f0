"""Run the project's checks: the fast ones first, then every Rust test and loom model, then every Python test.

`check.py lint` runs the fast checks, `check.py all` everything; the last lines count the tests.
The fast checks print one line each, and their output only when they fail.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PYTHON_TREES = ["python", "tests", "scripts", "benchmarks", "examples"]


@dataclass(frozen=True)
class Check:
    """A command and what it shows."""

    name: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)


def tool(name: str) -> str:
    """The path of a tool of this environment."""
    return str(BIN / name)


# The runtime with what only its tests need: every token has an account, and threads stop where a test says.
HOOKED = ["--package", "threadteam-team", "--features", "ledger,test-hooks"]
FAST = [
    Check("rustfmt", ["cargo", "fmt", "--all", "--check"]),
    Check("rustfmt of the benchmark", ["cargo", "fmt", "--check", "--manifest-path", "benchmarks/dispatch/Cargo.toml"]),
    Check(
        "rustfmt of the native twins",
        ["cargo", "fmt", "--check", "--manifest-path", "benchmarks/python_call/native/Cargo.toml"],
    ),
    Check("ruff format", [tool("ruff"), "format", "--check", *PYTHON_TREES]),
    Check("ruff check", [tool("ruff"), "check", *PYTHON_TREES]),
    Check("mypy --strict", [tool("mypy")]),
    Check("layers", [tool("lint-imports")]),
    Check("dependencies", [sys.executable, "scripts/check_dependencies.py"]),
    Check("clippy", ["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    Check(
        "clippy of the ledger and hooks",
        ["cargo", "clippy", *HOOKED, "--all-targets", "--quiet", "--", "-D", "warnings"],
    ),
    # Private items too: the links in their comments are what a reader follows.
    Check(
        "rustdoc",
        ["cargo", "doc", *HOOKED, "--no-deps", "--document-private-items", "--quiet"],
        {"RUSTDOCFLAGS": "-D warnings"},
    ),
]
# The extension module has no Rust tests, and clippy has compiled the examples.
CARGO_TEST = ["cargo", "test", "--workspace", "--exclude", "threadteam-python", "--no-fail-fast"]
RUST = Check("Rust tests", [*CARGO_TEST, "--lib", "--tests"])
RUST_EXAMPLES = Check("Rust documentation tests", [*CARGO_TEST, "--doc"])
# The other tests ran without these features.
HOOKS = Check(
    "Rust tests with the ledger and hooks",
    ["cargo", "test", *HOOKED, "--no-fail-fast", "--test", "hooks", "--test", "ledger", "--test", "stress"],
)
HOOKS_EXAMPLES = Check("Their documentation tests", ["cargo", "test", *HOOKED, "--doc", "--", "ledger", "test_hooks"])
# The models are compiled with other flags than everything else, so they have a target directory of their own.
LOOM = Check(
    "Loom models of the runtime",
    ["cargo", "test", "--release", "--package", "threadteam-team", "--lib", "models"],
    {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": str(ROOT / "target" / "loom")},
)
PYTHON = Check("Python tests", [tool("pytest"), "--quiet", "--color=auto"])
TESTS = [RUST, RUST_EXAMPLES, HOOKS, HOOKS_EXAMPLES, LOOM, PYTHON]

RUST_RESULT = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
PYTHON_RESULT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed)\b")


def environment(check: Check) -> dict[str, str]:
    """The environment of a check: this virtual environment first, so that subprocesses find the same package."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(BIN.parent), **check.variables}


def run_fast(check: Check) -> bool:
    """Run `check` and print one line, followed by its output when it fails."""
    start = time.perf_counter()
    done = subprocess.run(check.command, cwd=ROOT, env=environment(check), capture_output=True, text=True)
    seconds = time.perf_counter() - start
    print(f"  {'ok  ' if done.returncode == 0 else 'FAIL'} {check.name} ({seconds:.1f} s)", flush=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode == 0


@dataclass(frozen=True)
class Tested:
    """How a run of tests went."""

    well: bool
    output: str
    seconds: float


def run_tests(check: Check) -> Tested:
    """Run `check`, passing its output through."""
    print(f"==> {check.name}", flush=True)
    start = time.perf_counter()
    lines = []
    with subprocess.Popen(
        check.command, cwd=ROOT, env=environment(check), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return Tested(process.returncode == 0, "".join(lines), time.perf_counter() - start)


def rust_counts(output: str) -> str:
    """The sum of the results of every test binary in `output`."""
    results = RUST_RESULT.findall(output)
    passed, failed, ignored = (sum(int(result[column]) for result in results) for column in range(3))
    return f"{passed} passed, {failed} failed, {ignored} ignored"


def python_counts(output: str) -> str:
    """The counts of pytest's last line."""
    found = PYTHON_RESULT.findall(output.rstrip().rpartition("\n")[2])
    return ", ".join(f"{count} {what}" for count, what in found) or "no tests ran"


def main(what: str) -> int:
    """Run the checks that `what` ("lint" or "all") names; return the exit status."""
    start = time.perf_counter()
    print("==> Formatters, linters, types, layers, dependencies", flush=True)
    results = [run_fast(check) for check in FAST]
    if not all(results):
        return 1
    if what == "lint":
        return 0
    runs = [run_tests(check) for check in TESTS]
    for check, run in zip(TESTS, runs, strict=True):
        counts = python_counts(run.output) if check is PYTHON else rust_counts(run.output)
        print(f"{check.name}: {counts} ({run.seconds:.0f} s)")
    well = all(run.well for run in runs)
    print(f"{'All well' if well else 'FAILED'} after {time.perf_counter() - start:.0f} s")
    return 0 if well else 1


if __name__ == "__main__":
    if sys.argv[1:] not in (["lint"], ["all"]):
        sys.exit("usage: check.py lint|all")
    sys.exit(main(sys.argv[1]))
