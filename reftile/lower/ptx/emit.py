"""Print a `simt` kernel as PTX.

Control flow is structured: loops test at their end, behind one test before the first iteration;
small branches become predicates. Elementwise operations take rows of the table; all others have a
function in `shapes`, `memory` or `products`.

Source: PTX ISA 9.2. The header asks for version 8.6, which drivers from CUDA 12.7 on read, or for
the first that knows the target.
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import fail
from reftile.ir.targets import TARGETS
from reftile.ir.types import PointerType, TensorMapType, TileType
from reftile.lower.functions.library import body_of
from reftile.lower.ptx.memory import MEMORY
from reftile.lower.ptx.products import PRODUCTS
from reftile.lower.ptx.refusals import refusal
from reftile.lower.ptx.shapes import SHAPES, emit_reduce
from reftile.lower.ptx.storage import assign_storage
from reftile.lower.ptx.table import instruction, register_kind
from reftile.lower.ptx.threads import PREDICABLE, THREADS
from reftile.lower.ptx.writer import (
    Element,
    Held,
    Shifted,
    Writer,
    form_of,
    tile_of,
)

Printer = Callable[[Writer, Op], None]
LARGEST_PREDICATED = 8
"""Instructions of a branch at most that become predicated instead."""


def emit_ptx(kernel: Kernel) -> str:
    """Return the text of a module with the kernel as its entry."""
    return _emit(Writer(assign_storage(kernel), str(kernel.attributes["target"])), kernel)


def instructions_of(kernel: Kernel) -> list[tuple[Op, list[str]]]:
    """The instructions that each operation of a `simt` kernel becomes, those inside it apart."""
    origins: list[tuple[Op, int, int]] = []
    target = str(kernel.attributes["target"])
    writer = Writer(assign_storage(kernel), target, origins=origins)
    _emit(writer, kernel)
    taken = [False] * len(writer.lines)
    found: list[tuple[Op, list[str]]] = []
    for op, begin, end in origins:
        mine = [i for i in range(begin, end) if not taken[i]]
        for i in mine:
            taken[i] = True
        found.append((op, [writer.lines[i].strip() for i in mine]))
    return found


def _emit(writer: Writer, kernel: Kernel) -> str:
    parameters = _enter(writer, kernel)
    _block(writer, kernel.body.block)
    return "\n".join(
        (
            f".version {TARGETS[writer.target].ptx_version}",
            f".target {writer.target}",
            ".address_size 64",
            ".extern .shared .align 1024 .b8 shared_memory[];",
            "",
            f".visible .entry {kernel.name}(",
            ",\n".join(parameters),
            ")",
            *_limits(kernel),
            "{",
            *writer.declarations(),
            *writer.lines,
            "}",
            "",
        )
    )


def _limits(kernel: Kernel) -> list[str]:
    warps = kernel.attributes["warps"]
    assert isinstance(warps, int)
    limits = [f".reqntid {32 * warps}, 1, 1"]
    cluster = kernel.attributes.get("cluster", (1,))
    assert isinstance(cluster, tuple)
    extents = (*cluster, 1, 1)[:3]
    if extents != (1, 1, 1):
        limits.append(f".reqnctapercluster {', '.join(map(str, extents))}")
    return limits


def _enter(writer: Writer, kernel: Kernel) -> list[str]:
    parameters: list[str] = []
    if kernel.attributes.get("shared_bytes"):
        writer.shared = writer.register("b32", "shared")
        writer.line(f"mov.u32 {writer.shared}, shared_memory;")
    for value in kernel.arguments:
        name = f"p_{value.name}"
        if isinstance(value.type, TensorMapType):
            parameters.append(f"  .param .align 64 .b8 {name}[128]")
            register = writer.register("b64", value.name)
            writer.line(f"mov.b64 {register}, {name};")
            writer.line(f"cvta.param.u64 {register}, {register};")
            writer.held[value] = Held([register])
            continue
        assert isinstance(value.type, TileType)
        kind = register_kind(value.type.element)
        if kind == "pred":
            message = f"%{value.name}: a truth value is no parameter of a kernel for threads"
            raise fail("lower.unsupported", message, kernel.span, "pass an i32, and compare it")
        size = {"b64": "u64", "b32": "u32", "f32": "f32", "f64": "f64", "b16": "u16"}[kind]
        parameters.append(f"  .param .{size} {name}")
        (register,) = writer.result(value)
        writer.line(f"ld.param.{size} {register}, [{name}];")
        if isinstance(value.type.element, PointerType):
            writer.line(f"cvta.to.global.u64 {register}, {register};")
    return parameters


def _block(writer: Writer, block: Block) -> None:
    for op in block.ops:
        _op(writer, op)


def _op(writer: Writer, op: Op) -> None:
    begin = len(writer.lines)
    _print(writer, op)
    if writer.origins is not None:
        writer.origins.append((op, begin, len(writer.lines)))


def _print(writer: Writer, op: Op) -> None:
    printer = _PRINTERS.get(op.name)
    if printer is not None:
        printer(writer, op)
    elif op.definition.poison in ("elementwise", "select"):
        emit_elementwise(writer, op)
    else:
        raise writer.unsupported(op.results[0] if op.results else op.operands[0], f"`{op.name}`")


# Elementwise


def emit_elementwise(writer: Writer, op: Op) -> None:
    """Print an operation that the table knows, element by element."""
    if _sum_later(writer, op):
        return
    result = op.results[0]
    form = form_of(result)
    may_pair = form.each == 2 or writer.bits_of(result) == 8
    found = instruction(op, may_pair, writer.target)
    if found is None:
        body = body_of(op)
        if body is None:
            raise refusal(op, may_pair, writer.target)
        _expand(writer, op, body)
        return
    operands = [
        # Instructions on halves take no immediates.
        writer.in_registers(writer.single(v), "b16") if is_half else writer.single(v)
        for v, is_half in zip(op.operands, found.halves, strict=True)
    ]
    # One of 8 bits alone is a pair of itself: what is above it says nothing.
    given = 2 if found.pair and form.each > 1 else 1
    is_whole = form.each == given
    count = form.count // given
    targets = writer.result(result) if is_whole else writer.group("b16", count, result.name)
    fields: dict[str, str] = {}
    for i, target in enumerate(targets):
        for name, kind in found.temporaries:
            fields[name] = writer.register(kind, "t")
        for port, elements in zip(found.ports, operands, strict=True):
            fields[port] = fields[f"{port}_0"] = elements[given * i]
            fields[f"{port}_1"] = elements[given * i + given - 1]
        fields["result"] = target
        writer.line(found.text.format_map(fields))
    if not is_whole:
        writer.hold(result, targets, given)


def _expand(writer: Writer, op: Op, body: Block) -> None:
    """Print a function's body for each element. Its registers are the same each time."""
    result = op.results[0]
    form = form_of(result)
    operands = [writer.in_registers(writer.single(v), form_of(v).single) for v in op.operands]
    targets = (
        writer.result(result)
        if form.each == 1
        else writer.group(form.single, form.count, result.name)
    )
    origins, writer.origins = writer.origins, None  # All lines are those of `op`.
    for i, target in enumerate(targets):
        for argument, elements in zip(body.arguments, operands, strict=True):
            writer.held[argument] = Held([elements[i]])
        for inner in body.ops[:-1]:
            _print(writer, inner)
        writer.move_one(form.single, target, writer.one(body.ops[-1].operands[0]))
    writer.origins = origins
    if form.each > 1:
        writer.hold(result, targets)


