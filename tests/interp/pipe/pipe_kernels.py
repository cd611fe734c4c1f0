"""The kernels of examples/pipe, run on small data, and helpers to write short pipe kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reftile.interp.launch import Report, interpret
from reftile.ir.core import Module
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.parse import parse

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "pipe"
BF16 = ml_dtypes.bfloat16
HALF_ULP_BF16, HALF_ULP_F32 = 2.0**-8, 2.0**-24
"""Half a unit in the last place, for a value of 1."""

Edit = tuple[str, str]
SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "program"},
    {"schedule": "topo", "seed": 1},
    {"schedule": "topo", "seed": 2},
    {"schedule": "adversarial"},
    {"schedule": "adversarial", "seed": 3},
]


def example(name: str, edits: Sequence[Edit] = ()) -> Module:
    """An example, with some of its text replaced: the first match of each."""
    text = (FOLDER / f"{name}.tile").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return parse(text, f"{name}.tile")


@dataclass
class Case:
    """An example with data. wanted: in f64. bound: how far each element may be off."""

    name: str
    grid: tuple[int, ...]
    args: list[Any]
    result: Any
    wanted: Any
    bound: Any
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def run(self, edits: Sequence[Edit] = (), **options: Any) -> Report:
        return interpret(example(self.name, edits), self.grid, self.args, **options)

    def is_right(self) -> bool:
        return bool(np.all(np.abs(self.result.astype(float) - self.wanted) <= self.bound))


def gemm(name: str, m: int, n: int, k: int, grid: tuple[int, ...], step: int) -> Case:
    """C = A B^T. The sum is rounded to f32 once for each `step` of k, at last to C's type."""
    draw = np.random.default_rng(m + n + k)
    a, b = (draw.standard_normal((rows, k)).astype(BF16) for rows in (m, n))
    type = BF16 if name == "gemm_sm90" else np.float32
    c: Any = np.full((m, n), np.nan, type)
    wide_a, wide_b = a.astype(float), b.astype(float)
    wanted = wide_a @ wide_b.T
    bound = k / step * HALF_ULP_F32 * (np.abs(wide_a) @ np.abs(wide_b).T)
    if type is BF16:
        bound = bound + HALF_ULP_BF16 * np.abs(wanted)
    return Case(name, grid, [a, b, c, m, n, k], c, wanted, bound)


def gemm_sm90(k: int = 320) -> Case:
    return gemm("gemm_sm90", 256, 256, k, (2,), 64)


def gemm_sm80() -> Case:
    return gemm("gemm_sm80", 128, 256, 224, (2, 1), 32)


def gemm_gfx942() -> Case:
    return gemm("gemm_gfx942", 256, 256, 160, (1, 1), 32)


def attention(causal: bool, heads: int, length: int, blocks: int) -> Case:
    """Softmax(Q K^T / sqrt(128)) V. P is rounded to bf16, and so is the result."""
    draw = np.random.default_rng(heads + length)
    q, k, v = (draw.standard_normal((heads, length, 128)).astype(BF16) for _ in range(3))
    o: Any = np.full((heads, length, 128), np.nan, BF16)
    scores = np.einsum("hid,hjd->hij", q.astype(float), k.astype(float)) / np.sqrt(128)
    if causal:
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    wide = v.astype(float)
    wanted = p @ wide
    bound = HALF_ULP_BF16 * (p @ np.abs(wide) + np.abs(wanted)) * 1.01 + 1e-5
    extra: dict[str, Any] = {"counter": np.zeros(1, np.int32)}
    sizes = (heads, heads, length, length, 0 if causal else length)
    scale = np.float32(np.log2(np.e) / np.sqrt(128))
    args: list[Any] = [q, k, v, o, *sizes, scale, extra["counter"]]
    return Case("attention_sm90", (blocks,), args, o, wanted, bound, extra)


def violation(case: Case, edits: Sequence[Edit] = (), **options: Any) -> Diagnosis:
    """The diagnosis with which a mutated example ends."""
    with pytest.raises(ReftileError) as error:
        case.run(edits, **options)
    assert str(error.value)
    return error.value.diagnosis


