"""IR to bytecode: `write_bytecode`, in any version that can hold the program.

What a version, or Tile IR at all, has no form for is refused with the operation's span and, where
one would do, the version it needs. Nothing is dropped that changes what a program means; promises
that Tile IR has no form for (`access`, `noalias`) are dropped.
"""

from __future__ import annotations

from reftile.interop.attribute_codec import HINTS, AttributeWriter
from reftile.interop.debug_write import DebugWriter
from reftile.interop.emit import pad, put_fixed_list, put_number, put_table
from reftile.interop.export import prepare
from reftile.interop.multicast import find_multicast
from reftile.interop.read import HAS_HINTS, KERNEL, PRIVATE
from reftile.interop.sections import (
    CONSTANTS,
    DEBUG,
    FUNCTIONS,
    GLOBALS,
    MAGIC,
    STRINGS,
    TYPES,
)
from reftile.interop.table import AttributeSlot, Coding, block_order, codings
from reftile.interop.type_tags import FunctionType
from reftile.interop.type_write import CannotWrite, TypeWriter
from reftile.interop.versions import (
    ENTRY_ARGUMENTS,
    ENUM_VALUES_SINCE,
    GLOBAL_FLAGS,
    HINTS_SINCE,
    MAJOR,
    NEWEST,
    RETURN_IN_LOOP_SINCE,
    version_text,
)
from reftile.ir.attributes import Attribute, Dense
from reftile.ir.core import Block, Kernel, Module, Op, Value
from reftile.ir.define import AttributeSpec
from reftile.ir.diagnostics import Diagnosis, ReftileError, Span
from reftile.ir.enums import ENUMS
from reftile.ir.expressions import evaluate
from reftile.ir.types import TileType
from reftile.ir.verify import bind_operation, verify

SECTION_ALIGNMENT = {FUNCTIONS: 8, GLOBALS: 1, CONSTANTS: 8, DEBUG: 8, TYPES: 4, STRINGS: 4}
"""As NVIDIA's writers have it; the tables inside are aligned as if the section were at 0."""


def write_bytecode(module: Module, version: int = NEWEST) -> bytes:
    """Return the bytecode of a module in version 13.`version`.

    Raises:
        ReftileError: the module is not valid, or rules `export.version` and `export.unsupported`:
            it uses what the version, or Tile IR, has not.
    """
    verify(module)
    prepared = prepare(module)
    if prepared is not module:
        verify(prepared)
    return _Writer(version).module(prepared)


def oldest_version(module: Module) -> int:
    """Return the oldest version that can hold a module.

    Raises:
        ReftileError: `export.unsupported`, if none can.
    """
    version = 1
    while True:
        try:
            write_bytecode(module, version)
            return version
        except ReftileError as error:
            needed = error.diagnosis.data.get("needs")
            if error.diagnosis.rule != "export.version" or not isinstance(needed, int):
                raise
            version = max(needed, version + 1)


