"""Arrays bound to a session's inputs and outputs, and the wrapper that ONNX Runtime puts around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from threadteam.errors import InvalidArgument

from .device import check_device
from .inputs import quoted
from .types import array_type_string, elem_type_of
from .values import Array

if TYPE_CHECKING:
    from .session import InferenceSession

__all__ = ["IOBinding", "OrtValue"]


class OrtValue:
    """A value in the memory of this process.

    Parameters
    ----------
    value : object
        An array, a list or None.

    Examples
    --------
    >>> OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32)).shape()
    [2, 3]
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(cls, array: Array, device_type: str = "cpu", device_id: int = 0) -> OrtValue:  # noqa: ARG003
        """Wrap an array; only the CPU has memory here."""
        check_device(device_type)
        return cls(np.asarray(array))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,  # noqa: ARG003
    ) -> OrtValue:
        """A new array of this shape and NumPy type."""
        check_device(device_type)
        return cls(np.zeros(tuple(shape), element_type))

    def numpy(self) -> Any:
        """The value itself."""
        return self._value

    def shape(self) -> list[int]:
        """The extents."""
        return list(self._value.shape)

    def data_type(self) -> str:
        """Such as `tensor(float)`."""
        return array_type_string(self._value) if isinstance(self._value, np.ndarray) else "unknown"

    def element_type(self) -> int:
        """The number of the element type in ONNX."""
        return elem_type_of(self._value.dtype)

    def tensor_size_in_bytes(self) -> int:
        """The size of the contents."""
        return int(self._value.nbytes)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._value.ctypes.data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The value for `numpy.asarray`."""
        return np.array(self._value, dtype, copy=copy) if copy else np.asarray(self._value, dtype)

    def device_name(self) -> str:
        """Always the CPU."""
        return "cpu"

    def has_value(self) -> bool:
        """Whether an optional value is present."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is an array."""
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Never: sparse values are made dense."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of arrays."""
        return isinstance(self._value, list)

    def update_inplace(self, array: Array) -> None:
        """Copy new contents into the wrapped array."""
        self._value[...] = array


class IOBinding:
    """Inputs and preallocated outputs of runs with `InferenceSession.run_with_iobinding`.

    Parameters
    ----------
    session : InferenceSession
        Whose inputs and outputs are bound.

    Examples
    --------
    >>> import onnx
    >>> from onnx import helper
    >>> from threadteam.onnx import InferenceSession
    >>> pair = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
    >>> node = helper.make_node("Neg", ["x"], ["y"])
    >>> session = InferenceSession(helper.make_model(helper.make_graph([node], "g", [pair("x")], [pair("y")])))
    >>> binding, y = session.io_binding(), np.empty(2, np.float32)
    >>> binding.bind_cpu_input("x", np.array([1, -2], np.float32))
    >>> binding.bind_output("y", array=y)
    >>> session.run_with_iobinding(binding)
    >>> y
    array([-1.,  2.], dtype=float32)
    """

    def __init__(self, session: InferenceSession) -> None:
        self._outputs_known = [arg.name for arg in session.get_outputs()]
        self._inputs_known = [arg.name for arg in session.get_inputs()]
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Use an array as an input of every following run; its contents are read when it runs."""
        self._inputs[name] = array

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,  # noqa: ARG002 - ONNX Runtime's signature
        element_type: Any,  # noqa: ARG002
        shape: Sequence[int],  # noqa: ARG002
        buffer_ptr: int,  # noqa: ARG002
    ) -> None:
        """Refused, as no bare address can be checked: `bind_cpu_input` takes the array."""
        check_device(device_type)
        raise InvalidArgument(f"input {name!r}: a bare address cannot be checked; give the array to bind_cpu_input")

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Use a wrapped array as an input."""
        self._inputs[name] = value.numpy()

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,  # noqa: ARG002 - ONNX Runtime's signature
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
        *,
        array: Array | None = None,
    ) -> None:
        """Ask for an output, in `array` when one is given, else in a new array."""
        check_device(device_type)
        if buffer_ptr is not None:
            raise InvalidArgument(f"output {name!r}: a bare address cannot be checked; give the array with array=")
        if name not in self._outputs_known:
            raise InvalidArgument(f"unknown output {name!r}; the model has {quoted(self._outputs_known)}")
        if array is None and shape is not None and element_type is not None:
            array = np.zeros(tuple(shape), element_type)
        self._outputs[name] = array

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Write an output into a wrapped array."""
        self.bind_output(name, array=value.numpy())

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on the CPU."""

    def inputs(self) -> dict[str, Any]:
        """What the run is given."""
        return dict(self._inputs)

    def requested(self) -> tuple[list[str], dict[str, Array]]:
        """The names of the wanted outputs, and the arrays for those that have one."""
        names = list(self._outputs) or self._outputs_known
        return names, {name: array for name, array in self._outputs.items() if array is not None}

    def accept(self, results: dict[str, Any]) -> None:
        """Keep what the run gave."""
        self._results = results

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run, wrapped."""
        return [OrtValue(value) for value in self._results.values()]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run."""
        return list(self._results.values())
