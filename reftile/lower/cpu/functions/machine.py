# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""Instructions that Python has no operator for, typed to the bit: nothing is widened.

Carriers are those of `DType.carrier`; in memory an i1 is a byte. Every function here is one or a
few LLVM instructions. Offsets of memory are bytes; a base is an address made by `pointer`, so that
LLVM sees base and offset apart and can tell two bases from each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

BASE = types.CPointer(types.uint8)
KINDS = {
    "b1": types.boolean,
    "i8": types.int8,
    "i16": types.int16,
    "i32": types.int32,
    "i64": types.int64,
    "f32": types.float32,
    "f64": types.float64,
}
_LLVM = {
    "b1": ir.IntType(1),
    "i8": ir.IntType(8),
    "i16": ir.IntType(16),
    "i32": ir.IntType(32),
    "i64": ir.IntType(64),
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
}
_BYTE = ir.IntType(8)


def llvm_type(kind: str) -> Any:
    """The LLVM type of a kind."""
    return _LLVM[kind]


_INT_OF = {"f32": "i32", "f64": "i64", "i32": "i32", "i64": "i64"}

Build = Callable[..., Any]


def _unary(build: Build, result: Any = None) -> Any:
    @intrinsic
    def function(typingctx, a):
        out = result or a

        def generate(context, builder, signature, args):
            return build(builder, *args)

        return out(a), generate

    return function


def _binary(build: Build, result: Any = None) -> Any:
    @intrinsic
    def function(typingctx, a, b):
        def generate(context, builder, signature, args):
            return build(builder, *args)

        return (result or a)(a, b), generate

    return function


def _ternary(build: Build, result: Any = None) -> Any:
    @intrinsic
    def function(typingctx, a, b, c):
        def generate(context, builder, signature, args):
            return build(builder, *args)

        return (result or a)(a, b, c), generate

    return function


def _call(name: str, suffix: bool = True) -> Build:
    """Call the LLVM intrinsic `name` on operands of one type."""

    def build(builder: Any, *args: Any) -> Any:
        kind = args[0].type
        full = f"{name}.{_suffix(kind)}" if suffix else name
        signature = ir.FunctionType(kind, [a.type for a in args])
        return builder.call(cgutils.get_or_insert_function(builder.module, signature, full), args)

    return build


def _suffix(kind: Any) -> str:
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {"float": "f32", "double": "f64"}[str(kind)]


# Floats: each rounds once, to nearest even

addf = _binary(lambda b, x, y: b.fadd(x, y))
subf = _binary(lambda b, x, y: b.fsub(x, y))
mulf = _binary(lambda b, x, y: b.fmul(x, y))
divf = _binary(lambda b, x, y: b.fdiv(x, y))
remf = _binary(lambda b, x, y: b.frem(x, y))
negf = _unary(lambda b, x: b.fneg(x))
absf = _unary(_call("llvm.fabs"))
sqrtf = _unary(_call("llvm.sqrt"))
ceilf = _unary(_call("llvm.ceil"))
floorf = _unary(_call("llvm.floor"))
truncf = _unary(_call("llvm.trunc"))
evenf = _unary(_call("llvm.roundeven"))
copysignf = _binary(_call("llvm.copysign"))
fmaf = _ternary(_call("llvm.fma"))
muladd = _ternary(_call("llvm.fmuladd"))
"""x * y + z, fused where that is one instruction: for approximations, not for results that are
defined to the bit."""
maxnum = _binary(_call("llvm.maximumnum"))
minnum = _binary(_call("llvm.minimumnum"))
maximum = _binary(_call("llvm.maximum"))
minimum = _binary(_call("llvm.minimum"))
addf_any_order = _binary(lambda b, x, y: b.fadd(x, y, flags=("reassoc", "contract")))
"""A term of a sum whose order is free."""
mulf_any_order = _binary(lambda b, x, y: b.fmul(x, y, flags=("reassoc",)))

