"""A litmus test as text of the tile level: one kernel for each launch, a branch for each block."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reftile.interp.model.events import Access, Block, Op
from reftile.interp.model.litmus import LitmusTest
from reftile.interp.model.values import FALSE, TRUE, Bin, Const, Expr, Reg

SCOPES = {"block": "tl_blk", "device": "device", "sys": "sys"}
CALCULATIONS = {"+": "addi", "-": "subi", "*": "muli", "&": "andi", "|": "ori", "^": "xori"}
COMPARISONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less_than",
    "<=": "less_than_or_equal",
    ">": "greater_than",
    ">=": "greater_than_or_equal",
}


class Inexpressible(Exception):
    """A kernel of the tile level cannot say this; the text says what."""


@dataclass(frozen=True)
class Scalar:
    """A scalar in the text: its name, and whether it is an i1 (else of the width of arithmetic)."""

    name: str
    is_condition: bool = False


@dataclass
class _Element:
    """An element of an operation: where it is, under which mask."""

    index: Expr
    mask: Expr
    access: Access


def kernel_name(test: str, launch: int = 0) -> str:
    """The name of a test's kernel."""
    name = "t_" + re.sub(r"\W+", "_", test.replace(",", "_apart_")).strip("_")
    return f"{name}_launch{launch}" if launch else name


def write_test(test: LitmusTest) -> str:
    """The kernels of a test.

    Raises:
        Inexpressible: it needs a read-modify-write of narrow elements.
    """
    program = test.program
    launches = sorted({b.launch for b in program.blocks})
    return "\n".join(Writer(test).kernel(launch) for launch in launches)


