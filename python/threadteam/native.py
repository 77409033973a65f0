"""Native code as bodies of sections: it runs without the interpreter, on all participants at once."""

from __future__ import annotations

from pathlib import Path

from threadteam._bodies import C_SIGNATURES, Signature, data_address, find
from threadteam._native import NativeBody

__all__ = ["NativeBody", "get_include", "native"]


def native(function: object, data: object = None, *, signature: Signature | None = None) -> NativeBody:
    """Wrap native code as a body.

    Parameters
    ----------
    function : function pointer, capsule or int
        A ``ctypes`` or ``cffi`` function pointer, a ``numba.cfunc``, a ``scipy.LowLevelCallable``, a capsule named
        ``threadteam.range_body`` or ``threadteam.index_body``, or, with `signature`, a bare address. Its declared types
        must be ``void (int64_t start, int64_t stop, void *data)`` for ranges or ``void (int64_t index, void *data)``
        for jobs and broadcasts.
    data : None, int, ctypes object, cffi pointer or buffer, optional
        What the function is given as its last argument, kept alive with the body. It overrides the user data of a
        ``LowLevelCallable`` or a capsule.
    signature : {"range", "index"}, optional
        Which of the two signatures the function has. Needed for an address, and for a ``ctypes`` function without
        declared types that has the second one.

    Returns
    -------
    NativeBody
        A body for any number of sections.

    Raises
    ------
    TypeError
        Declared types that are not those of a signature (both are spelled out), or something that is no native code.

    Examples
    --------
    >>> import ctypes
    >>> import numpy as np
    >>> import threadteam as tt
    >>> squares = np.zeros(10)
    >>> @ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    ... def fill(start, stop, data):
    ...     values = ctypes.cast(data, ctypes.POINTER(ctypes.c_double))
    ...     for i in range(start, stop):
    ...         values[i] = i * i
    >>> with tt.Pool(2) as pool:
    ...     pool.exec().for_ranges(10, 1, tt.native(fill, squares))
    >>> squares[-1].item()
    81.0
    """
    if signature not in (None, "range", "index"):
        raise ValueError(f"signature must be 'range' or 'index', got {signature!r}")
    if isinstance(function, NativeBody):
        kept: object = (function, data)
        address = function.data if data is None else data_address(data)
        return NativeBody(function.address, address, function.signature, kept, repr(function))
    if isinstance(function, int) and not isinstance(function, bool):
        if signature is None:
            expected = " or ".join(f"{name!r} for {text}" for name, text in C_SIGNATURES.items())
            raise TypeError(f"a bare address needs signature=: {expected}")
        if not 0 < function < 1 << 64:
            raise ValueError(f"{function} is no address of a function")
        return NativeBody(function, data_address(data), signature, data, f"at address {function:#x}")
    found = find(function, signature)
    if found is None:
        raise TypeError(
            f"{type(function).__name__} is no native code; expected a ctypes or cffi function pointer, a numba.cfunc, "
            "a scipy.LowLevelCallable, a threadteam capsule, or an address with signature="
        )
    address = found.data if data is None else data_address(data)
    return NativeBody(found.address, address, found.signature, (found.kept, data), found.description)


def get_include() -> str:
    """Return the directory of ``threadteam.h``, with which extensions make capsules of bodies.

    Returns
    -------
    str
        A directory for the compiler's ``-I``.

    Examples
    --------
    >>> from pathlib import Path
    >>> import threadteam as tt
    >>> (Path(tt.get_include()) / "threadteam.h").is_file()
    True
    """
    return str(Path(__file__).parent / "include")