def line_with(name: str, part: str) -> int:
    """The number of the first line of an example that has `part` in it."""
    lines = (FOLDER / f"{name}.tile").read_text(encoding="utf-8").split("\n")
    return next(i for i, line in enumerate(lines, 1) if part in line)


def line_of(found: Diagnosis) -> str:
    """The line of the text that a diagnosis points at."""
    return found.span.source.line(found.span.line).strip()


def noted_lines(found: Diagnosis) -> list[str]:
    """The lines that its notes point at."""
    return [s.source.line(s.line).strip() for _, s in found.notes if s is not None]


# Short kernels


def program(
    arguments: str, prologue: str, roles: str, target: str = "sm_90a", attributes: str = "warps = 8"
) -> Module:
    """A kernel with i32 constants `%zero` to `%four`, block numbers `%bx` and tokens as written."""
    head = f'pipe kernel @k({arguments}) attributes {{target = "{target}", {attributes}}} {{'
    names = ("zero", "one", "two", "three", "four")
    constants = [f"%{n} = constant {{value = {i}}} : tile<i32>" for i, n in enumerate(names)]
    block = "%bx, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>"
    return parse("\n".join([head, *constants, block, prologue, roles, "return", "}"]), "k.tile")


def role(label: str, body: str, replicas: int = 1, warps: int = 4) -> str:
    """A role; `%r` is the number of the replica."""
    argument = "(%r: tile<i32>)"
    copies = f", replicas = {replicas}" if replicas > 1 else ""
    return (
        f'role {{label = "{label}", warps = {warps}{copies}}} body{argument} {{\n{body}\nyield\n}}'
    )


def vector(name: str, extent: int, tile: int, dtype: str = "i32") -> str:
    """Text that makes `%name_v`, the partition view of the pointer `%name` into tiles."""
    tensor = f"tensor_view<{extent}x{dtype}, strides=[1]>"
    return (
        f"%{name}_t = make_tensor_view %{name}, [], [] : {tensor}\n"
        f"%{name}_v = make_partition_view %{name}_t : partition_view<tile=({tile}), {tensor}>"
    )


def fails(module: Module, grid: Any, args: list[Any], **options: Any) -> Diagnosis:
    """The diagnosis with which a launch of a short kernel ends."""
    with pytest.raises(ReftileError) as error:
        interpret(module, grid, args, **options)
    assert str(error.value)
    return error.value.diagnosis


def one_role(arguments: str, prologue: str, body: str, target: str = "sm_90a") -> Module:
    return program(arguments, prologue, role("all", body, warps=8), target)


def stored(value: str, shape: str, name: str, index: str) -> str:
    return f"%{name} = store_view_tko {value}, %o_v, [{index}] {{ordering = weak}} : token"


def tiles(name: str, rows: int = 32, padding: str = "") -> str:
    """Text that makes `%name_v`, the view of 16x32 tiles of a matrix of `rows` by 64."""
    tensor = f"tensor_view<{rows}x64xf32, strides=[64, 1]>"
    pad = f", padding={padding}" if padding else ""
    return (
        f"%{name}_t = make_tensor_view %{name}, [], [] : {tensor}\n"
        f"%{name}_v = make_partition_view %{name}_t : partition_view<tile=(16x32), {tensor}{pad}>"
    )


TILES = f"{tiles('a')}\n{tiles('o')}"
POINTERS = "%a: tile<ptr<f32>>, %o: tile<ptr<f32>>"
NEIGHBOUR = f"""{vector("o", 8, 4)}
    %rank = cluster_rank : tile<i32>
    %other = subi %one, %rank : tile<i32>
    %b = alloc_buffer : buffer<4xi32>
    %full = alloc_barrier : barrier<1, arrivals=1, scope=cluster>
    cluster_arrive
    %ready = cluster_wait : token"""
"""The prologue of two blocks that write to each other: `%b`, `%full`, and `%other`, the rank."""


def matrix() -> tuple[Any, Any]:
    return np.arange(32 * 64, dtype=np.float32).reshape(32, 64), np.zeros((32, 64), np.float32)
