"""Recognising native code in what users pass as bodies, and checking its declared types."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from threadteam import _forks
from threadteam._native import NativeBody, _capsule

Signature = Literal["range", "index"]

# The base class of all ctypes function pointers has no public name.
_FunctionPointer: Any = ctypes.CFUNCTYPE(None).__mro__[1]

C_SIGNATURES: dict[str, str] = {
    "range": "void (int64_t start, int64_t stop, void *data)",
    "index": "void (int64_t index, void *data)",
}
"""The native signatures, as C declares them."""

_INTEGERS = {"range": 2, "index": 1}
_CAPSULES = {"threadteam.range_body": "range", "threadteam.index_body": "index"}
_C_INTEGERS = {"int64_t", "long long", "ssize_t", "ptrdiff_t", "intptr_t", "signed long long"} | (
    {"long", "signed long"} if ctypes.sizeof(ctypes.c_long) == 8 else set()
)
# Set in `_flags_` of the functions of `ctypes.pythonapi`, which need the interpreter.
_FUNCFLAG_PYTHONAPI = 0x4


@dataclass(frozen=True)
class Function:
    """A native function: where it is, what it was declared as, and what keeps it."""

    address: int
    signature: Signature
    kept: object
    description: str
    data: int = 0
    """What it was given by its own kind of object (a capsule's context, SciPy's user data)."""


def recognise(given: object, wanted: Signature) -> NativeBody | None:
    """Return the native body that `given` is, or None when it is no native code.

    Parameters
    ----------
    given : object
        What the user passed as a body.
    wanted : {"range", "index"}
        The signature that the section needs: it decides for functions that declare no types.

    Returns
    -------
    NativeBody or None
        A `ctypes` or `cffi` function pointer, a `numba.cfunc`, a `scipy.LowLevelCallable` or one of our capsules.

    Raises
    ------
    TypeError
        Native code whose declared types are not those of the signature; both are spelled out.
    """
    function = find(given, wanted)
    if function is None:
        return None
    return NativeBody(function.address, function.data, function.signature, function.kept, function.description)


def find(given: object, wanted: Signature | None) -> Function | None:
    """Return the native function that `given` is, or None."""
    if isinstance(given, _FunctionPointer):
        return _ctypes_function(given, wanted)
    if type(given).__name__ == "PyCapsule":
        return _capsule_function(given)
    scipy = _loaded("scipy._lib._ccallback")
    if scipy is not None and isinstance(given, scipy.LowLevelCallable):
        return _low_level_callable(given, wanted)
    numba = _loaded("numba.core.ccallback")
    if numba is not None and isinstance(given, numba.CFunc):
        # Its `ctypes` attribute carries the types that numba compiled it for.
        function = _ctypes_function(given.ctypes, wanted, f"the numba cfunc {given.__wrapped__.__name__}")
        return Function(function.address, function.signature, given, function.description)
    cffi = _loaded("_cffi_backend")
    if cffi is not None and isinstance(given, cffi._CDataBase):
        return _cffi_function(given, wanted)
    return None


def _loaded(name: str) -> ModuleType | None:
    """Return a module only if somebody imported it: an object of its classes cannot exist before."""
    return sys.modules.get(name)


def _ctypes_function(function: Any, wanted: Signature | None, name: str | None = None) -> Function:
    name = name or getattr(function, "__name__", None) or "a ctypes function pointer"
    if type(function)._flags_ & _FUNCFLAG_PYTHONAPI:
        raise TypeError(f"{name} belongs to ctypes.pythonapi and needs the interpreter; native bodies run without it")
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    declared = function.argtypes
    if declared is None:
        # Nothing was declared, so there is nothing to check: the section's own signature is assumed.
        return Function(address, wanted or "range", function, name)
    arguments = [_ctypes_kind(argument) for argument in declared]
    text = f"{_ctypes_name(function.restype)} ({', '.join(_ctypes_name(argument) for argument in declared)})"
    # An undeclared result is int in ctypes; ignoring a returned integer is harmless in every calling convention.
    returns = "void" if function.restype in (None, ctypes.c_int) else "other"
    return Function(address, _match(arguments, returns, text, name, wanted), function, name)


def _ctypes_name(kind: Any) -> str:
    return "void" if kind is None else str(getattr(kind, "__name__", kind))


def _ctypes_kind(kind: Any) -> str:
    if isinstance(kind, type):
        if issubclass(kind, ctypes._SimpleCData):
            code = str(getattr(kind, "_type_", ""))
            if code in "lq" and ctypes.sizeof(kind) == 8:
                return "integer"
            return "pointer" if code in "PzZO" and code != "O" else "other"
        if issubclass(kind, (ctypes._Pointer, _FunctionPointer)):
            return "pointer"
    # `numpy.ctypeslib.ndpointer` and other adapters convert Python objects, which native code is not given.
    return "other"


def _cffi_function(given: Any, wanted: Signature | None) -> Function | None:
    ffi = _ffi()
    kind = ffi.typeof(given)
    function = kind.item if kind.kind == "pointer" else kind
    if function.kind != "function":
        return None
    arguments = [_cffi_kind(argument) for argument in function.args]
    returns = "void" if function.result.cname == "void" else "other"
    name = "a cffi function pointer"
    signature = _match(arguments, returns, function.cname, name, wanted)
    return Function(int(ffi.cast("intptr_t", given)), signature, given, name)


def _cffi_kind(kind: Any) -> str:
    if kind.kind == "primitive" and kind.cname in _C_INTEGERS:
        return "integer"
    return "pointer" if kind.kind == "pointer" else "other"


def _ffi() -> Any:
    # It imports its parser at the first call.
    with _forks.lock:
        return _forks.load("cffi").FFI()


def _low_level_callable(given: Any, wanted: Signature | None) -> Function:
    inner = find(given.function, wanted)
    name, _, context = _capsule(tuple.__getitem__(given, 0))
    if inner is None:
        # Cython's functions: a capsule named after its C signature.
        signature = _match(*_parse_c(name or ""), name or "nothing", "a LowLevelCallable", wanted)
        address = _capsule(given.function)[1]
        return Function(address, signature, given, "a LowLevelCallable", context)
    return Function(inner.address, inner.signature, given, "a LowLevelCallable", context)


def _capsule_function(given: object) -> Function | None:
    name, address, context = _capsule(given)
    if name not in _CAPSULES:
        if name is not None and "(" in name:
            return None
        raise TypeError(f"a capsule named {name!r} is no body; expected one named {' or '.join(map(repr, _CAPSULES))}")
    signature: Signature = "range" if _CAPSULES[name] == "range" else "index"
    return Function(address, signature, given, f"a capsule named {name!r}", context)


def _parse_c(text: str) -> tuple[list[str], str]:
    """Return the kinds of the arguments and of the result in a C signature such as ``void (int64_t, void *)``."""
    match = re.fullmatch(r"\s*([^()]*?)\s*\((.*)\)\s*", text)
    if match is None:
        return ["other"], "other"
    arguments = [argument.strip() for argument in match[2].split(",")]
    kinds = [
        "pointer" if "*" in a else "integer" if a.removeprefix("const ") in _C_INTEGERS else "other" for a in arguments
    ]
    return kinds, "void" if match[1] == "void" else "other"


def _match(arguments: list[str], returns: str, declared: str, name: str, wanted: Signature | None) -> Signature:
    signatures: tuple[Signature, ...] = ("range", "index") if wanted is None else (wanted,)
    for signature in signatures:
        if returns == "void" and arguments == ["integer"] * _INTEGERS[signature] + ["pointer"]:
            return signature
    expected = " or ".join(C_SIGNATURES[signature] for signature in signatures)
    raise TypeError(f"{name} is declared as {declared}, expected {expected}")


def data_address(data: object) -> int:
    """Return the address that a native body is given for `data`.

    Parameters
    ----------
    data : None, int, ctypes object, cffi pointer or buffer
        None is the null pointer; an integer is an address; pointers stand for what they point to; anything with a
        contiguous buffer (an array, a `bytearray`) for its first byte.

    Returns
    -------
    int
        An address.
    """
    if data is None:
        return 0
    if isinstance(data, int) and not isinstance(data, bool):
        if not 0 <= data < 1 << (8 * ctypes.sizeof(ctypes.c_void_p)):
            raise ValueError(f"data is the address {data}, which no pointer holds")
        return data
    if isinstance(data, (ctypes.c_void_p, ctypes.c_char_p, ctypes._Pointer, _FunctionPointer)):
        return ctypes.cast(data, ctypes.c_void_p).value or 0
    if isinstance(data, ctypes._SimpleCData | ctypes.Structure | ctypes.Union | ctypes.Array):
        return ctypes.addressof(data)
    cffi = _loaded("_cffi_backend")
    if cffi is not None and isinstance(data, cffi._CDataBase):
        ffi = _ffi()
        return int(ffi.cast("intptr_t", ffi.cast("void *", data)))
    return _buffer_address(data)


def _buffer_address(data: object) -> int:
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"data is of type {type(data).__name__}, expected None, an address, a ctypes or cffi object, or a buffer"
        ) from None
    if not view.contiguous:
        raise ValueError(
            f"data is a buffer of shape {view.shape} and strides {view.strides} that is not contiguous; native code is "
            "given the address of its first byte only, so pass a contiguous copy"
        )
    # Imported late, because NumPy starts its BLAS's threads. It answers for every buffer, read-only ones included.
    with _forks.lock:
        np = _forks.load("numpy")
        return int(np.frombuffer(view, dtype=np.uint8).ctypes.data) if view.nbytes else 0
