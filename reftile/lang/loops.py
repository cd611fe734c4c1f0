"""Trace loops: over ranges and conditions at run time, unrolled over what is known now."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from reftile.ir.attributes import Dense
from reftile.ir.core import Block, Value
from reftile.ir.types import PointerType, TileType, Type
from reftile.lang import arithmetic
from reftile.lang.dtypes import bool_, int32, int64
from reftile.lang.expressions import assign_target, evaluate, iterate, static_iterable
from reftile.lang.frame import (
    Environment,
    Exit,
    Flow,
    Frame,
    MayReturn,
    Outcome,
    Returned,
    RunTimeLoop,
    UnrolledLoop,
)
from reftile.lang.merge import (
    Conflict,
    ForeignSlot,
    Same,
    Slot,
    fits,
    join,
    pack,
    same,
    slot_types,
    unpack,
)
from reftile.lang.operators import is_run_time, truth, truth_tile
from reftile.lang.source import assigned_names, leaves_loop, returns
from reftile.lang.trace import static_number
from reftile.lang.values import CELL, Foreign, Tile, Undefined, describe, items_of

Execute: TypeAlias = Callable[[Frame, list[ast.stmt]], Outcome]
Slots: TypeAlias = dict[str, Slot]


class ForeignLoop(Foreign):
    """What a dialect lets a `for` iterate over."""

    def trace(self, frame: Frame, node: ast.For, execute: Execute) -> Outcome:
        """Trace the loop; `execute` traces statements."""
        raise NotImplementedError


MOST_ATTEMPTS = 6
"""Times that a body is traced until the types of what it carries are settled."""


# Unrolled loops


def _unroll(frame: Frame, node: ast.For, items: Sequence[object], execute: Execute) -> Outcome:
    if len(items) > frame.trace.options.longest_unrolling:
        raise frame.error(
            node.iter,
            "unrolled",
            f"{len(items)} iterations are too many to unroll",
            "loop over range(...) instead",
        )
    outer = frame.loop
    frame.loop = UnrolledLoop(frame.trace.block)
    try:
        for item in items:
            assign_target(frame, node.target, item)
            outcome = execute(frame, node.body)
            if outcome is Flow.BREAK:
                break
            if isinstance(outcome, Returned) or outcome is Flow.ENDED:
                return outcome
    finally:
        frame.loop = outer
    return Flow.NEXT


# Loops of the IR


@dataclass(slots=True)
class _Body:
    """A body that has been traced: its block, its ways out, and the values it begins with."""

    block: Block
    arguments: list[Value]
    exits: list[Exit]


def _label(name: str) -> str:
    """What a carried value is called in the IR."""
    return name.removeprefix(CELL).replace(".", "_")


def _entry_slots(frame: Frame, names: Sequence[str]) -> Slots:
    slots: Slots = {}
    for name in names:
        if name in frame.names:
            slots[name] = join([frame.names[name]], "numbers")
        else:
            slots[name] = Conflict("the loop that gives it a value may not have run yet")
    return slots


def _trace_body(
    frame: Frame,
    slots: Slots,
    counter: TileType | None,
    run: Callable[[list[Value]], Outcome],
    may_break: bool,
) -> _Body:
    """Trace a body once, with the names it carries bound to its block's arguments."""
    types = [t for slot in slots.values() for t in slot_types(slot)]
    labels = [_label(n) for n, slot in slots.items() for _ in slot_types(slot)]
    head = [counter] if counter is not None else []
    block = Block((*head, *types), (*([""] if head else []), *labels))
    outer_names, outer_loop = frame.names, frame.loop
    frame.names = dict(outer_names)
    values = iter(block.arguments[len(head) :])
    for name, slot in slots.items():
        if isinstance(slot, Conflict) and name not in outer_names:
            frame.names.pop(name, None)
        frame.names[name] = unpack(slot, values)
    loop = frame.loop = RunTimeLoop(may_break=may_break)
    try:
        with frame.trace.inside(block):
            outcome = run(block.arguments[: len(head)])
            if outcome is Flow.NEXT:
                loop.exits.append(
                    Exit("continue", frame.trace.block, dict(frame.names), frame.trace.span)
                )
    finally:
        frame.names, frame.loop = outer_names, outer_loop
    return _Body(block, block.arguments, loop.exits)


