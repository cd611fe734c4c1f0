"""Rules of `simt` kernels that no single record can state: layouts that agree.

Types are equal whatever their layouts, so the records cannot tell. spec/simt.md says what is
checked.
"""

from __future__ import annotations

from reftile.ir.core import Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis
from reftile.ir.targets import TARGETS
from reftile.ir.types import PendingType, TileType

_ALIKE = frozenset({"elementwise", "select"})


def check_simt(kernel: Kernel) -> list[Diagnosis]:
    """Return what is wrong with a `simt` kernel whose operations fit their records."""
    findings: list[Diagnosis] = []
    target = kernel.attributes.get("target")
    if target not in TARGETS:
        known = ", ".join(TARGETS)
        message = f"a simt kernel names its target ({known}), found {target}"
        findings.append(Diagnosis("simt.target", message, kernel.span))
    for op in kernel.walk():
        for value in op.results:
            tile = _tile(value)
            if tile is not None and not tile.layout and tile.size > 1 and not _is_in_reduce(op):
                message = f"%{value.name} is spread over threads and has no layout"
                findings.append(Diagnosis("simt.layout", message, op.span))
        if op.definition.poison in _ALIKE and not op.regions:
            layouts = _layouts(op)
            if len(layouts) > 1:
                message = f"`{op.name}` works element by element, and its tiles lie differently: "
                message += " and ".join(sorted(layouts))
                hint = "give all one layout"
                findings.append(Diagnosis("simt.layouts_differ", message, op.span, hint))
    return findings


def _layouts(op: Op) -> set[str]:
    """The layouts of an operation's tiles that are spread."""
    tiles = [_tile(v) for v in (*op.operands, *op.results)]
    return {tile.layout for tile in tiles if tile is not None and tile.shape and tile.size > 1}


def _tile(value: Value) -> TileType | None:
    kind = value.type
    if isinstance(kind, TileType):
        return kind
    return kind.tile if isinstance(kind, PendingType) else None


def _is_in_reduce(op: Op) -> bool:
    owner = (
        op.parent.parent.parent if op.parent is not None and op.parent.parent is not None else None
    )
    return isinstance(owner, Op) and owner.name == "reduce"
