"""The text of a number of a type."""

from __future__ import annotations

import math

from reftile.ir.dtypes import DType
from reftile.ir.types import Element, PointerType
from reftile.lower.cpu.tiles import kind_of


def literal(value: object, element: Element) -> str:
    """A number as the generated source writes it, of the element's carrier."""
    kind = kind_of(element)
    if isinstance(element, PointerType):
        return f"i64({int(value)})"  # type: ignore[call-overload]
    if kind == "b1":
        return str(bool(value))
    if element.is_int:
        return _integer(int(value), element)  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return f"{kind}(nan)"
    if math.isinf(number):
        return f"{kind}({'-' if number < 0 else ''}inf)"
    return f"{kind}({number!r})"


def _integer(value: int, dtype: DType) -> str:
    bits = max(dtype.bits, 8)
    low = value & ((1 << bits) - 1)
    signed = low - (1 << bits) if low >> (bits - 1) else low
    # The least i64 has no literal of its own: its magnitude would be an integer of 65 bits.
    if signed == -(1 << 63):
        return "(i64(-9223372036854775807) - i64(1))"
    return f"i{bits}({signed})"
