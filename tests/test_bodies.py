"""Native bodies: every kind that is recognised, what is refused, and what they are given."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import threadteam as tt
from cffi import FFI
from numba import types
from scipy import LowLevelCallable

FLOATS = types.CPointer(types.float64)


@numba.cfunc(types.void(types.int64, types.int64, FLOATS))
def fill(start, stop, data):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        data[i] += i


@numba.cfunc(types.void(types.int64, FLOATS))
def mark(index, data):  # type: ignore[no-untyped-def]
    data[index] += 1.0


@numba.cfunc(types.float64(types.float64))
def square(x):  # type: ignore[no-untyped-def]
    return x * x


@pytest.fixture
def token() -> Any:
    with tt.Pool(2, acquire_timeout=10.0) as pool:
        yield pool.exec()


def as_ctypes(function: Any) -> Any:
    return function.ctypes


def as_undeclared(function: Any) -> Any:
    bare = ctypes.CDLL(None).free
    return ctypes.cast(function.address, type(bare))


def as_cffi(function: Any) -> Any:
    arguments = "int64_t, int64_t, double *" if function is fill else "int64_t, void *"
    return FFI().cast(f"void (*)({arguments})", function.address)


def as_low_level_callable(function: Any) -> Any:
    return LowLevelCallable(function.ctypes)


KINDS = [lambda function: function, as_ctypes, as_undeclared, as_cffi, as_low_level_callable]


@pytest.mark.parametrize("kind", KINDS)
def test_native_ranges_cover_every_item_once(token: tt.Exec, kind: Any) -> None:
    data = np.zeros(1000)
    token.for_ranges(1000, 10, tt.native(kind(fill), data))
    np.testing.assert_array_equal(data, np.arange(1000))


@pytest.mark.parametrize("kind", KINDS)
def test_native_jobs_run_once_each(token: tt.Exec, kind: Any) -> None:
    data = np.zeros(100)
    body = tt.native(kind(mark), data, signature="index")
    token.fork(100, body)
    token.broadcast(body)
    with token.team() as team:
        team.run(body)
    token.fork_sized([1, 1], body)
    np.testing.assert_array_equal(data, [4.0] * 2 + [1.0] * 98)


def test_native_code_is_recognised_without_a_wrapper(token: tt.Exec) -> None:
    data = np.zeros(8)
    address = data.ctypes.data
    token.for_ranges(8, 1, LowLevelCallable(fill.ctypes, ctypes.c_void_p(address)))
    token.fork(8, LowLevelCallable(mark.ctypes, ctypes.c_void_p(address)))
    np.testing.assert_array_equal(data, np.arange(8) + 1)


def test_a_bare_address_needs_a_signature(token: tt.Exec) -> None:
    data = np.zeros(8)
    with pytest.raises(TypeError, match="a bare address needs signature="):
        tt.native(fill.address)
    with pytest.raises(TypeError, match="must be callable or native code"):
        token.for_ranges(8, 1, fill.address)
    token.for_ranges(8, 1, tt.native(fill.address, data, signature="range"))
    assert data[7] == 7


def test_declared_types_are_checked_and_spelled_out(token: tt.Exec) -> None:
    expected = r"expected void \(int64_t start, int64_t stop, void \*data\)"
    with pytest.raises(TypeError, match=rf"the numba cfunc mark is declared as void \(c_\w+, .*\), {expected}"):
        token.for_ranges(1, 1, mark)
    with pytest.raises(TypeError, match=rf"declared as c_double \(c_double\), {expected}"):
        token.for_ranges(1, 1, square)
    with pytest.raises(TypeError, match=rf"declared as void\(\*\)\(int64_t, void \*\), {expected}"):
        token.for_ranges(1, 1, as_cffi(mark))
    with pytest.raises(TypeError, match=r"declared as .* or void"):
        tt.native(square)
    with pytest.raises(TypeError, match=expected):
        token.for_ranges(1, 1, LowLevelCallable(mark.ctypes))
    narrow = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)(lambda a, b, c: None)
    with pytest.raises(TypeError, match=r"void \(c_int, c_long\w*, c_void_p\)"):
        token.for_ranges(1, 1, narrow)


def test_the_signature_must_be_the_sections(token: tt.Exec) -> None:
    with pytest.raises(TypeError, match=r"Exec\.fork\(\) got native code of signature void \(int64_t start"):
        token.fork(1, tt.native(fill))
    with token.team() as team, pytest.raises(TypeError, match="native code cannot be one"):
        team.run_with(tt.native(mark))


def test_functions_that_need_the_interpreter_are_refused(token: tt.Exec) -> None:
    with pytest.raises(TypeError, match="needs the interpreter"):
        token.for_ranges(1, 1, ctypes.pythonapi.PyErr_CheckSignals)


@pytest.mark.parametrize("function", [None, "fill", 3.5, object(), print])
def test_what_is_no_native_code_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="is no native code"):
        tt.native(function)


def test_null_and_absurd_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="no address"):
        tt.native(0, signature="range")
    with pytest.raises(TypeError, match="null function pointer"):
        tt.native(ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)())
    with pytest.raises(ValueError, match="which no pointer holds"):
        tt.native(fill, -1)
    with pytest.raises(ValueError, match="signature must be"):
        tt.native(fill.address, signature="job")  # type: ignore[arg-type]


def test_data_of_every_kind_is_its_first_byte() -> None:
    array = np.arange(4.0)
    buffer = bytearray(8)
    number = ctypes.c_double()
    ffi = FFI()
    owned = ffi.new("double[4]")
    cases = [
        (None, 0),
        (array, array.ctypes.data),
        (array[1:], array.ctypes.data + 8),
        (array.ctypes.data, array.ctypes.data),
        (ctypes.c_void_p(4096), 4096),
        (ctypes.pointer(number), ctypes.addressof(number)),
        (number, ctypes.addressof(number)),
        (buffer, ctypes.addressof((ctypes.c_char * 8).from_buffer(buffer))),
        (memoryview(array), array.ctypes.data),
        (np.zeros(0), 0),
        (owned, int(ffi.cast("intptr_t", owned))),
    ]
    for data, address in cases:
        assert tt.native(fill, data).data == address, data
    readonly = np.arange(3.0)
    readonly.flags.writeable = False
    assert tt.native(fill, readonly).data == readonly.ctypes.data


def test_data_that_is_no_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        tt.native(fill, np.zeros((4, 4))[:, 1])
    with pytest.raises(TypeError, match="data is of type object"):
        tt.native(fill, object())


def test_data_is_kept_alive_with_the_body(token: tt.Exec) -> None:
    body = tt.native(fill, np.zeros(1000))
    before = np.full(100_000, 1.0)
    token.for_ranges(1000, 1, body)
    assert (before == 1.0).all()
    assert tt.native(body).data == body.data
    assert tt.native(body, before).data == before.ctypes.data


def test_user_data_of_a_low_level_callable_is_used_and_overridden() -> None:
    callable_ = LowLevelCallable(fill.ctypes, ctypes.c_void_p(64))
    assert tt.native(callable_).data == 64
    assert tt.native(callable_, 128).data == 128


def test_a_body_describes_itself() -> None:
    assert repr(tt.native(mark)) == "<native index body the numba cfunc mark>"
    assert tt.native(mark).signature == "index"
    assert tt.native(mark).address == mark.address


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_an_extension_makes_capsules_with_the_header(tmp_path: Path, token: tt.Exec) -> None:
    source = tmp_path / "bodies.c"
    source.write_text("""
        #include <Python.h>
        #include "threadteam.h"
        static double values[64];
        static void fill(int64_t start, int64_t stop, void *data) {
            for (int64_t i = start; i < stop; i++) ((double *)data)[i] = 2.0 * (double)i;
        }
        static void mark(int64_t index, void *data) { ((double *)data)[index] = -1.0; }
        PyObject *range_body(void) { return threadteam_range_body(fill, values); }
        PyObject *index_body(void) { return threadteam_index_body(mark, values); }
        PyObject *other(void) { return PyCapsule_New(values, "other", NULL); }
        double *address(void) { return values; }
    """)
    library = tmp_path / "bodies.so"
    include = [f"-I{tt.get_include()}", f"-I{sysconfig.get_path('include')}"]
    subprocess.run(
        ["cc", "-Wall", "-Werror", "-shared", "-fPIC", *include, str(source), "-o", str(library)], check=True
    )
    bodies = ctypes.PyDLL(str(library))
    for name in ("range_body", "index_body", "other"):
        getattr(bodies, name).restype = ctypes.py_object
    bodies.address.restype = ctypes.POINTER(ctypes.c_double)
    token.for_ranges(64, 1, bodies.range_body())
    assert list(bodies.address()[:64]) == [2.0 * i for i in range(64)]
    token.fork(3, bodies.index_body())
    assert list(bodies.address()[:4]) == [-1.0, -1.0, -1.0, 6.0]
    mine = np.zeros(8)
    token.for_ranges(8, 1, tt.native(bodies.range_body(), mine))
    assert mine[7] == 14.0
    with pytest.raises(TypeError, match="a capsule named 'other' is no body"):
        token.for_ranges(1, 1, bodies.other())
    with pytest.raises(TypeError, match="got native code of signature"):
        token.fork(1, bodies.range_body())


def test_python_callables_of_every_kind_are_bodies(token: tt.Exec) -> None:
    seen: list[int] = []

    class Body:
        def __call__(self, start: int, stop: int) -> None:
            seen.append(start)

        def method(self, start: int, stop: int) -> None:
            seen.append(start)

    import functools

    for body in (Body(), Body().method, functools.partial(Body().method), max):
        token.for_ranges(1, 1, body)
    assert seen == [0, 0, 0]


def test_native_sections_let_python_threads_run(token: tt.Exec) -> None:
    import threading

    gate = np.zeros(1)
    opener = threading.Thread(target=lambda: gate.__setitem__(0, 1.0))

    @numba.cfunc(types.void(types.int64, FLOATS))
    def wait(index, data):  # type: ignore[no-untyped-def]
        # Ends only when the Python thread has run: the section must not hold the interpreter.
        while data[0] == 0.0:
            pass

    body = tt.native(wait.address, gate, signature="index")
    sys.setswitchinterval(1e-5)
    opener.start()
    token.fork(1, body)
    opener.join()
    sys.setswitchinterval(0.005)
