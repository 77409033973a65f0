"""The CPU budget: precedence of its rules, and the control groups of fake machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import threadteam as tt
from fake_machine import V2_MOUNT, machine, tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threadteam._cgroup import read_limits


def budget(
    root: Path, affinity: range | list[int] = range(32), environ: Mapping[str, str] | None = None
) -> tt.CpuBudget:
    return tt.cpu_budget(root=root, affinity=affinity, environ=environ or {})


def test_a_machine_without_limits_gives_all_its_cpus(tmp_path: Path) -> None:
    found = budget(tree(tmp_path, machine(32)))
    assert (found.count, found.source, found.quota, found.physical) == (32, "machine", None, 32)


def test_an_empty_tree_gives_the_affinity_mask(tmp_path: Path) -> None:
    found = budget(tmp_path, affinity=[3, 5])
    assert (found.count, found.affinity, found.domains) == (2, frozenset({3, 5}), (frozenset({3, 5}),))


def test_the_affinity_mask_is_obeyed(tmp_path: Path) -> None:
    found = budget(tree(tmp_path, machine(32)), affinity=[1, 2, 7])
    assert (found.count, found.source, found.affinity) == (3, "affinity", frozenset({1, 2, 7}))


def test_a_version_2_quota_is_rounded_up(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/work\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/work/cpu.max": "150000 100000\n",
    }
    found = budget(tree(tmp_path, {**machine(32), **files}))
    assert (found.count, found.source, found.quota) == (2, "cgroup quota", 1.5)


def test_a_quota_below_one_cpu_gives_one(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "5000 100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).count == 1


def test_a_quota_above_the_mask_changes_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "800000 100000\n",
    }
    found = budget(tree(tmp_path, {**machine(32), **files}), affinity=[0, 1])
    assert (found.count, found.source, found.quota) == (2, "affinity", 8.0)


def test_the_tightest_quota_of_nested_groups_holds(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b/c\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/a/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/a/b/c/cpu.max": "600000 100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).quota == 3.0


def test_a_systemd_scope_is_found(tmp_path: Path) -> None:
    scope = "user.slice/user-1000.slice/user@1000.service/app.slice/run-r1\\x2d2.scope"
    files = {
        "proc/self/cgroup": f"0::/{scope}\n",
        "proc/self/mountinfo": V2_MOUNT,
        f"sys/fs/cgroup/{scope}/cpu.max": "200000 100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).count == 2


def test_a_version_1_quota_is_found(tmp_path: Path) -> None:
    mount = "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    files = {
        "proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n",
        "proc/self/mountinfo": mount,
        "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "400000\n",
        "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).count == 4


def test_a_version_1_quota_of_minus_one_is_none(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "2:cpu:/\n",
        "proc/self/mountinfo": "33 32 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).quota is None


def test_a_container_sees_its_own_part_of_the_hierarchy(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "2:cpu:/docker/abc/inner\n",
        "proc/self/mountinfo": "33 32 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/inner/cpu.cfs_period_us": "100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).quota == 3.0


def test_a_hidden_host_path_means_the_mount_itself(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/../../host/elsewhere\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "200000 100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).quota == 2.0


def test_quota_and_cpu_set_hold_together(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/c\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/c/cpuset.cpus.effective": "4-9\n",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-31\n",
        "sys/fs/cgroup/c/cpu.max": "1000000 100000\n",
    }
    found = budget(tree(tmp_path, {**machine(32), **files}))
    assert (found.count, found.source, found.affinity) == (6, "affinity", frozenset(range(4, 10)))


def test_a_version_1_cpu_set_is_found(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:cpuset:/jail\n0::/\n",
        "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
        "sys/fs/cgroup/cpuset/jail/cpuset.cpus": "2-3\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).affinity == frozenset({2, 3})


def test_a_mount_point_with_a_space_is_found(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/my\\040groups rw - cgroup2 cgroup2 rw\n",
        "sys/my groups/cpu.max": "200000 100000\n",
    }
    assert budget(tree(tmp_path, {**machine(32), **files})).quota == 2.0


@pytest.mark.parametrize("text", ["", "max", "max 100000", "100000 0", "x y", "-5 100000", "1 2 3"])
def test_a_malformed_quota_counts_as_none(tmp_path: Path, text: str) -> None:
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT, "sys/fs/cgroup/cpu.max": text}
    assert read_limits(tree(tmp_path, files)).quota is None


def test_garbage_in_proc_is_ignored(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "nonsense\n:\n", "proc/self/mountinfo": " - \n1 2 - cgroup\n"}
    assert read_limits(tree(tmp_path, files)) == read_limits(tmp_path / "empty")


def test_the_package_variable_decides_alone(tmp_path: Path) -> None:
    environ = {"THREADTEAM_NUM_THREADS": " 40 ", "OMP_NUM_THREADS": "abc"}
    found = budget(tree(tmp_path, machine(32)), environ=environ)
    assert (found.count, found.source) == (40, "THREADTEAM_NUM_THREADS")


def test_the_openmp_variable_is_a_cap(tmp_path: Path) -> None:
    root = tree(tmp_path, machine(32))
    assert budget(root, environ={"OMP_NUM_THREADS": "4,2"}).count == 4
    above = budget(root, environ={"OMP_NUM_THREADS": "64"})
    assert (above.count, above.source) == (32, "machine")


@pytest.mark.parametrize("name", ["THREADTEAM_NUM_THREADS", "OMP_NUM_THREADS"])
@pytest.mark.parametrize("value", ["abc", "-3", "0", "2.5", "1_0", "٣", "4,,2", "0x4"])
def test_an_unusable_variable_is_named_with_its_value(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is '{value}'"):
        budget(tmp_path, environ={name: value})


@pytest.mark.parametrize("value", ["", "   "])
def test_a_blank_variable_is_unset(tmp_path: Path, value: str) -> None:
    found = budget(tree(tmp_path, machine(8)), affinity=range(8), environ={"THREADTEAM_NUM_THREADS": value})
    assert (found.count, found.source) == (8, "machine")


def test_the_explanation_is_one_line(tmp_path: Path) -> None:
    text = str(budget(tree(tmp_path, machine(4)), affinity=[0, 1]))
    assert text.startswith("2 CPUs, decided by affinity")
    assert "\n" not in text


def test_a_number_beyond_any_machine_is_named_not_tried(tmp_path: Path) -> None:
    for value in ("1026", "9" * 5000):
        with pytest.raises(ValueError, match=r"THREADTEAM_NUM_THREADS is '\d+(\.\.\.)?', expected .* 1025 at most"):
            budget(tmp_path, environ={"THREADTEAM_NUM_THREADS": value})
    # As a cap it changes nothing.
    assert budget(tree(tmp_path, machine(8)), range(8), {"OMP_NUM_THREADS": "9" * 5000}).count == 8
    assert budget(tree(tmp_path, machine(8)), range(8), {"OMP_NUM_THREADS": "0004"}).count == 4


def test_a_machine_with_more_cpus_than_the_widest_pool_has_that_width(tmp_path: Path) -> None:
    found = budget(tree(tmp_path, machine(1100)), affinity=range(1100))
    assert (found.count, found.source, len(found.affinity)) == (1025, "machine", 1100)


def test_a_mask_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one CPU"):
        budget(tmp_path, affinity=[])


def test_offline_cpus_of_a_given_mask_do_not_count(tmp_path: Path) -> None:
    files = {**machine(8), "sys/devices/system/cpu/online": "0-5\n", "sys/devices/system/cpu/offline": "6-7\n"}
    found = budget(tree(tmp_path, files), affinity=range(8))
    assert (found.count, found.source, found.affinity) == (6, "machine", frozenset(range(6)))


def test_a_container_that_shows_less_of_the_machine_than_it_allows_loses_no_cpu(tmp_path: Path) -> None:
    # lxcfs numbers the CPUs of the container from zero; the mask has the machine's numbers.
    found = budget(tree(tmp_path, machine(2)), affinity=[1, 40, 41])
    assert (found.count, found.physical, found.source) == (3, 3, "affinity")
    assert found.domains == (frozenset({1}), frozenset({40, 41}))


@pytest.mark.parametrize("kind", ["directory", "bytes", "dangling link"])
@pytest.mark.parametrize(
    "name",
    ["proc/self/cgroup", "proc/self/mountinfo", "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpuset.cpus.effective"],
)
def test_a_file_that_cannot_be_read_is_no_limit(tmp_path: Path, name: str, kind: str) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-1\n",
    }
    root = tree(tmp_path, {**machine(8), **files})
    (root / name).unlink()
    if kind == "directory":
        (root / name).mkdir()
    elif kind == "bytes":
        (root / name).write_bytes(b"\xff\x00\xfe 0-3\n")
    else:
        (root / name).symlink_to(root / "nowhere")
    found = budget(root, range(8))
    if name.startswith("proc"):
        assert (found.count, found.quota) == (8, None)
    else:
        assert found.count == 2, "the other limit still holds"


def test_a_mount_point_that_is_no_path_is_ignored(tmp_path: Path) -> None:
    lines = "30 23 0:26 / relative rw - cgroup2 cgroup2 rw\n30 23 0:26 / /a\\000b rw - cgroup2 cgroup2 rw\n"
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": lines}
    assert budget(tree(tmp_path, {**machine(4), **files}), range(4)).count == 4


FIELDS = st.text(st.sampled_from("0123456789-,:/ .maxcgroup2\\\n"), max_size=60) | st.text(max_size=40)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.fixed_dictionaries({}, optional=dict.fromkeys([
    "proc/self/cgroup", "proc/self/mountinfo", "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpuset.cpus.effective",
    "sys/devices/system/cpu/online", "sys/devices/system/cpu/offline", "sys/devices/cpu_core/cpus",
    "sys/devices/system/cpu/cpu0/topology/core_cpus_list", "sys/devices/system/cpu/cpu0/cpu_capacity",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id", "sys/devices/system/cpu/cpu0/cache/index0/level",
    "sys/devices/system/cpu/cpu0/cache/index0/size", "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
], FIELDS)))  # fmt: skip
def test_whatever_the_files_hold_the_budget_is_sane(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]
) -> None:
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT, **machine(3)}
    root = tmp_path_factory.mktemp("machine")
    for name, text in {**files, **texts}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = budget(root, range(3))
    assert 1 <= found.count <= 3
    assert found.affinity <= frozenset(range(3))
    assert 1 <= found.physical <= len(found.affinity)
    assert frozenset().union(*found.domains) == found.affinity
    assert sum(map(len, found.domains)) == len(found.affinity)
    assert str(found).count("\n") == 0