_FCMP = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
for _name, _sign in _FCMP.items():
    globals()[f"f{_name}"] = _binary(
        lambda b, x, y, s=_sign: b.fcmp_ordered(s, x, y), types.boolean
    )
    globals()[f"u{_name}"] = _binary(
        lambda b, x, y, s=_sign: b.fcmp_unordered(s, x, y), types.boolean
    )
    globals()[f"i{_name}"] = _binary(lambda b, x, y, s=_sign: b.icmp_signed(s, x, y), types.boolean)
    globals()[f"n{_name}"] = _binary(
        lambda b, x, y, s=_sign: b.icmp_unsigned(s, x, y), types.boolean
    )


def _select(builder: Any, c: Any, x: Any, y: Any) -> Any:
    return builder.select(c, x, y)


@intrinsic
def choose(typingctx, condition, x, y):
    """X where the condition holds, else y; both are computed."""

    def generate(context, builder, signature, args):
        return builder.select(*args)

    return x(condition, x, y), generate


# Integers: they wrap

addi = _binary(lambda b, x, y: b.add(x, y))
subi = _binary(lambda b, x, y: b.sub(x, y))
muli = _binary(lambda b, x, y: b.mul(x, y))
andi = _binary(lambda b, x, y: b.and_(x, y))
ori = _binary(lambda b, x, y: b.or_(x, y))
xori = _binary(lambda b, x, y: b.xor(x, y))
noti = _unary(lambda b, x: b.not_(x))
negi = _unary(lambda b, x: b.neg(x))
smax = _binary(_call("llvm.smax"))
smin = _binary(_call("llvm.smin"))
umax = _binary(_call("llvm.umax"))
umin = _binary(_call("llvm.umin"))


def _amount(b: Any, x: Any, n: Any) -> Any:
    return b.and_(n, ir.Constant(n.type, n.type.width - 1))


shl = _binary(lambda b, x, n: b.shl(x, _amount(b, x, n)))
lshr = _binary(lambda b, x, n: b.lshr(x, _amount(b, x, n)))
ashr = _binary(lambda b, x, n: b.ashr(x, _amount(b, x, n)))


def _safe(b: Any, x: Any, y: Any, signed: bool) -> tuple[Any, Any]:
    """A divisor that traps with no dividend, and where the one given was zero."""
    zero = b.icmp_unsigned("==", y, ir.Constant(y.type, 0))
    bad = zero
    if signed:
        least = ir.Constant(x.type, -(1 << (x.type.width - 1)))
        minus = b.icmp_unsigned("==", y, ir.Constant(y.type, -1))
        bad = b.or_(zero, b.and_(minus, b.icmp_unsigned("==", x, least)))
    return b.select(bad, ir.Constant(y.type, 1), y), zero


def _divide(signed: bool, rounding: str) -> Build:
    def build(b: Any, x: Any, y: Any) -> Any:
        divisor, zero = _safe(b, x, y, signed)
        quotient = b.sdiv(x, divisor) if signed else b.udiv(x, divisor)
        if rounding != "zero" and (signed or rounding == "positive_inf"):
            rest = b.sub(x, b.mul(quotient, divisor))
            none = ir.Constant(x.type, 0)
            move = b.icmp_unsigned("!=", rest, none)
            if signed:
                apart = b.icmp_signed("<", b.xor(rest, divisor), none)
                move = b.and_(move, apart if rounding == "negative_inf" else b.not_(apart))
            by = b.zext(move, x.type)
            quotient = b.sub(quotient, by) if rounding == "negative_inf" else b.add(quotient, by)
        return b.select(zero, ir.Constant(x.type, 0), quotient)

    return build


def _remainder(signed: bool) -> Build:
    def build(b: Any, x: Any, y: Any) -> Any:
        divisor, zero = _safe(b, x, y, signed)
        rest = b.srem(x, divisor) if signed else b.urem(x, divisor)
        return b.select(zero, x, rest)

    return build


for _signed, _letter in ((True, "s"), (False, "u")):
    globals()[f"{_letter}div"] = _binary(_divide(_signed, "zero"))
    globals()[f"{_letter}div_floor"] = _binary(_divide(_signed, "negative_inf"))
    globals()[f"{_letter}div_ceil"] = _binary(_divide(_signed, "positive_inf"))
    globals()[f"{_letter}rem"] = _binary(_remainder(_signed))


