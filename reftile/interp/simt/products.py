"""Products of warpgroups, which happen later, and of warps, which happen at once.

Sources of what registers hold: PTX ISA 9.2, "Register Fragments and Shared Memory Matrix Layouts"
of wgmma and of mma.m16n8k16; of descriptors: "Matrix Descriptor Format" and "Strides" of wgmma.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from reftile.interp.coroutines import Control, Queue, Wait
from reftile.interp.machine import Block
from reftile.interp.plan import Apply, Maker, Plan, Step
from reftile.interp.simt.barriers import warp_of
from reftile.interp.simt.clocks import DONE, LANES, Clock, Indices
from reftile.interp.simt.fragments import (
    dense,
    element_table,
    layout_of,
    register_count,
    tile_type,
)
from reftile.interp.simt.machine import SHARED_BASE, Flight, Home, Warp
from reftile.interp.simt.shadow import Raced, Visit
from reftile.interp.values import Mask, Tile
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import DTYPES, F64, DType
from reftile.ir.numbers import convert, decode
from reftile.ir.pipe_flight import in_registers
from reftile.ir.types import TileType
from reftile.layout.descriptors import exchange_chunks

MODES = {128: 1, 64: 2, 32: 3, 16: 0}
SPANS = {mode: span for span, mode in MODES.items()}
QUARTERS = 4


# Descriptors


def _make_descriptor(op: Op, plan: Plan[Block]) -> Apply[Block]:
    leading, stride = op.attributes["leading"], op.attributes["stride"]
    swizzle = op.attributes["swizzle"]
    assert isinstance(leading, int) and isinstance(stride, int) and isinstance(swizzle, int)
    high = MODES[swizzle] << 62 | stride >> 4 << 32 | leading >> 4 << 16

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        address = warp_of(block).each(values[0], "the address of an operand")
        bits = (address.astype(np.uint64) >> np.uint64(4)) | np.uint64(high)
        return (Tile(bits.view(np.int64)),)

    return apply


@lru_cache(maxsize=4096)
def operand_places(descriptor: int, outer: int, depth: int, size: int, mn_major: bool) -> Indices:
    """Byte addresses of an operand's elements: [outer, depth].

    With k contiguous, rows of the span, groups of eight `stride` apart; without swizzle chunks of
    16 bytes of k are `leading` apart. Else spans of m or n `leading` apart, groups of eight k
    `stride` apart; without swizzle the two change roles.
    """
    start = (descriptor & 0x3FFF) << 4
    leading, stride = (descriptor >> 16 & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    span = SPANS[descriptor >> 62 & 3]
    mn, k = np.arange(outer)[:, None], np.arange(depth)[None, :]
    if not mn_major:
        byte = k * size
        linear = mn % 8 * span + mn // 8 * stride
        linear = linear + (byte if span > 16 else byte // 16 * leading + byte % 16)
    else:
        byte = mn * size
        apart = (leading, stride) if span > 16 else (stride, leading)
        linear = byte % span + byte // span * apart[0] + k % 8 * span + k // 8 * apart[1]
    address = start + linear
    return exchange_chunks(address, span) if span > 16 else address


@lru_cache(maxsize=4096)
def operand_cells(
    descriptor: int, outer: int, depth: int, size: int, mn_major: bool, cell_bytes: int
) -> Indices:
    """The cells of shared memory that an operand lies in."""
    places = operand_places(descriptor, outer, depth, size, mn_major) - SHARED_BASE
    return np.unique(places // cell_bytes)


# The engine of a warpgroup


@dataclass(slots=True, eq=False)
class Accumulator:
    """A value of type `pending` in one warp. data: (registers, lanes), as its product leaves it."""

    data: Any
    poison: Mask
    product: Product | None = None


@dataclass(slots=True)
class _Part:
    """What one warp of the group gave to a product."""

    warp: Warp
    lhs: Tile | int
    rhs: int
    acc: Accumulator
    accumulate: bool
    clock: Clock


@dataclass(slots=True, eq=False)
class Product(Flight):
    """One instruction of a warpgroup. It may happen once all four warps have issued it."""

    number: int = 0
    parts: dict[int, _Part] = field(default_factory=dict[int, "_Part"])


@dataclass(slots=True, eq=False)
class Engine:
    """The products of one warpgroup, which happen in the order of their issue."""

    agent: int
    products: dict[int, Product] = field(default_factory=dict[int, Product])
    line: list[Product] = field(default_factory=list[Product])
    queue: Queue = field(default_factory=Queue)


@dataclass(slots=True, eq=False)
class Issued:
    """What a warp has issued: how many products; those since the last commit; the groups.

    lent: by the slot of a fragment, the product that may still read its registers.
    """

    count: int = 0
    open: list[Product] = field(default_factory=list[Product])
    groups: list[tuple[list[Product], dict[int, Op]]] = field(default_factory=list[Any])
    lent: dict[int, Op] = field(default_factory=dict[int, Op])
    lent_open: dict[int, Op] = field(default_factory=dict[int, Op])


def issued_of(warp: Warp) -> Issued:
    """What a warp has issued."""
    if warp.products is None:
        warp.products = Issued()
    return warp.products


def _engine_of(warp: Warp) -> Engine:
    group = warp.index // QUARTERS
    home = warp.home
    if group not in home.engines:
        home.engines[group] = Engine(warp.simt.agents.engine(home.rank, warp.index))
    return home.engines[group]


def _make_open(op: Op, plan: Plan[Block]) -> Apply[Block]:
    kind = tile_type(op.results[0].type)
    shape = register_count(kind), LANES

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        data = np.zeros(shape, kind.dtype.carrier)
        return (Accumulator(data, np.ones(shape, np.bool_)),)

    return apply


def _make_fence(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        warp.fences += 1
        return ()

    return apply


def _make_multiply(op: Op, plan: Plan[Block]) -> Apply[Block]:
    form = _form_of(op)
    lhs_slot, acc_slot = (plan.slot(v) for v in (op.operands[0], op.operands[2]))
    lent_slot = plan.slot(in_registers(op.operands[0]))
    watched = [
        slot
        for slot, value in ((lhs_slot, op.operands[0]), (acc_slot, op.operands[2]))
        if isinstance(value.type, TileType) and value.type.size > 1
    ]
    gives = isinstance(op.operands[2].type, TileType)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        lhs, rhs, acc, accumulate = values
        _check_fenced(warp, op, watched)
        flag = not form.fresh
        if accumulate is not None:
            flag = bool(warp.one(accumulate, "`accumulate`"))
        if gives:
            warp.taken[acc_slot] = op
            acc = _accumulator(acc)
        issued = issued_of(warp)
        left: Tile | int
        if form.lent:
            left = lhs
            issued.lent_open[lent_slot] = issued.lent[lent_slot] = op
        else:
            left = warp.one(lhs, "a descriptor")
        part = _Part(
            warp, left, warp.one(rhs, "a descriptor"), acc, flag, warp.knowledge.release(warp.mask)
        )
        result = Accumulator(acc.data, acc.poison)
        result.product = _issue(warp, op, form, part)
        return (result,)

    return apply


def _accumulator(tile: Tile) -> Accumulator:
    shape = (tile.data.shape[0], LANES)
    poison = np.zeros(shape, np.bool_)
    if tile.poison is not None:
        poison |= tile.poison
    return Accumulator(np.broadcast_to(tile.data, shape).copy(), poison)


def _check_fenced(warp: Warp, op: Op, watched: list[int]) -> None:
    """Registers that the warp wrote itself need a fence before a product uses them."""
    unfenced = [slot for slot in watched if warp.stamps.get(slot, -1) >= warp.fences]
    if not warp.fences or unfenced:
        warp.fault(
            "simt.fence_products",
            "no `fence_products` stands between what wrote these registers and the product",
            hint="put one before the first product that uses them",
            op=op,
        )


def _issue(warp: Warp, op: Op, form: _Form, part: _Part) -> Product:
    engine, issued = _engine_of(warp), issued_of(warp)
    number = issued.count
    issued.count += 1
    product = engine.products.get(number)
    if product is None:
        product = engine.products[number] = Product(warp, op, [], engine.queue, number=number)
    if product.op is not op:
        warp.fault(
            "simt.products_differ",
            f"warps of one warpgroup issue different products: this, and that of line "
            f"{product.op.span.line}",
            hint="the four warps of a warpgroup come along together",
        )
    product.parts[warp.index % QUARTERS] = part
    issued.open.append(product)
    if len(product.parts) == QUARTERS:
        _start(warp, engine, product, form)
    return product


def _start(warp: Warp, engine: Engine, product: Product, form: _Form) -> None:
    """All four warps have come: look at what the product reads, and put it in line."""
    parts = list(product.parts.values())
    for part in parts[1:]:
        same = part.rhs == parts[0].rhs and (form.lent or part.lhs == parts[0].lhs)
        if not same or part.accumulate != parts[0].accumulate:
            part.warp.fault(
                "simt.products_differ", "the warps of a warpgroup give a product different operands"
            )
    size = form.dtype.storage.itemsize
    operands = [form.rhs_operand(parts[0].rhs)]
    if isinstance(parts[0].lhs, int):
        operands.append(form.lhs_operand(parts[0].lhs))
    places = [operand_places(*operand) - SHARED_BASE for operand in operands]
    for place in places:
        low, high = int(place.min()), int(place.max()) + size
        if low < 0 or high > warp.home.shared.data.size:
            warp.fault(
                "simt.shared_bounds",
                f"an operand reaches from byte {low} to {high} of the "
                f"{warp.home.shared.data.size} of shared memory",
            )
    if warp.simt.checks:
        cell_bytes = warp.home.shadow.cell_bytes
        cells = [operand_cells(*operand, cell_bytes) for operand in operands]
        _touch(warp, engine, product, parts, np.concatenate(cells))
    product.stages.append(lambda: _multiply(warp.home, form, product, places))

    def follow() -> None:
        engine.line.pop(0)
        engine.products.pop(product.number)
        if engine.line:
            warp.simt.fly(engine.line[0])

    product.then.append(follow)
    engine.line.append(product)
    if len(engine.line) == 1:
        warp.simt.fly(product)


def _touch(
    warp: Warp, engine: Engine, product: Product, parts: list[_Part], cells: Indices
) -> None:
    """What all four warps know must say that the operands are there."""
    clock = parts[0].clock.copy()
    for part in parts[1:]:
        clock.meet(part.clock)
    shadow = warp.home.shadow
    origin = warp.simt.origin(product.op, warp, True, True)
    nobody = np.zeros(cells.size, np.int64)
    visit = Visit(
        clock,
        cells,
        nobody,
        np.full(cells.size, engine.agent),
        product.number + 1,
        engine.agent,
        origin,
    )
    warp.simt.accesses += 1
    try:
        shadow.read(visit, True)
    except Raced as race:
        warp.raced(race)


# What is computed


@dataclass(frozen=True, slots=True)
class _Form:
    """One instruction: what it multiplies."""

    dtype: DType
    result: TileType
    rows: int
    columns: int
    depth: int
    lent: bool
    lhs_offset: int
    rhs_offset: int
    fresh: bool
    transpose_lhs: bool
    transpose_rhs: bool

    def rhs_operand(self, descriptor: int) -> tuple[int, int, int, int, bool]:
        """The right operand, [n, k], as `operand_places` asks for it."""
        moved = (descriptor + (self.rhs_offset >> 4)) & (1 << 64) - 1
        return moved, self.columns, self.depth, self.dtype.storage.itemsize, self.transpose_rhs

    def lhs_operand(self, descriptor: int) -> tuple[int, int, int, int, bool]:
        """The left operand, [64, k], as `operand_places` asks for it."""
        moved = (descriptor + (self.lhs_offset >> 4)) & (1 << 64) - 1
        return moved, 64, self.depth, self.dtype.storage.itemsize, self.transpose_lhs


def _form_of(op: Op) -> _Form:
    kind = tile_type(op.results[0].type)
    given = op.attributes
    dtype = DTYPES[str(given["dtype"])]
    lhs = op.operands[0].type
    assert isinstance(lhs, TileType)

    def integer(name: str) -> int:
        found = given.get(name, 0)
        assert isinstance(found, int)
        return found

    return _Form(
        dtype,
        kind,
        integer("rows"),
        kind.shape[1],
        256 // dtype.bits,
        lhs.size > 1,
        integer("lhs_offset"),
        integer("rhs_offset"),
        bool(given.get("fresh")),
        bool(given.get("transpose_lhs")),
        bool(given.get("transpose_rhs")),
    )


@lru_cache(maxsize=256)
def _accumulator_places(layout: str, quarter: int, rows: int) -> tuple[Indices, Indices, Indices]:
    """Of a warp's registers those of 64 rows: (register numbers, rows from `rows` on, columns)."""
    kind = element_table(layout, quarter)
    shape = layout_of(layout).shape
    row, column = kind // shape[1], kind % shape[1]
    mine = np.flatnonzero((row[:, 0] >= rows) & (row[:, 0] < rows + 64))
    return mine, row[mine] - rows, column[mine]