def _sum_later(writer: Writer, op: Op) -> bool:
    """Keep the constant part of integer sums apart, so that counters take no registers."""
    if not isinstance(op, ops.Addi) or writer.has_storage(op.result):
        return False
    lhs, rhs = writer.get(op.lhs).elements, writer.get(op.rhs).elements
    if not any(isinstance(e, Shifted) for e in (*lhs, *rhs)):
        return False
    bases: dict[tuple[str, str], str] = {}
    found: list[Element] = []
    for a, b in zip(lhs, rhs, strict=True):
        one, two = _split(a), _split(b)
        amount = one.amount + two.amount
        if not one.register or not two.register:
            found.append(Shifted(one.register or two.register, amount))
            continue
        key = (one.register, two.register)
        if key not in bases:
            bases[key] = writer.register("b32", op.result.name)
            writer.line(f"add.s32 {bases[key]}, {one.register}, {two.register};")
        found.append(Shifted(bases[key], amount))
    writer.held[op.result] = Held(found)
    return True


def _split(element: Element) -> Shifted:
    if isinstance(element, Shifted):
        return element
    if element.lstrip("-").isdigit():
        return Shifted("", int(element))
    return Shifted(element, 0)


# Control


def _for(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.For)
    block = op.body.block
    counter, *carried = block.arguments
    writer.move([m for a, v in zip(carried, op.init, strict=True) for m in _moves(writer, a, v)])
    (register,) = writer.result(counter)
    bits = writer.bits_of(counter)
    sign = "u" if op.unsigned_cmp else "s"
    lower, upper, step = (writer.one(v) for v in (op.lower, op.upper, op.step))
    writer.move_one(f"b{bits}", register, lower)
    again, end = writer.fresh_label("again"), writer.fresh_label("done")
    more = writer.register("pred", "more")
    if not _runs(lower, upper):
        writer.line(f"setp.ge.{sign}{bits} {more}, {register}, {upper};")
        writer.line(f"@{more} bra {end};")
    writer.label(again)

    def proceed(last: Op, guard: str) -> None:
        moves = zip(carried, last.operands, strict=True)
        writer.move([m for a, v in moves for m in _moves(writer, a, v)])
        if _may_wrap(upper, step, bits, sign):
            # That ends the loop. The way left is positive, and fits as an unsigned number.
            left = writer.register(f"b{bits}", "left")
            writer.line(f"sub.s{bits} {left}, {upper}, {register};")
            writer.line(f"add.s{bits} {register}, {register}, {step};")
            writer.line(f"setp.gt.u{bits} {more}, {left}, {step};")
        else:
            writer.line(f"add.s{bits} {register}, {register}, {step};")
            writer.line(f"setp.lt.{sign}{bits} {more}, {register}, {upper};")
        writer.line(f"@{more} bra {again};")
        if guard:
            writer.line(f"bra {end};")

    writer.loops.append(proceed)
    _block(writer, block)
    writer.loops.pop()
    writer.label(end)
    for argument, result in zip(carried, op.results, strict=True):
        writer.held[result] = writer.get(argument)


