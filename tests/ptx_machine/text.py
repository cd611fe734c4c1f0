"""PTX text to a module of instructions: tokens, declarations, operands.

Names stay unresolved here; `decode` gives them registers and addresses.
Source: PTX ISA 8.x, "Syntax" and "State spaces, types, and variables".
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from .errors import ParseError

TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*)
    |(?P<newline>\n)
    |(?P<string>"[^"]*")
    |(?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
    |(?P<dotted>\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)
    |(?P<name>[%$A-Za-z_][\w$]*)
    |(?P<mark>[{}()\[\],;:@!|+\-<>=*])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Name:
    """A register, label, variable or special register, with a byte offset when it is an address."""

    text: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant."""

    value: int


@dataclass(frozen=True, slots=True)
class Real:
    """A floating constant; bits and width are set for 0f and 0d spellings."""

    value: float
    bits: int | None = None
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """A bracketed operand: an address, and for tensor operations a group of coordinates."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A braced list of operands."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations joined by a bar, as in `d|p`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate operand."""

    operand: Operand


Operand = Name | Integer | Real | Memory | Group | Pair | Not


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement; scope is the chain of enclosing blocks, for name lookup."""

    guard: tuple[str, bool] | None
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    text: str
    scope: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared array or scalar outside registers; size is None for `name[]`."""

    name: str
    space: str
    align: int
    size: int | None
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: its type token, alignment and size in bytes."""

    name: str
    type: str
    align: int
    size: int


@dataclass(slots=True)
class Entry:
    """A kernel: parameters, limits such as reqntid, registers by (scope, name), code and labels."""

    name: str
    parameters: tuple[Parameter, ...]
    limits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    registers: dict[tuple[int, str], str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[tuple[int, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Module:
    """Everything in one PTX file."""

    version: str
    target: str
    variables: list[Variable]
    entries: dict[str, Entry]


def type_bytes(name: str) -> int:
    """Return the size of a fundamental type token such as `u32` or `bf16x2`."""
    if name == "pred":
        return 1
    match = re.fullmatch(r"(?:[busf]|bf|tf)(\d+)(x2)?", name)
    if not match:
        raise ParseError(f"unknown type .{name}")
    return int(match[1]) // 8 * (2 if match[2] else 1)


def tokenize(text: str) -> list[tuple[str, str, int]]:
    """Return (kind, text, line) triples; block comments become spaces first."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    tokens, position, line = [], 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            raise ParseError(f"line {line}: cannot read {text[position : position + 20]!r}")
        kind = match.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind != "space":
            tokens.append((kind, match[0], line))
        position = match.end()
    tokens.append(("end", "", line))
    return tokens


