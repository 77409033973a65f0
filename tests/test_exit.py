"""The end of the interpreter: status 0 and no hang, whatever the workers do."""

from __future__ import annotations

import pytest
from script import run

PREAMBLE = """
import atexit, itertools, threading, time
import threadteam as tt
pool = tt.Pool(3, acquire_timeout=10.0)
token = pool.exec()
"""

CASES = {
    "idle workers": "token.broadcast(lambda index: None)",
    "workers never started": "pass",
    "an open team": "team = pool.into_team(); led = team.exec(); led.broadcast(lambda index: None)",
    "loans and scopes left open": "loan = token.limit(2); scope = loan.external(); scope.__enter__()",
    "a reservation left open": "team = token.team(); members = team.__enter__(); members.run(print)",
    "a daemon thread in endless sections": """
started = threading.Event()
def lead():
    while True:
        token.for_ranges(1000, 1, lambda start, stop: started.set())
threading.Thread(target=lead, daemon=True).start()
started.wait()
""",
    "workers in endless Python loops": """
started = threading.Barrier(4)
def spin(index):
    started.wait()
    while True:
        pass
threading.Thread(target=lambda: token.broadcast(spin), daemon=True).start()
started.wait()
""",
    "workers asleep": """
started = threading.Barrier(4)
def rest(index):
    started.wait()
    time.sleep(3600)
threading.Thread(target=lambda: token.broadcast(rest), daemon=True).start()
started.wait()
""",
    "workers that wake up during the finalisation": """
started = threading.Barrier(4)
def rest(index):
    started.wait()
    while True:
        time.sleep(0.0005)
threading.Thread(target=lambda: token.broadcast(rest), daemon=True).start()
started.wait()
""",
    "a daemon thread in an external call": """
started = threading.Event()
threading.Thread(target=lambda: token.external(lambda width: (started.set(), time.sleep(3600))), daemon=True).start()
started.wait()
""",
    "daemon threads in endless external scopes": """
started = threading.Barrier(3)
def scopes():
    for count in itertools.count():
        with pool.exec().external():
            pass
        if count == 50:
            started.wait()
for _ in range(2):
    threading.Thread(target=scopes, daemon=True).start()
started.wait()
""",
    "daemon threads in endless Python code of every kind that sections call": """
class Body:
    def __call__(self, *arguments):
        return 0
def items():
    for item in range(3):
        yield item
def refused():
    try:
        with tt.Pool(2).exec() as token, token.limit(1) as loan:
            token.limit(1)
    except tt.TokenLent:
        pass
def combine(left, right):
    for _ in range(3):
        left += right
    return left
calls = [
    lambda: tt.Exec.serial().for_ranges(2, 1, Body()),
    lambda: tt.Exec.serial().map(Body(), items()),
    lambda: tt.Exec.serial().reduce(4, 1, Body(), combine, 0),
    lambda: tt.width_for_by(1.0, 1, 4, lambda width: combine(0.0, 1.0)),
    lambda: tt.DispatchCosts.host_default(),
    lambda: tt.Pool(),
    refused,
]
started = threading.Barrier(len(calls) + 1)
def endlessly(call):
    for count in itertools.count():
        call()
        if count == 50:
            started.wait()
for call in calls:
    threading.Thread(target=endlessly, args=(call,), daemon=True).start()
started.wait()
""",
    "a daemon thread at a barrier": """
started = threading.Barrier(4)
def body(participant):
    started.wait()
    if participant.index:
        participant.barrier()
    else:
        time.sleep(3600)
def lead():
    with token.team() as team:
        team.run_with(body)
threading.Thread(target=lead, daemon=True).start()
started.wait()
""",
    "a section in an exit handler that runs before ours": """
atexit.register(lambda: print(token.map(abs, [-1, -2])))
""",
    "a section in a finaliser of a module's object": """
class Last:
    def __del__(self):
        pool_, print_ = self.pool, self.print
        print_(pool_.exec().map(abs, [-1, -2]))
last = Last()
last.pool, last.print = pool, print
""",
    "a misused token in a finaliser of a module's object": """
class Last:
    def __del__(self):
        try:
            self.token.for_ranges(1, 1, lambda start, stop: None)
        except self.expired as error:
            self.print(str(error))
last = Last()
last.print, last.expired, last.token = print, tt.TokenExpired, pool.exec()
last.token.close()
""",
    "a pool closed in a finaliser": """
class Last:
    def __del__(self):
        self.pool.close()
last = Last()
last.pool = pool
token.broadcast(lambda index: None)
""",
    "an exception that ends the program after a section": """
token.broadcast(lambda index: None)
raise SystemExit(0)
""",
}


@pytest.mark.parametrize("case", CASES)
def test_the_interpreter_ends_cleanly_with(case: str) -> None:
    run(PREAMBLE + CASES[case], silent=True)


def test_an_exit_handler_registered_before_the_package_runs_sections_alone() -> None:
    out = run("""
        import atexit, threading
        def late():
            print(len({ident for ident in token.map(lambda _: threading.get_ident(), range(100))}))
            token.broadcast(lambda index: print("index", index))
        atexit.register(late)
        import threadteam as tt
        token = tt.Pool(2).exec()
        token.broadcast(lambda index: None)
    """)
    assert out.splitlines() == ["1", "index 0"]


def test_twenty_busy_exits_in_a_row() -> None:
    code = PREAMBLE + CASES["workers that wake up during the finalisation"]
    for _ in range(20):
        run(code)


def test_a_subinterpreter_is_refused() -> None:
    out = run("""
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import threadteam
        other = interpreters.create()
        try:
            raised = interpreters.run_string(other, "import threadteam")
        except Exception as error:
            raised = error
        print("subinterpreters" in str(raised))
        interpreters.destroy(other)
    """)
    assert out.strip() == "True"
