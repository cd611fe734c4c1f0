"""A promise that cuTile Python makes although it is false: the stride of an axis of one element.

cuTile takes the stride of such an axis as 1, whatever the array has, and then promises that it is a
multiple of what the array's stride is a multiple of. No address depends on that stride, so nobody
is hurt; but a false promise is undefined behaviour by the letter.
"""

from __future__ import annotations

from collections.abc import Mapping

from reftile.ir.core import Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis
from reftile.ir.ops import Assume, Constant, MakeTensorView
from reftile.ir.types import TensorViewType

RULE = "assume.div_by"


def unit_stride_promises(kernel: Kernel, numbers: Mapping[Value, int]) -> list[Op]:
    """The `assume`s of divisibility that are false or unknown, and only used as such a stride.

    numbers: the values of the kernel's scalar arguments, as far as they are known.
    """
    views: dict[Value, list[bool]] = {}
    others: set[Value] = set()
    for op in kernel.walk():
        free: set[Value] = set()
        if isinstance(op, MakeTensorView):
            for value, is_unit in _strides(op, numbers):
                views.setdefault(value, []).append(is_unit)
                free.add(value)
        others.update(v for v in op.operands if v not in free)
    found: list[Op] = []
    for op in kernel.walk():
        if not isinstance(op, Assume) or op.div_by is None:
            continue
        uses = views.get(op.results[0], [])
        if not uses or not all(uses) or op.results[0] in others:
            continue
        number = _number(op.value, numbers)
        if number is None or number % op.div_by:
            found.append(op)
    return found


def withdraw(op: Op) -> Diagnosis:
    """Make a promise empty, and say so."""
    assert isinstance(op, Assume)
    divisor = op.div_by
    op.attributes["div_by"] = 1
    return Diagnosis(
        RULE,
        f"the stride of an axis of one element is promised to be a multiple of {divisor}, "
        "and it is not; no address depends on it",
        op.span,
        "cuTile's compiler makes this promise; it is an error unless unit_stride is forgiven",
        severity="warning",
    )


def _strides(op: MakeTensorView, numbers: Mapping[Value, int]) -> list[tuple[Value, bool]]:
    """Each dynamic stride of a view, and whether its axis has one element."""
    type = op.results[0].type
    assert isinstance(type, TensorViewType)
    extents = iter(op.dynamic_shape)
    sizes = [_number(next(extents), numbers) if d is None else d for d in type.shape]
    strides = iter(op.dynamic_strides)
    return [
        (next(strides), size == 1)
        for size, stride in zip(sizes, type.strides, strict=True)
        if stride is None
    ]


def _number(value: Value, numbers: Mapping[Value, int]) -> int | None:
    """The value of a scalar, if it follows from the arguments."""
    while isinstance(value.owner, Assume):
        value = value.owner.value
    if isinstance(value.owner, Constant):
        bits = value.owner.value.bits()
        return int(bits.reshape(-1)[0])
    return numbers.get(value)
