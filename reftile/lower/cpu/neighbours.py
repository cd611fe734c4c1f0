"""The products of neighbouring blocks as one.

Neighbours along x of a matrix product read rows of tiles one below the other (or columns side by
side) and the same column (or row). BLAS packs both operands anew for each call, so calls of small
tiles are slow. Here the first block of a run of neighbours computes the products of all of them,
and each block adds its own to its accumulator. A run has `run` blocks, begins at a multiple of that
many, and stays in one chunk of one thread: the launch chooses `run` so that it depends on the grid
and the machine alone, and with it the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reftile.ir.core import Block, Op, Value
from reftile.lower.cpu.builder import Builder, may_alias, target_of
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import Buffer, Root, size_of

RUN_BYTES = 1 << 20
"""The products of a run take at most this much, which the second level of caches holds."""
RUN_EXTENT = 1024
"""Rows, or columns, of a run at most: more make BLAS no faster."""


@dataclass(frozen=True, slots=True)
class Call:
    """The texts of what one block multiplies.

    a, b: addresses. leads: rows of a and of b, in elements. shape: rows, columns, and the length of
    the sums. room: how many tiles, from the block's on, lie inside along each axis.
    """

    a: str
    b: str
    leads: tuple[str, str]
    shape: tuple[int, int, str]
    room: tuple[str, str]

    def alone(self, kind: str, out: str) -> str:
        """The text of the call that adds one block's product to what is at an address."""
        m, n, _ = self.shape
        return self._text(kind, "", (str(m), str(n)), out)

    def together(self, kind: str, extents: tuple[str, str], out: str) -> str:
        """The text of the call that writes a product of more rows, or columns, to an address."""
        return self._text(kind, "_anew", extents, out)

    def _text(self, kind: str, how: str, extents: tuple[str, str], out: str) -> str:
        function = "sgemm" if kind == "f32" else "dgemm"
        rows, columns = extents
        sizes = f"i64({rows}), i64({columns}), {self.shape[2]}"
        operands = f"{self.a}, i64({self.leads[0]}), {self.b}, i64({self.leads[1]})"
        place = f"{out}, i64({columns})"
        return f"{function}{how}(blas_{function}, False, False, {sizes}, {operands}, {place})"


def axis_of_neighbours(
    b: Builder,
    loop: Op,
    indices: Sequence[Value],
    same: Sequence[Value],
    roots: Sequence[Root | None],
) -> int | None:
    """The index, of two, that is the block's number along x, if neighbours differ in it alone.

    same: what the product depends on besides its indices. roots: the memory of its operands,
    which the kernel must not write to.
    """
    body = b.frames[0].block
    if loop.parent is not body:
        return None
    for axis in (0, 1):
        if _is_number(indices[axis]):
            others = {indices[1 - axis], *same}
            is_shared = others <= _alike(body) and not _changes(b, body, roots)
            return axis if is_shared else None
    return None


def _is_number(value: Value) -> bool:
    """Whether a value is the block's number along x."""
    owner = value.owner
    return isinstance(owner, Op) and owner.name == "get_tile_block_id" and value is owner.results[0]


def _alike(body: Block) -> set[Value]:
    """The values of a kernel's body that are surely the same in neighbours."""
    found = set(body.arguments)
    for op in body.ops:
        if op.name == "get_tile_block_id":
            found.update(op.results[1:])
            continue
        is_pure = op.definition.is_pure or op.name.startswith("make_")
        if is_pure and not op.regions and found.issuperset(op.operands):
            found.update(op.results)
    return found


def _changes(b: Builder, body: Block, roots: Sequence[Root | None]) -> bool:
    """Whether memory may change between the products of neighbours."""
    for op in body.walk():
        match op.definition.effects:
            case "atomic" | "barrier":
                return True
            case "read":
                if op.attributes.get("ordering") != "weak":
                    return True
            case "write":
                written = b.root_of(target_of(op))
                if any(may_alias(written, root) for root in roots):
                    return True
            case _:
                pass
    return False


def write_shared(b: Builder, axis: int, call: Call, accumulator: Buffer) -> None:
    """Write the product of a run where this block is its first, and add this block's part.

    Where the launch has runs of one block, the product goes straight to the accumulator.
    """
    m, n, _ = call.shape
    size = size_of(accumulator.kind)
    most = min(RUN_BYTES // (m * n * size), RUN_EXTENT // (m, n)[axis])
    direct = b.scalar(f"address_of({accumulator.base})", "p")
    if most < 2:
        b.line(call.alone(accumulator.kind, direct))
        return
    b.share(most)
    b.line("if run == 1:")
    with b.indented():
        b.line(call.alone(accumulator.kind, direct))
    b.line("else:")
    with b.indented():
        space = b.lasting_slot(most * m * n * size)
        first, end = b.lasting_variable(), b.lasting_variable()
        b.line(f"if noti(block >= {first} and block < {end}):")
        with b.indented():
            left = b.scalar("run - urem_by(i64_of_signed(bx), run)", "n")
            count = b.scalar(f"smin({left}, {call.room[axis]})", "n")
            extents = (f"{count} * {m}", str(n)) if axis == 0 else (str(m), f"{count} * {n}")
            whole = b.scalar(f"address_of({space.base})", "p")
            b.line(call.together(accumulator.kind, extents, whole))
            b.line(f"{first} = block")
            b.line(f"{end} = block + {count}")
        mine = b.scalar(f"block - {first}", "n")
        row = str(n) if axis == 0 else b.scalar(f"({end} - {first}) * {n}", "n")
        start = b.scalar(f"{mine} * {m * n * size if axis == 0 else n * size}", "n")
        nest = Nest(b, (m, n))
        load = b.access("loader", accumulator.kind, space.scope)
        old = b.access("loader", accumulator.kind, accumulator.scope)
        store = b.access("storer", accumulator.kind, accumulator.scope)
        i, j = nest.index
        at = accumulator.place(nest.index)
        part = f"{load}({space.base}, {start} + ({i} * {row} + {j}) * {size})"
        nest.do(f"{store}({accumulator.base}, {at}, addf({old}({accumulator.base}, {at}), {part}))")
        nest.write()