class _Writer:
    def __init__(self, version: int) -> None:
        self.version = version
        self.types = TypeWriter(version)
        self.attributes = AttributeWriter(self.types, {}, {})
        self.debug = DebugWriter(version, self.attributes)
        self.values: dict[Value, int] = {}
        self.multicast: frozenset[Value] = frozenset()
        self.loops: list[str] = []
        self.codings = codings()

    def refuse(self, error: CannotWrite, span: Span) -> ReftileError:
        """The diagnosis (to be raised) of what cannot be written."""
        if not error.since:
            return ReftileError(Diagnosis("export.unsupported", str(error), span))
        needed = version_text(error.since)
        return ReftileError(
            Diagnosis(
                "export.version",
                f"{error} needs Tile IR {needed}, and {version_text(self.version)} is asked for",
                span,
                f"write version {needed} or newer",
                data={"needs": error.since},
            )
        )

    def module(self, module: Module) -> bytes:
        globals = bytearray()
        put_number(globals, len(module.globals))
        for op in module.globals:
            try:
                self.global_(globals, op)
            except CannotWrite as error:
                raise self.refuse(error, op.span) from None
        functions = bytearray()
        put_number(functions, len(module.kernels))
        for kernel in module.kernels:
            try:
                self.kernel(functions, kernel)
            except CannotWrite as error:
                raise self.refuse(error, kernel.span) from None
        return self.file(globals if module.globals else bytearray(), functions)

    def file(self, globals: bytearray, functions: bytearray) -> bytes:
        out = bytearray(MAGIC)
        out += bytes([MAJOR, self.version, 0, 0])
        _section(out, FUNCTIONS, functions)
        if globals:
            _section(out, GLOBALS, globals)
        _section(out, CONSTANTS, _table(self.attributes.constants, 8))
        debug = self.debug.section()
        if debug:
            _section(out, DEBUG, debug)
        _section(out, TYPES, _table(self.types.items, 4))
        strings = {text.encode(): None for text in self.attributes.strings}
        _section(out, STRINGS, _table(strings, 4))
        out.append(0)
        return bytes(out)

    def global_(self, out: bytearray, op: Op) -> None:
        value = op.attributes["value"]
        assert isinstance(value, Dense)
        self.attributes.string(out, str(op.attributes["symbol"]))
        put_number(out, self.types.index(TileType(value.shape, value.dtype)))
        self.attributes.dense(out, value)
        alignment = op.attributes.get("alignment", 0)
        assert isinstance(alignment, int)
        put_number(out, alignment)
        private = op.attributes.get("visibility") == "private"
        constant = bool(op.attributes.get("constant"))
        if self.version >= GLOBAL_FLAGS:
            out += bytes([private, constant])
        elif private or constant:
            raise CannotWrite("a private or constant global", GLOBAL_FLAGS)

    def kernel(self, out: bytearray, kernel: Kernel) -> None:
        self.multicast = find_multicast(kernel)
        types = tuple(a.type for a in kernel.arguments)
        multicast = tuple(i for i, a in enumerate(kernel.arguments) if a in self.multicast)
        self.attributes.string(out, kernel.name)
        put_number(out, self.types.index(FunctionType(types, (), multicast)))
        hints = self.without_empty(kernel.attributes.get("hints"))
        flags = KERNEL | (PRIVATE if kernel.attributes.get("private") else 0)
        if self.version >= ENTRY_ARGUMENTS:
            hints = {} if hints is None else hints
        elif hints is not None:
            flags |= HAS_HINTS
        out.append(flags)
        put_number(out, self.debug.begin(kernel))
        if hints is not None:
            out.append(HINTS)
            self.hints(out, hints)
        if self.version >= ENTRY_ARGUMENTS:
            self.attributes.tagged(out, ())
        body = bytearray()
        self.values = {v: i for i, v in enumerate(kernel.arguments)}
        for op in kernel.body.block.ops:
            self.op(body, op)
        put_number(out, len(body))
        out += body

    def without_empty(self, hints: Attribute | None) -> Attribute | None:
        """Hints without the empty groups that the version has no name for; they say nothing."""
        if not isinstance(hints, dict):
            return hints
        kept = {
            name: group
            for name, group in hints.items()
            if group or HINTS_SINCE.get(name, 1) <= self.version
        }
        return kept if kept or not hints else None

    def hints(self, out: bytearray, hints: Attribute) -> None:
        if not isinstance(hints, dict) or not all(isinstance(v, dict) for v in hints.values()):
            raise CannotWrite(f"hints are dictionaries by architecture, found {hints}")
        inner = [name for group in hints.values() if isinstance(group, dict) for name in group]
        for name in (*hints, *inner):
            if HINTS_SINCE.get(name, 1) > self.version:
                raise CannotWrite(f"the hint `{name}`", HINTS_SINCE[name])
        self.attributes.dictionary(out, hints)

    # Operations

    def op(self, out: bytearray, op: Op) -> None:
        try:
            self.head(out, op)
        except CannotWrite as error:
            raise self.refuse(error, op.span) from None
        if op.definition.regions:
            self.regions(out, op)
        hidden = self.hidden_results(op)
        for result in op.results[: len(op.results) - hidden]:
            self.values[result] = len(self.values)

    def head(self, out: bytearray, op: Op) -> None:
        """All of an operation but its regions."""
        coding = self.codings.get(op.name)
        if coding is None:
            raise CannotWrite(f"Tile IR has no operation `{op.name}`")
        self.check_version(coding, op)
        self.check_limits(coding, op)
        self.debug.op(op.span)
        put_number(out, coding.code)
        results = op.results[: len(op.results) - self.hidden_results(op)]
        if coding.counts_results:
            put_number(out, len(results))
        for result in results:
            put_number(out, self.types.index(result.type, result in self.multicast))
        self.flags(out, coding, op)
        self.op_attributes(out, coding, op)
        self.operands(out, coding, op)

    def check_version(self, coding: Coding, op: Op) -> None:
        if coding.since > self.version:
            raise CannotWrite(f"`{op.name}`", coding.since)
        for name in coding.foreign:
            if name in op.attributes:
                raise CannotWrite(f"`{op.name}` with `{name}` does not exist in Tile IR")
        for slot in coding.attributes + tuple(
            s for s in coding.flags if isinstance(s, AttributeSlot)
        ):
            if slot.since > self.version and slot.name in op.attributes:
                raise CannotWrite(f"`{slot.name}` of `{op.name}`", slot.since)
            since = ENUM_VALUES_SINCE.get((slot.spec.kind, str(op.attributes.get(slot.name))), 1)
            if since > self.version:
                raise CannotWrite(f"`{slot.name} = {op.attributes[slot.name]}`", since)
        for slot, argument in zip(coding.operands, op.arguments, strict=True):
            if slot.since > self.version and argument is not None:
                raise CannotWrite(f"`{slot.name}` of `{op.name}`", slot.since)
        if op.name == "return" and self.loops and self.version < RETURN_IN_LOOP_SINCE:
            raise CannotWrite("`return` inside a loop", RETURN_IN_LOOP_SINCE)
        if op.name == "return" and "for" in self.loops:
            raise CannotWrite("Tile IR: `return` leaves a `loop`, and no `for`")

    def check_limits(self, coding: Coding, op: Op) -> None:
        """Refuse forms of an operation that Tile IR, in any version, does not have."""
        broken = broken_limit(coding, op)
        if broken:
            raise CannotWrite(f"Tile IR: {broken}")
        if op.name == "make_tensor_view" and len({v.type for v in op.operands[1:]}) > 1:
            raise CannotWrite("Tile IR: extents and strides of a view have one integer type")

    def hidden_results(self, op: Op) -> int:
        """Results that the version lacks; they must not be used (their values have no number)."""
        return sum(s.since > self.version for s in self.codings[op.name].results)

    def flags(self, out: bytearray, coding: Coding, op: Op) -> None:
        slots = [s for s in coding.flags if s.since <= self.version]
        if not slots:
            return
        ports = {s.name: a for s, a in zip(coding.operands, op.arguments, strict=True)}
        word = 0
        for bit, slot in enumerate(slots):
            if isinstance(slot, AttributeSlot):
                present = slot.name in op.attributes and op.attributes[slot.name] is not False
            else:
                present = ports[slot.name] is not None
            word |= present << bit
        put_number(out, word)

    def op_attributes(self, out: bytearray, coding: Coding, op: Op) -> None:
        if op.name == "assume":
            self.attributes.predicate(out, op.attributes)
            return
        for slot in coding.attributes:
            if slot.since > self.version:
                continue
            value = op.attributes.get(slot.name, slot.spec.default)
            if value is None and slot.spec.kind == "bool[]":
                count = max(len(a) for a in op.arguments if isinstance(a, tuple))
                value = (False,) * count
            if value is not None:
                self.attribute(out, slot.spec, value, op)  # type: ignore[arg-type]

    def attribute(self, out: bytearray, spec: AttributeSpec, value: Attribute, op: Op) -> None:
        if spec.kind in ENUMS:
            out.append(ENUMS[spec.kind][str(value)])
            return
        match value:
            case bool():
                out.append(value)
            case int():
                if value < 0:
                    raise CannotWrite(f"`{spec.name}` cannot be negative in Tile IR: {value}")
                put_number(out, value)
            case str():
                self.attributes.string(out, value)
            case dict():
                self.hints(out, value)
            case Dense():
                self.attributes.dense(out, value)
            case tuple() if spec.kind == "numbers":
                self.numbers(out, value, op)
            case tuple():
                size_bytes = 1 if spec.kind == "bool[]" else 4
                put_fixed_list(out, [int(v) for v in value], size_bytes)  # type: ignore[arg-type]
            case _:
                raise CannotWrite(f"`{spec.name}` of `{op.name}` has no form in Tile IR")

    def numbers(self, out: bytearray, values: tuple[Attribute, ...], op: Op) -> None:
        """The identities of a reduction, each in the element type of its operand."""
        put_number(out, len(values))
        for value, source in zip(values, op.operands, strict=True):
            assert isinstance(source.type, TileType) and isinstance(value, (int, float))
            self.attributes.number(out, value, source.type.dtype)

    def operands(self, out: bytearray, coding: Coding, op: Op) -> None:
        if coding.counts_operands:
            put_number(out, len(op.operands))
        for argument in op.arguments:
            if isinstance(argument, tuple):
                if not coding.counts_operands:
                    put_number(out, len(argument))
                for value in argument:
                    self.use(out, value, op)
            elif argument is not None:
                self.use(out, argument, op)

    def use(self, out: bytearray, value: Value, op: Op) -> None:
        number = self.values.get(value)
        if number is None:
            owner = value.owner.name if isinstance(value.owner, Op) else "a block"
            since = self.codings[owner].results[value.index].since if owner in self.codings else 0
            raise CannotWrite(f"the result %{value.name} of `{owner}`, used by `{op.name}`,", since)
        put_number(out, number)

    def regions(self, out: bytearray, op: Op) -> None:
        if "loop" in op.definition.traits:
            self.loops.append(op.name)
        specs = op.definition.regions
        put_number(out, len(specs))
        for region in op.regions:
            out.append(1)
            self.block(out, region.block, op)
        out += bytes(len(specs) - len(op.regions))
        if "loop" in op.definition.traits:
            self.loops.pop()

    def block(self, out: bytearray, block: Block, owner: Op) -> None:
        try:
            indices = [self.types.index(a.type) for a in block.arguments]
        except CannotWrite as error:
            raise self.refuse(error, owner.span) from None
        put_number(out, len(indices))
        for index in indices:
            put_number(out, index)
        put_number(out, len(block.ops))
        outer = len(self.values)
        for argument in block_order(owner.name, block.arguments):
            self.values[argument] = len(self.values)
        for op in block.ops:
            self.op(out, op)
        while len(self.values) > outer:
            self.values.popitem()


def _table(items: dict[bytes, int] | dict[bytes, None], offset_bytes: int) -> bytearray:
    out = bytearray()
    put_table(out, items, offset_bytes)
    return out


def _section(out: bytearray, id: int, payload: bytes | bytearray) -> None:
    alignment = SECTION_ALIGNMENT[id]
    out.append(id | (0x80 if alignment > 1 else 0))
    put_number(out, len(payload))
    if alignment > 1:
        put_number(out, alignment)
        pad(out, alignment)
    out += payload


def broken_limit(coding: Coding, op: Op) -> str:
    """What Tile IR asks of an operation and this one does not keep; empty if there is nothing."""
    names = bind_operation(op) if coding.limits else {}
    for limit in coding.limits:
        if not evaluate(limit.check, names):
            return str(evaluate(limit.say, names))
    return ""
