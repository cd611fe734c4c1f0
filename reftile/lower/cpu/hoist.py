"""A loop that is nothing but a matrix product, as one large product.

    for s in range(lower, upper): acc = mma(load(a, (i, s)), load(b, (s, j)), acc)

adds the product of a row of tiles and a column of tiles. If they lie inside their arrays, but for a
last step that zeros pad, one call of BLAS does it, which packs its operands once, for several
blocks if it can (`neighbours.py`). Otherwise, and wherever something else happens in the loop, the
loop stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from reftile.ir.core import Block, Op, Value
from reftile.ir.dtypes import F32, F64
from reftile.ir.types import TokenType
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.neighbours import Call, axis_of_neighbours, write_shared
from reftile.lower.cpu.products import LARGEST_SIZE
from reftile.lower.cpu.tiles import Buffer, size_of
from reftile.lower.cpu.views import TileView, constant_of


@dataclass(frozen=True, slots=True)
class Product:
    """What a loop multiplies.

    place: of the accumulator among what is carried. row, column: the indices that stay. views: the
    values of both views.
    """

    lhs: TileView
    rhs: TileView
    row: Value
    column: Value
    place: int
    views: tuple[Value, Value]


def find_product(b: Builder, op: Op) -> Product | None:
    """The product that a `for` is, if it is one and nothing else."""
    body = op.regions[0].block
    work = [o for o in body.ops if o.name not in ("join_tokens", "make_token")]
    names = [o.name for o in work]
    if names != ["load_view_tko", "load_view_tko", "mmaf", "continue"] or not b.blas:
        return None
    first, second, product, end = work
    counter = body.arguments[0]
    loads = {o.results[0]: o for o in (first, second)}
    lhs, rhs = (loads.get(v) for v in product.operands[:2])
    if lhs is None or rhs is None or lhs is rhs:
        return None
    if any(o.attributes.get("ordering") != "weak" for o in (lhs, rhs)):
        return None
    left, right = b.env.get(lhs.operands[0]), b.env.get(rhs.operands[0])
    if not (_fits(left, product) and _fits(right, product)):
        return None
    assert isinstance(left, TileView) and isinstance(right, TileView)
    (row, along), (down, column) = _index(lhs), _index(rhs)
    if along is not counter or down is not counter or counter in (row, column):
        return None
    if row not in b.env or column not in b.env:
        return None
    place = _only_change(body, end)
    if place is None or end.operands[place] is not product.results[0]:
        return None
    if body.arguments[1 + place] is not product.operands[2]:
        return None
    return Product(left, right, row, column, place, (lhs.operands[0], rhs.operands[0]))


def _only_change(body: Block, end: Op) -> int | None:
    """The place of the one value that a turn of the loop changes; tokens do not count."""
    carried = zip(end.operands, body.arguments[1:], strict=True)
    changed = [
        place
        for place, (new, old) in enumerate(carried)
        if new is not old and not isinstance(new.type, TokenType)
    ]
    return changed[0] if len(changed) == 1 else None


def _index(load: Op) -> tuple[Value, Value]:
    return cast("tuple[Value, Value]", load.arguments[1])


def _fits(view: object, product: Op) -> bool:
    """Whether tiles of a view can be read by BLAS where they are."""
    if not isinstance(view, TileView) or len(view.step) != 2 or view.sparse >= 0:
        return False
    result = product.results[0].type.element  # type: ignore[attr-defined]
    return (
        view.type.element is result
        and result in (F32, F64)
        and view.step == view.type.tile
        and view.strides[-1] == "1"
    )


def write_product(b: Builder, op: Op, found: Product, buffer: Buffer, limits: Sequence[str]) -> str:
    """Write the call behind its condition, whose name is given: the loop is for when it is false.

    limits: the names of the first and the last number of the counter, and of its step.
    """
    lower, upper, step = limits
    (m, k), (_, n) = found.lhs.type.tile, found.rhs.type.tile
    i, j = (_wide(b, v) for v in (found.row, found.column))
    left, right = found.lhs, found.rhs
    # Numbers of 64 bits may wrap; then they are above the extents themselves.
    first, last = (b.scalar(f"muli({x}, i64({k}))", "n") for x in (lower, upper))
    below, beside = (f"addi(muli(i64({t}), i64({x})), i64({x}))" for t, x in ((i, m), (j, n)))
    count = b.scalar(f"subi(smin({last}, i64({left.extents[1]})), {first})", "n")
    conditions = [
        f"{step} == 1",
        f"{lower} >= 0",
        f"{lower} < {upper}",
        f"{upper} <= {left.extents[1]}",
        f"nlt(i64({i}), i64({left.extents[0]}))",
        f"nlt(i64({j}), i64({right.extents[1]}))",
        f"{below} <= {left.extents[0]}",
        f"{beside} <= {right.extents[1]}",
        f"{left.extents[1]} == {right.extents[0]}",
        f"subi({last}, i64({k})) < {left.extents[1]}",
        f"{left.strides[0]} >= {left.extents[1]}",
        f"{right.strides[0]} >= {right.extents[1]}",
        *(f"{x} <= {LARGEST_SIZE}" for x in (left.strides[0], right.strides[0], count)),
    ]
    if left.type.padding != "zero" or right.type.padding != "zero":
        conditions.append(f"{last} <= {left.extents[1]}")
    whole = b.scalar(" and ".join(conditions), "whole")
    size = size_of(buffer.kind)
    indices, roots = (found.row, found.column), (left.tensor.root, right.tensor.root)
    axis = axis_of_neighbours(b, op, indices, (*op.operands[:3], *found.views), roots)
    b.line(f"if {whole}:")
    with b.indented():
        start_a = f"{left.tensor.start} + ({i} * {m} * {left.strides[0]} + {first}) * {size}"
        start_b = f"{right.tensor.start} + ({first} * {right.strides[0]} + {j} * {n}) * {size}"
        call = Call(
            b.scalar(f"address_of({left.tensor.base}) + {start_a}", "p"),
            b.scalar(f"address_of({right.tensor.base}) + {start_b}", "p"),
            (left.strides[0], right.strides[0]),
            (m, n, count),
            (_room(left.extents[0], i, m), _room(right.extents[1], j, n)),
        )
        if axis is None:
            b.line(call.alone(buffer.kind, f"address_of({buffer.base})"))
        else:
            write_shared(b, axis, call, buffer)
    return whole


def _room(extent: str, index: str, size: int) -> str:
    """How many whole tiles there are from an index on."""
    return f"udiv_by(i64({extent}), i64({size})) - {index}"


def _wide(b: Builder, value: Value) -> str:
    text = b.text(value)
    number = constant_of(text)
    return str(number) if number is not None else b.shared(f"i64_of_signed({text})", "n")
