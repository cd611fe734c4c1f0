"""What a launch and a compilation cost on the host, against Triton, in one run.

    python bench/launch.py [--json FILE]

Launch: empty kernels with 6 and 19 arguments, microseconds of host time for each launch, the least
and the median of 15 batches of 500. Compilation: the GEMM of examples/pipe, lowered and assembled
afresh by the driver, then again from the disk cache; and a matmul of Triton without its cache.
"""

# pyright: reportMissingImports=false, reportCallIssue=false, reportIndexIssue=false

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="triton-")

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from reftile.ir.parse import parse  # noqa: E402
from reftile.lower.host import HostPlan, PointerParameter, ScalarParameter  # noqa: E402
from reftile.lower.pipeline import lower  # noqa: E402
from reftile.rt.cache import Cache  # noqa: E402
from reftile.rt.jit import load  # noqa: E402
from reftile.rt.launcher import Launcher  # noqa: E402


@triton.jit
def empty6(a, b, c, m, n, k):
    pass


@triton.jit
def empty19(a, b, c, d, e, f, g, h, i, m, n, k, o, p, q, r, s, t, u):
    pass


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        y = tl.load(b + columns[None, :] * k + (start + inner)[:, None])
        acc += tl.dot(x, y)
    tl.store(c + rows[:, None] * n + columns[None, :], acc.to(tl.bfloat16))


def empty_launcher(pointers: int, numbers: int) -> Launcher:
    """An empty kernel with so many pointers and integers."""
    names = [f"p{i}" for i in range(pointers)] + [f"n{i}" for i in range(numbers)]
    types = [".u64"] * pointers + [".u32"] * numbers
    declared = ", ".join(f".param {t} {n}" for t, n in zip(types, names, strict=True))
    ptx = (
        f".version 8.4\n.target sm_80\n.address_size 64\n"
        f".visible .entry empty({declared})\n{{\n ret;\n}}\n"
    )
    parameters = [PointerParameter(n) for n in names[:pointers]]
    plan = HostPlan(
        entry="empty",
        threads=128,
        cluster=(1, 1, 1),
        shared_bytes=0,
        parameters=(*parameters, *(ScalarParameter(n, "i32") for n in names[pointers:])),
        arguments=tuple(names),
    )
    return Launcher(plan, load(ptx, "empty", 0))


def host_time(launch: Callable[[], Any], batches: int = 15, count: int = 500) -> dict[str, float]:
    """Microseconds for each launch: the least and the median over batches."""
    for _ in range(50):
        launch()
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(batches):
        start = time.perf_counter()
        for _ in range(count):
            launch()
        times.append((time.perf_counter() - start) / count * 1e6)
        torch.cuda.synchronize()
    return {"least_us": min(times), "median_us": statistics.median(times)}


def launches() -> dict[str, Any]:
    """Both sides, alternating."""
    tensors = [torch.empty(16, device="cuda") for _ in range(9)]
    numbers = list(range(17, 27))
    found: dict[str, Any] = {}
    for pointers, count in ((3, 3), (9, 10)):
        args = [*tensors[:pointers], *numbers[:count]]
        kernel = empty6 if pointers == 3 else empty19
        ours = empty_launcher(pointers, count)

        def launch_ours(launcher: Launcher = ours, args: list[Any] = args) -> None:
            launcher((1, 1, 1), args)

        def launch_theirs(kernel: Any = kernel, args: list[Any] = args) -> None:
            kernel[(1,)](*args)

        mine, theirs = host_time(launch_ours), host_time(launch_theirs)
        ratio = mine["median_us"] / theirs["median_us"]
        found[f"{pointers + count} arguments"] = {"reftile": mine, "triton": theirs, "ratio": ratio}
        print(
            f"{pointers + count} arguments: {mine} against {theirs}, ratio {ratio:.3f}", flush=True
        )
    return found


def compilations() -> dict[str, Any]:
    """A GEMM from text to a loaded function, cold and from the disk; Triton's without its cache."""
    text = (ROOT / "examples/pipe/gemm_sm90.tile").read_text(encoding="utf-8")
    lower(parse(text).kernel(), "sm_90a")  # the process is warm: tables are read

    def compile_ours(cache: Cache | None, fresh: bool = True) -> float:
        start = time.perf_counter()
        lowered = lower(parse(text).kernel(), "sm_90a")
        # The driver has a cache of its own; a comment that no one has seen makes it miss.
        ptx = lowered.ptx + (f"// {time.time_ns()}\n" if fresh else "")
        load(ptx, lowered.host.entry, lowered.host.shared_bytes, cache)
        return 1e3 * (time.perf_counter() - start)

    cache = Cache(Path(tempfile.mkdtemp(prefix="reftile-")))
    cold = min(compile_ours(None) for _ in range(3))
    compile_ours(cache, fresh=False)
    lowered = lower(parse(text).kernel(), "sm_90a")
    warm: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        load(lowered.ptx, lowered.host.entry, lowered.host.shared_bytes, cache)
        warm.append(1e3 * (time.perf_counter() - start))
    a, b, c = (torch.empty(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    matmul[(16, 16)](a, b, c, 1024, 1024, 1024, BM=64, BN=64, BK=32, num_warps=4)
    theirs: list[float] = []
    for stages in (2, 3, 4):
        start = time.perf_counter()
        matmul[(8, 4)](
            a, b, c, 1024, 1024, 1024, BM=128, BN=256, BK=64, num_warps=8, num_stages=stages
        )
        theirs.append(1e3 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    found = {"cold_ms": cold, "warm_ms": min(warm), "triton_ms": min(theirs)}
    found["ratio"] = cold / min(theirs)
    print(f"compiling a GEMM: {found}", flush=True)
    return found


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    results = {**found, "launch": launches(), "compile": compilations()}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
