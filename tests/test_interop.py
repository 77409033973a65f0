"""Other libraries: the table of their widths, and limiting them whatever the order in which scopes end."""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import threadpoolctl
import threadteam as tt
from script import run
from threadteam.interop.limits import Limit


def blas_width() -> int:
    np.dot(np.ones(1), np.ones(1))
    return max(info["num_threads"] for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas")


@pytest.fixture(autouse=True)
def wide_blas() -> Iterator[None]:
    with threadpoolctl.threadpool_limits(4, user_api="blas"):
        yield


def test_the_table_names_the_loaded_blas() -> None:
    rows = [row for row in tt.interop.widths() if row.limited_by == "threadpoolctl" and row.scope == "process"]
    assert [row.width for row in rows] == [4] * len(rows)
    assert rows
    text = str(tt.interop.widths())
    assert text.splitlines()[0].split() == ["library", "width", "a", "limit", "affects", "limited", "through"]


def test_external_limits_and_restores() -> None:
    with tt.Pool(2) as pool:
        token = pool.exec()
        assert token.external(lambda width: blas_width()) == 2
        assert blas_width() == 4
        with token.external() as width:
            assert blas_width() == width == 2
            assert any("blas" in name for name in width.limited)
        assert blas_width() == 4


def test_a_limit_is_restored_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError):
        tt.Exec.serial().external(lambda width: 1 / 0)
    assert blas_width() == 4
    with pytest.raises(ZeroDivisionError), tt.Exec.serial().external():
        raise ZeroDivisionError
    assert blas_width() == 4


def test_limits_are_restored_in_any_interleaving() -> None:
    wide, narrow = Limit(3), Limit(1)
    assert blas_width() == 1
    narrow.close()
    assert blas_width() == 3
    second = Limit(2)
    wide.close()
    assert blas_width() == 2
    second.close()
    second.close()
    assert blas_width() == 4


def test_a_limit_never_widens() -> None:
    with Limit(64):
        assert blas_width() == 4


def test_a_setting_that_is_kept_per_thread_is_limited_for_its_thread() -> None:
    import numba

    wide = numba.get_num_threads()
    seen: list[int] = []
    with Limit(1):
        assert numba.get_num_threads() == 1
        other = threading.Thread(target=lambda: seen.append(numba.get_num_threads()))
        other.start()
        other.join()
    assert numba.get_num_threads() == wide
    assert seen == [wide]


def test_a_scope_that_is_forgotten_is_restored() -> None:
    scope = tt.Exec.serial().external()
    scope.__enter__()
    assert blas_width() == 1
    del scope
    assert blas_width() == 4


def test_what_could_not_be_limited_is_said() -> None:
    out = run("""
        import sys
        sys.modules["threadpoolctl"] = None
        import threadteam as tt
        print(tt.Exec.serial().external(lambda width: width.unlimited)[0])
        print(tt.interop.widths().note)
    """)
    assert out.splitlines() == [
        "BLAS and OpenMP libraries: threadpoolctl is not installed",
        "BLAS and OpenMP libraries were not looked at: pip install threadpoolctl",
    ]


def test_scopes_that_the_collector_ends_in_the_middle_of_a_change_do_not_lock_it_out() -> None:
    printed = run("""
        import gc
        import numpy
        import threadteam as tt
        from threadteam.interop.limits import _settings
        class Forgotten:
            pass
        gc.set_threshold(1)
        for _ in range(100):
            forgotten = Forgotten()
            forgotten.pool = tt.Pool(2)
            forgotten.scope = forgotten.pool.exec().external()
            forgotten.width = forgotten.scope.__enter__()
            forgotten.itself = forgotten
        del forgotten
        gc.collect()
        with tt.Exec.serial().external():
            pass
        print(_settings)
    """)
    assert printed == "{}\n"


LOADED_TBB = """
    import ctypes, importlib.metadata
    import threadteam as tt
    tbb = importlib.metadata.files("tbb")
    (path,) = [file.locate() for file in tbb if file.name == "libtbb.so.12"]
    def widths():
        return [row.width for row in tt.interop.widths() if row.library == "TBB"]
    print(widths())
    ctypes.CDLL(path)
    (wide,) = widths()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux") or platform.machine() != "x86_64", reason="no wheel of TBB")
def test_tbb_is_limited_while_any_scope_lasts_and_restored_whatever_the_order() -> None:
    out = run(
        LOADED_TBB
        + """
    with tt.Pool(64) as pool:
        one, two = pool.exec(), tt.Exec.serial()
        first, second = one.external(), two.external()
        narrow = first.__enter__()
        print("TBB" in narrow.limited, widths() == [min(wide, 64)])
        second.__enter__()
        print(widths())
        first.__exit__(None, None, None)
        print(widths())
        second.__exit__(None, None, None)
        print(widths() == [wide])
        print(two.external(lambda width: widths()), widths() == [wide])
    """
    )
    assert out.splitlines() == ["[]", "True True", "[1]", "[1]", "True", "[1] True"]
