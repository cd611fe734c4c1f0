"""Time compiled kernels against NumPy, memory copies, Triton's interpreter, TileLang's C code.

    python bench/cpu.py [--rounds 15] [--threads N] [--json FILE] [--no-triton]
        [--tilelang PYTHON]

Both sides run on the same processors, turn by turn, so that whatever else the machine does meets
both; the least and the median times are compared. A turn begins when the process is at rest, since
the threads of NumPy's BLAS spin for 100 ms after a product and would take the processors of
whatever comes next; of its runs the first is not timed. NumPy's products use its own BLAS with as
many threads; its other operations use one, so ours are measured on one thread as well as on all.
Results are compared before they are timed. TileLang is asked for in an interpreter that has it
(`pip install tilelang`), and left out, with a word, if none is given.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from timing import commit

import reftile
import reftile.lang as ct
from reftile.rt.cpu import launch_cpu, thread_count

HERE = Path(__file__).resolve().parent
ZERO, NEGATIVE = ct.PaddingMode.ZERO, ct.PaddingMode.NEG_INF
Array = np.ndarray[Any, np.dtype[Any]]
RUNS_OF_A_TURN = 3


@reftile.kernel
def matmul(a, b, c, m: ct.Constant[int], n: ct.Constant[int], k: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((m, n), ct.float32)
    for s in range(ct.num_tiles(a, 1, (m, k))):
        x = ct.load(a, (i, s), (m, k), padding_mode=ZERO)
        y = ct.load(b, (s, j), (k, n), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc)


@reftile.kernel
def layer_norm(x, weight, bias, out, rows: ct.Constant[int], width: ct.Constant[int]):
    i = ct.bid(0)
    row = ct.load(x, (i, 0), (rows, width))
    w, b = ct.load(weight, (0,), (width,)), ct.load(bias, (0,), (width,))
    centred = row - ct.sum(row, axis=1, keepdims=True) * (1.0 / width)
    variance = ct.sum(centred * centred, axis=1, keepdims=True) * (1.0 / width)
    ct.store(out, (i, 0), centred * ct.rsqrt(variance + 1e-5) * w[None, :] + b[None, :])


@reftile.kernel
def residual_norm(x, r, weight, bias, total, out, width: ct.Constant[int]):
    i = ct.bid(0)
    row = ct.load(x, (i, 0), (1, width)) + ct.load(r, (i, 0), (1, width))
    ct.store(total, (i, 0), row)
    w, b = ct.load(weight, (0,), (width,)), ct.load(bias, (0,), (width,))
    centred = row - ct.sum(row, axis=1, keepdims=True) * (1.0 / width)
    variance = ct.sum(centred * centred, axis=1, keepdims=True) * (1.0 / width)
    ct.store(out, (i, 0), centred * ct.rsqrt(variance + 1e-5) * w[None, :] + b[None, :])


@reftile.kernel
def gelu(x, out, tile: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, (i,), (tile,))
    inner = 0.7978845608028654 * (t + 0.044715 * t * t * t)
    ct.store(out, (i,), 0.5 * t * (1.0 + ct.tanh(inner)))


@reftile.kernel
def softmax(x, out, width: ct.Constant[int]):
    i = ct.bid(0)
    row = ct.load(x, (i, 0), (1, width), padding_mode=NEGATIVE)
    powers = ct.exp(row - ct.max(row, axis=1, keepdims=True))
    ct.store(out, (i, 0), powers / ct.sum(powers, axis=1, keepdims=True))


@reftile.kernel
def attention(q, k, v, out, m: ct.Constant[int], n: ct.Constant[int], d: ct.Constant[int]):
    head, i = ct.bid(0), ct.bid(1)
    query = ct.load(q, (head, i, 0), (1, m, d)).reshape((m, d)) * (1.0 / math.sqrt(d))
    highest = ct.full((m, 1), -math.inf, ct.float32)
    total = ct.zeros((m, 1), ct.float32)
    acc = ct.zeros((m, d), ct.float32)
    for j in range(ct.num_tiles(k, 1, (1, n, d))):
        keys = ct.load(k, (head, j, 0), (1, n, d)).reshape((n, d))
        values = ct.load(v, (head, j, 0), (1, n, d)).reshape((n, d))
        scores = ct.mma(query, ct.transpose(keys), ct.zeros((m, n), ct.float32))
        higher = ct.maximum(highest, ct.max(scores, axis=1, keepdims=True))
        powers = ct.exp(scores - higher)
        scale = ct.exp(highest - higher)
        total = total * scale + ct.sum(powers, axis=1, keepdims=True)
        acc = ct.mma(powers, values, acc * scale)
        highest = higher
    ct.store(out, (head, i, 0), (acc / total).reshape((1, m, d)))


@reftile.kernel
def twice(x, out, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (tile,)) * 2.0)


@dataclass
class Row:
    """One comparison. ours: by number of threads. asked: the ratio that must be reached."""

    name: str
    ours: Callable[[int], None]
    theirs: Callable[[], None]
    right: Callable[[], bool]
    asked: float
    theirs_name: str = "NumPy"


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any) -> Callable[[int], None]:
    """A function that launches on a number of threads; tracing the kernel is not timed."""
    found = kernel.specialise(*arguments)
    return lambda threads: void(launch_cpu(found.kernel, grid, found.values, threads=threads))


def void(value: object) -> None:
    """Drop a value."""
    del value


def close(one: Array, other: Array, tolerance: float) -> Callable[[], bool]:
    """Whether arrays are near each other when asked."""
    return lambda: bool(np.abs(one - other).max() <= tolerance)


def rows() -> list[Row]:
    """What is compared."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    found: list[Row] = []
    a, b = normal(1024, 1024), normal(1024, 1024)
    c, d = np.empty_like(a), np.empty_like(a)
    found.append(
        Row(
            "matmul 1024^3 f32",
            launch(matmul, (2, 2), a, b, c, 512, 512, 128),
            lambda: void(np.matmul(a, b, out=d)),
            close(c, d, 1e-2),
            0.75,
            "NumPy's BLAS",
        )
    )
    x, r, out, expected = normal(1024, 1024), normal(1024, 1024), np.empty_like(a), np.empty_like(a)
    w, bias = normal(1024), normal(1024)

    def numpy_norm(source: Array) -> None:
        centred = source - source.mean(1, keepdims=True)
        variance = (centred * centred).mean(1, keepdims=True)
        expected[...] = centred / np.sqrt(variance + np.float32(1e-5)) * w + bias

    def numpy_residual() -> None:
        total[...] = x + r
        numpy_norm(total)

    def numpy_gelu() -> None:
        inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
        expected[...] = np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))

    def numpy_softmax() -> None:
        powers = np.exp(x - x.max(1, keepdims=True))
        expected[...] = powers / powers.sum(1, keepdims=True)

    total = np.empty_like(x)
    same = close(out, expected, 1e-3)
    norm = launch(layer_norm, (1024,), x, w, bias, out, 1, 1024)
    found.append(Row("LayerNorm 1024x1024 f32", norm, lambda: numpy_norm(x), same, 3.0))
    flat, flat_out = x.reshape(-1), out.reshape(-1)
    run = launch(gelu, (256,), flat, flat_out, 4096)
    found.append(Row("GELU 1024x1024 f32", run, numpy_gelu, same, 3.0))
    run = launch(softmax, (1024,), x, out, 1024)
    found.append(Row("softmax 1024x1024 f32", run, numpy_softmax, same, 1.5))
    sums = np.empty_like(x)
    run = launch(residual_norm, (1024,), x, r, w, bias, sums, out, 1024)
    found.append(Row("residual + LayerNorm 1024x1024 f32", run, numpy_residual, same, 4.0))
    q, k, v = normal(4, 1024, 64), normal(4, 1024, 64), normal(4, 1024, 64)
    o, p = np.empty_like(q), np.empty_like(q)

    def numpy_attention() -> None:
        scores = (q @ k.transpose(0, 2, 1)) * np.float32(0.125)
        powers = np.exp(scores - scores.max(2, keepdims=True))
        p[...] = (powers / powers.sum(2, keepdims=True)) @ v

    run = launch(attention, (4, 16), q, k, v, o, 64, 128, 64)
    near = close(o, p, 1e-3)
    found.append(Row("attention n 1024 d 64, 4 heads", run, numpy_attention, near, 2.0))
    return found


