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
from reftile.lower.functions import angle, exponential, logarithm
from reftile.lower.functions.scalar import Scalar

FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    "atan2": angle.atan2,
    "cos": angle.cos,
    "cosh": exponential.cosh,
    "erf": exponential.erf,
    "expm1": exponential.expm1,
    "log1p": logarithm.log1p,
    "pow": logarithm.power,
    "sin": angle.sin,
    "sinh": exponential.sinh,
    "tan": angle.tan,
}
"""Of one or two f32; each keeps to the accuracy class of its record."""
BY_WAY_OF_F32 = frozenset({*FUNCTIONS, "exp", "log", "log2", "tanh"})
"""Functions of which those of f16 and bf16 are rounded once more."""


def body_of(op: Op) -> Block | None:
    """One element of a function: arguments as the operands, ended by `yield`; None if it is none.

    The block is kept, and not to be changed.
    """
    kind = op.results[0].type
    if op.name not in BY_WAY_OF_F32 or not isinstance(kind, TileType):
        return None
    if not isinstance(kind.element, DType) or kind.element.name not in ("f32", "f16", "bf16"):
        return None
    return _body(type(op), kind.element, tuple(op.attributes.items()))


@lru_cache(maxsize=128)
def _body(
    cls: type[Op], dtype: DType, attributes: tuple[tuple[str, Attribute], ...]
) -> Block | None:
    names = tuple(port.name for port in cls.definition.operands)
    block = Block((scalar(dtype),) * len(names), names)
    given = [Scalar(a, block) for a in block.arguments]
    if dtype != F32:
        given = [s.make(ops.Ftof, to=F32) for s in given]
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
