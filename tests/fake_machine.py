"""Trees of files that stand for the `/proc` and `/sys` of other machines."""

from collections.abc import Iterable, Mapping
from pathlib import Path

CPUS = "sys/devices/system/cpu"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write the files below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v1_mount(controller: str, root: str = "/") -> str:
    return f"33 32 0:29 {root} /sys/fs/cgroup/{controller} rw - cgroup cgroup rw,{controller}\n"


def machine(cpus: int, *, siblings: int = 1, adjacent: bool = True, sockets: int = 1) -> dict[str, str]:
    """A machine of `cpus` CPUs, `siblings` of them a core, numbered next to each other or a round at a time."""
    cores = cpus // siblings
    files = {f"{CPUS}/online": f"0-{cpus - 1}\n", f"{CPUS}/offline": "\n"}
    for cpu in range(cpus):
        core = cpu // siblings if adjacent else cpu % cores
        members = [core * siblings + i if adjacent else core + i * cores for i in range(siblings)]
        socket = core * sockets // cores
        same = [c for c in range(cpus) if (c // siblings if adjacent else c % cores) * sockets // cores == socket]
        base = f"{CPUS}/cpu{cpu}"
        files[f"{base}/topology/core_cpus_list"] = _list(members)
        files[f"{base}/topology/physical_package_id"] = f"{socket}\n"
        files[f"{base}/cache/index0/level"] = "3\n"
        files[f"{base}/cache/index0/type"] = "Unified\n"
        files[f"{base}/cache/index0/size"] = "32768K\n"
        files[f"{base}/cache/index0/shared_cpu_list"] = _list(same)
    return files


def _list(cpus: Iterable[int]) -> str:
    return ",".join(map(str, cpus)) + "\n"
