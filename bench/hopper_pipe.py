"""The pipe kernels of examples/ on a Hopper GPU, timed against cuBLAS and cuDNN.

    python bench/hopper_pipe.py                       everything
    python bench/hopper_pipe.py --only gemm,attention --rounds 9 --json results.json
    python bench/hopper_pipe.py --variants FOLDER     further attention kernels beside the examples
    python bench/hopper_pipe.py --assemble FOLDER     no GPU: write PTX, cubins and what ptxas says

Needs torch and the driver. Both sides of a ratio are measured in one process, in shuffled rounds:
once with the second-level cache flushed before each launch, once back to back for about 30 ms,
since the chip is power limited and the two differ by several percent. Inputs are fresh normal
numbers; results are filled with NaN before, and compared with the library's. A launch that does
not end within its limit ends the process, with the results so far. Whether the kernels are right
on hard inputs is what bench/hopper_cases.py asks.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hopper_device import (
    DEVICE,
    Driver,
    Launch,
    Loaded,
    Results,
    describe,
    finish,
    load,
    lower_text,
    normal,
    report_times,
    timed,
)
from hopper_kernels import (
    KERNELS,
    PRODUCTS,
    Attention,
    attention_launch,
    library_attention,
    library_product,
    operands,
    product_launch,
    without_result,
)

from reftile.lower.ptx.assemble import assemble

PRODUCT_ROWS = {
    "gemm": (
        (8192, 8192, 8192),
        (4096, 4096, 4096),
        (8192, 8192, 512),
        (2048, 2048, 2048),
        (8000, 8200, 4104),
        (3000, 5000, 2056),
        (5000, 5000, 5000),
    ),
    "gemm_nn": ((8192, 8192, 8192), (4096, 4096, 4096), (8192, 8192, 512), (8000, 8200, 4104)),
    "gemm_cut": (
        (8192, 8192, 8192),
        (5000, 5000, 5000),
        (1024, 1024, 1024),
        (512, 2048, 4096),
        (8000, 8200, 4104),
    ),
    "fp8": (
        (8192, 8192, 8192),
        (4096, 4096, 4096),
        (8192, 8192, 512),
        (2048, 2048, 2048),
        (8000, 8208, 4112),
    ),
}
"""(m, n, k): powers of two, and sizes that tiles do not divide."""


@dataclass(frozen=True)
class AttentionRow:
    """One size: heads of Q and of K and V in each batch; as many keys as queries."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    depth: int
    causal: bool

    def __str__(self) -> str:
        shared = f"/{self.kv_heads}" if self.kv_heads != self.heads else ""
        kind = "causal" if self.causal else "full"
        return f"{kind} b{self.batch} h{self.heads}{shared} n{self.length} d{self.depth}"

    @property
    def flops(self) -> float:
        """Of both products; half of them where half is hidden."""
        all_flops = 4.0 * self.batch * self.heads * self.length**2 * self.depth
        return all_flops / 2 if self.causal else all_flops


ATTENTION_ROWS = (
    AttentionRow(4, 16, 16, 8192, 128, False),
    AttentionRow(4, 16, 16, 2048, 128, False),
    AttentionRow(4, 8, 8, 16384, 128, False),
    AttentionRow(4, 16, 16, 8000, 128, False),
    AttentionRow(4, 32, 4, 4096, 128, False),
    AttentionRow(4, 16, 16, 8192, 128, True),
    AttentionRow(4, 16, 16, 2048, 128, True),
    AttentionRow(4, 8, 8, 16384, 128, True),
    AttentionRow(4, 16, 16, 8000, 128, True),
    AttentionRow(4, 32, 4, 4096, 128, True),
    AttentionRow(4, 32, 32, 8192, 64, False),
    AttentionRow(4, 32, 32, 2048, 64, False),
    AttentionRow(4, 32, 32, 8000, 64, False),
    AttentionRow(4, 32, 32, 8192, 64, True),
)


