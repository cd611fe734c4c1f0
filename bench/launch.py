"""What a launch and a compilation cost on the host, against Triton, in one process.

    python bench/launch.py [--rounds N] [--json FILE] [--commit HASH]

Launch: empty kernels with 6 and 19 arguments, and a GEMM with 3 tensor maps; microseconds of host
time for each launch, and beside it that of the driver's call alone, with everything ready.
"reftile" is the launcher's function (`compiled.launch`), "reftile, called" the launcher itself.
Compilation: the GEMM and the attention of examples/pipe, from the text to a loaded function, with
nothing cached, against matmul and attention written in Triton with the same tiles; then from the
cache on disk. All sides run in every round, in an order shuffled anew; the ratio is that of the
medians, and that of the least of the rounds stands beside it.

A kernel compiled anew gets a name (ours) or a constant (Triton's) that nobody has seen, so that no
cache knows it; the driver's own cache on disk stays on.
"""

# pyright: reportMissingImports=false, reportCallIssue=false, reportIndexIssue=false

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
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
from timing import commit  # noqa: E402

from reftile.ir.parse import parse  # noqa: E402
from reftile.lower.host import (  # noqa: E402
    ArrayArgument,
    HostPlan,
    PointerParameter,
    ScalarParameter,
)
from reftile.rt.cache import Cache  # noqa: E402
from reftile.rt.compile import Compiled, compile_kernel  # noqa: E402
from reftile.rt.devices import driver_version  # noqa: E402
from reftile.rt.jit import load  # noqa: E402
from reftile.rt.launcher import Launcher  # noqa: E402

EXAMPLES = ROOT / "examples" / "pipe"
BATCH = 500


@triton.jit
def empty6(a, b, c, m, n, k):
    pass


@triton.jit
def empty19(a, b, c, d, e, f, g, h, i, m, n, k, o, p, q, r, s, t, u):
    pass


@triton.jit
def matmul(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SALT: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        y = tl.load(b + columns[None, :] * k + (start + inner)[:, None])
        acc += tl.dot(x, y)
    tl.store(c + rows[:, None] * n + columns[None, :], acc.to(tl.bfloat16))


@triton.jit
def attention(
    q, k, v, o, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
    SALT: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    depth = tl.arange(0, D)
    x = tl.load(q + head + rows[:, None] * D + depth[None, :])
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, length, BN):
        columns = start + tl.arange(0, BN)
        y = tl.load(k + head + columns[None, :] * D + depth[:, None])
        scores = tl.dot(x, y) * scale
        new = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - new[:, None])
        shrink = tl.math.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        z = tl.load(v + head + columns[:, None] * D + depth[None, :])
        acc = tl.dot(p.to(tl.bfloat16), z, acc * shrink[:, None])
        top = new
    place = o + head + rows[:, None] * D + depth[None, :]
    tl.store(place, (acc / total[:, None]).to(tl.bfloat16))


Sides = dict[str, Callable[[], float]]


