"""Values of event programs: integers, poison, and expressions over registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, assert_never


class Special(Enum):
    """Values that are no number."""

    UNINIT = "UNINIT"
    """Poison: memory never written, or an element that was not loaded."""
    UNKNOWN = "UNKNOWN"
    """Not determined yet in a candidate under construction; never part of an outcome."""

    def __repr__(self) -> str:
        return self.value


UNINIT, UNKNOWN = Special.UNINIT, Special.UNKNOWN
Value = int | Special

BinaryOp = Literal["+", "-", "*", "&", "|", "^", ">>", "==", "!=", "<", "<=", ">", ">="]
BINARY: Mapping[BinaryOp, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    ">>": lambda a, b: a >> b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
}

MBARRIER_PHASE = 1
"""The bit of a barrier's state that says whether the phase under way is odd."""
_PENDING, _ARRIVALS, _BYTES = 8, 24, 40
_NO_BYTES = 1 << 21


def mbarrier_state(arrivals: int) -> int:
    """Return the state of a fresh barrier: phase 0 awaits `arrivals` arrivals and no bytes.

    A state is one number: the phase under way (8 bits), arrivals missing and arrivals of each phase
    (16 bits each), bytes missing.
    """
    return _NO_BYTES << _BYTES | arrivals << _ARRIVALS | arrivals << _PENDING


def mbarrier_argument(arrivals: int, bytes: int) -> int:
    """Return the operand of a change: how many arrive, and bytes announced (or, negative, come)."""
    return bytes << 16 | arrivals


def _mbarrier(old: int, change: int) -> int:
    """Count arrivals and bytes; when none is missing, the next phase begins."""
    phase, total = old & 0xFF, old >> _ARRIVALS & 0xFFFF
    pending = max(0, (old >> _PENDING & 0xFFFF) - (change & 0xFFFF))
    missing = (old >> _BYTES) + (change >> 16)
    if pending == 0 and missing == _NO_BYTES:
        phase, pending = phase + 1 & 0xFF, total
    return missing << _BYTES | total << _ARRIVALS | pending << _PENDING | phase


Modify = Literal[
    "add", "and", "or", "xor", "max", "min", "xchg", "mbarrier", "addf", "umax", "umin"
]
MODIFY: Mapping[Modify, Callable[[int, int], int]] = {
    "add": lambda old, arg: old + arg,
    "and": lambda old, arg: old & arg,
    "or": lambda old, arg: old | arg,
    "xor": lambda old, arg: old ^ arg,
    "max": max,
    "min": min,
    "xchg": lambda old, arg: arg,
}
"""What a read-modify-write stores, from the value read and its operand."""
COMBINE: Mapping[Modify, Callable[[int, int], int]] = {**MODIFY, "mbarrier": _mbarrier}
"""With the counting of barriers with phases, which only `pipe` kernels have. For the other modes an
access says what it stores."""


@dataclass(frozen=True, slots=True)
class Const:
    """A known value."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Reg:
    """What the load, read-modify-write or exit read of this register name returned."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Bin:
    """Arithmetic or a comparison (1 or 0); poison if an operand is."""

    op: BinaryOp
    lhs: Expr
    rhs: Expr

    def __str__(self) -> str:
        return f"({self.lhs} {self.op} {self.rhs})"


@dataclass(frozen=True, slots=True)
class IsUninit:
    """1 if the operand is poison, else 0; for conditions on outcomes only."""

    arg: Expr

    def __str__(self) -> str:
        return f"uninit({self.arg})"


@dataclass(frozen=True, slots=True)
class Select:
    """`yes` where the condition is 1, `no` where it is 0; the other one is not looked at."""

    condition: Expr
    yes: Expr
    no: Expr

    def __str__(self) -> str:
        return f"({self.condition} ? {self.yes} : {self.no})"


@dataclass(frozen=True, slots=True)
class Poison:
    """A value that is not defined, whatever was read."""

    def __str__(self) -> str:
        return "poison"


@dataclass(frozen=True, slots=True)
class Call:
    """What an operation of a kernel gives for these operands; poison if one of them is.

    name: how messages write it. function: from the operands' numbers to the result's.
    """

    name: str
    function: Callable[..., Value]
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


Expr = Const | Reg | Bin | IsUninit | Select | Poison | Call
TRUE, FALSE = Const(1), Const(0)
POISON = Poison()


