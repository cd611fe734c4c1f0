"""Run kernels of cuTile Python with reftile: on the CPU, with every check on, no GPU needed.

    import cuda.tile as ct
    from reftile.interop import cutile

    cutile.run(vadd, (4,), (a, b, c, 256))           # one kernel, once

    with cutile.on_host():                           # whole programs: ct.launch runs here
        ct.launch(0, (4,), vadd, (a, b, c, 256))

Arrays of NumPy and tensors of torch on the CPU stand for arrays on a device. cuTile itself looks at
the arguments and compiles the kernel, so that what runs is what a GPU would be given: CUDA Tile IR,
with the tokens and promises of cuTile's compiler. Findings point at the author's lines.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import numpy as np

from reftile.interop.cutile_assumptions import unit_stride_promises, withdraw
from reftile.interop.cutile_dlpack import LentArray
from reftile.interop.cutile_driver import KEY, HostDriver
from reftile.interop.cutile_hooks import Compiled, host_driver, is_kernel, load_cutile
from reftile.interop.read import read_bytecode
from reftile.interop.running import RunOptions, run_kernel
from reftile.ir.arguments import HostBytes
from reftile.ir.core import Kernel, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, ReftileErrors, fail
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import PointerType, TileType

ARCHITECTURE = (10, 0)
"""The compute capability that cuTile compiles for."""

FLOATS = {"f32": ctypes.c_float, "f64": ctypes.c_double}
INTEGERS = {8: ctypes.c_int8, 16: ctypes.c_int16, 32: ctypes.c_int32, 64: ctypes.c_int64}


FORGIVABLE = {
    "unit_stride": "a false promise of cuTile about the stride of an axis of one element",
    "unspecified": "an unspecified value that is left in an array when a launch ends",
}
"""What may only warn, by name: neither changes what is computed here."""
FORGIVEN = ("unit_stride",)
"""What only warns unless it is said otherwise: every array of one element is an instance."""


class CutileWarning(UserWarning):
    """Something that was forgiven."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of the host that an array of a launch covers, and what keeps them alive."""

    first: int
    end: int
    owner: object = field(repr=False)


@dataclass(slots=True)
class Program:
    """A kernel that cuTile compiled, and its variants with some promises withdrawn."""

    compiled: Compiled
    kernel: Kernel
    variants: dict[tuple[int, ...], tuple[Kernel, list[Diagnosis]]] = field(
        default_factory=dict[tuple[int, ...], tuple[Kernel, list[Diagnosis]]]
    )


def import_compiled(compiled: Compiled) -> Kernel:
    """Read what cuTile compiled, with the author's names for the arguments."""
    module = read_bytecode(compiled.bytecode, f"<{compiled.name}>")
    if module.globals or len(module.kernels) != 1:
        raise fail("cutile.module", f"`{compiled.name}` became a module with globals or functions")
    kernel = module.kernels[0]
    if len(compiled.names) == len(kernel.arguments) == len(set(compiled.names)):
        for value, name in zip(kernel.arguments, compiled.names, strict=True):
            value.name = name
    return kernel


class _Spans(threading.local):
    """What each thread has lent since its last launch."""

    def __init__(self) -> None:
        self.spans: list[Span] = []


