"""Launch tile kernels on the CPU: pack arguments, find machine code, run blocks on threads.

    report = launch_cpu(kernel, (1024,), [x, y, out])

Nothing is checked but the indices of views and the asserts of the kernel; everything else that
makes a program undefined is for the interpreter to find.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reftile.ir.arguments import HostBytes, Raw, Uninitialized
from reftile.ir.core import Kernel, Module, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.ir.dtypes import DTYPES, I64, TF32, DType, from_numpy
from reftile.ir.numbers import convert
from reftile.ir.ops import Global
from reftile.ir.packing import pack_nibbles
from reftile.ir.types import PointerType, TensorViewType, TileType
from reftile.ir.verify import verify_unless_known
from reftile.lang.backends import LaunchOptions
from reftile.lower.cpu.emit import SCRATCH_ALIGNMENT, Fault, Program, generate
from reftile.rt.cpu_code import Code, load_code
from reftile.rt.cpu_print import Printer

MOST_WAITING = 256
"""Blocks at most of a kernel in which blocks wait for each other: each gets a thread of its own."""
PATIENCE_SECONDS = 60.0
"""How long blocks may wait for each other without any of them ending."""
STREAM_BYTES = 64 << 20
"""From this size of all arrays on rows are written past the caches."""
_CHUNKS_PER_THREAD = 8
_SMALL_WORK = 1 << 15
_TURNS = 64
"""How often a counted loop is taken to run."""
_LONG_WORK = 1 << 24
"""Elements, in all blocks, from which on a launch may take longer than one waits for Ctrl-C."""


@dataclass(frozen=True, slots=True)
class CpuReport:
    """What a launch did.

    blocks: how many ran. threads: on how many threads. compiled_seconds: what compiling took, 0
    for code from the cache or from before. printed: the texts of `print_tko`, those of one block
    behind those of the blocks before it.
    """

    blocks: int
    threads: int
    compiled_seconds: float
    backend: str = "cpu"
    checked: bool = False
    printed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Prepared:
    """A kernel that is ready to run.

    elements: of its largest tile. work: elements of a block, as far as it is known; of a kernel
    with a loop until something happens, without end.
    """

    program: Program
    code: Code
    elements: int
    work: int
    packers: list[Any]
    slots: int
    parameters: list[NDArray[np.int64]] = field(default_factory=list[NDArray[np.int64]])


_prepare_lock = threading.Lock()
_scratch = threading.local()


def thread_count() -> int:
    """`REFTILE_CPU_THREADS`, or the processors that this process may use."""
    chosen = os.environ.get("REFTILE_CPU_THREADS", "")
    if chosen.isdigit() and int(chosen) > 0:
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def launch_cpu(
    program: Module | Kernel,
    grid: Sequence[int],
    args: Sequence[Any],
    *,
    threads: int | None = None,
    name: str | None = None,
    pinned: bool = False,
) -> CpuReport:
    """Run a kernel over a grid of blocks.

    args: one for each argument: a NumPy array (types of ml_dtypes too) or `Raw` bytes for a pointer
        or a tensor view, a number for a scalar.
    threads: `thread_count()` if not given. Results do not depend on it, except for the order of
        atomic additions of floats.
    pinned: while it runs, each thread stays on one processor, in turn of those that this process
        may use; where the system cannot do that, it makes no difference.

    Raises:
        ReftileError: the kernel or an argument is wrong, or the CPU lacks something
            (`cpu.unsupported`).
    """
    module = program if isinstance(program, Module) else Module([program])
    kernel = program if isinstance(program, Kernel) else module.kernel(name)
    x, y, z = (*grid, 1, 1)[:3]
    numbers: list[int] = []
    arrays: list[_Array] = []
    if len(args) != len(kernel.arguments):
        names = ", ".join(f"%{a.name}: {a.type}" for a in kernel.arguments)
        raise _bad(kernel, f"`{kernel.name}` takes {len(kernel.arguments)} arguments ({names})")
    verify_unless_known(kernel)
    packers = cast("list[Any] | None", kernel.plans.get("cpu packers"))
    if packers is None:
        packers = [
            _packer(v, a) for v, a in zip(kernel.arguments, kernel.argument_attributes, strict=True)
        ]
        kernel.plans["cpu packers"] = packers
    for pack, value, arg in zip(packers, kernel.arguments, args, strict=True):
        pack(kernel, value, arg, numbers, arrays)
    groups = _groups(kernel, arrays)
    key = ("cpu", groups)
    prepared = cast("_Prepared | None", kernel.plans.get(str(key)))
    seconds = 0.0
    if prepared is None:
        with _prepare_lock:
            prepared = cast("_Prepared | None", kernel.plans.get(str(key)))
            if prepared is None:
                prepared = _prepare(kernel, groups)
                kernel.plans[str(key)] = prepared
                seconds = prepared.code.seconds
    for number, array in enumerate(arrays):
        if (
            not array.writeable
            and (groups[number] if groups else number) in prepared.program.written
        ):
            message = f"the array of %{array.name} may not be written to, and the kernel does"
            raise _bad(kernel, message, "access.read_only")
    kept = _load_globals(module, prepared.program.globals, numbers)
    blocks = x * y * z
    streams = sum(array.end - array.first for array in arrays) >= STREAM_BYTES
    prints = prepared.program.prints
    printer = Printer(prints) if prints else None
    used = _run(kernel, prepared, (x, y, z), blocks, numbers, threads, streams, printer, pinned)
    del kept
    return CpuReport(blocks, used, seconds, printed=printer.texts() if printer else ())


def run(
    kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: LaunchOptions
) -> CpuReport:
    """The backend `cpu` of `launch`.

    Raises:
        ReftileError: as `launch_cpu`; rule `cpu.check` if the launch was to be checked.
    """
    if options.check:
        message = f"`{kernel.name}` was to be checked, and compiled kernels are not"
        raise ReftileError(
            Diagnosis("cpu.check", message, kernel.span, "pass check=False, or leave out `backend`")
        )
    report = launch_cpu(kernel, grid, args)
    if options.prints:
        print("".join(report.printed), end="")
    return report


def _prepare(kernel: Kernel, groups: tuple[int, ...]) -> _Prepared:
    verify_unless_known(kernel)
    if find_spec("numba") is None:
        hint = "pip install numba, or use backend='interp'"
        raise fail("cpu.missing", "the CPU backend needs numba, which is not installed", hint=hint)
    made = generate(kernel, groups, blas=_blas_address("sgemm") != 0)
    code = load_code(made, kernel.name)
    elements = 1
    for op in kernel.walk():
        for result in op.results:
            if isinstance(result.type, TileType):
                elements = max(elements, result.type.size)
    names = {op.name for op in kernel.walk()}
    work = _LONG_WORK if "loop" in names else elements * (_TURNS if "for" in names else 1)
    return _Prepared(made, code, elements, work, [], 0)


# Arguments


@dataclass(slots=True)
class _Array:
    name: str
    first: int
    end: int
    writeable: bool


def _bad(kernel: Kernel, message: str, rule: str = "launch.arguments") -> ReftileError:
    return ReftileError(Diagnosis(rule, message, kernel.span))


def _packer(value: Value, attributes: dict[str, Any]) -> Any:
    """The function that appends an argument's numbers, and its array, to those of the launch."""
    type = value.type
    if isinstance(type, TensorViewType):
        wanted = I64 if isinstance(type.element, PointerType) else type.element
        return _array_packer(wanted, type, attributes)
    if not isinstance(type, TileType) or type.shape:
        return _refuse
    if isinstance(type.element, PointerType):
        return _array_packer(type.element.pointee, None, attributes)
    return _scalar_packer(type.dtype)


