# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for the functions it compiles.
"""Keys of an order, and a stable sort by them."""

from __future__ import annotations

import numpy as np
from numba import njit

from reftile.lower.cpu.functions import machine as m
from reftile.lower.cpu.functions import numbers as n
from reftile.lower.cpu.functions.numbers import called, inlined

_load, _store = m.loader("i64"), m.storer("i64")
_LEAST = np.int64(-9223372036854775807) - np.int64(1)


@inlined
def order_key64(x, nan_least):
    """An i64 that is ordered as f64 are: zeros are equal, NaN is last (or first)."""
    bits = m.bits64(x)
    key = m.choose(m.ilt(bits, np.int64(0)), m.subi(_LEAST, bits), bits)
    nan = _LEAST if nan_least else np.int64(0x7FFFFFFFFFFFFFFF)
    return m.choose(m.feq(x, x), key, nan)


@inlined
def order_key32(x, nan_least):
    """`order_key64` of an f32."""
    return order_key64(m.widen(x), nan_least)


@called
def sort_keys(keys, order, spare, count):
    """Write the positions of `count` keys in ascending order; equal ones stay as they were."""
    run = 16
    for start in range(0, count, run):
        for i in range(start, min(start + run, count)):
            key = _load(keys, i * 8)
            j = i
            while j > start and _load(keys, _load(order, (j - 1) * 8) * 8) > key:
                _store(order, j * 8, _load(order, (j - 1) * 8))
                j -= 1
            _store(order, j * 8, i)
    while run < count:
        for low in range(0, count, 2 * run):
            middle, high = min(low + run, count), min(low + 2 * run, count)
            a, c = low, middle
            for k in range(low, high):
                left = a < middle
                if left and c < high:
                    x, y = _load(order, a * 8), _load(order, c * 8)
                    left = _load(keys, x * 8) <= _load(keys, y * 8)
                if left:
                    _store(spare, k * 8, _load(order, a * 8))
                    a += 1
                else:
                    _store(spare, k * 8, _load(order, c * 8))
                    c += 1
        for k in range(count):
            _store(order, k * 8, _load(spare, k * 8))
        run *= 2


@inlined
def philox(c0, c1, c2, c3, k0, k1, rounds):
    """Four words of random bits."""
    for _ in range(rounds):
        p = m.muli(m.i64_of_unsigned(c0), np.int64(0xD2511F53))
        q = m.muli(m.i64_of_unsigned(c2), np.int64(0xCD9E8D57))
        high, low = m.i32_of_signed(m.lshr(p, np.int64(32))), m.i32_of_signed(p)
        high1, low1 = m.i32_of_signed(m.lshr(q, np.int64(32))), m.i32_of_signed(q)
        c0, c1, c2, c3 = m.xori(m.xori(high1, c1), k0), low1, m.xori(m.xori(high, c3), k1), low
        k0 = m.addi(k0, np.int32(-1640531527))
        k1 = m.addi(k1, np.int32(-1150833019))
    return c0, c1, c2, c3


_NARROW = {
    "f16": (n.float_of_f16_bits, n.f16_bits, m.round_f16),
    "bf16": (n.float_of_bf16_bits, n.bf16_bits, n.round_bf16),
}


def narrow_adder(name, ordering):
    """`add(base, offset, mask, value)` to an f16 or bf16 at once; the old value, in f32."""
    from_bits, to_bits, around = _NARROW[name]
    swap = m.compare_and_swap16(ordering)
    read = m.atomic_loader("i16", "monotonic")

    @njit(error_model="numpy")
    def add(base, offset, mask, value):
        if not mask:
            return value
        seen = read(base, offset, True, np.int16(0))
        while True:
            old = seen
            total = around(m.addf(from_bits(old), value))
            seen = swap(base, offset, old, to_bits(total))
            if seen == old:
                return from_bits(old)

    return add
