"""The text form of event programs: small tests with an expected verdict.

    litmus "MP release acquire"           -- a name, unique in the suite
    family MP
    buffer x: i16[2] = [0, 0]             -- i32[1] unless given; or `= uninit`
    buffer f = 0
    block P device 0 launch 0 {           -- device and launch are 0 unless given
      a: store x[0:2] = [1, 2]            -- `a` names the operation and its token
      b: store.release.device f = 1  after a
    }
    block C {
      c: r = load.acquire.device f
      if r == 1 {
        d: s = load x[1]  after c
      }
    }
    exists r == 1 & s == 0
    expect forbid race-free               -- forbid or allow, race-free or racy

Operations: `load`, `store`, `add` `and` `or` `xor` `max` `min` `xchg` (read-modify-write: `r =
add.relaxed.block x, 1`), `cas` (`r = cas.acquire.sys x, expected, new`), `join` (no access). Behind
them `mask EXPR`, `pad EXPR`, `after TOKENS`. Places are `x`, `x[EXPR]`, `x[first:end]`, `x[e, f,
...]`, with `x:i16[...]` to see the buffer as other elements; `view x[...]` lets elements fall
outside. A value is one expression for all elements or `[...]`; in it, `s` is the element of a tile
register `s` at the same place, `s[1]` a given one. `let v = EXPR` names a value. `final x[1]` in
`exists` is what the host finds, `uninit(s)` asks for poison. A token of an operation in a branch
not taken stands for what that operation waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast

from reftile.interp.model.events import (
    ORDERS,
    SCOPES,
    Access,
    Block,
    Buffer,
    Edge,
    Exit,
    Kind,
    Location,
    Op,
    Order,
    Program,
    Scope,
)
from reftile.interp.model.litmus_reader import Reader, spread
from reftile.interp.model.values import (
    MODIFY,
    TRUE,
    UNINIT,
    Const,
    Expr,
    Modify,
    Reg,
    Value,
    binary,
    both,
    negate,
)
from reftile.ir.diagnostics import Source, Span, fail

SIZES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8}


@dataclass(frozen=True, slots=True)
class Expected:
    """A verdict: whether the outcome asked for is reachable, and whether the program races."""

    outcome: Literal["forbid", "allow"]
    race: bool

    def __str__(self) -> str:
        return f"{self.outcome} {'racy' if self.race else 'race-free'}"


@dataclass(frozen=True, slots=True)
class LitmusTest:
    """One test: a program with its question, and the answer."""

    program: Program
    family: str
    expected: Expected
    span: Span

    @property
    def name(self) -> str:
        """The test's name."""
        return self.program.name


@dataclass(frozen=True, slots=True)
class _Place:
    """Elements of a buffer: an index each, their size, and whether they may lie outside."""

    buffer: Buffer
    size: int
    indexes: tuple[Expr, ...]
    is_view: bool
    span: Span

    @property
    def count(self) -> int:
        return self.buffer.size_bytes // self.size

    def location(self, index: int) -> Location:
        return Location(self.buffer.name, index * self.size, self.size)

    def name(self, index: int) -> str:
        if self.count == 1 and self.size == self.buffer.element_size:
            return self.buffer.name
        other = "" if self.size == self.buffer.element_size else f":i{8 * self.size}"
        return f"{self.buffer.name}{other}[{index}]"


