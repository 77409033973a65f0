"""The command line: every command has `--json`, one-line errors, and progress on standard error."""

from __future__ import annotations

import errno
import json as json_module
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from _threadteam_command import INTERRUPTED
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from threadteam._native import __version__
from threadteam.errors import ThreadteamError
from threadteam.outputs import check_file, make_folder
from threadteam.script import trace_script
from threadteam.units import duration

__all__ = ["app", "run"]

#: Exit statuses, beside that of Ctrl-C: a command failed; it was used wrongly; a comparison found a wrong result.
FAILED, USAGE, WRONG_RESULT = 1, 2, 3
#: What only a write meets.
_FAILED_WRITES = {errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT}
#: What the comparison's tables need.
_TABLE_WIDTH = 120
#: Set to see where an error came from.
TRACEBACK = "THREADTEAM_TRACEBACK"

#: The base of typer's usage errors; it has no public name in the versions that carry their own click.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[2])

app = typer.Typer(
    name="threadteam",
    help="One explicit token for a share of one thread pool, for a whole CPU numeric stack.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output instead of tables.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads, the calling one included [default: the CPU budget].")
]


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status; an error is one line on standard error."""
    try:
        status = app(args=list(arguments) or ["--help"], prog_name="threadteam", standalone_mode=False)
    except _UsageError as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        _complain(f"{message.removesuffix('.')} (threadteam --help shows the commands and options)")
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has gone, as in `threadteam info | head -1`; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        _traceback_if_asked()
        _complain(_what_the_system_refused(error))
        return FAILED
    except Exception as error:
        _traceback_if_asked()
        expected = isinstance(error, ThreadteamError | ValueError | ImportError)
        _complain(str(error) if expected else f"{type(error).__name__}: {error} ({TRACEBACK}=1 shows where)")
        return FAILED
    if status == INTERRUPTED:  # newer versions of typer turn Ctrl-C into a status
        _complain("interrupted")
    return status if isinstance(status, int) else 0


def _show_version(asked: bool) -> None:
    if asked:
        print(f"threadteam {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass  # its docstring would be the help of the program; `app` has that


@app.command()
def info(json: Json = False) -> None:
    """Show the versions, the usable CPUs and why, what a section costs, and the extras."""
    from threadteam.info import describe

    found = describe()
    if json:
        _print_json(found)
        return
    extras = ", ".join(f"{name} {'installed' if there else 'missing'}" for name, there in found["extras"].items())
    openmp = found["openmp"] or "none found"
    costs = found["dispatch_costs"]
    if costs["calibrated"]:
        origin = f"measured on this machine, {costs['file']}"
    else:
        unused = f"{costs['file']} is not used: {costs['problem']}" if costs["problem"] else "not calibrated"
        origin = f"class {costs['host_class']}, {unused}; threadteam calibrate measures this machine"
    team = duration(costs["costs"]["team"][0][1])
    outside = duration(costs["costs"]["outside"][0][1])
    rows = {
        "threadteam": f"{found['threadteam']} on {found['python']}, {found['system']}",
        "CPU budget": found["cpu_budget"]["explained"],
        "section cost": f"{team} in a team of 2, {outside} from outside ({origin})",
        "extras": extras,
        "OpenMP": openmp,
    }
    for name, value in rows.items():
        print(f"{name + ':':<13} {value}")


@app.command("run")
def run_model(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE.npy", help="An input's values; random ones where not given."),
    ] = None,
    threads: Threads = None,
    repeat: Annotated[int, typer.Option(min=1, help="Timed runs after the first.")] = 10,
    output: Annotated[Path | None, typer.Option(help="Write the outputs to this .npz file.")] = None,
    json: Json = False,
) -> None:
    """Run an ONNX model and show its outputs and times."""
    from threadteam.model_run import run_model as run_times

    if output is not None:
        check_file(output)
    with _progress(repeat + 2) as step:
        result = run_times(model, _input_files(inputs or []), threads, repeat, output, step)
    if json:
        _print_json(result)
        return
    for name, shape in result["outputs"].items():
        print(f"{name}: {shape['dtype']} {shape['shape']}, least {shape['least']}, largest {shape['largest']}")
    print(
        f"{result['threads']} threads: load {duration(result['load'])}, first run {duration(result['first_run'])}, "
        f"median of {repeat} runs {duration(result['median'])}, worst {duration(result['worst'])}"
    )


@app.command()
def compare(
    models: Annotated[
        str,
        typer.Option(
            help="Comma-separated: plain, attention, magika, a chain's name or its beginning, or .onnx files."
        ),
    ] = "plain,attention,magika",
    threads: Annotated[str, typer.Option(help="Comma-separated widths [default: 1 and the CPU budget].")] = "",
    systems: Annotated[str, typer.Option(help="Comma-separated execution systems [default: all].")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="Turns that each system gets on each model.")] = 5,
    dtype: Annotated[str, typer.Option(help="Element type of the chains: float32 or float64.")] = "float32",
    output: Annotated[
        Path | None, typer.Option(help="Write the JSON, a timeline (PNG, SVG) and a Perfetto trace to this folder.")
    ] = None,
    json: Json = False,
) -> int:
    """Compare execution systems on chains and real models.

    threadteam, OpenMP, ONNX Runtime and NumPy take turns on the same inputs.
    """
    import threadteam.compare as comparison

    settings = comparison.Settings.parse(systems=systems, threads=threads, repeat=repeat)
    cases, skipped = comparison.select(_words(models), dtype)
    console = Console(stderr=json, highlight=False)
    # Lines that a narrow terminal wraps lose nothing; figures that a table cuts short are lost.
    console.width = max(console.width if console.is_terminal else 0, _TABLE_WIDTH)
    if output is not None:
        make_folder(output)
    with _progress(len(cases) * (repeat + 2), console) as step:
        if not json:
            console.print(comparison.explanation(), style="dim")
        report = comparison.compare(
            cases,
            settings,
            on_step=step,
            on_case=lambda result: None if json else console.print(comparison.case_table(result)),
        )
    report.skipped.update(skipped)
    written = [] if output is None else comparison.write(report, cases, output)
    if json:
        _print_json(report.to_dict())
    else:
        console.print(comparison.summary_table(report))
        for path in written:
            console.print(f"written: {path}")
    return 0 if report.correct else WRONG_RESULT


@app.command()
def calibrate(json: Json = False) -> int:
    """Measure what a section costs on this machine, and keep it.

    Pools made from now on use it to decide what pays. Refused when the measurements vary too much.
    """
    from threadteam import calibrated
    from threadteam.calibrate import PASSES, ROUNDS
    from threadteam.calibrate import calibrate as measure

    with _progress(PASSES * ROUNDS) as step:
        found = measure(on_round=step)
    problem, file = "", None
    try:
        file = calibrated.store(found.costs(), found.host)
    except OSError as error:
        problem = f"the costs were measured but not kept: {error}; set XDG_CACHE_HOME to a directory you may write to"
    if json:
        _print_json({**found.to_dict(), "file": None if file is None else str(file)})
    else:
        host = found.host
        print(f"{host.cpu} ({host.host_class}), {host.width} CPUs, threadteam {host.version}")
        for cell in found.cells:
            kind = cell.kind.replace("_", " ")
            cost = duration(cell.cost)
            print(f"{kind:<8} width {cell.width:<4} {cost:>8}, half of the samples within {cell.spread:.0%} of it")
    if problem:
        _complain(problem)
        return FAILED
    if not json:
        print(f"written: {file}")
    return 0


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def trace(
    script: Annotated[Path, typer.Argument(help="The Python script.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments.")] = None,
    output: Annotated[Path, typer.Option(help="The Perfetto JSON; pictures get the same name.")] = Path("trace.json"),
    json: Json = False,
) -> int:
    """Record what the pools of a Python script do.

    Every dispatch, share, barrier, park and wake goes into a Perfetto trace and a picture.
    """
    check_file(output)
    # What the script prints must not mix with the JSON.
    with redirect_stdout(sys.stderr) if json else nullcontext():
        result = trace_script(script, arguments or [], output)
    if json:
        _print_json(result)
    else:
        print(result["text"])
        for path in result["written"]:
            print(f"written: {path}")
    if result["error"] is not None:
        _complain(result["error"])
    return int(result["status"])


def _input_files(pairs: Sequence[str]) -> dict[str, Path]:
    files = {}
    for pair in pairs:
        name, found, path = pair.rpartition("=")
        if not found or not name:
            raise typer.BadParameter(f"--input takes NAME=FILE.npy, not {pair!r}")
        files[name] = Path(path)
    return files


def _what_the_system_refused(error: OSError) -> str:
    """The reason and the file; a write that names no file was to standard output, as `writing` names the others."""
    if error.strerror is None:
        return str(error)
    if error.filename is not None:
        return f"{error.strerror}: {error.filename!r}"
    if error.errno in _FAILED_WRITES:
        return f"{error.strerror}: standard output"
    return f"{error.strerror} ({TRACEBACK}=1 shows where)"


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@contextmanager
def _progress(total: int, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """A bar on standard error for as long as the block runs; the function it gives names the next of `total` steps.

    Shown above the bar when `console` is a terminal; on a pipe nothing but the tables is printed.
    """
    # A process that was started without one of these streams has None in its place.
    terminal, shown = (stream is not None and stream.isatty() for stream in (sys.stderr, sys.stdout))
    console = console if console is not None and shown else Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not terminal) as progress:
        task = progress.add_task("starting", total=total)
        steps = 0

        def step(description: str) -> None:
            nonlocal steps
            progress.update(task, description=description, completed=steps)
            steps += 1

        yield step


def _print_json(value: Any) -> None:
    print(json_module.dumps(value, indent=1, allow_nan=False))


def _traceback_if_asked() -> None:
    if os.environ.get(TRACEBACK):
        traceback.print_exc()


def _complain(message: str) -> None:
    line = " ".join(message.split())
    print(f"threadteam: error: {line}", file=sys.stderr)
