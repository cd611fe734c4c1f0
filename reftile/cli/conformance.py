"""`reftile conformance` and `reftile fuzz`: hold implementations against the suites."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reftile.cli.inputs import bad
from reftile.cli.output import FOUND, STOPPED, Exit, Output

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="Run the conformance suites on an implementation, and compare what came out.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Suites = Annotated[
    str,
    typer.Option("--suite", metavar="A,B", help="ops, reject, trap, kernels, litmus; default all."),
]
Filter = Annotated[str, typer.Option(help="A regular expression that case ids must contain.")]
Budget = Annotated[str, typer.Option(help="wimpy (seconds), default (minutes), exhaustive.")]
BUDGETS = ("wimpy", "default", "exhaustive")


def suite_module(name: str) -> Any:
    """A module of `reftile.conformance`, loaded on use: it needs packages that reftile does not."""
    return import_module(f"reftile.conformance.{name}")


def _names(text: str) -> tuple[str, ...]:
    known = tuple(suite_module("suites.registry").SUITES)
    names = tuple(n.strip() for n in text.split(",") if n.strip())
    for name in names:
        if name not in known:
            raise bad(f"there is no suite `{name}`", f"the suites are {', '.join(known)}")
    return names


def _check_budget(budget: str) -> None:
    if budget not in BUDGETS:
        raise bad(f"there is no budget `{budget}`", f"one of {', '.join(BUDGETS)}")


@app.command(
    epilog="Example: reftile conformance run --suite ops,kernels --budget wimpy --html matrix.html"
)
def run(
    suite: Suites = "",
    backend: Annotated[
        str, typer.Option(help="interp, batched, or one that a package offers.")
    ] = "interp",
    budget: Budget = "default",
    filter: Filter = "",
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds; cases left over count as skip.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="Write one JSON line for each case.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a matrix of operations and dtypes.")
    ] = None,
    waivers: Annotated[
        Path | None, typer.Option(help="TOML with known failures; they count as xfail.")
    ] = None,
    must_pass: Annotated[
        Path | None, typer.Option(help="TOML with cases that must pass, whatever else.")
    ] = None,
    json: Json = False,
) -> None:
    """Run suites on a backend; exit with 1 if a case fails."""
    _check_budget(budget)
    suites = _names(suite)
    _check_filter(filter)
    for path in (junit, jsonl, html):
        _check_writable(path)
    expectations = suite_module("expectations")
    known = _read_file(expectations.read_waivers, waivers)
    demanded = _read_file(expectations.read_must_pass, must_pass)
    runner, report = suite_module("runner"), suite_module("report")
    with suite_module("progress").terminal_progress() as progress:
        try:
            results = runner.run_suites(
                backend,
                suites,
                budget,
                filter,
                seed=seed,
                waivers=known,
                must_pass=demanded,
                time_limit=time_limit,
                progress=progress,
            )
        except KeyError as error:
            raise bad(str(error.args[0])) from None
    for path, write in ((junit, report.write_junit), (jsonl, report.write_jsonl)):
        if path is not None:
            write(results, path)
    if html is not None:
        report.write_html([results], html)
    Output(json).result(results.to_json(), lambda console: _render_results(console, results))
    if results.stopped:
        raise _stop(results.stopped)
    if not results.ok:
        raise Exit(FOUND)


def _stop(where: str) -> Exit:
    """Ctrl-C ended a run, of which all that was finished has been printed."""
    print(f"reftile: {where}", file=sys.stderr)
    return Exit(STOPPED)


def _check_filter(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise bad(f"{text!r} is no regular expression: {error}") from None


def _check_writable(path: Path | None) -> None:
    """Refuse what cannot be written before the run rather than after it."""
    if path is None:
        return
    if path.is_dir():
        raise bad(f"{path} is a directory")
    if not path.absolute().parent.is_dir():
        raise bad(f"{path.parent} is no directory")


def _read_file(read: Callable[[Path], list[Any]], path: Path | None) -> list[Any]:
    if path is None:
        return []
    try:
        return read(path)
    except OSError as error:
        raise bad(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise bad(str(error)) from None


def _render_results(console: Console, results: Any) -> None:
    for result in results.results:
        if result.verdict.value in ("fail", "error", "flaky"):
            console.print(f"{result.verdict.value}: {result.id}", style="bold red", markup=False)
            console.print(result.message, markup=False)
    for line in results.broken:
        console.print(f"had to pass: {line}", style="bold red", markup=False)
    for name in results.unused:
        console.print(f"the waiver {name} was not needed", markup=False)
    counts = ", ".join(f"{count} {name}" for name, count in results.summary().items() if count)
    console.print(
        f"{results.backend['name']} {results.backend['version']}: {counts or 'no case ran'}; "
        f"{results.unsupported_percentage():.1f} % of (operation, dtype) cells unsupported; "
        f"{results.seconds:.1f} s"
    )


@app.command(epilog="Example: reftile conformance compile bundle.zip --suite ops --gpu sm_90")
def compile(
    bundle: Annotated[Path, typer.Argument(help="The file to write, or to add to.")],
    suite: Suites = "ops,kernels,litmus",
    gpu: Annotated[str, typer.Option(help="What to compile for, as `tileiras --gpu-name`.")] = "",
    opt: Annotated[int, typer.Option(help="Optimisation level, 0 to 3.")] = 3,
    fuzz: Annotated[int, typer.Option(help="Seeds of the fuzzer to compile too.")] = 0,
    budget: Budget = "default",
    filter: Filter = "",
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one on each core.")] = 0,
    json: Json = False,
) -> None:
    """Compile suites with NVIDIA's tileiras, to run them on a machine with a GPU."""
    _check_budget(budget)
    build, compiler = suite_module("tileiras.build"), suite_module("tileiras.compiler")
    suites = _names(suite)
    target = compiler.Target(gpu or "sm_90", opt)
    with suite_module("progress").terminal_progress() as progress:
        made = build.build(
            bundle,
            suites,
            budget,
            filter,
            target=target,
            seed=seed,
            jobs=jobs,
            fuzz=fuzz,
            progress=progress,
        )
    refused = sum(1 for one in made.programs.values() if one.refused)
    data: dict[str, object] = {
        "bundle": str(bundle),
        "gpu": target.gpu,
        "tileiras": made.tileiras,
        "programs": len(made.programs),
        "refused": refused,
    }
    text = f"{bundle}: {len(made.programs)} programs for {target.gpu}, {refused} of them refused"
    Output(json).result(data, lambda console: console.print(text))


