"""Which operations are functions of the library, and their bodies.

A target that has no instruction for a function prints the body once for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from reftile.ir import ops
from reftile.ir.attributes import Attribute
from reftile.ir.core import Block, Op
from reftile.ir.dtypes import F32, DType
from reftile.ir.types import TileType, scalar
from reftile.lower.functions import angle, exponential, logarithm, remainder
from reftile.lower.functions.scalar import Scalar

FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    "atan2": angle.atan2,
    "cos": angle.cos,
    "cosh": exponential.cosh,
    "erf": exponential.erf,
    "expm1": exponential.expm1,
    "fpowi": logarithm.integer_power,
    "log1p": logarithm.log1p,
    "pow": logarithm.power,
    "remf": remainder.remainder,
    "sin": angle.sin,
    "sinh": exponential.sinh,
    "tan": angle.tan,
}
"""Of one or two f32, or an f32 and an integer; each keeps to the accuracy class of its record."""
BY_WAY_OF_F32 = frozenset({*FUNCTIONS, "exp", "log", "log2", "tanh"})
"""Functions of which those of f16 and bf16 are rounded once more."""


def body_of(op: Op) -> Block | None:
    """One element of a function: arguments as the operands, ended by `yield`; None if it is none.

    The block is kept, and not to be changed.
    """
    if op.name not in BY_WAY_OF_F32:
        return None
    kinds = [v.type.element for v in op.operands if isinstance(v.type, TileType)]
    dtypes = tuple(kind for kind in kinds if isinstance(kind, DType))
    if dtypes[0].name not in ("f32", "f16", "bf16"):
        return None
    return _body(type(op), dtypes, tuple(op.attributes.items()))


@lru_cache(maxsize=128)
def _body(
    cls: type[Op], dtypes: tuple[DType, ...], attributes: tuple[tuple[str, Attribute], ...]
) -> Block | None:
    names = (port.name for port in cls.definition.operands)
    block = Block(tuple(scalar(d) for d in dtypes), tuple(names))
    given = [Scalar(a, block) for a in block.arguments]
    dtype = dtypes[0]
    if dtype != F32:
        given = [s.make(ops.Ftof, to=F32) if s.dtype == dtype else s for s in given]
    function = FUNCTIONS.get(cls.name)
    if function is not None:
        result = function(*given)
    elif dtype != F32:
        op = cls((given[0].value,), (scalar(F32),), dict(attributes))
        result = Scalar(block.append(op).results[0], block)
    else:
        return None
    if dtype != F32:
        result = result.make(ops.Ftof, to=dtype)
    block.append(ops.Yield(((result.value,),)))
    return block
