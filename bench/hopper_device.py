"""Kernels on an NVIDIA GPU for the measurements of this folder: load, launch, time, compare.

Needs torch and the driver. What is measured is the machine code, so launches go straight to
libcuda; reftile.rt is the product's launcher.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import timing

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the checkout need not be installed

from reftile.ir.parse import parse  # noqa: E402
from reftile.lower.host import HostPlan, PointerParameter, ScalarParameter, TensorMapParameter  # noqa: E402
from reftile.lower.pipeline import Lowered, lower  # noqa: E402
from reftile.lower.ptx.assemble import read_log  # noqa: E402

if TYPE_CHECKING:
    import torch

DEVICE = "cuda"
HANG_SECONDS = 20.0
TIMING_SECONDS = 180.0
Launch = Callable[[], None]


def lower_text(path: Path) -> tuple[Lowered, float]:
    """A kernel lowered, and the seconds it took (the second time: tables are read then)."""
    text = path.read_text(encoding="utf-8")
    seconds = 0.0
    result: Lowered | None = None
    for _ in range(2):
        kernel = parse(text, path.name).kernel()
        start = time.perf_counter()
        result = lower(kernel, "sm_90a")
        seconds = time.perf_counter() - start
    assert result is not None
    return result, seconds


# The driver, through ctypes


class Driver:
    """The few functions of libcuda that a launch needs."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; a result other than success is an error with its name."""
        code = getattr(self.library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code} {(text.value or b'').decode()}")

    def load(self, image: bytes) -> tuple[ctypes.c_void_p, str]:
        """Load PTX or a cubin; return the module and the log of the driver's assembler.

        Source of the option numbers: CUjit_option in cuda.h.
        """
        information, errors = (ctypes.create_string_buffer(1 << 16) for _ in range(2))
        options = (ctypes.c_int * 5)(3, 4, 5, 6, 12)
        values = (ctypes.c_void_p * 5)(
            ctypes.addressof(information), 1 << 16, ctypes.addressof(errors), 1 << 16, 1
        )
        module = ctypes.c_void_p()
        data = ctypes.create_string_buffer(image + b"\0")
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), data, 5, options, values)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{errors.value.decode(errors='replace')}") from None
        return module, information.value.decode(errors="replace")


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y")),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


MAP_DTYPES = {
    "uint8": 0, "uint16": 1, "int32": 3, "int64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bfloat16": 9, }  # fmt: skip
MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
PROMOTE_256_BYTES = 3


def encode_map(
    driver: Driver, p: TensorMapParameter, base: int, numbers: Mapping[str, int]
) -> tuple[object, int]:
    """Encode a description; return what must be kept alive, and its address."""
    extents, strides = p.evaluate(numbers)
    rank = len(extents)
    raw = ctypes.create_string_buffer(192)
    address = (ctypes.addressof(raw) + 63) // 64 * 64
    driver.call(
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(address),
        MAP_DTYPES[p.dtype],
        rank,
        ctypes.c_void_p(base),
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * max(1, rank - 1))(*strides),
        (ctypes.c_uint32 * rank)(*p.box),
        (ctypes.c_uint32 * rank)(*([1] * rank)),
        0,
        MAP_SWIZZLES[p.swizzle],
        PROMOTE_256_BYTES,
        int(p.fill == "nan"),
    )
    return raw, address


@dataclass
class Loaded:
    """A kernel on the device."""

    driver: Driver
    plan: HostPlan
    function: ctypes.c_void_p
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])

    def bind(self, grid: int, arguments: Mapping[str, Any]) -> Launch:
        """A launcher of the kernel with these arguments: tensors, integers and floats by name."""
        import torch

        numbers = {k: v for k, v in arguments.items() if isinstance(v, int)}
        kept: list[Any] = [arguments]
        addresses: list[int] = []
        for p in self.plan.parameters:
            if isinstance(p, TensorMapParameter):
                raw, address = encode_map(self.driver, p, arguments[p.base].data_ptr(), numbers)
                kept.append(raw)
                addresses.append(address)
                continue
            if isinstance(p, PointerParameter):
                cell: Any = ctypes.c_uint64(arguments[p.name].data_ptr())
            else:
                assert isinstance(p, ScalarParameter)
                kinds = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}
                cell = kinds[p.dtype](arguments[p.name])
            kept.append(cell)
            addresses.append(ctypes.addressof(cell))
        array = (ctypes.c_void_p * len(addresses))(*addresses)
        stream = torch.cuda.current_stream().cuda_stream
        config = LaunchConfig(
            grid, 1, 1, self.plan.threads, 1, 1, self.plan.shared_bytes, stream, None, 0
        )
        launch, by_reference = self.driver.library.cuLaunchKernelEx, ctypes.byref(config)

        def go() -> None:
            code = launch(by_reference, self.function, array, None)
            if code:
                raise RuntimeError(f"cuLaunchKernelEx: {code}")

        go.kept = kept  # type: ignore[attr-defined]
        return go


