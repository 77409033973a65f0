"""Bodies whose call only makes something to await or to iterate: refused, because nobody would."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import threadteam as tt

RAN: list[int] = []


async def coroutine(*_arguments: object) -> None:
    """Say that it ran."""
    RAN.append(1)


async def asynchronous_generator(*_arguments: object) -> AsyncIterator[int]:
    """Say that it ran."""
    RAN.append(1)
    yield 1


def generator(*_arguments: object) -> Iterator[int]:
    """Say that it ran."""
    RAN.append(1)
    yield 1


class Awaitable:
    """Something to await that is no coroutine."""

    def __await__(self) -> Iterator[None]:
        yield


DEFERRED: dict[str, Any] = {
    "an async function": coroutine,
    "an async generator": asynchronous_generator,
    "a generator": generator,
    "a lambda that returns a coroutine": lambda *_arguments: coroutine(),
    "a partial of an async function": functools.partial(coroutine, 1),
    "a function that returns an awaitable": lambda *_arguments: Awaitable(),
}

DROP: dict[str, Callable[[tt.Exec, Any], object]] = {
    "Exec.for_ranges": lambda token, body: token.for_ranges(8, 1, body),
    "Exec.fork": lambda token, body: token.fork(8, body),
    "Exec.fork_sized": lambda token, body: token.fork_sized([1, 1], body),
    "Exec.broadcast": lambda token, body: token.broadcast(body),
    "TeamExec.run": lambda token, body: token.team(lambda team: team.run(body)),
    "TeamExec.run_with": lambda token, body: token.team(lambda team: team.run_with(body)),
    "TeamExec.split": lambda token, body: token.team(lambda team: team.split([1, 1], body)),
    "TeamExec.fork": lambda token, body: token.team(lambda team: team.fork(2, body)),
}
"""Entries that drop what their bodies return."""

USE: dict[str, Callable[[tt.Exec, Any], object]] = {
    "Exec.reduce": lambda token, body: token.reduce(8, 1, body, lambda so_far, _: so_far, 0),
    "Exec.reduce.combine": lambda token, body: token.reduce(8, 1, lambda start, stop: 1, body, 0),
    "Exec.team": lambda token, body: token.team(body),
    "Exec.external": lambda token, body: token.external(body),
    "TeamExec.external": lambda token, body: token.team(lambda team: team.external(body)),
}
"""Entries whose functions must have done their work when they return."""


@pytest.fixture
def token() -> Iterator[tt.Exec]:
    RAN.clear()
    with tt.Pool(2, acquire_timeout=30.0) as pool, warnings.catch_warnings():
        # A coroutine that is dropped before it was closed would warn.
        warnings.simplefilter("error")
        yield pool.exec()
    assert not RAN


@pytest.mark.parametrize("body", DEFERRED)
@pytest.mark.parametrize("entry", DROP)
def test_a_body_that_defers_its_work_is_refused_in_one_sentence(token: tt.Exec, entry: str, body: str) -> None:
    sentence = rf"^{entry}\(\) got .+, which returned an object of type \w+ that nobody would .+; pass a plain function"
    with pytest.raises(TypeError, match=sentence) as caught:
        DROP[entry](token, DEFERRED[body])
    assert not getattr(caught.value, "__notes__", [])
    token.for_ranges(2, 1, lambda start, stop: None)  # the token came back


@pytest.mark.parametrize("entry", USE)
def test_a_function_whose_result_is_used_must_not_return_an_awaitable(token: tt.Exec, entry: str) -> None:
    sentence = rf"^{entry.removesuffix('.combine')}\(\) got .+ that nobody would await; pass a plain function"
    for name in ("an async function", "a lambda that returns a coroutine", "a function that returns an awaitable"):
        with pytest.raises(TypeError, match=sentence):
            USE[entry](token, DEFERRED[name])
    token.for_ranges(2, 1, lambda start, stop: None)


@pytest.mark.parametrize("entry", ["for_ranges", "fork"])
def test_a_body_that_defers_its_work_is_refused_on_a_single_slot_too(entry: str) -> None:
    with tt.Exec.serial() as token, pytest.raises(TypeError, match="nobody would await"):
        DROP[f"Exec.{entry}"](token, coroutine)


def test_a_start_hook_that_is_asynchronous_is_refused_when_the_pool_is_made() -> None:
    with pytest.raises(
        TypeError, match=r"^on_start must be a plain function, got the asynchronous <function coroutine"
    ):
        tt.Pool(2, on_start=coroutine)


def test_map_hands_coroutines_to_who_awaits_them(token: tt.Exec) -> None:
    async def double(number: int) -> int:
        return 2 * number

    async def gather() -> list[int]:
        return await asyncio.gather(*token.map(double, range(3)))

    assert asyncio.run(gather()) == [0, 2, 4]


def test_asyncio_runs_inside_a_plain_body(token: tt.Exec) -> None:
    async def double(number: int) -> int:
        return 2 * number

    assert token.map(lambda number: asyncio.run(double(number)), range(3)) == [0, 2, 4]


@pytest.mark.parametrize("result", [0, "text", [1], object(), MagicMock(), asyncio.Queue])
def test_any_other_result_of_a_body_is_dropped(token: tt.Exec, result: object) -> None:
    token.for_ranges(4, 1, lambda start, stop: result)
    token.team(lambda team: team.run(lambda index, size: result))


def test_results_that_are_used_may_be_generators(token: tt.Exec) -> None:
    found = token.reduce(4, 2, lambda start, stop: (i for i in range(start, stop)), lambda a, b: [*a, *b], [])
    assert found == [0, 1, 2, 3]