def _may_wrap(upper: str, step: str, bits: int, sign: str) -> bool:
    """True if a counter below `upper` may pass the last number of so many bits."""
    if step == "1":
        return False
    if not all(n.lstrip("-").isdigit() for n in (upper, step)):
        return True
    end = int(upper) % (1 << bits) if sign == "u" else int(upper)
    return end + int(step) > 1 << (bits - (sign == "s"))


def _runs(lower: str, upper: str) -> bool:
    """True if the loop surely has an iteration."""
    numbers = [int(n) for n in (lower, upper) if n.lstrip("-").isdigit()]
    return len(numbers) == 2 and numbers[0] < numbers[1]


def _loop(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.Loop)
    block = op.body.block
    init = zip(block.arguments, op.init, strict=True)
    writer.move([m for a, v in init for m in _moves(writer, a, v)])
    again, end = writer.fresh_label("again"), writer.fresh_label("done")
    writer.label(again)

    def proceed(last: Op, guard: str) -> None:
        if isinstance(last, ops.Break):
            pairs = zip(op.results, last.operands, strict=True)
            writer.move([m for r, v in pairs for m in _moves(writer, r, v)])
            writer.line(f"bra {end};")
            return
        pairs = zip(block.arguments, last.operands, strict=True)
        writer.move([m for a, v in pairs for m in _moves(writer, a, v)])
        writer.line(f"bra {again};")

    writer.loops.append(proceed)
    _block(writer, block)
    writer.loops.pop()
    writer.label(end)