def bandwidth_row() -> tuple[Callable[[int], None], Callable[[int], None], int, Callable[[], bool]]:
    """A kernel that reads and writes 128 MiB each, a copy of as much, and the bytes."""
    x = np.ones(1 << 25, np.float32)
    out, other = np.empty_like(x), np.empty_like(x)
    out[:] = other[:] = 0
    pool = ThreadPoolExecutor(thread_count())

    def copy(threads: int) -> None:
        parts = zip(np.array_split(x, threads), np.array_split(other, threads), strict=True)
        jobs = [pool.submit(np.copyto, target, source) for source, target in parts]
        for job in jobs:
            job.result()

    ours = launch(twice, (x.size >> 14,), x, out, 1 << 14)
    return ours, copy, 2 * x.nbytes, lambda: bool((out == 2).all())


def seconds(run: Callable[[], object]) -> float:
    """How long a run takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rest() -> None:
    """Wait until no thread of this process computes, for two seconds at most."""
    deadline = time.perf_counter() + 2.0
    while time.perf_counter() < deadline:
        before = time.process_time()
        time.sleep(0.005)
        if time.process_time() - before < 0.001:
            return
    raise SystemExit("something in this process computes without end: nothing can be measured")


def turn(run: Callable[[], object]) -> list[float]:
    """Times of some runs, one right after another, from rest and an untimed run."""
    rest()
    run()
    return [seconds(run) for _ in range(RUNS_OF_A_TURN)]


def compare(sides: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Times of all sides, in turn."""
    for run in sides.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            times[name] += turn(run)
    return times


