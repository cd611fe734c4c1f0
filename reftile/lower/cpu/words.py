"""The vocabulary of meanings, as words that build tiles of the generator.

An operation's record says what it means in these words (spec/records.md); evaluating the meaning
with tiles for operands gives the tile of its result. So every elementwise operation is translated
by its record alone.
"""

# ruff: noqa: D103 (a word means what spec/records.md says of it)
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from reftile.ir.attributes import Dense
from reftile.ir.dtypes import DTYPES, F32, F64, TF32, DType
from reftile.ir.expressions import VOCABULARY as EXPRESSIONS
from reftile.lower.cpu import tiles
from reftile.lower.cpu.formats import (
    MODES,
    code,
    decoded,
    encoded,
    memory_kind,
    rounded,
    rounded_single,
    value_of_code,
)
from reftile.lower.cpu.literals import literal
from reftile.lower.cpu.tiles import Index, Item, Loops, Map, Moved, Piecewise, Shape, Tile

Text = Callable[..., str]


def _map(write: Text, dtype: Any, *operands: Tile, work: int = 1) -> Tile:
    shape = max((o.shape for o in operands), key=len)
    return Map(shape, dtype, write, operands, work)


def _one(write: Callable[[str], str], dtype: Any, source: Tile, work: int = 1) -> Tile:
    return _map(write, dtype, source, work=work)


def _two(write: Callable[[str, str], str], dtype: Any, lhs: Tile, rhs: Tile) -> Tile:
    return _map(write, dtype, lhs, rhs)


def _function(name: str) -> Text:
    return lambda *texts: f"{name}({', '.join(texts)})"


# Floats

_EXACT_MODES = ("nearest_even", "approx", "full")


def _arithmetic(
    plain: str, odd: str, wide: str, dtype: DType, rounding: str, flush: bool, work: int
) -> tuple[Text, int]:
    """The text of an operation of arithmetic in a format and a mode."""
    mode = "nearest_even" if rounding in _EXACT_MODES else rounding
    if mode == "nearest_even" and (plain or dtype is F64):

        def write(*texts: str) -> str:
            if flush:
                texts = tuple(f"flush({t})" for t in texts)
            text = f"{plain}({', '.join(texts)})"
            if dtype not in (F32, F64):
                text = rounded_single(text, dtype)
            return f"flush({text})" if flush else text

        return write, work + (0 if dtype in (F32, F64) else 2) + 2 * flush
    if dtype is F64:
        return lambda *texts: f"{wide}({', '.join(texts)}, {MODES[mode]})", 30

    def write_odd(*texts: str) -> str:
        if flush:
            texts = tuple(f"flush({t})" for t in texts)
        exact = f"{odd}({', '.join(f'widen({t})' for t in texts)}, {MODES[mode]})"
        text = rounded(exact, dtype, mode)
        return f"flush({text})" if flush else text

    return write_odd, 20


def add(lhs: Tile, rhs: Tile, dtype: DType, rounding: str, flush_to_zero: bool) -> Tile:
    write, work = _arithmetic("addf", "add_odd", "add_wide", dtype, rounding, flush_to_zero, 1)
    return _map(write, dtype, lhs, rhs, work=work)


def sub(lhs: Tile, rhs: Tile, dtype: DType, rounding: str, flush_to_zero: bool) -> Tile:
    if rounding in _EXACT_MODES:
        write, work = _arithmetic("subf", "", "", dtype, rounding, flush_to_zero, 1)
        return _map(write, dtype, lhs, rhs, work=work)
    return add(lhs, neg_float(rhs), dtype, rounding, flush_to_zero)


def mul(lhs: Tile, rhs: Tile, dtype: DType, rounding: str, flush_to_zero: bool) -> Tile:
    write, work = _arithmetic("mulf", "mul_odd", "mul_wide", dtype, rounding, flush_to_zero, 1)
    return _map(write, dtype, lhs, rhs, work=work)


def div(lhs: Tile, rhs: Tile, dtype: DType, rounding: str, flush_to_zero: bool) -> Tile:
    write, work = _arithmetic("divf", "div_odd", "div_wide", dtype, rounding, flush_to_zero, 4)
    return _map(write, dtype, lhs, rhs, work=work)


