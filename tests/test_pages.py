"""The pages of the documentation: their links lead somewhere, and their Python runs."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from threadteam.onnx.lowering import is_lowered
from threadteam.onnx.lowering.context import _LOWERINGS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/README.md"])
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if PYTHON.search(page.read_text())], ids=name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """All blocks of a page, one after the other, in a folder where `model.onnx` is the model of the first example."""
    model = f"""
        import sys; sys.path.insert(0, {str(ROOT / "examples")!r})
        import onnx, serve_model; onnx.save(serve_model.classifier(), "model.onnx")
    """
    code = "\n".join(PYTHON.findall(page.read_text()))
    if "model.onnx" in code:
        code = textwrap.dedent(model) + code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_of_onnx_lists_every_native_operator() -> None:
    text = (ROOT / "docs/onnx.md").read_text().partition("<!-- operators -->")[2].partition("<!-- end -->")[0]
    listed = re.findall(r"\w+", text)
    assert listed == sorted(_LOWERINGS)
    assert all(map(is_lowered, listed))
