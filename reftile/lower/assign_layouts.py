"""Give every tile in registers a layout.

Needs: a `pipe` kernel whose parts have constant indices (unroll_loops). Leaves: tiles of more than
one element carry a layout in their types; operands that meet in an operation lie alike.

Products prescribe the fragments of accumulators and operands (reftile.layout.atoms); elementwise
operations, reductions and changes of shape carry layouts on and back. What any layout suits
(constants, repeated scalars, counters) takes that of its use, and is copied when uses differ. Where
two uses need different layouts of one computed value, a `change_layout` stands between; operands
that meet take the layout that costs least. What nothing prescribes is spread evenly. Layouts that
cannot become each other are a conflict, which names both places.

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

from dataclasses import replace
from functools import cache

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.ir.dtypes import DType
from reftile.ir.types import PendingType, TileType
from reftile.layout.atoms import read
from reftile.layout.atoms_memory import blocked
from reftile.layout.convert import convert
from reftile.layout.cost import conversion_cost
from reftile.layout.linear import Digit, Layout, LayoutError
from reftile.lower.clone import clone_op
from reftile.lower.constants import constant_int
from reftile.lower.drop_unused import drop_unused
from reftile.lower.fragments import (
    accumulator_layout,
    collapsed,
    dropped,
    operand_layout,
    reshaped,
    same,
    text_of,
)

ELEMENTWISE = frozenset({"elementwise", "select"})
"""The poison classes of operations that work element by element."""


def assign_layouts(kernel: Kernel, target: str) -> Kernel:
    """Assign a layout to every tile, and write it into the types."""
    drop_unused(kernel)
    solver = _Solver(kernel)
    solver.block(kernel.body.block)
    solver.choose(kernel)
    solver.finish(kernel)
    return kernel


def is_spread(value: Value) -> bool:
    """True if the elements of a value are spread over threads, so that it needs a layout."""
    return isinstance(value.type, TileType) and value.type.size > 1


class _Solver:
    """One pass over the text; demands run backwards through what is still open."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.layouts: dict[Value, Layout] = {}
        self.causes: dict[Value, Op] = {}
        self.changed: dict[tuple[Value, str], Value] = {}

    # Forward

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            self.visit(op)
            for region in op.regions:
                if not isinstance(op, ops.Reduce):
                    self.block(region.block)
            if op.regions:
                self.leave(op)

    def visit(self, op: Op) -> None:
        match op:
            case ops.MmaStart():
                self.start(op)
            case ops.MmaWait():
                for value in op.values:
                    assert isinstance(value.type, TileType)
                    rows, columns = value.type.shape
                    self.give(value, accumulator_layout(rows, columns), op)
            case ops.Mmaf():
                self.product(op)
            case ops.Reduce() | ops.Reshape() | ops.Permute() | ops.Extract() | ops.Broadcast():
                source = op.operands[0]
                known = self.layouts.get(source)
                if known is not None:
                    forward = self.forward(op, known)
                    if forward is not None:
                        for result in op.results:
                            self.give(result, forward, op)
            case ops.For() | ops.Loop():
                self.enter(op)
            case _ if op.definition.poison in ELEMENTWISE and not op.regions:
                self.elementwise(op)
            case _:
                pass

    def forward(self, op: Op, layout: Layout) -> Layout | None:
        """The layout of a result, given that of the operand; None where it is still open."""
        result = op.results[0].type
        assert isinstance(result, TileType)
        try:
            match op:
                case ops.Reduce():
                    return dropped(layout, op.axis)
                case ops.Reshape():
                    return reshaped(layout, result.shape)
                case ops.Permute():
                    return layout.permute(op.permutation)
                case ops.Extract():
                    return _part(layout, op, result.shape)
                case _:
                    return None
        except LayoutError as error:
            raise fail(
                "lower.layout",
                f"`{op.name}` of a tile held as {text_of(layout)} is not possible: {error}",
                op.span,
            ) from error

    def elementwise(self, op: Op) -> None:
        values = [v for v in (*op.operands, *op.results) if is_spread(v)]
        known = _cheapest(op, [(v, self.layouts[v]) for v in values if v in self.layouts])
        if known is not None:
            self.demand_operands(op, [known] * len(op.operands))
            for result in op.results:
                if is_spread(result):
                    self.give(result, known, op)

    def start(self, op: ops.MmaStart) -> None:
        lhs = op.operands[0]
        if isinstance(lhs.type, TileType):
            rows, depth = lhs.type.shape
            self.demand_operand(op, 0, operand_layout(rows, depth, lhs.type.dtype.bits))
        if op.acc is not None and isinstance(op.acc.type, TileType):
            rows, columns = op.acc.type.shape
            self.demand_operand(op, 2, accumulator_layout(rows, columns))

    def product(self, op: ops.Mmaf) -> None:
        layouts = _mma_layouts(op, _warps_around(op, self.kernel))
        for port, layout in enumerate(layouts):
            self.demand_operand(op, port, layout)
        self.give(op.result, layouts[2], op)

    def enter(self, op: ops.For | ops.Loop) -> None:
        init = op.init
        carried = op.body.block.arguments[len(op.body.block.arguments) - len(init) :]
        for value, argument in zip(init, carried, strict=True):
            if value in self.layouts and not _is_free(value):
                self.give(argument, self.layouts[value], op)

    def leave(self, op: Op) -> None:
        """Let what a region ends with, and what the operation gives, agree."""
        if isinstance(op, ops.For):
            carried = op.body.block.arguments[1:]
            for argument, result in zip(carried, op.results, strict=True):
                if argument in self.layouts:
                    self.give(result, self.layouts[argument], op)
        if isinstance(op, ops.If):
            self.meet_yields(op)
        if isinstance(op, ops.IfRows):
            last = op.then.block.ops[-1]
            for i, result in enumerate(op.results):
                known = [self.layouts.get(v) for v in (last.operands[i], op.otherwise[i])]
                layout = next((k for k in known if k is not None), None)
                if layout is not None:
                    self.demand_in(last, i, layout)
                    self.demand_in(op, 1 + i, layout)
                    self.give(result, layout, op)

    def meet_yields(self, op: ops.If) -> None:
        """Let what both branches yield agree with the result."""
        ends = [r.block.ops[-1] for r in op.regions if r.block.ops[-1].name == "yield"]
        for i, result in enumerate(op.results):
            known = [self.layouts[e.operands[i]] for e in ends if e.operands[i] in self.layouts]
            if known:
                for end in ends:
                    self.demand_in(end, i, known[0])
                self.give(result, known[0], op)

    # Setting and demanding

    def give(self, value: Value, layout: Layout, cause: Op) -> None:
        """Record what `value` is held as, and tell a loop whose argument it is."""
        if not is_spread(value):
            return
        known = self.layouts.get(value)
        if known is not None:
            if not same(known, layout):
                raise self.conflict(value, layout, cause)
            return
        self.layouts[value] = layout
        self.causes[value] = cause
        owner = value.owner
        if isinstance(owner, Block):
            self.give_argument(value, owner, layout, cause)

    def give_argument(self, value: Value, block: Block, layout: Layout, cause: Op) -> None:
        loop = block.parent.parent if block.parent is not None else None
        if not isinstance(loop, (ops.For, ops.Loop)):
            return
        index = value.index - (1 if isinstance(loop, ops.For) else 0)
        self.demand_in(loop, index + (3 if isinstance(loop, ops.For) else 0), layout)
        if isinstance(loop, ops.For):
            self.give(loop.results[index], layout, cause)
        for op in block.walk():
            if isinstance(op, ops.Continue) and _loop_of(op) is loop:
                self.demand_in(op, index, layout)

    def demand_operands(self, op: Op, layouts: list[Layout]) -> None:
        for i, layout in enumerate(layouts):
            self.demand_in(op, i, layout)

    def demand_operand(self, op: Op, port: int, layout: Layout) -> None:
        argument = op.arguments[port]
        if isinstance(argument, Value) and is_spread(argument):
            self.demand_in(op, op.operands.index(argument), layout)

    def demand_in(self, op: Op, index: int, layout: Layout) -> None:
        """Demand a layout of one operand of `op`; it may be replaced by a copy."""
        value = op.operands[index]
        if not is_spread(value):
            return
        held = self.demand(value, layout, op)
        if held is not value:
            _replace_operand(op, index, held)

    def demand(self, value: Value, layout: Layout, cause: Op) -> Value:
        """Return a value that is held as `layout`: this one, or a copy of it."""
        known = self.layouts.get(value)
        if known is None:
            self.give(value, layout, cause)
            if isinstance(value.owner, Op):
                self.backward(value.owner, value, layout)
            return value
        if same(known, layout):
            return value
        owner = value.owner
        if not isinstance(owner, Op) or not _is_free(value):
            return self.change(value, layout, cause)
        mapping: dict[Value, Value] = {}
        copy = clone_op(owner, mapping)
        assert owner.parent is not None
        owner.parent.ops.insert(owner.parent.ops.index(owner) + 1, copy)
        copy.parent = owner.parent
        return self.demand(mapping[value], layout, cause)

    def change(self, value: Value, layout: Layout, cause: Op) -> Value:
        """A copy of a computed value in another layout, made right behind the value."""
        text = text_of(layout)
        if (value, text) in self.changed:
            return self.changed[value, text]
        try:
            distance = convert(self.layouts[value], layout).distance
        except LayoutError:
            distance = "cta"
        if distance == "cta":
            raise self.conflict(value, layout, cause)
        new = ops.ChangeLayout((value,), (value.type,), {}, (), cause.span, (value.name,))
        owner = value.owner
        block = owner if isinstance(owner, Block) else owner.parent if owner else None
        assert block is not None
        at = block.ops.index(owner) + 1 if isinstance(owner, Op) else 0
        block.ops.insert(at, new)
        new.parent = block
        self.changed[value, text] = new.result
        self.give(new.result, layout, cause)
        return new.result

    def backward(self, op: Op, value: Value, layout: Layout) -> None:
        """Tell the operands of `op` that a result of it is held as `layout`."""
        match op:
            case ops.Constant() | ops.Iota():
                return
            case ops.Broadcast():
                source = op.source
                if is_spread(source):
                    assert isinstance(source.type, TileType)
                    self.demand_in(op, 0, collapsed(layout, source.type.shape))
            case ops.Reshape():
                if is_spread(op.source):
                    assert isinstance(op.source.type, TileType)
                    self.demand_in(op, 0, reshaped(layout, op.source.type.shape))
            case ops.IfRows():
                index = op.results.index(value)
                self.demand_in(op, 1 + index, layout)
                self.demand_in(op.then.block.ops[-1], index, layout)
            case _ if op.definition.poison in ELEMENTWISE and not op.regions:
                for result in op.results:
                    self.give(result, layout, op)
                self.demand_operands(op, [layout] * len(op.operands))
            case _:
                return

    def conflict(self, value: Value, layout: Layout, cause: Op) -> ReftileError:
        first = self.causes[value]
        have, want = text_of(self.layouts[value]), text_of(layout)
        try:
            distance = convert(self.layouts[value], layout).distance
        except LayoutError:
            distance = "cta"
        return ReftileError(
            Diagnosis(
                "lower.layout_conflict",
                f"%{value.name} is held as {have}, and `{cause.name}` needs {want}",
                cause.span,
                "pass it through shared memory, or choose operations that agree",
                (
                    (f"`{first.name}` makes it so", first.span),
                    (f"its elements would move between: {distance}s", None),
                ),
            )
        )

    # The end

    def choose(self, kernel: Kernel) -> None:
        """Spread what nothing prescribes over all threads of its role, 16 bytes in each."""
        while (value := self.undecided(kernel)) is not None:
            kind, owner = value.type, value.owner
            assert isinstance(kind, TileType)
            block_op = owner.parent.parent if isinstance(owner, Block) and owner.parent else owner
            at = block_op if isinstance(block_op, Op) else kernel.body.block.ops[0]
            each = max(1, 128 // max(8, kind.dtype.bits)) if isinstance(kind.element, DType) else 2
            layout = blocked(kind.shape, each, _warps_around(at, kernel))
            self.give(value, layout, at)
            self.block(kernel.body.block)

    def undecided(self, kernel: Kernel) -> Value | None:
        """The first value in the text that no layout was given to."""
        for op in kernel.walk():
            if isinstance(op, ops.Reduce) or _is_inside_reduce(op):
                values: tuple[Value, ...] = op.results if isinstance(op, ops.Reduce) else ()
            else:
                values = (*op.results, *(a for r in op.regions for a in r.block.arguments))
            for value in values:
                if is_spread(value) and value not in self.layouts:
                    return value
        return None

    def finish(self, kernel: Kernel) -> None:
        for op in list(kernel.walk()):
            for value in (*op.results, *(a for r in op.regions for a in r.block.arguments)):
                layout = self.layouts.get(value)
                if layout is None and is_spread(value):
                    raise fail(
                        "lower.no_layout",
                        f"nothing says which threads hold %{value.name}: {value.type}",
                        op.span,
                        "products do, through elementwise operations, reductions and reshapes",
                    )
                if layout is not None and isinstance(value.type, TileType):
                    value.type = replace(value.type, layout=text_of(layout))
                elif isinstance(value.type, PendingType):
                    rows, columns = value.type.tile.shape
                    text = text_of(accumulator_layout(rows, columns))
                    value.type = PendingType(replace(value.type.tile, layout=text))


def _cheapest(op: Op, held: list[tuple[Value, Layout]]) -> Layout | None:
    """The layout of an operand or result to which all others change at the least cost."""
    if not held:
        return None
    different: list[Layout] = []
    for _, layout in held:
        if not any(same(layout, other) for other in different):
            different.append(layout)
    if len(different) == 1:
        return different[0]

    def price(layout: Layout) -> int:
        total = 0
        for value, other in held:
            kind = value.type
            assert isinstance(kind, TileType)
            if same(layout, other) or _is_free(value):
                continue
            bits = kind.dtype.bits if isinstance(kind.element, DType) else 64
            try:
                total += conversion_cost(other, layout, max(8, bits)).total
            except LayoutError:
                total += 1 << 30
        return total

    return min(different, key=price)


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


def _is_free(value: Value) -> bool:
    """True if any layout suits: the value is computed from constants and scalars alone."""
    owner = value.owner
    if not is_spread(value):
        return True
    if not isinstance(owner, Op) or not owner.definition.is_pure or owner.regions:
        return False
    return all(_is_free(v) for v in owner.operands)


def _loop_of(op: Op) -> Op | None:
    block = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if not isinstance(owner, Op) or "loop" in owner.definition.traits:
            return owner if isinstance(owner, Op) else None
        block = owner.parent
    return None


def _part(layout: Layout, op: ops.Extract, shape: tuple[int, ...]) -> Layout:
    for axis, (index, extent) in enumerate(zip(op.indices, shape, strict=True)):
        number = constant_int(index)
        assert number is not None
        if extent != layout.shape[axis]:
            layout, _ = layout.slice(axis, number * extent, extent)
    return layout


# Products of warps


def _warps_around(op: Op, kernel: Kernel) -> int:
    block = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if isinstance(owner, ops.Role):
            return owner.warps
        block = owner.parent if isinstance(owner, Op) else None
    warps = kernel.attributes.get("warps")
    assert isinstance(warps, int)
    return warps


def _mma_layouts(op: ops.Mmaf, warps: int) -> tuple[Layout, Layout, Layout]:
    """Fragments of lhs, rhs and accumulator: warps in a grid as square as the tile."""
    lhs, rhs, acc = (v.type for v in (op.lhs, op.rhs, op.acc))
    assert isinstance(lhs, TileType) and isinstance(rhs, TileType) and isinstance(acc, TileType)
    bits = lhs.dtype.bits
    if len(acc.shape) != 2 or bits != 16 or acc.dtype.name not in ("f32", "f16"):
        raise fail("lower.mma", f"{lhs} by {rhs} is not lowered yet", op.span)
    (m, n), k = acc.shape, lhs.shape[1]
    across = 1
    while (
        across * across < warps
        and n // (2 * across) >= 8
        and m * across * across * 4 <= n * warps * warps * 4
    ):
        across *= 2
    down = warps // across
    if m % (16 * down) or n % (8 * across) or k % 16:
        raise fail("lower.mma", f"{warps} warps cannot share a product of {m}x{n}x{k}", op.span)
    return _warp_grid(m, n, k, down, across)


@cache
def _warp_grid(m: int, n: int, k: int, down: int, across: int) -> tuple[Layout, Layout, Layout]:
    """Each warp has a rectangle of the result; warps go along n first."""
    rows, columns = m // down, n // across
    acc = read(f"mma.m16n8.d<{rows}x{columns}>")
    lhs = read(f"mma.m16n8k16.b16.a<{rows}x{k}>")
    rhs = read(f"mma.m16n8k16.b16.b<{k}x{columns}>")

    def spread(
        layout: Layout, shape: tuple[int, int], steps: list[tuple[int, tuple[int, int]]]
    ) -> Layout:
        places: dict[str, list[Digit | tuple[int, tuple[int, ...]]]] = {
            p: list(layout.digits(p)) for p in layout.places
        }
        places["warp"] = list(steps)
        return Layout.of(shape, places)

    return (
        spread(lhs, (m, k), [(across, (0, 0)), (down, (rows, 0))]),
        spread(rhs, (k, n), [(across, (0, columns)), (down, (0, 0))]),
        spread(acc, (m, n), [(across, (0, columns)), (down, (rows, 0))]),
    )