@lru_cache(maxsize=64)
def _lent_places(depth: int, bits: int) -> tuple[Indices, Indices]:
    """Rows (of 16) and columns of the registers of a left operand, (registers, lanes)."""
    each = 32 // bits
    count = 16 * depth // LANES
    register, lane = np.meshgrid(np.arange(count), np.arange(LANES), indexing="ij")
    word, within = register // each, register % each
    return lane // 4 + 8 * (word % 2), lane % 4 * each + within + 4 * each * (word // 2)


def _multiply(home: Home, form: _Form, product: Product, places: list[Indices]) -> None:
    """Compute 64 rows: the sum in f64, rounded once to the accumulator's type."""
    right, right_poison = _fetch(home, places[0], form.dtype)
    left, left_poison = None, None
    if len(places) > 1:
        left, left_poison = _fetch(home, places[1], form.dtype)
    for quarter, part in product.parts.items():
        if left is None:
            mine, mine_poison = _lent(part.lhs, form)
        else:
            rows = slice(16 * quarter, 16 * quarter + 16)
            mine = left[rows]
            mine_poison = None if left_poison is None else left_poison[rows]
        total = mine @ right.T
        registers, row, column = _accumulator_places(form.result.layout, quarter, form.rows)
        found = total[row - 16 * quarter, column]
        acc = part.acc
        if part.accumulate:
            found = found + acc.data[registers].astype(np.float64)
        acc.data[registers] = _rounded(found, form.result.dtype)
        bad: Any = np.zeros(found.shape, np.bool_)
        if mine_poison is not None:
            bad |= np.asarray(mine_poison.any(axis=1))[row - 16 * quarter]
        if right_poison is not None:
            bad |= np.asarray(right_poison.any(axis=1))[column]
        if part.accumulate:
            bad |= acc.poison[registers]
        acc.poison[registers] = bad


