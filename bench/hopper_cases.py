"""The Hopper kernels of examples/ on random hard inputs: right, whatever the sizes.

    python bench/hopper_cases.py                      40 cases of each family, a summary line each
    python bench/hopper_cases.py --only d64 --cases 500 --seed 7 --json cases.json

Sizes are drawn around tiles, warpgroups and 1; heads are shared at random; queries see keys up to
their own number and a random distance, from before the first key to past the last. Values are
normal, small integers (then sums are exact and so must results be), nearly one-hot, all equal, or
growing so that row maxima move. Every operand lies among NaN, at a multiple of 16 bytes only, so
that a read outside shows; results are NaN before, and what lies around them must stay as it was.
Each launch is done twice and must give the same bits. Judged element by element against float64 by
the bounds of spec/accuracy.md.

The family `agree` runs small cases in the pipe interpreter, in the tests' executor of PTX and on
the device: integer products must be equal in all three, attention within the bound in each.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hopper_device import DEVICE, Driver, Loaded, Results, describe, finish, load
from hopper_kernels import (
    KERNELS,
    PRODUCTS,
    Attention,
    attention_launch,
    exact_attention,
    exact_product,
    product_launch,
)

from tests.lower.hard_inputs import Attention as AttentionCase
from tests.lower.hard_inputs import Case, run_executor, run_interpreter
from tests.lower.hard_inputs import Product as ProductCase

MARGIN = 4096
"""Elements of NaN before and behind every operand."""

UNIT_BF16, UNIT_F32 = 2.0**-8, 2.0**-24
DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
SEES_ALL = 1 << 20


class Guarded:
    """A tensor among NaN; `values` is the part in the middle."""

    def __init__(self, values: torch.Tensor | None, shape: tuple[int, ...], dtype: str) -> None:
        kind = DTYPES[dtype]
        size = math.prod(shape)
        start = MARGIN + 16 // kind.itemsize * random.randrange(16)
        whole = torch.full((size + 2 * MARGIN + 256,), math.nan, device=DEVICE).to(kind)
        self.bytes = whole.view(torch.uint8)
        self.values = whole[start : start + size].view(shape)
        if values is not None:
            self.values.copy_(values.to(kind))
        self.inside = slice(start * kind.itemsize, (start + size) * kind.itemsize)
        self.before = self.bytes.clone()

    def is_intact_around(self) -> bool:
        """True if nothing was written outside."""
        now, then = self.bytes.clone(), self.before.clone()
        now[self.inside] = 0
        then[self.inside] = 0
        return torch.equal(now, then)


def extent(around: tuple[int, ...], most: int, multiple: int = 1) -> int:
    """A size: tiny, next to a multiple of a tile, or any."""
    tile = random.choice(around)
    drawn = random.choice(
        (
            random.randint(1, 40),
            tile * random.randint(1, max(1, most // tile)) + random.randint(-2, 2) * multiple,
            random.randint(1, most),
        )
    )
    return max(multiple, drawn // multiple * multiple)


class Family:
    """What the cases of one kernel found."""

    def __init__(self, name: str, results: Results) -> None:
        self.name, self.results = name, results
        self.count = self.wrong = 0
        self.worst = 0.0

    def add(self, what: str, ratio: float, faults: list[str]) -> None:
        """Note a case: its greatest error over the bound, and what else is wrong."""
        self.count += 1
        self.worst = max(self.worst, ratio)
        if not ratio <= 1:
            faults = [f"error {ratio:.3g} of the bound", *faults]
        if faults:
            self.wrong += 1
            print(f"   WRONG {self.name} {what}: {'; '.join(faults)}", flush=True)
            self.results.add("checks", {"family": self.name, "case": what, "faults": faults})

    def summary(self) -> bool:
        """Print and keep the line of the family."""
        line = (
            f"{self.name:12s} {self.count:4d} cases, {self.wrong} wrong, "
            f"greatest error {self.worst:.3f} of the bound"
        )
        print(line, flush=True)
        entry = {"family": self.name, "cases": self.count, "wrong": self.wrong, "worst": self.worst}
        self.results.data.setdefault("families", []).append(entry)
        self.results.write()
        return not self.wrong


def run_twice(launch: Callable[[], None], out: Guarded, what: str, results: Results) -> list[str]:
    """Launch, fill with NaN, launch again; return what is wrong with the two."""
    launch()
    finish(what, results)
    first = out.values.clone()
    out.values.fill_(math.nan)
    launch()
    finish(what, results)
    faults: list[str] = []
    if not torch.equal(first.view(torch.int16), out.values.view(torch.int16)):
        faults.append("two launches differ")
    if torch.isnan(out.values).any():
        faults.append(f"{int(torch.isnan(out.values).sum())} NaN")
    if not out.is_intact_around():
        faults.append("wrote outside")
    return faults


def ratio_to(found: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor) -> float:
    """The greatest error over the bound; infinite for NaN."""
    error = (found.double() - wanted).abs()
    ratio = torch.where(error == 0, 0.0, error / bound)
    return torch.nan_to_num(ratio, nan=math.inf).max().item()


# Products


def product_values(kind: str, shape: tuple[int, int], mode: str) -> torch.Tensor:
    """Operands: small integers, or normal numbers with rows of very different sizes."""
    if mode == "integers":
        return torch.randint(-2, 3, shape, device=DEVICE).float()
    values = torch.randn(shape, device=DEVICE)
    if mode == "scales" and kind != "fp8":
        values *= torch.exp2(torch.randint(-20, 20, (shape[0], 1), device=DEVICE).float())
    return values


def product_bound(
    kind: str, wanted: torch.Tensor, a: torch.Tensor, b: torch.Tensor, mode: str
) -> torch.Tensor:
    """Sums in any order, or of an 8-bit unit that keeps 13 bits; then one rounding to bf16."""
    rounding = UNIT_BF16 * wanted.abs() * 1.01
    if mode == "integers":
        return rounding
    k = a.shape[1]
    magnitudes = exact_product(kind, a.double().abs(), b.double().abs())
    if kind == "fp8":
        return rounding + -(-k // 32) * 33 * 2.0**-13 * magnitudes
    return rounding + k * UNIT_F32 / (1 - k * UNIT_F32) * magnitudes


def try_product(kernel: Loaded, kind: str, family: Family) -> None:
    """One random case."""
    unit = 16 if kind == "fp8" else 8
    m, n, k = extent((128, 256), 1200), extent((256, 64), 1600, 8), extent((64, 128), 1500, unit)
    mode = random.choice(("integers", "normal", "scales"))
    element = "fp8" if kind == "fp8" else "bf16"
    b_shape = (k, n) if kind == "gemm_nn" else (n, k)
    a = Guarded(product_values(kind, (m, k), mode), (m, k), element)
    b = Guarded(product_values(kind, b_shape, mode), b_shape, element)
    c = Guarded(None, (m, n), "bf16")
    grid = 2 * random.randint(1, 66)
    what = f"{m}x{n}x{k} {mode} grid {grid}"
    launch = product_launch(kernel, kind, a.values, b.values, c.values, grid)
    faults = run_twice(launch, c, f"{kind} {what}", family.results)
    wanted = exact_product(kind, a.values, b.values)
    bound = product_bound(kind, wanted, a.values, b.values, mode)
    if mode == "integers" and not torch.equal(c.values, wanted.bfloat16()):
        faults.append("exact sums are not exact")
    family.add(what, ratio_to(c.values, wanted, bound), faults)


# Attention


def attention_values(
    heads: int, kv_heads: int, length: int, keys: int, depth: int, mode: str
) -> list[torch.Tensor]:
    """Q, K and V."""
    q, k, v = (
        torch.randn(h, n, depth, device=DEVICE)
        for h, n in ((heads, length), (kv_heads, keys), (kv_heads, keys))
    )
    if mode == "one-hot":
        q = q * 30
    elif mode == "equal":
        q, k = torch.ones_like(q), torch.ones_like(k)
    elif mode == "growing":  # kernels go from the last key to the first
        k = k * (1 + 6 * torch.arange(keys, 0, -1, device=DEVICE)[:, None] / keys)
    elif mode == "spikes":
        k = torch.where(torch.rand(kv_heads, keys, 1, device=DEVICE) < 0.02, 8 * k, k)
    else:
        q = 2 * q
    return [q, k, v]


def attention_bound(
    q: torch.Tensor, k: torch.Tensor, wanted: torch.Tensor, magnitudes: torch.Tensor
) -> torch.Tensor:
    """Scores in f32, powers and sums in f32, probabilities and the result in bf16."""
    depth, keys = q.shape[-1], k.shape[-2]
    k = k.double().repeat_interleave(q.shape[0] // k.shape[0], 0)
    largest = (q.double().abs() @ k.abs().transpose(-1, -2)).amax(-1, keepdim=True)
    exponent = (depth + 4) * UNIT_F32 * largest / math.sqrt(depth)
    relative = UNIT_BF16 * 1.01 + 2 * torch.expm1(2 * exponent) + 2 * (keys + 16) * UNIT_F32
    return relative * magnitudes + UNIT_BF16 * 1.01 * wanted.abs()


def try_attention(kernel: Loaded, form: Attention, counter: torch.Tensor, family: Family) -> None:
    """One random case."""
    tiles = (form.block_m, 64, form.block_n)
    length, keys = extent(tiles, 1500), extent((form.block_n, 64), 1500)
    kv_heads = random.randint(1, 5)
    heads = kv_heads * random.choice((1, 1, 2, 3, 4))
    reach = random.choice((SEES_ALL, 0, keys - length, random.randint(-length, keys)))
    reach = reach if form.reaches else SEES_ALL
    mode = random.choice(("normal", "one-hot", "equal", "growing", "spikes"))
    drawn = attention_values(heads, kv_heads, length, keys, form.depth, mode)
    q, k, v = (Guarded(t, tuple(t.shape), "bf16") for t in drawn)
    o = Guarded(None, (heads, length, form.depth), "bf16")
    grid = random.randint(1, 132)
    what = f"h{heads}/{kv_heads} n{length} keys {keys} reach {reach} {mode} grid {grid}"
    tensors = (q.values, k.values, v.values, o.values)
    launch = attention_launch(kernel, form, tensors, reach, counter, grid)
    faults = run_twice(launch, o, f"{family.name} {what}", family.results)
    if counter.item():
        faults.append(f"the counter is {counter.item()}")
        counter.zero_()
    wanted, magnitudes = exact_attention(q.values, k.values, v.values, reach)
    bound = attention_bound(q.values, k.values, wanted, magnitudes)
    family.add(what, ratio_to(o.values, wanted, bound), faults)


# Interpreter, executor and device


def on_device(array: Any) -> torch.Tensor:
    """The same bits as a tensor."""
    if array.dtype == np.int32:
        return torch.from_numpy(array).to(DEVICE)
    wide = array.itemsize == 2
    bits = torch.from_numpy(array.view(np.int16 if wide else np.uint8)).to(DEVICE)
    return bits.view(DTYPES["bf16" if wide else "fp8"])


def agreement_case(name: str, form: Attention | None) -> Case:
    """A small random case, of the tests' kind: operands, the exact result and its bound."""
    seed = random.randrange(1 << 30)
    file = KERNELS[name].stem
    if form is None:
        unit = 16 if name == "fp8" else 8
        m, n = random.randint(1, 260), 8 * random.randint(1, 40)
        return ProductCase(file, m, n, unit * random.randint(1, 150 // unit), seed)
    length, keys = random.randint(1, form.block_m + 20), random.randint(1, 3 * form.block_n)
    reach = random.choice((keys, 0, keys - length)) if form.reaches else keys
    return AttentionCase(file, random.choice((1, 2)), 1, length, keys, reach, seed)


def agree(kernel: Loaded, name: str, form: Attention | None, family: Family) -> None:
    """Interpreter, executor and device: equal where sums are exact, else each within the bound."""
    case = agreement_case(name, form)
    tensors = {n: on_device(a) for n, a in case.arguments.items() if isinstance(a, np.ndarray)}
    grid = 2 if form is None else min(2, -(-case.arguments["length"] // form.block_m))
    kernel.bind(grid, {**case.arguments, **tensors})()
    finish(f"agree {case.name}", family.results)
    found = {
        "device": tensors[case.result].double().cpu().numpy(),
        "interpreter": run_interpreter(case, grid),
        "executor": run_executor(case, grid, case.seed),
    }
    sizes = [v for n, v in case.arguments.items() if isinstance(v, int)]
    what = f"{case.name} {'x'.join(map(str, sizes))} seed {case.seed}"
    faults: list[str] = []
    worst = 0.0
    for where, result in found.items():
        error = np.abs(result - case.exact)
        if not np.all(error <= case.bound):
            faults.append(f"the {where} is off")
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(error == 0, 0, error / case.bound)
        worst = max(worst, float(np.nan_to_num(ratio, nan=math.inf).max()))
    family.add(what, worst, faults)


# The whole


def run(options: argparse.Namespace, names: list[str]) -> int:
    """All families; return the exit code."""
    results = Results(options.json)
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    describe(results, options.commit)
    driver = Driver()
    counter = torch.zeros(1, device=DEVICE, dtype=torch.int32)
    good = True
    agreement = Family("agree", results)
    for name in names:
        kernel = load(driver, name, KERNELS[name])
        family = Family(name, results)
        form = None if name in PRODUCTS else Attention.read(KERNELS[name])
        for _ in range(options.cases):
            if form is None:
                try_product(kernel, name, family)
            else:
                try_attention(kernel, form, counter, family)
        good &= family.summary()
        start = time.perf_counter()
        for _ in range(options.agree):
            agree(kernel, name, form, agreement)
        print(f"   agreement took {time.perf_counter() - start:.1f} s", flush=True)
    good &= agreement.summary()
    return int(not good)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(KERNELS), help="kernels, with commas between")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--agree", type=int, default=2, help="small cases of each kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    return run(options, [n for n in options.only.split(",") if n])


if __name__ == "__main__":
    raise SystemExit(main())
