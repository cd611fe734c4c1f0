"""From parsed instructions to closures over register slots.

A decoder resolves names once; the closures it hands out read and write 32-lane arrays of a warp.
Every builder consumes the modifiers it knows; one left over is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from . import text as t
from .errors import UnsupportedInstruction
from .memory import RANK_SHIFT, SHARED_BASE
from .special import read_special

if TYPE_CHECKING:
    from .warp import Wait, Warp

Getter = Callable[["Warp"], np.ndarray]
Setter = Callable[["Warp", np.ndarray], None]
Sync = Callable[["Warp"], int] | str | None
Step = Callable[["Warp"], "Wait | None"]

BUILDERS: dict[str, Callable[[Decoder, t.Instruction, Modifiers], Step]] = {}
NUMPY = {
    "pred": np.bool_,
    "b8": np.uint8,
    "u8": np.uint8,
    "s8": np.int8,
    "b16": np.uint16,
    "u16": np.uint16,
    "s16": np.int16,
    "b32": np.uint32,
    "u32": np.uint32,
    "s32": np.int32,
    "b64": np.uint64,
    "u64": np.uint64,
    "s64": np.int64,
    "f16": np.float16,
    "bf16": np.uint16,
    "f32": np.float32,
    "f64": np.float64,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "tf32": np.uint32,
    "u16x2": np.uint32,
    "s16x2": np.uint32,
    "e4m3x2": np.uint16,
    "e5m2x2": np.uint16,
}
TYPES = frozenset(NUMPY)
ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "mad",
    "shl",
    "shr",
    "and",
    "or",
    "xor",
    "min",
    "max",
    "selp",
    "setp",
)
RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def no_operand(w: Warp) -> np.ndarray:
    """Stand in for an operand that an instruction's form does not have."""
    raise UnsupportedInstruction("this form has no such operand")


def instruction(*opcodes: str):
    """Register a builder for opcodes."""

    def register(builder):
        for opcode in opcodes:
            BUILDERS[opcode] = builder
        return builder

    return register


class Modifiers:
    """The dotted words after an opcode, consumed one by one."""

    def __init__(self, ins: t.Instruction) -> None:
        self.ins = ins
        self.left = list(ins.modifiers)

    def flag(self, *words: str) -> bool:
        """Consume one of `words` if present."""
        for word in words:
            if word in self.left:
                self.left.remove(word)
                return True
        return False

    def one(self, *words: str, default: str | None = None) -> str:
        """Consume and return exactly one of `words`, or the default."""
        for word in self.left:
            if word in words:
                self.left.remove(word)
                return word
        if default is None:
            raise self.fail(f"needs one of .{', .'.join(words)}")
        return default

    def match(self, pattern: str) -> re.Match | None:
        """Consume the first word that a regular expression matches whole."""
        for word in self.left:
            found = re.fullmatch(pattern, word)
            if found:
                self.left.remove(word)
                return found
        return None

    def type(self) -> str:
        """Consume and return the last type word."""
        for at in reversed(range(len(self.left))):
            if self.left[at] in TYPES:
                return self.left.pop(at)
        raise self.fail("has no type")

    def types(self, count: int) -> list[str]:
        """Consume the last `count` type words, in order."""
        return [self.type() for _ in range(count)][::-1]

    def done(self) -> None:
        if self.left:
            raise self.fail(f"modifier .{self.left[0]} is not modelled")

    def fail(self, why: str) -> UnsupportedInstruction:
        return UnsupportedInstruction(
            f"line {self.ins.line}: {self.ins.opcode}: {why}: {self.ins.text}"
        )


def own_window(w: Warp) -> int:
    """What the address of a shared variable has above its offset: in a cluster, the CTA's rank.

    Seen on an H200: `mov` of a shared variable's address gives rank << 24 | offset there.
    """
    cluster = w.cta.cluster
    return (w.cta.rank + 1) << RANK_SHIFT if len(cluster.ctas) > 1 else 0


