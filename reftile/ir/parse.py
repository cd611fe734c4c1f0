"""Read kernels from text.

One grammar serves every operation of every level:

    %out, %t = name %operand, [%variadic, %operands], optional=%operand {attribute = 1, unit} :
    type, type
        region(%argument: type) { ... }

A file holds comments (`//`), an optional `module @name`, module-level operations and kernels:

    tile kernel @add(%x: tile<ptr<f32>> {access = "read_only"}, %n: tile<i32>) attributes {...} {
    ... }
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from reftile.ir.attributes import Attribute, Bits, Dense, dense_from_literal
from reftile.ir.core import Block, Kernel, Module, Op, Region, Value
from reftile.ir.define import AttributeSpec
from reftile.ir.diagnostics import Diagnosis, ReftileError, Source, Span
from reftile.ir.ops import OPS
from reftile.ir.type_text import BadType, parse_type
from reftile.ir.types import TileType, Type

DEEPEST = 64
"""Regions nested at most; deeper text is a mistake, and recursion must end somewhere."""

_SPACE = re.compile(r"[ \t\r\n]*")
_BLANK = re.compile(r"[ \t]*")
_BLANKS = frozenset(" \t")
_SKIPPED = frozenset(" \t\r\n/")
"""What white space and comments begin with."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_VALUE = re.compile(r"%([\w$.]+)")
_VALUES = re.compile(r"%[\w$.]+(?:[ \t]*,[ \t]*%[\w$.]+)*")
_HEAD = re.compile(
    rf"(?:({_VALUES.pattern})[ \t]*=[ \t]*)?({_NAME.pattern})(?:[ \t]*({_VALUES.pattern}))?"
)
"""How an operation begins: results, its name, and operands that are neither named nor in a list."""
_KEY = re.compile(r"(\w+)[ \t]*=[ \t]*(?=%)")
_SIMPLE_TYPE = re.compile(r"[ \t]*(token\b|tile<[^<>]*>)")
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|-?(?:inf|nan)\b|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_INTEGER = re.compile(r"-?\d+")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_UNESCAPE = {"n": "\n", "t": "\t", "r": "\r"}


def parse(text: str, name: str = "<text>") -> Module:
    """Return the module that `text` writes.

    Raises:
        ReftileError: the text is not a program; rules `text.*`.
    """
    return _Parser(Source(name, text)).module()


