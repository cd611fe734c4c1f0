"""Loops and branches.

What a loop carries has one place for all iterations: a variable, or a buffer that the next
iteration's elements are written into. Where the new tile is computed from the old one place by
place, it replaces it there; else it is computed beside it and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reftile.ir.attributes import Dense
from reftile.ir.core import Block, Op, Value
from reftile.ir.types import PointerType, TileType
from reftile.lower.cpu.builder import Builder, Frame
from reftile.lower.cpu.hoist import find_product, write_product
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import Buffer, Held, Literal_, Root, Tile, kind_of
from reftile.lower.cpu.views import absolute

FEW_TURNS = 1024
"""A counted loop of fewer turns ends soon: it does not ask whether the launch is to stop."""
LOOKS = 32
"""How often a block looks for what it waits for before its thread lets others run; a power of two.
"""


class Places:
    """Where the values are that come out of a region, or go round in a loop."""

    def __init__(self, b: Builder, values: Sequence[Value], block: Block) -> None:
        self.b = b
        self.values = tuple(values)
        self.names: list[str] = []
        self.buffers: list[Buffer | None] = []
        self.roots: list[Root | None] = []
        for value in self.values:
            type = value.type
            name, buffer = "", None
            if isinstance(type, TileType):
                kind = kind_of(type.element)
                if type.size == 1:
                    name = b.name("c")
                else:
                    last = max(b.life(value, block), b.frames[-1].position)
                    buffer = b.buffer(type.shape, kind, last=last)
            self.names.append(name)
            self.buffers.append(buffer)
            self.roots.append(b.roots.get(value))

    def tiles(self, values: Sequence[Value]) -> list[Tile | None]:
        """The tiles of values that go into these places; None for tokens."""
        found: list[Tile | None] = []
        for value, root in zip(values, self.roots, strict=True):
            if not isinstance(value.type, TileType):
                found.append(None)
                continue
            tile = self.b.tile(value)
            is_pointer = isinstance(value.type.element, PointerType)
            found.append(absolute(tile) if is_pointer and root is None else tile)
        return found

    def assign(self, values: Sequence[Value]) -> None:
        """Write values into their places, all at once."""
        b = self.b
        tiles = self.tiles(values)
        mine = {id(x) for x in self.buffers if x is not None}
        copies: list[tuple[Tile, Buffer]] = []
        scalars: list[tuple[str, str]] = []
        for number, (tile, name, buffer) in enumerate(
            zip(tiles, self.names, self.buffers, strict=True)
        ):
            if tile is None:
                continue
            if name:
                text = _element(b, tile)
                if text != name:
                    scalars.append((name, text))
                continue
            assert buffer is not None
            if isinstance(tile, Held) and tile.buffer is buffer:
                continue
            later = [t for t in tiles[number + 1 :] if t is not None]
            earlier = [t for t, _ in copies]
            alone = not any(_reads(t, buffer) for t in [*later, *earlier])
            if alone and _reads_in_place(tile, buffer):
                b.store_into(tile, buffer)
                continue
            copies.append((_aside(b, tile, mine), buffer))
        for name, text in [(n, b.scalar(t, "w")) for n, t in scalars]:
            b.line(f"{name} = {text}")
        for tile, buffer in copies:
            b.store_into(tile, buffer)

    def define(self, values: Sequence[Value], block: Block) -> None:
        """The values are what stands in the places."""
        b = self.b
        for value, name, buffer, root in zip(
            values, self.names, self.buffers, self.roots, strict=True
        ):
            type = value.type
            if not isinstance(type, TileType):
                b.env[value] = None
                continue
            if buffer is not None:
                held = b.placed(value, buffer, block)
            else:
                held = b.held(Literal_(type.shape, type.element, name), value, block)
                held.variable, held.tile = name, None
                b.env[value] = held
            held.root = root


def _element(b: Builder, tile: Tile) -> str:
    """The text of the only element of a tile, computed before the current line."""
    nest = Nest(b, tile.shape)
    nest.gather([tile], whole=False)
    text = tile.at(nest.index, nest)
    nest.write()
    return text


def _aside(b: Builder, tile: Tile, mine: set[int]) -> Tile:
    """The tile in memory that is not one of the places themselves."""
    if isinstance(tile, Held) and not tile.is_there:
        b.hold(tile)
    if isinstance(tile, Held) and tile.buffer is not None and id(tile.buffer) not in mine:
        return tile
    if isinstance(tile, Literal_):
        return tile
    found = Held(tile, 0)
    found.buffer = b.buffer(tile.shape, tile.kind, last=b.frames[-1].position)
    b.store_into(tile, found.buffer)
    found.tile = None
    return found


def _leaves(tile: Tile, buffer: Buffer) -> list[str]:
    """How a tile reads a buffer."""
    found: list[str] = []
    seen: set[tuple[int, str]] = set()

    def visit(part: Tile, reach: str) -> None:
        if (id(part), reach) in seen:
            return
        seen.add((id(part), reach))
        if isinstance(part, Held) and part.buffer is buffer:
            found.append(reach if part.shape == buffer.shape else "moved")
        for inner, how in part.parts():
            visit(inner, reach if how == "same" else how)

    visit(tile, "same")
    return found


def _reads(tile: Tile, buffer: Buffer) -> bool:
    return bool(_leaves(tile, buffer))


def _reads_in_place(tile: Tile, buffer: Buffer) -> bool:
    return all(reach == "same" for reach in _leaves(tile, buffer))


class Control:
    """Writes control flow; `emit` writes the operations of a block but its last."""

    def __init__(self, b: Builder, emit: Callable[[Block], None]) -> None:
        self.b, self.emit = b, emit
        self.loops: list[tuple[Places, Places | None]] = []
        self.branches: list[Places] = []

    def region(self, block: Block) -> None:
        """Write a block, and what its terminator does."""
        b = self.b
        loads = list(b.loads)
        b.frames.append(Frame(block))
        self.emit(block)
        self.end(block.ops[-1])
        b.end_frame()
        b.loads = loads

    def end(self, op: Op) -> None:
        """What a terminator does."""
        b = self.b
        b.frames[-1].position = len(b.frames[-1].block.ops) - 1
        match op.name:
            case "yield":
                self.branches[-1].assign(op.operands)
            case "continue":
                self.loops[-1][0].assign(op.operands)
                b.line("continue")
            case "break":
                places = self.loops[-1][1]
                assert places is not None
                places.assign(op.operands)
                b.line("break")
            case _:
                b.leave()

    def run_if(self, op: Op, block: Block) -> None:
        """One of two regions."""
        b = self.b
        b.settle_captures(op)
        places = Places(b, op.results, block)
        self.branches.append(places)
        b.line(f"if {b.text(op.operands[0])}:")
        with b.indented():
            b.line("pass")
            self.region(op.regions[0].block)
        if len(op.regions) > 1:
            b.line("else:")
            with b.indented():
                b.line("pass")
                self.region(op.regions[1].block)
        self.branches.pop()
        places.define(op.results, block)

    def run_for(self, op: Op, block: Block) -> None:
        """A counted loop."""
        b = self.b
        b.settle_captures(op)
        unsigned = bool(op.attributes.get("unsigned_cmp"))
        read = "unsigned" if unsigned else "signed"
        lower, upper, step = (b.scalar(f"i64_of_{read}({b.text(v)})", "n") for v in op.operands[:3])
        is_wide = kind_of(op.operands[0].type.element) == "i64"  # type: ignore[attr-defined]
        wrong = "ieq" if unsigned and is_wide else "ile"
        b.fail_if(op, f"{wrong}({step}, i64(0))", "for.step")
        body = op.regions[0].block
        carried = self._enter(op.operands[3:], body.arguments[1:], op.results, block, op)
        product = find_product(b, op)
        buffer = carried.buffers[product.place] if product is not None else None
        limits = lower, upper, step
        turns = _turns(b, limits, unsigned) if is_wide else ""
        if product is None or buffer is None:
            self._count(op, carried, limits, turns)
        else:
            whole = write_product(b, op, product, buffer, limits)
            b.line(f"if noti({whole}):")
            with b.indented():
                self._count(op, carried, limits, turns)
        carried.define(op.results, block)

    def _count(self, op: Op, carried: Places, limits: tuple[str, str, str], turns: str) -> None:
        """Write the loop; turns: how many there are, if the counter may not go past its end."""
        b, body = self.b, op.regions[0].block
        counter = b.name("k")
        lower, _, step = limits
        b.line(f"for {counter} in range({turns or ', '.join(limits)}):")
        b.loop_depth += 1
        self.loops.append((carried, None))
        with b.indented():
            if (turns_of(op) or FEW_TURNS) >= FEW_TURNS:
                b.line("if stopped(params):")
                with b.indented():
                    b.leave()
            type = body.arguments[0].type
            assert isinstance(type, TileType)
            number = f"addi({lower}, muli({counter}, {step}))" if turns else counter
            name = b.scalar(f"{kind_of(type.element)}_of_signed({number})")
            b.env[body.arguments[0]] = Literal_((), type.element, name)
            b.frames.append(Frame(body))
            carried.define(body.arguments[1:], body)
            b.frames.pop()
            self.region(body)
        self.loops.pop()
        b.loop_depth -= 1
        b.after_loop()

    def run_loop(self, op: Op, block: Block) -> None:
        """A loop until it breaks; it stops too when the launch does."""
        b = self.b
        b.settle_captures(op)
        body = op.regions[0].block
        carried = self._enter(op.operands, body.arguments, (), block, op)
        results = Places(b, op.results, block)
        waits = any(_waits(inner) for inner in body.walk())
        looks = b.scalar("i64(0)", "looks") if waits else ""
        b.line("while True:")
        b.loop_depth += 1
        self.loops.append((carried, results))
        with b.indented():
            b.line("if stopped(params):")
            with b.indented():
                b.leave()
            if waits:
                # Who waits for another processor looks often; who waits for a thread of this one
                # must let it run.
                b.waits = True
                b.line(f"{looks} = {looks} + 1")
                b.line(f"if ieq(andi({looks}, {LOOKS - 1}), 0):")
                with b.indented():
                    b.line("yield_thread(get(params, 9))")
            b.frames.append(Frame(body))
            carried.define(body.arguments, body)
            b.frames.pop()
            self.region(body)
        self.loops.pop()
        b.loop_depth -= 1
        b.after_loop()
        results.define(op.results, block)

    def _enter(
        self,
        initial: Sequence[Value],
        arguments: Sequence[Value],
        results: Sequence[Value],
        block: Block,
        op: Op,
    ) -> Places:
        """The places of what a loop carries, with what it begins with in them."""
        values = tuple(results) if results else tuple(arguments)
        places = Places(self.b, values, block)
        places.roots = [self.b.roots.get(a) for a in arguments]
        places.assign(initial)
        return places


def turns_of(op: Op) -> int | None:
    """How often a `for` turns, if its limits are literals."""
    if op.name != "for":
        return None
    numbers: list[int] = []
    for value in op.operands[:3]:
        made = value.owner.attributes.get("value") if isinstance(value.owner, Op) else None
        if not isinstance(made, Dense):
            return None
        number = int(made.values().reshape(-1)[0])
        numbers.append(
            number % (1 << made.dtype.bits) if op.attributes.get("unsigned_cmp") else number
        )
    lower, upper, step = numbers
    return max(0, -((lower - upper) // step)) if step > 0 else 0


def _turns(b: Builder, limits: tuple[str, str, str], unsigned: bool) -> str:
    """The number of turns of a loop whose counter has 64 bits: one more step may not fit it."""
    lower, upper, step = limits
    some = f"{'nlt' if unsigned else 'ilt'}({lower}, {upper})"
    steps = f"udiv_by(subi(subi({upper}, {lower}), i64(1)), {step})"
    # More turns than an i64 counts are not lived to see the end of.
    turns = f"addi(umin({steps}, i64({(1 << 63) - 2})), i64(1))"
    return b.scalar(f"choose({some}, {turns}, i64(0))", "n")


def _waits(op: Op) -> bool:
    """True for what can see another block's progress: strong loads and read-modify-writes."""
    effects = op.definition.effects
    return effects == "atomic" or (effects == "read" and op.attributes.get("ordering") != "weak")
