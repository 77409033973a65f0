"""Check what the design promises of the Rust side: its layers, no Rayon in the product, one crate that starts threads.

* Each crate depends on crates of lower layers only, and nothing but the bindings on Python.
* `cargo tree` of the extension module must name no `rayon` crate and no `rayon` feature of any dependency.
* No source file outside `crates/team` starts a thread, tests aside.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = "threadteam-python"
SPAWNER = "crates/team"
#: From the lowest up.
LAYERS = ("threadteam-team", "threadteam-kernels", "threadteam-program", PRODUCT)
PYTHON = {"pyo3", "pyo3-ffi", "numpy"}

RAYON = re.compile(r"\brayon\b|\brayon-core\b")
SPAWN = re.compile(r"\bthread\s*::\s*(?:\{[^}]*\b)?(spawn|scope|Builder)\b|\bpthread_create\b")
TEST_ITEM = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def dependencies() -> list[tuple[str, str]]:
    """Each crate of the workspace with each package that its manifest names, for tests too."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cargo metadata failed: {done.stderr.strip()}")
    packages = json.loads(done.stdout)["packages"]
    return [(package["name"], needed["name"]) for package in packages for needed in package["dependencies"]]


def upward(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """`crate -> dependency` of every pair in which a crate knows of its own layer, of a higher one or of Python."""
    found = []
    for crate, needed in pairs:
        higher = needed in LAYERS and LAYERS.index(needed) >= LAYERS.index(crate)
        if higher or (needed in PYTHON and crate != PRODUCT):
            found.append(f"{crate} -> {needed}")
    return found


def product_tree() -> list[str]:
    """One line per crate and enabled feature that the extension module is built from."""
    command = ["cargo", "tree", "--package", PRODUCT, "--edges", "normal,build,features", "--prefix", "none"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cargo tree failed: {done.stderr.strip()}")
    return sorted(set(done.stdout.splitlines()))


def rayon_lines(tree: list[str]) -> list[str]:
    """The lines of a `cargo tree` listing that name Rayon, as a crate or a feature."""
    return [line for line in tree if RAYON.search(line)]


def without_tests(source: str) -> str:
    """`source` without comments and without the items behind `#[cfg(test)]`; line numbers are kept."""

    def blank(text: str) -> str:
        return re.sub(r"[^\n]", " ", text)

    source = COMMENT.sub(lambda match: blank(match.group()), source)
    while match := TEST_ITEM.search(source):
        end = item_end(source, match.end())
        source = source[: match.start()] + blank(source[match.start() : end]) + source[end:]
    return source


def item_end(source: str, start: int) -> int:
    """Where the item that begins at `start` ends: after its closing brace, or its semicolon when it has no body."""
    depth = 0
    for position in range(start, len(source)):
        character = source[position]
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position + 1
        elif character == ";" and depth == 0:
            return position + 1
    return len(source)


def spawning_lines(source: str) -> list[int]:
    """The numbers of the lines of `source` that start threads outside tests."""
    code = without_tests(source)
    return [code.count("\n", 0, match.start()) + 1 for match in SPAWN.finditer(code)]


def second_spawners() -> list[str]:
    """`path:line` of every start of a thread outside the runtime."""
    found = []
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        relative = path.relative_to(ROOT).as_posix()
        is_test = path.stem == "tests" or "tests" in path.relative_to(ROOT).parts
        if relative.startswith(f"{SPAWNER}/") or is_test:
            continue
        found += [f"{relative}:{line}" for line in spawning_lines(path.read_text())]
    return found


def main() -> int:
    """Print every violation; return the exit status."""
    violations = [f"a lower layer knows of a higher one: {pair}" for pair in upward(dependencies())]
    violations += [f"the product's dependency tree names Rayon: {line}" for line in rayon_lines(product_tree())]
    violations += [f"only {SPAWNER} may start threads: {place}" for place in second_spawners()]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
