"""Integers of any width, as Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.floats import relation
from reftile.conformance.oracle.formats import WIDTHS, Codes, codes


def signed(value: int, width: int) -> int:
    """A code read as a signed number."""
    return value - (1 << width) if value >> (width - 1) else value


def read(bits: Codes, dtype: str, signedness: str) -> list[int]:
    """Codes as integers."""
    width = WIDTHS[dtype]
    values = [int(v) for v in bits.reshape(-1)]
    return [signed(v, width) for v in values] if signedness == "signed" else values


def wrap(values: list[int], dtype: str) -> Codes:
    """Integers modulo 2**width, as codes."""
    mask = (1 << WIDTHS[dtype]) - 1
    return codes([v & mask for v in values])


def fits(value: int, width: int, signedness: str) -> bool:
    """Whether an integer is one of the type."""
    if signedness == "signed":
        return -(1 << (width - 1)) <= value < 1 << (width - 1)
    return 0 <= value < 1 << width


FLAGS = {"none": (), "nsw": ("signed",), "nuw": ("unsigned",), "nw": ("signed", "unsigned")}


def promised(call: Call, exact: Callable[..., int]) -> np.ndarray:
    """Where a promise of `overflow` is broken:

    the exact result in a promised reading does not fit.
    """
    dtype = call.dtypes[0]
    broken = np.zeros(call.operands[0].size, bool)
    for signedness in FLAGS[call.attribute("overflow", "none")]:
        columns = [read(x, dtype, signedness) for x in call.operands]
        good = [fits(exact(*row), WIDTHS[dtype], signedness) for row in zip(*columns, strict=True)]
        broken |= ~np.array(good, bool)
    return broken


def arithmetic(exact: Callable[..., int]) -> Callable[[Call], Answer]:
    """Wrapping operations with promises."""

    def oracle(call: Call) -> Answer:
        columns = [read(x, call.dtypes[0], "signed") for x in call.operands]
        bits = wrap([exact(*row) for row in zip(*columns, strict=True)], call.results[0])
        return Answer.exactly(call.results[0], bits, promised(call, exact))

    return oracle


def by_element(fn: Callable[[int, int, int], int]) -> Callable[[Call], Answer]:
    """Operations on (x, y, width), read as the operation says."""

    def oracle(call: Call) -> Answer:
        dtype, signedness = call.dtypes[0], call.attribute("signedness", "unsigned")
        x, y = (read(v, dtype, signedness) for v in call.operands)
        values = [fn(a, b, WIDTHS[dtype]) for a, b in zip(x, y, strict=True)]
        return Answer.exactly(call.results[0], wrap(values, call.results[0]))

    return oracle


def absolute(call: Call) -> Answer:
    """absi."""
    values = [abs(v) for v in read(call.operands[0], call.dtypes[0], "signed")]
    return Answer.exactly(call.results[0], wrap(values, call.results[0]))


def quotient(a: int, b: int, rounding: str) -> int:
    """a / b as an integer, b not zero."""
    if rounding == "negative_inf":
        return a // b
    if rounding == "positive_inf":
        return -(-a // b)
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def division(call: Call) -> Answer:
    """divi, remi."""
    dtype, signedness = call.dtypes[0], call.attribute("signedness", "signed")
    width = WIDTHS[dtype]
    values: list[int] = []
    bad: list[bool] = []
    x, y = (read(v, dtype, signedness) for v in call.operands)
    for a, b in zip(x, y, strict=True):
        if b == 0 or not fits(quotient(a, b, "zero"), width, signedness):
            values.append(0)
            bad.append(True)
            continue
        q = quotient(a, b, call.attribute("rounding", "zero"))
        values.append(q if call.op == "divi" else a - b * quotient(a, b, "zero"))
        bad.append(False)
    return Answer.exactly(dtype, wrap(values, dtype), np.array(bad, bool))


def compare(call: Call) -> Answer:
    """cmpi."""
    dtype, signedness = call.dtypes[0], call.attribute("signedness", "signed")
    x, y = (np.array(read(v, dtype, signedness), object) for v in call.operands)
    result = relation(x, y, call.attribute("predicate", ""))
    return Answer.exactly("i1", result.astype(bool).astype(np.uint64))


def shift(call: Call) -> Answer:
    """shli, shri."""
    dtype = call.dtypes[0]
    width = WIDTHS[dtype]
    amounts = read(call.operands[1], dtype, "unsigned")
    bad = np.array([a >= width for a in amounts], bool)
    if call.op == "shri":
        x = read(call.operands[0], dtype, call.attribute("signedness", "signed"))
        bits = wrap([a >> min(b, width) for a, b in zip(x, amounts, strict=True)], dtype)
        return Answer.exactly(dtype, bits, bad)
    flags = FLAGS[call.attribute("overflow", "none")]
    values: list[int] = []
    for i, by in enumerate(amounts):
        code = int(call.operands[0][i])
        values.append(0 if bad[i] else code << by)
        for signedness in () if bad[i] else flags:
            value = signed(code, width) if signedness == "signed" else code
            bad[i] |= not fits(value << by, width, signedness)
    return Answer.exactly(dtype, wrap(values, dtype), bad)


INTEGER_ORACLES: dict[str, Callable[[Call], Answer]] = {
    "addi": arithmetic(lambda a, b: a + b),
    "subi": arithmetic(lambda a, b: a - b),
    "muli": arithmetic(lambda a, b: a * b),
    "negi": arithmetic(lambda a: -a),
    "mulhii": by_element(lambda a, b, width: (a * b) >> width),
    "absi": absolute,
    "divi": division,
    "remi": division,
    "maxi": by_element(lambda a, b, _: max(a, b)),
    "mini": by_element(lambda a, b, _: min(a, b)),
    "cmpi": compare,
    "andi": by_element(lambda a, b, _: a & b),
    "ori": by_element(lambda a, b, _: a | b),
    "xori": by_element(lambda a, b, _: a ^ b),
    "shli": shift,
    "shri": shift,
}
