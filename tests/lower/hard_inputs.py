"""Cases for the Hopper kernels of examples/pipe: operands, the exact result, and its bound.

Bounds follow spec/accuracy.md: sums in f32 in any order, one rounding to bf16 at the end, and for
attention one more of the probabilities. A case runs in the pipe interpreter with all its checks,
and lowered in the executor of PTX.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np

from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from tests.lower.on_machine import EXAMPLES, from_bits, launch

BF16 = ml_dtypes.bfloat16
FP8 = ml_dtypes.float8_e4m3fn
UNIT_BF16, UNIT_F32 = 2.0**-8, 2.0**-24


@dataclass
class Product:
    """C = A B^T, or A B for `gemm_nn_sm90`, of small integers: sums are exact."""

    name: str
    m: int
    n: int
    k: int
    seed: int
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    result: str = "c"

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        kind = FP8 if "fp8" in self.name else BF16
        across = "nn" in self.name
        shapes = ((self.m, self.k), (self.k, self.n) if across else (self.n, self.k))
        a, b = (rng.integers(-2, 3, s).astype(kind) for s in shapes)
        c = np.empty((self.m, self.n), BF16)
        self.arguments = {"a": a, "b": b, "c": c, "m": self.m, "n": self.n, "k": self.k}
        right = b.astype(float) if across else b.astype(float).T
        exact = a.astype(float) @ right
        self.exact = exact.astype(BF16).astype(float)
        self.bound = np.zeros_like(exact)


@dataclass
class Attention:
    """Softmax(Q K^T / sqrt(depth)) V; query i sees keys up to i + reach; normal numbers."""

    name: str
    heads: int
    kv_heads: int
    length: int
    keys: int
    reach: int
    seed: int
    growing: bool = False
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    result: str = "o"

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        depth = 64 if "d64" in self.name else 128
        q = (2 * rng.standard_normal((self.heads, self.length, depth))).astype(BF16)
        k, v = (rng.standard_normal((self.kv_heads, self.keys, depth)) for _ in "kv")
        if self.growing:  # kernels go from the last key to the first
            k *= 1 + 6 * np.arange(self.keys, 0, -1)[:, None] / self.keys
        k, v = k.astype(BF16), v.astype(BF16)
        self.arguments = {
            "q": q,
            "k": k,
            "v": v,
            "o": np.empty_like(q),
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "length": self.length,
            "keys": self.keys,
            "reach": self.reach,
            "scale": float(np.float32(np.log2(np.e) / np.sqrt(depth))),
            "counter": np.zeros(1, np.int32),
        }
        self._solve(q.astype(float), k.astype(float), v.astype(float))

    def _solve(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
        k, v = (np.repeat(x, self.heads // self.kv_heads, 0) for x in (k, v))
        root = np.sqrt(q.shape[-1])
        scores = np.einsum("hid,hjd->hij", q, k) / root
        hidden = np.arange(self.keys) > np.arange(self.length)[:, None] + self.reach
        scores = np.where(hidden, -np.inf, scores)
        highest = scores.max(-1, keepdims=True)
        p = np.exp(scores - np.where(np.isinf(highest), 0, highest))
        total = p.sum(-1, keepdims=True)
        p /= np.where(total == 0, 1, total)
        largest = np.einsum("hid,hjd->hij", np.abs(q), np.abs(k)).max(-1, keepdims=True)
        exponent = (q.shape[-1] + 4) * UNIT_F32 * largest / root
        relative = 1.01 * UNIT_BF16 + 2 * np.expm1(2 * exponent) + 2 * (self.keys + 16) * UNIT_F32
        self.exact = p @ v
        self.bound = relative * (p @ np.abs(v)) + 1.01 * UNIT_BF16 * np.abs(self.exact)


Case = Product | Attention


def read(name: str) -> str:
    """The text of an example, or of a kernel of bench/."""
    folder = EXAMPLES if (EXAMPLES / f"{name}.tile").exists() else EXAMPLES.parents[1] / "bench"
    path = folder / f"{name}.tile" if folder is EXAMPLES else folder / "kernels" / f"{name}.tile"
    return path.read_text(encoding="utf-8")


def _fresh(case: Case) -> dict[str, Any]:
    case.arguments[case.result][...] = np.nan
    return case.arguments


def run_interpreter(case: Case, grid: int, **options: Any) -> np.ndarray:
    """The result of the pipe interpreter, which checks races, phases, bytes and the rest."""
    arguments = _fresh(case)
    module = parse(read(case.name), f"{case.name}.tile")
    values = [arguments[a.name] for a in module.kernel().arguments]
    values = [np.float32(v) if isinstance(v, float) else v for v in values]
    report = interpret(module, (grid,), values, **options)
    assert report.checked
    return case.arguments[case.result].astype(float)


def run_executor(case: Case, grid: int, seed: int = 0) -> np.ndarray:
    """The result of the lowered kernel."""
    arguments = _fresh(case)
    kernel = parse(read(case.name), f"{case.name}.tile").kernel()
    bits = {2: np.uint16, 1: np.uint8, 4: np.int32}
    views = {
        n: a.view(bits[a.itemsize]) if isinstance(a, np.ndarray) else a
        for n, a in arguments.items()
    }
    launch(lower(kernel, "sm_90a"), grid, seed, **views)
    if "counter" in arguments:
        assert arguments["counter"][0] == 0
    return from_bits(views[case.result])