def _mulhi(b: Any, x: Any, y: Any) -> Any:
    wide = ir.IntType(x.type.width * 2)
    product = b.mul(b.zext(x, wide), b.zext(y, wide))
    return b.trunc(b.lshr(product, ir.Constant(wide, x.type.width)), x.type)


mulhi = _binary(_mulhi)
udiv_by = _binary(lambda b, x, n: b.udiv(x, n))
"""A position divided by a number that is not zero."""
urem_by = _binary(lambda b, x, n: b.urem(x, n))


# Between kinds


def _resize(b: Any, x: Any, kind: Any, signed: bool) -> Any:
    if x.type.width < kind.width:
        return b.sext(x, kind) if signed else b.zext(x, kind)
    return b.trunc(x, kind) if x.type.width > kind.width else x


def _to_int(kind: Any, signed: bool) -> Build:
    def build(b: Any, x: Any) -> Any:
        return _resize(b, x, kind, signed)

    return build


def _saturated(bits: int, signed: bool, kind: Any) -> Build:
    def build(b: Any, x: Any) -> Any:
        narrow = ir.IntType(bits)
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat.i{bits}.{_suffix(x.type)}"
        signature = ir.FunctionType(narrow, [x.type])
        found = b.call(cgutils.get_or_insert_function(b.module, signature, name), [x])
        # A tile of 4-bit integers holds them sign-extended.
        return _resize(b, found, kind, True)

    return build


for _name, _type in KINDS.items():
    if _name[0] == "f":
        globals()[f"{_name}_of_signed"] = _unary(lambda b, x, k=_LLVM[_name]: b.sitofp(x, k), _type)
        globals()[f"{_name}_of_unsigned"] = _unary(
            lambda b, x, k=_LLVM[_name]: b.uitofp(x, k), _type
        )
        continue
    globals()[f"{_name}_of_signed"] = _unary(_to_int(_LLVM[_name], True), _type)
    globals()[f"{_name}_of_unsigned"] = _unary(_to_int(_LLVM[_name], False), _type)
for _bits, _name in ((1, "b1"), (4, "i8"), (8, "i8"), (16, "i16"), (32, "i32"), (64, "i64")):
    for _signed in (True, False):
        globals()[f"int{_bits}_of_float_{'signed' if _signed else 'unsigned'}"] = _unary(
            _saturated(_bits, _signed, _LLVM[_name]), KINDS[_name]
        )

widen = _unary(lambda b, x: b.fpext(x, _LLVM["f64"]), types.float64)
narrow = _unary(lambda b, x: b.fptrunc(x, _LLVM["f32"]), types.float32)
bits32 = _unary(lambda b, x: b.bitcast(x, _LLVM["i32"]), types.int32)
bits64 = _unary(lambda b, x: b.bitcast(x, _LLVM["i64"]), types.int64)
float32_of_bits = _unary(lambda b, x: b.bitcast(x, _LLVM["f32"]), types.float32)
float64_of_bits = _unary(lambda b, x: b.bitcast(x, _LLVM["f64"]), types.float64)
half_bits = _unary(lambda b, x: b.bitcast(b.fptrunc(x, ir.HalfType()), ir.IntType(16)), types.int16)
float_of_half_bits = _unary(
    lambda b, x: b.fpext(b.bitcast(x, ir.HalfType()), _LLVM["f32"]), types.float32
)
round_f16 = _unary(lambda b, x: b.fpext(b.fptrunc(x, ir.HalfType()), _LLVM["f32"]))


# Memory


