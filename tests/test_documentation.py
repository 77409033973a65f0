"""The documentation of the extension module: complete, and its examples run."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest
import threadteam as tt
from threadteam import _native


def documented() -> Iterator[tuple[str, str | None]]:
    for name in tt.__all__:
        if name in ("interop", "onnx", "testing"):
            continue
        member = getattr(tt, name)
        if getattr(_native, name, None) is not member or not (inspect.isclass(member) or callable(member)):
            continue
        yield name, member.__doc__
        if inspect.isclass(member):
            for inner in vars(member):
                if not inner.startswith("_"):
                    yield f"{name}.{inner}", getattr(member, inner).__doc__


DOCUMENTED = dict(documented())


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_is_documented(name: str) -> None:
    assert DOCUMENTED[name]


@pytest.mark.parametrize("module", [tt, tt.interop, tt.testing], ids=lambda module: module.__name__)
def test_every_public_class_and_function_has_an_example(module: ModuleType) -> None:
    public = [getattr(module, name) for name in module.__all__]
    assert [thing for thing in public if callable(thing) and ">>>" not in (thing.__doc__ or "")] == []


@pytest.mark.parametrize("name", [name for name, text in DOCUMENTED.items() if text and ">>>" in text])
def test_examples_run(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(DOCUMENTED[name] or "", {}, name, None, None)
    failed = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed
    assert failed == 0


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_call_shows_its_parameters(name: str) -> None:
    # A name that is no name of Python's, `class` say, hides the whole signature.
    owner, _, member = name.partition(".")
    thing = getattr(getattr(tt, owner), member) if member else getattr(tt, owner)
    if callable(thing) and not inspect.isclass(thing) and not isinstance(thing, tt.DispatchKind):
        shown = inspect.signature(thing)
        assert [parameter for parameter in shown.parameters.values() if parameter.default is ...] == []


def test_a_default_that_is_a_number_is_shown_as_one() -> None:
    assert inspect.signature(tt.Exec.map).parameters["grain"].default == 1
    for method in (tt.Exec.pays, tt.Exec.width_for, tt.TeamExec.pays, tt.TeamExec.width_for):
        assert inspect.signature(method).parameters["sections"].default == 1
