"""What users of thread pools report about CPUs and containers, as properties."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import threadteam as tt
from fake_machine import V2_MOUNT, machine, tree, v1_mount

SCOPE = "system.slice/docker-0123abcd.scope"
KUBERNETES = "kubepods.slice/kubepods-burstable.slice/pod1.slice/cri-containerd-1.scope"

#: Ways to limit a process to 2 of 32 CPUs, as its files show them.
LIMITS: dict[str, dict[str, str]] = {
    "version 2 quota": {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "200000 100000\n",
    },
    "version 2 quota of a parent": {
        "proc/self/cgroup": "0::/a/b/c\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/b/c/cpu.max": "800000 100000\n",
    },
    "systemd scope": {
        "proc/self/cgroup": f"0::/{SCOPE}\n",
        "proc/self/mountinfo": V2_MOUNT,
        f"sys/fs/cgroup/{SCOPE}/cpu.max": "20000 10000\n",
    },
    "kubernetes slices": {
        "proc/self/cgroup": f"0::/{KUBERNETES}\n",
        "proc/self/mountinfo": V2_MOUNT,
        f"sys/fs/cgroup/{KUBERNETES}/cpu.max": "max 100000\n",
        f"sys/fs/cgroup/{Path(KUBERNETES).parent}/cpu.max": "200000 100000\n",
    },
    "fraction of a quota, rounded up": {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "110000 100000\n",
    },
    "version 1 quota": {
        "proc/self/cgroup": "2:cpu,cpuacct:/docker/abc\n0::/\n",
        "proc/self/mountinfo": v1_mount("cpu", "/docker/abc"),
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    },
    "version 1 quota of a parent": {
        "proc/self/cgroup": "2:cpu:/a/b\n",
        "proc/self/mountinfo": v1_mount("cpu"),
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n",
    },
    "version 2 CPU set": {
        "proc/self/cgroup": "0::/c/d\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/c/cpuset.cpus.effective": "4-5\n",
    },
    "version 1 CPU set": {
        "proc/self/cgroup": "3:cpuset:/jail\n",
        "proc/self/mountinfo": v1_mount("cpuset"),
        "sys/fs/cgroup/cpuset/jail/cpuset.effective_cpus": "4,20\n",
    },
    "wide CPU set and quota together": {
        "proc/self/cgroup": "0::/c\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/c/cpuset.cpus.effective": "8-15\n",
        "sys/fs/cgroup/c/cpu.max": "200000 100000\n",
    },
    "CPU set and wide quota together": {
        "proc/self/cgroup": "3:cpuset:/jail\n2:cpu:/jail\n",
        "proc/self/mountinfo": v1_mount("cpuset") + v1_mount("cpu"),
        "sys/fs/cgroup/cpuset/jail/cpuset.cpus": "6-7\n",
        "sys/fs/cgroup/cpu/jail/cpu.cfs_quota_us": "900000\n",
        "sys/fs/cgroup/cpu/jail/cpu.cfs_period_us": "100000\n",
    },
}


@pytest.mark.parametrize("siblings", [1, 2])
@pytest.mark.parametrize("limit", LIMITS)
def test_property_01_a_container_limited_to_2_of_32_cpus_has_width_2(tmp_path: Path, limit: str, siblings: int) -> None:
    root = tree(tmp_path, {**machine(32, siblings=siblings), **LIMITS[limit]})
    found = tt.cpu_budget(root=root, affinity=range(32), environ={})
    assert found.count == 2
    assert found.source in ("cgroup quota", "affinity")


def test_property_01_a_limit_below_the_mask_of_a_taskset_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, {**machine(32), **LIMITS["version 2 quota"]})
    assert tt.cpu_budget(root=root, affinity=range(4), environ={}).count == 2
    assert tt.cpu_budget(root=root, affinity=[9], environ={}).count == 1


WORKERS = """
import os, threading, threadteam as tt
allowed = sorted(os.sched_getaffinity(0))[:1]
os.sched_setaffinity(0, allowed)
# A pool wider than the mask, as a careless caller makes it, and pinned.
for pinned in (False, True):
    with tt.Pool(3, pin_participants=pinned) as pool:
        pool.exec().for_ranges(12, 1, lambda start, stop: None)
        tasks = [int(task) for task in os.listdir("/proc/self/task")]
        assert len(tasks) >= 3, tasks
        assert all(sorted(os.sched_getaffinity(task)) == allowed for task in tasks)