@intrinsic
def pointer(typingctx, address):
    """The base of accesses at an address."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], _BYTE.as_pointer())

    return BASE(types.int64), generate


@intrinsic
def address_of(typingctx, base):
    """The address of a base."""

    def generate(context, builder, signature, args):
        return builder.ptrtoint(args[0], _LLVM["i64"])

    return types.int64(base), generate


@cache
def _scope_names(total: int) -> tuple[str, ...]:
    return tuple(f"memory {i}" for i in range(total))


def _mark(builder: Any, instruction: Any, scope: int, total: int) -> None:
    """Say that an access touches the memory number `scope` and none of the others."""
    if scope < 0 or total < 2:
        return
    module = builder.module
    domain = module.add_metadata(["reftile memories"])
    scopes = [module.add_metadata([name, domain]) for name in _scope_names(total)]
    instruction.set_metadata("alias.scope", module.add_metadata([scopes[scope]]))
    others = [s for i, s in enumerate(scopes) if i != scope]
    instruction.set_metadata("noalias", module.add_metadata(others))


def _memory_kind(kind: str) -> Any:
    return _BYTE if kind == "b1" else _LLVM[kind]


def _place(builder: Any, base: Any, offset: Any, kind: str) -> Any:
    place = builder.gep(base, [offset])
    return builder.bitcast(place, _memory_kind(kind).as_pointer())


def _size(kind: str) -> int:
    return 1 if kind == "b1" else int(kind[1:]) // 8


def _from_memory(builder: Any, value: Any, kind: str) -> Any:
    if kind != "b1":
        return value
    return builder.icmp_unsigned("!=", value, ir.Constant(_BYTE, 0))


def _to_memory(builder: Any, value: Any, kind: str) -> Any:
    return builder.zext(value, _BYTE) if kind == "b1" else value


def loader(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`load(base, offset)` of one element."""

    @intrinsic
    def load(typingctx, base, offset):
        def generate(context, builder, signature, args):
            value = builder.load(_place(builder, *args, kind), align=_size(kind))
            _mark(builder, value, scope, total)
            return _from_memory(builder, value, kind)

        return KINDS[kind](base, offset), generate

    return load