class _Parser:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.position = 0
        self.scope: dict[str, Value] = {}
        self.defined: list[str] = []  # the names of the scope in their order
        self.depth = 0
        self.comments: list[str] = []

    # Lexical helpers

    def error(
        self,
        rule: str,
        message: str,
        start: int | None = None,
        end: int | None = None,
        hint: str = "",
    ) -> ReftileError:
        start = self.position if start is None else start
        end = start + 1 if end is None else end
        return ReftileError(Diagnosis(f"text.{rule}", message, Span(self.source, start, end), hint))

    def skip(self) -> None:
        """Skip white space and keep whole-line comments for the operation that follows."""
        text = self.text
        if text[self.position : self.position + 1] not in _SKIPPED:
            return
        while True:
            match = _SPACE.match(text, self.position)
            self.position = match.end()  # type: ignore[union-attr]
            if not text.startswith("//", self.position):
                return
            end = text.find("\n", self.position)
            end = len(text) if end < 0 else end
            self.comments.append(text[self.position + 2 : end].rstrip())
            self.position = end

    def peek(self) -> str:
        """Skip blanks; return the character that follows, "" at the end of the text."""
        text = self.text
        if text[self.position : self.position + 1] in _BLANKS:
            self.position = _BLANK.match(text, self.position).end()  # type: ignore[union-attr]
        return text[self.position : self.position + 1]

    def at(self, token: str) -> bool:
        return self.text.startswith(token, self.position)

    def accept(self, token: str) -> bool:
        self.skip()
        if self.at(token):
            self.position += len(token)
            return True
        return False

    def expect(self, token: str, where: str) -> None:
        if not self.accept(token):
            raise self.error("syntax", f"expected `{token}` {where}, found {self.found()}")

    def found(self) -> str:
        if self.position >= len(self.text):
            return "the end of the text"
        word = re.compile(r"\S{1,20}").match(self.text, self.position)
        return f"`{word[0]}`" if word else "a line end"

    def word(self, what: str) -> str:
        self.skip()
        match = _NAME.match(self.text, self.position)
        if match is None:
            raise self.error("syntax", f"expected {what}, found {self.found()}")
        self.position = match.end()
        return match[0]

    def take_comments(self) -> tuple[str, ...]:
        comments, self.comments = tuple(self.comments), []
        return comments

    # Structure

    def module(self) -> Module:
        module = Module()
        while True:
            self.skip()
            if self.position >= len(self.text):
                module.comments = self.take_comments()
                return module
            start = self.position
            word = self.word("`tile kernel`, `pipe kernel`, `simt kernel` or a global")
            if word in ("tile", "pipe", "simt"):
                module.kernels.append(self.kernel(word, start))
            elif word == "module":
                self.expect("@", "before the module's name")
                module.name = self.word("a name")
            elif word in OPS and "module" in OPS[word].definition.traits:
                self.position = start
                module.globals.append(self.op())
            else:
                raise self.error(
                    "syntax",
                    "expected `tile kernel`, `pipe kernel`, `simt kernel` or a global, "
                    f"found `{word}`",
                    start,
                    start + len(word),
                )

    def kernel(self, level: str, start: int) -> Kernel:
        comments = self.take_comments()
        if self.word("`kernel`") != "kernel":
            raise self.error("syntax", f"expected `kernel` after `{level}`", start, self.position)
        self.expect("@", "before the kernel's name")
        name = self.word("a name")
        span = Span(self.source, start, self.position)
        self.scope, self.defined = {}, []
        block = Block()
        attributes: list[dict[str, Attribute]] = []
        self.expect("(", "before the arguments")
        while not self.accept(")"):
            if block.arguments:
                self.expect(",", "between arguments")
            self.argument(block)
            self.skip()
            attributes.append(self.dictionary() if self.at("{") else {})
        kernel_attributes: dict[str, Attribute] = {}
        if self.accept("attributes"):
            self.skip()
            kernel_attributes = self.dictionary()
        self.expect("{", "before the body")
        self.block(block)
        return Kernel(
            name,
            Region(block),
            level,  # type: ignore[arg-type]
            tuple(attributes),
            kernel_attributes,
            span,
            comments,
        )

    def argument(self, block: Block) -> None:
        self.skip()
        start = self.position
        match = _VALUE.match(self.text, self.position)
        if match is None:
            raise self.error("syntax", f"expected an argument `%name: type`, found {self.found()}")
        self.position = match.end()
        self.expect(":", "after the argument's name")
        value = Value(self.type(), match[1], block, len(block.arguments))
        self.define(value, start)
        block.arguments.append(value)

    def define(self, value: Value, start: int) -> None:
        if value.name in self.scope:
            raise self.error(
                "redefined", f"%{value.name} is defined twice", start, start + len(value.name) + 1
            )
        self.scope[value.name] = value
        self.defined.append(value.name)

    def block(self, block: Block) -> None:
        """Operations up to the closing brace, which is taken."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error("too_deep", f"regions are nested deeper than {DEEPEST}")
        while True:
            self.skip()
            if self.at("}"):
                self.position += 1
                break
            if self.position >= len(self.text):
                raise self.error("syntax", "a `}` is missing at the end of the text")
            block.append(self.op())
        self.depth -= 1

    def op(self) -> Op:
        self.skip()
        comments = self.take_comments()
        result_start = self.position
        match = _HEAD.match(self.text, result_start)
        if match is None:
            raise self.error("syntax", f"expected an operation, found {self.found()}")
        start, end = match.span(2)
        cls = OPS.get(match[2])
        if cls is None:
            close = get_close_matches(match[2], OPS, 1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            raise self.error("unknown_op", f"no operation is called `{match[2]}`", start, end, hint)
        self.position = end
        arguments = self.plain_operands(cls, match) or self.operands(cls)
        literals = self.op_attributes() if self.peek() == "{" else {}
        types = self.types() if self.peek() == ":" else ()
        names = _VALUE.findall(match[1]) if match[1] else []
        if len(types) != len(names):
            message = f"`{cls.name}` has {len(names)} result names and {len(types)} types"
            raise self.error("results", message, start, end)
        span = Span(self.source, start, end)
        attributes = self.resolve(cls, literals, types) if literals else {}
        regions = self.regions(cls)
        op = cls(arguments, types, attributes, regions, span, tuple(names))
        op.comments = comments
        for value in op.results:
            self.define(value, result_start)
        return op

    def plain_operands(self, cls: type[Op], head: re.Match[str]) -> tuple[Value, ...] | None:
        """The operands, if there is exactly one for each port and nothing is wrong with them."""
        names: list[str] = _VALUE.findall(head[3] or "")
        values = tuple([self.scope[name] for name in names if name in self.scope])
        is_plain = cls.definition.has_single_operands and len(values) == len(names)
        if not is_plain or len(values) != len(cls.definition.operands):
            return None
        before, self.position = self.position, head.end()
        if self.peek() == ",":
            self.position = before
            return None
        return values

    def operands(self, cls: type[Op]) -> tuple[Value | tuple[Value, ...] | None, ...]:
        ports = cls.definition.operands
        positional: list[Value | tuple[Value, ...]] = []
        named: dict[str, Value] = {}
        start = self.position
        while True:
            character = self.peek()
            if character == "%":
                positional += self.uses()
            elif character == "[":
                positional.append(self.value_list())
            else:
                match = _KEY.match(self.text, self.position)
                if match is None:
                    break
                if match[1] in named or match[1] not in {
                    p.name for p in ports if p.multiplicity == "optional"
                }:
                    raise self.error(
                        "operands",
                        f"`{cls.name}` has no optional operand `{match[1]}`",
                        self.position,
                        match.end(1),
                    )
                self.position = match.end()
                named[match[1]] = self.use()
            if self.peek() != ",":
                break
            self.position += 1
        if len(ports) == 1 and ports[0].multiplicity == "many":
            if any(isinstance(p, tuple) for p in positional):
                raise self.error("operands", f"`{cls.name}` takes a plain list of operands", start)
            return (tuple(p for p in positional if isinstance(p, Value)),)
        return self.arrange(cls, positional, named, start)

    def arrange(
        self,
        cls: type[Op],
        positional: list[Value | tuple[Value, ...]],
        named: dict[str, Value],
        start: int,
    ) -> tuple[Value | tuple[Value, ...] | None, ...]:
        """One entry per port from what was written."""
        arguments: list[Value | tuple[Value, ...] | None] = []
        queue = iter(positional)
        missing = object()
        for port in cls.definition.operands:
            if port.multiplicity == "optional":
                arguments.append(named.get(port.name))
                continue
            item = next(queue, missing)
            if item is missing or isinstance(item, tuple) != (port.multiplicity == "many"):
                what = (
                    f"`[...]` for `{port.name}`"
                    if port.multiplicity == "many"
                    else f"`{port.name}`"
                )
                raise self.error(
                    "operands", f"`{cls.name}` needs {what} here", start, self.position
                )
            arguments.append(item)  # type: ignore[arg-type]
        if next(queue, missing) is not missing:
            raise self.error(
                "operands", f"`{cls.name}` was given too many operands", start, self.position
            )
        return tuple(arguments)

    def uses(self) -> list[Value]:
        """Values with commas between them, of which there is one at least."""
        match = _VALUES.match(self.text, self.position)
        values = [self.scope.get(name) for name in _VALUE.findall(match[0])] if match else [None]
        if match is None or None in values:
            return [self.use()]
        self.position = match.end()
        return values  # type: ignore[return-value]

    def use(self) -> Value:
        match = _VALUE.match(self.text, self.position)
        if match is None:
            raise self.error("syntax", f"expected a value, found {self.found()}")
        value = self.scope.get(match[1])
        if value is None:
            close = get_close_matches(match[1], self.scope, 1)
            raise self.error(
                "undefined",
                f"%{match[1]} is used before it is defined",
                match.start(),
                match.end(),
                f"did you mean %{close[0]}?" if close else "",
            )
        self.position = match.end()
        return value

    def value_list(self) -> tuple[Value, ...]:
        self.position += 1
        values: list[Value] = []
        while not self.accept("]"):
            if values:
                self.expect(",", "between operands")
                self.skip()
            values.append(self.use())
        return tuple(values)

    def regions(self, cls: type[Op]) -> tuple[Region, ...]:
        regions: list[Region] = []
        for spec in cls.definition.regions:
            self.peek()
            start = self.position
            match = _NAME.match(self.text, start)
            if match is None or match[0] != spec.name:
                if spec.optional:
                    continue
                raise self.error(
                    "syntax", f"`{cls.name}` needs a region `{spec.name}`, found {self.found()}"
                )
            self.position = match.end()
            outer, before = self.scope, len(self.defined)
            if "isolated" in cls.definition.traits:
                self.scope = {}
            block = Block()
            if self.accept("("):
                while not self.accept(")"):
                    if block.arguments:
                        self.expect(",", "between arguments")
                    self.argument(block)
            self.expect("{", f"before the operations of `{spec.name}`")
            self.block(block)
            for name in self.defined[before:]:
                del self.scope[name]
            del self.defined[before:]
            self.scope = outer
            regions.append(Region(block))
        return tuple(regions)

    # Types and attributes

    def type(self) -> Type:
        match = _SIMPLE_TYPE.match(self.text, self.position)
        if match is not None:
            start, end = match.span(1)
        else:
            self.skip()
            match = _SIMPLE_TYPE.match(self.text, self.position)
            start = self.position
            end = match.end() if match else self.type_end(start)
        try:
            parsed = parse_type(self.text[start:end])
        except BadType as error:
            raise self.error("type", str(error), start, end) from None
        self.position = end
        return parsed

    def type_end(self, start: int) -> int:
        match = _NAME.match(self.text, start)
        if match is None:
            raise self.error("syntax", f"expected a type, found {self.found()}")
        end = match.end()
        if not self.text.startswith("<", end):
            return end
        depth = 0
        for i in range(end, len(self.text)):
            c = self.text[i]
            if c == "<":
                depth += 1
            elif c == ">":
                depth -= 1
                if depth == 0:
                    return i + 1
            elif c == "\n":
                break
        raise self.error("type", "this type has no closing `>`", start, end)

    def types(self) -> tuple[Type, ...]:
        """Types behind a `:`, or one behind each comma."""
        types: list[Type] = []
        while not types or self.peek() == ",":
            self.position += 1
            types.append(self.type())
        return tuple(types)

    def op_attributes(self) -> dict[str, tuple[object, int]]:
        """Attribute literals with their positions; they are resolved once the types are known."""
        self.position += 1
        literals: dict[str, tuple[object, int]] = {}
        while not self.accept("}"):
            if literals:
                self.expect(",", "between attributes")
            self.skip()
            start = self.position
            key = self.word("an attribute name")
            if key in literals:
                raise self.error(
                    "attribute", f"the attribute `{key}` is given twice", start, self.position
                )
            literals[key] = (self.literal() if self.accept("=") else True, start)
        return literals

    def dictionary(self) -> dict[str, Attribute]:
        self.expect("{", "before attributes")
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error("too_deep", f"attributes are nested deeper than {DEEPEST}")
        table: dict[str, Attribute] = {}
        while not self.accept("}"):
            if table:
                self.expect(",", "between attributes")
            key = self.word("an attribute name")
            table[key] = _plain(self.literal()) if self.accept("=") else True
        self.depth -= 1
        return table

    def literal(self) -> object:
        self.skip()
        text, start = self.text, self.position
        character = self.peek()
        if character == "[":
            return self.literal_list()
        if character == "{":
            return self.dictionary()
        match = _STRING.match(text, start) if character == '"' else None
        if match is not None:
            self.position = match.end()
            return _String(re.sub(r"\\(.)", lambda m: _UNESCAPE.get(m[1], m[1]), match[1]))
        match = _NUMBER.match(text, start)
        if match is not None:
            self.position = match.end()
            return self.number(match[0], start)
        if character == "@":
            self.position += 1
            return _String(self.word("a symbol"))
        word = self.word("an attribute value")
        if word in ("true", "false"):
            return word == "true"
        if word == "dense":
            return self.dense()
        if self.at("<") or word == "token":
            self.position = start
            return self.type()
        return word

    def literal_list(self) -> list[object]:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error("too_deep", f"lists are nested deeper than {DEEPEST}")
        self.position += 1
        items: list[object] = []
        while not self.accept("]"):
            if items:
                self.expect(",", "between values")
            items.append(self.literal())
        self.depth -= 1
        return items

    def number(self, text: str, start: int) -> object:
        if len(text) > 400:
            raise self.error("number", "this number is too long", start, self.position)
        if text.startswith("0x"):
            return Bits(int(text, 16))
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text)

    def dense(self) -> Dense:
        self.expect("(", "after `dense`")
        type, start = self.type(), self.position
        self.expect(",", "after the type")
        literal = self.literal()
        self.expect(")", "after the values")
        return self.to_dense(literal, type, start)

    def to_dense(self, literal: object, type: Type, start: int) -> Dense:
        if not isinstance(type, TileType):
            raise self.error("attribute", f"a constant must be a tile, found {type}", start)
        try:
            return dense_from_literal(literal, type)
        except (ValueError, OverflowError, TypeError) as error:
            raise self.error("attribute", str(error), start) from None

    def resolve(
        self, cls: type[Op], literals: dict[str, tuple[object, int]], types: tuple[Type, ...]
    ) -> dict[str, Attribute]:
        attributes: dict[str, Attribute] = {}
        specs = cls.definition.attribute_specs
        for name, (literal, start) in literals.items():
            spec = specs.get(name)
            if spec is None:
                known = ", ".join(specs) or "none"
                raise self.error(
                    "attribute",
                    f"`{cls.name}` has no attribute `{name}` (it has: {known})",
                    start,
                    start + len(name),
                )
            value = self.attribute(spec, literal, types, start)
            if value != spec.default or type(value) is not type(spec.default):
                attributes[name] = value
        return attributes

    def attribute(
        self, spec: AttributeSpec, literal: object, types: tuple[Type, ...], start: int
    ) -> Attribute:
        if spec.kind == "dense" and not isinstance(literal, Dense):
            if not types:
                raise self.error("attribute", "write `dense(type, values)` here", start)
            return self.to_dense(literal, types[0], start)
        if spec.kind == "float" and isinstance(literal, int) and not isinstance(literal, bool):
            return float(literal)
        if spec.kind in ("string", "layout", "symbol") and not isinstance(literal, _String):
            raise self.error("attribute", f"`{spec.name}` needs a string in quotes", start)
        if isinstance(literal, Bits):
            return literal.value
        return _plain(literal)


class _String(str):
    """A quoted string, told apart from a bare word while attributes are resolved."""

    __slots__ = ()


def _plain(literal: object) -> Attribute:
    if isinstance(literal, _String):
        return str(literal)
    if isinstance(literal, list):
        return tuple(_plain(item) for item in literal)  # type: ignore[misc]
    if isinstance(literal, Bits):
        return literal.value
    return literal  # type: ignore[return-value]
