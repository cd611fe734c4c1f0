"""The names of pipe kernels: complete, documented, and what the smaller ones build."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from reftile import pipe
from reftile.ir.ops import OPS
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.lang.names.registry import Name
from reftile.pipe import Pointer, bfloat16, float32, i32, int32
from tests.interp.pipe.pipe_kernels import SCHEDULES
from tests.lang.pipe.pipe_python import example

FOLDER = Path(__file__).resolve().parents[3] / "reftile" / "lang" / "pipe"
MADE_BY_LOWERING = {"change_layout"}
"""Operations of both levels that programs do not write."""


def test_every_operation_of_the_level_can_be_written() -> None:
    written: set[str] = set()
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                written.add(node.value)
    own = {
        name
        for name, op in OPS.items()
        if "pipe" in op.definition.levels and "tile" not in op.definition.levels
    }
    assert own - written - MADE_BY_LOWERING == set()


def test_every_name_says_what_it_is() -> None:
    for name in pipe.__all__:  # type: ignore[attr-defined]
        value = getattr(pipe, name)
        assert not isinstance(value, Name) or value.__doc__, name


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="pipe kernels have no name `warpgroup_mma`"):
        pipe.warpgroup_mma  # noqa: B018  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("gemm_sm90", "gemm"),
        ("gemm_sm80", "gemm"),
        ("gemm_gfx942", "gemm"),
        ("attention_sm90", "attention"),
        ("attention_causal_sm90", "attention"),
    ],
)
def test_traced_kernels_print_and_parse(module: str, name: str) -> None:
    kernel = getattr(example(module), name).build()
    text = show(kernel)
    assert show(parse(text, "again.tile").kernel()) == text


@pipe.kernel(target="sm_80", warps=4)
def gathered(a: Pointer[float32], numbers: Pointer[int32], c: Pointer[float32], n: i32):
    """Rows by number, by copies of threads."""
    rows = pipe.rows(pipe.tensor(a, (n, 32)), (16, 32))
    found, _read = pipe.tiles(pipe.tensor(numbers, (16,)), (16,)).load((0,))
    buffer = pipe.alloc_buffer((16, 32), float32, layout="row_major")
    pipe.copy_in(rows, (found, 0), buffer)
    pipe.commit_copies("thread")
    tile, _loaded = buffer.load(token=pipe.wait_copies("thread"))
    pipe.tiles(pipe.tensor(c, (16, 32)), (16, 32)).store((0, 0), tile)


@pytest.mark.parametrize("options", SCHEDULES)
def test_rows_are_gathered(options: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 32)).astype(np.float32)
    numbers = rng.integers(0, 40, 16).astype(np.int32)
    c = np.full((16, 32), np.nan, np.float32)
    gathered[(1,)](a, numbers, c, 40, **options)
    assert np.array_equal(c, a[numbers])


@pipe.kernel(target="sm_90a", warps=4)
def added(a: Pointer[float32], c: Pointer[float32]):
    """Shared memory under two types, added to what an array holds."""
    cells = pipe.tiles(pipe.tensor(a, (8, 32)), (8, 32))
    sums = pipe.tiles(pipe.tensor(c, (8, 32)), (8, 32))
    raw = pipe.alloc_buffer((16, 64), bfloat16)
    buffer = raw.reinterpret((8, 32), float32, layout="row_major")
    full = pipe.alloc_barrier()
    pipe.prefetch(cells, (0, 0))
    with pipe.elected():
        full.arrive(0, bytes=8 * 32 * 4)
        pipe.copy_in(cells, (0, 0), buffer, barrier=full, evict="first")
    landed = full.wait(0, 0)
    pipe.order_fence()
    with pipe.elected():
        pipe.copy_out(buffer, sums, (0, 0), token=landed, mode="add")
        pipe.commit_copies("bulk")
        pipe.wait_copies("bulk")


@pytest.mark.parametrize("options", SCHEDULES)
def test_copies_out_may_add(options: dict[str, object]) -> None:
    a = np.arange(256, dtype=np.float32).reshape(8, 32)
    c = np.full((8, 32), 0.5, np.float32)
    added[(2,)](a, c, **options)
    assert np.array_equal(c, 2 * a + 0.5)