class Parser:
    """A cursor over the tokens of one module."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.tokens = tokenize(text)
        self.at = 0
        self.next_scope = 1

    def peek(self) -> str:
        return self.tokens[self.at][1]

    def kind(self) -> str:
        return self.tokens[self.at][0]

    def take(self) -> str:
        token = self.tokens[self.at]
        self.at += 1
        return token[1]

    def fail(self, what: str) -> ParseError:
        line = self.tokens[self.at][2]
        return ParseError(
            f"line {line}: {what}, found {self.peek()!r}: {self.lines[line - 1].strip()}"
        )

    def expect(self, text: str) -> None:
        if self.peek() != text:
            raise self.fail(f"expected {text!r}")
        self.at += 1

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def integer(self) -> int:
        if self.kind() != "number":
            raise self.fail("expected an integer")
        return int(self.take().rstrip("U"), 0)

    def module(self) -> Module:
        """Parse the whole file."""
        module = Module("", "", [], {})
        while self.kind() != "end":
            word = self.take()
            if word == ".version":
                module.version = self.take()
            elif word == ".target":
                module.target = self.take()
                while self.accept(","):
                    self.take()
            elif word == ".address_size":
                if self.integer() != 64:
                    raise self.fail("only 64-bit addresses are modelled")
            elif word in (".visible", ".extern", ".weak"):
                continue
            elif word == ".entry":
                entry = self.entry()
                module.entries[entry.name] = entry
            elif word in (".shared", ".global", ".const"):
                module.variables.append(self.variable(word[1:]))
            else:
                self.at -= 1
                raise self.fail("unknown directive")
        return module

    def variable(self, space: str) -> Variable:
        """Parse what follows `.shared` / `.global` / `.const` / `.local`, up to the semicolon."""
        align = 0
        if self.accept(".align"):
            align = self.integer()
        width = type_bytes(self.take()[1:])
        name, count, data = self.take(), 1, b""
        if self.accept("["):
            count = None if self.peek() == "]" else self.integer()
            self.expect("]")
        if self.accept("="):
            values = self.initialiser()
            data = b"".join((v % (1 << (8 * width))).to_bytes(width, "little") for v in values)
            count = max(count or 0, len(values))
        self.expect(";")
        return Variable(name, space, align or width, None if count is None else count * width, data)

    def initialiser(self) -> list[int]:
        if not self.accept("{"):
            return [self.constant()]
        values = [self.constant()]
        while self.accept(","):
            values.append(self.constant())
        self.expect("}")
        return values

    def constant(self) -> int:
        operand = self.operand()
        if isinstance(operand, Integer):
            return operand.value
        if isinstance(operand, Real) and operand.bits is not None:
            return operand.bits
        raise self.fail("expected a constant")

    def parameters(self) -> tuple[Parameter, ...]:
        found = []
        self.expect("(")
        while not self.accept(")"):
            self.expect(".param")
            align = self.integer() if self.accept(".align") else 0
            kind = self.take()[1:]
            while self.peek() in (".ptr", ".global", ".align", ".const", ".shared"):
                if self.take() == ".align":
                    self.integer()
            name, size = self.take(), type_bytes(kind)
            width = size
            if self.accept("["):
                size *= self.integer()
                self.expect("]")
            found.append(Parameter(name, kind, align or width, size))
            self.accept(",")
        return tuple(found)

    def entry(self) -> Entry:
        """Parse a kernel after `.entry`."""
        name = self.take()
        entry = Entry(name, self.parameters() if self.peek() == "(" else ())
        while self.peek() != "{":
            limit = self.take()
            if limit not in (
                ".reqntid",
                ".maxntid",
                ".minnctapersm",
                ".maxnreg",
                ".reqnctapercluster",
                ".explicitcluster",
                ".maxclusterrank",
            ):
                self.at -= 1
                raise self.fail("unknown kernel directive")
            values = []
            while self.kind() == "number":
                values.append(self.integer())
                self.accept(",")
            entry.limits[limit[1:]] = tuple(values)
        self.expect("{")
        self.block(entry, (0,))
        return entry

    def block(self, entry: Entry, scope: tuple[int, ...]) -> None:
        """Parse statements up to the closing brace."""
        while not self.accept("}"):
            if self.kind() == "end":
                raise self.fail("expected }")
            if self.accept("{"):
                self.next_scope += 1
                self.block(entry, (*scope, self.next_scope))
            elif self.accept(".reg"):
                self.registers(entry, scope)
            elif self.peek() in (".shared", ".local"):
                entry.variables.append(self.variable(self.take()[1:]))
            elif self.accept(".pragma"):
                self.take()
                self.expect(";")
            elif self.peek() in (".loc", ".file"):
                line = self.tokens[self.at][2]
                while self.tokens[self.at][2] == line:
                    self.at += 1
            elif self.kind() == "name" and self.tokens[self.at + 1][1] == ":":
                key = (scope[-1], self.take())
                if key in entry.labels:
                    raise self.fail(f"label {key[1]} is defined twice")
                entry.labels[key] = len(entry.code)
                self.expect(":")
            else:
                entry.code.append(self.instruction(scope))

    def registers(self, entry: Entry, scope: tuple[int, ...]) -> None:
        kind = self.take()[1:]
        type_bytes(kind)
        while True:
            name = self.take()
            names = [name]
            if self.accept("<"):
                names = [f"{name}{i}" for i in range(self.integer())]
                self.expect(">")
            for each in names:
                if (scope[-1], each) in entry.registers:
                    raise self.fail(f"register {each} is declared twice")
                entry.registers[scope[-1], each] = kind
            if not self.accept(","):
                break
        self.expect(";")

    def instruction(self, scope: tuple[int, ...]) -> Instruction:
        start, line = self.at, self.tokens[self.at][2]
        guard = None
        if self.accept("@"):
            negated = self.accept("!")
            guard = (self.take(), negated)
        if self.kind() != "name":
            raise self.fail("expected an instruction")
        opcode, modifiers, operands = self.take(), [], []
        while self.kind() == "dotted":
            modifiers.append(self.take()[1:])
        while not self.accept(";"):
            operands.append(self.operand())
            if self.peek() != ";":
                self.expect(",")
        words = [token[1] for token in self.tokens[start : self.at]]
        text = (
            re.sub(r" ?([,.;|]) ?", r"\1", " ".join(words))
            if len(words) < 60
            else " ".join(words[:40]) + " ..."
        )
        return Instruction(guard, opcode, tuple(modifiers), tuple(operands), line, text, scope)

    def operand(self) -> Operand:
        """Parse one operand, including `a|b`."""
        first = self.simple_operand()
        if self.accept("|"):
            return Pair(first, self.simple_operand())
        return first

    def operand_list(self, close: str) -> tuple[Operand, ...]:
        parts = [self.operand()]
        while self.accept(","):
            parts.append(self.operand())
        self.expect(close)
        return tuple(parts)

    def simple_operand(self) -> Operand:
        if self.accept("["):
            return Memory(self.operand_list("]"))
        if self.accept("{"):
            return Group(self.operand_list("}"))
        if self.accept("!"):
            return Not(self.simple_operand())
        if self.accept("-"):
            return self.negative()
        if self.kind() == "number":
            return self.number(self.take())
        if self.kind() != "name":
            raise self.fail("expected an operand")
        name = self.take()
        if name.startswith("%") and self.kind() == "dotted" and self.peek() in (".x", ".y", ".z"):
            name += self.take()
        if self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            if self.accept("-"):
                sign = -sign
            return Name(name, sign * self.integer())
        return Name(name)

    def negative(self) -> Operand:
        value = self.number(self.take())
        if isinstance(value, Integer):
            return Integer(-value.value)
        if value.bits is not None:
            raise self.fail("a bit pattern cannot be negated")
        return Real(-value.value)

    def number(self, text: str) -> Integer | Real:
        if text[:2].lower() == "0f":
            bits = int(text[2:], 16)
            return Real(struct.unpack("<f", struct.pack("<I", bits))[0], bits, 32)
        if text[:2].lower() == "0d":
            bits = int(text[2:], 16)
            return Real(struct.unpack("<d", struct.pack("<Q", bits))[0], bits, 64)
        if text[:2].lower() not in ("0x", "0b") and re.search(r"[.eE]", text):
            return Real(float(text))
        return Integer(int(text.rstrip("U"), 0))


def parse(text: str) -> Module:
    """Return the module that a PTX file describes.

    Raises:
        ParseError: the text is malformed or declares something this machine does not model.
    """
    return Parser(text).module()