def _refuse(kernel: Kernel, value: Value, arg: Any, numbers: Any, arrays: Any) -> None:
    raise _bad(kernel, f"%{value.name}: {value.type} cannot be passed to a kernel")


def _scalar_packer(dtype: DType) -> Any:
    low, high = -(1 << (dtype.bits - 1)), 1 << dtype.bits
    top = min(high, 1 << 63)

    def pack_int(
        kernel: Kernel, value: Value, arg: Any, numbers: list[int], arrays: list[_Array]
    ) -> None:
        if type(arg) is int and low <= arg < top:
            numbers.append(arg if dtype.bits > 1 else arg & 1)
            return
        try:
            number = int(arg)
            exact = number == arg and not isinstance(arg, str | bytes)
        except (TypeError, ValueError, OverflowError):
            number, exact = 0, False
        if not exact or np.ndim(arg):
            raise _bad(kernel, f"%{value.name} takes a number of {dtype.name}, found {arg!r}")
        if not low <= number < high:
            raise _bad(kernel, f"{arg!r} does not fit %{value.name}: {dtype.name}")
        if dtype.bits == 1:
            number &= 1
        numbers.append(number if number < 1 << 63 else number - (1 << 64))

    def pack_float(
        kernel: Kernel, value: Value, arg: Any, numbers: list[int], arrays: list[_Array]
    ) -> None:
        try:
            exact = None if isinstance(arg, str | bytes) or np.ndim(arg) else float(arg)
        except (TypeError, ValueError, OverflowError):
            exact = None
        if exact is None:
            raise _bad(kernel, f"%{value.name} takes a number of {dtype.name}, found {arg!r}")
        found = convert(np.asarray([exact], np.float64), DTYPES["f64"], dtype)
        carrier = np.asarray(found, dtype.carrier)
        numbers.append(int(carrier.view(np.int64 if dtype.bits == 64 else np.int32)[0]))

    return pack_int if dtype.is_int else pack_float


