"""The parity table: every row says what shows it, and every file and test that it names is there.

A cell of "Shown by" holds entries, separated by semicolons: a file in backticks and the name of one of its tests with
spaces instead of underscores; a name alone, of a test in the file before it; a file alone, for all that it holds. A
name that ends in an ellipsis is the beginning of one. What stands in parentheses or after a colon is a remark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "parity.md"
#: Where a file that is named without a folder may be.
FOLDERS = ("crates/team/tests", "tests", "crates/team/src", "crates/team", "crates")
#: Entries that name no file: an example beside the item, the entries of the row above, and what no test could show.
OTHERS = ("doctest", "compile-fail doctest", "the same", "by construction")
FUNCTION = re.compile(r"(?:fn|def) (\w+)")


@dataclass(frozen=True)
class Row:
    """A row of a table with a column that says what shows it."""

    line: int
    text: str
    shown: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows() -> Iterator[Row]:
    column: int | None = None
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if not line.startswith("|"):
            column = None
        elif column is None:
            header = cells(line)
            column = header.index("Shown by") if "Shown by" in header else -1
        elif column >= 0 and not set(line) <= set("|- "):
            yield Row(number, line, cells(line)[column])


@cache
def names_in(file: str) -> frozenset[str] | None:
    """The names of the functions of a file, or None when there is no such file."""
    for path in [ROOT / file, *(ROOT / folder / file for folder in FOLDERS)]:
        if path.is_file():
            return frozenset(name.removeprefix("test_") for name in FUNCTION.findall(path.read_text()))
        if path.is_dir():
            return frozenset()
    return None


def wrong(shown: str) -> Iterator[str]:
    """What a cell says that does not hold."""
    file: str | None = None
    for entry in re.split(r";|(?<=…),", re.sub(r"\([^)]*\)", "", shown)):
        words = entry.strip().removeprefix("Python ")
        if words.startswith(OTHERS):
            continue
        named = re.match(r"`([^`]+)`(:?)\s*(.*)$", words, re.DOTALL)
        if named:
            file, words = named[1], "" if named[2] else named[3]
        if file is None:
            yield f"{words!r} names no file"
        elif (names := names_in(file)) is None:
            yield f"there is no file {file}"
        elif words:
            name = re.sub(r"\W+", "_", words.replace("'", "").lower()).strip("_")
            if not any(there == name or (words.endswith("…") and there.startswith(name)) for there in names):
                yield f"{file} has no test {words!r}"


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"line {row.line}")
def test_every_row_names_what_shows_it(row: Row) -> None:
    if "**Not there" not in row.text:
        assert row.shown, f"nothing shows it: {row.text}"
        assert list(wrong(row.shown)) == []


def test_a_row_that_names_nothing_is_noticed() -> None:
    assert (
        list(wrong("`costs.rs` an extrapolated cost saturates; the width minimises…; doctest; `stress.rs` (all)")) == []
    )
    assert list(wrong("`costs.rs` an extrapolated cost")) == ["costs.rs has no test 'an extrapolated cost'"]
    assert list(wrong("`costs.rs` the width…, and no other…")) == ["costs.rs has no test 'and no other…'"]
    assert list(wrong("`nowhere.rs`")) == ["there is no file nowhere.rs"]
    assert list(wrong("a panic of one")) == ["'a panic of one' names no file"]
