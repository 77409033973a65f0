"""Which objects can be copied and pickled: descriptions can, what stands for slots and threads cannot."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import threadteam as tt


def pickled(protocol: int, value: Any) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))


COPIES: dict[str, Callable[[Any], Any]] = {"copy": copy.copy, "deepcopy": copy.deepcopy}
COPIES |= {f"pickle {number}": partial(pickled, number) for number in range(2, pickle.HIGHEST_PROTOCOL + 1)}
ROW = tt.WidthCosts.from_anchors([(2, 1.5e-6), (7, 1 / 3), (65535, 12.0)])
VALUES = {
    "policy": tt.WaitPolicy(0.25, 0.5, idle_spin="adaptive"),
    "override": tt.WaitOverride(spin=0.25, idle_spin="adaptive"),
    "row": ROW,
    "costs": tt.DispatchCosts(ROW, tt.WidthCosts.flat(1e-6), tt.WidthCosts.new(1e-6, 2e-6, 3e-6)),
    "kind": tt.DispatchKind.IN_POOL,
    "class": tt.HostClass("generic"),
    "budget": tt.cpu_budget(),
    "topology": tt.topology(),
}


@pytest.mark.parametrize("attempt", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_copy_of_a_description_is_equal(value: Any, attempt: Callable[[Any], Any]) -> None:
    copied = attempt(value)
    assert type(copied) is type(value)
    assert copied == value


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_participant_cannot_be_copied(attempt: Callable[[Any], Any]) -> None:
    kept: list[tt.Participant] = []
    with tt.Pool(1) as pool, pool.exec().team() as team:
        team.run_with(kept.append)
    with pytest.raises(TypeError, match="stands for one share of a running section"):
        attempt(kept[0])
