"""The state of generating one kernel: lines, names, scratch memory, and where values are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from reftile.ir.core import Block, Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.types import TileType
from reftile.lower.cpu.nests import CHEAP, Nest, survey_tiles
from reftile.lower.cpu.tiles import Buffer, Held, Literal_, Root, Shape, Tile, size_of

Fill = Callable[[Nest], None]
Streamed = tuple[str, Callable[[Nest], None]]
"""A condition, and what writes nests that keep what the given nest was to keep."""
SMALL = 64
"""Tiles of fewer elements get one loop nest, with masks, and no second one without them."""
DEEPEST = 50
"""So many tiles without a place stand behind one another at most; the next one gets its place.

What is written of a tile follows from what it is computed from, and that is a recursion.
"""
_ALIGN = 64


class Unsupported(ReftileError):
    """The target lacks something; rule `cpu.unsupported`."""

    def __init__(self, op: Op, why: str) -> None:
        message = f"`{op.name}` cannot be compiled for the CPU: {why}"
        super().__init__(Diagnosis("cpu.unsupported", message, op.span))


@dataclass(slots=True)
class Slot:
    """A piece of scratch memory, and how deep it stands where it is free."""

    base: str
    scope: int
    offset: int
    size: int


@dataclass(slots=True)
class Frame:
    """A block that is being generated.

    held: buffers that end in it, by the last position. known: variables by what they hold; they
    are set once for each time that the block runs. borrowed: tiles of blocks around it that have a
    place while it runs, and what they are computed from.
    """

    block: Block
    position: int = 0
    held: list[tuple[int, Slot]] = field(default_factory=list[tuple[int, Slot]])
    known: dict[str, str] = field(default_factory=dict[str, str])
    borrowed: list[tuple[Held, Tile]] = field(default_factory=list[tuple[Held, Tile]])


class Builder:
    """See the module. pending: buffers of tiles that a nest being written keeps."""

    def __init__(self, blas: bool = True) -> None:
        self.blas = blas
        self.constants = bytearray()
        self.lines: list[str] = []
        self.constants_of_launch: dict[str, str] = {}
        self.lasting: list[str] = []
        self.most_shared = 0
        self.depth = 0
        self.accessors: dict[tuple[object, ...], str] = {}
        self.env: dict[Value, object] = {}
        self.frames: list[Frame] = []
        self.pending: dict[int, Buffer] = {}
        self.slots: list[Slot] = []
        self.free: list[Slot] = []
        self.scratch_bytes = 0
        self.scopes = 0
        self.loads: list[tuple[Held, int, Block]] = []
        self.faults: list[tuple[Op, str]] = []
        self.prints: list[tuple[Op, tuple[Buffer, ...]]] = []
        self.loop_depth = 0
        self.leaves = False
        self.waits = False
        self.written: set[int] = set()
        self.roots: dict[Value, Root | None] = {}
        self._names: dict[str, int] = {}
        self._positions: dict[Op, int] = {}
        self._users: dict[Value, list[Op]] = {}
        self._life: dict[tuple[Value, Block], int] = {}
        self._uses: dict[Value, int] = {}

    # Text

    def name(self, stem: str) -> str:
        """A name that is not used yet."""
        number = self._names.get(stem, 0)
        self._names[stem] = number + 1
        return f"{stem}{number}"

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def indented(self) -> Generator[None]:
        """Lines in here stand one step deeper."""
        self.depth += 1
        yield
        self.depth -= 1

    def scalar(self, text: str, stem: str = "v") -> str:
        """A variable with the value of an expression."""
        name = self.name(stem)
        self.line(f"{name} = {text}")
        return name

    def shared(self, text: str, stem: str = "v") -> str:
        """A variable with the value of a pure expression, the same one for the same text."""
        for frame in self.frames:
            if text in frame.known:
                return frame.known[text]
        found = self.frames[-1].known[text] = self.scalar(text, stem)
        return found

    def access(self, factory: str, *key: object) -> str:
        """The name of a function that a factory of `functions.machine` makes.

        key: for loads and stores, the kind and the number of the memory.
        """
        full = (factory, *key)
        found = self.accessors.get(full)
        if found is None:
            tail = "_".join(str(k).replace("-1", "any") for k in key)
            verb = factory.removesuffix("er").replace("stor", "store")
            found = self.accessors[full] = f"{verb}_{tail}"
        return found

    def scope(self) -> int:
        """The number of a memory that no other overlaps."""
        self.scopes += 1
        return self.scopes - 1

    def launch_constant(self, text: str) -> str:
        """A variable, set once, with an expression of the arguments of the launch."""
        found = self.constants_of_launch.get(text)
        if found is None:
            found = self.constants_of_launch[text] = self.name("n")
        return found

    def share(self, most: int) -> None:
        """Note that neighbours along x share products, up to so many."""
        self.most_shared = min(self.most_shared or most, most)

    def lasting_variable(self) -> str:
        """A position that one block leaves for the next of its thread; 0 at first."""
        self.lasting.append(self.name("n"))
        return self.lasting[-1]

    # Scratch memory

    def slot(self, size_bytes: int) -> Slot:
        """Scratch memory, of a free piece if one fits."""
        size = -(-size_bytes // _ALIGN) * _ALIGN
        fitting = [s for s in self.free if size <= s.size <= 2 * size]
        if fitting:
            found = min(fitting, key=lambda s: s.size)
            self.free.remove(found)
            return found
        return self.lasting_slot(size)

    def lasting_slot(self, size_bytes: int) -> Slot:
        """Scratch memory that no other tile had, and that none gets while nobody frees it."""
        size = -(-size_bytes // _ALIGN) * _ALIGN
        found = Slot(self.name("s"), self.scope(), self.scratch_bytes, size)
        self.scratch_bytes += size
        self.slots.append(found)
        return found

    def buffer(self, shape: Shape, kind: str, owner: Held | None = None, last: int = -1) -> Buffer:
        """A place for a tile; it is free again behind the last use of its owner."""
        slot = self.slot(prod(shape) * size_of(kind))
        frame = self.frames[-1]
        if owner is not None:
            # What belongs to a block around this one is there as long as this one runs.
            last = owner.last if owner.block is frame.block else len(frame.block.ops)
        frame.held.append((last, slot))
        return Buffer(slot.base, slot.scope, shape, kind, slot.offset, slot.size)

    def extend(self, buffer: Buffer, owner: Held) -> None:
        """Let a buffer live as long as a new owner, if it would end sooner."""
        for frame in self.frames:
            for number, (last, slot) in enumerate(frame.held):
                if slot.base == buffer.base and frame.block is owner.block:
                    frame.held[number] = (max(last, owner.last), slot)

    def table(self, data: bytes, alignment: int) -> int:
        """The offset of data among the constants of the kernel."""
        while len(self.constants) % alignment:
            self.constants.append(0)
        offset = len(self.constants)
        self.constants.extend(data)
        return offset

    def release(self) -> None:
        """Free what nothing uses behind the current operation."""
        frame = self.frames[-1]
        kept: list[tuple[int, Slot]] = []
        for last, slot in frame.held:
            if last <= frame.position:
                self.free.append(slot)
            else:
                kept.append((last, slot))
        frame.held = kept

    # Uses

    def survey(self, block: Block) -> None:
        """Learn who uses what, everywhere inside a block."""
        for place, op in enumerate(block.ops):
            self._positions[op] = place
            for value in op.operands:
                self._users.setdefault(value, []).append(op)
            for region in op.regions:
                self.survey(region.block)
        # From the last operation back: what these ask of their results is known by then.
        for op in reversed(block.ops):
            for value in op.results:
                self.life(value, block)
                self.uses(value)

    def users(self, value: Value) -> list[Op]:
        """The operations that use a value, once for each use."""
        return self._users.get(value, [])

    def position(self, op: Op, block: Block) -> int:
        """The place in `block` of an operation, or of the one that it stands in."""
        while op.parent is not block:
            region = op.parent.parent if op.parent is not None else None
            parent = region.parent if region is not None else None
            if not isinstance(parent, Op):
                return len(block.ops)
            op = parent
        return self._positions[op]

    def life(self, value: Value, block: Block) -> int:
        """The last place in a block where the elements of a value may be read."""
        found = self._life.get((value, block))
        if found is not None:
            return found
        last = -1
        for user in self.users(value):
            at = self.position(user, block)
            last = max(last, at)
            if user.parent is block and is_lazy(user):
                last = max([last, *(self.life(r, block) for r in user.results)])
        self._life[value, block] = last
        return last

    def uses(self, value: Value) -> int:
        """How often the elements of a value are read, in passes."""
        found = self._uses.get(value)
        if found is None:
            found = 0
            for user in self.users(value):
                found += self.uses(user.results[0]) if user.name in STRUCTURAL else 1
            self._uses[value] = found
        return found

    # Values

    def tile(self, value: Value) -> Tile:
        """The tile of a value."""
        found = self.env[value]
        assert isinstance(found, Tile), value
        return found

    def text(self, value: Value) -> str:
        """The text of a scalar."""
        return self.tile(value).at((), Nest(self, ()))

    def define(self, value: Value, tile: Tile, block: Block, *, now: bool = False) -> Tile:
        """Give a value its tile; scalars, and what must be computed `now`, get their place."""
        if isinstance(tile, Literal_):
            self.env[value] = tile
            return tile
        held = self.held(tile, value, block)
        self.env[value] = held
        if not tile.shape or now or held.depth > DEEPEST:
            self.hold(held)
        return held

    def held(self, tile: Tile, value: Value, block: Block) -> Held:
        """A tile that may get a place, with what is known of the uses of a value."""
        held = Held(tile, self.uses(value), value.name)
        held.block, held.last = block, self.life(value, block)
        return held

    def placed(self, value: Value, buffer: Buffer, block: Block) -> Held:
        """A value whose elements are in a buffer."""
        type = value.type
        held = self.held(Literal_(type.shape, type.element, "?"), value, block)  # type: ignore[attr-defined]
        held.tile, held.buffer = None, buffer
        self.env[value] = held
        return held

    def hold(self, held: Held, into: Buffer | None = None) -> None:
        """Compute a tile, and give it a place: a variable if it is one element."""
        if held.is_there:
            return
        tile = held.tile
        assert tile is not None
        if tile.size == 1 and into is None:
            nest = Nest(self, tile.shape)
            nest.gather([tile], whole=False)
            name = self.name("v")
            text = tile.at(nest.index, nest)
            nest.do(f"{name} = {text}", 0)
            nest.write()
            self.placed_here(held)
            held.variable, held.tile = name, None
            return
        buffer = into or self.buffer(held.shape, held.kind, held)
        self.store_into(tile, buffer)
        self.placed_here(held)
        held.buffer, held.tile = buffer, None

    def placed_here(self, held: Held) -> None:
        """Note that a tile of a block around the current one has a place while that one runs."""
        frame = self.frames[-1]
        if held.block is not None and held.block is not frame.block and held.tile is not None:
            frame.borrowed.append((held, held.tile))

    def end_frame(self) -> None:
        """Leave a block: its scratch memory is free, and what it placed for others is not there."""
        frame = self.frames.pop()
        self.free += [slot for _, slot in frame.held]
        for held, tile in reversed(frame.borrowed):
            held.tile, held.buffer, held.variable = tile, None, ""

    def store_into(self, tile: Tile, buffer: Buffer) -> None:
        """Write all elements of a tile into a buffer."""
        store = self.access("storer", buffer.kind, buffer.scope)

        def fill(nest: Nest) -> None:
            text = tile.at(nest.index, nest)
            nest.do(f"{store}({buffer.base}, {buffer.place(nest.index)}, {text})")

        self.sweep(tile.shape, [tile], fill)

    def sweep(
        self,
        shape: Shape,
        tiles: Sequence[Tile],
        fill: Fill,
        *,
        whole: bool = True,
        also: Iterable[str] = (),
        bounds: Sequence[str] | None = None,
        stream: Streamed | None = None,
    ) -> None:
        """Pass over a shape.

        Where loads may stick out of their arrays there are two nests: one with masks, and one
        without for when everything lies inside. also: further conditions for that. bounds: extents
        of the nest with masks, where it may pass over less. stream: what is run instead, if
        all lies inside, where a launch writes more than the caches hold.
        """
        first = Nest(self, shape)
        first.gather(tiles, whole=whole)
        conditions = dict.fromkeys([*also, *inside_conditions(tiles)])
        if stream is not None:
            condition, write = stream
            self.line(f"if {' and '.join(['streams', condition, *conditions])}:")
            with self.indented():
                write(first)
            self.line("else:")
            with self.indented():
                self._sweep_cached(first, conditions, fill, bounds)
            return
        self._sweep_cached(first, conditions, fill, bounds)

    def _sweep_cached(
        self,
        first: Nest,
        conditions: dict[str, None],
        fill: Fill,
        bounds: Sequence[str] | None,
    ) -> None:
        shape = first.shape
        if not conditions or (prod(shape) < SMALL and bounds is None):
            first.fast = not conditions
            fill(first)
            first.write()
            return
        self.line(f"if {' and '.join(conditions)}:")
        with self.indented():
            first.fast = True
            fill(first)
            first.write(finish=False)
        self.line("else:")
        with self.indented():
            second = Nest(self, shape, bounds)
            second.take_over(first)
            fill(second)
            second.write()

    def materialise(
        self, value: Value, element: Callable[[Nest], str], parts: Sequence[Tile], block: Block
    ) -> None:
        """Compute the elements of a value here, each once, in order; `element` does something."""
        type = value.type
        assert isinstance(type, TileType)
        nest = Nest(self, type.shape)
        nest.gather(parts)
        if type.size == 1:
            name = self.name("v")
            nest.do(f"{name} = {element(nest)}", 0)
            nest.write()
            held = self.held(Literal_(type.shape, type.element, name), value, block)
            held.variable, held.tile = name, None
            self.env[value] = held
            return
        held = self.held(Literal_(type.shape, type.element, "?"), value, block)
        if not self.users(value):
            element(nest)
            nest.write()
            return
        buffer = self.buffer(type.shape, held.kind, held)
        store = self.access("storer", buffer.kind, buffer.scope)
        text = element(nest)
        nest.do(f"{store}({buffer.base}, {buffer.place(nest.index)}, {text})")
        nest.write()
        held.buffer, held.tile = buffer, None
        self.env[value] = held

    def fail_if(self, op: Op, condition: str, rule: str) -> None:
        """End the block, and the launch, where a condition holds; the host says why."""
        checked = f"checked {condition}"
        if any(checked in frame.known for frame in self.frames):
            return
        self.frames[-1].known[checked] = ""
        self.faults.append((op, rule))
        self.line(f"if {condition}:")
        with self.indented():
            self.line(f"put_first(params, 6, {len(self.faults)})")
            self.leave()

    def leave(self) -> None:
        """End the block."""
        if not self.loop_depth:
            self.line("continue")
            return
        self.leaves = True
        self.line("left = True")
        self.line("break")

    def after_loop(self) -> None:
        """Behind a loop: go on leaving, if a block ends inside it."""
        if self.leaves:
            self.line("if left:")
            with self.indented():
                self.line("break" if self.loop_depth else "continue")

    # Memory that changes

    def note_write(self, root: Root | None) -> None:
        """Note that the kernel writes through pointers to some memory."""
        if root is not None:
            self.written.add(root.group)

    def settle(self, root: Root | None) -> None:
        """Read what has not been read yet and may be overwritten through a pointer."""
        kept: list[tuple[Held, int, Block]] = []
        for held, last, block in self.loads:
            if held.is_there:
                continue
            current = self._place(block)
            if last < current:
                continue
            if may_alias(held.tile.memory if held.tile else None, root):  # type: ignore[attr-defined]
                self.hold(held)
                continue
            kept.append((held, last, block))
        self.loads = kept

    def _place(self, block: Block) -> int:
        for frame in reversed(self.frames):
            if frame.block is block:
                return frame.position
        return -1

    def settle_captures(self, op: Op) -> None:
        """Compute what regions of an operation use again and again, before they begin.

        Loads from memory that changes in them happen before, too.
        """
        for inner in op.walk():
            if inner.definition.effects in ("atomic", "barrier"):
                self.settle(None)
            elif inner.definition.effects in ("read", "write"):
                strong = inner.attributes.get("ordering") != "weak"
                if strong or inner.definition.effects == "write":
                    self.settle(None if strong else self.root_of(target_of(inner)))
        inside: set[Value] = set()
        used: dict[Value, None] = {}
        for region in op.regions:
            for inner in region.block.walk():
                inside.update(inner.results)
                used.update(dict.fromkeys(inner.operands))
                for deeper in inner.regions:
                    inside.update(deeper.block.arguments)
            inside.update(region.block.arguments)
        for value in used:
            found = self.env.get(value) if value not in inside else None
            if isinstance(found, Tile):
                for held in survey_tiles([found]).order:
                    if held.cost > CHEAP and not held.is_there:
                        self.hold(held)

    def root_of(self, value: Value) -> Root | None:
        """The memory that a pointer or a view leads to."""
        if value in self.roots:
            return self.roots[value]
        found = self.env.get(value)
        if found is not None:
            tensor = getattr(found, "tensor", found)
            return tensor.root  # type: ignore[attr-defined, no-any-return]
        if isinstance(value.owner, Op) and value.owner.name.startswith("make_"):
            return self.root_of(value.owner.operands[0])
        return None


def target_of(op: Op) -> Value:
    """The view or the pointers that a store writes through."""
    return op.operands[1] if op.name == "store_view_tko" else op.operands[0]


STRUCTURAL = frozenset({"broadcast", "reshape", "permute", "assume"})
"""Operations that only find elements elsewhere."""

EAGER = frozenset(
    {"reduce", "scan", "sort", "topk", "argmax", "argmin", "histogram"}
    | {"mmaf", "mmaf_scaled", "mmaf_sparse", "mmai", "global"}
)
"""Pure operations whose results are computed where they stand."""


def is_lazy(op: Op) -> bool:
    """Whether an operation may be computed later, where its results are used."""
    if op.name in EAGER:
        return False
    if op.definition.is_pure:
        return True
    return op.definition.effects == "read" and op.attributes.get("ordering") == "weak"


def may_alias(one: Root | None, other: Root | None) -> bool:
    """Whether two pointers may lead to the same memory."""
    return one is None or other is None or one.group == other.group


def inside_conditions(tiles: Iterable[Tile]) -> list[str]:
    """The flags of loads that tiles read from, and that hold where all of a tile lies inside."""
    found: list[str] = []

    def visit(tile: Tile, seen: set[int]) -> None:
        if id(tile) in seen:
            return
        seen.add(id(tile))
        flag = getattr(tile, "inside", "")
        if flag:
            found.append(flag)
        for part, _ in tile.parts():
            visit(part, seen)

    seen: set[int] = set()
    for tile in tiles:
        visit(tile, seen)
    return found
