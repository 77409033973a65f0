"""The topology reader, on fake machines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import threadteam as tt

BASE = "sys/devices/system/cpu"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def core(root: Path, cpus: Iterable[int], package: int, caches: dict[int, str]) -> None:
    """Describe one core: its CPUs, its package, and per cache level the list of CPUs that share it."""
    members = sorted(cpus)
    for cpu in members:
        write(root, f"{BASE}/cpu{cpu}/topology/core_cpus_list", ",".join(map(str, members)))
        write(root, f"{BASE}/cpu{cpu}/topology/physical_package_id", str(package))
        for index, (level, shared) in enumerate(caches.items()):
            directory = f"{BASE}/cpu{cpu}/cache/index{index}"
            write(root, f"{directory}/level", str(level))
            write(root, f"{directory}/type", "Unified")
            write(root, f"{directory}/size", f"{level}024K")
            write(root, f"{directory}/shared_cpu_list", shared)


def test_hyperthreads_share_a_core(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-3")
    core(tmp_path, [0, 2], 0, {3: "0-3"})
    core(tmp_path, [1, 3], 0, {3: "0-3"})
    machine = tt.topology(root=tmp_path)
    assert machine.cores == (frozenset({0, 2}), frozenset({1, 3}))
    assert tt.cpu_budget(root=tmp_path, affinity=[0, 2, 1], environ={}).physical == 2


def test_two_sockets_have_a_cache_each(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-3")
    for cpu in range(4):
        package = cpu // 2
        core(tmp_path, [cpu], package, {2: str(cpu), 3: f"{2 * package}-{2 * package + 1}"})
    machine = tt.topology(root=tmp_path)
    halves = (frozenset({0, 1}), frozenset({2, 3}))
    assert machine.packages == halves
    assert machine.domains == halves
    assert tt.cpu_budget(root=tmp_path, affinity=[1, 2], environ={}).domains == (frozenset({1}), frozenset({2}))


def test_efficiency_cores_of_intel_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-5")
    write(tmp_path, "sys/devices/cpu_core/cpus", "0-3")
    write(tmp_path, "sys/devices/cpu_atom/cpus", "4-5")
    core(tmp_path, [0, 1], 0, {3: "0-5"})
    core(tmp_path, [2, 3], 0, {3: "0-5"})
    core(tmp_path, [4], 0, {3: "0-5"})
    core(tmp_path, [5], 0, {3: "0-5"})
    machine = tt.topology(root=tmp_path)
    assert machine.performance == frozenset(range(4))
    assert len(machine.cores) == 4
    assert "4 of them on the fastest cores" in str(machine)


def test_efficiency_cores_of_arm_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-3")
    for cpu, capacity in enumerate([446, 446, 1024, 1024]):
        core(tmp_path, [cpu], 0, {2: str(cpu)})
        write(tmp_path, f"{BASE}/cpu{cpu}/cpu_capacity", str(capacity))
    assert tt.topology(root=tmp_path).performance == frozenset({2, 3})


def test_cores_whose_caches_end_at_different_levels_form_their_own_domains(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-3")
    core(tmp_path, [0], 0, {2: "0", 3: "0-1"})
    core(tmp_path, [1], 0, {2: "1", 3: "0-1"})
    core(tmp_path, [2], 0, {2: "2-3"})
    core(tmp_path, [3], 0, {2: "2-3"})
    assert tt.topology(root=tmp_path).domains == (frozenset({0, 1}), frozenset({2, 3}))


def test_offline_cpus_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0,2")
    core(tmp_path, [0], 0, {3: "0-3"})
    core(tmp_path, [2], 0, {3: "0-3"})
    machine = tt.topology(root=tmp_path)
    assert machine.cpus == frozenset({0, 2})
    assert machine.domains == (frozenset({0, 2}),)


def test_a_machine_that_describes_nothing_is_one_domain_of_single_cores(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-2")
    machine = tt.topology(root=tmp_path)
    assert machine.cores == (frozenset({0}), frozenset({1}), frozenset({2}))
    assert machine.packages == machine.domains == (frozenset({0, 1, 2}),)


def test_cache_sizes_are_bytes(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0")
    core(tmp_path, [0], 0, {1: "0", 2: "0"})
    assert [cache.size for cache in tt.topology(root=tmp_path).caches] == [1024 << 10, 2024 << 10]


def test_hybrid_cores_of_two_sockets_are_told_apart_within_a_mask(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-7")
    for cpu in range(8):
        core(tmp_path, [cpu], cpu // 4, {3: "0-3" if cpu < 4 else "4-7"})
        write(tmp_path, f"{BASE}/cpu{cpu}/cpu_capacity", "1024" if cpu % 4 < 2 else "512")
    machine = tt.topology(root=tmp_path)
    assert machine.performance == frozenset({0, 1, 4, 5})
    seen = machine.within([1, 2, 3, 4])
    assert (seen.performance, seen.domains) == (frozenset({1, 4}), (frozenset({1, 2, 3}), frozenset({4})))
    # Slow cores count: whoever finishes early takes what they have left.
    assert tt.cpu_budget(root=tmp_path, affinity=range(8), environ={}).count == 8


def test_offline_cpus_are_named(tmp_path: Path) -> None:
    write(tmp_path, f"{BASE}/online", "0-1")
    write(tmp_path, f"{BASE}/offline", "2-3")
    machine = tt.topology(root=tmp_path)
    assert (machine.cpus, machine.offline) == (frozenset({0, 1}), frozenset({2, 3}))
    assert machine.within([0]).offline == frozenset()


def test_without_a_list_of_online_cpus_the_directories_are_counted(tmp_path: Path) -> None:
    for name in ("cpu0", "cpu2", "cpufreq", "cpu10"):
        (tmp_path / BASE / name).mkdir(parents=True)
    assert tt.topology(root=tmp_path).cpus == frozenset({0, 2, 10})


def test_this_machine_covers_its_mask() -> None:
    found = tt.cpu_budget(environ={})
    assert frozenset().union(*found.domains) == found.affinity
    assert 1 <= found.physical <= len(found.affinity)
