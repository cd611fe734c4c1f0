"""Which pointers and views of a kernel are multicast: Tile IR has them apart by type, we by use.

The operations `multimem_*` take views of multicast pointers and nothing else does, so what is used
by one of them is multicast, from the kernel's argument to the view.
"""

from __future__ import annotations

from reftile.ir.core import Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError

FOLLOWED = {
    "assume": "value",
    "offset": "ptr",
    "make_tensor_view": "base",
    "make_partition_view": "tensor_view",
    "make_strided_view": "tensor_view",
    "make_gather_scatter_view": "tensor_view",
}
"""Operations whose result is multicast if this operand is."""
ASKING = frozenset({"get_tensor_shape", "get_index_space_shape"})


def find_multicast(kernel: Kernel) -> frozenset[Value]:
    """Return the values of a kernel that Tile IR gives multicast types.

    Raises:
        ReftileError: `export.unsupported`, where a pointer is used in both ways.
    """
    ops = [op for op in kernel.walk() if not op.definition.is_terminator]
    found = {op.operands[0] for op in ops if op.name.startswith("multimem_")}
    if not found:
        return frozenset()
    for op in reversed(ops):
        if op.name in FOLLOWED and op.results[0] in found:
            found.add(_followed(op))
    for op in ops:
        if op.name in FOLLOWED and _followed(op) in found:
            found.add(op.results[0])
    for op in kernel.walk():
        allowed = op.name in FOLLOWED or op.name in ASKING or op.name.startswith("multimem_")
        if not allowed and found.intersection(op.operands):
            message = f"`{op.name}` uses a pointer or view that multimem operations use too"
            hint = "Tile IR has pointers to the memory of several devices apart: pass two pointers"
            raise ReftileError(Diagnosis("export.unsupported", message, op.span, hint))
    return frozenset(found)


def _followed(op: Op) -> Value:
    ports = [port.name for port in op.definition.operands]
    value = op.arguments[ports.index(FOLLOWED[op.name])]
    assert isinstance(value, Value)
    return value
