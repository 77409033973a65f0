"""Optional dependencies: what needs one names its extra when it is missing, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest
import threadteam
from script import run

NEEDS = {
    "onnx": ("onnx", "import threadteam; threadteam.onnx"),
    "onnx.helper": ("onnx", "from threadteam.compare import chains; chains()[0].model()"),
    "matplotlib": (
        "plot",
        """
        import threadteam
        with threadteam.Pool(2) as pool, threadteam.trace() as recorded:
            pool.exec().for_ranges(8, 1, lambda start, stop: None)
        recorded.timeline().draw("picture.png")
        """,
    ),
}


def hide(folder: Path, module: str) -> dict[str, str]:
    """An environment in which `module` cannot be found."""
    (folder / f"{module}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')")
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize("needed", NEEDS)
def test_what_needs_an_extra_names_it(needed: str, tmp_path: Path) -> None:
    extra, code = NEEDS[needed]
    out = run(
        f"""
        import textwrap, threadteam
        try:
            exec(textwrap.dedent({code!r}))
        except threadteam.MissingExtra as error:
            print(error)
        """,
        env=hide(tmp_path, needed.partition(".")[0]),
    )
    assert f"pip install 'threadteam[{extra}]'" in out


@pytest.mark.parametrize("module", ["onnx", "matplotlib", "typer", "rich", "ml_dtypes", "threadpoolctl"])
def test_the_runtime_needs_no_extra(module: str, tmp_path: Path) -> None:
    out = run(
        """
        import threadteam as tt
        with tt.Pool(2) as pool, tt.trace() as recorded:
            print(pool.exec().map(abs, [-1]), pool.exec().external(int) in (1, 2))
        recorded.timeline()
        print(len(tt.interop.widths()) >= 0)
        """,
        env=hide(tmp_path, module),
    )
    assert out.splitlines() == ["[1] True", "True"]


@pytest.mark.parametrize("module", ["onnx", "ml_dtypes"])
def test_the_help_and_a_star_import_need_no_extra(module: str) -> None:
    out = run(
        f"""
        import sys
        sys.modules[{module!r}] = None  # cannot be imported
        from threadteam import *
        import pydoc, threadteam
        print("class Pool" in pydoc.render_doc(threadteam, renderer=pydoc.plaintext), "onnx" in dir(threadteam))
        """
    )
    assert out == "True False\n"


def test_the_front_end_is_listed_where_its_extra_is_installed() -> None:
    assert "onnx" in dir(threadteam)
