"""The least programs that show what cuTile Python's own tests do wrong; docs/findings has the list.

Each is a kernel of cuTile, run with every check on: the finding, and the mended twin that passes.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest

from reftile.interop import cutile, cutile_hooks
from reftile.ir.diagnostics import ReftileError

ct = pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")
if ct.__version__ not in cutile_hooks.PINNED:
    pytest.skip(f"cuda-tile {ct.__version__} is not one that is known", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore::reftile.interop.cutile.CutileWarning")


def rule_of(kernel: Any, args: tuple[Any, ...], **options: Any) -> str:
    with pytest.raises(ReftileError) as raised:
        cutile.run(kernel, 1, args, **options)
    assert raised.value.diagnosis.span.file == __file__
    return raised.value.diagnosis.rule


@ct.kernel
def copy(x, y, tile: ct.Constant[int]):  # type: ignore[no-untyped-def]
    ct.store(y, (0,), ct.load(x, (0,), (tile,)))


def test_false_divisibility() -> None:
    """An array of one element: its stride is taken as 1 and promised to be a multiple of 4."""
    x, y = np.ones(1, np.float32), np.zeros(1, np.float32)
    assert rule_of(copy, (x, y, 1), forgive=()) == "assume.div_by"
    cutile.run(copy, 1, (np.ones(2, np.float32), np.zeros(2, np.float32), 2), forgive=())


@ct.kernel
def bump(x, at):  # type: ignore[no-untyped-def]
    memory = x.get_raw_memory()
    memory.atomic_add_offset(at, 1)


def test_out_of_bounds() -> None:
    """Atomics on raw memory behind an array of one element."""
    assert rule_of(bump, (np.zeros(1, np.int32), 1)) == "memory.out_of_bounds"
    cutile.run(bump, 1, (np.zeros(1, np.int32), 0))


@ct.kernel
def empty_slice(x, y, start, stop):  # type: ignore[no-untyped-def]
    ct.store(
        y, (0,), ct.load(x.slice(0, start, stop), (0,), (4,), padding_mode=ct.PaddingMode.ZERO)
    )


def test_empty_view() -> None:
    """A slice without elements is a tensor view of extent 0, and loaded from."""
    x, y = np.ones(8, np.float32), np.zeros(4, np.float32)
    assert rule_of(empty_slice, (x, y, 4, 4)) == "make_tensor_view.positive"
    cutile.run(empty_slice, 1, (x, y, 4, 5))


@ct.kernel
def tile_at(x, y, index: ct.Constant[int]):  # type: ignore[no-untyped-def]
    view = x.tiled_view(128, padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (0,), view.load(index))


def test_tile_outside() -> None:
    """A padded view has padding beside its elements, but no further tiles."""
    x, y = np.ones(100, np.float32), np.zeros(128, np.float32)
    assert rule_of(tile_at, (x, y, 1)) == "view.index"
    cutile.run(tile_at, 1, (x, y, 0))
    assert y.sum() == 100


@ct.kernel
def broadcast_axis(  # type: ignore[no-untyped-def]
    x: Annotated[ct.Array, ct.ArrayAnnotation(static_stride_dims=(1,))],  # type: ignore[valid-type]
    out,
):
    ct.store(out, (0, 0), ct.load(x, (0, 0), (4, 8)))


def test_zero_stride() -> None:
    """An axis that repeats one element is a tensor view of stride 0."""
    x = np.arange(8, dtype=np.float32).reshape(8, 1)
    torch: Any = pytest.importorskip("torch")
    wide = torch.from_numpy(x[:4]).expand(4, 8)
    out = torch.zeros(4, 8)
    assert rule_of(broadcast_axis, (wide, out)) == "make_tensor_view.positive"
    cutile.run(broadcast_axis, 1, (wide.contiguous(), out))


@ct.kernel
def to_bool(x, y):  # type: ignore[no-untyped-def]
    ct.store(y, (0,), ct.astype(ct.load(x, (0,), (2,)), ct.bool_))


def test_bool_of_float() -> None:
    """A cast to bool is `ftoi` to i1, which has no value for most floats."""
    y = np.zeros(2, np.bool_)
    assert rule_of(to_bool, (np.array([0, 2.5], np.float32), y)) == "ftoi.out_of_range"
    cutile.run(to_bool, 1, (np.array([0, 1], np.float32), y))


@ct.kernel
def masked_max(x, y, length, padding: ct.Constant[bool]):  # type: ignore[no-untyped-def]
    mode = ct.PaddingMode.ZERO if padding else ct.PaddingMode.UNDETERMINED
    t = ct.load(x, (0,), (8,), padding_mode=mode)
    t = t + ct.where(ct.arange(8, dtype=ct.int32) < length, 0.0, -np.inf)
    ct.store(y, (0,), ct.max(t, axis=0, keepdims=True))


def test_undetermined_padding() -> None:
    """What lies behind an array is undetermined, and adding minus infinity does not change that.

    A NaN would stay one. The attention kernel does this with K, and multiplies V's by 0.
    """
    x, y = np.ones(5, np.float32), np.zeros(1, np.float32)
    assert rule_of(masked_max, (x, y, 5, False)) == "poison.output"
    cutile.run(masked_max, 1, (x, y, 5, True))
    assert y[0] == 1


@ct.kernel
def twice(y, rows):  # type: ignore[no-untyped-def]
    ct.scatter(y, ct.load(rows, (0,), (2,)), ct.arange(2, dtype=ct.int32))


def test_repeated_index() -> None:
    """A scatter with one index twice stores to one place twice, in no order."""
    y = np.zeros(4, np.int32)
    assert rule_of(twice, (y, np.array([1, 1], np.int32))) == "race.within_operation"
    cutile.run(twice, 1, (y, np.array([1, 2], np.int32)))
