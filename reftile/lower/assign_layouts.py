"""Give every tile in registers a layout.

Needs: a `pipe` kernel whose parts have constant indices (unroll_loops). Leaves: tiles of more than
one element carry a layout in their types; operands that meet in an operation lie alike.

This module says what operations want, `reftile.layout.solver` decides. Products of warpgroups
demand the fragments of accumulators and operands (reftile.layout.atoms), those of warps offer the
ways in which warps can share them; elementwise operations, reductions and changes of shape carry
layouts on and back; accesses to memory have their price in transactions and bank conflicts. Where a
value is read in another layout than it has, a `change_layout` stands behind it. What any layout
suits (constants, repeated scalars, counters) takes that of its use, and is copied when uses differ.
What nothing prescribes is spread evenly. Layouts that cannot become each other are a conflict,
which names both places.

Before:

    pipe kernel @product(%o: tile<ptr<f32>>) attributes {target = "sm_80", warps = 1} {
      %zero = constant {value = 0} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<16x8xf32, strides=[8, 1]>
      %v = make_partition_view %t :
        partition_view<tile=(16x8), tensor_view<16x8xf32, strides=[8, 1]>>
      %a = constant {value = 2.0} : tile<16x16xbf16>
      %b = constant {value = 3.0} : tile<16x8xbf16>
      %c = constant {value = 0.0} : tile<16x8xf32>
      %x = mmaf %a, %b, %c : tile<16x8xf32>
      %s = store_view_tko %x, %v, [%zero, %zero] {ordering = weak} : token
      return }

After:

    pipe kernel @product(%o: tile<ptr<f32>>) attributes {target = "sm_80", warps = 1} {
      %zero = constant {value = 0} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<16x8xf32, strides=[8, 1]>
      %v = make_partition_view %t :
        partition_view<tile=(16x8), tensor_view<16x8xf32, strides=[8, 1]>>
      %a = constant {value = 2.0} : tile<16x16xbf16, layout=mma.m16n8k16.b16.a<16x16>>
      %b = constant {value = 3.0} : tile<16x8xbf16, layout=mma.m16n8k16.b16.b<16x8>>
      %c = constant {value = 0.0} : tile<16x8xf32, layout=mma.m16n8.d<16x8>>
      %x = mmaf %a, %b, %c : tile<16x8xf32, layout=mma.m16n8.d<16x8>>
      %s = store_view_tko %x, %v, [%zero, %zero] {ordering = weak} : token
      return }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TypeAlias, cast

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.ir.dtypes import DType
from reftile.ir.types import BufferType, PartitionViewType, PendingType, TileType
from reftile.layout.atoms_memory import blocked
from reftile.layout.convert import convert
from reftile.layout.cost import BARRIER_COST, conversion_cost, count_sectors, global_access
from reftile.layout.linear import Layout, LayoutError
from reftile.layout.solver import (
    KEEP,
    Change,
    Conflict,
    Demand,
    Fact,
    Key,
    Offer,
    Prefer,
    Price,
    Same,
    Solution,
    UndecidedError,
    UnfitError,
    Use,
    drop,
    permute,
    reshape,
    solve,
)
from reftile.lower.clone import clone_op
from reftile.lower.constants import constant_int
from reftile.lower.drop_unused import drop_unused
from reftile.lower.fragments import (
    accumulator_layout,
    collapsed,
    layout_of,
    operand_layout,
    reshaped,
    same,
    text_of,
)
from reftile.lower.lower_transfers import passes_of
from reftile.lower.warp_products import check_target, warp_grids

ELEMENTWISE = frozenset({"elementwise", "select"})
"""The poison classes of operations that work element by element."""

LOOP_WEIGHT = 8
"""How often an iteration is taken to run, so that what stands in loops costs more."""

ROW_BYTES = 8192
"""How far rows of a tensor are taken to be apart, if their distance is not known."""


def assign_layouts(kernel: Kernel, target: str) -> Kernel:
    """Assign a layout to every tile, and write it into the types."""
    drop_unused(kernel)
    wishes = _Wishes(kernel)
    wishes.block(kernel.body.block, 1)
    _Writer(kernel, wishes, _solved(wishes)).write()
    return kernel


def is_spread(value: Value) -> bool:
    """True if the elements of a value are spread over threads, so that it needs a layout."""
    kind = value.type
    return isinstance(kind, TileType) and bool(kind.shape) and kind.size > 1


Port: TypeAlias = tuple[Op, int]
"""An operand of an operation: what is read there may lie otherwise than the value does."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Operand `index` of `op` is read in the layout of `by`, changed."""

    op: Op
    index: int
    by: Key
    change: Change


