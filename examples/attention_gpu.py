"""Attention of the `pipe` level on an NVIDIA GPU: compared with float64, and timed.

    python examples/attention_gpu.py

For Hopper (sm_90a) it is pipe/attention_sm90.tile in bfloat16, written for that machine; for other
GPUs from sm_80 on pipe/flash_attention.py in float16. No library of tensors is needed. The last
part of what ./demo.sh runs.
"""

from __future__ import annotations

import math
import runpy
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from attention import LOG2_E, bound, reference, visible
from bounds import Estimate
from harness import compare, normal, output, seeded

from reftile import ReftileError, compile_kernel
from reftile.ir.core import Kernel
from reftile.ir.parse import parse
from reftile.rt import devices
from reftile.rt.cache import Cache
from reftile.rt.compile import Compiled
from reftile.rt.host_arrays import HostArrays
from reftile.rt.streams import Event

PIPE = Path(__file__).resolve().parent / "pipe"
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Launch:
    """A kernel with its grid and arguments."""

    kernel: Kernel
    grid: tuple[int, ...]
    args: Sequence[Any]


@dataclass(frozen=True)
class Version:
    """The attention for a kind of GPU. launch: from (q, k, v, o), causal and the number of SMs."""

    name: str
    dtype: str
    depth: int
    block_n: int
    launch: Callable[[Arrays, bool, int], Launch]

    def arrays(self, heads: int, length: int) -> Arrays:
        """Random q, k and v, and o, of [heads, length, depth]."""
        rng = seeded(heads * length)
        shape = (heads, length, self.depth)
        q, k, v = (normal(rng, shape, self.dtype) for _ in range(3))
        return q, k, v, output(shape, self.dtype)


def launch_hopper(arrays: Arrays, causal: bool, blocks: int) -> Launch:
    """The kernel in the text of the IR. One block for each SM takes tiles from a counter."""
    heads, length, depth = arrays[0].shape
    source = (PIPE / "attention_sm90.tile").read_text("utf-8")
    kernel = parse(source, "examples/pipe/attention_sm90.tile").kernel()
    reach = 0 if causal else length
    numbers = (heads, heads, length, length, reach, LOG2_E / math.sqrt(depth))
    return Launch(kernel, (blocks,), (*arrays, *numbers, np.zeros(1, np.int32)))


def launch_ampere(arrays: Arrays, causal: bool, blocks: int) -> Launch:
    """The kernel in Python. A block for 64 rows of a head."""
    attention = runpy.run_path(str(PIPE / "flash_attention.py"))["attention"]
    heads, length, _ = arrays[0].shape
    found = attention.specialise(*arrays, causal, 64)
    return Launch(found.kernel, (-(-length // 64), heads), found.values)


HOPPER = Version("attention_sm90.tile", "bfloat16", 128, 80, launch_hopper)
AMPERE = Version("flash_attention.py", "float16", 64, 64, launch_ampere)


def compare_with_reference(
    version: Version, heads: int, length: int, causal: bool, run: Callable[[Launch], object]
) -> float:
    """Run a launch and return its greatest error over the bound."""
    arrays = version.arrays(heads, length)
    q, k, v, o = arrays
    scale, seen = 1 / math.sqrt(version.depth), visible(length, length, int(causal))
    exact = Estimate(reference(q, k, v, scale, seen), bound(q, k, v, scale, seen, version.block_n))
    run(version.launch(arrays, causal, 4))
    return compare({"o": o}, {"o": exact})[0]


def run_on_gpu(launch: Launch, times: int = 0) -> tuple[Compiled, float]:
    """Copy the arrays there, launch, and copy the result back.

    Returns the compiled kernel, and the median time of as many further launches in milliseconds.
    """
    compiled = compile_kernel(launch.kernel, 0, cached=Cache())
    grid = (*launch.grid, 1, 1)[:3]
    spans: list[float] = []
    with devices.on_device(0), HostArrays(compiled.host, launch.args, 0, 0) as copies:
        compiled(grid, copies.arguments)
        for _ in range(times):
            start = Event().record()
            compiled(grid, copies.arguments)
            end = Event().record()
            end.synchronize()
            spans.append(end.milliseconds_since(start))
        copies.bring_back()
    return compiled, statistics.median(spans) if spans else math.nan


def report_gpu() -> bool:
    """Run attention on GPU 0, or say why not; False if a result is wrong."""
    try:
        target = devices.target(0)
    except ReftileError as error:
        found = error.diagnosis
        print(f"Not run here: {found.message}{f' ({found.hint})' if found.hint else ''}.")
        return True
    version = HOPPER if target == "sm_90a" else AMPERE
    blocks = devices.attribute(0, "MULTIPROCESSOR_COUNT")
    print(f"{devices.device_name(0)}, {target}: examples/pipe/{version.name}, {version.dtype}")
    good = True
    for heads, length, causal in ((2, 1000, False), (3, 777, True)):
        ratio = compare_with_reference(version, heads, length, causal, run_on_gpu)
        good &= ratio <= 1
        mask = "causal" if causal else "full"
        print(f"{mask:7} {heads} heads, length {length:5}: error/bound {ratio:.3f}")
    heads, length = 16, 8192
    for causal in (False, True):
        launch = version.launch(version.arrays(heads, length), causal, blocks)
        _, milliseconds = run_on_gpu(launch, 30)
        work = 4 * heads * length**2 * version.depth / (2 if causal else 1)
        mask = "causal" if causal else "full"
        print(
            f"{mask:7} {heads} heads, length {length:5}: {milliseconds:.2f} ms, "
            f"{work / milliseconds / 1e9:.0f} TFLOP/s"
        )
    return good


if __name__ == "__main__":
    sys.exit(0 if report_gpu() else 1)
