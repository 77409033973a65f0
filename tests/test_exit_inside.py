"""The end of the interpreter while a daemon thread is inside Python code that native code has called."""

from __future__ import annotations

import pytest
from script import run

PREAMBLE = """
import gc, threading, time
import numpy as np
import threadteam as tt
from threadteam import _native

started = threading.Event()

def endless(*arguments):
    if threading.current_thread() is not threading.main_thread():
        started.set()
        while True:
            time.sleep(0.0005)

class Endless:
    pass

pool = tt.Pool(2, acquire_timeout=10.0)
token = pool.exec()

def program(call):
    value = ("input", 0, 0, "float32", (1,), (1,)), ("output", 0, 0, "float32", (1,), (1,))
    ports = [("x", "float32", (1,))], [("y", "float32", (1,))]
    return _native.Program(list(value), [], *ports, [("python", [0], [1], {"call": call}, "step")], 0)
"""

CASES = {
    "__index__ of a budget": "Endless.__index__ = endless; work = lambda: pool.exec(Endless())",
    "__index__ of a share": "Endless.__index__ = endless; work = lambda: token.fork_sized([Endless()], endless)",
    "__index__ of a width of costs": """
Endless.__index__ = endless
work = lambda: tt.WidthCosts.flat(1e-6).at(Endless())
""",
    "__index__ of the size of a trace": "Endless.__index__ = endless; work = lambda: _native.Trace(Endless(), 1)",
    "__float__ of an estimate": "Endless.__float__ = endless; work = lambda: token.pays(Endless())",
    "__float__ of a policy's time": "Endless.__float__ = endless; work = lambda: tt.WaitPolicy(Endless())",
    "__repr__ of a refused number": """
class Zero(int):
    __repr__ = endless
work = lambda: pool.exec(Zero(0))
""",
    "__repr__ of what is no number": "Endless.__repr__ = endless; work = lambda: pool.exec(Endless())",
    "__repr__ of what is no name": "Endless.__repr__ = endless; work = lambda: tt.Pool(1, name=Endless())",
    "__repr__ of a body that returns a coroutine": """
async def nothing(): pass
Endless.__repr__ = endless
Endless.__call__ = lambda self, start, stop: nothing()
work = lambda: token.for_ranges(1, 1, Endless())
""",
    "__next__ of an iterable": """
Endless.__iter__ = lambda self: self
Endless.__next__ = endless
work = lambda: token.map(abs, Endless())
""",
    "__iter__ of anchors": "Endless.__iter__ = endless; work = lambda: tt.WidthCosts.from_anchors(Endless())",
    "__repr__ of what is no anchor": """
Endless.__repr__ = endless
work = lambda: tt.WidthCosts.from_anchors([Endless()])
""",
    "__str__ of an exception's company": """
class Failure(Exception):
    __str__ = endless
meeting = threading.Barrier(2)
def body(index):
    meeting.wait()
    raise Failure
work = lambda: token.broadcast(body)
""",
    "a descriptor of an exception": """
class Failure(Exception):
    add_note = property(endless)
meeting = threading.Barrier(2)
def body(index):
    meeting.wait()
    raise Failure
work = lambda: token.broadcast(body)
""",
    "__del__ of a result that is dropped": """
Endless.__del__ = endless
def function(item):
    if item:
        raise KeyError(item)
    return Endless()
work = lambda: tt.Exec.serial().map(function, [0, 1])
""",
    "__del__ of a start hook": """
Endless.__del__ = endless
Endless.__call__ = lambda self, index: None
def work():
    tt.Pool(2, on_start=Endless()).close()
""",
    "a start hook": "work = lambda: tt.Pool(2, on_start=endless).exec().broadcast(lambda index: None)",
    "a step of a program": "work = lambda: program(endless).run([np.zeros(1, np.float32)])",
    "__getitem__ of a program's inputs": """
import collections.abc
class Inputs(collections.abc.Sequence):
    __len__ = lambda self: 1
    __getitem__ = endless
work = lambda: program(lambda x: (x,)).run(Inputs())
""",
    "__getitem__ of a program's values": """
import collections.abc
class Values(collections.abc.Sequence):
    __len__ = lambda self: 1
    __getitem__ = endless
work = lambda: _native.Program(Values(), [], [], [], [], 0)
""",
    "the garbage collector, called by an allocation": """
costs = tt.WidthCosts.flat(1e-6)
def work():
    gc.callbacks.append(endless)
    gc.set_threshold(1)
    kept = []
    while True:
        kept.append(costs.anchors)
""",
    "a finaliser of what a native body keeps": """
Endless.__del__ = endless
def work():
    # Made here: a free-threaded interpreter lets the thread that made an object finalise it.
    body = _native.NativeBody(1, 0, "index", Endless(), "")
    del body
""",
    "a cost function": "work = lambda: tt.width_for_by(1.0, 1, 4, endless)",
    "a body on its leader": "work = lambda: tt.Exec.serial().for_ranges(1, 1, endless)",
    "a body on a worker": "work = lambda: token.broadcast(endless)",
    "a combination of partial results": "work = lambda: token.reduce(4, 1, lambda start, stop: 1, endless, 0)",
    "a function of external": "work = lambda: token.external(endless)",
}


@pytest.mark.parametrize("case", CASES)
def test_a_daemon_thread_is_at_the_end_of_the_interpreter_in(case: str) -> None:
    start = "threading.Thread(target=work, daemon=True).start()\nassert started.wait(30)\n"
    run(PREAMBLE + CASES[case] + "\n" + start, silent=True)