def assemble_all(folder: Path, names: Sequence[str]) -> int:
    """Write PTX and cubins, and print what ptxas says."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        lowered, seconds = lower_text(KERNELS[name])
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


def time_product(kernel: Loaded, kind: str, rounds: int, results: Results) -> None:
    """The rows of one kind against cuBLAS, the same operands."""
    import torch

    for m, n, k in PRODUCT_ROWS[kind]:
        title = f"{kind} {m}x{n}x{k}"
        a, b = operands(kind, m, n, k)
        c, d = (torch.empty(m, n, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        functions: dict[str, Launch] = {"cuBLAS": library_product(kind, a, b, d)}
        functions["cuBLAS"]()
        for grid in (128, 132):
            c.fill_(math.nan)
            launch = product_launch(kernel, kind, a, b, c, grid)
            launch()
            finish(title, results)
            error = (c.float() - d.float()).norm() / d.float().norm()
            if not error.item() < 5e-3:
                print(f"   MISMATCH at {title}: {error.item()}", flush=True)
                results.data.setdefault("mismatches", []).append(title)
            functions[f"reftile {grid}"] = launch
        times = timed(functions, rounds, 2.0 * m * n * k)
        report_times(title, times, 2.0 * m * n * k, "cuBLAS", results)


def time_attention(
    kernels: dict[str, tuple[Loaded, Attention]],
    rows: Sequence[AttentionRow],
    rounds: int,
    results: Results,
) -> None:
    """All kernels of a row's depth against cuDNN."""
    import torch

    counter = torch.zeros(1, device=DEVICE, dtype=torch.int32)
    for row in rows:
        own = {
            n: (kernel, form)
            for n, (kernel, form) in kernels.items()
            if form.depth == row.depth and (form.reaches or not row.causal)
        }
        if not own:
            continue
        heads, kv_heads = row.batch * row.heads, row.batch * row.kv_heads
        q, k, v = (normal(h, row.length, row.depth) for h in (heads, kv_heads, kv_heads))
        batched = [t.view(row.batch, -1, row.length, row.depth) for t in (q, k, v)]
        library = library_attention(batched[0], batched[1], batched[2], row.causal)
        wanted = library().view(q.shape)
        functions: dict[str, Launch] = {"cuDNN": without_result(library)}
        for name, (kernel, form) in own.items():
            o = torch.full_like(q, math.nan)
            reach = 0 if row.causal else row.length
            launch = attention_launch(kernel, form, (q, k, v, o), reach, counter)
            launch()
            finish(f"{name} {row}", results)
            error = (o.float() - wanted.float()).norm() / wanted.float().norm()
            if not error.item() < 1e-2 or counter.item():
                print(f"   MISMATCH of {name} at {row}: {error.item()}", flush=True)
                results.data.setdefault("mismatches", []).append(f"{name} {row}")
            functions[name] = launch
        report_times(str(row), timed(functions, rounds, row.flops), row.flops, "cuDNN", results)


def run(options: argparse.Namespace, names: Sequence[str]) -> int:
    """Time everything; return the exit code."""
    import torch

    results = Results(options.json)
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    torch.zeros(1, device=DEVICE)
    describe(results, str(options.commit))
    driver = Driver()
    paths = {name: KERNELS[name] for name in names}
    if options.variants is not None:
        paths |= {path.stem: path for path in sorted(options.variants.glob("*.tile"))}
    loaded: dict[str, tuple[Loaded, Attention]] = {}
    for name, path in paths.items():
        kernel = load(driver, name, path)
        results.data["kernels"][name] = kernel.diagnostics
        if name in PRODUCTS:
            time_product(kernel, name, options.rounds, results)
        else:
            loaded[name] = kernel, Attention.read(path)
    rows = [row for row in ATTENTION_ROWS if not options.rows or options.rows in str(row)]
    time_attention(loaded, rows, options.rounds, results)
    results.write()
    return int(bool(results.data.get("mismatches")))


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(KERNELS), help="kernels, with commas between")
    parser.add_argument("--rows", default="", help="attention rows with this in their title")
    parser.add_argument("--variants", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--assemble", type=Path)
    options = parser.parse_args()
    names = [n for n in options.only.split(",") if n]
    if options.assemble is not None:
        return assemble_all(options.assemble, names)
    return run(options, names)


if __name__ == "__main__":
    raise SystemExit(main())