class Host:
    """What stands for a GPU: runs what cuTile launches, under the options of its context.

    driver: what cuTile calls. options: how kernels run.
    forgive: what only warns (see FORGIVABLE). warned: the warnings, each once.
    forgiven: the rules of what was forgiven; whoever looks may clear it.
    report: what the backend said about the last launch. launches: how many ran.
    on_launch: called with the kernel and the grid before each.
    """

    def __init__(self, driver: HostDriver, options: RunOptions, forgive: Collection[str]) -> None:
        self.driver = driver
        self.options = options
        self.forgive = frozenset(forgive)
        self.report: object = None
        self.launches = 0
        self.warned: dict[str, Diagnosis] = {}
        self.forgiven: set[str] = set()
        self._lent = _Spans()
        self._running = threading.RLock()
        self.on_launch: Callable[[Kernel, tuple[int, ...]], None] | None = None

    # What cuTile tells

    def lend(self, array: object) -> None:
        """Remember an array that a launch is about to use."""
        tensor: Any = array
        if isinstance(array, LentArray):
            tensor = array.array
            first = int(tensor.__array_interface__["data"][0])
            item, strides = 1, tensor.strides
            size = tensor.itemsize
        else:
            first, item, strides = tensor.data_ptr(), tensor.element_size(), tensor.stride()
            size = item
        if any(e == 0 for e in tensor.shape):
            return
        last = sum((e - 1) * s * item for e, s in zip(tensor.shape, strides, strict=True))
        self._lent.spans.append(Span(first, first + last + size, array))

    def take_spans(self) -> list[Span]:
        """What was lent since the last launch."""
        spans, self._lent.spans = self._lent.spans, []
        return spans

    def run(self, program: Program, grid: tuple[int, int, int], args: list[Any]) -> None:
        """Run a launch; one at a time."""
        with self._running:
            kernel = program.kernel
            if "unit_stride" in self.forgive:
                kernel = self._without_false_promises(program, args)
            self.launches += 1
            if self.on_launch is not None:
                self.on_launch(kernel, grid)
            try:
                self.report = run_kernel(kernel, grid, args, self.options)
            except ReftileError as error:
                _print_assertions(error)
                if "unspecified" not in self.forgive or error.diagnosis.rule != "poison.output":
                    raise
                self._warn(error.diagnosis)

    def _warn(self, found: Diagnosis) -> None:
        self.forgiven.add(found.rule)
        place = f"{found.rule} {found.span}"
        if place not in self.warned:
            self.warned[place] = found
            warnings.warn(str(found), CutileWarning, stacklevel=2)

    def _without_false_promises(self, program: Program, args: Sequence[Any]) -> Kernel:
        numbers: dict[Value, int] = {
            value: arg
            for value, arg in zip(program.kernel.arguments, args, strict=True)
            if isinstance(arg, int)
        }
        ops = list(program.kernel.walk())
        places = {op: i for i, op in enumerate(ops)}
        found = tuple(places[op] for op in unit_stride_promises(program.kernel, numbers))
        if not found:
            return program.kernel
        variant = program.variants.get(found)
        if variant is None:
            kernel = import_compiled(program.compiled)
            copies = list(kernel.walk())
            variant = kernel, [withdraw(copies[i]) for i in found]
            program.variants[found] = variant
        for diagnosis in variant[1]:
            self._warn(diagnosis)
        return variant[0]


def _print_assertions(error: ReftileError) -> None:
    """Print what a device prints when an assertion fails."""
    found = error.diagnoses if isinstance(error, ReftileErrors) else (error.diagnosis,)
    for diagnosis in found:
        if diagnosis.rule == "assert.failed":
            print(diagnosis.message)


# The launcher: what the driver is given and what it does with it

_programs: dict[bytes, Program] = {}
_numbers = count(1)
_hosts: list[Host] = []
_drivers: list[HostDriver] = []


def _keep(compiled: Compiled) -> tuple[bytes, str]:
    key = KEY + b"%d\0" % next(_numbers)
    program = Program(compiled, import_compiled(compiled))
    _programs[key[:-1]] = program
    return key, program.kernel.name


def _lend(array: object) -> None:
    if _hosts:
        _hosts[-1].lend(array)


def _bind(
    key: bytes, symbol: str, grid: tuple[int, int, int], parameters: int | None
) -> Callable[[], None]:
    if not _hosts:
        raise fail(
            "cutile.context",
            f"`{symbol}` is launched, and no context of reftile is open",
            hint="launch inside `with cutile.on_host():`",
        )
    host, program = _hosts[-1], _programs[key]
    spans = host.take_spans()
    args = _read_arguments(program.kernel, parameters, spans, _drivers[0])
    return lambda: host.run(program, grid, args)


def _read_arguments(
    kernel: Kernel, parameters: int | None, spans: list[Span], driver: HostDriver
) -> list[Any]:
    """The arguments behind the pointers that a launch passes.

    kernel.arguments: pointers and numbers, as cuTile's calling convention has them.
    """
    if not parameters:
        return []
    pointers = (ctypes.c_void_p * len(kernel.arguments)).from_address(parameters)
    args: list[Any] = []
    for value, pointer in zip(kernel.arguments, pointers, strict=True):
        assert isinstance(value.type, TileType) and pointer is not None
        element = value.type.element
        if isinstance(element, PointerType):
            address = ctypes.c_uint64.from_address(pointer).value
            args.append(_memory_at(address, value.name, element, spans, driver))
        elif element.name in FLOATS:
            args.append(float(FLOATS[element.name].from_address(pointer).value))
        elif element.bits == 1:
            args.append(int(ctypes.c_bool.from_address(pointer).value))
        elif element.is_int:
            args.append(int(INTEGERS[element.bits].from_address(pointer).value))
        else:
            raise fail("cutile.argument", f"`{value.name}` is a number of {element.name}")
    return args