class Decoder:
    """Resolves the names of one entry; `touched` collects the slots of the present instruction."""

    def __init__(self, entry: t.Entry, symbols: dict[str, int]) -> None:
        self.entry, self.symbols = entry, symbols
        self.slots = {key: i for i, key in enumerate(entry.registers)}
        self.touched: set[int] = set()
        self.written: set[int] = set()
        self.sync: Sync = None
        self.target: int | None = None
        self.owns_flight = False

    def fail(self, ins: t.Instruction, why: str) -> UnsupportedInstruction:
        return UnsupportedInstruction(f"line {ins.line}: {why}: {ins.text}")

    def find_register(self, ins: t.Instruction, name: str) -> tuple[int, str] | None:
        for scope in reversed(ins.scope):
            if (scope, name) in self.slots:
                return self.slots[scope, name], self.entry.registers[scope, name]
        return None

    def literal(self, ins: t.Instruction, operand: t.Operand) -> int:
        """Return the value of an operand that must be an integer constant."""
        if not isinstance(operand, t.Integer):
            raise self.fail(ins, f"operand {operand} is not an integer constant")
        return operand.value

    def width(self, ins: t.Instruction, operand: t.Operand) -> int:
        """Return the bytes of a register operand."""
        found = self.find_register(ins, operand.text) if isinstance(operand, t.Name) else None
        if found is None:
            raise self.fail(ins, f"operand {operand} is not a register of this instruction")
        return t.type_bytes(found[1])

    def label(self, ins: t.Instruction, operand: t.Operand) -> int:
        """Return the code index of a label."""
        name = operand.text if isinstance(operand, t.Name) else ""
        for scope in reversed(ins.scope):
            if (scope, name) in self.entry.labels:
                return self.entry.labels[scope, name]
        raise self.fail(ins, f"unknown label {name}")

    def slot(self, ins: t.Instruction, operand: t.Operand, kind: str, loose: bool = False) -> int:
        """Return the slot of a register whose width must fit `kind` (at least, when loose)."""
        found = self.find_register(ins, operand.text) if isinstance(operand, t.Name) else None
        if found is None or not isinstance(operand, t.Name):
            raise self.fail(ins, f"operand {operand} is not a register of this instruction")
        have, want = t.type_bytes(found[1]), np.dtype(NUMPY[kind]).itemsize
        if (found[1] == "pred") != (kind == "pred") or (have < want if loose else have != want):
            raise self.fail(
                ins, f"register {operand.text} is .{found[1]}, the instruction needs .{kind}"
            )
        self.touched.add(found[0])
        return found[0]

    def constant(self, ins: t.Instruction, operand: t.Operand, kind: str) -> np.ndarray | None:
        """Return 32 lanes of an immediate or symbol address, or None for anything else."""
        dtype = np.dtype(NUMPY[kind])
        if isinstance(operand, t.Integer):
            if kind in ("f32", "f64"):
                raise self.fail(ins, "an integer constant where a float is needed")
            if kind == "pred":
                return np.full(32, operand.value != 0)
            raw = operand.value % (1 << (8 * dtype.itemsize))
            return np.full(32, raw, RAW[dtype.itemsize]).view(dtype)
        if isinstance(operand, t.Real):
            if operand.width is not None and operand.width == 8 * dtype.itemsize:
                return np.full(32, operand.bits, RAW[dtype.itemsize]).view(dtype)
            if kind not in ("f32", "f64"):
                raise self.fail(ins, f"a float constant where .{kind} is needed")
            return np.full(32, operand.value, dtype)
        if (
            isinstance(operand, t.Name)
            and operand.text in self.symbols
            and self.find_register(ins, operand.text) is None
        ):
            if ins.opcode in ARITHMETIC:
                raise self.fail(ins, f"the address {operand.text} needs a mov")
            return np.full(
                32, self.symbols[operand.text] + operand.offset, RAW[dtype.itemsize]
            ).view(dtype)
        if isinstance(operand, t.Name) and operand.text == "WARP_SZ":
            return np.full(32, 32, dtype)
        return None

    def src(self, ins: t.Instruction, operand: t.Operand, kind: str, loose: bool = False) -> Getter:
        """Return a getter of 32 lanes as the NumPy type of `kind`."""
        dtype = np.dtype(NUMPY[kind])
        if isinstance(operand, t.Not):
            inner = self.src(ins, operand.operand, "pred")
            return lambda w: ~inner(w)
        value = self.constant(ins, operand, kind)
        if value is not None:
            if isinstance(operand, t.Name) and self.is_shared(operand.text):
                return lambda w: value + value.dtype.type(own_window(w))
            return lambda w: value
        if (
            isinstance(operand, t.Name)
            and operand.text.startswith("%")
            and self.find_register(ins, operand.text) is None
        ):
            return self.special(ins, operand.text, dtype)
        slot = self.slot(ins, operand, kind, loose)
        have = self.width(ins, operand)
        if loose and have != dtype.itemsize:
            raw = RAW[dtype.itemsize]
            return lambda w: w.registers[slot].view(RAW[have]).astype(raw).view(dtype)
        return lambda w: w.registers[slot].view(dtype)

    def is_shared(self, name: str) -> bool:
        """True if `name` is a variable in shared memory."""
        return SHARED_BASE <= self.symbols.get(name, 0) < 1 << RANK_SHIFT

    def special(self, ins: t.Instruction, name: str, dtype: np.dtype) -> Getter:
        """Return a getter of a special register, widened or narrowed to the wanted type."""
        read = read_special(name)
        if read is None:
            raise self.fail(ins, f"unknown special register {name}")
        return lambda w: read(w).astype(RAW[dtype.itemsize]).view(dtype)

    def dst(self, ins: t.Instruction, operand: t.Operand, kind: str, loose: bool = False) -> Setter:
        """Return a setter; loose destinations are wider and extend by the sign of `kind`."""
        if operand == t.Name("_"):
            return lambda w, value: None
        slot = self.slot(ins, operand, kind, loose)
        self.written.add(slot)
        if kind == "pred":
            return lambda w, value: w.put(slot, value)
        have, need = self.width(ins, operand), np.dtype(NUMPY[kind]).itemsize
        raw = RAW[have]
        if have == need:
            return lambda w, value: w.put(slot, value.view(raw))
        signed = kind.startswith("s")
        wide = np.dtype(f"i{have}") if signed else raw
        narrow = np.dtype(f"i{need}") if signed else RAW[need]
        return lambda w, value: w.put(slot, value.view(narrow).astype(wide).view(raw))

    def address(self, ins: t.Instruction, operand: t.Operand) -> Getter:
        """Return a getter of uint64 addresses from `[register+offset]` and the like."""
        if not isinstance(operand, t.Memory):
            raise self.fail(ins, f"operand {operand} is not an address")
        return self.address_part(ins, operand.parts[0])

    def address_part(self, ins: t.Instruction, part: t.Operand) -> Getter:
        value = self.constant(ins, part, "u64")
        if value is not None:
            return lambda w: value
        if not isinstance(part, t.Name):
            raise self.fail(ins, "unknown address form")
        found = self.find_register(ins, part.text)
        if found is None or found[1] == "pred":
            raise self.fail(ins, f"unknown name {part.text}")
        slot, width = found[0], t.type_bytes(found[1])
        if width not in (4, 8):
            raise self.fail(ins, f"address register {part.text} is .{found[1]}")
        self.touched.add(slot)
        raw, offset = RAW[width], np.uint64(part.offset % (1 << 64))
        if width == 8:
            return lambda w: w.registers[slot].view(raw) + offset
        mask = np.uint64(0xFFFFFFFF)
        return lambda w: (w.registers[slot].view(raw).astype(np.uint64) + offset) & mask

    def uniform(
        self, ins: t.Instruction, operand: t.Operand, kind: str = "u32"
    ) -> Callable[[Warp], int]:
        """Return a getter of a value that must be the same in all active lanes."""
        get = self.src(ins, operand, kind)

        def read(w: Warp) -> int:
            return w.uniform(get(w), ins.text)

        return read

    def count(self, ins: t.Instruction, low: int, high: int | None = None) -> int:
        """Check and return the number of operands."""
        found = len(ins.operands)
        if not low <= found <= (low if high is None else high):
            raise self.fail(ins, f"{found} operands, expected {low}")
        return found