def _rounded(values: Any, dtype: DType) -> Any:
    if dtype.is_int:
        return values.astype(np.int64).astype(np.int32)
    return convert(values, F64, dtype)


def _fetch(home: Home, places: Indices, dtype: DType) -> tuple[Any, Mask | None]:
    size = dtype.storage.itemsize
    units = home.shared.units(dtype.storage, 0)[places // size]
    values = decode(units, dtype).astype(np.float64)
    state = home.shared.state
    assert state is not None
    bad = state[places] != 0
    return values, bad if bad.any() else None


def _lent(lhs: Tile | int, form: _Form) -> tuple[Any, Mask | None]:
    assert isinstance(lhs, Tile)
    rows, columns = _lent_places(form.depth, form.dtype.bits)
    registers = slice(form.lhs_offset, form.lhs_offset + len(rows))
    whole = np.zeros((16, form.depth))
    data = np.broadcast_to(lhs.data, (lhs.data.shape[0], LANES))[registers]
    whole[rows, columns] = data.astype(np.float64)
    if lhs.poison is None:
        return whole, None
    bad = np.zeros(whole.shape, np.bool_)
    bad[rows, columns] = np.broadcast_to(lhs.poison, (lhs.data.shape[0], LANES))[registers]
    return whole, bad


def _make_commit(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        issued = issued_of(warp)
        issued.groups.append((issued.open, issued.lent_open))
        issued.open, issued.lent_open = [], {}
        return ()

    return apply


def wait_products(warp: Warp, step: Step[Block]) -> Control:
    """Wait for groups; give the accumulators asked for."""
    op, issued, engine = step.op, issued_of(warp), _engine_of(warp)
    warp.together(op.name)
    in_flight = op.attributes.get("in_flight", 0)
    assert isinstance(in_flight, int)
    end = max(0, len(issued.groups) - in_flight)
    left = [p for group, _ in issued.groups[end:] for p in group] + issued.open
    pending: list[Accumulator] = [warp.env[s] for s in step.inputs]
    for value, operand in zip(pending, op.operands, strict=True):
        if value.product is not None and any(value.product is p for p in left):
            warp.fault(
                "simt.product_unfinished",
                f"%{operand.name} is among what stays in flight, or was not committed",
                hint="wait for fewer to remain, or take it later",
                op=op,
            )
    newest = 0
    for group, _ in issued.groups[:end]:
        for product in group:
            wait = Wait(op, engine.queue, lambda p=product: _what(p))
            while not (product.is_done and len(product.parts) == QUARTERS):
                yield wait
            newest = max(newest, product.number + 1)
    for _, lent in issued.groups[:end]:
        for key, given in lent.items():
            if issued.lent.get(key) is given:
                del issued.lent[key]
    del issued.groups[:end]
    if newest:
        clock = Clock.nothing(warp.simt.agents)
        clock.rows[DONE, engine.agent] = newest
        warp.knowledge.acquire(warp.mask, clock)
    for slot, value in zip(step.outputs, pending, strict=True):
        bad = value.poison
        warp.env[slot] = Tile(value.data, bad.copy() if bad.any() else None)
    return None


def _what(product: Product) -> str:
    if len(product.parts) < QUARTERS:
        return (
            f"the product of line {product.op.span.line}, which {len(product.parts)} of the 4 "
            "warps have issued"
        )
    return f"the product of line {product.op.span.line}"


# Products of warps


def _make_mmaf(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """Each warp multiplies what it holds; k in steps of the instruction, one rounding for each."""
    kinds = [tile_type(v.type) for v in op.operands]
    result = tile_type(op.results[0].type)
    step = 256 // kinds[0].dtype.bits
    signs = [op.attributes.get(f"signedness_{side}") for side in ("lhs", "rhs")]

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        (a, bad_a), (b, bad_b) = (
            dense(v, k, warp.index) for v, k in zip(values[:2], kinds[:2], strict=True)
        )
        table = element_table(result.layout, warp.index)
        row, column = table // result.shape[1], table % result.shape[1]
        _check_held(warp, op, row, column)
        rows, columns = np.unique(row), np.unique(column)
        total, _ = dense(values[2], kinds[2], warp.index)
        wide = total[np.ix_(rows, columns)].astype(np.float64)
        left, right = (
            _numbers(values, sign)
            for values, sign in zip((a[rows], b[:, columns]), signs, strict=True)
        )
        for k in range(0, left.shape[1], step):
            product = left[:, k : k + step] @ right[k : k + step]
            wide = np.asarray(_rounded(product + wide, result.dtype)).astype(np.float64)
        at = np.searchsorted(rows, row), np.searchsorted(columns, column)
        data = wide[at].astype(result.dtype.carrier)
        poison: Any = None
        if bad_a is not None or bad_b is not None or values[2].poison is not None:
            poison = np.zeros(data.shape, np.bool_)
            if values[2].poison is not None:
                poison |= values[2].poison
            if bad_a is not None:
                poison |= np.asarray(bad_a.any(axis=1))[row]
            if bad_b is not None:
                poison |= np.asarray(bad_b.any(axis=0))[column]
            poison = poison if poison.any() else None
        return (Tile(data, poison),)

    return apply


def _numbers(values: Any, sign: object) -> Any:
    """Operands as f64; integers are held with a sign."""
    wide = np.asarray(values, np.float64)
    if sign == "unsigned":
        wide = np.where(wide < 0, wide + 2.0 ** (8 * values.dtype.itemsize), wide)
    return wide


def _check_held(warp: Warp, op: Op, row: Indices, column: Indices) -> None:
    """A warp must hold all rows and columns that meet in its accumulators."""
    key = op, warp.index % 32
    if key in _HELD:
        return
    for port, axis, needed in ((0, 0, row), (1, 1, column)):
        kind = tile_type(op.operands[port].type)
        table = element_table(kind.layout, warp.index)
        held = np.unique(table[table >= 0])
        other = kind.shape[1 - axis]
        wanted = np.unique(needed)
        flat = (
            wanted[:, None] * kind.shape[1] + np.arange(other)
            if axis == 0
            else np.arange(other)[:, None] * kind.shape[1] + wanted
        )
        if not np.isin(flat, held).all():
            warp.fault("simt.moves", "a warp does not hold what its product needs", op=op)
    _HELD.add(key)


_HELD: set[tuple[Op, int]] = set()

PRODUCTS: dict[str, Maker[Block]] = {
    "open_accumulator": _make_open,
    "fence_products": _make_fence,
    "matrix_descriptor": _make_descriptor,
    "multiply_async": _make_multiply,
    "commit_products": _make_commit,
    "mmaf": _make_mmaf,
    "mmai": _make_mmaf,
}
"""How to run each of these operations."""


def watched_slots(plan: Plan[Block], ops: Sequence[Op]) -> set[int]:
    """Slots of the fragments that products read or accumulate in."""
    found: set[Value] = set()
    for op in ops:
        if op.name == "multiply_async":
            found.update(
                v for v in (op.operands[0], op.operands[2]) if isinstance(v.type, TileType)
            )
    return {plan.slot(v) for v in found if v.type.size > 1}  # type: ignore[union-attr]
