"""Odd numbers given to the public interface: an error of one clear sentence, or the right thing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import threadteam as tt

ODD: list[Any] = [
    None,
    True,
    "2",
    "",
    b"2",
    (),
    [1],
    object(),
    1j,
    0,
    -1,
    1.5,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    -(10**400),
    2**63,
    -(2**63) - 1,
    2**64,
    np.float32(2.5),
    np.float64("nan"),
    np.int8(-1),
    np.uint64(2**64 - 1),
    np.array(3),
    np.array([1, 2]),
    np.bool_(True),
]

COSTS = tt.WidthCosts.flat(1e-6)
ROWS = tt.DispatchCosts(COSTS, COSTS, COSTS)


def nothing(*_arguments: object) -> None:
    """Do nothing."""


def cost_of_two(width: int) -> float:
    """Return the cost of a width, of which more than two never pay."""
    return 1e-6 if width <= 2 else math.inf


def of_team(token: tt.Exec, method: str, *arguments: object) -> object:
    """Call a method of the token's team."""
    return token.team(lambda team: getattr(team, method)(*arguments))


CALLS: dict[str, Callable[[tt.Exec, Any], object]] = {
    "Pool.threads": lambda token, odd: tt.Pool(odd, acquire_timeout=1.0).close(),
    "Pool.stack_size": lambda token, odd: tt.Pool(1, stack_size=odd).close(),
    "Pool.wait": lambda token, odd: tt.Pool(1, wait=odd).close(),
    "Pool.dispatch_costs": lambda token, odd: tt.Pool(1, dispatch_costs=odd).close(),
    "Pool.qos": lambda token, odd: tt.Pool(1, qos=odd).close(),
    "Exec.limit": lambda token, odd: token.limit(odd).close(),
    "Exec.for_ranges.grain": lambda token, odd: token.for_ranges(4, odd, nothing),
    "Exec.fork_sized": lambda token, odd: token.fork_sized([odd], nothing),
    "Exec.fork_sized.shares": lambda token, odd: token.fork_sized(odd, nothing),
    "Exec.map.grain": lambda token, odd: token.map(abs, [1], grain=odd),
    "Exec.reduce.grain": lambda token, odd: token.reduce(4, odd, nothing, nothing, 0),
    "Exec.dispatch_cost": lambda token, odd: token.dispatch_cost(odd),
    "Exec.pays.estimate": lambda token, odd: token.pays(odd),
    "Exec.pays.sections": lambda token, odd: token.pays(1.0, odd),
    "Exec.pays.width": lambda token, odd: token.pays(1.0, 1, odd),
    "Exec.width_for.estimate": lambda token, odd: token.width_for(odd),
    "Exec.width_for.sections": lambda token, odd: token.width_for(1.0, odd),
    "WidthCosts.flat": lambda token, odd: tt.WidthCosts.flat(odd),
    "WidthCosts.new": lambda token, odd: tt.WidthCosts.new(odd, odd, odd),
    "WidthCosts.from_anchors.width": lambda token, odd: tt.WidthCosts.from_anchors([(odd, 1e-6)]),
    "WidthCosts.from_anchors.cost": lambda token, odd: tt.WidthCosts.from_anchors([(2, odd)]),
    "WidthCosts.at": lambda token, odd: COSTS.at(odd),
    "DispatchCosts": lambda token, odd: tt.DispatchCosts(COSTS, COSTS, odd),
    "HostClass": lambda token, odd: tt.HostClass(odd),
    "pays_at": lambda token, odd: (tt.pays_at(odd, 1, 1e-6), tt.pays_at(1.0, 1, odd)),
    "pays_at.sections": lambda token, odd: tt.pays_at(1.0, odd, 1e-6),
    "width_for_by.budget": lambda token, odd: tt.width_for_by(1.0, 1, odd, cost_of_two),
    "Team.exec": lambda token, odd: team_of(odd),
    "TeamExec.split": lambda token, odd: token.team(lambda team: team.split([odd], nothing)),
}