def reciprocal(source: Tile, dtype: DType, rounding: str, flush_to_zero: bool) -> Tile:
    one = tiles.Literal_(source.shape, dtype, literal(1.0, dtype))
    return div(one, source, dtype, rounding, flush_to_zero)


def fma(lhs: Tile, rhs: Tile, acc: Tile, dtype: DType, rounding: str, flush_to_zero: bool) -> Tile:
    plain = "fmaf" if dtype in (F32, F64) else ""
    write, work = _arithmetic(plain, "fma_odd", "fma_wide", dtype, rounding, flush_to_zero, 1)
    return _map(write, dtype, lhs, rhs, acc, work=work)


def sqrt(source: Tile, dtype: DType, rounding: str, flush_to_zero: bool) -> Tile:
    write, work = _arithmetic("sqrtf", "sqrt_odd", "sqrt_wide", dtype, rounding, flush_to_zero, 5)
    return _map(write, dtype, source, work=work)


def rsqrt(source: Tile, dtype: DType, flush_to_zero: bool) -> Tile:
    def write(x: str) -> str:
        if dtype is F64:
            return f"rsqrt_wide({x})"
        if flush_to_zero:
            return f"flush(rsqrt_single(flush({x})))"
        return rounded_single(f"rsqrt_single({x})", dtype)

    return _map(write, dtype, source, work=8)


def remainder(lhs: Tile, rhs: Tile, dtype: DType) -> Tile:
    return _map(_function("remf"), dtype, lhs, rhs, work=20)


def neg_float(source: Tile) -> Tile:
    return _map(_function("negf"), source.element, source)


def abs_float(source: Tile) -> Tile:
    return _map(_function("absf"), source.element, source)


def _extreme(name: str, flush: bool) -> Text:
    if not flush:
        return _function(name)

    def write(x: str, y: str) -> str:
        return f"{name}(flush({x}), flush({y}))"

    return write


def maximum(lhs: Tile, rhs: Tile, dtype: DType, propagate_nan: bool, flush_to_zero: bool) -> Tile:
    name = "maximum" if propagate_nan else "maxnum"
    return _map(_extreme(name, flush_to_zero), dtype, lhs, rhs)


def minimum(lhs: Tile, rhs: Tile, dtype: DType, propagate_nan: bool, flush_to_zero: bool) -> Tile:
    name = "minimum" if propagate_nan else "minnum"
    return _map(_extreme(name, flush_to_zero), dtype, lhs, rhs)


def _same(x: str) -> str:
    return x


_SIGNS = {
    "equal": "eq",
    "not_equal": "ne",
    "less_than": "lt",
    "less_than_or_equal": "le",
    "greater_than": "gt",
    "greater_than_or_equal": "ge",
}


def compare(lhs: Tile, rhs: Tile, predicate: str, ordering: str) -> Tile:
    letter = "f" if ordering == "ordered" else "u"
    return _map(_function(letter + _SIGNS[predicate]), DTYPES["i1"], lhs, rhs)


def ceil(source: Tile, dtype: DType) -> Tile:
    return _map(_function("ceilf"), dtype, source)


def floor(source: Tile, dtype: DType) -> Tile:
    return _map(_function("floorf"), dtype, source)


def trunc(source: Tile, dtype: DType) -> Tile:
    return _map(_function("truncf"), dtype, source)


def round_even(source: Tile, dtype: DType) -> Tile:
    return _map(_function("evenf"), dtype, source)


# Elementary functions


def _elementary(name: str, work: int = 20) -> Callable[..., Tile]:
    def word(*arguments: Any) -> Tile:
        operands = [a for a in arguments if isinstance(a, Tile)]
        dtype = next(a for a in arguments if isinstance(a, DType))

        def write(*texts: str) -> str:
            if dtype is F64:
                return f"{name}64({', '.join(texts)})"
            if dtype is F32:
                return f"{name}32({', '.join(texts)})"
            return rounded_single(f"{name}32({', '.join(texts)})", dtype)

        return _map(write, dtype, *operands, work=work)

    return word


exp = _elementary("exp")
expm1 = _elementary("expm1_")
log = _elementary("log")
log2 = _elementary("log2_")
log1p = _elementary("log1p")
sin = _elementary("sin")
cos = _elementary("cos")
tan = _elementary("tan")
sinh = _elementary("sinh")
cosh = _elementary("cosh")
tanh = _elementary("tanh")
erf = _elementary("erf")
atan2 = _elementary("atan2_")
power = _elementary("pow")
_exp2 = _elementary("exp2_")