def compare(sides: Sides, rounds: int) -> dict[str, Any]:
    """Call each side once a round; return the least and the median of each, and the ratio."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            found[name].append(sides[name]())
    result: dict[str, Any] = {
        name: {"least": min(times), "median": statistics.median(times), "all": times}
        for name, times in found.items()
    }
    for statistic in ("median", "least"):
        ours, theirs = result["reftile"][statistic], result["triton"][statistic]
        result[f"ratio_of_{statistic}s"] = ours / theirs
    return result


def say(title: str, unit: str, result: dict[str, Any]) -> None:
    """Print one line."""
    sides = ", ".join(
        f"{name} {value['median']:.2f} (least {value['least']:.2f})"
        for name, value in result.items()
        if isinstance(value, dict) and "median" in value
    )
    ratios = f"ratio {result['ratio_of_medians']:.3f} (of leasts {result['ratio_of_leasts']:.3f})"
    print(f"{title}, {unit}: {sides}; {ratios}", flush=True)


# Launches


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
        arrays=tuple(ArrayArgument(n, "f32") for n in names[:pointers]),
    )
    return Launcher(plan, load(ptx, "empty", 0))


def bound(launcher: Launcher, args: list[Any]) -> Callable[[], None]:
    """A launch by the function that a launcher made for these arguments."""
    launcher((1, 1, 1), args)
    launch = launcher.launch
    return lambda: launch((1, 1, 1), args)


def driver_call(launcher: Launcher) -> Callable[[], Any]:
    """cuLaunchKernelEx with everything ready: what no launcher can be below."""
    slot = launcher._new_slot()  # pyright: ignore[reportPrivateUsage]
    start = slot[-1]
    # The slot owns the memory that the addresses point into.
    return lambda slot=slot: start()


def batch_time(launch: Callable[[], Any]) -> Callable[[], float]:
    """Microseconds of host time for each launch of a batch."""

    def measure() -> float:
        for _ in range(200):
            launch()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            launch()
        taken = (time.perf_counter() - start) / BATCH * 1e6
        torch.cuda.synchronize()
        return taken

    return measure


def launches(rounds: int) -> dict[str, Any]:
    """Empty kernels, and a GEMM with tensor maps."""
    tensors = [torch.empty(16, device="cuda") for _ in range(9)]
    numbers = list(range(17, 27))
    found: dict[str, Any] = {}
    for pointers, count in ((3, 3), (9, 10)):
        args = [*tensors[:pointers], *numbers[:count]]
        kernel, ours = (empty6 if pointers == 3 else empty19), empty_launcher(pointers, count)
        sides = {
            "reftile": batch_time(bound(ours, args)),
            "reftile, called": batch_time(lambda ours=ours, args=args: ours((1, 1, 1), args)),
            "driver alone": batch_time(driver_call(ours)),
            "triton": batch_time(lambda kernel=kernel, args=args: kernel[(1,)](*args)),
        }
        title = f"launch of {pointers + count} arguments"
        found[title] = compare(sides, rounds)
        say(title, "us", found[title])
    a, b, c = (torch.zeros(2048, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    c = torch.zeros(2048, 2048, device="cuda", dtype=torch.bfloat16)
    gemm = compile_kernel(read("gemm_sm90"), 0)
    gemm((2, 1, 1), (a, b, c, 2048, 2048, 64))
    launch = gemm.launch
    # A grid of one tile leaves the device idle, so that the host is what is measured.
    sides = {
        "reftile": batch_time(lambda: launch((2, 1, 1), (a, b, c, 2048, 2048, 64))),
        "triton": batch_time(
            lambda: matmul[(1,)](
                a, b, c, 2048, 2048, 64, BM=128, BN=256, BK=64, SALT=0, num_warps=8, num_stages=3
            )
        ),
    }
    found["launch of a GEMM"] = compare(sides, rounds)
    say("launch of a GEMM (3 tensor maps; Triton: pointers)", "us", found["launch of a GEMM"])
    return found


# Compilation


def text_of(name: str) -> str:
    """The text of an example."""
    return (EXAMPLES / f"{name}.tile").read_text(encoding="utf-8")


def read(name: str) -> Any:
    """An example as a kernel."""
    return parse(text_of(name), name).kernel()


def cold(name: str, steps: list[dict[str, float]]) -> Callable[[], float]:
    """Milliseconds from the text of an example to a loaded function, known to no cache."""
    text = text_of(name)

    def measure() -> float:
        salted = f"k{time.time_ns()}"
        start = time.perf_counter()
        kernel = parse(text, name).kernel()
        kernel.name = salted
        compiled = compile_kernel(kernel, 0)
        taken = 1e3 * (time.perf_counter() - start)
        steps.append(compiled.seconds)
        return taken

    return measure


def triton_cold(launch: Callable[[int], Any]) -> Callable[[], float]:
    """Milliseconds of the first launch of a kernel that no cache knows."""

    def measure() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        launch(time.time_ns())
        taken = 1e3 * (time.perf_counter() - start)
        torch.cuda.synchronize()
        return taken

    return measure


def compilations(rounds: int) -> dict[str, Any]:
    """GEMM and attention, cold."""
    a, b, c = (torch.zeros(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    q, k, v, o = (torch.zeros(1, 1024, 128, device="cuda", dtype=torch.bfloat16) for _ in range(4))

    def attend(salt: int) -> None:
        attention[(8, 1)](
            q, k, v, o, 1024, 0.1, BM=128, BN=128, D=128, SALT=salt, num_warps=8, num_stages=2
        )

    kernels: dict[str, Callable[[int], Any]] = {
        "gemm_sm90": lambda salt: matmul[(8, 4)](
            a, b, c, 1024, 1024, 1024, BM=128, BN=256, BK=64, SALT=salt, num_warps=8, num_stages=3
        ),
        "attention_full_sm90": attend,  # both full attention
        "attention_sm90": attend,  # ours hides keys too
    }
    found: dict[str, Any] = {}
    for name, launch in kernels.items():
        steps: list[dict[str, float]] = []
        sides = {"reftile": cold(name, steps), "triton": triton_cold(launch)}
        for side in sides.values():
            side()  # the process is warm: tables are read, modules imported
        steps.clear()
        title = f"cold compile of {name}"
        found[title] = compare(sides, rounds)
        found[title]["steps_ms"] = {
            step: 1e3 * statistics.median(s[step] for s in steps) for step in steps[0]
        }
        say(title, "ms", found[title])
        print(f"  of which {found[title]['steps_ms']}", flush=True)
        found[f"warm start of {name}"] = warm(name)
        print(f"warm start of {name}, ms: {found[f'warm start of {name}']}", flush=True)
    return found


FRESH = """\
import time, sys
from pathlib import Path
from reftile.ir.parse import parse
from reftile.rt import devices
from reftile.rt.cache import Cache
from reftile.rt.compile import compile_kernel
text = Path(sys.argv[1]).read_text("utf-8")
devices.ensure_context(0)
start = time.perf_counter()
kernel = parse(text).kernel()
parsed = time.perf_counter()
compiled = compile_kernel(kernel, 0, cached=Cache(Path(sys.argv[2])))
print(compiled.from_disk, 1e3 * (time.perf_counter() - parsed), 1e3 * (parsed - start))
"""


def warm(name: str) -> dict[str, Any]:
    """Milliseconds for a kernel that the cache on disk has, in this process and in a new one."""
    cache = Cache(Path(tempfile.mkdtemp(prefix="reftile-")))
    found: dict[str, Any] = {}

    def start_again() -> Compiled:
        kernel = read(name)
        start = time.perf_counter()
        compiled = compile_kernel(kernel, 0, cached=cache)
        found.setdefault("times_ms", []).append(1e3 * (time.perf_counter() - start))
        return compiled

    start_again()
    found.clear()
    for _ in range(9):
        compiled = start_again()
        assert compiled.from_disk
        found["kind"] = compiled.kind
    found["median_ms"] = statistics.median(found["times_ms"])
    command = [sys.executable, "-c", FRESH, str(EXAMPLES / f"{name}.tile"), str(cache.folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found["new_process_from_disk_ms_parse_ms"] = (done.stdout or done.stderr).split()[-3:]
    return found


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="", help="where there is no checkout to ask")
    options = parser.parse_args()
    results: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver_version(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "commit": options.commit or commit(),
        "rounds": options.rounds,
    }
    print(results, flush=True)
    results |= launches(3 * options.rounds) | compilations(options.rounds)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
