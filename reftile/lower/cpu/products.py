"""Matrix products: calls of BLAS on tiles where they lie, or loops.

An operand is passed where it is, by its strides, if it lies in memory in the type in which the
product is computed and has one stride of 1; else it is brought to scratch memory, converted once.
The accumulator lies in scratch memory and is added to in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from reftile.ir.core import Block, Op, Value
from reftile.ir.dtypes import DTYPES, F64
from reftile.ir.types import TileType
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.formats import rounded, rounded_single
from reftile.lower.cpu.loads import ViewLoad
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import (
    Buffer,
    Held,
    Index,
    Literal_,
    Loops,
    Map,
    Moved,
    Piecewise,
    Tile,
    row_major,
    size_of,
)

LARGEST_SIZE = (1 << 31) - 1
"""Extents and strides, in elements, that BLAS takes at most."""


@dataclass(slots=True)
class Matrix:
    """A stack of matrices in memory: an address, and strides in elements, as texts."""

    address: str
    strides: tuple[str, ...]

    def plus(self, index: Index, size: int) -> str:
        """The address of one matrix of the stack."""
        terms = [
            f"{i} * {s} * {size}" for i, s in zip(index, self.strides, strict=False) if i != "0"
        ]
        return " + ".join([self.address, *terms])


def mmaf(b: Builder, op: Op, block: Block) -> None:
    """A product of floats."""
    acc_value = op.operands[3] if op.name == "mmaf_sparse" else op.operands[2]
    result = op.results[0].type
    assert isinstance(result, TileType)
    lhs, rhs, kind = _factors(b, op)
    narrow = result.dtype
    acc = b.tile(acc_value)
    if b.blas:
        left, right = place(b, op, lhs, kind), place(b, op, rhs, kind)
    else:
        left = right = None
        lhs, rhs = in_scratch(b, lhs, kind), in_scratch(b, rhs, kind)
    buffer = _accumulator(b, op, acc_value, acc, kind, block, lhs, rhs)
    if left is not None and right is not None:
        _call(b, buffer, left, right, lhs.shape, rhs.shape[-1], kind)
    else:
        _loop(b, buffer, lhs, rhs, "muladd({a}, {b}, {c})")
    if narrow.bits == (64 if kind == "f64" else 32):
        b.placed(op.results[0], buffer, block)
        return

    def write(x: str) -> str:
        return rounded(x, narrow) if kind == "f64" else rounded_single(x, narrow)

    wide = Held(Literal_(result.shape, DTYPES[kind], "?"), 0)
    wide.tile, wide.buffer = None, buffer
    b.define(op.results[0], Map(result.shape, narrow, write, [wide], 2), block)


def _factors(b: Builder, op: Op) -> tuple[Tile, Tile, str]:
    """Both operands, and the type in which they are multiplied."""
    result = op.results[0].type
    assert isinstance(result, TileType)
    if op.name == "mmaf_sparse":
        kept, metadata, rhs = (b.tile(v) for v in op.operands[:3])
        return _expand(kept, metadata), rhs, "f32"
    lhs, rhs = (b.tile(v) for v in op.operands[:2])
    if op.name == "mmaf_scaled":
        left, right = (b.tile(v) for v in op.operands[3:5])
        # Products with scales are exact in f64.
        return _scaled(lhs, left, -1), _scaled(rhs, right, -2), "f64"
    return lhs, rhs, "f64" if F64 in (lhs.element, result.dtype) else "f32"


def _scaled(source: Tile, scale: Tile, axis: int) -> Tile:
    axis += len(source.shape)
    size = source.shape[axis] // scale.shape[axis]

    def write(index: Index, nest: Loops) -> str:
        at = nest.temp(f"udiv_by(i64({index[axis]}), i64({size}))")
        factor = scale.at((*index[:axis], at, *index[axis + 1 :]), nest)
        return nest.temp(f"mulf(widen({source.at(index, nest)}), widen({factor}))")

    return Piecewise(source.shape, F64, write, [source, scale], 4)


def _expand(kept: Tile, metadata: Tile) -> Tile:
    """The matrix of which two elements in four are kept."""
    shape = (*kept.shape[:-1], kept.shape[-1] * 2)

    def write(index: Index, nest: Loops) -> str:
        column = nest.temp(f"i64({index[-1]})")
        group = nest.temp(f"udiv_by({column}, i64(4))")
        place_in = nest.temp(f"urem_by({column}, i64(4))")
        # A byte of metadata holds the places of two groups, low half first.
        byte = metadata.at((*index[:-1], nest.temp(f"udiv_by({group}, i64(2))")), nest)
        amount = f"shl(urem_by({group}, i64(2)), i64(2))"
        code = nest.temp(f"andi(lshr(i64_of_unsigned({byte}), {amount}), i64(15))")
        first, second = nest.temp(f"andi({code}, i64(3))"), nest.temp(f"lshr({code}, i64(2))")
        low = kept.at((*index[:-1], nest.temp(f"{group} * 2")), nest)
        high = kept.at((*index[:-1], nest.temp(f"{group} * 2 + 1")), nest)
        zero = "f32(0.0)"
        # Where both name one place the second is what stays.
        text = f"choose(ieq({place_in}, {first}), {low}, {zero})"
        return nest.temp(f"choose(ieq({place_in}, {second}), {high}, {text})")

    return Piecewise(shape, kept.element, write, [kept, metadata], 8)


# Where operands lie


def place(b: Builder, op: Op, tile: Tile, kind: str) -> Matrix:
    """An operand in memory, in the type of the product."""
    if isinstance(tile, Moved) and tile.order is not None:
        order = tile.order
        swapped = order[:-2] == tuple(range(len(order) - 2))
        if swapped and len(order) >= 2:
            inner = place(b, op, tile.source, kind)
            return Matrix(inner.address, tuple(inner.strides[a] for a in order))
    load = tile.tile if isinstance(tile, Held) else None
    if isinstance(tile, Held) and isinstance(load, Moved) and tile.left <= 1 and load.order:
        return place(b, op, load, kind)
    if isinstance(load, ViewLoad) and load.element is DTYPES[kind] and _is_flat(load):
        return _view_matrix(b, load, kind)
    held = in_scratch(b, tile, kind)
    assert isinstance(held, Held) and held.buffer is not None
    strides = tuple(str(s) for s in row_major(held.shape))
    return Matrix(_address(b, held.buffer), strides)


def in_scratch(b: Builder, tile: Tile, kind: str) -> Tile:
    """The tile in scratch memory, in the type of the product."""
    if isinstance(tile, Held) and tile.kind == kind:
        if tile.buffer is None and not tile.variable:
            b.hold(tile, b.buffer(tile.shape, kind, tile) if tile.size == 1 else None)
        if tile.buffer is not None:
            return tile
    source = tile
    if tile.kind != kind:
        source = Map(tile.shape, DTYPES[kind], _widened, [tile])
    found = Held(source, 0)
    found.buffer = b.buffer(tile.shape, kind, last=b.frames[-1].position)
    b.store_into(source, found.buffer)
    found.tile = None
    return found


def _widened(text: str) -> str:
    return f"widen({text})"


def _address(b: Builder, buffer: Buffer) -> str:
    return b.scalar(f"address_of({buffer.base})", "p")


def _is_flat(load: ViewLoad) -> bool:
    """Whether a tile of a view has matrices with one stride of 1."""
    view = load.window.view
    return view.sparse < 0 and "1" in view.strides[-2:] and len(view.strides) >= 2


def _view_matrix(b: Builder, load: ViewLoad, kind: str) -> Matrix:
    """A tile of a view, where it lies if it lies inside; else a padded copy."""
    found = load.window
    view = found.view
    size = size_of(kind)
    rank = len(load.shape)
    nest = Nest(b, ())
    start = found.offset(("0",) * rank, nest, size)
    here = f"address_of({view.tensor.base}) + {start}"
    strides = view.strides
    columns = load.shape[-1] if strides[-1] == "1" else load.shape[-2]
    lead = strides[-2] if strides[-1] == "1" else strides[-1]
    conditions = [found.inside] if found.inside else []
    if not (lead.isdigit() and columns <= int(lead) <= LARGEST_SIZE):
        conditions += [f"{lead} >= {columns}", f"{lead} <= {LARGEST_SIZE}"]
    nest.write()
    if not conditions:
        return Matrix(b.scalar(here, "p"), strides)
    address = b.name("p")
    names = tuple(b.name("n") for _ in strides)
    buffer = b.buffer(load.shape, kind, last=b.frames[-1].position)
    by_columns = strides[-1] != "1"
    b.line(f"if {' and '.join(conditions)}:")
    with b.indented():
        b.line(f"{address} = {here}")
        for name, stride in zip(names, strides, strict=True):
            b.line(f"{name} = i64({stride})")
    b.line("else:")
    with b.indented():
        dense = row_major(load.shape)
        if by_columns:
            # The copy keeps its columns contiguous, since the call says so.
            dense = (*dense[:-2], 1, load.shape[-2])
        _copy_padded(b, load, buffer, dense)
        b.line(f"{address} = address_of({buffer.base})")
        for name, stride in zip(names, dense, strict=True):
            b.line(f"{name} = i64({stride})")
    marked = tuple(
        "1" if s == "1" and axis >= rank - 2 else n
        for axis, (s, n) in enumerate(zip(strides, names, strict=True))
    )
    return Matrix(address, marked)


def _copy_padded(b: Builder, load: ViewLoad, buffer: Buffer, strides: tuple[int, ...]) -> None:
    nest = Nest(b, load.shape)
    nest.gather([load])
    text = load.at(nest.index, nest)
    size = size_of(buffer.kind)
    terms = [f"{i} * {s * size}" for i, s in zip(nest.index, strides, strict=True) if i != "0"]
    store = b.access("storer", buffer.kind, buffer.scope)
    nest.do(f"{store}({buffer.base}, {' + '.join(terms) or '0'}, {text})")
    nest.write()


# The accumulator


def _accumulator(
    b: Builder,
    op: Op,
    value: Value,
    acc: Tile,
    kind: str,
    block: Block,
    *factors: Tile,
) -> Buffer:
    """The accumulator in scratch memory, where the result may replace it."""
    result = b.held(Literal_(acc.shape, DTYPES[kind], "?"), op.results[0], block)
    read = {id(f.buffer) for f in factors if isinstance(f, Held)}
    old = dying(b, acc, block)
    if old is not None and id(old) not in read and acc.kind == kind:
        if not (isinstance(acc, Held) and acc.buffer is old):
            b.store_into(acc, old)
        b.extend(old, result)
        return old
    buffer = b.buffer(acc.shape, kind, result)
    source = acc
    if acc.kind != kind:
        source = Map(acc.shape, DTYPES[kind], _widened, [acc])
    b.store_into(source, buffer)
    return buffer


def dying(b: Builder, tile: Tile, block: Block) -> Buffer | None:
    """A buffer that `tile` is, or is computed from place by place, and nothing reads later."""
    position = b.frames[-1].position
    found: dict[int, tuple[Held, str]] = {}

    def visit(part: Tile, reach: str) -> bool:
        if isinstance(part, Held) and part.is_there:
            if part.buffer is not None:
                before = found.get(id(part.buffer))
                worst = reach if before is None or before[1] == "same" else before[1]
                found[id(part.buffer)] = (part, worst)
            return True
        if isinstance(part, Held) and part.left > 1:
            return False
        ways = [visit(p, reach if how == "same" else how) for p, how in part.parts()]
        return all(ways)

    if not visit(tile, "same"):
        return None
    for held, reach in found.values():
        ends = held.block is block and held.last <= position
        same = held.shape == tile.shape and held.kind == tile.kind
        if ends and same and reach == "same" and held.buffer is not None:
            return held.buffer
    return None


# The product


def _call(
    b: Builder,
    acc: Buffer,
    lhs: Matrix,
    rhs: Matrix,
    shape: tuple[int, ...],
    columns: int,
    kind: str,
) -> None:
    """Add the product of two stacks to the accumulator."""
    *batch, m, k = shape
    size = size_of(kind)
    nest = Nest(b, tuple(batch))
    out = Matrix(_address(b, acc), tuple(str(s) for s in row_major((*batch, m, columns))))
    function = "sgemm" if kind == "f32" else "dgemm"
    flags: list[str] = []
    leads: list[str] = []
    for matrix, height, width in ((lhs, m, k), (rhs, k, columns)):
        by_rows = matrix.strides[-1] == "1"
        flags.append(str(not by_rows))
        lead = matrix.strides[-2] if by_rows else matrix.strides[-1]
        # Of a matrix of one row the stride may be anything, and BLAS wants it not too small.
        least = width if by_rows else height
        leads.append(str(least) if lead.isdigit() and int(lead) < least else lead)
    places = [x.plus(nest.index, size) for x in (lhs, rhs, out)]
    arguments = [
        f"blas_{function}",
        *flags,
        f"i64({m})",
        f"i64({columns})",
        f"i64({k})",
        places[0],
        f"i64({leads[0]})",
        places[1],
        f"i64({leads[1]})",
        places[2],
        f"i64({columns})",
    ]
    nest.do(f"{function}({', '.join(arguments)})")
    nest.write()


def _loop(b: Builder, acc: Buffer, lhs: Tile, rhs: Tile, step: str) -> None:
    *batch, m, k = lhs.shape
    n = rhs.shape[-1]
    nest = Nest(b, (*batch, m, k, n))
    nest.gather([lhs, rhs], keeps=False, whole=False)
    *outer, i, between, j = nest.index
    left, right = lhs.at((*outer, i, between), nest), rhs.at((*outer, between, j), nest)
    load = b.access("loader", acc.kind, acc.scope)
    store = b.access("storer", acc.kind, acc.scope)
    at = acc.place((*outer, i, j))
    old = nest.once(f"{load}({acc.base}, {at})")
    new = nest.once(step.format(a=left, b=right, c=old))
    nest.do(f"{store}({acc.base}, {at}, {new})")
    nest.write()


def mmai(b: Builder, op: Op, block: Block) -> None:
    """A product of integers of at most 8 bits, wrapping in 32."""
    wide: list[Tile] = []
    for value, port in zip(op.operands[:2], ("lhs", "rhs"), strict=True):
        source = b.tile(value)
        signedness = str(op.attributes[f"signedness_{port}"])
        is_nibble = source.dtype.bits == 4 and signedness == "unsigned"

        def write(x: str, signedness: str = signedness, is_nibble: bool = is_nibble) -> str:
            return f"i32_of_{signedness}({f'andi({x}, i8(15))' if is_nibble else x})"

        tile = Map(source.shape, DTYPES["i32"], write, [source])
        wide.append(in_scratch_of(b, tile))
    buffer = _accumulator(b, op, op.operands[2], b.tile(op.operands[2]), "i32", block, *wide)
    _loop(b, buffer, wide[0], wide[1], "addi(muli({a}, {b}), {c})")
    b.placed(op.results[0], buffer, block)


def in_scratch_of(b: Builder, tile: Tile) -> Tile:
    """A tile computed into scratch memory for the current operation."""
    found = Held(tile, 0)
    found.buffer = b.buffer(tile.shape, tile.kind, last=b.frames[-1].position)
    b.store_into(tile, found.buffer)
    found.tile = None
    return found
