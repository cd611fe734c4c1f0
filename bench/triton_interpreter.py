"""The three workloads of `bench/interpreter.py` in Triton's interpreter, run as a process of its
own.

Reads names of workloads, one a line, and answers each with a JSON list of what a launch took: wall
and processor seconds (see `timing`). Triton reads TRITON_INTERPRET when it is imported, so this
cannot share a process with a compiled Triton.
"""

# Triton's decorator hides that integers become constants.
# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from timing import measure


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + offsets, mask=offsets < columns, other=-float("inf"))
    numerator = tl.exp(values - tl.max(values, axis=0))
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out + row * stride + offsets, result, mask=offsets < columns)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + inner[None, :])
        y = tl.load(b + inner[:, None] * n + columns[None, :])
        acc += tl.dot(x, y)
    tl.store(c + rows[:, None] * n + columns[None, :], acc)


def main() -> None:
    """Check each workload once, then measure what is asked for."""
    torch.manual_seed(0)
    x, y = torch.randn(1 << 20), torch.randn(1 << 20)
    out = torch.empty_like(x)
    rows = torch.randn(1024, 1024)
    soft = torch.empty_like(rows)
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    c = torch.empty(256, 256)

    def add() -> None:
        add_kernel[(1024,)](x, y, out, x.numel(), BLOCK=1024)

    def softmax() -> None:
        softmax_kernel[(1024,)](rows, soft, 1024, 1024, BLOCK=1024)

    def matmul() -> None:
        matmul_kernel[(4, 4)](a, b, c, 256, 256, 256, BM=64, BN=64, BK=32)

    runs: dict[str, Callable[[], None]] = {
        "matmul 256^3 f32": matmul,
        "softmax 1024x1024": softmax,
        "add 1M": add,
    }
    for run in runs.values():
        run()
    assert torch.allclose(out, x + y)
    assert torch.allclose(soft, torch.softmax(rows, 1), atol=1e-6)
    assert torch.allclose(c, a @ b, atol=1e-3)
    for request in sys.stdin:
        print(json.dumps(measure(runs[request.strip()])), flush=True)


if __name__ == "__main__":
    main()
