"""The commands, their options and help. Each command's work is in a module of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import reftile.cli.cache as caching
import reftile.cli.conformance as suites
import reftile.cli.doctor as machine
import reftile.cli.explain as explaining
import reftile.cli.explore as exploring
import reftile.cli.interop as interop
import reftile.cli.run as running
import reftile.cli.show as showing
from reftile.cli.output import BAD_INPUT, OUR_FAULT, STOPPED, UNSUPPORTED, Exit, Output
from reftile.interp.schedule import Schedule
from reftile.ir.diagnostics import Bug, ReftileError, fail

EPILOG = (
    "Exit codes: 0 all is well, 1 something was found, 2 wrong input, 3 not possible on this "
    "machine, 4 a fault of reftile, 130 stopped by Ctrl-C."
)

app = typer.Typer(
    name="reftile",
    help="Run, check and compile tile programs, and hold implementations against the suites.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Where = Annotated[
    str, typer.Argument(metavar="FILE[:NAME]", help="A .tile, a bytecode or a Python file.")
]
Seed = Annotated[int, typer.Option(help="Seed of the schedule and of random arguments.")]
Values = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ARGUMENT]...",
        help="f32[64,128], i32[8]=zeros, @file.npy, 128, 0.5, or NAME=any of these.",
    ),
]
Grid = Annotated[str, typer.Option(metavar="X[,Y[,Z]]", help="Blocks to launch.")]
Target = Annotated[
    str, typer.Option(metavar="NAME", help="Another target with the same operations, as sm_89.")
]
Constants = Annotated[
    list[str] | None,
    typer.Option("--const", metavar="NAME=VALUE", help="A constant of a Python kernel."),
]


@app.command(
    epilog="Example: reftile run add.tile --grid 8 f32[1000] f32[1000] f32[1000]=zeros 1000"
)
def run(
    where: Where,
    arguments: Values = None,
    grid: Grid = "1",
    const: Constants = None,
    backend: Annotated[
        str | None, typer.Option(help="interp, batched, ...; default: the fastest here.")
    ] = None,
    seed: Seed = 0,
    save: Annotated[Path | None, typer.Option(help="Write the arrays to this .npz file.")] = None,
    json: Json = False,
) -> None:
    """Run a kernel and show what is in its arrays afterwards."""
    output = Output(json)
    request = running.Request(where, arguments or [], grid, const or [], seed)
    running.run(output, request, backend, save)


@app.command(
    epilog="Example: reftile check attention.py:attention --grid 4 f32[64,64] ... --schedules 20"
)
def check(
    where: Where,
    arguments: Values = None,
    grid: Grid = "1",
    const: Constants = None,
    schedules: Annotated[
        int, typer.Option(min=0, help="Random schedules to try besides the fixed ones.")
    ] = 4,
    schedule: Annotated[
        Schedule | None,
        typer.Option(help="Run under this schedule only, with as many seeds as --schedules says."),
    ] = None,
    seed: Seed = 0,
    verify_only: Annotated[
        bool, typer.Option("--verify-only", help="Do not run the kernel.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a kernel with every check on, under several schedules, and report what is wrong."""
    request = running.Request(where, arguments or [], grid, const or [], seed)
    running.check(Output(json), request, schedules, verify_only, schedule)


@app.command(
    epilog="Example: reftile show examples/pipe/gemm_sm90.tile --level simt --after lower_pipe"
)
def show(
    where: Where,
    arguments: Values = None,
    const: Constants = None,
    level: Annotated[
        str, typer.Option(help="tile, pipe, simt, ptx, sass or cpu; default: the kernel's own.")
    ] = "",
    after: Annotated[
        str, typer.Option(metavar="PASS", help="Show the kernel as this pass leaves it.")
    ] = "",
    target: Target = "",
    plan: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A decision for the passes from tile to pipe."),
    ] = None,
    json: Json = False,
) -> None:
    """Print a kernel as text at any level; passes and their times go to stderr."""
    request = running.Request(where, arguments or [], "1", const or [], 0)
    showing.run(Output(json), request, showing.Wish(level, after, target, tuple(plan or ())))


@app.command(epilog="Example: reftile explain examples/pipe/gemm_sm90.tile")
def explain(
    where: Where,
    arguments: Values = None,
    const: Constants = None,
    target: Target = "",
    json: Json = False,
) -> None:
    """Say what a pipe kernel becomes and why: engines, instructions, memory, occupancy."""
    request = running.Request(where, arguments or [], "1", const or [], 0)
    explaining.run(Output(json), request, target)