@app.command("list", epilog="Example: reftile conformance list --suite trap")
def list_cases(
    suite: Suites = "", filter: Filter = "", budget: Budget = "default", json: Json = False
) -> None:
    """List the cases of suites."""
    _check_budget(budget)
    settings = suite_module("suites.common").Settings(budget)
    runner = suite_module("runner")
    suites = _names(suite)
    ids = [case.id for case in runner.select_cases(settings, suites, filter)]
    if not suites or "litmus" in suites:
        ids += [question.id for question in runner.select_questions(budget, filter)]

    def render(console: Console) -> None:
        for id in ids:
            console.print(id, markup=False)

    Output(json).result({"cases": ids, "count": len(ids)}, render)


@app.command(epilog="Example: reftile conformance trace")
def trace(json: Json = False) -> None:
    """Name what the specification says and no test covers; exit with 1 if there is any."""
    found = suite_module("trace").trace()

    def render(console: Console) -> None:
        for id in found["untested"]:
            console.print(f"untested: {id}", markup=False)
        for entry in found["unknown"]:
            console.print(f"unknown: {entry['test']} covers {entry['id']}", markup=False)
        console.print(f"{found['tested']} of {found['ids']} ids of the specification have a test")

    Output(json).result(found, render)
    if not found["ok"]:
        raise Exit(FOUND)