def _settle(
    frame: Frame,
    names: Sequence[str],
    counter: TileType | None,
    run: Callable[[list[Value]], Outcome],
    may_break: bool,
) -> tuple[_Body, Slots]:
    """Trace the body until what it leaves fits what it begins with."""
    names = [*names, *_give_cells(frame)]
    slots = _entry_slots(frame, names)
    body = _trace_body(frame, slots, counter, run, may_break)
    for _ in range(MOST_ATTEMPTS):
        fresh = [cell for cell in _give_cells(frame) if cell not in slots]
        if fresh:  # the body has made cells, which it has to begin with
            slots.update(_entry_slots(frame, fresh))
            names.extend(fresh)
            body = _trace_body(frame, slots, counter, run, may_break)
            continue
        again = [e.names for e in body.exits if e.kind == "continue"]
        wrong = {
            name: slot
            for name, slot in slots.items()
            if not all(fits(slot, _value(names_there, name)) for names_there in again)
        }
        if not wrong:
            return body, slots
        for name, slot in wrong.items():
            slots[name] = _wider(frame, name, slot, [_value(n, name) for n in again])
        body = _trace_body(frame, slots, counter, run, may_break)
    return body, slots


def _value(names: Environment, name: str) -> object:
    return names.get(name, Undefined("it has no value on one of the paths"))


def _wider(frame: Frame, name: str, slot: Slot, later: list[object]) -> Slot:
    before = frame.names.get(name)
    wider = slot.wider([before, *later]) if isinstance(slot, ForeignSlot) else None
    found = join([before, *later], "numbers") if wider is None else cast("Slot", wider)
    if isinstance(found, Conflict):
        after = next((v for v in later if not fits(slot, v)), later[0] if later else None)
        if isinstance(after, Undefined):
            return Conflict(after.why)
        return Conflict(
            f"it is {describe(before)} before the loop and {describe(after)} after an iteration"
        )
    return found


def _close(
    frame: Frame,
    slots: Slots,
    exits: Sequence[Exit],
    prefix: Callable[[Exit], list[Value]] | None = None,
) -> None:
    """End the blocks from which the loop goes on or is left, with the values they carry."""
    t = frame.trace
    for way_out in exits:
        with t.inside(way_out.block), t.at(way_out.span):
            values = prefix(way_out) if prefix is not None else []
            for name, slot in slots.items():
                values.extend(pack(t, slot, way_out.names.get(name)))
            t.op(way_out.kind, tuple(values))


def _after(frame: Frame, slots: Slots, results: Iterator[Value]) -> None:
    for name, slot in slots.items():
        frame.names[name] = unpack(slot, results)


def _initial(frame: Frame, slots: Slots) -> list[Value]:
    return [
        v for name, slot in slots.items() for v in pack(frame.trace, slot, frame.names.get(name))
    ]


# for


def trace_for(frame: Frame, node: ast.For, execute: Execute) -> Outcome:
    """Trace a `for` loop: over a range at run time, over anything else unrolled."""
    if node.orelse:
        raise frame.unsupported(node, "`else` after a loop")
    items = static_iterable(frame, node.iter)
    if items is not None:
        return _unroll(frame, node, items, execute)
    bounds = _range_bounds(frame, node.iter)
    if bounds is None:
        value = evaluate(frame, node.iter)
        if isinstance(value, ForeignLoop):
            return value.trace(frame, node, execute)
        return _unroll(frame, node, iterate(frame, node.iter, value), execute)
    if not isinstance(node.target, ast.Name):
        raise frame.error(node.target, "unpack", "the counter of a range is one number")
    dtype = int64 if any(b.dtype.bits == 64 for b in bounds) else int32
    lower, upper, step = (arithmetic.convert(frame.trace, b, dtype) for b in bounds)
    number = static_number(step)
    if number is not None and number <= 0:
        raise frame.error(
            node.iter,
            "range",
            f"the step of a loop must be positive, found {number}",
            "count upwards and compute the index from the counter",
        )
    if leaves_loop(node.body, ast.Break) or (returns(node.body) and not frame.is_kernel):
        return _breakable_for(frame, node, node.target.id, (lower, upper, step), execute)
    return _counted_for(frame, node, node.target.id, (lower, upper, step), execute)


def _range_bounds(frame: Frame, node: ast.expr) -> tuple[Tile, Tile, Tile] | None:
    """The bounds of `range(...)`, or None if `node` is no range."""
    named = (ast.Name, ast.Attribute)
    if isinstance(node, ast.Call) and not node.keywords and isinstance(node.func, named):
        if evaluate(frame, node.func) is not range or any(
            isinstance(a, ast.Starred) for a in node.args
        ):
            return None
        values = [evaluate(frame, a) for a in node.args]
    else:
        return None
    if not 1 <= len(values) <= 3:
        raise frame.error(node, "arguments", f"`range` was given {len(values)} arguments")
    tiles: list[Tile] = []
    for value, argument in zip(values, node.args, strict=True):
        with frame.trace.at(frame.span(argument)):
            tile = arithmetic.as_tile(frame.trace, value, what="a bound of a range")
            if not tile.dtype.is_int or tile.shape:
                raise frame.error(
                    argument,
                    "range",
                    f"a bound of a range must be an integer, found {describe(tile)}",
                )
            tiles.append(tile)
    t = frame.trace
    if len(tiles) == 1:
        return _number(frame, 0), tiles[0], _number(frame, 1)
    third = tiles[2] if len(tiles) == 3 else Tile(t.constant(1, int32), int32, 1)
    return tiles[0], tiles[1], third