TIMES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "Pool.acquire_timeout": ("acquire_timeout", lambda odd: tt.Pool(1, acquire_timeout=odd).close()),
    "WaitPolicy.spin": ("spin", tt.WaitPolicy),
    "WaitPolicy.park_after": ("park_after", lambda odd: tt.WaitPolicy(park_after=odd)),
    "WaitPolicy.idle_spin": ("idle_spin", lambda odd: tt.WaitPolicy(idle_spin=odd)),
    "WaitOverride.spin": ("spin", lambda odd: tt.WaitOverride(spin=odd)),
    "WaitOverride.park_after": ("park_after", lambda odd: tt.WaitOverride(park_after=odd)),
    "WaitOverride.idle_spin": ("idle_spin", lambda odd: tt.WaitOverride(idle_spin=odd)),
    "Exec.pays": ("estimate", lambda odd: tt.Exec.serial().pays(odd)),
    "Exec.width_for": ("estimate", lambda odd: tt.Exec.serial().width_for(odd)),
    "WidthCosts.new": ("at_2", lambda odd: tt.WidthCosts.new(odd, 1.0, 1.0)),
    "WidthCosts.flat": ("cost", tt.WidthCosts.flat),
    "pays_at": ("estimate", lambda odd: tt.pays_at(odd, 1, 1e-6)),
    "width_for_by": ("estimate", lambda odd: tt.width_for_by(odd, 1, 2, cost_of_two)),
}
"""Every argument that is a time, by the name that its errors have for it."""

NO_TIMES: list[Any] = [-1, -1e-9, -math.inf, math.nan, math.inf, 10**400, -(10**400), np.float32("nan"), np.int8(-1)]
NO_NUMBERS: list[Any] = [True, False, np.bool_(True), "2", "", b"2", (), [1], object(), 1j, np.array([1, 2])]

LENGTHS: dict[str, Callable[[tt.Exec, Any], object]] = {
    "Exec.for_ranges.length": lambda token, odd: token.for_ranges(odd, 10**300, nothing),
    "Exec.reduce.length": lambda token, odd: token.reduce(odd, 10**300, nothing, nothing, 0),
    "Exec.fork.jobs": lambda token, odd: token.fork(odd, nothing),
}
"""Those of an integer above ``2**63 - 1`` say so with `OverflowError`."""


def team_of(budget: Any) -> None:
    """Take a token of a team."""
    with tt.Pool(1).into_team() as team, team.exec(budget):
        pass


def refusal(call: Callable[[tt.Exec, Any], object], odd: Any) -> Exception | None:
    """Return what a call with an odd argument raises."""
    with tt.Pool(1) as pool, pool.exec() as token:
        try:
            call(token, odd)
        except Exception as error:
            return error
    return None


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_argument_is_a_value_or_type_error_of_one_sentence(name: str) -> None:
    for odd in ODD:
        error = refusal(CALLS[name], odd)
        if error is not None:
            assert isinstance(error, ValueError | TypeError | tt.SplitError), (odd, error)
            assert str(error)
            assert "\n" not in str(error), (odd, error)


@pytest.mark.parametrize("name", TIMES)
def test_what_is_no_time_is_an_error_that_names_the_argument(name: str) -> None:
    argument, call = TIMES[name]
    for odd in NO_TIMES:
        with pytest.raises(ValueError, match=rf"^{argument} must be a time in seconds, .*, got \S+$"):
            call(odd)
    for odd in NO_NUMBERS:
        kind = ValueError if argument == "idle_spin" and isinstance(odd, str) else TypeError
        with pytest.raises(kind, match=rf"^{argument} must be a time in seconds.*, got .+$"):
            call(odd)


@pytest.mark.parametrize("name", TIMES)
def test_any_number_that_is_a_time_is_taken(name: str) -> None:
    _, call = TIMES[name]
    for fine in (0, 1, 0.5, -0.0, np.float32(2.5), np.int8(3), Fraction(1, 3), Decimal("0.25")):
        call(fine)