def exp2(source: Tile, dtype: DType, flush_to_zero: bool) -> Tile:
    if not flush_to_zero:
        return _exp2(source, dtype)
    return _one(lambda x: f"flush(exp2_32(flush({x})))", dtype, source, work=20)


def integer_power(source: Tile, exponent: Tile, dtype: DType, exponent_dtype: DType) -> Tile:
    wide = "f64" if dtype is F64 else "f32"
    kind = DTYPES[wide]
    if exponent_dtype.bits <= 16 or dtype is F64:
        number = _map(_function(f"{wide}_of_signed"), kind, exponent)
        return power(source, number, dtype)

    # An f32 does not have all exponents of 32 bits.
    def write(x: str, n: str) -> str:
        return rounded(f"pow64(widen({x}), f64_of_signed({n}))", dtype)

    return _map(write, dtype, source, exponent, work=30)


# Integers


def _integers(name: str, of_bits: str, work: int = 1) -> Callable[..., Tile]:
    def word(lhs: Tile, rhs: Tile, dtype: DType) -> Tile:
        function = of_bits if dtype.bits == 1 else name
        return _map(_function(function), dtype, lhs, rhs, work=work)

    return word


add_int = _integers("addi", "xori")
sub_int = _integers("subi", "xori")
mul_int = _integers("muli", "andi")


def mulhi_int(x: Tile, y: Tile, dtype: DType) -> Tile:
    if dtype.bits == 1:
        return _two(lambda a, b: "False", dtype, x, y)
    return _map(_function("mulhi"), dtype, x, y, work=2)


def neg_int(source: Tile, dtype: DType) -> Tile:
    return source if dtype.bits == 1 else _map(_function("negi"), dtype, source)


def abs_int(source: Tile, dtype: DType) -> Tile:
    if dtype.bits == 1:
        return source
    return _one(lambda x: f"smax({x}, negi({x}))", dtype, source)


def _letter(signedness: str) -> str:
    return "s" if signedness == "signed" else "u"


def div_int(lhs: Tile, rhs: Tile, dtype: DType, signedness: str, rounding: str) -> Tile:
    if dtype.bits == 1:
        return _map(_function("andi"), dtype, lhs, rhs)
    name = _letter(signedness) + {"zero": "div", "negative_inf": "div_floor"}.get(
        rounding, "div_ceil"
    )
    return _map(_function(name), dtype, lhs, rhs, work=8)


def rem_int(lhs: Tile, rhs: Tile, dtype: DType, signedness: str) -> Tile:
    if dtype.bits == 1:
        return _two(lambda x, y: f"andi({x}, noti({y}))", dtype, lhs, rhs)
    return _map(_function(_letter(signedness) + "rem"), dtype, lhs, rhs, work=8)


def _limit(greatest: bool) -> Callable[..., Tile]:
    def word(lhs: Tile, rhs: Tile, dtype: DType, signedness: str) -> Tile:
        if dtype.bits == 1:
            # Read as signed, True is -1 and the lesser.
            name = "andi" if greatest == (signedness == "signed") else "ori"
        else:
            name = _letter(signedness) + ("max" if greatest else "min")
        return _map(_function(name), dtype, lhs, rhs)

    return word


max_int, min_int = _limit(True), _limit(False)


def compare_int(lhs: Tile, rhs: Tile, dtype: DType, predicate: str, signedness: str) -> Tile:
    # A carrier of one bit is read as -1 by a signed comparison, as it should be.
    letter = "i" if signedness == "signed" else "n"
    return _map(_function(letter + _SIGNS[predicate]), DTYPES["i1"], lhs, rhs)


def and_int(lhs: Tile, rhs: Tile) -> Tile:
    return _map(_function("andi"), lhs.element, lhs, rhs)


def or_int(lhs: Tile, rhs: Tile) -> Tile:
    return _map(_function("ori"), lhs.element, lhs, rhs)


def xor_int(lhs: Tile, rhs: Tile) -> Tile:
    return _map(_function("xori"), lhs.element, lhs, rhs)


