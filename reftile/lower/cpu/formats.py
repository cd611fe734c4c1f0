"""How element types lie in memory, and the text that reads and writes them."""

from __future__ import annotations

from reftile.ir.dtypes import DType
from reftile.ir.types import Element, PointerType
from reftile.lower.cpu.tiles import kind_of

MODES = {
    "nearest_even": "NEAREST",
    "zero": "ZERO",
    "negative_inf": "DOWN",
    "positive_inf": "UP",
    "nearest_away": "AWAY",
}
_NANS = {
    "ieee": "IEEE",
    "all_ones": "ALL_ONES",
    "negative_zero": "NEGATIVE_ZERO",
    "none": "NO_NAN",
}


def memory_kind(element: Element) -> str:
    """The kind in which elements are read and written; nibbles share a byte."""
    if isinstance(element, PointerType) or element.is_int or element.name in ("f32", "f64"):
        return kind_of(element)
    return "f32" if element.name == "tf32" else f"i{element.storage.itemsize * 8}"


def decoded(text: str, element: Element) -> str:
    """The carrier of what was read from memory."""
    if isinstance(element, PointerType) or element.is_int or element.name in ("f32", "f64"):
        return text
    match element.name:
        case "f16":
            return f"float_of_f16_bits({text})"
        case "bf16":
            return f"float_of_bf16_bits({text})"
        case "tf32":
            return f"float_of_tf32({text})"
        case "f8e8m0":
            return f"float_of_scale_code({text})"
        case _:
            d = element
            fields = f"{d.exponent_bits}, {d.mantissa_bits}, {d.bias}, {d.max_finite_code}"
            return f"float_of_code({text}, {fields}, {d.has_infinity}, {d.has_negative_zero})"


def encoded(text: str, element: Element) -> str:
    """What is written to memory for a carrier."""
    if isinstance(element, PointerType) or element.is_int or element.name in ("f32", "f64", "tf32"):
        return text
    match element.name:
        case "f16":
            return f"f16_bits({text})"
        case "bf16":
            return f"bf16_bits({text})"
        case _:
            number = code(f"widen({text})", element, "nearest_even", False)
            if element.nan not in ("ieee", "all_ones") or not element.signed:
                return f"i8_of_signed({number})"
            fields = f"{element.exponent_bits}, {element.mantissa_bits}, {element.has_infinity}"
            return f"f8_bits({text}, {number}, {fields})"


def code(wide: str, target: DType, rounding: str, saturate: bool) -> str:
    """The code of an f64 in a narrower format, as i64."""
    mode = MODES[rounding]
    if not target.has_zero:
        return f"scale_code_of({wide}, {mode}, {saturate})"
    numbers = f"{target.exponent_bits}, {target.mantissa_bits}, {target.bias}"
    special = f"{target.max_finite_code}, {target.has_infinity}, {_NANS[target.nan]}"
    return f"code_of({wide}, {numbers}, {special}, {target.has_negative_zero}, {mode}, {saturate})"


def value_of_code(text: str, target: DType) -> str:
    """The carrier of a code that `code` gave."""
    match target.name:
        case "f32":
            return f"float32_of_code({text})"
        case "tf32":
            return f"float32_of_code(shl({text}, i64(13)))"
        case "f16":
            return f"float_of_f16_bits(i16_of_signed({text}))"
        case "bf16":
            return f"float_of_bf16_bits(i16_of_signed({text}))"
        case _:
            return decoded(f"i8_of_signed({text})", target)


def rounded(
    wide: str, target: DType, rounding: str = "nearest_even", saturate: bool = False
) -> str:
    """An f64 rounded once into a format, in its carrier."""
    if target.name == "f32" and rounding == "nearest_even" and not saturate:
        return f"narrow({wide})"
    return value_of_code(code(wide, target, rounding, saturate), target)


def rounded_single(single: str, target: DType) -> str:
    """An f32 rounded to even into a narrower format, in its carrier."""
    match target.name:
        case "f32":
            return single
        case "f16" | "bf16" | "tf32":
            return f"round_{target.name}({single})"
        case _:
            return rounded(f"widen({single})", target)
