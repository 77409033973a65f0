"""`InferenceSession`: a model that runs on a share of a thread pool, with the surface of ONNX Runtime's class."""

from __future__ import annotations

import operator
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from threadteam.cpus import cpu_budget
from threadteam.errors import (
    Fail,
    InvalidArgument,
    ModelLoadCanceled,
    RunCancelled,
    RunTerminated,
    RuntimeException,
    StepError,
)

from .arguments import checked_options, fix_dimensions, replace_initializers
from .binding import IOBinding, OrtValue
from .environment import PROVIDER, check_providers
from .graph import Graph, ValueSpec
from .inputs import InputReader, check_names, quoted, shape_text
from .loader import load_graph
from .options import ModelMetadata, NodeArg, RunOptions, SessionOptions
from .planner import Planner, ShapeSurprise, input_tensor
from .profiling import Profile
from .program import Executable
from .randomness import random_stream
from .reference import stopping
from .registry import Policy, registry
from .results import deliver, own, separate
from .stage import Runner, Stage
from .table import Plan
from .types import storage_dtype
from .values import Array, Opaque, Value

__all__ = ["InferenceSession"]


class InferenceSession:
    """A model, planned for the shapes it is given and run on a share of a thread pool.

    Code written for `onnxruntime.InferenceSession` on CPU runs after changing its import.

    Parameters
    ----------
    path_or_bytes : path, bytes or onnx.ModelProto
        The model.
    sess_options : SessionOptions, optional
        Width, profiling, plan cache.
    providers : sequence, optional
        Accepted when it contains `CPUExecutionProvider`.
    provider_options : sequence, optional
        Accepted and not used.
    on : Pool, Exec, Team or TeamExec, optional
        Where kernels run. None leases an executor from `threadteam.onnx.registry()` at the first run.

    Raises
    ------
    NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented, InvalidArgument
        With one sentence that names the file, node, value or operators.

    Examples
    --------
    >>> import numpy as np, onnx
    >>> from onnx import helper
    >>> node = helper.make_node("Relu", ["x"], ["y"])
    >>> row = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"])
    >>> model = helper.make_model(helper.make_graph([node], "g", [row("x")], [row("y")]))
    >>> with InferenceSession(model) as session:
    ...     print(session.run(None, {"x": np.array([-1, 2], np.float32)}))
    [array([0., 2.], dtype=float32)]
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,  # noqa: ARG002 - ONNX Runtime's signature
        *,
        on: Any = None,
        **_: Any,
    ) -> None:
        check_providers(providers)
        self._options = checked_options(sess_options)
        if self._options.load_canceled:
            raise ModelLoadCanceled("the model was not loaded: set_load_cancellation_flag was set in its options")
        self._graph: Graph = load_graph(path_or_bytes, self._options.external)
        self._graph.random = random_stream()
        replace_initializers(self._graph, self._options.initializers)
        fix_dimensions(self._graph, self._options.free_dimension_overrides, self._options.denotation_overrides)
        self._planner = Planner(self._graph)
        self._readers = {spec.name: InputReader(spec) for spec in (*self._graph.inputs, *self._graph.overridable)}
        self._output_names = tuple(spec.name for spec in self._graph.outputs)
        self._output_list = list(self._output_names)
        self._fast_inputs = fast_inputs(self._graph)
        self._fast: dict[tuple[int, ...], Executable] = {}
        self._plans: OrderedDict[Any, Stage] = OrderedDict()
        self._planning = threading.Lock()
        self._profile = Profile() if self._options.enable_profiling else None
        self._finalizer: Any = None
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._place: Any = on
        """Where runs go; None before the first one and after closing."""
        self._running = 0
        self._closed = False

    # -- running ------------------------------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Compute outputs.

        Parameters
        ----------
        output_names : sequence of str or None
            Which outputs; None or empty for all.
        input_feed : mapping
            Name to array (any strides and byte order), scalar or nested list.
        run_options : RunOptions, optional
            Its `terminate` ends the run before its next step.

        Returns
        -------
        list
            One array for each name, in order.

        Raises
        ------
        InvalidArgument
            An input is missing, unexpected, or of the wrong type, rank or shape.
        RunTerminated
            `run_options.terminate` was set.
        """
        # The hot path: arrays that need no conversion, shapes seen before, all outputs, nothing special.
        if (
            run_options is None
            and (not output_names or output_names == self._output_list)
            and isinstance(input_feed, dict)
            and len(input_feed) == len(self._fast_inputs)
        ):
            key: tuple[int, ...] = ()
            arrays = []
            for name, dtype in self._fast_inputs:
                array = input_feed.get(name)
                if type(array) is not np.ndarray:
                    break
                # Arrays that were unpickled have an equal dtype that is another object.
                if array.dtype is not dtype and array.dtype != dtype:
                    break
                arrays.append(array)
                key += array.shape
            else:
                program = self._fast.get(key)
                if program is not None:
                    with self._lock:
                        on = self._place
                        if on is not None:
                            self._running += 1
                    if on is not None:
                        try:
                            return program.run(arrays, None, on)
                        except _CONVERTED as error:
                            if isinstance(error, (StepError, RunCancelled, MemoryError)):
                                raise translated(error) from error
                        finally:
                            self._leave()
        return self._run(output_names, input_feed, run_options, None)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run, then call `callback(results, user_data, error)`; the call returns when that is done."""
        results: list[Any] = []
        message = ""
        try:
            results = self.run(output_names, input_feed, run_options)
        except Exception as error:  # the callback is how every failure is reported
            message = str(error)
        callback(results, user_data, message)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with the inputs and the preallocated outputs of a binding, which receives the results."""
        names, given = iobinding.requested()
        values = self._run(names, iobinding.inputs(), run_options, given)
        iobinding.accept(dict(zip(names, values, strict=True)))

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` on wrapped arrays, with wrapped results."""
        return [OrtValue(value) for value in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """A binding of arrays to this session's inputs and outputs."""
        return IOBinding(self)

    def _run(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        options: RunOptions | None,
        given: Mapping[str, Array] | None,
    ) -> list[Any]:
        """A run with everything that the hot path leaves out."""
        outputs = self._chosen(output_names)
        if not isinstance(feed, Mapping):
            raise InvalidArgument(f"inputs are given as a dict of name to array, not as {type(feed).__name__}")
        required = [spec.name for spec in self._graph.inputs]
        check_names(feed.keys(), required, [spec.name for spec in self._graph.overridable])
        try:
            values = {name: self._readers[name](value) for name, value in feed.items()}
        except MemoryError as error:
            raise translated(error) from error
        on = self._enter()
        try:
            profile = None if self._profile is None else self._profile.add
            runner = Runner(on, None if options is None else options.flag, profile)
            if options is None:
                return self._execute(values, outputs, runner, given)
            with stopping(options.flag.is_set):
                if options.terminate:
                    raise RunTerminated("the run was terminated by RunOptions.terminate")
                return self._execute(values, outputs, runner, given)
        except _CONVERTED as error:
            raise translated(error) from error
        finally:
            self._leave()

    def _execute(
        self, values: dict[str, Any], outputs: tuple[str, ...], runner: Runner, given: Mapping[str, Array] | None
    ) -> list[Any]:
        """Find or make the plan and run its stages; plan anew when a shape was inferred wrongly."""
        while True:
            stage = self._stage(values, outputs)
            try:
                found = stage.run(dict(values), runner, separate(given, values))
            except ShapeSurprise as surprise:
                self._planner.unpredictable.add(surprise.node)
                with self._planning:
                    self._plans.clear()
                    self._fast.clear()
                continue
            results = [found[name] for name in outputs]
            if given:
                return [deliver(name, value, given.get(name)) for name, value in zip(outputs, results, strict=True)]
            return own(results, values, stage)

    def _stage(self, values: Mapping[str, Any], outputs: tuple[str, ...]) -> Stage:
        """The first stage of the plan for inputs of these types and shapes."""
        key = (outputs, tuple(sorted((name, *signature(value)) for name, value in values.items())))
        with self._planning:
            stage = self._plans.get(key)
            if stage is not None:
                self._plans.move_to_end(key)
                return stage
            known: dict[str, Value] = {}
            for spec in self._graph.overridable:
                known[spec.name] = self._graph.constants[spec.name]
            inputs = 0
            for name, value in values.items():
                if isinstance(value, np.ndarray) and storage_dtype(value.dtype) is not None:
                    known[name] = input_tensor(value.dtype, value.shape, inputs)
                    inputs += 1
                else:
                    known[name] = Opaque()
            stage = Stage(self._planner, self._graph.needed_for(outputs), known, outputs, self._options.plan_cache_size)
            self._plans[key] = stage
            if len(self._plans) > self._options.plan_cache_size:
                self._plans.popitem(last=False)
                self._fast.clear()
            self._remember_fast(stage, values, outputs)
            return stage

    def _remember_fast(self, stage: Stage, values: Mapping[str, Any], outputs: tuple[str, ...]) -> None:
        """Let the hot path find a program whose inputs and results are the caller's as they are."""
        if not stage.direct or outputs != self._output_names or self._profile is not None:
            return
        names = [name for name, _ in self._fast_inputs]
        if sorted(values) == sorted(names) == sorted(stage.input_names):
            if stage.input_names != names:
                return
            key = tuple(extent for name in names for extent in values[name].shape)
            if stage.program is not None:
                self._fast[key] = stage.program

    def _chosen(self, output_names: Sequence[str] | None) -> tuple[str, ...]:
        if not output_names:
            return self._output_names
        unknown = [name for name in output_names if name not in self._output_names]
        if unknown:
            raise InvalidArgument(f"unknown output {unknown[0]!r}; the model has {quoted(self._output_names)}")
        return tuple(output_names)

    # -- life ---------------------------------------------------------------------------------------------------------

    def _enter(self) -> Any:
        """Count a run in, and say where it goes."""
        with self._lock:
            if self._closed:
                raise Fail("the session is closed; make a new one to run the model")
            if self._place is None:
                width = self._options.intra_op_num_threads or cpu_budget().count
                lease = registry().lease(Policy(width, self._options.spinning))
                self._finalizer = weakref.finalize(self, lease.release)
                self._finalizer.atexit = False
                self._place = lease.pool
            self._running += 1
            return self._place

    def _leave(self) -> None:
        with self._lock:
            self._running -= 1
            if self._closed and not self._running:
                self._idle.notify_all()

    def close(self) -> None:
        """Refuse new runs, wait for those in flight, and give the executor back. Idempotent."""
        with self._lock:
            self._closed = True
            self._place = None
            while self._running:
                self._idle.wait()
            finalizer, self._finalizer = self._finalizer, None
        with self._planning:
            self._plans.clear()
            self._fast.clear()
        if finalizer is not None:
            finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- looking ------------------------------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that every run must be given."""
        return [node_arg(spec) for spec in self._graph.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return [node_arg(spec) for spec in self._graph.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default, which a run may be given."""
        return [node_arg(spec) for spec in self._graph.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself."""
        model = self._graph.model
        return ModelMetadata(
            producer_name=model.producer_name,
            graph_name=model.graph.name,
            domain=model.domain,
            description=model.doc_string,
            graph_description=model.graph.doc_string,
            version=model.model_version,
            custom_metadata_map={entry.key: entry.value for entry in model.metadata_props},
        )

    def get_providers(self) -> list[str]:
        """The one provider there is."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """It has no options."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:  # noqa: ARG002
        """Accepted when the CPU is among them."""
        check_providers(providers)

    def get_session_options(self) -> SessionOptions:
        """The options the session was made with."""
        return self._options

    def end_profiling(self) -> str:
        """Write the profile and return the name of its file; without `enable_profiling` an empty name.

        The name begins with the option `profile_file_prefix`. After an error nothing is lost: the next call,
        perhaps with another prefix, writes the same steps.
        """
        return "" if self._profile is None else self._profile.write(self._options.profile_file_prefix)

    def get_profiling_start_time_ns(self) -> int:
        """When the profile began, as `time.monotonic_ns` counts; 0 without `enable_profiling`."""
        return 0 if self._profile is None else self._profile.start_ns

    def disable_fallback(self) -> None:
        """Accepted: there is no other provider to fall back to."""

    def enable_fallback(self) -> None:
        """Accepted: there is no other provider to fall back to."""

    def plan(self, shapes: Mapping[str, Sequence[int]] | None = None, /, **dims: int) -> Plan:
        """The program for given input shapes, its buffers and its predicted peak memory, before anything runs.

        Parameters
        ----------
        shapes : mapping, optional
            Input name to shape.
        **dims : int
            Extents of symbolic dimensions; those of neither kind count as 1.

        Returns
        -------
        Plan
            Prints as a table.

        Raises
        ------
        InvalidArgument
            A shape that is none, or that the model does not take.

        Examples
        --------
        >>> import onnx
        >>> from onnx import helper
        >>> matrix = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8, 8])
        >>> nodes = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
        >>> model = helper.make_model(helper.make_graph(nodes, "g", [matrix("a"), matrix("b")], [matrix("d")]))
        >>> print(InferenceSession(model).plan())
        step  kind    node    operands             result      flops
           0  matmul  MatMul  f32[8,8], f32[8,8]   f32[8,8]     1024
           1  unary   Relu    f32[8,8]             f32[8,8]       64
        2 steps, 1.1 kflop, arena 0 bytes, constants 0 bytes, outputs 256 bytes, peak 256 bytes
        """
        values: dict[str, Any] = {}
        for spec in self._graph.inputs:
            if spec.dtype is None:
                raise InvalidArgument(f"input {spec.name!r} is {spec.type}; a plan is shown for tensors only")
            shape = (shapes or {}).get(spec.name)
            if shape is None:
                if spec.dims is None:
                    raise InvalidArgument(f"input {spec.name!r} has no declared rank; give its shape")
                shape = [dim if isinstance(dim, int) else dims.get(dim or "", 1) for dim in spec.dims]
            try:
                values[spec.name] = np.broadcast_to(np.zeros((), spec.dtype), tuple(map(operator.index, shape)))
            except (TypeError, ValueError) as error:
                given = type(shape).__name__ if isinstance(shape, np.ndarray) else repr(shape)
                raise InvalidArgument(
                    f"the shape of input {spec.name!r} must be a sequence of extents from 0 on, got {given}"
                ) from error
        check_names((shapes or {}).keys(), (), [spec.name for spec in self._graph.inputs])
        stage = self._stage(values, self._output_names)
        assumed = {name: list(value.shape) for name, value in values.items()}
        return Plan.of(stage.draft, stage.description, assumed)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec.type}{shape_text(spec.dims or ())}" for spec in self._graph.inputs)
        return f"<InferenceSession of {len(self._graph.nodes)} nodes ({inputs})>"

    def __reduce__(self) -> Any:
        raise TypeError("an InferenceSession cannot be pickled; make one from the model in each process")


_CONVERTED = (StepError, RunCancelled, ValueError, TypeError, MemoryError)
"""What a native program raises: a failed or cancelled step, arrays that are not as it needs them, or too large."""


def translated(error: Exception) -> Exception:
    """The exception under its name at `tt.onnx`."""
    if isinstance(error, RunCancelled):
        return RunTerminated(f"the run was terminated by RunOptions.terminate: {error}")
    if isinstance(error, StepError):
        return RuntimeException(str(error))
    if isinstance(error, MemoryError):
        return RuntimeException(f"the run needs more memory than there is: {error or 'no memory'}")
    return error


def fast_inputs(graph: Graph) -> list[tuple[str, np.dtype[Any]]]:
    """Names and types that the hot path compares; one that never matches when an input is not a plain tensor."""
    found = []
    for spec in graph.inputs:
        if spec.dtype is None or storage_dtype(spec.dtype) != spec.dtype or spec.dims is None:
            return [("", np.dtype(np.void))]
        found.append((spec.name, spec.dtype))
    return found


def signature(value: Any) -> tuple[Any, ...]:
    """What a plan depends on."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape)
    return (type(value).__name__, ())


def node_arg(spec: ValueSpec) -> NodeArg:
    """A declaration with ONNX Runtime's names."""
    return NodeArg(spec.name, spec.type, list(spec.dims or ()))