print("obeyed")
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the platform has no affinity masks")
def test_property_02_no_workers_mask_contains_a_cpu_outside_the_processs() -> None:
    done = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("obeyed\n", "")


def test_property_02_the_width_is_the_mask_of_a_taskset(tmp_path: Path) -> None:
    found = tt.cpu_budget(root=tree(tmp_path, machine(32)), affinity=[3, 8, 9], environ={})
    assert (found.count, found.source, found.affinity) == (3, "affinity", frozenset({3, 8, 9}))


CHANGED = """
import os, warnings, threadteam as tt
before = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, before[:1])
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with tt.Pool() as pool:
        width = pool.width
    budget = tt.cpu_budget(environ={})
print(len(before), width, budget.count, sum("changed from" in str(w.message) for w in seen), "changed" in str(budget))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the platform has no affinity masks")
def test_property_03_a_mask_that_a_library_changes_is_reported() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "THREADTEAM_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", CHANGED], capture_output=True, text=True, timeout=60, env=environ, check=True
    )
    before, *seen = done.stdout.split()
    # The pool and the call report it, and the budget says it too.
    assert seen == (["1", "1", "0", "False"] if before == "1" else ["1", "1", "2", "True"])


def test_property_03_a_mask_that_an_openmp_setting_may_have_narrowed_is_explained(tmp_path: Path) -> None:
    root = tree(tmp_path, machine(8))
    narrowed = str(tt.cpu_budget(root=root, affinity=[0], environ={"OMP_PROC_BIND": "close"}))
    assert "OMP_PROC_BIND is set" in narrowed
    for affinity, environ in [([0], {"OMP_PROC_BIND": "false"}), (range(8), {"OMP_PROC_BIND": "close"}), ([0], {})]:
        assert "OMP_PROC_BIND" not in str(tt.cpu_budget(root=root, affinity=affinity, environ=environ))


@pytest.mark.parametrize("adjacent", [True, False])
def test_property_05_siblings_do_not_double_the_width(tmp_path: Path, adjacent: bool) -> None:
    root = tree(tmp_path, machine(32, siblings=2, adjacent=adjacent, sockets=2))
    found = tt.cpu_budget(root=root, affinity=range(32), environ={})
    assert (found.count, found.physical, found.source) == (16, 16, "machine")
    assert len(found.affinity) == 32
    assert "16 CPUs, decided by machine, one a core (32 allowed on 16 cores" in str(found)


@pytest.mark.parametrize(
    ("environ", "affinity", "count"),
    [
        ({"THREADTEAM_NUM_THREADS": "32"}, range(32), 32),
        ({"OMP_NUM_THREADS": "32"}, range(32), 16),  # a cap, which asks for nothing
        ({"OMP_NUM_THREADS": "3"}, range(32), 3),
        ({}, [0, 1], 2),  # both threads of one core, given by a mask
        ({}, range(24), 24),
    ],
)
def test_property_05_siblings_count_when_they_are_asked_for(
    tmp_path: Path, environ: Mapping[str, str], affinity: range | list[int], count: int
) -> None:
    root = tree(tmp_path, machine(32, siblings=2))
    assert tt.cpu_budget(root=root, affinity=affinity, environ=environ).count == count


def test_property_05_a_quota_above_the_cores_does_not_bring_the_siblings_back(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "2400000 100000\n",
    }
    root = tree(tmp_path, {**machine(32, siblings=2), **files})
    assert tt.cpu_budget(root=root, affinity=range(32), environ={}).count == 16