def _number(frame: Frame, number: int) -> Tile:
    return Tile(frame.trace.constant(number, int32), int32, number)


def _carried(frame: Frame, node: ast.For | ast.While, without: str = "") -> list[str]:
    nodes: list[ast.stmt] = list(node.body)
    if isinstance(node, ast.While):
        nodes.insert(0, ast.Expr(node.test))
    return [n for n in assigned_names(nodes) if n != without]


def _give_cells(frame: Frame) -> list[str]:
    """Let every cell known so far have a value in front of a loop; give their names."""
    for cell, initial in frame.trace.cells.items():
        if cell not in frame.names:
            frame.names[cell] = initial()
    return list(frame.trace.cells)


def _counted_for(
    frame: Frame,
    node: ast.For,
    counter: str,
    bounds: tuple[Tile, Tile, Tile],
    execute: Execute,
) -> Outcome:
    return trace_counted(frame, node, counter, bounds, lambda: execute(frame, node.body))


def trace_counted(
    frame: Frame,
    node: ast.For,
    counter: str,
    bounds: tuple[Tile, Tile, Tile],
    body_of: Callable[[], Outcome],
    in_front: Callable[[], None] | None = None,
) -> Outcome:
    """Build a `for`.

    body_of: traces the body, perhaps several times. in_front: traces what comes just before the
    loop, once the body is settled.
    """
    t = frame.trace
    dtype = bounds[0].dtype
    names = _carried(frame, node, counter)

    def run(arguments: list[Value]) -> Outcome:
        arguments[0].name = counter
        frame.names[counter] = Tile(arguments[0], dtype)
        return body_of()

    body, slots = _settle(frame, names, TileType((), dtype.element), run, False)
    _close(frame, slots, body.exits)
    if in_front is not None:
        in_front()
    initial = _initial(frame, slots)
    types = [v.type for v in initial]
    operands = tuple(b.value for b in bounds)
    op = t.structure("for", [body.block], *operands, tuple(initial), types=types)
    _after(frame, slots, iter(op.results))
    frame.names[counter] = Undefined("it counts the iterations of a loop that has ended")
    return Flow.NEXT


def _breakable_for(
    frame: Frame,
    node: ast.For,
    counter: str,
    bounds: tuple[Tile, Tile, Tile],
    execute: Execute,
) -> Outcome:
    """A counted loop that is left by `break` becomes a `loop` that counts."""
    lower, upper, step = bounds
    t, dtype = frame.trace, lower.dtype

    def run(arguments: list[Value]) -> Outcome:
        arguments[0].name = counter
        index = Tile(arguments[0], dtype)
        frame.names[counter] = index
        _break_if(frame, arithmetic.compare(t, "greater_than_or_equal", index, upper))
        return execute(frame, node.body)

    def prefix(argument: Value) -> Callable[[Exit], list[Value]]:
        def next_index(way_out: Exit) -> list[Value]:
            if way_out.kind == "break":
                return []
            return [arithmetic.add_sub_mul(t, "add", Tile(argument, dtype), step).value]

        return next_index

    names = _carried(frame, node, counter)
    body, slots = _settle(frame, names, TileType((), dtype.element), run, True)
    outcome = _finish_loop(frame, body, slots, [lower.value], prefix(body.arguments[0]))
    frame.names[counter] = Undefined("it counts the iterations of a loop that has ended")
    return outcome


def _break_if(frame: Frame, condition: Tile) -> None:
    """Leave the loop being traced if `condition` holds."""
    t = frame.trace
    block = Block()
    loop = cast("RunTimeLoop", frame.loop)
    loop.exits.append(Exit("break", block, dict(frame.names), t.span))
    t.structure("if", [block], condition.value, types=[])


# while


def trace_while(frame: Frame, node: ast.While, execute: Execute) -> Outcome:
    """Trace a `while` loop. One that empties a tuple is unrolled."""
    t = frame.trace
    if node.orelse:
        raise frame.unsupported(node, "`else` after a loop")
    if isinstance(node.test, ast.Name) and items_of(evaluate(frame, node.test)) is not None:
        return _unroll_while(frame, node, execute)

    def run(arguments: list[Value]) -> Outcome:
        condition = evaluate(frame, node.test)
        if is_run_time(condition):
            with t.at(frame.span(node.test)):
                _break_if(frame, arithmetic.invert(t, truth_tile(t, condition)))
        elif not truth(t, condition):
            loop = cast("RunTimeLoop", frame.loop)
            loop.exits.append(Exit("break", t.block, dict(frame.names), t.span))
            return Flow.ENDED
        return execute(frame, node.body)

    body, slots = _settle(frame, _carried(frame, node), None, run, True)
    return _finish_loop(frame, body, slots, [], None)