NOT_OPTIONAL: dict[str, tuple[str, Callable[[tt.Exec], object]]] = {
    "Pool.acquire_timeout": ("acquire_timeout", lambda token: TIMES["Pool.acquire_timeout"][1](None)),
    "Exec.map.grain": ("grain", lambda token: CALLS["Exec.map.grain"](token, None)),
    "Exec.pays.sections": ("sections", lambda token: CALLS["Exec.pays.sections"](token, None)),
    "Exec.width_for.sections": ("sections", lambda token: CALLS["Exec.width_for.sections"](token, None)),
    "TeamExec.pays.sections": ("sections", lambda token: of_team(token, "pays", 1.0, None)),
    "TeamExec.width_for.sections": ("sections", lambda token: of_team(token, "width_for", 1.0, None)),
    "TeamExec.with_wait": ("wait", lambda token: of_team(token, "with_wait", None)),
}
"""Arguments with a default that is not None, or without any."""


@pytest.mark.parametrize("name", NOT_OPTIONAL)
def test_none_is_refused_where_it_is_not_the_default(name: str) -> None:
    argument, call = NOT_OPTIONAL[name]
    with tt.Pool(2, acquire_timeout=30.0) as pool, pytest.raises(TypeError, match=rf"^{argument} must be .*, got None"):
        call(pool.exec())


KINDS: dict[str, tuple[str, str, Callable[[tt.Exec, Any], object]]] = {
    "Pool.name": ("name", "a string", lambda token, odd: tt.Pool(1, name=odd)),
    "Pool.threads": ("threads", "an integer", lambda token, odd: tt.Pool([odd])),  # type: ignore[arg-type]
    "Pool.stack_size": ("stack_size", "an integer", lambda token, odd: tt.Pool(1, stack_size=[odd])),  # type: ignore[arg-type]
    "Pool.on_start": ("on_start", "callable", lambda token, odd: tt.Pool(1, on_start=odd)),
    "Pool.pin_participants": ("pin_participants", "True or False", lambda token, odd: tt.Pool(1, pin_participants=odd)),
    "Pool.wait": ("wait", "a WaitPolicy or a WaitOverride", lambda token, odd: tt.Pool(1, wait=odd)),
    "Pool.qos": ("qos", "a string", lambda token, odd: tt.Pool(1, qos=odd)),
    "Pool.dispatch_costs": ("dispatch_costs", "a DispatchCosts", lambda token, odd: tt.Pool(1, dispatch_costs=odd)),
    "Pool.exec": ("budget", "an integer", lambda token, odd: tt.Pool(1).exec([odd])),  # type: ignore[arg-type]
    "Pool.into_team": ("width", "an integer", lambda token, odd: tt.Pool(1).into_team([odd])),  # type: ignore[arg-type]
    "Pool.into_team.wait": (
        "wait",
        "a WaitPolicy or a WaitOverride",
        lambda token, odd: tt.Pool(1).into_team(wait=odd),
    ),
    "Exec": ("pool", "a Pool", lambda token, odd: tt.Exec(odd)),
    "Exec.for_ranges": ("body of Exec.for_ranges\\(\\)", "callable or", lambda token, odd: token.for_ranges(1, 1, odd)),
    "Exec.fork": ("body of Exec.fork\\(\\)", "callable or", lambda token, odd: token.fork(1, odd)),
    "Exec.fork_sized": ("shares", "iterable", lambda token, odd: token.fork_sized(odd, nothing)),
    "Exec.broadcast": ("body of Exec.broadcast\\(\\)", "callable or", lambda token, odd: token.broadcast(odd)),
    "Exec.map": ("iterable", "iterable", lambda token, odd: token.map(abs, odd)),
    "Exec.map.function": ("function of Exec.map\\(\\)", "callable", lambda token, odd: token.map(odd, [1])),
    "Exec.reduce": ("map_body of Exec", "callable", lambda token, odd: token.reduce(1, 1, odd, nothing, 0)),
    "Exec.reduce.combine": ("combine", "callable", lambda token, odd: token.reduce(1, 1, nothing, odd, 0)),
    "Exec.team": ("body of Exec.team\\(\\)", "callable", lambda token, odd: token.team(odd)),
    "Exec.team.wait": ("wait", "a WaitPolicy or", lambda token, odd: token.team(wait=odd)),
    "Exec.external": ("function of Exec.external\\(\\)", "callable", lambda token, odd: token.external(odd)),
    "TeamExec.run": ("body of TeamExec.run\\(\\)", "callable or", lambda token, odd: of_team(token, "run", odd)),
    "TeamExec.split": ("sizes", "iterable", lambda token, odd: of_team(token, "split", odd, nothing)),
    "HostClass": ("name", "a string", lambda token, odd: tt.HostClass(odd)),
    "DispatchCosts": ("in_pool", "a WidthCosts", lambda token, odd: tt.DispatchCosts(COSTS, odd, COSTS)),
    "DispatchCosts.for_class": ("class_", "a HostClass", lambda token, odd: tt.DispatchCosts.for_class(odd)),
    "DispatchCosts.row": ("kind", "a DispatchKind", lambda token, odd: ROWS.row(odd)),
    "DispatchCosts.cost": ("kind", "a DispatchKind", lambda token, odd: ROWS.cost(odd, 2)),
    "DispatchCosts.min_cost": ("kind", "a DispatchKind", lambda token, odd: ROWS.min_cost(odd)),
    "DispatchCosts.with_costs": (
        "costs",
        "a WidthCosts",
        lambda token, odd: ROWS.with_costs(tt.DispatchKind.TEAM, odd),
    ),
    "WidthCosts.from_anchors": ("anchors", "iterable", lambda token, odd: tt.WidthCosts.from_anchors(odd)),
    "width_for_by": ("cost", "callable", lambda token, odd: tt.width_for_by(1.0, 1, 2, odd)),
    "trace": ("capacity", "an integer", lambda token, odd: tt.trace(capacity=[odd]).__enter__()),  # type: ignore[arg-type]
}
"""Every argument that is no time, by the name and the kind that its errors have for it."""