def _memory_at(
    address: int, name: str, element: PointerType, spans: list[Span], driver: HostDriver
) -> HostBytes:
    dtype = DTYPES["i64"] if isinstance(element.pointee, PointerType) else element.pointee
    for span in spans:
        if span.first == address:
            return HostBytes(_bytes(span), dtype.name, name)
    block = driver.allocation(address)
    if block is not None:
        items = tuple(HostBytes(_bytes(span), "i8", f"item of {name}") for span in spans)
        return HostBytes(_bytes(Span(address, block[1], driver)), dtype.name, name, items)
    return HostBytes(np.zeros(0, np.uint8), dtype.name, name)


def _bytes(span: Span) -> Any:
    data: Any = (ctypes.c_uint8 * (span.end - span.first)).from_address(span.first)
    return np.frombuffer(data, np.uint8)


# For users


@contextmanager
def on_host(
    *,
    backend: str | None = None,
    check: bool = True,
    schedule: str = "program",
    seed: int = 0,
    forgive: Collection[str] = FORGIVEN,
    architecture: tuple[int, int] = ARCHITECTURE,
) -> Generator[Host]:
    """Run what `cuda.tile.launch` launches here, while the context lasts.

    backend, check, schedule, seed: as `reftile.launch` has them.
    forgive: what is only a CutileWarning: names of FORGIVABLE; () holds cuTile to everything.
    architecture: the compute capability to compile for; the first context of a process decides.

    `cuda.tile.launch` then also takes arrays of NumPy, and raises the finding itself.

    Raises:
        ReftileError: cuTile is missing or of a version that is not known, or has loaded a GPU's
            driver in this process; or, from a launch, what is wrong with the program.
    """
    module: Any = load_cutile()
    if not _drivers:
        _drivers.append(HostDriver(_bind, architecture))
    driver = _drivers[0]
    if driver.compute_capability != architecture:
        major, minor = driver.compute_capability
        raise fail(
            "cutile.architecture",
            f"this process compiles for compute capability {major}.{minor}, and cuTile keeps that",
            hint="start another process",
        )
    unknown = sorted(set(forgive) - FORGIVABLE.keys())
    if unknown:
        known = ", ".join(FORGIVABLE)
        raise fail("cutile.forgive", f"{unknown[0]!r} cannot be forgiven (what can: {known})")
    host = Host(driver, RunOptions(backend, check, schedule, seed), forgive)
    original = module.launch
    launch = getattr(original, "reftile_original", original)
    with host_driver(driver, _keep, _lend):
        _hosts.append(host)
        module.launch = _launcher(launch, driver)
        try:
            yield host
        finally:
            module.launch = original
            _hosts.pop()


def _launcher(launch: Callable[..., Any], driver: HostDriver) -> Callable[..., Any]:
    def launch_on_host(*args: Any, **rest: Any) -> Any:
        driver.error = None
        if len(args) == 4 and isinstance(args[3], tuple):
            args = (*args[:3], tuple(map(_lent, cast("tuple[Any, ...]", args[3]))))
        try:
            return launch(*args, **rest)
        except RuntimeError:
            error, driver.error = driver.error, None
            if error is None:
                raise
            raise error from None

    launch_on_host.reftile_original = launch  # type: ignore[attr-defined]
    launch_on_host.__doc__ = launch.__doc__
    return launch_on_host


def _lent(arg: Any) -> Any:
    """Arrays of NumPy as cuTile takes them, also within lists and tuples."""
    if isinstance(arg, np.ndarray):
        found = LentArray(cast("Any", arg))
        _lend(found)
        return found
    if type(arg) in (list, tuple):
        return type(arg)(_lent(item) for item in arg)
    return arg


def run(
    kernel: object,
    grid: int | Sequence[int],
    args: Sequence[object] = (),
    *,
    backend: str | None = None,
    check: bool = True,
    schedule: str = "program",
    seed: int = 0,
    forgive: Collection[str] = FORGIVEN,
    architecture: tuple[int, int] = ARCHITECTURE,
) -> object:
    """Run a kernel of cuTile over a grid, and return the backend's report.

    kernel: a function marked with @ct.kernel. grid, args: as `cuda.tile.launch` has them; arrays
    are NumPy's or torch's on the CPU, and what the kernel stores is in them afterwards.
    The rest is as for `on_host`.

    Raises:
        ReftileError: the program is wrong. Errors of cuTile's compiler pass through.
    """
    module: Any = load_cutile()
    if not is_kernel(kernel):
        raise fail(
            "launch.kernel",
            f"{kernel!r} is no kernel of cuTile",
            hint="mark the function with @ct.kernel of cuda.tile",
        )
    sizes = tuple(grid) if isinstance(grid, Sequence) else (grid,)
    with on_host(
        backend=backend,
        check=check,
        schedule=schedule,
        seed=seed,
        forgive=forgive,
        architecture=architecture,
    ) as host:
        module.launch(0, sizes, kernel, tuple(args))
    return host.report
