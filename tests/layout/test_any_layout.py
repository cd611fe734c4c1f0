"""Layouts of any kind against the plain meaning of their digits: copies, gaps, padding, all places.

`test_linear` has bijections; here digits are drawn at will. What a layout cannot express it may
refuse, but what it gives must be right.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from reftile.layout.linear import PLACES, Digit, Layout, LayoutError, Map

Index = tuple[int, ...]
Rows = dict[str, list[Digit]]
SAME_EVERYWHERE = settings(
    derandomize=True,
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
STEPS = (0, 0, 0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24)


def evaluate(rows: Rows, places: dict[str, int], rank: int) -> Index:
    """The index at a place, digit by digit: bits by exclusive or, repeats by addition."""
    crossed, added = [0] * rank, [0] * rank
    for name, digits in rows.items():
        value = places[name]
        for digit in digits:
            value, amount = divmod(value, digit.extent)
            for k, step in enumerate(digit.step):
                if digit.is_bit:
                    crossed[k] ^= amount * step
                else:
                    added[k] += amount * step
    return tuple(x + a for x, a in zip(crossed, added, strict=True))


def points(rows: Rows) -> list[dict[str, int]]:
    extents = [range(prod(d.extent for d in digits)) for digits in rows.values()]
    return [dict(zip(rows, at, strict=True)) for at in product(*extents)]


@dataclass
class Case:
    """A layout with the digits that it was made of, and its index at every place."""

    rows: Rows
    shape: Index
    cover: Index
    layout: Layout

    @property
    def table(self) -> list[tuple[dict[str, int], Index]]:
        rank = len(self.shape)
        return [(at, evaluate(self.rows, at, rank)) for at in points(self.rows)]


@st.composite
def digits(draw: st.DrawFn, rank: int) -> Digit:
    is_bit = draw(st.booleans())
    extent = 2 if is_bit else draw(st.sampled_from([2, 3, 4, 5, 6, 8]))
    return Digit(extent, tuple(draw(st.sampled_from(STEPS)) for _ in range(rank)), is_bit)


@st.composite
def cases(draw: st.DrawFn, padded: bool = True) -> Case:
    rank = draw(st.integers(1, 3))
    rows: Rows = {}
    for _ in range(draw(st.integers(1, 6))):
        rows.setdefault(draw(st.sampled_from(PLACES)), []).append(draw(digits(rank)))
    assume(prod(d.extent for row in rows.values() for d in row) <= 1024)
    reached = [evaluate(rows, at, rank) for at in points(rows)]
    shape = tuple(max(index[k] for index in reached) + 1 for k in range(rank))
    cover = shape
    if padded:
        cover = tuple(e + draw(st.sampled_from([0, 0, 3])) for e in shape)
        shape = tuple(max(1, e - draw(st.sampled_from([0, 0, 1, 2]))) for e in shape)
    return Case(rows, shape, cover, Layout.of(shape, rows, cover))


def row_major(index: Index, shape: Index) -> int:
    flat = 0
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + i
    return flat


@given(cases())
@SAME_EVERYWHERE
def test_values_and_validity(case: Case) -> None:
    whole = case.layout.indices()
    names = case.layout.places
    for at, index in case.table:
        inside = all(i < e for i, e in zip(index, case.shape, strict=True))
        flat = row_major(index, case.shape) if inside else -1
        assert case.layout.index(**at) == index
        assert case.layout(**at) == flat == whole[tuple(at[n] for n in names)]


@given(cases())
@SAME_EVERYWHERE
def test_questions(case: Case) -> None:
    reached = [index for _, index in case.table]
    inside = {i for i in reached if all(a < e for a, e in zip(i, case.shape, strict=True))}
    assert case.layout.is_injective == (len(set(reached)) == len(reached))
    assert case.layout.map.image_size == len(set(reached))
    assert case.layout.is_onto == (len(inside) == prod(case.shape))
    assert Layout.parse(str(case.layout)) == case.layout


@given(cases(), st.data())
@SAME_EVERYWHERE
def test_permute_and_drop(case: Case, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.shape))))
    turned = case.layout.permute(order)
    assert turned.shape == tuple(case.shape[k] for k in order)
    for at, index in case.table:
        assert turned.index(**at) == tuple(index[k] for k in order)
    assume(len(case.shape) > 1)
    axis = data.draw(st.integers(0, len(case.shape) - 1))
    dropped = case.layout.drop(axis)
    held: dict[Index, set[Index]] = {}
    for at, index in case.table:
        key = tuple(v for n, v in at.items() if n != "register")
        held.setdefault(key, set()).add(index[:axis] + index[axis + 1 :])
    registers = range(dropped.extent("register"))
    for at, _ in case.table:
        key = tuple(v for n, v in at.items() if n != "register")
        assert held[key] == {dropped.index(**{**at, "register": r}) for r in registers}


@given(cases(padded=False), st.sampled_from(PLACES), st.integers(2, 4), st.data())
@SAME_EVERYWHERE
def test_repeat_and_replicate(case: Case, place: str, count: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(case.shape) - 1))
    extent = case.layout.extent(place)  # pyright: ignore[reportArgumentType]
    more = case.layout.repeat(place, axis, count)  # pyright: ignore[reportArgumentType]
    copies = case.layout.replicate(place, count)  # pyright: ignore[reportArgumentType]
    for at, index in case.table:
        for n in range(count):
            there = {**at, place: at.get(place, 0) + n * extent}
            moved = [i + n * case.shape[k] * (k == axis) for k, i in enumerate(index)]
            assert more.index(**there) == tuple(moved)
            assert copies.index(**there) == index


@given(cases(padded=False), st.data())
@SAME_EVERYWHERE
def test_reshape_and_invert(case: Case, data: st.DataObject) -> None:
    size = prod(case.shape)
    rows = data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    try:
        reshaped = case.layout.reshape((rows, size // rows))
    except LayoutError:
        reshaped = None
    try:
        inverse = case.layout.map.invert()
    except LayoutError:
        inverse = None
    for at, index in case.table:
        if reshaped is not None:
            assert reshaped.index(**at) == divmod(row_major(index, case.shape), size // rows)
        if inverse is not None:
            back = inverse(**{f"d{k}": i for k, i in enumerate(index)})
            assert dict(zip((n for n, _ in inverse.outputs), back, strict=True)) == {
                n: v for n, v in at.items() if case.layout.map.digits(n)
            }


@given(cases(padded=False), st.data())
@SAME_EVERYWHERE
def test_composition(case: Case, data: st.DataObject) -> None:
    after: Rows = {}
    for k, extent in enumerate(case.shape):
        row: list[Digit] = []
        while prod(d.extent for d in row) < extent:
            row.append(data.draw(digits(2)))
        after[f"d{k}"] = row
    second = Map.of(after, [("x", 1 << 20), ("y", 1 << 20)])
    try:
        both = case.layout.map.then(second)
    except LayoutError:
        return
    for at, index in case.table:
        names = {f"d{k}": i for k, i in enumerate(index)}
        assert both(**at) == evaluate(after, names, 2)


@given(cases(padded=False), st.data())
@SAME_EVERYWHERE
def test_slice_begins_where_it_says(case: Case, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(case.shape) - 1))
    whole = case.shape[axis]
    extent = data.draw(st.sampled_from([e for e in range(1, whole + 1) if whole % e == 0]))
    start = data.draw(st.integers(0, whole // extent - 1)) * extent
    try:
        part, begin = case.layout.slice(axis, start, extent)
    except LayoutError:
        return
    corner = case.layout.index(**begin)
    assert corner[axis] == start
    assert part.shape[axis] == extent
