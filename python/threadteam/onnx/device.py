"""`OrtDevice`: where a value lies, under ONNX Runtime's name. Here that is the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from threadteam.errors import InvalidArgument

__all__ = ["OrtDevice", "check_device"]


def check_device(device_type: str) -> None:
    """Only the CPU has memory here."""
    if not isinstance(device_type, str) or device_type.lower() != "cpu":
        raise InvalidArgument(f"device {device_type!r} is not available; this package runs on 'cpu'")


@dataclass(frozen=True)
class OrtDevice:
    """The CPU.

    Examples
    --------
    >>> device = OrtDevice.make("cpu", 0)
    >>> device.device_type(), device.device_id(), device.device_vendor_id(), device.device_mem_type()
    (0, 0, 0, 0)
    """

    _id: int = 0

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:  # noqa: ARG004
        """The device of this name.

        Raises
        ------
        InvalidArgument
            Another one than the CPU.
        """
        check_device(ort_device_name)
        return OrtDevice(int(device_id))

    def device_type(self) -> int:
        """ONNX Runtime's number of the CPU."""
        return 0

    def device_id(self) -> int:
        """The number that it was made with."""
        return self._id

    def device_vendor_id(self) -> int:
        """None in particular."""
        return 0

    def device_mem_type(self) -> int:
        """ONNX Runtime's number of ordinary memory."""
        return 0
