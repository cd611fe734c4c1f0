"""Why an elementwise operation has no instructions: the nearest form of it that has some."""

from __future__ import annotations

from reftile.ir.attributes import Attribute
from reftile.ir.core import Op
from reftile.ir.diagnostics import ReftileError, fail
from reftile.ir.targets import TARGETS
from reftile.lower.functions.library import BY_WAY_OF_F32
from reftile.lower.ptx.table import elements_of, instruction_of_form


def refusal(op: Op, pair: bool, target: str) -> ReftileError:
    """The error for an operation without a row: other targets or roundings that have one."""
    elements = [str(e) for e in elements_of(op) if e is not None]
    is_conversion = len(elements) == 2 and elements[0] != elements[1]
    types = " to ".join(elements) if is_conversion else " and ".join(dict.fromkeys(elements))
    form = f"`{op.name}` {'from' if is_conversion else 'on'} {types}"
    for rounding in _roundings(op):
        attributes = op.attributes if rounding is None else {**op.attributes, "rounding": rounding}
        able = [t for t in TARGETS if _takes(op, attributes, pair, t)]
        if not able:
            continue
        hints: list[str] = []
        if rounding is not None:
            form += f" that rounds to {op.attributes['rounding']}"
            hints.append(f"say rounding = {rounding}")
        if target not in able:
            hints.append(f"make the kernel for {_listed(able)}")
        message = f"{form} has no instruction on {target}"
        return fail("lower.ptx", message, op.span, ", and ".join(hints))
    hint = "compute in f32" if op.name in BY_WAY_OF_F32 else ""
    return fail("lower.ptx", f"{form} cannot be printed as PTX yet", op.span, hint)


def _roundings(op: Op) -> list[str | None]:
    """What the operation says, as None, and then what else it may say."""
    return [None, *(op.definition.where.get("rounding", ()) if "rounding" in op.attributes else ())]


def _takes(op: Op, attributes: dict[str, Attribute], pair: bool, target: str) -> bool:
    if not TARGETS[target].capability:
        return False
    form = tuple(attributes.items())
    return instruction_of_form(type(op), elements_of(op), form, pair, target) is not None


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