class Writer:
    """Writes the kernels of one test.

    start: the token that operations without another one take. absent: what the result of an
    operation that did not run is given as.
    """

    start = ""
    absent = 0

    def __init__(self, test: LitmusTest) -> None:
        self.test, self.program = test, test.program
        self.lines: list[str] = []
        self.indent = "  "
        self.count = 0
        sizes = {a.location.size for b in self.program.blocks for o in b.ops for a in o.accesses}
        self.int = (
            "i64" if 8 in sizes or any(b.element_size == 8 for b in self.program.buffers) else "i32"
        )
        self.registers: dict[str, Scalar] = {}
        self.tokens: dict[str, str] = {}

    # Text

    def emit(self, text: str) -> None:
        self.lines.append(f"{self.indent}{text}")

    def define(self, text: str, type: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.emit(f"{name} = {text} : {type}")
        return name

    def meet(self, place: str, blocks: str, tries: str, after: str = "") -> str:
        """Count the block in at a pointer and look, `tries` times at most, until all `blocks` came.

        The token at the end of it; `after` is the one to begin with.
        """
        one = self.define("constant {value = 1}", "tile<i32>")
        token = f", token={after}" if after else ""
        how = "ordering = relaxed, scope = device, mode = add"
        self.emit(f"%_came, %_arrived = atomic_rmw_tko {place}, {one}{token} {{{how}}}")
        self.lines[-1] += " : tile<i32>, token"
        return self.look(place, blocks, tries, "%_arrived")

    def look(self, place: str, least: str, tries: str, after: str) -> str:
        """Look at a pointer, `tries` times at most, until `least` stands there: the last token."""
        zero = self.define("constant {value = 0}", "tile<i32>")
        one = self.define("constant {value = 1}", "tile<i32>")
        how = "ordering = relaxed, scope = device"
        reaches = "{predicate = greater_than_or_equal, signedness = signed}"
        self.emit(f"%_meetings, %_met = loop {zero}, {after} : tile<i32>, token")
        self.lines[-1] += " body(%_tried: tile<i32>, %_waited: token) {"
        load = f"load_ptr_tko {place}, token=%_waited {{{how}}}"
        self.emit(f"  %_there, %_seen = {load} : tile<i32>, token")
        self.emit(f"  %_all = cmpi %_there, {least} {reaches} : tile<i1>")
        self.emit(f"  %_missed = cmpi %_tried, {tries} {reaches} : tile<i1>")
        self.emit("  %_go = ori %_all, %_missed : tile<i1>")
        self.emit("  if %_go then {")
        self.emit("    break %_tried, %_seen")
        self.emit("  }")
        self.emit(f"  %_more = addi %_tried, {one} : tile<i32>")
        self.emit("  continue %_more, %_seen")
        self.emit("}")
        return "%_met"

    def kernel(self, launch: int) -> str:
        """The kernel of one launch."""
        self.lines, self.count, self.indent = [], 0, "  "
        arguments = ", ".join(
            f"%{b.name}: tile<ptr<{_dtype(b.element_size)}>>" for b in self.program.buffers
        )
        blocks = [b for b in self.program.blocks if b.launch == launch]
        if len(blocks) > 1:
            self.emit("%b, %b1, %b2 = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>")
            self.branches(blocks, "%b")
        else:
            self.registers, self.tokens = {}, {}
            self.block(blocks[0])
        return self.finished(launch, arguments)

    def branches(self, blocks: Sequence[Block], which: str) -> None:
        """Each block in a branch of its own, taken where `which` is its number."""
        for number, block in enumerate(blocks):
            self.registers, self.tokens = {}, {}
            at = self.define(f"constant {{value = {number}}}", "tile<i32>")
            equal = "{predicate = equal, signedness = signed}"
            mine = self.define(f"cmpi {which}, {at} {equal}", "tile<i1>")
            self.emit(f"if {mine} then {{  // block {block.name}")
            self.indent = "    "
            self.block(block)
            self.emit("yield")
            self.indent = "  "
            self.emit("}")

    def finished(self, launch: int, arguments: str) -> str:
        """The kernel of the lines written."""
        self.emit("return")
        name = kernel_name(self.test.name, launch)
        return "\n".join([f"tile kernel @{name}({arguments}) {{", *self.lines, "}", ""])

    # Operations

    def block(self, block: Block) -> None:
        for op in block.ops:
            waits = [self.token(self.tokens[e.op], e.guard) for e in op.after]
            before = waits[0] if len(waits) == 1 else self.start
            if len(waits) > 1:
                before = self.define(f"join_tokens {', '.join(waits)}", "token")
            if not op.accesses:
                self.tokens[op.name] = before or self.define("make_token", "token")
            elif op.guard == TRUE:
                self.access(block, op, before)
            else:
                self.branch(block, op, before or self.define("make_token", "token"))

    def token(self, token: str, guard: Expr) -> str:
        """A token that waits only where a condition holds."""
        if guard == TRUE:
            return token
        condition = self.condition(guard)
        self.count += 1
        name = f"%v{self.count}"
        self.emit(f"{name} = if {condition} : token then {{")
        self.emit(f"  yield {token}")
        self.emit("} otherwise {")
        self.emit(f"  %none{self.count} = make_token : token")
        self.emit(f"  yield %none{self.count}")
        self.emit("}")
        return name

    def branch(self, block: Block, op: Op, before: str) -> None:
        """An operation under a condition; elsewhere its token is what it waits for."""
        condition = self.condition(op.guard)
        outside, indent = self.lines, self.indent
        self.lines, self.indent = [], f"{indent}  "
        result, type = self.access(block, op, before, keep=False)
        inside, self.lines, self.indent = self.lines, outside, indent
        label = f"%{block.name}_{op.name}"
        names, types = ([f"{result}_then"], [type]) if result else ([], [])
        head = ", ".join([*names, f"{label}_then"])
        self.emit(f"{head} = if {condition} : {', '.join([*types, 'token'])} then {{")
        self.lines += inside
        self.emit(f"  yield {', '.join([*([result] if result else []), label])}")
        self.emit("} otherwise {")
        if result:
            self.emit(f"  {result}_else = constant {{value = {self.absent}}} : {type}")
        self.emit(f"  yield {', '.join([*([f'{result}_else'] if result else []), before])}")
        self.emit("}")
        self.tokens[op.name] = f"{label}_then"
        if result:
            self.keep(op, f"{result}_then", type)

    def access(self, block: Block, op: Op, before: str, keep: bool = True) -> tuple[str, str]:
        """Write an operation; give its result and type, "" if it has none."""
        elements = [_element(op, group) for group in _groups(op.accesses)]
        first = op.accesses[0]
        size, kind = first.location.size, first.kind
        if kind in ("rmw", "cas") and size not in (4, 8):
            raise Inexpressible(f"a read-modify-write of {size} bytes")
        count = 1 << (len(elements) - 1).bit_length()
        shape = "" if count == 1 else f"{count}x"
        type = f"tile<{shape}{_dtype(size)}>"
        at = self.pointers(elements, count, size)
        operands = [at]
        if first.compare is not None:
            operands.append(self.tile([e.access.compare for e in elements], count, size))
        if first.value is not None:
            operands.append(self.tile([e.access.value for e in elements], count, size))
        if count > len(elements) or any(e.mask != TRUE for e in elements):
            operands.append(f"mask={self.masks([e.mask for e in elements], count)}")
            if kind == "load" and first.otherwise is not None:
                padding = self.tile([e.access.otherwise for e in elements], count, size)
                operands.append(f"padding_value={padding}")
        if before:
            operands.append(f"token={before}")
        how = f"ordering = {op.order}" + (f", scope = {SCOPES[op.scope]}" if op.scope else "")
        if kind == "rmw":
            how += f", mode = {first.modify}"
        verb = {"load": "load_ptr", "store": "store_ptr", "rmw": "atomic_rmw", "cas": "atomic_cas"}
        text = f"{verb[kind]}_tko {', '.join(operands)} {{{how}}}"
        label = f"%{block.name}_{op.name}"
        self.tokens[op.name] = label
        if kind == "store":
            self.emit(f"{label} = {text} : token")
            return "", ""
        base = first.register.partition("[")[0] or f"{block.name}_{op.name}_old"
        self.emit(f"%{base}, {label} = {text} : {type}, token")
        if keep:
            self.keep(op, f"%{base}", type)
        return f"%{base}", type

    def keep(self, op: Op, result: str, type: str) -> None:
        """Make the elements of a result scalars that expressions may use."""
        groups = _groups(op.accesses)
        size = op.accesses[0].location.size
        for number, group in enumerate(groups):
            register = group[0].register
            if not register or not self.is_used(register):
                continue
            value = result
            if len(groups) > 1:
                at = self.define(f"constant {{value = {number}}}", "tile<i32>")
                part = self.define(f"extract {result}, [{at}]", f"tile<1x{_dtype(size)}>")
                value = self.define(f"reshape {part}", f"tile<{_dtype(size)}>")
            self.registers[register] = Scalar(self.widened(value, size))

    def is_used(self, register: str) -> bool:
        """Whether an expression of the kernel needs the register."""
        return any(
            register in _registers(expr)
            for block in self.program.blocks
            for op in block.ops
            for expr in _expressions(op)
        )

    def widened(self, value: str, size: int) -> str:
        if _dtype(size) == self.int:
            return value
        return self.define(f"exti {value} {{signedness = signed}}", f"tile<{self.int}>")

    # Tiles

    def pointers(self, elements: Sequence[_Element], count: int, size: int) -> str:
        buffer = next(
            b for b in self.program.buffers if b.name == elements[0].access.location.buffer
        )
        base, element = f"%{buffer.name}", _dtype(size)
        if size != buffer.element_size:
            base = self.define(f"ptr_to_ptr {base}", f"tile<ptr<{element}>>")
        if count == 1 and elements[0].index == FALSE:
            return base
        index = self.tile([e.index for e in elements], count, 4 if self.int == "i32" else 8)
        if count == 1:
            return self.define(f"offset {base}, {index}", f"tile<ptr<{element}>>")
        one = self.define(f"reshape {base}", f"tile<1xptr<{element}>>")
        wide = self.define(f"broadcast {one}", f"tile<{count}xptr<{element}>>")
        return self.define(f"offset {wide}, {index}", f"tile<{count}xptr<{element}>>")

    def tile(self, exprs: Sequence[Expr | None], count: int, size: int) -> str:
        """A tile of these elements, filled up with zeros."""
        padded = [e or FALSE for e in exprs] + [FALSE] * (count - len(exprs))
        dtype = _dtype(size)
        if all(isinstance(e, Const) for e in padded):
            values = [e.value for e in padded if isinstance(e, Const)]
            text = str(values[0]) if len(set(values)) == 1 else str(values)
            shape = "" if count == 1 else f"{count}x"
            return self.define(f"constant {{value = {text}}}", f"tile<{shape}{dtype}>")
        return self.concatenated([self.narrowed(self.integer(e), size) for e in padded], dtype)

    def masks(self, exprs: Sequence[Expr], count: int) -> str:
        padded = [*exprs, *[FALSE] * (count - len(exprs))]
        if all(isinstance(e, Const) for e in padded):
            values = ["true" if e == TRUE else "false" for e in padded]
            text = values[0] if len(set(values)) == 1 else f"[{', '.join(values)}]"
            shape = "" if count == 1 else f"{count}x"
            return self.define(f"constant {{value = {text}}}", f"tile<{shape}i1>")
        return self.concatenated([self.condition(e) for e in padded], "i1")

    def concatenated(self, scalars: list[str], dtype: str) -> str:
        if len(scalars) == 1:
            return scalars[0]
        tiles = [self.define(f"reshape {s}", f"tile<1x{dtype}>") for s in scalars]
        width = 1
        while len(tiles) > 1:
            width *= 2
            pairs = zip(tiles[::2], tiles[1::2], strict=True)
            tiles = [
                self.define(f"cat {a}, {b} {{axis = 0}}", f"tile<{width}x{dtype}>")
                for a, b in pairs
            ]
        return tiles[0]

    # Expressions

    def narrowed(self, value: str, size: int) -> str:
        dtype = _dtype(size)
        if dtype == self.int:
            return value
        return self.define(f"trunci {value}", f"tile<{dtype}>")

    def integer(self, expr: Expr) -> str:
        found = self.scalar(expr)
        if not found.is_condition:
            return found.name
        return self.define(f"exti {found.name} {{signedness = unsigned}}", f"tile<{self.int}>")

    def condition(self, expr: Expr) -> str:
        found = self.scalar(expr)
        if found.is_condition:
            return found.name
        zero = self.define("constant {value = 0}", f"tile<{self.int}>")
        how = "{predicate = not_equal, signedness = signed}"
        return self.define(f"cmpi {found.name}, {zero} {how}", "tile<i1>")

    def scalar(self, expr: Expr) -> Scalar:
        match expr:
            case Const(value):
                return Scalar(self.define(f"constant {{value = {value}}}", f"tile<{self.int}>"))
            case Reg(name):
                return self.registers[name]
            case Bin("==", inner, Const(0)) if self.is_condition(inner):
                one = self.define("constant {value = true}", "tile<i1>")
                return Scalar(self.define(f"xori {self.condition(inner)}, {one}", "tile<i1>"), True)
            case Bin(op, lhs, rhs) if op in COMPARISONS:
                a, b = self.integer(lhs), self.integer(rhs)
                how = f"{{predicate = {COMPARISONS[op]}, signedness = signed}}"
                return Scalar(self.define(f"cmpi {a}, {b} {how}", "tile<i1>"), True)
            case Bin("&" | "|" as op, lhs, rhs) if self.is_condition(lhs) and self.is_condition(
                rhs
            ):
                a, b = self.condition(lhs), self.condition(rhs)
                return Scalar(self.define(f"{CALCULATIONS[op]} {a}, {b}", "tile<i1>"), True)
            case Bin(op, lhs, rhs) if op in CALCULATIONS:
                a, b = self.integer(lhs), self.integer(rhs)
                return Scalar(self.define(f"{CALCULATIONS[op]} {a}, {b}", f"tile<{self.int}>"))
            case _:
                raise Inexpressible(f"the expression {expr}")

    def is_condition(self, expr: Expr) -> bool:
        match expr:
            case Bin(op, _, _) if op in COMPARISONS:
                return True
            case Bin("&" | "|", lhs, rhs):
                return self.is_condition(lhs) and self.is_condition(rhs)
            case _:
                return False


def needed_registers(op: Op) -> set[str]:
    """The registers whose values an operation needs."""
    return {name for expr in _expressions(op) for name in _registers(expr)}


def _dtype(size: int) -> str:
    return f"i{8 * size}"


def _groups(accesses: Sequence[Access]) -> list[list[Access]]:
    """The accesses of each element."""
    found: dict[int, list[Access]] = {}
    for access in accesses:
        found.setdefault(access.element, []).append(access)
    return list(found.values())


def _element(op: Op, group: list[Access]) -> _Element:
    first = group[0]
    index = first.location.start // first.location.size
    if len(group) == 1:
        return _Element(Const(index), first.guard, first)
    match first.guard:
        case Bin("==", inner, Const(value)) if value == index:
            return _Element(inner, TRUE, first)
        case Bin("&", mask, Bin("==", inner, Const(value))) if value == index:
            return _Element(inner, mask, first)
        case _:
            # A known condition: the place is known as well.
            if any(a.guard == TRUE for a in group):
                known = next(a for a in group if a.guard == TRUE)
                return _element(op, [known])
            raise Inexpressible(f"the place {first.name} under {first.guard}")


def _expressions(op: Op) -> list[Expr]:
    found: list[Expr] = [op.guard, *(e.guard for e in op.after)]
    for access in op.accesses:
        found += [e for e in (access.guard, access.value, access.compare, access.otherwise) if e]
    return found


def _registers(expr: Expr) -> set[str]:
    match expr:
        case Reg(name):
            return {name}
        case Bin(_, lhs, rhs):
            return _registers(lhs) | _registers(rhs)
        case _:
            return set()