def shl_int(lhs: Tile, rhs: Tile, dtype: DType) -> Tile:
    return lhs if dtype.bits == 1 else _map(_function("shl"), dtype, lhs, rhs)


def shr_int(lhs: Tile, rhs: Tile, dtype: DType, signedness: str) -> Tile:
    if dtype.bits == 1:
        return lhs
    return _map(_function("ashr" if signedness == "signed" else "lshr"), dtype, lhs, rhs)


# Conversions


def convert(source: Tile, dtype: DType, target: DType, rounding: str, saturating: bool) -> Tile:
    if target is dtype and not saturating:
        return source
    if target is F64:

        def widen(x: str) -> str:
            wide = x if dtype is F64 else f"widen({x})"
            return f"clamp({wide}, {literal(F64.max_finite, F64)})" if saturating else wide

        return _map(widen, target, source)
    if dtype is not F64 and target.mantissa_bits >= 23:
        if not saturating:
            return _one(_same, target, source, work=0)
        big = literal(target.max_finite, target)
        return _one(lambda x: f"clamp({x}, {big})", target, source)
    if dtype is not F64 and rounding == "nearest_even" and not saturating:
        return _one(lambda x: rounded_single(x, target), target, source, work=2)

    def write_once(x: str) -> str:
        wide = x if dtype is F64 else f"widen({x})"
        return rounded(wide, target, rounding, saturating)

    return _map(write_once, target, source, work=6)


_WHOLE = {
    "nearest_even": "evenf",
    "negative_inf": "floorf",
    "positive_inf": "ceilf",
}


def float_to_int(
    source: Tile, dtype: DType, target: DType, signedness: str, rounding: str, saturating: bool
) -> Tile:
    whole = _WHOLE.get(rounding)
    name = f"int{target.bits}_of_float_{signedness}"

    def write(x: str) -> str:
        return f"{name}({whole}({x}))" if whole else f"{name}({x})"

    return _map(write, target, source, work=2)


def int_to_float(source: Tile, dtype: DType, target: DType, signedness: str, rounding: str) -> Tile:
    signed = signedness == "signed"

    def wide(x: str) -> str:
        """The integer in a type where `signedness` reads it as it should."""
        if dtype.bits != 4 or signed:
            return x
        return f"andi({x}, i8(15))"

    if dtype.bits < 64 or (rounding == "nearest_even" and target in (F32, F64)):
        if target is F64 or (target is F32 and rounding == "nearest_even"):
            name = f"{target.name}_of_{signedness}"
            return _one(lambda x: f"{name}({wide(x)})", target, source)
        return _one(
            lambda x: rounded(f"f64_of_{signedness}({wide(x)})", target, rounding),
            target,
            source,
            work=6,
        )
    if target is F64:
        name = f"f64_of_{signedness}64"
        return _one(lambda x: f"{name}({x}, {MODES[rounding]})", target, source, work=10)
    return _one(
        lambda x: rounded(f"odd_of_{signedness}({x})", target, rounding), target, source, work=10
    )


def extend_int(source: Tile, dtype: DType, target: DType, signedness: str) -> Tile:
    kind = tiles.kind_of(target)

    def write(x: str) -> str:
        if dtype.bits == 4 and signedness == "unsigned":
            x = f"andi({x}, i8(15))"
        text = f"{kind}_of_{signedness}({x})"
        # A tile of 4-bit integers holds them sign-extended.
        return f"ashr(shl({text}, i8(4)), i8(4))" if target.bits == 4 else text

    return _map(write, target, source)


def truncate_int(source: Tile, dtype: DType, target: DType) -> Tile:
    kind = tiles.kind_of(target)

    def write(x: str) -> str:
        text = f"{kind}_of_signed({x})"
        return f"ashr(shl({text}, i8(4)), i8(4))" if target.bits == 4 else text

    return _map(write, target, source)


def bits_of(text: str, dtype: DType) -> str:
    """The code of an element as the integer of its width in memory."""
    if dtype.is_int:
        return f"andi({text}, i8(15))" if dtype.bits == 4 else text
    match dtype.name:
        case "f64":
            return f"bits64({text})"
        case "f32" | "tf32":
            return f"bits32({text})"
        case _:
            return encoded(text, dtype)


