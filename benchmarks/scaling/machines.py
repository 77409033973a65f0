"""The machines that the model computes for: how long a cache line takes between two of their cores."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Cores ``0..n`` in domains that share a cache, domains in sockets.

    ``near``, ``far`` and ``across`` are the times, in ns, that a line takes one way between two cores of one domain,
    of two domains, and of two sockets. ``store_gap`` and ``load_gap`` are what one more line costs a participant that
    touches many at once, as a share of what one costs alone.
    """

    name: str
    source: str
    near: float
    far: float
    across: float
    store_gap: float
    load_gap: float
    domain: int
    socket: int

    def transfer(self, a: int, b: int) -> float:
        """The time that a line takes from core ``a`` to core ``b``."""
        if a // self.socket != b // self.socket:
            return self.across
        return self.near if a // self.domain == b // self.domain else self.far


CORE_TO_CORE = "https://github.com/nviennot/core-to-core-latency"
"""Medians of compare-and-swap messages, one way, on bare metal."""


def published(store_gap: float, load_gap: float) -> list[Machine]:
    """Two servers of which others published the latencies; the gaps are those of this machine."""
    return [
        Machine("EPYC 7R13, 2 sockets", CORE_TO_CORE, 23, 107, 197, store_gap, load_gap, domain=8, socket=64),
        Machine("Xeon 8375C, 2 sockets", CORE_TO_CORE, 51, 51, 108, store_gap, load_gap, domain=64, socket=64),
    ]


def measured(round_trip: float, store_gap: float, load_gap: float) -> Machine:
    """A machine whose cores are all as far apart as the two of this one."""
    one_way = round_trip / 2
    return Machine(
        f"all cores as here, {round_trip:.0f} ns there and back",
        "dispatch --lines",
        one_way,
        one_way,
        one_way,
        store_gap,
        load_gap,
        domain=1,
        socket=1 << 20,
    )
