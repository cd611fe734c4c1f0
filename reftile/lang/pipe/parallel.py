"""Elementwise work and reductions on fragments."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from reftile.ir.types import TileType
from reftile.lang import arithmetic
from reftile.lang.dtypes import int32
from reftile.lang.expressions import assign_target
from reftile.lang.frame import Flow, Frame, Outcome
from reftile.lang.loops import Execute, ForeignLoop
from reftile.lang.names import math as mathematics
from reftile.lang.names import reduction
from reftile.lang.names.registry import Name, name
from reftile.lang.pipe.block import shape_of
from reftile.lang.pipe.common import error
from reftile.lang.pipe.fragments import ParallelIndex, need_fragment
from reftile.lang.pipe.warpgroups import share_of
from reftile.lang.trace import Trace
from reftile.lang.values import Tile


@dataclass(frozen=True, slots=True, eq=False)
class ParallelLoop(ForeignLoop):
    """`Parallel(...)` behind `in`."""

    extents: tuple[int, ...]

    def describe(self) -> str:
        """Name the value in a message."""
        return "`Parallel(...)`, which stands behind `in`"

    def trace(self, frame: Frame, node: ast.For, execute: Execute) -> Outcome:
        """Trace the body once, for all elements together."""
        t = frame.trace
        own = share_of(t, self.extents, "a `Parallel`")
        counters = [_counter(t, own, a) for a in range(len(own))]
        single = len(counters) == 1 and isinstance(node.target, ast.Name)
        assign_target(frame, node.target, counters[0] if single else tuple(counters))
        outer, frame.loop = frame.loop, None
        try:
            outcome = execute(frame, node.body)
        finally:
            frame.loop = outer
        if outcome is not Flow.NEXT:
            raise frame.error(node, "pipe.parallel", "a `Parallel` loop cannot be left")
        return outcome


def _counter(t: Trace, extents: tuple[int, ...], axis: int) -> ParallelIndex:
    """The numbers 0, 1, ... along an axis, repeated along the others."""
    line = Tile(t.value("iota", types=[TileType((extents[axis],), int32.element)]), int32)
    replica = shape_of(t).replica
    if axis == 0 and replica is not None:
        first = arithmetic.add_sub_mul(t, "mul", replica, extents[0])
        line = arithmetic.add_sub_mul(t, "add", line, first)
    wide = tuple(e if a == axis else 1 for a, e in enumerate(extents))
    tile = arithmetic.broadcast(t, arithmetic.reshape(t, line, wide), extents)
    return ParallelIndex(tile.value, int32, None, axis)


@name
def Parallel(t: Trace, /, *extents: object) -> ParallelLoop:
    """All iterations at once, in no order; stands behind `in`.

    Fragments and shared memory are indexed by the counters, in their order; a row `x[i]` is
    repeated along the others. `where(condition, a, b)` chooses elements.
    """
    if not extents:
        raise error(t, "parallel", "`Parallel` takes one extent or more")
    return ParallelLoop(t.static_shape(extents, "extents"))


def _reduction(what: str, whole: Name[..., object], pair: Name[..., object]) -> Name[..., object]:
    def implementation(
        t: Trace,
        source: object,
        target: object,
        /,
        dim: object = -1,
        *,
        clear: object = True,
    ) -> None:
        left = need_fragment(t, source, "source")
        right = need_fragment(t, target, "target")
        axis = t.static_axis(dim, len(left.shape), "dim")
        kept = left.shape[:axis] + left.shape[axis + 1 :]
        if right.shape != kept:
            raise error(
                t,
                "reduce_shape",
                f"{left.describe()} reduced along axis {axis} is {kept}, found {right.shape}",
            )
        if shape_of(t).replicas > 1 and (axis == 0 or right.replicated):
            raise error(
                t,
                "rows",
                "rows are dealt out to several warpgroups, and cannot be combined",
                "reduce along another axis, or use threads=128",
            )
        found = whole.implementation(t, left.read(t), axis)
        if not t.static_bool(clear, "clear"):
            found = pair.implementation(t, right.read(t), found)
        right.write(t, _tile(found))

    implementation.__name__ = f"reduce_{what}"
    implementation.__doc__ = (
        f"The {what} of a fragment along axis `dim`, written to another.\n\n"
        "clear: False takes what the other holds along."
    )
    return Name(implementation)


def _tile(value: object) -> Tile:
    assert isinstance(value, Tile)
    return value


reduce_max = _reduction("max", reduction.max, mathematics.maximum)
reduce_min = _reduction("min", reduction.min, mathematics.minimum)
reduce_sum = _reduction("sum", reduction.sum, mathematics.add)
