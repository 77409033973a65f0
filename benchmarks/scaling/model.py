"""A discrete-event model of one gang section: who posts to whom, when each share starts, when the leader knows its end.

An event is the moment at which a line reaches a core. Cores do one thing at a time; lines move independently, so posts
to many members overlap as far as the measured gap between two stores says.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from machines import Machine

FAN = 32
"""The most members that one participant posts to (``FAN`` in ``crates/team/src/relay.rs``)."""

Children = list[tuple[int, "Children"]]
"""The members that one participant posts to, each with those that it posts to in turn."""


@dataclass(frozen=True)
class Costs:
    """What a participant spends on its own instructions, in ns.

    ``poll`` is the mean time from a line's arrival to the poll that sees it; ``enter`` from there to the share;
    ``post`` the stores of one post; ``look`` one look at a member's word.
    """

    poll: float = 12.0
    enter: float = 20.0
    post: float = 3.0
    look: float = 1.0


@dataclass
class Outcome:
    """What one section took."""

    total: float
    """From the leader's call to its return, less the body's time."""
    last_start: float
    """When the last share started."""
    joined: float
    """The part of the total after the last share ended."""
    posts: int
    """The most posts that one participant made."""
    depth: int
    """The longest chain of posts to a member."""
    lines: int = 0
    """Lines that the leader stores to or loads, one after another on its side."""
    starts: list[float] = field(default_factory=list, repr=False)


def flat(members: int) -> Children:
    """The leader posts to every member."""
    return [(member, []) for member in range(1, members + 1)]


def relayed(members: int, fan: int = FAN) -> Children:
    """The leader posts to at most ``fan`` captains, each to its own group, which is cut in the same way."""
    return list(_groups(1, members, fan)) if members > fan else flat(members)


def _groups(first: int, count: int, fan: int) -> Iterator[tuple[int, Children]]:
    parts = min(count, fan)
    for part in range(parts):
        size = count // parts + (part < count % parts)
        if size:
            yield first, list(_groups(first + 1, size - 1, fan)) if size > 1 else []
            first += size


def section(machine: Machine, costs: Costs, members: int, children: Children, body: float, gather: bool) -> Outcome:
    """One gang section of a leader, core 0, and ``members`` others.

    With ``gather`` whoever posted to a member also waits for it, and the leader for its own only; otherwise the leader
    looks at every member.
    """
    arrivals: list[tuple[float, int]] = []
    below: dict[int, Children] = {0: children}
    depth = {0: 0}

    def post(sender: int, now: float) -> float:
        """Post to the sender's children from ``now`` on; return when it is done."""
        for member, its in below.get(sender, []):
            now += max(costs.post, machine.store_gap * machine.transfer(sender, member))
            heapq.heappush(arrivals, (now + machine.transfer(sender, member), member))
            below[member] = its
            depth[member] = depth[sender] + 1
        return now

    start, end = {0: post(0, 0.0)}, {}
    end[0] = start[0] + body
    while arrivals:
        arrived, member = heapq.heappop(arrivals)
        start[member] = post(member, arrived + costs.poll + costs.enter)
        end[member] = start[member] + body
    done = _gathered if gather else _joined
    total = done(machine, costs, below, end)
    return Outcome(
        total=total - body,
        last_start=max(start.values()),
        joined=total - max(end.values()),
        posts=max(len(its) for its in below.values()),
        depth=max(depth.values()),
        lines=len(children) + (len(children) if gather else members),
        starts=[start[member] for member in range(members + 1)],
    )


def _joined(machine: Machine, costs: Costs, _below: dict[int, Children], end: dict[int, float]) -> float:
    """The leader looks at every member in turn."""
    return _wait(machine, costs, 0, sorted(member for member in end if member), end, end[0])


def _gathered(machine: Machine, costs: Costs, below: dict[int, Children], end: dict[int, float]) -> float:
    """Everyone waits for those that it posted to, and leaves then."""

    def left(member: int) -> float:
        mine = [child for child, _ in below.get(member, [])]
        return _wait(machine, costs, member, mine, {child: left(child) for child in mine}, end[member])

    return left(0)


def _wait(machine: Machine, costs: Costs, waiter: int, members: list[int], left: dict[int, float], now: float) -> float:
    """Look at ``members`` in order, from ``now`` on, until all have left. A line that is there overlaps others."""
    for member in members:
        transfer = machine.transfer(waiter, member)
        arrives = left[member] + transfer
        if arrives > now:
            now = arrives + costs.poll
        else:
            now += max(costs.look, machine.load_gap * transfer)
    return now


PLANS: dict[str, tuple[str, Callable[[int], Children], bool]] = {
    "flat": ("the leader posts to everybody", flat, False),
    "relayed": (f"beyond {FAN} members captains post for it: what the runtime does", relayed, False),
    "gathered": ("captains also wait for their groups: not built", relayed, True),
}
"""Name, what it is, who posts to whom, and whether captains wait for their groups."""
