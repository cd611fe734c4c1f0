"""The pipe kernels of examples/ on a Hopper GPU: right against float64, timed against cuBLAS and
cuDNN.

    python bench/hopper_pipe.py                       check and time everything
    python bench/hopper_pipe.py --check-only          right or wrong, a few seconds a kernel
    python bench/hopper_pipe.py --only gemm,causal --rounds 9 --json results.json
    python bench/hopper_pipe.py --assemble FOLDER     no GPU: write PTX, cubins and what ptxas says
    python bench/hopper_pipe.py --cubins FOLDER       load those instead of letting the driver
    assemble

Needs torch and the driver. Both sides of a ratio are measured in one process, in shuffled rounds:
once with the second-level cache flushed before each launch, once back to back for about 30 ms,
since the chip is power limited and the two differ by several percent. Inputs are fresh normal
numbers; results are filled with NaN before each check. A launch that does not end within its limit
ends the process, with the results so far.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the checkout need not be installed

from reftile.ir.parse import parse  # noqa: E402
from reftile.lower.host import HostPlan, PointerParameter, ScalarParameter, TensorMapParameter  # noqa: E402
from reftile.lower.pipeline import Lowered, lower  # noqa: E402
from reftile.lower.ptx.assemble import assemble, read_log  # noqa: E402

if TYPE_CHECKING:
    import torch

EXAMPLES = ROOT / "examples" / "pipe"
KERNELS = {
    "gemm": EXAMPLES / "gemm_sm90.tile",
    "attention": EXAMPLES / "attention_sm90.tile",
    "causal": EXAMPLES / "attention_causal_sm90.tile",
    "fp8": ROOT / "bench" / "kernels" / "gemm_fp8_sm90.tile",
}
DEPTH = 128
DEVICE = "cuda"
HANG_SECONDS = 20.0
TIMING_SECONDS = 180.0
Launch = Callable[[], None]


# Lowering


def lower_example(name: str) -> tuple[Lowered, float]:
    """An example lowered, and the seconds it took (the second time: tables are read then)."""
    text = KERNELS[name].read_text(encoding="utf-8")
    seconds = 0.0
    result: Lowered | None = None
    for _ in range(2):
        kernel = parse(text, KERNELS[name].name).kernel()
        start = time.perf_counter()
        result = lower(kernel, "sm_90a")
        seconds = time.perf_counter() - start
    assert result is not None
    return result, seconds


def assemble_all(folder: Path, names: Sequence[str]) -> int:
    """Write PTX and cubins, and print what ptxas says."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        lowered, seconds = lower_example(name)
        (folder / f"{name}.ptx").write_text(lowered.ptx, encoding="utf-8")
        start = time.perf_counter()
        code, report = assemble(lowered.ptx, "sm_90a")
        (folder / f"{name}.cubin").write_bytes(code)
        print(
            f"{name:10s} lowered in {1e3 * seconds:.0f} ms, {lowered.ptx.count(chr(10))} lines; "
            f"ptxas {1e3 * (time.perf_counter() - start):.0f} ms, {report.registers} registers, "
            f"{report.spill_bytes} bytes spilled, remarks {list(report.remarks)}"
        )
    return 0


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


def load(driver: Driver, name: str, cubins: Path | None) -> Loaded:
    """Lower, load, and say what the assembler said."""
    lowered, seconds = lower_example(name)
    start = time.perf_counter()
    if cubins is not None:
        module, log = driver.load((cubins / f"{name}.cubin").read_bytes())
    else:
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
        "lower_ms": 1e3 * seconds,
        "load_ms": 1e3 * loading,
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


def compare(
    name: str,
    size: str,
    found: torch.Tensor,
    wanted: torch.Tensor,
    peer: torch.Tensor,
    results: Results,
) -> bool:
    """Print and keep the error of a result, and that of the peer, relative in the 2-norm."""
    import torch

    difference = found.double() - wanted
    error = (difference.norm() / wanted.norm()).item()
    theirs = ((peer.double() - wanted).norm() / wanted.norm()).item()
    missing = int(torch.isnan(found).sum().item())
    right = not missing and error < 1.5 * theirs + 5e-4
    word = "right" if right else "WRONG"
    print(
        f"check {name:10s} {size:18s} {word}: error {error:.3e} (peer {theirs:.3e}), {missing} NaN",
        flush=True,
    )
    if not right:
        bad = torch.nan_to_num(difference.abs(), nan=1e9).reshape(
            -1, wanted.shape[-2], wanted.shape[-1]
        )[0]
        for row in range(0, min(bad.shape[0], 256), 64):
            blocks = [
                f"{bad[row : row + 64, c : c + 64].max().item():.2g}"
                for c in range(0, min(bad.shape[1], 512), 64)
            ]
            print(f"   rows {row}: largest errors in blocks of 64 columns: {' '.join(blocks)}")
    entry = {
        "kernel": name,
        "size": size,
        "right": right,
        "error": error,
        "peer": theirs,
        "nan": missing,
    }
    results.add("checks", entry)
    return right