def summary(times: list[float]) -> dict[str, float]:
    """The least and the median time in milliseconds."""
    return {"least_ms": min(times) * 1e3, "median_ms": statistics.median(times) * 1e3}


def measure(row: Row, threads: int, rounds: int) -> dict[str, Any]:
    """Compare one row."""
    sides = {"theirs": row.theirs, "ours": lambda: row.ours(threads)}
    if threads > 1:
        sides["ours_1"] = lambda: row.ours(1)
    times = compare(sides, rounds)
    if not row.right():
        raise SystemExit(f"{row.name}: the results differ")
    found = {name: summary(t) for name, t in times.items()}
    ratios = {
        f"{name}_{what}": found["theirs"][f"{what}_ms"] / found[name][f"{what}_ms"]
        for name in found
        if name != "theirs"
        for what in ("least", "median")
    }
    return {"row": row.name, "theirs_is": row.theirs_name, "asked": row.asked, **found} | ratios


def show(result: dict[str, Any]) -> None:
    """Print a row."""
    one = ""
    if "ours_1" in result:
        one = f"   1 thread {result['ours_1']['least_ms']:8.2f} ms {result['ours_1_least']:6.2f}x"
    print(
        f"{result['row']:36} {result['theirs_is']} {result['theirs']['least_ms']:8.2f} ms   "
        f"ours {result['ours']['least_ms']:8.2f} ms {result['ours_least']:6.2f}x "
        f"(median {result['ours_median']:.2f}x, asked {result['asked']}x){one}",
        flush=True,
    )


def measure_bandwidth(threads: int, rounds: int) -> list[dict[str, Any]]:
    """Large elementwise work against a copy of as many bytes, on as many threads."""
    ours, copy, size, right = bandwidth_row()
    found: list[dict[str, Any]] = []
    for count in dict.fromkeys((1, threads)):
        sides = {"theirs": lambda n=count: copy(n), "ours": lambda n=count: ours(n)}
        times = compare(sides, rounds)
        if not right():
            raise SystemExit("the elementwise kernel is wrong")
        best = {name: summary(t) for name, t in times.items()}
        result = {
            "row": f"2 * x, 128 MiB, {count} thread(s)",
            "theirs_is": "np.copyto",
            "asked": 0.8,
            **best,
            "ours_least": best["theirs"]["least_ms"] / best["ours"]["least_ms"],
            "ours_median": best["theirs"]["median_ms"] / best["ours"]["median_ms"],
            "copy_gb_per_s": size / best["theirs"]["least_ms"] * 1e-6,
            "ours_gb_per_s": size / best["ours"]["least_ms"] * 1e-6,
        }
        show(result)
        found.append(result)
    return found