@app.command(epilog="Example: reftile conformance report results.jsonl --html matrix.html")
def report(
    results: Annotated[list[Path], typer.Argument(help="Files of `run --jsonl`.")],
    html: Annotated[
        Path | None, typer.Option(help="Write a matrix of operations and dtypes.")
    ] = None,
    json: Json = False,
) -> None:
    """Summarise result files; several backends side by side."""
    reports = suite_module("report")
    runs: list[Any] = []
    for path in results:
        try:
            runs.append(_read_run(*reports.read_jsonl(path)))
        except (OSError, ValueError, KeyError) as error:
            raise bad(f"{path}: {error}") from None
    if html is not None:
        reports.write_html(runs, html)

    def render(console: Console) -> None:
        for run in runs:
            _render_results(console, run)

    Output(json).result({"runs": [run.to_json() for run in runs]}, render)


def _read_run(head: dict[str, Any], lines: list[dict[str, Any]]) -> Any:
    """The results that a file of lines holds."""
    runner, verdicts = suite_module("runner"), suite_module("verdicts")
    named = ("id", "suite", "op", "dtype", "message", "seconds", "checked")
    run = runner.Results(head["backend"], head["budget"], head["seed"])
    run.seconds = head.get("seconds", 0.0)
    for line in lines:
        rest = {k: v for k, v in line.items() if k not in named and k != "verdict"}
        known = {name: line[name] for name in named}
        run.results.append(
            runner.Result(**known, verdict=verdicts.Verdict(line["verdict"]), data=rest)
        )
    return run


@app.command(epilog="Example: reftile conformance compare before.jsonl after.jsonl")
def compare(before: Path, after: Path, json: Json = False) -> None:
    """Show which verdicts changed between two runs; exit with 1 if one got worse."""
    try:
        found = suite_module("compare").compare_files(before, after)
    except (OSError, ValueError) as error:
        raise bad(str(error)) from None

    def render(console: Console) -> None:
        for change in found["changed"]:
            was, now = change["before"] or "absent", change["after"] or "absent"
            console.print(f"{change['id']}: {was} -> {now}", markup=False)
        console.print(f"{len(found['changed'])} changed, {found['regressions']} worse")

    Output(json).result(found, render)
    if found["regressions"]:
        raise Exit(FOUND)


@app.command(epilog="Example: reftile conformance export cases/ --suite kernels")
def export(
    folder: Path,
    suite: Suites = "",
    filter: Filter = "",
    budget: Budget = "wimpy",
    json: Json = False,
) -> None:
    """Write cases as text IR, .npz and a manifest, for implementations in other languages."""
    _check_budget(budget)
    settings = suite_module("suites.common").Settings(budget)
    try:
        found = suite_module("manifest").export_cases(folder, _names(suite), filter, settings)
    except OSError as error:
        raise bad(f"{folder}: {error.strerror or error}") from None
    count = len(found["cases"])
    data: dict[str, object] = {"folder": str(folder), "cases": count}
    Output(json).result(data, lambda console: console.print(f"{count} cases in {folder}"))


def fuzz(
    programs: Annotated[int, typer.Option(help="Programs to make.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed makes the same programs.")] = 0,
    seconds: Annotated[float | None, typer.Option(help="Stop after this time.")] = None,
    json: Json = False,
) -> None:
    """Make random programs and hold the interpreter against itself; exit with 1 on a failure."""
    if programs < 1:
        raise bad(f"`--programs` must be positive, found {programs}")
    if seconds is not None and not seconds > 0:
        raise bad(f"`--seconds` must be positive, found {seconds}")
    output = Output(json)
    console = output.console(error=True)

    def progress(line: str) -> None:
        if console.is_terminal:
            console.print(line, markup=False)

    found = suite_module("fuzz.run").fuzz(programs, seed, seconds, progress)

    def render(console: Console) -> None:
        for line in found.lines():
            console.print(line, markup=False)

    output.result(found.to_json(), render)
    if found.stopped:
        raise _stop(found.stopped)
    if found.failures:
        raise Exit(FOUND)