def _array_packer(wanted: DType, view: TensorViewType | None, attributes: dict[str, Any]) -> Any:
    divisor = attributes.get("div_by")
    accepted: dict[Any, DType] = {}

    def pack(
        kernel: Kernel, value: Value, arg: Any, numbers: list[int], arrays: list[_Array]
    ) -> None:
        if isinstance(arg, Uninitialized):
            arg = arg.array
        if isinstance(arg, Raw | HostBytes):
            units = np.frombuffer(arg.data, np.uint8)
            found: DType = DTYPES[arg.dtype]
            array: NDArray[Any] = units
        elif isinstance(arg, np.ndarray):
            array = cast("NDArray[Any]", arg)
            cached = accepted.get(array.dtype)
            found = cached or _dtype_of(kernel, value, array)
            accepted[array.dtype] = found
        else:
            raise _bad(kernel, f"%{value.name}: {value.type} takes an array, found {arg!r}")
        if found is not wanted and not (wanted is TF32 and found.name == "f32"):
            raise _bad(
                kernel,
                f"%{value.name} needs elements of {wanted.name}, found {found.name}",
            )
        first = int(array.__array_interface__["data"][0])
        if divisor is not None and first % int(divisor):
            message = f"%{value.name} is {first}, which is not a multiple of {divisor}"
            raise _bad(kernel, message, "assume.div_by")
        numbers.append(first)
        flags = array.flags
        size = array.nbytes
        if not flags.c_contiguous and size:
            last = sum((d - 1) * s for d, s in zip(array.shape, array.strides, strict=True))
            size = last + array.itemsize
        arrays.append(_Array(value.name, first, first + size, flags.writeable))
        if view is not None:
            _pack_view(kernel, value, view, array, numbers)

    return pack


def _dtype_of(kernel: Kernel, value: Value, array: NDArray[Any]) -> DType:
    try:
        found = from_numpy(array.dtype)
    except TypeError as error:
        raise _bad(kernel, f"%{value.name}: {error}") from None
    if found.elements_per_unit == 2:
        message = f"%{value.name} has one element in each byte, and memory holds two"
        raise _bad(kernel, message)
    return found


def _pack_view(
    kernel: Kernel, value: Value, type: TensorViewType, array: NDArray[Any], numbers: list[int]
) -> None:
    size = array.itemsize
    if any(s % size or s < 0 for s in array.strides):
        raise _bad(kernel, f"the strides of %{value.name} are {array.strides} bytes")
    shape, strides = array.shape, tuple(s // size for s in array.strides)
    if len(shape) != type.rank or 0 in shape:
        raise _bad(kernel, f"%{value.name} needs an array of rank {type.rank}, found {shape}")
    for axis in range(type.rank):
        wanted, step = type.shape[axis], type.strides[axis]
        if wanted is not None and shape[axis] != wanted:
            message = f"axis {axis} of %{value.name} must have {wanted} elements"
            raise _bad(kernel, f"{message}, found {shape[axis]}")
        if step is not None and strides[axis] != step and shape[axis] > 1:
            message = f"axis {axis} of %{value.name} must have the stride {step}"
            raise _bad(kernel, f"{message}, found {strides[axis]}")
    numbers += [*shape, *strides]


def _groups(kernel: Kernel, arrays: Sequence[_Array]) -> tuple[int, ...]:
    """A number for each array, shared by those whose memory overlaps; () if none does."""
    if len(arrays) < 2:
        return ()
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].first)
    groups = list(range(len(arrays)))
    reach, leader, apart = -1, 0, True
    for i in order:
        array = arrays[i]
        if array.first < reach and array.end > array.first:
            groups[i], apart = leader, False
        else:
            leader = groups[i]
        reach = max(reach, array.end)
    return () if apart else tuple(groups)


