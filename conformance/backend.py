"""What an implementation must offer to be held against the suites, and the two of this package.

A backend is an object with the methods of `Backend`. One is found by name through the entry point
group `reftile.backends`, whose entries are functions without parameters that return one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points, version
from platform import machine
from typing import Any, Protocol

import numpy as np
from reftile.conformance.cases import Argument, Buffer, Bytes, Scalar
from reftile.conformance.litmus_threads import run_on_threads
from reftile.conformance.litmus_tile.write import Inexpressible
from reftile.conformance.oracle.sums import Profile
from reftile.conformance.stress import VIEW_CONFIG, Histogram, StressConfig, run_on_views

from reftile.interp.arguments import Raw, Uninitialized
from reftile.interp.launch import interpret
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest
from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError, ReftileErrors
from reftile.ir.parse import parse
from reftile.ir.verify import verify
from reftile.rt.cpu import launch_cpu, thread_count


class Unsupported(Exception):
    """The backend declares that it lacks a feature; the text names it."""


class Diagnosed(Exception):
    """The backend refused or stopped a program: `rules` are the ids of what it found."""

    def __init__(self, rules: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.rules = tuple(rules)


class Stopped(Exception):
    """The machine stopped a program: a failed launch, an illegal address."""


@dataclass(frozen=True)
class Info:
    """What a backend says about itself.

    checks: it diagnoses programs that break rules while they run. exact_litmus: `run_litmus` finds
    every outcome. keeps_order: what it does is seen nearly in the order in which it is written,
    which `run_litmus` therefore varies (see `stress.mutants`). flushes: float types whose subnormal
    numbers it may flush. accumulate: how it adds the products of a matrix product, where it says
    so. powers_of_two: it has no tiles of other extents.
    """

    name: str
    version: str
    device: str = ""
    checks: bool = False
    exact_litmus: bool = False
    keeps_order: bool = False
    flushes: tuple[str, ...] = ()
    accumulate: Mapping[str, Profile] = field(default_factory=dict)
    powers_of_two: bool = False


PRINTED = ""
"""The name under which a run returns what was printed, in UTF-8; no buffer has it."""


class Backend(Protocol):
    """An implementation under test."""

    def info(self) -> Info:
        """Name, version, device and profile."""
        ...

    def supports(self, feature: str) -> bool | str:
        """Whether it has `op:NAME`, `dtype:NAME` or `suite:NAME`: True, or a reason why not.

        `rule:NAME` asks whether it stops a program that breaks this rule while it runs.
        """
        ...

    def compile(self, text: str, kernel: str) -> Any:
        """Make a program executable.

        Raises:
            Diagnosed: the program is not valid. Unsupported: a feature is missing.
        """
        ...

    def run(
        self, executable: Any, grid: tuple[int, int, int], arguments: Sequence[Argument]
    ) -> dict[str, Bytes]:
        """Run it on copies of the buffers, and return the bytes of those that it may have written.

        What it printed is returned under the name PRINTED, where the backend can tell.

        Raises:
            Diagnosed: a rule was broken on the way. Unsupported: a feature is missing.
        """
        ...

    def run_litmus(self, test: LitmusTest, config: StressConfig) -> Histogram:
        """How often the outcomes of a litmus test were seen under this stress."""
        ...

    def accuracy(self, op: str, dtype: str) -> float | None:
        """The error in ulp that is claimed for an operation in its default mode;

        None claims the spec's limit.
        """
        ...


CORRECTLY_ROUNDED = frozenset({"divf", "rcp", "sqrt"})
ONCE_ROUNDED = 0.5001
"""An f64 result with an error of some f64 ulp, rounded once to f32 or less."""


def valid_module(text: str, kernel: str) -> Module:
    """Parse and verify a program.

    Raises:
        Diagnosed: it is not valid.
    """
    try:
        module = parse(text, kernel)
        verify(module)
    except ReftileErrors as error:
        raise Diagnosed([d.rule for d in error.diagnoses], str(error)) from None
    except ReftileError as error:
        raise Diagnosed([error.diagnosis.rule], str(error)) from None
    return module


class InterpBackend:
    """The checked interpreter."""

    name, check = "interp", True

    def info(self) -> Info:
        """See `Backend`."""
        return Info(self.name, version("reftile"), "NumPy", self.check, True)

    def supports(self, feature: str) -> bool | str:
        """See `Backend`."""
        if feature.startswith("rule:") and not self.finds(feature.removeprefix("rule:")):
            return "runs without this check"
        if "multimem" in feature:
            return "has one device"
        return True

    def finds(self, rule: str) -> bool:
        """Whether a program that breaks a rule while it runs is stopped."""
        return self.check

    def compile(self, text: str, kernel: str) -> tuple[Module, str]:
        """See `Backend`."""
        return valid_module(text, kernel), kernel

    def run(
        self,
        executable: tuple[Module, str],
        grid: tuple[int, int, int],
        arguments: Sequence[Argument],
    ) -> dict[str, Bytes]:
        """See `Backend`."""
        module, kernel = executable
        memory: dict[str, Bytes] = {}
        values = [_bind(a, memory) for a in arguments]
        try:
            printed = self.launch(module, grid, values, kernel)
        except ReftileError as error:
            rule = error.diagnosis.rule
            if self.lacks(rule):
                raise Unsupported(error.diagnosis.message) from None
            raise Diagnosed([rule], str(error)) from None
        found = {a.name: memory[a.name] for a in arguments if isinstance(a, Buffer) and a.written}
        if printed:
            found[PRINTED] = np.frombuffer(printed.encode(), np.uint8)
        return found

    def launch(
        self, module: Module, grid: tuple[int, int, int], values: Sequence[Any], kernel: str
    ) -> str:
        """Run a kernel, and return what it printed."""
        report = interpret(module, grid, values, check=self.check, name=kernel)
        return "".join(report.printed)

    def lacks(self, rule: str) -> bool:
        """Whether a diagnosis says that a feature is missing."""
        return rule.endswith(".unsupported") or rule.startswith("batched.")

    def run_litmus(self, test: LitmusTest, config: StressConfig) -> Histogram:
        """All outcomes of the test's program, by the axioms of the specification."""
        found = explore(test.program)
        return Histogram({}, int(found.allows() is not None), 1, found.is_racy)

    def accuracy(self, op: str, dtype: str) -> float | None:
        """See `Backend`."""
        if op in CORRECTLY_ROUNDED:
            return 0.5
        return ONCE_ROUNDED if dtype in ("f16", "bf16", "f32") else None