def masked_loader(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`load(base, offset, mask, padding)`: memory is touched only where the mask holds."""

    @intrinsic
    def load(typingctx, base, offset, mask, padding):
        def generate(context, builder, signature, args):
            base, offset, mask, padding = args
            start = builder.block
            with builder.if_then(mask):
                value = builder.load(_place(builder, base, offset, kind), align=_size(kind))
                _mark(builder, value, scope, total)
                found = _from_memory(builder, value, kind)
                there = builder.block
            merged = builder.phi(_LLVM[kind])
            merged.add_incoming(padding, start)
            merged.add_incoming(found, there)
            return merged

        return KINDS[kind](base, offset, mask, padding), generate

    return load


def storer(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`store(base, offset, value)` of one element."""

    @intrinsic
    def store(typingctx, base, offset, value):
        def generate(context, builder, signature, args):
            place = _place(builder, args[0], args[1], kind)
            made = builder.store(_to_memory(builder, args[2], kind), place, align=_size(kind))
            _mark(builder, made, scope, total)
            return context.get_dummy_value()

        return types.void(base, offset, value), generate

    return store


def masked_storer(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`store(base, offset, mask, value)`: memory is touched only where the mask holds."""

    @intrinsic
    def store(typingctx, base, offset, mask, value):
        def generate(context, builder, signature, args):
            base, offset, mask, value = args
            with builder.if_then(mask):
                place = _place(builder, base, offset, kind)
                made = builder.store(_to_memory(builder, value, kind), place, align=_size(kind))
                _mark(builder, made, scope, total)
            return context.get_dummy_value()

        return types.void(base, offset, mask, value), generate

    return store


# Atomic memory

_RMW = {
    "add": "add",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "max": "max",
    "min": "min",
    "umax": "umax",
    "umin": "umin",
    "xchg": "xchg",
}


def atomic_loader(kind: str, ordering: str) -> Any:
    """`load(base, offset, mask, other)`, whole and ordered: `monotonic` or `acquire`."""

    @intrinsic
    def load(typingctx, base, offset, mask, other):
        def generate(context, builder, signature, args):
            base, offset, mask, other = args

            def act() -> Any:
                whole = ir.IntType(_size(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                return _of_bits(builder, builder.load_atomic(place, ordering, _size(kind)), kind)

            return _if(builder, mask, kind, other, act)

        return KINDS[kind](base, offset, mask, other), generate

    return load


def atomic_storer(kind: str, ordering: str) -> Any:
    """`store(base, offset, mask, value)`, whole and ordered: `monotonic` or `release`."""

    @intrinsic
    def store(typingctx, base, offset, mask, value):
        def generate(context, builder, signature, args):
            base, offset, mask, value = args
            with builder.if_then(mask):
                whole = ir.IntType(_size(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                bits = _as_bits(builder, value, kind)
                builder.store_atomic(bits, place, ordering, _size(kind))
            return context.get_dummy_value()

        return types.void(base, offset, mask, value), generate

    return store


def half_storer(scope: int = -1, total: int = 0) -> Any:
    """`store(base, offset, mask, amount, half)`: four bits of a byte, moved up by `amount`."""

    @intrinsic
    def store(typingctx, base, offset, mask, amount, half):
        def generate(context, builder, signature, args):
            base, offset, mask, amount, half = args
            with builder.if_then(mask):
                place = builder.gep(base, [offset])
                old = builder.load(place, align=1)
                _mark(builder, old, scope, total)
                cleared = builder.and_(
                    old, builder.not_(builder.shl(ir.Constant(_BYTE, 15), amount))
                )
                new = builder.or_(cleared, builder.shl(half, amount))
                _mark(builder, builder.store(new, place, align=1), scope, total)
            return context.get_dummy_value()

        return types.void(base, offset, mask, amount, half), generate

    return store


def atomic_half_storer(ordering: str) -> Any:
    """`store(base, offset, mask, amount, half)`: as `half_storer`, in one step for others."""

    @intrinsic
    def store(typingctx, base, offset, mask, amount, half):
        def generate(context, builder, signature, args):
            base, offset, mask, amount, half = args
            with builder.if_then(mask):
                place = builder.gep(base, [offset])
                kept = builder.not_(builder.shl(ir.Constant(_BYTE, 15), amount))
                first = builder.load_atomic(place, "monotonic", 1)
                before = builder.block
                again, done = (builder.append_basic_block(n) for n in ("again", "done"))
                builder.branch(again)
                builder.position_at_end(again)
                old = builder.phi(_BYTE)
                old.add_incoming(first, before)
                new = builder.or_(builder.and_(old, kept), builder.shl(half, amount))
                seen, hit = _exchange(builder, place, old, new, ordering)
                old.add_incoming(seen, builder.block)
                builder.cbranch(hit, done, again)
                builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(base, offset, mask, amount, half), generate

    return store


def _of_bits(builder: Any, bits: Any, kind: str) -> Any:
    if kind[0] == "f":
        return builder.bitcast(bits, _LLVM[kind])
    return _from_memory(builder, bits, kind)


def _as_bits(builder: Any, value: Any, kind: str) -> Any:
    if kind[0] == "f":
        return builder.bitcast(value, ir.IntType(_size(kind) * 8))
    return _to_memory(builder, value, kind)


def _if(builder: Any, mask: Any, kind: str, otherwise: Any, act: Callable[[], Any]) -> Any:
    start = builder.block
    with builder.if_then(mask):
        found = act()
        there = builder.block
    merged = builder.phi(_LLVM[kind])
    merged.add_incoming(otherwise, start)
    merged.add_incoming(found, there)
    return merged


def atomic_updater(mode: str, kind: str, ordering: str) -> Any:
    """`update(base, offset, mask, value)`: read, combine and write at once; the old value."""

    @intrinsic
    def update(typingctx, base, offset, mask, value):
        def generate(context, builder, signature, args):
            base, offset, mask, value = args

            def act() -> Any:
                if mode == "addf":
                    return _add_floats(builder, base, offset, value, kind, ordering)
                whole = ir.IntType(_size(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                bits = _as_bits(builder, value, kind)
                return _of_bits(builder, builder.atomic_rmw(mode, place, bits, ordering), kind)

            return _if(builder, mask, kind, value, act)

        return KINDS[kind](base, offset, mask, value), generate

    return update


def _exchange(builder: Any, place: Any, old: Any, new: Any, ordering: str) -> tuple[Any, Any]:
    failure = {"acq_rel": "acquire", "release": "monotonic"}.get(ordering, ordering)
    pair = builder.cmpxchg(place, old, new, ordering, failure)
    return builder.extract_value(pair, 0), builder.extract_value(pair, 1)


def _add_floats(b: Any, base: Any, offset: Any, value: Any, kind: str, ordering: str) -> Any:
    """A sum in a loop of compare and swap; `kind` may be f16 or bf16, of values in f32."""
    whole = ir.IntType(_size(kind) * 8)
    place = b.bitcast(b.gep(base, [offset]), whole.as_pointer())
    first = b.load_atomic(place, "monotonic", _size(kind))
    before = b.block
    again, done = b.append_basic_block("again"), b.append_basic_block("done")
    b.branch(again)
    b.position_at_end(again)
    old = b.phi(whole)
    old.add_incoming(first, before)
    total = b.fadd(b.bitcast(old, _LLVM[kind]), value)
    # In memory every NaN that a sum gives is the canonical one.
    nan = b.fcmp_unordered("uno", total, total)
    total = b.select(nan, ir.Constant(_LLVM[kind], float("nan")), total)
    seen, hit = _exchange(b, place, old, b.bitcast(total, whole), ordering)
    old.add_incoming(seen, b.block)
    b.cbranch(hit, done, again)
    b.position_at_end(done)
    return b.bitcast(old, _LLVM[kind])


def atomic_swapper(kind: str, ordering: str) -> Any:
    """`swap(base, offset, mask, expected, new)`: by bits; the old value, or `expected`."""

    @intrinsic
    def swap(typingctx, base, offset, mask, expected, new):
        def generate(context, builder, signature, args):
            base, offset, mask, expected, new = args

            def act() -> Any:
                whole = ir.IntType(_size(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                old = _as_bits(builder, expected, kind)
                seen, _ = _exchange(builder, place, old, _as_bits(builder, new, kind), ordering)
                return _of_bits(builder, seen, kind)

            return _if(builder, mask, kind, expected, act)

        return KINDS[kind](base, offset, mask, expected, new), generate

    return swap


def compare_and_swap16(ordering: str) -> Any:
    """`swap(base, offset, old, new)` of 16 bits; what was seen."""

    @intrinsic
    def swap(typingctx, base, offset, old, new):
        def generate(context, builder, signature, args):
            base, offset, old, new = args
            place = builder.bitcast(builder.gep(base, [offset]), ir.IntType(16).as_pointer())
            return _exchange(builder, place, old, new, ordering)[0]

        return types.int16(base, offset, old, new), generate

    return swap


@intrinsic
def take(typingctx, params, slot, count):
    """Advance a slot of the parameters by `count` for all threads; what it was."""

    def generate(context, builder, signature, args):
        place = builder.bitcast(
            builder.gep(args[0], [builder.mul(args[1], ir.Constant(_LLVM["i64"], 8))]),
            _LLVM["i64"].as_pointer(),
        )
        return builder.atomic_rmw("add", place, args[2], "monotonic")

    return types.int64(params, types.int64, types.int64), generate


@intrinsic
def put_first(typingctx, params, slot, value):
    """Set a slot of the parameters that is still 0."""

    def generate(context, builder, signature, args):
        place = builder.bitcast(
            builder.gep(args[0], [builder.mul(args[1], ir.Constant(_LLVM["i64"], 8))]),
            _LLVM["i64"].as_pointer(),
        )
        zero = ir.Constant(_LLVM["i64"], 0)
        builder.cmpxchg(place, zero, args[2], "monotonic", "monotonic")
        return context.get_dummy_value()

    return types.void(params, types.int64, types.int64), generate


@intrinsic
def yield_thread(typingctx, function):
    """Call `sched_yield`, whose address is given."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def say(typingctx, function, number, block, scratch):
    """Tell the host, at an address, to print operation `number` of a block."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_LLVM["i64"]] * 3)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


def gemm(kind: str) -> Any:
    """`gemm(function, ta, tb, m, n, k, a, lda, b, ldb, c, ldc)`: c += a @ b, rows contiguous.

    function: the address of BLAS's sgemm or dgemm, which reads columns first: operands are
    exchanged. ta, tb: whether an operand is given with its columns contiguous. a, b, c: addresses.
    """
    number = _LLVM[kind]

    @intrinsic
    def call(typingctx, function, ta, tb, m, n, k, a, lda, b, ldb, c, ldc):
        def generate(context, builder, signature, args):
            function, ta, tb, m, n, k, a, lda, b, ldb, c, ldc = args

            def by_reference(value: Any) -> Any:
                slot = cgutils.alloca_once(builder, value.type)
                builder.store(value, slot)
                return builder.bitcast(slot, _BYTE.as_pointer())

            def size(value: Any) -> Any:
                return by_reference(builder.trunc(value, ir.IntType(32)))

            def letter(flag: Any) -> Any:
                t, n = (ir.Constant(_BYTE, ord(x)) for x in "TN")
                return by_reference(builder.select(flag, t, n))

            def place(value: Any) -> Any:
                return builder.inttoptr(value, _BYTE.as_pointer())

            one = by_reference(ir.Constant(number, 1.0))
            passed = [letter(tb), letter(ta), size(n), size(m), size(k), one]
            passed += [place(b), size(ldb), place(a), size(lda), one, place(c), size(ldc)]
            kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer()] * len(passed))
            builder.call(builder.inttoptr(function, kind.as_pointer()), passed)
            return context.get_dummy_value()

        flags, sizes = [types.boolean] * 2, [types.int64] * 9
        return types.void(types.int64, *flags, *sizes), generate

    return call


sgemm, dgemm = gemm("f32"), gemm("f64")


@intrinsic
def get(typingctx, params, slot):
    """A slot of the parameters; they do not change while a launch runs."""

    def generate(context, builder, signature, args):
        place = builder.bitcast(
            builder.gep(args[0], [builder.mul(args[1], ir.Constant(_LLVM["i64"], 8))]),
            _LLVM["i64"].as_pointer(),
        )
        return builder.load(place)

    return types.int64(params, types.int64), generate


@intrinsic
def stopped(typingctx, params):
    """Whether a fault, or the host, has stopped the launch."""

    def generate(context, builder, signature, args):
        place = builder.bitcast(
            builder.gep(args[0], [ir.Constant(_LLVM["i64"], 6 * 8)]), _LLVM["i64"].as_pointer()
        )
        value = builder.load_atomic(place, "monotonic", 8)
        return builder.icmp_signed("!=", value, ir.Constant(_LLVM["i64"], 0))

    return types.boolean(params), generate


# Memory past the caches


def vector_placer(size_bytes: int) -> Any:
    """`place(number)`: the thread's place for a vector, which LLVM keeps in a register.

    number: tells places apart.
    """

    @intrinsic
    def place(typingctx, number):
        def generate(context, builder, signature, args):
            made = cgutils.alloca_once(builder, ir.ArrayType(_BYTE, size_bytes))
            made.align = size_bytes
            return builder.bitcast(made, _BYTE.as_pointer())

        return BASE(number), generate

    return place


def streamer(size_bytes: int) -> Any:
    """`stream(base, offset, source)`: a vector past the caches, to a multiple of its size."""
    vector = ir.VectorType(_LLVM["i64"], size_bytes // 8)

    @intrinsic
    def stream(typingctx, base, offset, source):
        def generate(context, builder, signature, args):
            base, offset, source = args
            from_place = builder.bitcast(source, vector.as_pointer())
            value = builder.load(from_place, align=size_bytes)
            to_place = builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())
            made = builder.store(value, to_place, align=size_bytes)
            one = ir.Constant(ir.IntType(32), 1)
            made.set_metadata("nontemporal", builder.module.add_metadata([one]))
            return context.get_dummy_value()

        return types.void(base, types.int64, source), generate

    return stream


@njit(forceinline=True)
def lanes(count):
    """The positions in a vector."""
    return range(count)


@intrinsic
def fence(typingctx):
    """Order what went past the caches before what follows.

    On x86 this is a locked instruction, which empties the buffers that combine writes.
    Source: Intel SDM, volume 3, "Buffering of write combining memory locations".
    """

    def generate(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
