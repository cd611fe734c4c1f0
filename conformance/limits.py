"""The accuracy classes of the specification as limits for each element.

Class `div` and its like say how many units a result may be off, by type and mode; expressions in
them are over the operands as f64. A backend that claims to be better is held to its claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.oracle.answer import Call, Limit
from reftile.conformance.oracle.formats import FORMATS, is_float, to_float64

from reftile.ir.enums import ACCURACY
from reftile.ir.expressions import compile_expression, evaluate

Floats = NDArray[np.float64]


def limit_for(
    accuracy: str, call: Call, names: tuple[str, ...], claim: float | None
) -> Limit | None:
    """The limit for a call of an operation of class `accuracy`; None where one answer is right.

    names: of the operands, as the class's expressions call them. claim: what the implementation
    says of itself.
    """
    table = ACCURACY[accuracy]
    if table["kind"] != "ulp":
        return None
    dtype = call.results[0]
    mode = str(call.attributes.get("rounding", ""))
    entry: Any = table["limits"][dtype]
    if mode in ("approx", "full"):
        entry = table.get(mode, {}).get(dtype, entry)
        if mode == "approx":
            claim = None
    shape = call.operands[0].shape
    if not isinstance(entry, Mapping):
        ulp = float(entry) if claim is None else min(float(entry), claim)
        return Limit.of(ulp, shape)
    values = _operand_values(call, names)
    limit = Limit(_evaluated(entry.get("ulp", 0), values, shape))
    if claim is not None:
        limit.ulp = np.minimum(limit.ulp, claim)
    if "absolute" in entry:
        limit.absolute = _evaluated(entry["absolute"], values, shape)
    if "relative" in entry:
        limit.relative = _evaluated(entry["relative"], values, shape)
    if "domain" in entry:
        inside = evaluate(compile_expression(str(entry["domain"])), values)
        limit.anything = ~np.broadcast_to(np.asarray(inside, bool), shape)
    return limit


def _operand_values(call: Call, names: tuple[str, ...]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, bits, dtype in zip(names, call.operands, call.dtypes, strict=True):
        if is_float(dtype):
            found = to_float64(bits, FORMATS[dtype])
            values[name] = np.where(np.isfinite(found), found, 0.0)
            values["divisor"] = np.where(np.isnan(found), 0.0, found)
    return values


def _evaluated(entry: object, values: dict[str, object], shape: tuple[int, ...]) -> Floats:
    if isinstance(entry, str):
        entry = evaluate(compile_expression(entry), values)
    return np.broadcast_to(np.asarray(entry, np.float64), shape)