def binary(op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
    """Return `lhs op rhs`, simplified so that it names only registers its value depends on."""
    match lhs, rhs:
        case Const(a), Const(b):
            return Const(BINARY[op](a, b))
        case (Const(0), _) | (_, Const(0)) if op == "&":
            return FALSE
        case (Poison(), _) | (_, Poison()):
            return POISON
        case (Const(0), _) | (_, Const(0)) if op == "*":
            return FALSE
        case (Const(0), other) | (other, Const(0)) if op in ("+", "|", "^"):
            return other
        case _ if lhs == rhs and op in ("-", "^", "!=", "<", ">"):
            return FALSE
        case _ if lhs == rhs and op in ("==", "<=", ">="):
            return TRUE
        case _:
            return Bin(op, lhs, rhs)


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """Return `yes` or `no` by a condition of 0 or 1; of equal ones either, without it."""
    match condition:
        case Const(value):
            return yes if value else no
        case Poison():
            return POISON
        case _:
            return yes if yes == no else Select(condition, yes, no)


def both(lhs: Expr, rhs: Expr) -> Expr:
    """Return the conjunction of two conditions (0 or 1 each)."""
    if lhs in (TRUE, rhs):
        return rhs
    return lhs if rhs == TRUE else binary("&", lhs, rhs)


def negate(condition: Expr) -> Expr:
    """Return the negation of a condition."""
    return binary("==", condition, FALSE)


def registers(expr: Expr) -> Iterator[str]:
    """Yield the names of the registers in an expression."""
    match expr:
        case Const() | Poison():
            return
        case Reg(name):
            yield name
        case Bin(_, lhs, rhs):
            yield from registers(lhs)
            yield from registers(rhs)
        case IsUninit(arg):
            yield from registers(arg)
        case Call(_, _, args):
            for arg in args:
                yield from registers(arg)
        case Select(condition, yes, no):
            yield from registers(condition)
            yield from registers(yes)
            yield from registers(no)
        case _:
            assert_never(expr)


def constants(expr: Expr) -> Iterator[int]:
    """Yield the constants in an expression."""
    match expr:
        case Const(value):
            yield value
        case Reg() | Poison():
            return
        case Bin(_, lhs, rhs):
            yield from constants(lhs)
            yield from constants(rhs)
        case IsUninit(arg):
            yield from constants(arg)
        case Call(_, _, args):
            for arg in args:
                yield from constants(arg)
        case Select(condition, yes, no):
            yield from constants(condition)
            yield from constants(yes)
            yield from constants(no)
        case _:
            assert_never(expr)


def evaluate(expr: Expr, env: Mapping[str, Value]) -> Value:
    """Return the value of an expression; a register missing in `env` is `UNKNOWN`.

    A conjunction with a known 0 is 0 whatever the other side is, as a branch not taken looks at
    nothing inside it.
    """
    match expr:
        case Const(value):
            return value
        case Reg(name):
            return env.get(name, UNKNOWN)
        case Bin(op, lhs, rhs):
            a, b = evaluate(lhs, env), evaluate(rhs, env)
            if op == "&" and (a == 0 or b == 0):
                return 0
            if a is UNKNOWN or b is UNKNOWN:
                return UNKNOWN
            if isinstance(a, Special) or isinstance(b, Special):
                return UNINIT
            return BINARY[op](a, b)
        case IsUninit(arg):
            value = evaluate(arg, env)
            return UNKNOWN if value is UNKNOWN else int(value is UNINIT)
        case Select(condition, yes, no):
            chosen = evaluate(condition, env)
            if isinstance(chosen, Special):
                return chosen
            return evaluate(yes if chosen else no, env)
        case Poison():
            return UNINIT
        case Call(_, function, args):
            numbers = [evaluate(arg, env) for arg in args]
            if UNKNOWN in numbers:
                return UNKNOWN
            return UNINIT if UNINIT in numbers else function(*numbers)
        case _:
            assert_never(expr)


def wrap(value: int, size: int) -> int:
    """Return a value reduced to `size` bytes, two's complement."""
    bits = 8 * size
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def part(value: Value, offset: int, size: int) -> Value:
    """Return the bytes [offset, offset + size) of a little-endian value, as an unsigned number."""
    if isinstance(value, Special):
        return value
    return (value >> 8 * offset) & ((1 << 8 * size) - 1)


def join(parts: list[tuple[Value, int]]) -> Value:
    """Return the value of consecutive (part, size), lowest byte first; poison if one is."""
    result, shift = 0, 0
    for value, size in parts:
        if isinstance(value, Special):
            return UNKNOWN if any(v is UNKNOWN for v, _ in parts) else UNINIT
        result |= value << shift
        shift += 8 * size
    return wrap(result, shift // 8)
