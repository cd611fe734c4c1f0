"""Products and attention written with copy, Pipelined and gemm, on a Hopper GPU.

    python bench/pipe_matmul.py --rounds 7 --json results.json

Against torch.matmul (cuBLAS) and float64, in one process, as bench/hopper_pipe.py measures. The
first row is TileLang's example: 1024^3 in half precision, tiles of 128 x 128 x 32, two stages.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hopper_device import (
    DEVICE,
    ROOT,
    Launch,
    Results,
    describe,
    finish,
    normal,
    report_times,
    timed,
)

import reftile

EXAMPLES = ROOT / "examples" / "pipe"
TILES = {
    "128x128x32, 2 stages": (128, 128, 32, 2, 128),
    "128x128x64, 3 stages": (128, 128, 64, 3, 128),
    "128x256x64, 4 stages, 256 threads": (128, 256, 64, 4, 256),
    "256x128x64, 4 stages, 256 threads": (256, 128, 64, 4, 256),
}


def example(name: str) -> ModuleType:
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def prepared(
    kernel: Any, *args: Any, grid: tuple[int, int, int] | None = None
) -> tuple[Launch, Any]:
    """A launch with nothing left to do but to queue it, and the compiled kernel."""
    import torch

    found = kernel.specialise(*args)
    extents = grid or kernel.grid_of(found)
    compiled = reftile.compile_kernel(found.kernel, 0)
    stream = torch.cuda.current_stream().cuda_stream
    return lambda: compiled(extents, found.values, stream), compiled


def relative(found: Any, wanted: Any) -> float:
    """The error in the 2-norm; nan if anything is."""
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def check_products(results: Results) -> bool:
    """Random sizes, some ragged, by every tile, against float64."""
    import torch

    matmul, good = example("matmul").matmul, True
    for m, n, k in ((1024, 1024, 1024), (1000, 520, 264), (1, 8, 8), (333, 1032, 2056)):
        a, b = (torch.randn(s, device=DEVICE).half() for s in ((m, k), (k, n)))
        wanted = a.double() @ b.double()
        theirs = relative(a @ b, wanted)
        for name, tile in TILES.items():
            c = torch.full((m, n), math.nan, device=DEVICE, dtype=torch.float16)
            matmul(a, b, c, *tile, backend="cuda")
            finish(f"{name} {m}x{n}x{k}", results)
            error = relative(c, wanted)
            right = error <= 1.1 * theirs + 1e-6
            good &= right
            word = "right" if right else "WRONG"
            print(f"check {m}x{n}x{k} {name}: {word}, error {error:.3e} (torch {theirs:.3e})")
            results.add("checks", {"size": [m, n, k], "tile": name, "error": error, "peer": theirs})
    return good


def time_products(rounds: int, results: Results) -> None:
    """The tiles against torch.matmul."""
    import torch

    matmul = example("matmul").matmul
    for size in (1024, 4096, 8192):
        a, b = (torch.randn(size, size, device=DEVICE).half() for _ in range(2))
        d = torch.empty_like(a)

        def library(a: Any = a, b: Any = b, d: Any = d) -> None:
            torch.matmul(a, b, out=d)

        functions: dict[str, Launch] = {"torch": library}
        for name, tile in TILES.items():
            c = torch.full_like(a, math.nan)
            functions[name], compiled = prepared(matmul, a, b, c, *tile)
            functions[name]()
            finish(name, results)
            resources = compiled.resources
            results.data["kernels"][name] = {
                "registers": resources.registers,
                "spill_bytes": resources.spill_bytes,
            }
        flops = 2.0 * size**3
        title = f"matmul {size}^3 f16, B row-major"
        report_times(title, timed(functions, rounds, flops), flops, "torch", results)


def check_attention(results: Results) -> bool:
    """The attention of the example against float64."""
    import torch

    attention, good = example("flash_attention").attention, True
    for causal in (False, True):
        q, k, v = (torch.randn(16, 1000, 64, device=DEVICE).half() for _ in range(3))
        o = torch.full_like(q, math.nan)
        attention(q, k, v, o, causal, backend="cuda")
        finish("attention", results)
        scores = q.double() @ k.double().transpose(1, 2) / 8
        if causal:
            later = torch.ones(1000, 1000, device=DEVICE, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        error = relative(o, torch.softmax(scores, -1) @ v.double())
        good &= error < 1e-3
        print(f"check attention causal={causal}: error {error:.3e}")
        results.add("checks", {"kernel": "flash_attention", "causal": causal, "error": error})
    return good


def time_hand_written(rounds: int, results: Results) -> None:
    """The kernels with roles that are written in Python, against cuBLAS and cuDNN."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    gemm = example("gemm_sm90").gemm
    for m, n, k in ((8192, 8192, 8192), (4096, 4096, 4096)):
        a, b = normal(m, k), normal(n, k)
        c, d = (torch.full((m, n), math.nan, device=DEVICE, dtype=torch.bfloat16) for _ in "cd")
        own, _compiled = prepared(gemm, a, b, c, m, n, k, grid=(132, 1, 1))
        own()
        finish("gemm_sm90.py", results)

        def library(a: Any = a, b: Any = b, d: Any = d) -> None:
            torch.mm(a, b.T, out=d)

        library()
        print(f"gemm_sm90.py {m}x{n}x{k}: error {relative(c, a.double() @ b.double().T):.3e}")
        flops = 2.0 * m * n * k
        times = timed({"torch": library, "gemm_sm90.py": own}, rounds, flops)
        report_times(f"gemm {m}x{n}x{k} bf16", times, flops, "torch", results)
    heads, length, scale = 64, 8192, math.log2(math.e) / math.sqrt(128)
    q, k, v = (normal(heads, length, 128) for _ in range(3))
    counter = torch.zeros(1, device=DEVICE, dtype=torch.int32)
    for name, causal in (("attention_sm90", False), ("attention_causal_sm90", True)):
        o = torch.full_like(q, math.nan)
        kernel, rest = example(name).attention, (counter,) if causal else ()
        own, _compiled = prepared(kernel, q, k, v, o, heads, length, scale, *rest, grid=(132, 1, 1))
        own()
        finish(name, results)
        batch = [t.view(4, -1, length, 128) for t in (q, k, v)]

        def attend(batch: Any = batch, causal: bool = causal) -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return scaled_dot_product_attention(*batch, is_causal=causal)

        def library_attention(attend: Any = attend) -> None:
            attend()

        print(
            f"{name}.py: differs from cuDNN by {relative(o, attend().view(o.shape).double()):.3e}"
        )
        flops = 4.0 * heads * length * length * 128 / (2 if causal else 1)
        times = timed({"cuDNN": library_attention, f"{name}.py": own}, rounds, flops)
        report_times(f"{name} b4 h16 n{length} d128", times, flops, "cuDNN", results)


def main() -> int:
    """Read the command line, check, time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--hand-written", action="store_true", help="time only kernels with roles")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    import torch

    torch.manual_seed(0)
    results = Results(options.json)
    describe(results, options.commit)
    good = check_products(results)
    good &= check_attention(results)
    if not options.hand_written:
        time_products(options.rounds, results)
    time_hand_written(options.rounds, results)
    results.write()
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