def _load_globals(module: Module, symbols: tuple[str, ...], numbers: list[int]) -> list[Any]:
    kept: list[Any] = []
    if not symbols:
        return kept
    found = {op.symbol: op for op in module.globals if isinstance(op, Global)}
    for symbol in symbols:
        op = found.get(symbol)
        if op is None:
            raise fail("get_global.unknown", f"the module has no global @{symbol}")
        bits = np.asarray(op.value.bits())
        if op.value.splat:
            bits = np.repeat(bits, op.value.shape[0])
        if op.value.dtype.elements_per_unit == 2:
            bits = pack_nibbles(bits)
        data = _aligned(bits.nbytes, 4096)
        data[: bits.nbytes] = bits.view(np.uint8)
        kept.append(data)
        numbers.append(data.ctypes.data)
    return kept


def _aligned(size: int, alignment: int) -> NDArray[np.uint8]:
    space = np.zeros(size + alignment, np.uint8)
    start = -space.ctypes.data % alignment
    return space[start : start + size]


# Running


def _run(
    kernel: Kernel,
    prepared: _Prepared,
    grid: tuple[int, int, int],
    blocks: int,
    numbers: list[int],
    threads: int | None,
    streams: bool,
    printer: Printer | None,
    pinned: bool,
) -> int:
    program = prepared.program
    count = 1 if blocks == 1 else min(threads or thread_count(), blocks)
    chunk = 1
    if program.waits and blocks > 1:
        if blocks > MOST_WAITING:
            message = (
                f"blocks of `{kernel.name}` wait for each other, and {blocks} blocks cannot all "
                f"run at once: the CPU runs at most {MOST_WAITING} such blocks"
            )
            hint = "launch fewer blocks, or use backend='interp'"
            raise ReftileError(Diagnosis("cpu.co_resident", message, kernel.span, hint))
        count = blocks
    elif threads is None and blocks * prepared.elements <= _SMALL_WORK:
        count = 1
    else:
        # Between chunks a thread sees that it is to stop.
        most = max(1, _LONG_WORK // prepared.work)
        chunk = max(1, min(blocks // (count * _CHUNKS_PER_THREAD), most))
    parameters = np.array(
        [
            *grid,
            blocks,
            chunk,
            0,
            0,
            _blas_address("sgemm") if program.uses_blas else 0,
            _blas_address("dgemm") if program.uses_blas else 0,
            _yield_address(),
            _constants_address(prepared),
            streams,
            printer.address if printer else 0,
            *numbers,
        ],
        np.int64,
    )
    address = int(parameters.__array_interface__["data"][0])
    if program.uses_blas:
        with _one_blas_thread():
            _run_threads(kernel, prepared, address, count, parameters, pinned, blocks)
    else:
        _run_threads(kernel, prepared, address, count, parameters, pinned, blocks)
    if printer and printer.failed:
        raise printer.failed[0]
    if parameters[6] > 0:
        raise _fault(program.faults[int(parameters[6]) - 1], printer)
    return count


def _fault(fault: Fault, printer: Printer | None) -> ReftileError:
    op = fault.op
    match fault.rule:
        case "assert.failed":
            message = str(op.attributes["message"])
        case "for.step":
            message = "`step` must be positive"
        case _:
            message = "an index is outside the index space of the view"
    hint = "run it with check=True to see where"
    text = "".join(printer.texts()) if printer else ""
    notes = ((f"the kernel had printed:\n{text}", None),) if text else ()
    return ReftileError(Diagnosis(fault.rule, message, op.span, hint, notes))


def _run_threads(
    kernel: Kernel,
    prepared: _Prepared,
    address: int,
    count: int,
    parameters: NDArray[np.int64],
    pinned: bool,
    blocks: int,
) -> None:
    function, size = prepared.code.function, prepared.program.scratch_bytes
    # A thread that runs compiled code does not hear Ctrl-C; one that waits for others does.
    is_long = blocks * prepared.work >= _LONG_WORK
    if count == 1 and not prepared.program.waits and not is_long:
        function(address, _scratch_address(size))
        return

    def work(number: int) -> None:
        with _stay(number if pinned else None):
            function(address, _scratch_address(size))

    pool = _pool(count if not prepared.program.waits else MOST_WAITING)
    futures: list[Future[None]] = [pool.submit(work, n) for n in range(1, count)]
    try:
        if prepared.program.waits:
            futures.append(pool.submit(work, 0))
            _watch(kernel, futures, parameters)
        elif is_long:
            futures.append(pool.submit(work, 0))
            for future in futures:
                future.result()
        else:
            work(0)
            for future in futures:
                # A thread that has not begun by now has nothing left to do.
                if not future.cancel():
                    future.result()
    except BaseException:
        if parameters[6] == 0:
            parameters[6] = -1
        for future in futures:
            if not future.cancel():
                future.exception()
        raise


@contextmanager
def _stay(number: int | None) -> Generator[None]:
    """Keep the calling thread on the processor of this number while it is in here."""
    if number is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[number % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _watch(kernel: Kernel, futures: Sequence[Future[None]], parameters: NDArray[np.int64]) -> None:
    """Wait for all blocks, but not for ever if they wait for each other."""
    left = list(futures)
    while left:
        done = _wait_some(left, PATIENCE_SECONDS)
        if not done:
            parameters[6] = -1
            message = (
                f"{len(left)} blocks of `{kernel.name}` waited {PATIENCE_SECONDS:.0f} seconds "
                "without any of them ending"
            )
            hint = "run it with check=True: the interpreter names the blocks that wait"
            raise ReftileError(Diagnosis("cpu.no_progress", message, kernel.span, hint))
        left = [f for f in left if f not in done]
        for future in done:
            future.result()


def _wait_some(futures: Sequence[Future[None]], seconds: float) -> set[Future[None]]:
    waiting: Any = import_module("concurrent.futures")
    done, _ = waiting.wait(futures, timeout=seconds, return_when=waiting.FIRST_COMPLETED)
    return cast("set[Future[None]]", done)


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="reftile-cpu")


if hasattr(os, "register_at_fork"):
    # The threads of a pool do not live on in a forked process.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _scratch_address(size: int) -> int:
    """The address of this thread's scratch memory, of at least `size` bytes."""
    space: NDArray[np.uint8] | None = getattr(_scratch, "space", None)
    if space is None or space.size < size:
        try:
            space = _scratch.space = _aligned(max(size, 1 << 16), SCRATCH_ALIGNMENT)
        except (MemoryError, ValueError, OverflowError):
            message = f"each thread needs {size} bytes for tiles and `alloca`, which are not there"
            raise fail("cpu.memory", message) from None
        _scratch.address = space.ctypes.data
    return cast("int", _scratch.address)


def _constants_address(prepared: _Prepared) -> int:
    data = prepared.program.constants
    if not data:
        return 0
    if not prepared.parameters:
        space = _aligned(len(data), 64)
        space[:] = np.frombuffer(data, np.uint8)
        prepared.parameters.append(space)  # type: ignore[arg-type]
    return int(prepared.parameters[0].ctypes.data)


@cache
def _yield_address() -> int:
    library = ctypes.CDLL(None)
    return ctypes.cast(library.sched_yield, ctypes.c_void_p).value or 0


# BLAS


@cache
def _blas_address(name: str) -> int:
    """The address of a function of the BLAS that scipy brings, or 0 without scipy."""
    if find_spec("scipy") is None:
        return 0
    module: Any = import_module("scipy.linalg.cython_blas")
    capsule = module.__pyx_capi__[name]
    api: Any = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


class _BlasThreads:
    """One thread for BLAS while launches run that call it on threads of their own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.before = 1
        self.functions: tuple[Any, Any] | None = None

    def __enter__(self) -> None:
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                get, put = self._functions()
                self.before = get()
                if self.before != 1:
                    put(1)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0 and self.before != 1:
                self._functions()[1](self.before)

    def _functions(self) -> tuple[Any, Any]:
        if self.functions is None:
            self.functions = _find_thread_functions()
        return self.functions


def _find_thread_functions() -> tuple[Any, Any]:
    """How many threads scipy's OpenBLAS uses, and the function that sets it."""
    _blas_address("sgemm")
    for path in _loaded_libraries():
        # The wheel of NumPy brings an OpenBLAS of its own, which is left alone.
        if "openblas" not in path or "numpy.libs" in path:
            continue
        library = ctypes.CDLL(path)
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("", "64_"):
                put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                if put is not None and get is not None:
                    return get, put
    return (lambda: 1), (lambda count: None)  # type: ignore[misc]


def _loaded_libraries() -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            return sorted({line.split()[-1] for line in maps if ".so" in line})
    except OSError:
        return []


_blas_threads = _BlasThreads()


def _one_blas_thread() -> _BlasThreads:
    return _blas_threads
