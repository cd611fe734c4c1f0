"""Elementary functions lie within the accuracy class of their record, by mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from reftile.interp.pure import evaluate
from reftile.interp.values import Array, Tile
from reftile.ir.dtypes import DTYPES, F64, DType
from reftile.ir.enums import ACCURACY
from reftile.ir.numbers import convert
from reftile.ir.records import load
from tests.interp.pure_cases import kernel_of

mp: Any = mpmath.mp
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "divf": lambda x, y: x / y,
    "rcp": lambda x: 1 / x,
    "sqrt": mp.sqrt,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "exp": mp.exp,
    "exp2": lambda x: mp.power(2, x),
    "expm1": mp.expm1,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log1p": lambda x: mp.log(1 + x),
    "pow": mp.power,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "atan2": mp.atan2,
    "erf": mp.erf,
}
POSITIVE = {"sqrt", "rsqrt", "log", "log2", "pow"}
INTERPRETER_ROUNDS_ONCE = 0.501
"""Units: what is left of an f64 error in a narrower type, besides the half that rounding takes."""


def ulp(value: Any, dtype: DType) -> Any:
    """The unit in the last place at an exact value; see spec/accuracy.md."""
    least = math.frexp(dtype.min_normal)[1] - 1
    greatest = math.frexp(dtype.max_finite)[1] - 1
    exponent = least if value == 0 else int(mp.floor(mp.log(abs(value), 2)))
    return mp.ldexp(1, min(max(exponent, least), greatest) - dtype.mantissa_bits)


def arguments(name: str, dtype: DType, rng: np.random.Generator) -> list[Array]:
    """Numbers of moderate size, very small ones, and for angles very large ones."""
    count = 90
    sizes = rng.choice([1.0, 30.0, 1e-3, min(1e-30, dtype.max_finite), 1e8], count)
    wide = rng.normal(size=(2, count)) * sizes
    if name in ("sinh", "cosh", "exp", "exp2", "expm1"):
        wide = np.clip(wide, -300, 300)
    if name in POSITIVE:
        wide[0] = np.abs(wide[0])
    if name == "log1p":
        wide = np.maximum(wide, -0.99)
    if name == "pow":
        wide[1] = np.clip(wide[1], -20, 20)
    return [convert(row, F64, dtype) for row in wide]


@pytest.mark.parametrize("dtype_name", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_stay_below_the_limit_of_the_class(name: str, dtype_name: str) -> None:
    dtype, definition = DTYPES[dtype_name], load().ops[name].definition
    rng = np.random.default_rng(len(name))
    operands = arguments(name, dtype, rng)[: len(definition.operands)]
    type = f"tile<{operands[0].size}x{dtype_name}>"
    lines = [f"%{i} = constant {{value = 0}} : {type}" for i in range(len(operands))]
    uses = ", ".join(f"%{i}" for i in range(len(operands)))
    op = kernel_of("\n".join([*lines, f"%r = {name} {uses} : {type}"])).body.block.ops[-2]
    (result,) = evaluate(op, [Tile(o) for o in operands])
    worst = 0.0
    with mp.workprec(1200 if name in ("sin", "cos", "tan") else 250):
        for row in zip(*operands, result.data, strict=True):
            *values, found = (float(v) for v in row)
            if not all(map(math.isfinite, values)) or 0.0 in values:
                continue
            exact = FUNCTIONS[name](*(mp.mpf(v) for v in values))
            if abs(exact) >= mp.mpf(dtype.max_finite) + ulp(dtype.max_finite, dtype) / 2:
                assert math.isinf(found)
                continue
            assert math.isfinite(found), values
            worst = max(worst, float(abs(mp.mpf(found) - exact) / ulp(exact, dtype)))
    limit = ACCURACY[definition.accuracy]["limits"][dtype_name]
    assert worst <= limit
    if dtype is not F64:
        assert worst <= INTERPRETER_ROUNDS_ONCE