@pytest.mark.parametrize("name", KINDS)
def test_an_argument_of_the_wrong_type_is_one_sentence_with_its_name_and_value(name: str) -> None:
    argument, expected, call = KINDS[name]
    for odd in (5, 2.5, object()):
        error = refusal(call, odd)
        assert isinstance(error, TypeError), (odd, error)
        assert re.match(rf"{argument}.* must be {expected}.*, got .+ of type \w+$", str(error)), error
        assert not getattr(error, "__notes__", []), error


def test_a_name_that_no_system_can_show_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^name must be a string of whole characters, got '.ud800'$"):
        tt.Pool(1, name="\ud800")


def test_an_error_of_the_iterable_itself_is_raised_as_it_is() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise TypeError("mine")

    with tt.Exec.serial() as token, pytest.raises(TypeError, match=r"^mine$"):
        token.map(abs, failing())


@pytest.mark.parametrize("name", LENGTHS)
def test_an_odd_length_is_refused_as_any_number_is_or_overflows(name: str) -> None:
    for odd in ODD:
        error = refusal(LENGTHS[name], odd)
        if error is not None:
            assert isinstance(error, ValueError | TypeError | OverflowError), (odd, error)
            assert "\n" not in str(error), (odd, error)


def test_a_number_that_is_too_large_is_shown_as_it_was_given() -> None:
    huge = 10**30
    with tt.Pool(2, acquire_timeout=30.0) as pool, pool.exec() as token:
        for call in (
            lambda: tt.Pool(huge),
            lambda: token.fork_sized([1, huge], nothing),
            lambda: token.team(lambda team: team.split([1, huge], nothing)),
        ):
            with pytest.raises((ValueError, tt.SplitError), match=rf"got (\[1, )?{huge}"):
                call()