@dataclass(slots=True)
class _Wishes:
    """What the operations of a kernel say of layouts."""

    kernel: Kernel
    shapes: dict[Key, tuple[int, ...]] = field(default_factory=dict[Key, tuple[int, ...]])
    facts: list[Fact] = field(default_factory=list[Fact])
    reads: list[_Read] = field(default_factory=list[_Read])
    free: dict[Value, bool] = field(default_factory=dict[Value, bool])
    weight: int = 1

    def block(self, block: Block, weight: int) -> None:
        for op in block.ops:
            self.weight = weight
            self.visit(op)
            inner = LOOP_WEIGHT * weight if "loop" in op.definition.traits else weight
            for region in op.regions:
                if not isinstance(op, ops.Reduce):
                    self.block(region.block, inner)

    def visit(self, op: Op) -> None:
        if not op.regions and not any(map(is_spread, (*op.results, *op.operands))):
            return
        for result in op.results:
            self.value(result)
        match op:
            case ops.MmaStart():
                self.start(op)
            case ops.MmaWait():
                for value in op.values:
                    assert isinstance(value.type, TileType)
                    rows, columns = value.type.shape
                    self.facts.append(Demand(value, accumulator_layout(rows, columns), op))
            case ops.Mmaf() | ops.Mmai():
                self.product(op)
            case ops.Reduce():
                self.reduce(op)
            case ops.Reshape() | ops.Permute() | ops.Extract():
                self.rename(op)
            case ops.Broadcast():
                if is_spread(op.source) and is_spread(op.result) and not self.is_free(op.result):
                    assert isinstance(op.source.type, TileType)
                    self.read(op, 0, op.result, collapse(op.source.type.shape))
            case ops.For() | ops.Loop():
                self.loop(op)
            case ops.If():
                ends = [r.block.ops[-1] for r in op.regions]
                for end in ends:
                    if end.name == "yield":
                        for i, result in enumerate(op.results):
                            self.read(end, i, result)
            case ops.IfRows():
                last = op.then.block.ops[-1]
                for i, result in enumerate(op.results):
                    self.read(last, i, result)
                    self.read(op, 1 + i, result)
            case ops.StoreViewTko() | ops.LoadViewTko() | ops.StoreBuffer() | ops.LoadBuffer():
                self.access(op)
            case _ if op.definition.poison in ELEMENTWISE and not op.regions:
                self.elementwise(op)
            case ops.Yield() | ops.Continue() | ops.Break():
                return  # What they end says how they are read.
            case _:
                for index, value in enumerate(op.operands):
                    if is_spread(value) and self.is_free(value):
                        self.port(op, index)

    # Values

    def value(self, value: Value) -> None:
        """A value needs a layout, unless any suits it."""
        if is_spread(value) and not self.is_free(value):
            assert isinstance(value.type, TileType)
            self.shapes[value] = value.type.shape
            if value.type.layout:
                self.facts.append(Demand(value, layout_of(value.type.layout), value.owner))

    def is_free(self, value: Value) -> bool:
        """True if any layout suits: the value is computed from constants and scalars alone."""
        found = self.free.get(value)
        if found is None:
            found = self.free[value] = self._is_free(value)
        return found

    def _is_free(self, value: Value) -> bool:
        if not is_spread(value):
            return True
        owner = value.owner
        assert isinstance(value.type, TileType)
        if not isinstance(owner, Op) or owner.regions or value.type.layout:
            return False
        known = owner.definition.poison in ELEMENTWISE or isinstance(
            owner, (ops.Constant, ops.Iota, ops.Broadcast, ops.Reshape)
        )
        return known and owner.definition.is_pure and all(self.is_free(v) for v in owner.operands)

    def port(self, op: Op, index: int) -> Port:
        """A value of its own for what an operand is read as."""
        port = op, index
        kind = op.operands[index].type
        assert isinstance(kind, TileType)
        self.shapes[port] = kind.shape
        self.read(op, index, port)
        return port

    def source(self, op: Op, index: int) -> Key:
        """The operand itself, or a port where any layout suits it."""
        value = op.operands[index]
        return self.port(op, index) if self.is_free(value) else value

    def read(self, op: Op, index: int, by: Key, change: Change = KEEP) -> None:
        """Operand `index` is read as `change` of the layout of `by`; it may be converted."""
        value = op.operands[index]
        if not is_spread(value):
            return
        self.reads.append(_Read(op, index, by, change))
        if not self.is_free(value):
            price = conversion_price(_bits(value), self.weight)
            self.facts.append(Use(value, by, change, price, op))

    def same(self, source: Key, result: Value, change: Change, op: Op) -> None:
        if is_spread(result):
            self.facts.append(Same(source, result, change, op))

    # Operations

    def elementwise(self, op: Op) -> None:
        results = [r for r in op.results if is_spread(r) and not self.is_free(r)]
        if not results:
            return
        for index in range(len(op.operands)):
            self.read(op, index, results[0])
        for other in results[1:]:
            self.same(results[0], other, KEEP, op)

    def start(self, op: ops.MmaStart) -> None:
        lhs = op.operands[0]
        if isinstance(lhs.type, TileType):
            rows, depth = lhs.type.shape
            self.demand(op, 0, operand_layout(rows, depth, lhs.type.dtype.bits))
        if op.acc is not None and isinstance(op.acc.type, TileType):
            rows, columns = op.acc.type.shape
            self.demand(op, 2, accumulator_layout(rows, columns))

    def demand(self, op: Op, argument: int, layout: Layout) -> None:
        value = op.arguments[argument]
        if isinstance(value, Value) and is_spread(value):
            port = self.port(op, op.operands.index(value))
            self.facts.append(Demand(port, layout, op))

    def product(self, op: ops.Mmaf | ops.Mmai) -> None:
        check_target(op, str(self.kernel.attributes.get("target")))
        grids = warp_grids(op, warps_around(op, self.kernel))
        self.facts.append(Offer(op.result, grids.accumulators, op))
        self.read(op, 0, op.result, grids.lhs)
        self.read(op, 1, op.result, grids.rhs)
        self.read(op, 2, op.result)

    def reduce(self, op: ops.Reduce) -> None:
        if not is_spread(op.sources[0]):
            return
        source = self.source(op, 0)
        for index in range(1, len(op.sources)):
            self.read(op, index, source)
        for result in op.results:
            self.same(source, result, drop(op.axis), op)
        suggested = () if isinstance(source, Value) else (self.even(source),)
        self.facts.append(Prefer(source, suggested, _reduction_price(op.axis, self.weight), op))

    def rename(self, op: ops.Reshape | ops.Permute | ops.Extract) -> None:
        source, result = op.operands[0], op.results[0]
        if not is_spread(result) or self.is_free(result) or not is_spread(source):
            return
        assert isinstance(source.type, TileType) and isinstance(result.type, TileType)
        match op:
            case ops.Reshape():
                change = reshape(source.type.shape, result.type.shape)
            case ops.Permute():
                change = permute(tuple(op.permutation))
            case ops.Extract():
                change = _part(op, result.type.shape)
        key = self.port(op, 0) if isinstance(op, ops.Extract) else self.source(op, 0)
        self.same(key, result, change, op)
        if isinstance(op, ops.Extract):
            whole = _around(self.even(result), source.type.shape)
            self.facts.append(Prefer(key, (self.even(key), whole), None, op))

    def loop(self, op: ops.For | ops.Loop) -> None:
        block = op.body.block
        first = len(block.arguments) - len(op.init)
        carried = block.arguments[first:]
        at = len(op.operands) - len(op.init)
        for index, argument in enumerate(carried):
            self.value(argument)
            if isinstance(op, ops.For):
                self.same(argument, op.results[index], KEEP, op)
            self.read(op, at + index, argument)
        outer, self.weight = self.weight, LOOP_WEIGHT * self.weight
        for end in block.walk():
            if isinstance(end, ops.Continue) and _loop_of(end) is op:
                for index, argument in enumerate(carried):
                    self.read(end, index, argument)
            if isinstance(end, ops.Break) and _loop_of(end) is op:
                for index, result in enumerate(op.results):
                    self.read(end, index, result)
        self.weight = outer

    def access(self, op: Op) -> None:
        """What an access to memory costs; global memory likes wide vectors."""
        index = next((i for i, v in enumerate(op.operands) if is_spread(v)), None)
        value = next((r for r in op.results if is_spread(r)), None)
        if index is not None and isinstance(op, (ops.StoreViewTko, ops.StoreBuffer)):
            value, key = op.operands[index], self.port(op, index)
        elif value is not None:
            key: Key = value
        else:
            return
        kind = value.type
        assert isinstance(kind, TileType)
        if isinstance(op, (ops.LoadBuffer, ops.StoreBuffer)):
            buffer = next(v.type for v in op.operands if isinstance(v.type, BufferType))
            price = _shared_price(kind, buffer, self.weight)
            self.facts.append(Prefer(key, (), price, op, inherent=True))
            return
        view = next(v.type for v in op.operands if isinstance(v.type, PartitionViewType))
        strides = tuple(-1 if s is None else s for s in view.tensor.strides)
        if kind.dtype.bits < 8 or len(strides) != len(kind.shape):
            return
        price = _global_price(kind.dtype.bits, strides, self.weight)
        # A way through shared memory has two barriers, and passes of 128 bytes.
        passes = -(-kind.size * kind.dtype.bits // 1024)
        enough = 2 * (BARRIER_COST + passes) * self.weight
        fact = Prefer(key, (self.even(key),), price, op, enough, inherent=True)
        self.facts.append(fact)

    def even(self, key: Key) -> Layout:
        """Spread over all threads of the role, 16 bytes in each."""
        value = key if isinstance(key, Value) else None
        if isinstance(key, tuple):
            op, index = cast("Port", key)
            value, at = op.operands[index], op
        else:
            assert isinstance(value, Value)
            owner = value.owner
            block_op = owner.parent.parent if isinstance(owner, Block) and owner.parent else owner
            at = block_op if isinstance(block_op, Op) else self.kernel.body.block.ops[0]
        kind = value.type
        assert isinstance(kind, TileType)
        each = max(1, 128 // max(8, kind.dtype.bits)) if isinstance(kind.element, DType) else 2
        return _spread_evenly(kind.shape, each, warps_around(at, self.kernel))


@lru_cache(maxsize=256)
def _spread_evenly(shape: tuple[int, ...], each: int, warps: int) -> Layout:
    return blocked(shape, each, warps)


def _bits(value: Value) -> int:
    kind = value.type
    assert isinstance(kind, TileType)
    return kind.dtype.bits if isinstance(kind.element, DType) else 64


# How layouts follow from each other


@cache
def collapse(shape: tuple[int, ...]) -> Change:
    """What a tile of `shape` needs so that repeating it along axes of 1 gives a layout."""
    return Change("collapse", lambda layout: collapsed(layout, shape))


def _part(op: ops.Extract, shape: tuple[int, ...]) -> Change:
    starts: list[int] = []
    for index, extent in zip(op.indices, shape, strict=True):
        number = constant_int(index)
        assert number is not None
        starts.append(number * extent)
    return _part_at(tuple(starts), shape)


@cache
def _part_at(starts: tuple[int, ...], shape: tuple[int, ...]) -> Change:
    @lru_cache(maxsize=64)
    def apply(layout: Layout) -> Layout:
        for axis, (start, extent) in enumerate(zip(starts, shape, strict=True)):
            if extent != layout.shape[axis]:
                layout, begin = layout.slice(axis, start, extent)
                if any(place in begin for place in ("lane", "warp")):
                    raise LayoutError("some threads would have no part of it")
        return layout

    return Change("extract", apply)


@lru_cache(maxsize=256)
def _around(part: Layout, shape: tuple[int, ...]) -> Layout:
    """A tile whose parts all lie like one of them, one behind another in the registers."""
    for axis, (extent, whole) in enumerate(zip(part.shape, shape, strict=True)):
        if whole != extent:
            part = part.repeat("register", axis, whole // extent)
    return part


# Prices, in passes through shared memory: about a cycle each


@cache
def conversion_price(bits: int, weight: int) -> Price:
    """What a change of layout costs, for elements of so many bits."""

    def price(held: Layout, wanted: Layout) -> int | None:
        found = _conversion(held, wanted, bits)
        return None if found is None else weight * found

    return price


@lru_cache(maxsize=512)
def _conversion(held: Layout, wanted: Layout, bits: int) -> int | None:
    try:
        found = conversion_cost(held, wanted, max(8, bits))
    except LayoutError:
        return None
    distance = found.conversion.distance
    if distance == "cta" or (bits < 8 and distance == "warp"):
        return None
    # A change costs instructions even where nothing moves far: of equal ways the straight one wins.
    return found.total + (BARRIER_COST if found.staging is not None else 0) + 1


@cache
def _reduction_price(axis: int, weight: int) -> Callable[[Layout], int]:
    """Warps that meet pass twice through a barrier."""

    def price(layout: Layout) -> int:
        crosses = any(d.step[axis] for d in layout.digits("warp"))
        return 2 * weight * BARRIER_COST if crosses else 0

    return price


@cache
def _shared_price(kind: TileType, buffer: BufferType, weight: int) -> Callable[[Layout], int]:
    return lambda layout: weight * passes_of(layout, kind.dtype.bits, buffer)


@cache
def _global_price(bits: int, strides: tuple[int, ...], weight: int) -> Callable[[Layout], int]:
    return lambda layout: weight * _global_passes(layout, bits, strides)


@lru_cache(maxsize=256)
def _global_passes(layout: Layout, bits: int, strides: tuple[int, ...]) -> int:
    """Instructions, and groups of four sectors: 128 bytes go through in a cycle."""
    size = bits // 8
    access = global_access(layout, bits, [ROW_BYTES if s < 0 else s * size for s in strides])
    sectors = count_sectors(access)
    return sectors.instructions + -(-sectors.sectors // 4)


# Solving


def _solved(wishes: _Wishes) -> Solution:
    """Raises: ReftileError: nothing fits; the diagnosis names both places."""
    try:
        found = solve(wishes.shapes, wishes.facts, wishes.even)
    except UndecidedError as error:
        names = ", ".join(f"%{_value_of(key).name}" for key in error.values)
        value = error.values[0]
        op = cast("Port", value)[0] if isinstance(value, tuple) else _value_of(value).owner
        span = op.span if isinstance(op, Op) else wishes.kernel.span
        raise fail(
            "lower.no_layout",
            f"nothing says which threads hold {names}: {error.why}",
            span,
            _HINT,
        ) from error
    except UnfitError as error:
        op = error.fact.where
        assert isinstance(op, Op)
        raise _unfit(op, error.layout, error) from error
    if isinstance(found, Conflict):
        raise _explained(found)
    return found


_HINT = "pass the tile through shared memory; or give it extents that are powers of two"


def _unfit(op: Op, layout: Layout, why: LayoutError) -> ReftileError:
    message = f"`{op.name}` of a tile held as {text_of(layout)} is not possible: {why}"
    return fail("lower.layout", message, op.span, _HINT)


def _value_of(key: Key) -> Value:
    if isinstance(key, tuple):
        op, index = cast("Port", key)
        return op.operands[index]
    assert isinstance(key, Value)
    return key


def _explained(conflict: Conflict) -> ReftileError:
    have, want = conflict.layouts
    first, second, at = (f.where for f in (conflict.first, conflict.second, conflict.at))
    assert isinstance(at, Op)
    value = _value_of(conflict.value)
    try:
        distance = convert(have, want).distance
    except LayoutError:
        distance = "cta"
    notes: list[tuple[str, object]] = []
    if isinstance(first, Op):
        notes.append((f"`{first.name}` makes it so", first.span))
    if isinstance(second, Op) and second is not at:
        notes.append((f"`{second.name}` asks for the other", second.span))
    notes.append((f"its elements would move between: {distance}s", None))
    return ReftileError(
        Diagnosis(
            "lower.layout_conflict",
            f"%{value.name} is held as {text_of(have)}, and `{at.name}` needs {text_of(want)}",
            at.span,
            "pass it through shared memory, or choose operations that agree",
            tuple(notes),  # type: ignore[arg-type]
        )
    )


# Writing


class _Writer:
    """Writes a solution into the types, with copies and changes where values are read otherwise."""

    def __init__(self, kernel: Kernel, wishes: _Wishes, solution: Solution) -> None:
        self.kernel = kernel
        self.wishes = wishes
        self.solution = solution
        self.layouts: dict[Value, Layout] = {
            v: layout for v, layout in solution.layouts.items() if isinstance(v, Value)
        }
        self.changed: dict[tuple[Value, str], Value] = {}

    def write(self) -> None:
        for read in self.wishes.reads:
            layout = read.change.apply(self.solution.layouts[read.by])
            self.place(read.op, read.index, layout)
        for op in list(self.kernel.walk()):
            for value in _defined(op):
                if is_spread(value) and value not in self.layouts and not _is_inside_reduce(op):
                    self.give(value, self.wishes.even(value))
        for op in self.kernel.walk():
            for value in _defined(op):
                layout, kind = self.layouts.get(value), value.type
                if layout is not None and isinstance(kind, TileType):
                    value.type = TileType(kind.shape, kind.element, text_of(layout))
                elif isinstance(kind, PendingType):
                    shape, element = kind.tile.shape, kind.tile.element
                    text = text_of(accumulator_layout(*shape))
                    value.type = PendingType(TileType(shape, element, text))

    def place(self, op: Op, index: int, layout: Layout) -> None:
        """Let one operand of `op` be held as `layout`."""
        value = op.operands[index]
        held = self.held(value, layout, op)
        if held is not value:
            _replace_operand(op, index, held)

    def held(self, value: Value, layout: Layout, cause: Op) -> Value:
        """A value that is held as `layout`: this one, a copy of it, or one that is changed."""
        known = self.layouts.get(value)
        if known is None:
            self.give(value, layout)
            return value
        if known is layout or same(known, layout):
            return value
        owner = value.owner
        if not self.wishes.is_free(value):
            return self.change(value, layout, cause)
        assert isinstance(owner, Op) and owner.parent is not None
        mapping: dict[Value, Value] = {}
        copy = clone_op(owner, mapping)
        owner.parent.ops.insert(owner.parent.ops.index(owner) + 1, copy)
        copy.parent = owner.parent
        self.give(mapping[value], layout)
        return mapping[value]

    def give(self, value: Value, layout: Layout) -> None:
        """Hold a value that any layout suits, and what it is computed from."""
        self.layouts[value] = layout
        op = value.owner
        match op:
            case ops.Broadcast() if is_spread(op.source):
                assert isinstance(op.source.type, TileType)
                self.place(op, 0, collapsed(layout, op.source.type.shape))
            case ops.Reshape() if is_spread(op.source):
                assert isinstance(op.source.type, TileType)
                try:
                    source = reshaped(layout, op.source.type.shape)
                except LayoutError as error:
                    raise _unfit(op, layout, error) from error
                self.place(op, 0, source)
            case Op() if op.definition.poison in ELEMENTWISE and not op.regions:
                for result in op.results:
                    self.layouts.setdefault(result, layout)
                for index, operand in enumerate(op.operands):
                    if is_spread(operand):
                        self.place(op, index, layout)
            case _:
                return

    def change(self, value: Value, layout: Layout, cause: Op) -> Value:
        """A computed value in another layout, made right behind the value."""
        text = text_of(layout)
        if (value, text) in self.changed:
            return self.changed[value, text]
        new = ops.ChangeLayout((value,), (value.type,), {}, (), cause.span, (value.name,))
        owner = value.owner
        block = owner if isinstance(owner, Block) else owner.parent if owner else None
        assert block is not None
        at = block.ops.index(owner) + 1 if isinstance(owner, Op) else 0
        block.ops.insert(at, new)
        new.parent = block
        self.changed[value, text] = new.result
        self.layouts[new.result] = layout
        return new.result


def _defined(op: Op) -> Sequence[Value]:
    """The results of an operation, and the arguments of its regions."""
    if not op.regions:
        return op.results
    return [*op.results, *(a for r in op.regions for a in r.block.arguments)]


def _is_inside_reduce(op: Op) -> bool:
    block = op.parent
    owner = block.parent.parent if block is not None and block.parent is not None else None
    return isinstance(owner, ops.Reduce)


def _replace_operand(op: Op, index: int, value: Value) -> None:
    at = 0
    arguments: list[Value | tuple[Value, ...] | None] = []
    for argument in op.arguments:
        if isinstance(argument, tuple):
            items = list(argument)
            if at <= index < at + len(items):
                items[index - at] = value
            at += len(items)
            arguments.append(tuple(items))
        else:
            arguments.append(value if argument is not None and at == index else argument)
            at += argument is not None
    op.arguments = tuple(arguments)


def _loop_of(op: Op) -> Op | None:
    block = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if not isinstance(owner, Op) or "loop" in owner.definition.traits:
            return owner if isinstance(owner, Op) else None
        block = owner.parent
    return None


def warps_around(op: Op, kernel: Kernel) -> int:
    """The warps of the role that an operation stands in, or of the block."""
    block = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if isinstance(owner, ops.Role):
            return owner.warps
        block = owner.parent if isinstance(owner, Op) else None
    warps = kernel.attributes.get("warps")
    assert isinstance(warps, int)
    return warps