def load(driver: Driver, name: str, path: Path) -> Loaded:
    """Lower a kernel, let the driver assemble it, and say what that took."""
    lowered, seconds = lower_text(path)
    start = time.perf_counter()
    module, log = driver.load(lowered.ptx.encode())
    loading = time.perf_counter() - start
    function = ctypes.c_void_p()
    entry = lowered.host.entry.encode()
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, entry)
    dynamic_bytes = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.call("cuFuncSetAttribute", function, dynamic_bytes, lowered.host.shared_bytes)
    report = read_log(log)
    local, registers = ctypes.c_int(), ctypes.c_int()
    driver.call("cuFuncGetAttribute", ctypes.byref(local), 3, function)
    driver.call("cuFuncGetAttribute", ctypes.byref(registers), 4, function)
    diagnostics = {
        "lower_ms": round(1e3 * seconds, 1),
        "load_ms": round(1e3 * loading, 1),
        "registers": registers.value,
        "local_bytes": local.value,
        "spill_bytes": report.spill_bytes,
        "remarks": list(report.remarks),
        "shared_bytes": lowered.host.shared_bytes,
    }
    print(f"{name}: {diagnostics}", flush=True)
    if report.remarks or report.spill_bytes:
        print(log, flush=True)
    return Loaded(driver, lowered.host, function, diagnostics)


# Running


class Results:
    """What was found so far; written whenever it grows, so that a hang loses nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.data: dict[str, Any] = {"checks": [], "timings": [], "kernels": {}}

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        """Append an entry."""
        self.data[kind].append(entry)
        self.write()

    def write(self) -> None:
        """Write the file, if there is to be one."""
        if self.path is not None:
            self.path.write_text(json.dumps(self.data, indent=1), encoding="utf-8")


def finish(what: str, results: Results, limit: float = HANG_SECONDS) -> None:
    """Wait for the device, but not for ever: on a hang, end the process."""
    import torch

    event = torch.cuda.Event()
    event.record()
    start = time.monotonic()
    while not event.query():
        if time.monotonic() - start > limit:
            print(f"HANG: {what} did not end within {limit} s", flush=True)
            results.data["hang"] = what
            results.write()
            os._exit(3)
        time.sleep(0.001)


def timed(functions: Mapping[str, Launch], rounds: int, flops: float) -> dict[str, dict[str, Any]]:
    """Median milliseconds of each, flushed and sustained, over shuffled rounds."""
    import torch

    faulthandler.dump_traceback_later(TIMING_SECONDS, exit=True)
    flush = torch.empty(1 << 28, dtype=torch.int8, device=DEVICE)
    flushed: dict[str, list[float]] = {name: [] for name in functions}
    sustained: dict[str, list[float]] = {name: [] for name in functions}

    def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def one_flushed(function: Launch) -> float:
        pairs = [events() for _ in range(12)]
        for begin, end in pairs:
            flush.zero_()
            begin.record()
            function()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(b.elapsed_time(e) for b, e in pairs[2:])

    count = max(8, int(0.03 * 0.7e15 / flops))

    def one_sustained(function: Launch) -> float:
        begin, end = events()
        function()
        begin.record()
        for _ in range(count):
            function()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / count

    for measure, into in ((one_flushed, flushed), (one_sustained, sustained)):
        for _ in range(rounds):
            order = list(functions)
            random.shuffle(order)
            for name in order:
                into[name].append(measure(functions[name]))
    faulthandler.cancel_dump_traceback_later()
    return {n: {"flushed": flushed[n], "sustained": sustained[n]} for n in functions}


def report_times(
    title: str, times: Mapping[str, dict[str, Any]], flops: float, peer: str, results: Results
) -> None:
    """Print TFLOP/s and the ratio to the peer; keep the figures."""
    print(f"== {title}: TFLOP/s (ratio to {peer}, interquartile range)  flushed | sustained")
    entry: dict[str, Any] = {"what": title, "peer": peer, "flops": flops, "rows": {}}
    for name, both in times.items():
        cells: list[str] = []
        row: dict[str, Any] = {}
        for kind in ("flushed", "sustained"):
            own, other = statistics.median(both[kind]), statistics.median(times[peer][kind])
            low, _, high = (
                statistics.quantiles(both[kind], n=4) if len(both[kind]) > 1 else (own,) * 3
            )
            tflops, ratio, spread = flops / own / 1e9, other / own, (high - low) / own
            cells.append(f"{tflops:7.1f} ({ratio:.3f}, {spread:.3f})")
            row[kind] = {"tflops": tflops, "ratio": ratio, "iqr": spread, "ms": own}
        print(f"   {name:16s} {' | '.join(cells)}", flush=True)
        entry["rows"][name] = row
    results.add("timings", entry)


def normal(*shape: int, factor: float = 1.0) -> torch.Tensor:
    """Fresh normal numbers in bf16."""
    import torch

    return (factor * torch.randn(*shape, device=DEVICE, dtype=torch.float32)).bfloat16()


def describe(results: Results, commit: str) -> None:
    """Note the GPU, the driver, the versions and the commit."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        gpu = torch.cuda.get_device_name()
    facts = {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda}
    facts["commit"] = commit or timing.commit()
    results.data.update(facts)
    print(facts, flush=True)