class BatchedBackend(InterpBackend):
    """The interpreter without checks, all blocks at once."""

    name, check = "batched", False


LOOKED_FOR = frozenset(
    {"assert.failed", "for.step", "get_global.unknown", "print_tko.format", "view.index"}
)
"""Rules of running programs that a kernel on the CPU cannot break unseen."""


class CpuBackend(InterpBackend):
    """Kernels compiled for the CPU; they check little while they run."""

    name, check = "cpu", False

    def info(self) -> Info:
        """See `Backend`."""
        is_x86 = machine().lower() in ("x86_64", "amd64")
        device = f"{thread_count()} threads on {machine()}"
        return Info(self.name, version("reftile"), device, keeps_order=is_x86)

    def launch(
        self, module: Module, grid: tuple[int, int, int], values: Sequence[Any], kernel: str
    ) -> str:
        """Run a kernel, and return what it printed."""
        return "".join(launch_cpu(module, grid, values, name=kernel).printed)

    def lacks(self, rule: str) -> bool:
        """Whether a diagnosis says that a feature is missing."""
        return rule in ("cpu.unsupported", "cpu.co_resident")

    def finds(self, rule: str) -> bool:
        """Whether compiled code, or the launch, looks."""
        return rule in LOOKED_FOR

    def run_litmus(self, test: LitmusTest, config: StressConfig) -> Histogram:
        """See `Backend`: instances on threads, compiled."""
        try:
            return run_on_threads(test, config)
        except Inexpressible as error:
            raise Unsupported(str(error)) from None

    def accuracy(self, op: str, dtype: str) -> float | None:
        """See `Backend`."""
        return 0.5 if op in CORRECTLY_ROUNDED else None


class ViewBackend(InterpBackend):
    """The view machine of the memory model, which shows outcomes by chance as a device does."""

    name = "views"
    most_samples = 200

    def info(self) -> Info:
        """See `Backend`."""
        return Info(self.name, version("reftile"), "view machine")

    def supports(self, feature: str) -> bool | str:
        """See `Backend`."""
        return feature == "suite:litmus" or "runs litmus tests only"

    def run_litmus(self, test: LitmusTest, config: StressConfig) -> Histogram:
        """Samples, fewer than a device would do: each is as stale as the model permits."""
        count = min(config.iterations, self.most_samples)
        return run_on_views(test, replace(VIEW_CONFIG, iterations=count, seed=config.seed))


def _bind(argument: Argument, memory: dict[str, Bytes]) -> Any:
    if isinstance(argument, Scalar):
        return argument.value
    if argument.same_as:
        memory[argument.name] = memory[argument.same_as]
    else:
        data = argument.memory()
        # Space in front, so that the array can begin at any distance from an aligned address.
        space = np.zeros(data.size + argument.shift_bytes, np.uint8)
        space[argument.shift_bytes :] = data
        memory[argument.name] = space[argument.shift_bytes :]
    raw = Raw(memory[argument.name], argument.dtype)
    return Uninitialized(raw) if argument.fresh else raw  # type: ignore[arg-type]


BUILT_IN = {
    "interp": InterpBackend,
    "batched": BatchedBackend,
    "cpu": CpuBackend,
    "views": ViewBackend,
}


def backend_names() -> list[str]:
    """The backends that can be asked for."""
    return sorted({*BUILT_IN, *(e.name for e in entry_points(group="reftile.backends"))})


def find_backend(name: str) -> Backend:
    """Return the backend called `name`; what stands behind a colon is given to its maker.

    `tileiras:bundle.zip`, for example, makes `tileiras` with the text `bundle.zip`.

    Raises:
        KeyError: there is none.
    """
    name, colon, argument = name.partition(":")
    given = (argument,) if colon else ()
    if name in BUILT_IN:
        if given:
            raise KeyError(f"the backend `{name}` takes nothing behind a colon")
        return BUILT_IN[name]()
    for entry in entry_points(group="reftile.backends"):
        if entry.name == name:
            return entry.load()(*given)
    raise KeyError(f"no backend is called `{name}` (there are: {', '.join(backend_names())})")