def of_bits(text: str, dtype: DType) -> str:
    """The element of a code that `bits_of` gave."""
    if dtype.is_int:
        return f"ashr(shl({text}, i8(4)), i8(4))" if dtype.bits == 4 else text
    match dtype.name:
        case "f64":
            return f"float64_of_bits({text})"
        case "f32":
            return f"float32_of_bits({text})"
        case "tf32":
            return f"float_of_tf32(float32_of_bits({text}))"
        case _:
            return decoded(text, dtype)


def _unit(dtype: DType) -> str:
    """The kind of `bits_of`."""
    return "b1" if dtype.bits == 1 else f"i{max(8, dtype.bits)}"


def bitcast(source: Tile, dtype: DType, target: DType) -> Tile:
    def write(x: str) -> str:
        return of_bits(bits_of(x, dtype), target)

    return _map(write, target, source)


def pack(source: Tile, dtype: DType) -> Tile:
    count = source.size
    i8 = DTYPES["i8"]
    if dtype.bits == 4:

        def write_pair(index: Index, nest: Loops) -> str:
            at = index[0]
            low, high = (
                nest.temp(bits_of(source.at((f"({at} * 2 + {k})",), nest), dtype)) for k in (0, 1)
            )
            return nest.temp(f"ori({low}, shl({high}, i8(4)))")

        return Piecewise((count // 2,), i8, write_pair, [source])
    size = dtype.bits // 8

    def write(index: Index, nest: Loops) -> str:
        flat = nest.temp(f"i64({index[0]})")
        at = nest.temp(f"udiv_by({flat}, i64({size}))")
        byte = nest.temp(f"urem_by({flat}, i64({size}))")
        bits = bits_of(source.at((at,), nest), dtype)
        amount = f"{_unit(dtype)}_of_signed(muli({byte}, i64(8)))"
        return nest.temp(f"i8_of_signed(lshr({bits}, {amount}))")

    return Piecewise((count * size,), i8, write, [source])


def unpack(source: Tile, dtype: DType) -> Tile:
    if dtype.bits == 4:

        def write_half(index: Index, nest: Loops) -> str:
            flat = nest.temp(f"i64({index[0]})")
            byte = source.at((nest.temp(f"udiv_by({flat}, i64(2))"),), nest)
            amount = nest.temp(f"i8_of_signed(muli(urem_by({flat}, i64(2)), i64(4)))")
            code_text = f"andi(lshr({byte}, {amount}), i8(15))"
            return nest.temp(of_bits(code_text, dtype))

        return Piecewise((source.size * 2,), dtype, write_half, [source])
    size = dtype.bits // 8
    unit = _unit(dtype)

    def write(index: Index, nest: Loops) -> str:
        text = ""
        for byte in range(size):
            part = source.at((f"({index[0]} * {size} + {byte})",), nest)
            placed = f"shl({unit}_of_unsigned({part}), {unit}({8 * byte}))"
            text = f"ori({text}, {placed})" if text else placed
        return nest.temp(of_bits(nest.temp(text), dtype))

    return Piecewise((source.size // size,), dtype, write, [source])


def same(source: Tile) -> Tile:
    return source


def offset_pointer(ptr: Tile, offset: Tile, pointee: DType, dtype: DType) -> Tile:
    size = pointee.storage_bits // 8

    def write(p: str, n: str) -> str:
        return f"addi({p}, muli(i64_of_signed({n}), i64({size})))"

    shape = ptr.shape
    return Map(shape, ptr.element, write, (ptr, offset), 2, ptr.root)


# Shapes


def iota(count: int, dtype: DType) -> Tile:
    return tiles.Iota(count, dtype)


def select(condition: Tile, if_true: Tile, if_false: Tile) -> Tile:
    return _map(_function("choose"), if_true.element, condition, if_true, if_false)


def broadcast(source: Tile, shape: Shape) -> Tile:
    return tiles.broadcast(source, tuple(shape))


def spread(source: Tile, shape: Shape) -> Tile:
    return tiles.spread(source, tuple(shape))


def reshape(source: Tile, shape: Shape, target: Shape) -> Tile:
    return tiles.reshape(source, tuple(target))


def permute(source: Tile, permutation: Shape) -> Tile:
    return tiles.permute(source, tuple(permutation))


def cat(lhs: Tile, rhs: Tile, axis: int) -> Tile:
    axis %= len(lhs.shape)
    first = lhs.shape[axis]
    shape = (*lhs.shape[:axis], first + rhs.shape[axis], *lhs.shape[axis + 1 :])

    def write(index: Index, nest: Loops) -> str:
        at = index[axis]
        is_left = nest.temp(f"ilt(i64({at}), i64({first}))")
        # Both sides are read, each at a position that it has.
        left = nest.temp(f"smin(i64({at}), i64({first - 1}))")
        right = nest.temp(f"smax(i64({at}) - {first}, i64(0))")
        one = lhs.at((*index[:axis], left, *index[axis + 1 :]), nest)
        other = rhs.at((*index[:axis], right, *index[axis + 1 :]), nest)
        return nest.temp(f"choose({is_left}, {one}, {other})")

    return Piecewise(shape, lhs.element, write, [lhs, rhs])


def _part(index: Tile, count: int, nest: Loops) -> str:
    """The number of a part, one that is there."""
    wide = f"i64_of_signed({index.at((), nest)})"
    return nest.temp(f"smin(smax({wide}, i64(0)), i64({count - 1}))")


def extract(source: Tile, indices: tuple[Tile, ...], shape: Shape, part: Shape) -> Tile:
    def move(index: Index, nest: Loops) -> Index:
        found: list[str] = []
        for i, number, extent, size in zip(index, indices, shape, part, strict=True):
            at = _part(number, extent // size, nest)
            start = "0" if extent == size else nest.temp(f"{at} * {size}")
            found.append(i if start == "0" else f"({start} + {i})")
        return tuple(found)

    return Moved(tuple(part), source, move, "moved", 1)


def insert(
    source: Tile, destination: Tile, indices: tuple[Tile, ...], shape: Shape, part: Shape
) -> Tile:
    def write(index: Index, nest: Loops) -> str:
        inside, found = "True", list[str]()
        for i, number, extent, size in zip(index, indices, shape, part, strict=True):
            if extent == size:
                found.append(i)
                continue
            at = _part(number, extent // size, nest)
            place = nest.temp(f"i64({i}) - {at} * {size}")
            within = nest.temp(f"nlt({place}, i64({size}))")
            inside = within if inside == "True" else nest.temp(f"andi({inside}, {within})")
            found.append(nest.temp(f"choose({within}, {place}, i64(0))"))
        old = destination.at(index, nest)
        new = source.at(tuple(found), nest)
        return new if inside == "True" else nest.temp(f"choose({inside}, {new}, {old})")

    return Piecewise(tuple(shape), source.element, write, [source, destination])


def gather(source: Tile, indices: Tile, dtype: DType, axis: int) -> Tile:
    axis %= len(source.shape)
    extent = source.shape[axis]

    def write(index: Index, nest: Loops) -> str:
        chosen = f"i64_of_unsigned({indices.at(index, nest)})"
        at = nest.temp(f"umin({chosen}, i64({extent - 1}))")
        return source.at((*index[:axis], at, *index[axis + 1 :]), nest)

    return Piecewise(indices.shape, source.element, write, [source, indices], root=source.root)


# Random numbers


def philox(
    counter0: Tile,
    counter1: Tile,
    counter2: Tile,
    counter3: Tile,
    key0: Tile,
    key1: Tile,
    rounds: int,
) -> tuple[Tile, ...]:
    operands = (counter0, counter1, counter2, counter3, key0, key1)
    i32 = DTYPES["i32"]
    words = Map(
        counter0.shape,
        i32,
        lambda *texts: f"philox({', '.join(texts)}, {rounds})",
        operands,
        6 * rounds,
    )
    # The four results are one call: a nest writes the same text once.
    return tuple(Item(words, k, i32) for k in range(4))


def is_dense(value: object) -> bool:
    """Whether a value is the elements of a constant."""
    return isinstance(value, Dense)


_HERE = {
    name: thing for name, thing in globals().items() if callable(thing) and not name.startswith("_")
}
WORDS: dict[str, Any] = {**EXPRESSIONS, **DTYPES, **_HERE}
"""What a meaning may name besides the operation's own names."""

_UNUSED = (TF32, code, memory_kind, value_of_code, prod)
