"""The cost model from Python: rows, the rule, and what is refused."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import threadteam as tt
from hypothesis import given
from hypothesis import strategies as st

COSTS = st.floats(1e-9, 1e-3)
ANCHORS = st.dictionaries(st.integers(2, 2000), COSTS, min_size=1, max_size=12).map(lambda row: sorted(row.items()))


@given(ANCHORS)
def test_a_row_holds_its_anchors(anchors: list[tuple[int, float]]) -> None:
    row = tt.WidthCosts.from_anchors(anchors)
    assert [width for width, _ in row.anchors] == [width for width, _ in anchors]
    for width, cost in anchors:
        assert row.at(width) == pytest.approx(cost, abs=1e-9)


@given(ANCHORS, st.integers(1, 10_000))
def test_a_row_is_flat_then_lines_then_proportional(anchors: list[tuple[int, float]], width: int) -> None:
    row = tt.WidthCosts.from_anchors(anchors)
    exact = row.anchors
    below = [pair for pair in exact if pair[0] <= width]
    above = [pair for pair in exact if pair[0] >= width]
    if not below:
        expected = exact[0][1]
    elif not above:
        expected = exact[-1][1] * width / exact[-1][0]
    else:
        (low, first), (high, last) = below[-1], above[0]
        expected = first if low == high else first + (last - first) * (width - low) / (high - low)
    assert row.at(width) == pytest.approx(expected, rel=1e-9, abs=2e-9)


@given(ANCHORS, st.floats(0, 1e-2), st.integers(0, 50), st.integers(1, 64))
def test_the_chosen_width_pays_and_none_that_pays_is_faster(
    anchors: list[tuple[int, float]], estimate: float, sections: int, budget: int
) -> None:
    row = tt.WidthCosts.from_anchors(anchors)
    chosen = tt.width_for_by(estimate, sections, budget, row.at)

    def time(width: int) -> float:
        return estimate if width == 1 else sections * row.at(width) + estimate / width

    paying = [width for width in range(2, budget + 1) if tt.pays_at(estimate, sections, row.at(width))]
    assert chosen in [1, *paying]
    assert time(chosen) <= min(map(time, [1, *paying])) + 1e-9


@given(st.floats(0, 1e-2), st.integers(0, 1000), COSTS)
def test_a_region_pays_at_three_times_its_sections(estimate: float, sections: int, cost: float) -> None:
    due = tt.PAYS * sections * cost
    if not math.isclose(estimate, due, rel_tol=1e-6, abs_tol=1e-6):
        assert tt.pays_at(estimate, sections, cost) == (estimate > due)


def test_nothing_pays_where_there_is_nothing_to_dispatch() -> None:
    assert not tt.pays_at(1e9, 1, math.inf)
    assert tt.Exec.serial().dispatch_cost(8) == math.inf
    assert not tt.Exec.serial().pays(1e9)
    assert tt.width_for_by(1.0, 1, 8, lambda width: math.inf) == 1


def test_a_kind_of_costs_can_be_read_and_replaced() -> None:
    row = tt.WidthCosts.from_anchors([(2, 1e-6), (64, 5e-6)])
    costs = tt.DispatchCosts.host_default().with_costs(tt.DispatchKind.IN_POOL, row)
    assert costs.row(tt.DispatchKind.IN_POOL) == row
    assert costs.row(tt.DispatchKind.TEAM) == tt.DispatchCosts.host_default().row(tt.DispatchKind.TEAM)


def test_a_worker_is_charged_the_kind_of_its_own() -> None:
    flat = [tt.WidthCosts.flat(cost) for cost in (1e-6, 2e-6, 3e-6)]
    with tt.Pool(2, dispatch_costs=tt.DispatchCosts(*flat), acquire_timeout=60) as pool:
        seen: dict[int, float] = {}

        def charge(index: int) -> None:
            with pool.exec() as token:
                seen[index] = token.dispatch_cost(2)

        pool.exec().broadcast(charge)
        assert seen == {0: 3e-6, 1: 2e-6}
        with pool.exec().team() as team:
            assert team.dispatch_cost(2) == 1e-6


def test_every_class_has_a_row_and_a_name() -> None:
    names = ["x86_64-avx512", "x86_64-avx2", "x86_64-scalar", "aarch64-apple", "aarch64", "generic"]
    classes = [tt.HostClass(name) for name in names]
    assert [each.name for each in classes] == names
    assert len(set(classes)) == len(names)
    assert tt.HostClass.detect() in classes
    for each in classes:
        costs = tt.DispatchCosts.for_class(each)
        assert costs.cost(tt.DispatchKind.TEAM, 2) <= costs.cost(tt.DispatchKind.OUTSIDE, 2) < 3e-6


BAD_TIMES = [-1.0, -1e-300, math.nan, math.inf, -math.inf, 1e300, 10**400, -(10**400)]
TAKES_A_TIME: dict[str, Callable[[Any], object]] = {
    "estimate of pays_at": lambda time: tt.pays_at(time, 1, 1e-6),
    "estimate of width_for_by": lambda time: tt.width_for_by(time, 1, 4, lambda width: 1e-6),
    "estimate of pays": lambda time: tt.Exec.serial().pays(time),
    "estimate of width_for": lambda time: tt.Exec.serial().width_for(time),
    "cost of flat": tt.WidthCosts.flat,
    "cost of new": lambda time: tt.WidthCosts.new(1e-6, time, 1e-6),
    "cost of an anchor": lambda time: tt.WidthCosts.from_anchors([(2, time)]),
}
NEVER = {"cost of pays_at": lambda time: tt.pays_at(1e-3, 1, time),
         "cost of a function": lambda time: tt.width_for_by(1e-3, 1, 4, lambda width: time)}  # fmt: skip


#: A cost may be infinite: there is nothing to dispatch then.
BAD = [
    (where, time) for where in [*TAKES_A_TIME, *NEVER] for time in BAD_TIMES if where not in NEVER or time != math.inf
]


@pytest.mark.parametrize(("where", "time"), BAD)
def test_a_time_that_is_none_is_a_value_error_that_shows_it(where: str, time: Any) -> None:
    with pytest.raises(ValueError, match="must be a time in seconds, finite and zero or more, got"):
        {**TAKES_A_TIME, **NEVER}[where](time)


@pytest.mark.parametrize("time", ["1", None, [1.0], 1j])
@pytest.mark.parametrize("where", [*TAKES_A_TIME, *NEVER])
def test_a_time_of_another_type_is_a_type_error_that_shows_it(where: str, time: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a time in seconds, got .* of type"):
        {**TAKES_A_TIME, **NEVER}[where](time)


COUNTS: dict[str, Callable[[Any], object]] = {
    "pays_at": lambda sections: tt.pays_at(1e-3, sections, 1e-6),
    "width_for_by": lambda sections: tt.width_for_by(1e-3, sections, 4, lambda width: 1e-6),
    "pays": lambda sections: tt.Exec.serial().pays(1e-3, sections),
    "width_for": lambda sections: tt.Exec.serial().width_for(1e-3, sections),
}


@pytest.mark.parametrize("sections", [-1, 2**32, 10**400, -(10**400)])
@pytest.mark.parametrize("where", COUNTS)
def test_a_count_of_sections_out_of_range_is_a_value_error(where: str, sections: int) -> None:
    with pytest.raises(ValueError, match="sections must be an integer from 0 to 4294967295, got"):
        COUNTS[where](sections)


@pytest.mark.parametrize("sections", [1.0, "1"])
@pytest.mark.parametrize("where", COUNTS)
def test_a_count_of_sections_that_is_no_integer_is_a_type_error(where: str, sections: Any) -> None:
    with pytest.raises(TypeError, match="sections must be an integer, got"):
        COUNTS[where](sections)


@pytest.mark.parametrize(
    ("anchors", "error", "message"),
    [
        ([(-1, 1e-6)], ValueError, "the width of an anchor must be at least 1, got -1"),
        ([(1, 1e-6)], ValueError, "rise strictly from at least 2 to at most 65535, got 1 with the widths .1."),
        ([(2, 1e-6), (2, 1e-6)], ValueError, "rise strictly"),
        ([(10**400, 1e-6)], ValueError, "rise strictly"),
        ([], ValueError, "1 to 12 pairs"),
        ([(width, 1e-6) for width in range(2, 15)], ValueError, "got 13"),
        ([(2.0, 1e-6)], TypeError, "the width of an anchor must be an integer"),
        ([(2,)], TypeError, "an anchor must be a pair"),
        ([2], TypeError, "an anchor must be a pair"),
        (3, TypeError, "iterable"),
    ],
)
def test_anchors_that_are_none_are_named(anchors: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tt.WidthCosts.from_anchors(anchors)


def test_anchors_come_from_any_iterable() -> None:
    assert tt.WidthCosts.from_anchors((width, 1e-6) for width in (2, 4)).anchors == [(2, 1e-6), (4, 1e-6)]
    assert tt.WidthCosts.MAX_ANCHORS == 12


def test_what_a_cost_function_raises_is_raised() -> None:
    def cost(width: int) -> float:
        raise KeyError(width)

    with pytest.raises(KeyError, match="2"):
        tt.width_for_by(1e-3, 1, 8, cost)


def test_an_unknown_class_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r'"x86".*x86_64-avx2.*generic'):
        tt.HostClass("x86")


@pytest.mark.parametrize("width", [0, -1])
def test_a_width_below_one_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="width must be at least 1"):
        tt.WidthCosts.flat(1e-6).at(width)
    with pytest.raises(ValueError, match="width must be at least 1"):
        tt.DispatchCosts.host_default().cost(tt.DispatchKind.TEAM, width)


def test_a_width_beyond_any_machine_saturates() -> None:
    assert tt.WidthCosts.flat(1e-6).at(10**400) > 1e6