# The kernels


def gemm_launch(
    kernel: Loaded, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, grid: int
) -> Launch:
    """C = A B^T."""
    (m, k), n = a.shape, b.shape[0]
    return kernel.bind(grid, {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k})


def operands(m: int, n: int, k: int, fp8: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Fresh A and B."""
    import torch

    a, b = normal(m, k), normal(n, k)
    return (a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)) if fp8 else (a, b)


def library_product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Launch:
    """The same product by cuBLAS: for 8 bits with scales of 1 and fast accumulation."""
    import torch

    if a.dtype == torch.bfloat16:
        return _without_result(lambda: torch.mm(a, b.T, out=out))
    one = torch.ones((), device=DEVICE)
    return _without_result(
        lambda: torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]
            a, b.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=out
        )
    )


def check_gemm(kernel: Loaded, fp8: bool, results: Results) -> bool:
    """Small sizes, and few steps of k."""
    import torch

    name, unit = ("fp8", 128) if fp8 else ("gemm", 64)
    good = True
    for m, n, steps, grid in ((2048, 256, 1, 2), (2048, 512, 7, 4), (4096, 3072, 7, 128)):
        k = steps * unit
        a, b = operands(m, n, k, fp8)
        c, d = (torch.full((m, n), math.nan, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        gemm_launch(kernel, a, b, c, grid)()
        finish(f"{name} {m}x{n}x{k}", results)
        library_product(a, b, d)()
        good &= compare(name, f"{m}x{n}x{k}", c, a.double() @ b.double().T, d, results)
    return good


def time_gemm(kernel: Loaded, fp8: bool, rounds: int, results: Results) -> None:
    """Square and flat products against cuBLAS, the same operands."""
    import torch

    name = "fp8" if fp8 else "gemm"
    for m, n, k in ((8192, 8192, 8192), (4096, 4096, 4096), (8192, 8192, 512), (2048, 2048, 2048)):
        a, b = operands(m, n, k, fp8)
        c, d = (torch.empty(m, n, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        functions: dict[str, Launch] = {"cuBLAS": library_product(a, b, d)}
        functions["cuBLAS"]()
        for grid in (128, 132):
            c.fill_(math.nan)
            functions[f"reftile {grid}"] = gemm_launch(kernel, a, b, c, grid)
            functions[f"reftile {grid}"]()
            finish(f"{name} {m}x{n}x{k}", results)
            error = (c.float() - d.float()).norm() / d.float().norm()
            if not error.item() < 5e-3:
                print(f"   MISMATCH at {m}x{n}x{k}: {error.item()}", flush=True)
        times = timed(functions, rounds, 2.0 * m * n * k)
        report_times(f"{name} {m}x{n}x{k}", times, 2.0 * m * n * k, "cuBLAS", results)


def _without_result(function: Callable[[], object]) -> Launch:
    def go() -> None:
        function()

    return go


def attention_launch(
    kernel: Loaded, tensors: Sequence[torch.Tensor], grid: int, causal: bool
) -> Launch:
    """O from Q, K, V of [heads, length, 128]."""
    import torch

    q, k, v, o = tensors
    heads, length, _ = q.shape
    scale = math.log2(math.e) / math.sqrt(DEPTH)
    arguments: dict[str, Any] = {
        "q": q,
        "k": k,
        "v": v,
        "o": o,
        "heads": heads,
        "length": length,
        "scale": scale,
    }
    tiles = -(-length // (192 if causal else 128)) * heads
    if causal:
        arguments["counter"] = torch.zeros(1, device=DEVICE, dtype=torch.int32)
    return kernel.bind(min(grid, tiles), arguments)


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention by cuDNN, of [heads, length, depth]."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> torch.Tensor:
    """Attention in float64."""
    import torch

    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(DEPTH)
    if causal:
        later = torch.ones(scores.shape[-2:], device=DEVICE, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return torch.softmax(scores, -1) @ v.double()


def check_attention(kernel: Loaded, causal: bool, results: Results) -> bool:
    """Small sizes; lengths that tiles do not divide for the causal kernel."""
    import torch

    name = "causal" if causal else "attention"
    sizes = [(8, 256, 132), (64, 1024, 132), (16, 3072, 40)]
    sizes += [(8, 1000, 132), (8, 80, 132)] if causal else []
    good = True
    for heads, length, grid in sizes:
        q, k, v = (
            normal(heads, length, DEPTH, factor=2),
            *(normal(heads, length, DEPTH) for _ in "kv"),
        )
        o = torch.full_like(q, math.nan)
        launch = attention_launch(kernel, (q, k, v, o), grid, causal)
        launch()
        finish(f"{name} {heads}x{length}", results)
        if causal:  # the counter must be back at zero
            launch()
            finish(f"{name} {heads}x{length}, second launch", results)
        wanted = exact_attention(q, k, v, causal)
        good &= compare(name, f"{heads}x{length}", o, wanted, sdpa(q, k, v, causal), results)
    return good


def time_attention(kernel: Loaded, causal: bool, rounds: int, results: Results) -> None:
    """64 heads in all, several lengths, against cuDNN."""
    import torch

    name = "causal" if causal else "attention"
    for heads, length in ((64, 8192), (64, 2048), (32, 16384)):
        q, k, v = (normal(heads, length, DEPTH) for _ in range(3))
        o = torch.full_like(q, math.nan)
        flops = 4.0 * heads * length * length * DEPTH / (2 if causal else 1)
        own = attention_launch(kernel, (q, k, v, o), 132, causal)
        own()
        finish(f"{name} {heads}x{length}", results)
        peer = sdpa(q, k, v, causal)
        error = (o.float() - peer.float()).norm() / peer.float().norm()
        if not error.item() < 1e-2:
            print(f"   MISMATCH at {heads}x{length}: {error.item()}", flush=True)
        batch = [t.view(4, -1, length, DEPTH) for t in (q, k, v)]
        functions = {
            "cuDNN": _without_result(lambda b=batch: _sdpa4(b[0], b[1], b[2], causal)),
            "reftile": own,
        }
        title = f"{name} b4 h{heads // 4} n{length} d{DEPTH}"
        report_times(title, timed(functions, rounds, flops), flops, "cuDNN", results)


def _sdpa4(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


# The whole


def describe(results: Results, commit: str) -> None:
    """Note the GPU, the driver, the versions and the commit."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        gpu = torch.cuda.get_device_name()
    if not commit:
        try:
            git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
            commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            commit = ""
    facts = {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda, "commit": commit}
    results.data.update(facts)
    print(facts, flush=True)


def run(options: argparse.Namespace, names: Sequence[str]) -> int:
    """Check and time; return the exit code."""
    import torch

    results = Results(options.json)
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    torch.zeros(1, device=DEVICE)
    describe(results, cast("str", options.commit))
    driver = Driver()
    wrong = False
    for name in names:
        try:
            kernel = load(driver, name, options.cubins)
            results.data["kernels"][name] = kernel.diagnostics
            causal = name == "causal"
            is_gemm, fp8 = name in ("gemm", "fp8"), name == "fp8"
            if is_gemm:
                good = check_gemm(kernel, fp8, results)
            else:
                good = check_attention(kernel, causal, results)
            wrong |= not good
            if options.check_only:
                continue
            if is_gemm:
                time_gemm(kernel, fp8, options.rounds, results)
            else:
                time_attention(kernel, causal, options.rounds, results)
        except RuntimeError as error:
            print(f"FAILED {name}: {error}", flush=True)
            results.data.setdefault("failures", {})[name] = str(error)
            wrong = True
            if "cuLaunch" in str(error) or "CUDA" in str(error):
                break  # a fault leaves the context unusable
    results.write()
    return int(wrong)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(KERNELS), help="kernels, with commas between")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--assemble", type=Path)
    parser.add_argument("--cubins", type=Path)
    options = parser.parse_args()
    names = [n for n in options.only.split(",") if n]
    if options.assemble is not None:
        return assemble_all(options.assemble, names)
    return run(options, names)


if __name__ == "__main__":
    raise SystemExit(main())
