"""Options and descriptions with the names that ONNX Runtime gives them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from threadteam.errors import InvalidArgument

from .environment import check_providers

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "External",
    "GraphOptimizationLevel",
    "ModelMetadata",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
]


@dataclass
class External:
    """What stands for the files in which a model stores initializers.

    Attributes
    ----------
    arrays : dict
        Initializer to its contents.
    files : dict
        File, as the model names it, to its contents.
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


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
    denotation_overrides: dict[str, int] = field(default_factory=dict)
    external: External = field(default_factory=External)
    load_canceled: bool = False

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

    def add_free_dimension_override_by_denotation(self, denotation: str, extent: int) -> None:
        """Fix the dimensions of the inputs that the model says denote this, such as `DATA_BATCH`."""
        self.denotation_overrides[denotation] = int(extent)

    def add_initializer(self, name: str, value: Any) -> None:
        """Use an array instead of the model's initializer of that name."""
        self.initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Use arrays as the initializers of these names, which the model stores in files: the files are not read.

        Parameters
        ----------
        names : sequence of str
            Initializers that are stored outside of the model.
        values : sequence of OrtValue or array
            Of the type and shape that the model declares.

        Raises
        ------
        InvalidArgument
            There are more names than values, or fewer. What does not fit the model is said when the session is made.

        Examples
        --------
        >>> import numpy as np
        >>> SessionOptions().add_external_initializers(["w"], [np.zeros(3), np.zeros(3)])
        Traceback (most recent call last):
            ...
        threadteam.errors.InvalidArgument: add_external_initializers got 1 names and 2 values; expected one for each
        """
        if len(names) != len(values):
            raise InvalidArgument(
                f"add_external_initializers got {len(names)} names and {len(values)} values; expected one for each"
            )
        self.external.arrays.update(zip(names, values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Use buffers as the contents of the files in which the model stores initializers.

        Parameters
        ----------
        names : sequence of str
            The files, as the model names them.
        buffers : sequence of buffer
            Their contents.
        lengths : sequence of int
            How many bytes of each count.

        Raises
        ------
        InvalidArgument
            The three differ in length, or a buffer is shorter than said.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise InvalidArgument(
                f"add_external_initializers_from_files_in_memory got {len(names)} names, {len(buffers)} buffers and "
                f"{len(lengths)} lengths; expected one of each for every file"
            )
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            contents = memoryview(buffer).cast("B")
            if not 0 <= length <= len(contents):
                raise InvalidArgument(f"the buffer of {name!r} has {len(contents)} bytes, not {length}")
            self.external.files[name] = bytes(contents[:length])

    def set_load_cancellation_flag(self, canceled: bool) -> None:
        """Let sessions made with these options raise `ModelLoadCanceled` instead of loading their model."""
        self.load_canceled = bool(canceled)

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:  # noqa: ARG002
        """Accepted for the CPU, which is the one provider there is; it has no options."""
        check_providers([name])

    def has_providers(self) -> bool:
        """Whether providers were added: never, as the CPU is there anyway."""
        return False

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