class _Parser(Reader):
    """Reads the tests of one file."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._reset()

    def _reset(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.tiles: dict[str, list[Expr]] = {}
        self.exits: dict[str, Exit] = {}
        self.ops: list[Op] = []

    def operand(self) -> list[Expr]:
        """Read an operand; `exists` has the final value of a place besides."""
        return [self.final()] if self.accept("final") else super().operand()

    def final(self) -> Expr:
        """Read the place that the host looks at."""
        place = self.place()
        if len(place.indexes) != 1 or not isinstance(place.indexes[0], Const):
            raise fail("litmus.shape", "`final` takes one element", place.span)
        index = place.indexes[0].value
        name = f"final {place.name(index)}"
        self.exits[name] = Exit(name, place.location(index))
        return Reg(name)

    # Places

    def place(self) -> _Place:
        """Read the elements of a buffer that an operation touches."""
        is_view = self.accept("view")
        where, name = self.span(), self.take("word")
        if name not in self.buffers:
            known = ", ".join(self.buffers)
            raise fail("litmus.unknown_buffer", f"no buffer `{name}`", where, f"known: {known}")
        buffer = self.buffers[name]
        size = buffer.element_size
        if self.accept(":"):
            size = SIZES[self.choose(tuple(SIZES), "an element type")]
        indexes = self.indexes() if self.accept("[") else [Const(0)]
        count = buffer.size_bytes // size
        for index in indexes:
            if isinstance(index, Const) and not 0 <= index.value < count and not is_view:
                raise fail(
                    "litmus.out_of_bounds",
                    f"`{name}` has {count} elements of this size, found index {index.value}",
                    where,
                    hint="`view` lets elements fall outside",
                )
        return _Place(buffer, size, tuple(indexes), is_view, where)

    def indexes(self) -> list[Expr]:
        """Read `first:end]`, or expressions and `]`."""
        first = self.values()
        if self.accept(":"):
            last = self.value()
            if not isinstance(first[0], Const) or not isinstance(last, Const):
                raise self.wrong("a range between numbers")
            self.expect("]")
            return [Const(i) for i in range(first[0].value, last.value)]
        while self.accept(","):
            first = [*first, self.value()]
        self.expect("]")
        return first

    # Operations

    def operation(self, guard: Expr) -> None:
        """Read one operation, `let` or `join`."""
        start = self.span()
        if self.accept("let"):
            name = self.new_register()
            self.expect("=")
            self.tiles[name] = self.values()
            return
        label = f"op{len(self.ops)}"
        if self.tokens[self.at + 1][1] == ":":
            label = self.take("word")
            self.expect(":")
        if label in {op.name for op in self.ops}:
            raise fail("litmus.redefined", f"`{label}` names another operation", start)
        if self.accept("join"):
            after = self.tokens_taken()
            self.ops.append(self._placed(Op(label, guard=guard, after=after), start))
            return
        register = ""
        if self.tokens[self.at + 1][1] == "=":
            register = self.new_register()
            self.expect("=")
        self.ops.append(self._placed(self.access(label, register, guard), start))

    def _placed(self, op: Op, start: Span) -> Op:
        span = Span(self.source, start.start, self.tokens[self.at - 1][3])
        text = " ".join(self.source.text[span.start : span.end].split())
        return replace(op, text=text, span=span)

    def new_register(self) -> str:
        """Read the name of a register that is not in use."""
        where, name = self.span(), self.take("word")
        if name in self.tiles:
            raise fail("litmus.redefined", f"`{name}` already holds a value", where)
        return name

    def tokens_taken(self) -> tuple[Edge, ...]:
        """Read names of earlier operations of the block."""
        edges: list[Edge] = []
        while True:
            where, name = self.span(), self.take("word")
            if name not in {op.name for op in self.ops}:
                raise fail("litmus.unknown_token", f"no operation `{name}` above", where)
            guard = self.value() if self.accept("when") else TRUE
            edges.append(Edge(name, guard))
            if not self.accept(","):
                return tuple(edges)

    def access(self, label: str, register: str, guard: Expr) -> Op:
        """Read the operation behind the label and the register."""
        where = self.span()
        what = self.choose(("load", "store", "cas", *MODIFY), "an operation")
        kind: Kind = "rmw" if what in MODIFY else cast(Kind, what)
        order, scope = self.order(kind)
        place = self.place()
        count = len(place.indexes)
        value, compare = None, None
        if kind == "store":
            self.expect("=")
            value = self.spread_values(count)
        elif kind != "load":
            self.expect(",")
            if kind == "cas":
                compare = self.spread_values(count)
                self.expect(",")
            value = self.spread_values(count)
        mask = self.spread_values(count) if self.accept("mask") else [TRUE] * count
        padding = self.spread_values(count) if self.accept("pad") else None
        after = self.tokens_taken() if self.accept("after") else ()
        if register:
            names = [register] if count == 1 else [f"{register}[{i}]" for i in range(count)]
            self.tiles[register] = [Reg(name) for name in names]
        elif kind == "load":
            raise fail("litmus.syntax", "a load needs a register: `r = load ...`", where)
        accesses: list[Access] = []
        for i, index in enumerate(place.indexes):
            whole = Access(
                kind,
                place.location(0),
                guard=mask[i],
                value=value[i] if value else None,
                compare=compare[i] if compare else None,
                modify=cast(Modify, what) if kind == "rmw" else "xchg",
                register=str(self.tiles[register][i]) if register else "",
                element=i,
                otherwise=padding[i] if padding else (compare[i] if compare else None),
            )
            accesses += alternatives(place, index, whole)
        return Op(label, tuple(accesses), order, scope, guard, after)

    def spread_values(self, count: int) -> list[Expr]:
        """Read a value for each of `count` elements."""
        where = self.span()
        found = self.values()
        if len(found) not in (1, count):
            raise fail("litmus.shape", f"{len(found)} values for {count} elements", where)
        return spread(found, count)

    def order(self, kind: Kind) -> tuple[Order, Scope | None]:
        """Read `.order.scope` behind an operation; nothing is weak."""
        where = self.span()
        if not self.accept("."):
            order: Order = "weak"
        else:
            where = self.span()
            order = cast(Order, self.choose(("weak", *ORDERS["rmw"]), "an order"))
        if order not in ORDERS[kind]:
            legal = ", ".join(ORDERS[kind])
            raise fail("litmus.order", f"a {kind} cannot be {order}", where, f"one of {legal}")
        if order == "weak":
            return order, None
        self.expect(".")
        return order, cast(Scope, self.choose(SCOPES, "a scope"))

    # Blocks and tests

    def body(self, guard: Expr) -> None:
        """Read operations and branches up to the closing brace."""
        self.expect("{")
        while not self.accept("}"):
            if self.accept("if"):
                condition = self.value()
                self.body(both(guard, condition))
                if self.accept("else"):
                    self.body(both(guard, negate(condition)))
            else:
                self.operation(guard)

    def block(self) -> Block:
        """Read a block."""
        name, device, launch = self.take("word"), 0, 0
        while self.peek() in ("device", "launch"):
            if self.accept("device"):
                device = int(self.take("number"))
            elif self.accept("launch"):
                launch = int(self.take("number"))
        self.ops = []
        self.body(TRUE)
        return Block(name, tuple(self.ops), device, launch)

    def buffer(self) -> Buffer:
        """Read a buffer."""
        name, size, count = self.take("word"), 4, 1
        if self.accept(":"):
            size = SIZES[self.choose(tuple(SIZES), "an element type")]
            if self.accept("["):
                count = int(self.take("number"))
                self.expect("]")
        self.expect("=")
        if self.accept("uninit"):
            return Buffer(name, size, (UNINIT,) * count)
        where = self.span()
        initial: list[Value] = [v.value for v in self.spread_values(count) if isinstance(v, Const)]
        if len(initial) != count:
            raise fail("litmus.syntax", "initial values are numbers", where)
        return Buffer(name, size, tuple(initial))

    def test(self) -> LitmusTest:
        """Read one test."""
        self._reset()
        self.expect("litmus")
        where, name, family = self.span(), self.take("string")[1:-1], ""
        blocks: list[Block] = []
        if self.accept("family"):
            is_quoted = self.tokens[self.at][0] == "string"
            family = self.take("string")[1:-1] if is_quoted else self.take("word")
        while True:
            if self.accept("buffer"):
                found = self.buffer()
                self.buffers[found.name] = found
            elif self.accept("block"):
                blocks.append(self.block())
            else:
                break
        self.expect("exists")
        exists = self.value()
        expected = self.verdict()
        program = Program(
            name, tuple(self.buffers.values()), tuple(blocks), tuple(self.exits.values()), exists
        )
        return LitmusTest(program, family, expected, where)

    def verdict(self) -> Expected:
        """Read the expected pair."""
        self.expect("expect")
        outcome = self.choose(("forbid", "allow"), "an outcome")
        race = self.choose(("race-free", "racy"), "a race verdict")
        return Expected(cast(Literal["forbid", "allow"], outcome), race == "racy")


def alternatives(place: _Place, index: Expr, access: Access) -> list[Access]:
    """Return the accesses of one element: one for each address it may have."""
    if isinstance(index, Const):
        candidates = [(index.value, TRUE)]
    else:
        candidates = [(i, binary("==", index, Const(i))) for i in range(place.count)]
    found = [
        replace(
            access,
            location=place.location(i),
            name=place.name(i),
            guard=both(access.guard, guard),
        )
        for i, guard in candidates
        if 0 <= i < place.count
    ]
    if not isinstance(index, Const) and not place.is_view:
        outside = both(
            access.guard, binary("|", binary("<", index, Const(0)), beyond(place, index))
        )
        name = f"{place.buffer.name}[{index}]"
        found.append(replace(access, name=name, guard=outside, is_fault=True))
    # An element outside a view has no access, but its register has its padding.
    never = replace(access, name=place.name(0), guard=Const(0))
    return found or [never]


def beyond(place: _Place, index: Expr) -> Expr:
    """Return the condition that an index lies behind the last element."""
    return binary(">=", index, Const(place.count))


def parse_litmus(source: Source) -> list[LitmusTest]:
    """Return the tests of a litmus file.

    Raises:
        ReftileError: `litmus.*`, with a span.
    """
    parser = _Parser(source)
    tests: list[LitmusTest] = []
    while parser.peek():
        tests.append(parser.test())
    return tests


def parse_program(text: str, name: str = "<litmus>") -> Program:
    """Return the program of a text that holds one test."""
    (test,) = parse_litmus(Source(name, text))
    return test.program
