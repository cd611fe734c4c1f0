"""The Hopper kernels that bench/hopper_pipe.py times and bench/hopper_cases.py tries: operands,
launches, the exact results and the libraries' versions.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopper_device import DEVICE, ROOT, Launch, Loaded, normal

if TYPE_CHECKING:
    import torch

EXAMPLES = ROOT / "examples" / "pipe"
KERNELS = {
    "gemm": EXAMPLES / "gemm_sm90.tile",
    "gemm_nn": EXAMPLES / "gemm_nn_sm90.tile",
    "gemm_cut": EXAMPLES / "gemm_cut_sm90.tile",
    "fp8": ROOT / "bench" / "kernels" / "gemm_fp8_sm90.tile",
    "attention": EXAMPLES / "attention_sm90.tile",
    "full": EXAMPLES / "attention_full_sm90.tile",
    "short": EXAMPLES / "attention_short_sm90.tile",
    "d64": EXAMPLES / "attention_d64_sm90.tile",
}
PRODUCTS = ("gemm", "gemm_nn", "gemm_cut", "fp8")


def without_result(function: Callable[[], object]) -> Launch:
    """The function, its result dropped."""

    def go() -> None:
        function()

    return go


# Products of matrices


def operands(kind: str, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Fresh A and B of normal numbers, as the kernel wants them: B is [n, k], or [k, n]."""
    import torch

    a, b = normal(m, k), normal(*((k, n) if kind == "gemm_nn" else (n, k)))
    return (a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)) if kind == "fp8" else (a, b)


def product_launch(
    kernel: Loaded, kind: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, grid: int
) -> Launch:
    """C = A B, or A B^T."""
    (m, k), n = a.shape, b.shape[1 if kind == "gemm_nn" else 0]
    return kernel.bind(grid, {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k})


def library_product(kind: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Launch:
    """The same product by cuBLAS: for 8 bits with scales of 1 and fast accumulation."""
    import torch

    if kind != "fp8":
        return without_result(lambda: torch.mm(a, b if kind == "gemm_nn" else b.T, out=out))
    one = torch.ones((), device=DEVICE)
    return without_result(
        lambda: torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]
            a, b.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=out
        )
    )


def exact_product(kind: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In float64."""
    return a.double() @ (b.double() if kind == "gemm_nn" else b.double().T)


# Attention


@dataclass(frozen=True)
class Attention:
    """What a kernel's text says of it.

    depth: elements of a row. block_m: rows of a tile. block_n: keys of a block. reaches: whether it
    can hide keys.
    """

    depth: int
    block_m: int
    block_n: int
    reaches: bool

    @staticmethod
    def read(path: Path) -> Attention:
        """Read the constants of the prologue."""
        text = path.read_text(encoding="utf-8")

        def number(name: str) -> int:
            found = re.search(rf"%{name} = constant {{value = (\d+)}}", text)
            assert found is not None, name
            return int(found[1])

        reaches = "%reach: tile<i32>" in text
        return Attention(number("depth"), number("block_m"), number("block_n"), reaches)


def attention_launch(
    kernel: Loaded,
    form: Attention,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    reach: int,
    counter: torch.Tensor,
    grid: int = 132,
) -> Launch:
    """O from Q, K, V of [heads, length, depth]; query i sees keys up to i + reach."""
    q, k, _, _ = tensors
    heads, length, depth = q.shape
    arguments: dict[str, Any] = {
        **dict(zip("qkvo", tensors, strict=True)),
        "heads": heads,
        "kv_heads": k.shape[0],
        "length": length,
        "keys": k.shape[1],
        "reach": reach,
        "scale": math.log2(math.e) / math.sqrt(depth),
        "counter": counter,
    }
    tiles = -(-length // form.block_m) * heads
    return kernel.bind(min(grid, tiles), arguments)


def library_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> Callable[[], torch.Tensor]:
    """Attention by cuDNN, of [batch, heads, length, depth]. Heads share K and V if it can that,
    else they get copies of their own, made here.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def attend(k: torch.Tensor, v: torch.Tensor, shared: bool) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

    each = q.shape[1] // k.shape[1]
    try:
        attend(k, v, each > 1)
    except RuntimeError:
        own_k, own_v = (t.repeat_interleave(each, 1) for t in (k, v))
        return lambda: attend(own_k, own_v, False)
    return lambda: attend(k, v, each > 1)


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, reach: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in float64, and the same with the magnitudes of V; a row without keys is zero."""
    import torch

    each = q.shape[0] // k.shape[0]
    k, v = (t.double().repeat_interleave(each, 0) for t in (k, v))
    scores = q.double() @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    rows, columns = (torch.arange(n, device=q.device) for n in scores.shape[-2:])
    scores = scores.masked_fill(columns[None, :] > rows[:, None] + reach, -math.inf)
    weights = torch.nan_to_num(torch.softmax(scores, -1), nan=0.0)
    return weights @ v, weights @ v.abs()
