"""Options and descriptions with the names that ONNX Runtime gives them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from threadteam.errors import InvalidArgument

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "ModelMetadata",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
]


class GraphOptimizationLevel(enum.IntEnum):
    """Accepted for compatibility: every plan is optimised the same way."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted for compatibility: nodes run one after another, each on the whole token."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted for compatibility."""

    DEFAULT = 0
    PRIORITY_BASED = 1


@dataclass
class SessionOptions:
    """How a session runs.

    Only these fields change what happens here; the others are accepted so that code written for ONNX Runtime runs.

    Attributes
    ----------
    intra_op_num_threads : int
        The width; 0 takes `cpu_budget().count`. An explicit width applies even above the CPU budget.
    enable_profiling : bool
        Record the time of every step; `InferenceSession.end_profiling` writes the file.
    profile_file_prefix : str
        The beginning of that file's name.
    free_dimension_overrides : dict
        Symbolic dimension to the extent it is fixed to.
    plan_cache_size : int
        Plans kept for different input shapes.

    Examples
    --------
    >>> options = SessionOptions()
    >>> options.intra_op_num_threads = 2
    >>> options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    >>> options.get_session_config_entry("session.intra_op.allow_spinning")
    '0'
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    enable_profiling: bool = False
    profile_file_prefix: str = "threadteam_profile_"
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = False
    plan_cache_size: int = 32
    free_dimension_overrides: dict[str, int] = field(default_factory=dict)
    initializers: dict[str, Any] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store an entry; `session.intra_op.allow_spinning` set to `"0"` lets idle workers park at once."""
        self.config[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """An entry stored before.

        Raises
        ------
        InvalidArgument
            There is none of that name.
        """
        if key not in self.config:
            raise InvalidArgument(f"there is no session config entry {key!r}")
        return self.config[key]

    def has_session_config_entry(self, key: str) -> bool:
        """Whether an entry of that name was stored."""
        return key in self.config

    def add_free_dimension_override_by_name(self, name: str, extent: int) -> None:
        """Fix a symbolic dimension of the inputs."""
        self.free_dimension_overrides[name] = int(extent)

    def add_initializer(self, name: str, value: Any) -> None:
        """Use an array instead of the model's initializer of that name."""
        self.initializers[name] = value

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: operators compiled for ONNX Runtime cannot be loaded."""
        raise InvalidArgument(
            f"custom operator library {str(path)!r} is built for ONNX Runtime and cannot be loaded here"
        )

    @property
    def spinning(self) -> bool:
        """Whether idle workers wait a bounded time before they park."""
        return self.config.get("session.intra_op.allow_spinning", "1") != "0"


class RunOptions:
    """How one run behaves, and the switch that ends it.

    Examples
    --------
    >>> options = RunOptions()
    >>> options.terminate
    False
    """

    def __init__(self) -> None:
        from threadteam import _native

        self.flag = _native.CancelFlag()
        """What native steps look at."""
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.config: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        """Set it from any thread: runs with these options end before their next step with `RunTerminated`."""
        return bool(self.flag.is_set())

    @terminate.setter
    def terminate(self, value: bool) -> None:
        if value:
            self.flag.set()
        else:
            self.flag.clear()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store an entry; none changes anything here."""
        self.config[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """An entry stored before.

        Raises
        ------
        InvalidArgument
            There is none of that name.
        """
        if key not in self.config:
            raise InvalidArgument(f"there is no run config entry {key!r}")
        return self.config[key]


@dataclass(frozen=True)
class NodeArg:
    """A declared input or output.

    Attributes
    ----------
    name : str
        Its name.
    type : str
        Such as `tensor(float)`.
    shape : list
        An int for a fixed extent, a symbol's name or None for a free one; empty when the rank is not declared.

    Examples
    --------
    >>> NodeArg("x", "tensor(float)", ["batch", 3])
    NodeArg(name='x', type='tensor(float)', shape=['batch', 3])
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """What the file says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]
