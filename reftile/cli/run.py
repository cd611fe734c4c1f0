"""`reftile run` and `reftile check`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

import reftile
from reftile import BACKENDS, LaunchOptions
from reftile.cli.inputs import (
    Arguments,
    bad,
    load_module,
    load_python_object,
    parse_argument,
    parse_grid,
    pick_kernel,
    split_name,
)
from reftile.cli.output import FOUND, STOPPED, UNSUPPORTED, Exit, Output, print_diagnosis
from reftile.interp.checked import Progress
from reftile.interp.launch import Report, interpret
from reftile.interp.schedule import Schedule
from reftile.ir.core import Kernel, Module
from reftile.ir.diagnostics import Diagnosis, ReftileError, ReftileErrors
from reftile.ir.ops import OPS
from reftile.ir.print import show
from reftile.ir.verify import verify
from reftile.progress import ProgressBar

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Request:
    """A kernel, its arguments, constants and grid, as written on the command line."""

    where: str
    arguments: list[str]
    grid: str
    constants: list[str]
    seed: int


@dataclass(slots=True)
class Loaded:
    """A kernel ready to run: `launch(values, **options)` runs it on a list of argument values.

    kernel: gives the kernel as IR for such a list, and the values of its arguments.
    """

    name: str
    argument_names: list[str]
    values: list[Any]
    grid: tuple[int, int, int]
    launch: Callable[..., Report]
    text: Callable[[], str]
    kernel: Callable[[list[Any]], tuple[Kernel, list[Any]]]

    def arrays(self, values: list[Any]) -> dict[str, NDArray[Any]]:
        """The arrays among `values` by argument name."""
        pairs = zip(self.argument_names, values, strict=True)
        return {name: value for name, value in pairs if isinstance(value, np.ndarray)}


def load(request: Request, need_arguments: bool = True, target: str = "") -> Loaded:
    """Find the kernel and make its arguments.

    target: what a pipe kernel in Python is traced for, instead of its own.

    Raises:
        ReftileError: a file, a name, an argument or the kernel is wrong.
    """
    path, name = split_name(request.where)
    if path.suffix == ".py":
        return _load_python(path, name, request, target)
    module = load_module(path)
    kernel = pick_kernel(module, name, path)
    if request.constants:
        raise bad("a text kernel has no constants", "constants are for Python kernels")
    names = [a.name for a in kernel.arguments]
    arguments = Arguments(request.arguments, request.seed)
    values = arguments.for_kernel(names) if need_arguments else []

    def launch(values: list[Any], **options: Any) -> Report:
        return interpret(_alone(module, kernel), grid, values, **options)

    grid = parse_grid(request.grid)
    return Loaded(
        kernel.name,
        names,
        values,
        grid,
        launch,
        lambda: show(module),
        lambda given: (kernel, given),
    )


def _alone(module: Module, kernel: Kernel) -> Module:
    """The module with this kernel as its only one, so that no name is needed."""
    return Module([kernel], module.globals, module.name)


def _load_python(path: Path, name: str, request: Request, target: str) -> Loaded:
    if not name:
        raise bad(f"{path}: which kernel?", f"write {path}:name")
    kernel = load_python_object(path, name)
    if not isinstance(kernel, reftile.KernelFunction):
        raise bad(f"`{name}` in {path} is not a kernel", "decorate it with @reftile.kernel")
    for_target = getattr(kernel, "for_target", None)
    if target and for_target is not None:
        kernel = cast("reftile.KernelFunction", for_target(target))
    constants = _constants(request.constants)
    unnamed = [p.name for p in kernel.parameters if p.name not in constants]
    values = Arguments(request.arguments, request.seed).for_kernel(unnamed, kernel.defaults)
    grid = parse_grid(request.grid)

    def specialise(values: list[Any]) -> Any:
        return kernel.specialise(**dict(zip(unnamed, values, strict=True)), **constants)

    grid = kernel.own_grid(specialise(values)) or grid

    def launch(values: list[Any], **options: Any) -> Report:
        found = specialise(values)
        return interpret(found.kernel, grid, found.values, **options)

    def as_ir(values: list[Any]) -> tuple[Kernel, list[Any]]:
        found = specialise(values)
        return found.kernel, list(found.values)

    return Loaded(
        name, unnamed, values, grid, launch, lambda: show(specialise(values).kernel), as_ir
    )


def _constants(texts: list[str]) -> dict[str, Any]:
    random = np.random.default_rng(0)
    constants: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise bad(f"`{text}` is not NAME=VALUE")
        constants[name] = parse_argument(value, random)
    return constants


@contextmanager
def progress_bar(label: str) -> Generator[Callable[[int, int], None] | None]:
    """A progress callback, or None; on Ctrl-C the command ends with a line that says where."""
    try:
        with ProgressBar(label) as advance:
            yield advance
    except KeyboardInterrupt as stop:
        # Typer would exit without a word.
        print(f"reftile: {stop or 'stopped'}", file=sys.stderr)
        raise Exit(STOPPED) from None


_OF_MACHINE = tuple(
    f"cuda.{name}" for name in "no_bindings no_driver no_device old_driver device busy".split()
)
"""What a machine lacks."""
_OF_RUN = tuple(
    f"cuda.{name}" for name in "illegal_address illegal_instruction launch_failed timeout".split()
)
"""What a kernel on a GPU did wrong."""
_OF_INPUT = (
    "cuda",
    "launch",
    "lang",
    "cli",
    "text",
    "type",
    "batched",
    "bytecode",
    "kernel",
    "block",
    "value",
)


def is_finding(diagnosis: Diagnosis) -> bool:
    """True for what a running kernel did wrong, as opposed to input that cannot be run."""
    op, _, name = diagnosis.rule.partition(".")
    if diagnosis.rule in _OF_RUN:
        return True
    if op in _OF_INPUT:
        return False
    cls = OPS.get(op)
    return cls is None or name in {case.name for case in cls.definition.undefined}


def run(output: Output, request: Request, backend: str | None, save: Path | None) -> None:
    """Run once and show the arrays."""
    loaded = load(request)
    start = perf_counter()
    try:
        with progress_bar(loaded.name) as progress:
            report = _launch(loaded, backend, request.seed, progress)
    except ReftileError as error:
        if error.diagnosis.rule in _OF_MACHINE:
            output.diagnoses(error)
            raise Exit(UNSUPPORTED) from None
        if not is_finding(error.diagnosis):
            raise
        output.diagnoses(error)
        raise Exit(FOUND) from None
    seconds = perf_counter() - start
    arrays = loaded.arrays(loaded.values)
    if save is not None:
        _save(save, arrays)
    data: dict[str, object] = {
        "kernel": loaded.name,
        "grid": loaded.grid,
        "seconds": seconds,
        "blocks": report.blocks,
        "checked": report.checked,
        "printed": report.printed,
        "arrays": {name: summarize(array) for name, array in arrays.items()},
    }
    output.result(data, lambda console: _render_run(console, loaded, report, arrays, seconds))


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    if path.is_dir():
        raise bad(f"{path} is a directory", "name a file: arrays.npz")
    try:
        np.savez(path, allow_pickle=False, **arrays)
    except OSError as error:
        raise bad(f"{path}: {error.strerror or error}") from None


def _launch(loaded: Loaded, backend: str | None, seed: int, progress: Progress | None) -> Report:
    """Run on a backend; the compiled ones check nothing, and may have to copy arrays."""
    if backend in (None, "interp", "batched"):
        check = backend != "batched"
        return loaded.launch(loaded.values, progress=progress, check=check, seed=seed)
    if backend not in BACKENDS.names:
        known = ", ".join(("batched", *BACKENDS.names))
        raise bad(f"there is no backend `{backend}` here", f"there are {known}")
    kernel, values = loaded.kernel(loaded.values)
    options = LaunchOptions(check=False, seed=seed, prints=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done: Any = BACKENDS.find(backend)(kernel, loaded.grid, values, options)
    for warning in caught:
        print(f"note: {warning.message}", file=sys.stderr)
    return Report(done.blocks, 0, tuple(done.printed), "program", seed, False)


def summarize(array: NDArray[Any]) -> dict[str, object]:
    """Shape, dtype and a few numbers of an array."""
    values = array.astype(np.float64).reshape(-1) if array.size else np.zeros(0)
    finite = values[np.isfinite(values)]
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "first": values[:4].tolist(),
        "minimum": float(finite.min()) if finite.size else None,
        "maximum": float(finite.max()) if finite.size else None,
        "nan": int(np.isnan(values).sum()),
    }


def _render_run(
    console: Console,
    loaded: Loaded,
    report: Report,
    arrays: dict[str, NDArray[Any]],
    seconds: float,
) -> None:
    from rich.table import Table

    for text in report.printed:
        console.print(text, end="", markup=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("array", "dtype", "shape", "minimum", "maximum", "first"):
        table.add_column(heading)
    for name, array in arrays.items():
        found = summarize(array)
        first = ", ".join(f"{v:.4g}" for v in array.astype(np.float64).reshape(-1)[:4])
        table.add_row(
            name,
            str(found["dtype"]),
            "x".join(map(str, array.shape)),
            _number(found["minimum"]),
            _number(found["maximum"]),
            first,
        )
    console.print(table)
    how = "every check on, no finding" if report.checked else "no checks"
    console.print(f"{loaded.name}: {report.blocks} blocks in {seconds:.3f} s, {how}")


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-"


def check(
    output: Output,
    request: Request,
    schedules: int,
    verify_only: bool,
    only: Schedule | None = None,
) -> None:
    """Run under several schedules with every check on; or under one, with several seeds.

    Raises:
        Exit: with code 1, after printing the findings.
    """
    if verify_only:
        _verify_file(output, request)
        return
    loaded = load(request)
    plans: list[tuple[Schedule, int]] = [("program", 0), ("adversarial", request.seed)]
    if only is not None:
        plans = []
    for i in range(max(schedules, only is not None)):
        plans.append((only or "topo", request.seed + i))
    findings: list[Diagnosis] = []
    first: dict[str, NDArray[Any]] | None = None
    with progress_bar(loaded.name) as progress:
        for schedule, seed in plans:
            values = list(map(_copy, loaded.values))
            try:
                loaded.launch(values, check=True, schedule=schedule, seed=seed, progress=progress)
            except ReftileError as error:
                for found in (
                    error.diagnoses if isinstance(error, ReftileErrors) else (error.diagnosis,)
                ):
                    if str(found) not in map(str, findings):
                        findings.append(found)
                break
            arrays = loaded.arrays(values)
            different = [] if first is None else _different(first, arrays)
            first = first if first is not None else arrays
            if different:
                findings.append(_order_matters(different, plans[0], schedule, seed))
                break
    _report_findings(output, loaded.name, findings, plans)


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return cast("NDArray[Any]", value).copy()
    return value


def _different(left: dict[str, NDArray[Any]], right: dict[str, NDArray[Any]]) -> list[str]:
    return [name for name in left if left[name].tobytes() != right[name].tobytes()]


def _order_matters(names: list[str], first: tuple[str, int], schedule: str, seed: int) -> Diagnosis:
    before = first[0] if first[0] == "program" else f"{first[0]} (seed {first[1]})"
    message = (
        f"{', '.join(names)} differ between the schedules {before} and {schedule} (seed {seed})"
    )
    hint = (
        "relaxed loads and atomics depend on order where their results are used or are floats; "
        "if the kernel has none, this is a fault of reftile to report"
    )
    return Diagnosis("check.order", message, hint=hint, severity="warning")


def _report_findings(
    output: Output, name: str, findings: list[Diagnosis], plans: list[tuple[Schedule, int]]
) -> None:
    data: dict[str, object] = {
        "kernel": name,
        "schedules": [f"{schedule}({seed})" for schedule, seed in plans],
        "findings": [d.to_json() for d in findings],
    }

    def render(console: Console) -> None:
        for finding in findings:
            print_diagnosis(console, finding)
        if not findings:
            console.print(f"{name}: no finding under {len(plans)} schedules")

    output.result(data, render)
    if any(d.severity == "error" for d in findings):
        raise Exit(FOUND)


def _verify_file(output: Output, request: Request) -> None:
    path, _ = split_name(request.where)
    if path.suffix == ".py":
        # A Python kernel is verified where it becomes one, for the types of its arguments.
        kernel, _ = (loaded := load(request)).kernel(loaded.values)
        names = [kernel.name]
        output.result(
            {"verified": names}, lambda console: console.print(f"{path}: {names[0]} verified")
        )
        return
    module = load_module(path)
    try:
        verify(module)
    except ReftileErrors as error:
        _report_findings(output, str(path), list(error.diagnoses), [])
    names = [k.name for k in module.kernels]
    output.result(
        {"verified": names}, lambda console: console.print(f"{path}: {', '.join(names)} verified")
    )