@app.command(epilog="Example: reftile cache list")
def cache(
    action: Annotated[str, typer.Argument(help="info, list, path or clear.")] = "info",
    json: Json = False,
) -> None:
    """Look at the compiled kernels that are kept on disk, or remove them."""
    caching.run(Output(json), action)


@app.command(
    epilog="Example: reftile explore handover.py:handover --grid 2 i32[1]=zeros i32[1]=zeros"
)
def explore(
    where: Where,
    arguments: Values = None,
    grid: Grid = "1",
    const: Constants = None,
    exists: Annotated[
        str, typer.Option(metavar="CONDITION", help="Is this outcome possible? `out[0] == 1`")
    ] = "",
    unroll: Annotated[
        int, typer.Option(min=1, help="Iterations of a loop that waits for a value.")
    ] = 3,
    sample: Annotated[
        int, typer.Option(min=0, help="Sample so many executions, instead of all.")
    ] = 0,
    smt: Annotated[
        bool, typer.Option("--smt", help="Ask a solver (extra `smt`): for larger kernels.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Draw an execution, a racing one if there is one.")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find every outcome and race that the memory model permits a kernel of a few events."""
    request = running.Request(where, arguments or [], grid, const or [], seed)
    options = exploring.Options(unroll, sample, smt, exists, html)
    exploring.run(Output(json), request, options)


@app.command("import", epilog="Example: reftile import --check kernels/")
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Bytecode files; with --check, folders.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Only read and verify; many files may be named.")
    ] = False,
    target: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the text to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Print CUDA Tile IR bytecode as text, or check that it is valid."""
    if check:
        interop.check_files(Output(json), files)
    else:
        interop.import_file(Output(json), files, target)


@app.command(epilog="Example: reftile export add.tile --output add.tilebc --tile-ir 13.1")
def export(
    where: Where,
    target: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    arguments: Values = None,
    const: Constants = None,
    tile_ir: Annotated[
        str,
        typer.Option(metavar="13.N", help="Version to write; default: the oldest that will do."),
    ] = "",
    json: Json = False,
) -> None:
    """Write a kernel as CUDA Tile IR bytecode, or bytecode in another version."""
    request = running.Request(where, arguments or [], "1", const or [], 0)
    interop.export(Output(json), request, tile_ir, target)


@app.command(epilog="Example: reftile doctor --json")
def doctor(json: Json = False) -> None:
    """Say what this machine can run, and why not the rest."""
    machine.report(Output(json))


app.add_typer(suites.app, name="conformance")
app.command(name="fuzz", epilog="Example: reftile fuzz --programs 200 --seed 7")(suites.fuzz)


def execute(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; nothing escapes as a traceback."""
    command = typer.main.get_command(app)

    def call() -> Any:
        return command.main(args=list(arguments), prog_name="reftile", standalone_mode=False)

    return _guarded(call, "--json" in arguments)


def _guarded(command: Callable[[], Any], as_json: bool) -> int:
    output = Output(as_json)
    try:
        code = command()
    except Exit as stop:
        return stop.code
    except ReftileError as error:
        output.diagnoses(error)
        return BAD_INPUT
    except Bug as error:
        output.bug(error)
        return OUR_FAULT
    except typer.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, typer.Abort) as stop:
        print(f"reftile: {stop or 'stopped'}", file=sys.stderr)
        return STOPPED
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("reftile"):
            output.bug(Bug(str(error), _place(error), " ".join(sys.argv)))
            return OUR_FAULT
        hint = "pip install 'reftile[conformance]' has what the suites and the fuzzer need"
        output.diagnoses(
            fail("cli.missing_package", f"the package {error.name} is not installed", hint=hint)
        )
        return UNSUPPORTED
    except BrokenPipeError:
        return 0
    except (RecursionError, MemoryError) as error:
        print(
            f"reftile: out of {type(error).__name__.removesuffix('Error').lower()}", file=sys.stderr
        )
        return OUR_FAULT
    except Exception as error:
        # Usage errors: typer brings click along, or has a copy of it, so they have no one class.
        explain = getattr(error, "show", None)
        if callable(explain):
            explain()
            return BAD_INPUT
        output.bug(Bug(f"{type(error).__name__}: {error}", _place(error), " ".join(sys.argv)))
        return OUR_FAULT
    return code if isinstance(code, int) else 0


def _place(error: BaseException) -> str:
    """The innermost place of ours that an unexpected error passed through."""
    place, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if str(name).startswith("reftile"):
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