def _unroll_while(frame: Frame, node: ast.While, execute: Execute) -> Outcome:
    outer, frame.loop = frame.loop, UnrolledLoop(frame.trace.block)
    try:
        for _ in range(frame.trace.options.longest_unrolling):
            if not truth(frame.trace, evaluate(frame, node.test)):
                return Flow.NEXT
            outcome = execute(frame, node.body)
            if outcome is Flow.BREAK:
                return Flow.NEXT
            if isinstance(outcome, Returned) or outcome is Flow.ENDED:
                return outcome
    finally:
        frame.loop = outer
    raise frame.error(node, "unrolled", "this loop is unrolled and does not end")


def _finish_loop(
    frame: Frame,
    body: _Body,
    slots: Slots,
    head: list[Value],
    prefix: Callable[[Exit], list[Value]] | None,
) -> Outcome:
    """Build the `loop` of a traced body; names are afterwards what its breaks agree on."""
    t = frame.trace
    breaks = [e for e in body.exits if e.kind == "break" and e.returned is None]
    results = _result_slots(slots, breaks)
    returned = _returned_slot(frame, [e for e in body.exits if e.returned is not None])
    _close(frame, slots, [e for e in body.exits if e.kind == "continue"], prefix)
    for way_out in body.exits:
        if way_out.kind == "break":
            _break(frame, way_out, results, returned)
    initial = [*head, *_initial(frame, slots)]
    types = [type for slot in results.values() for type in slot_types(slot)]
    if returned is not None:
        types = [TileType((), bool_.element), *slot_types(returned), *types]
    op = t.structure("loop", [body.block], tuple(initial), types=types)
    values = iter(op.results)
    outcome: Outcome = Flow.NEXT
    if returned is not None:
        condition = Tile(next(values), bool_)
        value = unpack(returned, values)
        outcome = MayReturn(condition, value) if breaks else Returned(value)
    elif not breaks:
        return _endless(frame)
    _after(frame, results, values)
    return outcome


def _returned_slot(frame: Frame, exits: Sequence[Exit]) -> Slot | None:
    """The slot for what the function returns from inside the loop; None if it does not."""
    values = [e.returned.value for e in exits if e.returned is not None]
    if not values:
        return None
    found = join(values, "run_time")
    if isinstance(found, Conflict):
        raise frame.trace.error("branches", f"the function returns different things: {found.why}")
    return found


def _break(frame: Frame, way_out: Exit, results: Slots, returned: Slot | None) -> None:
    """Leave a loop: by its end, with the names after it, or by a `return`, with its value.

    Whichever does not apply is filled with zeros, which nothing reads.
    """
    t = frame.trace
    with t.inside(way_out.block), t.at(way_out.span):
        values: list[Value] = []
        if returned is not None:
            values.append(t.constant(way_out.returned is not None, bool_))
            if way_out.returned is not None:
                values.extend(pack(t, returned, way_out.returned.value))
            else:
                values.extend(_zero(frame, type) for type in slot_types(returned))
        for name, slot in results.items():
            if way_out.returned is not None:
                values.extend(_zero(frame, type) for type in slot_types(slot))
            else:
                values.extend(pack(t, slot, way_out.names.get(name)))
        t.op("break", tuple(values))


def _zero(frame: Frame, type: Type) -> Value:
    """A value of `type` that nobody looks at."""
    t = frame.trace
    if not isinstance(type, TileType):
        return t.value("make_token")
    if isinstance(type.element, PointerType):
        address = t.constant(0, int64, type.shape)
        return t.value("int_to_ptr", address, types=[type])
    zero = Dense.of_bits([0], type)
    return t.value("constant", types=[type], value=zero)


def _endless(frame: Frame) -> Outcome:
    """No statement after a loop that is never left runs; the block still needs an end."""
    if not frame.is_kernel:
        raise frame.trace.error("endless", "this loop is never left")
    frame.trace.op("return")
    return Flow.ENDED


def _result_slots(slots: Mapping[str, Slot], breaks: Sequence[Exit]) -> Slots:
    names = dict.fromkeys(slots)
    results: Slots = {}
    for name in names:
        values = [_value(e.names, name) for e in breaks]
        if not values:
            continue
        slot = slots[name]
        unchanged = isinstance(slot, Same) and all(same(slot.value, v) for v in values)
        results[name] = slot if unchanged else join(values, "run_time")
    return results
