"""Integer, bit, comparison and conversion instructions against plain NumPy and Python."""

import numpy as np
import pytest

from tests.ptx_machine import UnsupportedInstruction, run
from tests.ptx_machine.harness import compute, kernel

RANDOM = np.random.default_rng(1)
EDGES = [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFF, 0x8000]
ONES = np.uint32(0xFFFFFFFF)


def words() -> np.ndarray:
    x = RANDOM.integers(0, 2**32, 32, dtype=np.uint32)
    x[: len(EDGES)] = RANDOM.permutation(np.array(EDGES, np.uint32))
    return x


def longs() -> np.ndarray:
    return RANDOM.integers(0, 2**64, 32, dtype=np.uint64)


def ints(values) -> np.ndarray:
    return np.array([v % 2**32 for v in values], np.uint32)


def check(cases: list[tuple[str, np.ndarray]], **inputs: np.ndarray) -> None:
    """Run statements that write {o} and compare each with its expected array."""
    expected = {f"out{i}": e for i, (_, e) in enumerate(cases)}
    kinds = {n: bool if e.dtype == bool else e.dtype.type for n, e in expected.items()}
    body = "\n".join(s.format(o=f"out{i}") for i, (s, _) in enumerate(cases))
    got = compute(body, inputs, kinds)
    for i, (statement, value) in enumerate(cases):
        np.testing.assert_array_equal(got[f"out{i}"], value, err_msg=statement)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_32_bit_arithmetic():
    a, b, c = words(), words(), words()
    sa, sb = a.view(np.int32), b.view(np.int32)
    signed = sa.astype(np.int64) * sb
    unsigned = a.astype(np.uint64) * b
    total = sa.astype(np.int64) + sb
    cases = [
        ("add.u32 {o}, a, b;", a + b),
        ("sub.s32 {o}, a, b;", a - b),
        ("mul.lo.u32 {o}, a, b;", a * b),
        ("mul.hi.u32 {o}, a, b;", (unsigned >> np.uint64(32)).astype(np.uint32)),
        ("mul.hi.s32 {o}, a, b;", (signed >> 32).astype(np.int32)),
        ("mul.wide.s32 {o}, a, b;", signed),
        ("mad.lo.u32 {o}, a, b, c;", a * b + c),
        ("mad.wide.u32 {o}, a, b, 7;", unsigned + np.uint64(7)),
        ("add.sat.s32 {o}, a, b;", np.clip(total, -(2**31), 2**31 - 1).astype(np.int32)),
        ("min.s32 {o}, a, b;", np.minimum(sa, sb)),
        ("max.u32 {o}, a, b;", np.maximum(a, b)),
        ("abs.s32 {o}, a;", np.abs(sa)),
        ("neg.s32 {o}, a;", -sa),
        ("sad.u32 {o}, a, b, c;", np.where(a > b, a - b, b - a) + c),
        ("mul24.lo.u32 {o}, a, b;", (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ]
    check(cases, a=a, b=b, c=c)


def test_division_truncates_toward_zero():
    a, b = words(), words() | np.uint32(1)
    sa, sb = a.view(np.int32), b.view(np.int32)
    sb = np.where(sb == -1, 3, sb).astype(np.int32)
    pairs = zip(sa.tolist(), sb.tolist(), strict=True)
    quotient = np.array([abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) for x, y in pairs])
    cases = [
        ("div.u32 {o}, a, b;", a // b),
        ("rem.u32 {o}, a, b;", a % b),
        ("div.s32 {o}, a, s;", quotient.astype(np.int32)),
        ("rem.s32 {o}, a, s;", (sa - quotient * sb).astype(np.int32)),
    ]
    check(cases, a=a, b=b, s=sb)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_64_bit_and_carry_chains():
    x, y = longs(), longs()
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    high = np.array([p * q >> 64 for p, q in pairs], np.uint64)
    split = "mov.b64 {{r2, r3}}, x; mov.b64 {{r4, r5}}, y;"
    join = "mov.b64 {o}, {{r6, r7}};"
    cases = [
        ("mul.lo.u64 {o}, x, y;", x * y),
        ("mul.hi.u64 {o}, x, y;", high),
        (split + "add.cc.u32 r6, r2, r4; addc.u32 r7, r3, r5;" + join, x + y),
        (split + "sub.cc.u32 r6, r2, r4; subc.u32 r7, r3, r5;" + join, x - y),
        ("shl.b64 {o}, x, 40;", x << np.uint64(40)),
        ("shr.s64 {o}, x, 70;", x.view(np.int64) >> 63),
        ("popc.b64 r2, x; cvt.u64.u32 {o}, r2;", np.bitwise_count(x).astype(np.uint64)),
    ]
    check(cases, x=x, y=y)


def test_shifts_clamp_their_amount():
    a, b, c = words(), words(), words()
    s = c & np.uint32(63)
    rows = list(zip(*(v.tolist() for v in (a, b, c, s)), strict=True))
    signed = [x - (x >> 31 << 32) for x in a.tolist()]
    left = ints((y << 32 | x) << (z & 31) >> 32 for x, y, z, _ in rows)
    cases = [
        ("shl.b32 {o}, a, s;", ints(x << n if n < 32 else 0 for x, _, _, n in rows)),
        ("shr.u32 {o}, a, s;", ints(x >> n for x, _, _, n in rows)),
        ("shr.s32 {o}, a, s;", ints(x >> n for x, n in zip(signed, s.tolist(), strict=True))),
        ("shf.l.wrap.b32 {o}, a, b, c;", left),
        ("shf.r.clamp.b32 {o}, a, b, c;", ints((y << 32 | x) >> min(z, 32) for x, y, z, _ in rows)),
    ]
    check(cases, a=a, b=b, c=c, s=s)


def test_bit_operations():
    a, b, c = words(), words(), words()
    binary = [f"{x:032b}" for x in a.tolist()]
    field = np.uint32(0x3FF80)
    inserted = (b & ~field) | ((a << np.uint32(7)) & field)
    signs = ints((0xFF if x >> 31 else 0) | (x & 255) * 0x01010100 for x in a.tolist())
    cases = [
        ("and.b32 {o}, a, b;", a & b),
        ("xor.b32 {o}, a, b;", a ^ b),
        ("not.b32 {o}, a;", ~a),
        ("cnot.b32 {o}, a;", (a == 0).astype(np.uint32)),
        ("lop3.b32 {o}, a, b, c, 0xE8;", (a & b) | (a & c) | (b & c)),
        ("popc.b32 {o}, a;", ints(x.count("1") for x in binary)),
        ("clz.b32 {o}, a;", ints(32 - len(x.lstrip("0")) for x in binary)),
        ("brev.b32 {o}, a;", ints(int(x[::-1], 2) for x in binary)),
        ("bfind.u32 {o}, a;", ints(x.bit_length() - 1 if x else -1 for x in a.tolist())),
        ("bfe.u32 {o}, a, 5, 9;", (a >> np.uint32(5)) & np.uint32(511)),
        ("bfe.s32 {o}, a, 28, 9;", a.view(np.int32) >> 28),
        ("bfi.b32 {o}, a, b, 7, 11;", inserted),
        ("prmt.b32 {o}, a, b, 0x7610;", (a & np.uint32(0xFFFF)) | (b & np.uint32(0xFFFF0000))),
        ("prmt.b32 {o}, a, b, 0x000B;", signs),
        ("bmsk.clamp.b32 {o}, 4, 6;", np.full(32, 0x3F0, np.uint32)),
    ]
    check(cases, a=a, b=b, c=c)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_packed_and_dot_products():
    a, b, c = words(), words(), words()
    x, y = (v.view(np.int16).reshape(32, 2) for v in (a, b))
    bytes_a, bytes_b = (v.view(np.int8).reshape(32, 4).astype(np.int64) for v in (a, b))

    def pair(value: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(value.astype(np.int16)).view(np.uint32).reshape(32)

    cases = [
        ("dp4a.s32.s32 {o}, a, b, c;", ((bytes_a * bytes_b).sum(1) + c).astype(np.uint32)),
        ("min.s16x2 {o}, a, b;", pair(np.minimum(x, y))),
        ("max.s16x2.relu {o}, a, b;", pair(np.maximum(np.maximum(x, y), 0))),
        ("add.u16x2 {o}, a, b;", pair(x + y)),
    ]
    check(cases, a=a, b=b, c=c)


def test_comparison_and_selection():
    a, b = words(), words()
    b[:8] = a[:8]
    sa, sb = a.view(np.int32), b.view(np.int32)
    cases = [
        ("setp.lt.s32 {o}, a, b;", sa < sb),
        ("setp.hs.u32 {o}, a, b;", a >= b),
        ("setp.eq.or.u32 p1|{o}, a, b, !out0;", (a != b) | (sa >= sb)),
        ("selp.b32 {o}, a, b, out0;", np.where(sa < sb, a, b)),
        ("slct.s32.s32 {o}, a, b, b;", np.where(sb >= 0, a, b)),
        ("set.gt.u32.s32 {o}, a, b;", np.where(sa > sb, ONES, np.uint32(0))),
    ]
    check(cases, a=a, b=b)


def test_integer_conversions_extend_truncate_and_saturate():
    a = words()
    sa = a.view(np.int32)
    cases = [
        ("cvt.u8.u32 r2, a; cvt.u32.u8 {o}, r2;", a & np.uint32(255)),
        ("cvt.s32.s8 {o}, a;", a.astype(np.uint8).view(np.int8).astype(np.int32)),
        ("cvt.sat.s16.s32 h1, a; cvt.s32.s16 {o}, h1;", np.clip(sa, -32768, 32767)),
        ("cvt.s64.s32 {o}, a;", sa.astype(np.int64)),
        ("cvt.u64.u32 {o}, a;", a.astype(np.uint64)),
        ("cvt.sat.u32.s32 {o}, a;", np.maximum(sa, 0).astype(np.uint32)),
    ]
    check(cases, a=a)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("frobnicate.u32 r1, r2;", "unknown instruction"),
        ("add.fancy.u32 r1, r2, r3;", r"modifier \.fancy"),
        ("add.u32 r1, d1, r2;", r"register d1 is \.b64"),
        ("add.u32 r1, r2;", "2 operands"),
        ("call foo;", "unknown instruction"),
    ],
)
def test_what_is_not_modelled_is_an_error(line, match):
    with pytest.raises(UnsupportedInstruction, match=match):
        run(kernel("", line), "k", 1, 32)