def measure_triton(threads: int, rounds: int) -> list[dict[str, Any]]:
    """The three rows of bench/interpreter.py against Triton's interpreter, in its own process."""
    if find_spec("triton") is None or find_spec("torch") is None:
        print("triton and torch are not installed: no comparison with its interpreter")
        return []
    sys.path.insert(0, str(HERE))
    import interpreter  # beside this file

    triton = interpreter.Triton()
    found: list[dict[str, Any]] = []
    for name, (module, grid, arguments, right) in interpreter.workloads().items():
        ours, theirs = list[float](), list[float]()
        run = partial(launch_cpu, module, grid, arguments, threads=threads)
        run()
        if not right():
            raise SystemExit(f"{name}: wrong")
        for _ in range(max(3, rounds // 3)):
            theirs.append(triton.measure(name).best_wall)
            ours += turn(run)
        result = {
            "row": name,
            "theirs_is": "Triton's interpreter",
            "asked": 100.0,
            "theirs": summary(theirs),
            "ours": summary(ours),
            "ours_least": min(theirs) / min(ours),
            "ours_median": statistics.median(theirs) / statistics.median(ours),
        }
        show(result)
        found.append(result)
    triton.close()
    return found


class TileLang:
    """TileLang in a process of its own, which measures one launch for each line."""

    def __init__(self, python: str) -> None:
        """Start it.

        Raises:
            SystemExit: there is no such interpreter, or it lacks TileLang.
        """
        try:
            subprocess.run(
                [python, "-c", "import tilelang, torch"], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", None) or str(error).encode()
            last = why.decode().strip().splitlines()[-1]
            raise SystemExit(f"--tilelang {python}: it cannot import tilelang: {last}") from None
        self.process = subprocess.Popen(
            [python, str(HERE / "tilelang_cpu.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def measure(self, size: int, tile: tuple[int, int, int]) -> float:
        """The seconds of one launch."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(size, *tile, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("TileLang stopped; run bench/tilelang_cpu.py by itself to see why")
        return float(json.loads(answer))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure_tilelang(tilelang: TileLang, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Products against TileLang's `c` target, tile for tile; its code runs on one thread."""
    found: list[dict[str, Any]] = []
    rng = np.random.default_rng(0)
    for size, tile in ((256, (64, 64, 32)), (512, (64, 64, 32))):
        a, b = rng.standard_normal((2, size, size), dtype=np.float32)
        c = np.empty_like(a)
        ours = launch(matmul, (size // tile[0], size // tile[1]), a, b, c, *tile)
        ours(threads)
        if not close(c, a @ b, 1e-2)():
            raise SystemExit(f"matmul {size}^3: wrong")
        times: dict[str, list[float]] = {"theirs": [], "ours": [], "ours_1": []}
        tilelang.measure(size, tile)
        for _ in range(max(3, rounds // 3)):
            times["theirs"].append(tilelang.measure(size, tile))
            times["ours"] += turn(partial(ours, threads))
            times["ours_1"] += turn(partial(ours, 1))
        best = {name: summary(t) for name, t in times.items()}
        result = {"row": f"matmul {size}^3 f32", "theirs_is": "TileLang's C code", "asked": 50.0}
        result |= best
        for name in ("ours", "ours_1"):
            for what in ("least", "median"):
                result[f"{name}_{what}"] = best["theirs"][f"{what}_ms"] / best[name][f"{what}_ms"]
        show(result)
        found.append(result)
    tilelang.close()
    return found


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Measure, print, and keep the figures if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=thread_count())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-triton", action="store_true")
    parser.add_argument("--tilelang", metavar="PYTHON", help="an interpreter that has TileLang")
    options = parser.parse_args()
    tilelang = TileLang(options.tilelang) if options.tilelang else None
    print(f"{options.threads} threads; load {os.getloadavg()[0]:.1f}")
    results: list[dict[str, Any]] = []
    for row in rows():
        results.append(measure(row, options.threads, options.rounds))
        show(results[-1])
    results += measure_bandwidth(options.threads, options.rounds)
    if not options.no_triton:
        results += measure_triton(options.threads, options.rounds)
    if tilelang is not None:
        results += measure_tilelang(tilelang, options.threads, options.rounds)
    else:
        print("no interpreter with TileLang was given: no comparison with its C code")
    if options.json:
        about = {
            "processor": processor(),
            "commit": commit(),
            "threads": options.threads,
            "load": os.getloadavg(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": version("numba"),
            "rounds": options.rounds,
        }
        options.json.write_text(json.dumps({**about, "rows": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
