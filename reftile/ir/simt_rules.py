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
        inside_reduce = _is_inside_reduce(op)
        for value in op.results:
            tile = _tile(value)
            if tile is not None and tile.size > 1 and not tile.layout and not inside_reduce:
                findings.append(
                    Diagnosis(
                        "simt.layout",
                        f"%{value.name} is spread over threads and has no layout",
                        op.span,
                    )
                )
        layouts = {
            tile.layout for v in (*op.operands, *op.results) if (tile := _tile(v)) and tile.size > 1
        }
        if op.definition.poison in _ALIKE and not op.regions and len(layouts) > 1:
            findings.append(
                Diagnosis(
                    "simt.layouts_differ",
                    f"`{op.name}` works element by element, and its tiles lie differently: "
                    + " and ".join(sorted(layouts)),
                    op.span,
                    "give all one layout",
                )
            )
    return findings


def _tile(value: Value) -> TileType | None:
    kind = value.type
    if isinstance(kind, PendingType):
        return kind.tile
    return kind if isinstance(kind, TileType) else None


def _is_inside_reduce(op: Op) -> bool:
    owner = (
        op.parent.parent.parent if op.parent is not None and op.parent.parent is not None else None
    )
    return isinstance(owner, Op) and owner.name == "reduce"