def _moves(writer: Writer, target: Value, source: Value) -> list[tuple[str, str, str]]:
    """Moves for a carried value; what shares registers, and what has none yet, needs none."""
    if source.type.kind == "pending":
        writer.result(target)
        return []
    return writer.moves(target, source)


def _leave(writer: Writer, op: Op) -> None:
    """`continue` and `break`: at the end of the body, or out of branches inside it."""
    assert op.parent is not None and op.parent.parent is not None
    inside = not isinstance(op.parent.parent.parent, (ops.For, ops.Loop))
    writer.loops[-1](op, "inside" if inside else "")


def _if(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.If)
    condition = writer.predicate(op.condition)
    if op.otherwise is None and _is_small(op.then.block):
        _predicated(writer, op.then.block, condition)
        return
    end = writer.fresh_label("end")
    other = writer.fresh_label("else") if op.otherwise is not None else end
    writer.line(f"@!{condition} bra {other};")
    _branch(writer, op, op.then.block)
    if op.otherwise is not None:
        if op.then.block.ops[-1].name == "yield":
            writer.line(f"bra {end};")
        writer.label(other)
        _branch(writer, op, op.otherwise.block)
    writer.label(end)


def _branch(writer: Writer, op: ops.If, block: Block) -> None:
    _block(writer, block)
    last = block.ops[-1]
    if last.name == "yield":
        pairs = zip(op.results, last.operands, strict=True)
        writer.move([m for r, v in pairs for m in _moves(writer, r, v)])


def _is_small(block: Block) -> bool:
    """True if a branch is a few scalar operations, and effects that may be predicated."""
    *body, last = block.ops
    if last.name != "yield" or len(body) > LARGEST_PREDICATED:
        return False
    for op in body:
        if isinstance(op, ops.If):
            if op.otherwise is not None or not _is_small(op.then.block):
                return False
        elif op.name not in PREDICABLE and not _is_free(op):
            return False
    return True


def _is_free(op: Op) -> bool:
    scalars = all(isinstance(r.type, TileType) and not r.type.shape for r in op.results)
    return op.definition.is_pure and not op.regions and scalars


def _predicated(writer: Writer, block: Block, condition: str) -> None:
    for op in block.ops[:-1]:
        if isinstance(op, ops.If):
            both = writer.register("pred", "both")
            writer.line(f"and.pred {both}, {condition}, {writer.predicate(op.condition)};")
            _predicated(writer, op.then.block, both)
        elif op.name in PREDICABLE:
            writer.guard = f"@{condition} "
            _op(writer, op)
            writer.guard = ""
        else:
            _op(writer, op)


def _if_rows(writer: Writer, op: Op) -> None:
    """Each warp branches for itself; its rows are one group, so it holds one condition."""
    assert isinstance(op, ops.IfRows)
    condition = writer.elements(op.condition)
    if len(condition) != 1:
        raise writer.unsupported(op.condition, "`if_rows` with several groups in one warp")
    pairs = zip(op.results, op.otherwise, strict=True)
    writer.move([m for r, v in pairs for m in _moves(writer, r, v)])
    end = writer.fresh_label("rows")
    writer.line(f"@!{condition[0]} bra {end};")
    _block(writer, op.then.block)
    last = op.then.block.ops[-1]
    pairs = zip(op.results, last.operands, strict=True)
    writer.move([m for r, v in pairs for m in _moves(writer, r, v)])
    writer.label(end)


def _return(writer: Writer, op: Op) -> None:
    writer.line("ret;")


def _nothing(writer: Writer, op: Op) -> None:
    """`yield` is printed by what it ends."""


def _reduce(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.Reduce)
    emit_reduce(writer, op, _op)


_PRINTERS: dict[str, Printer] = {
    **SHAPES,
    **MEMORY,
    **PRODUCTS,
    **THREADS,
    "for": _for,
    "loop": _loop,
    "if": _if,
    "if_rows": _if_rows,
    "reduce": _reduce,
    "continue": _leave,
    "break": _leave,
    "yield": _nothing,
    "return": _return,
}

__all__ = ["emit_ptx", "tile_of"]
