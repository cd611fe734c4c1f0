"""Blocks of several warpgroups: each has a share of the rows of every fragment.

On sm_90a a product is one warpgroup's. A block of more than 128 threads is then a role with as many
replicas as warpgroups; shared memory is the block's, and what one writes the others meet for.
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir.core import Block
from reftile.ir.types import TOKEN, NamedBarrierType
from reftile.lang import arithmetic
from reftile.lang.pipe.block import BlockShape, shape_of
from reftile.lang.pipe.common import error
from reftile.lang.pipe.values import NamedBarrier
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token


def share_of(t: Trace, extents: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The part of a tile that a warpgroup has: rows are dealt out, the first axis."""
    replicas = shape_of(t).replicas
    if replicas == 1 or not extents:
        return extents
    if extents[0] % replicas:
        raise error(
            t,
            "rows",
            f"{what} of {extents[0]} rows cannot be dealt out to {replicas} warpgroups",
            f"make the rows a multiple of {replicas}, use threads=128, or replicated=True",
        )
    return (extents[0] // replicas, *extents[1:])


def meet(t: Trace, token: Token) -> Token:
    """All warpgroups meet; the token has what any of them handed over."""
    shape = shape_of(t)
    if shape.replicas == 1:
        return token
    barrier = shape.once("meeting", lambda: _meeting(shape))
    assert isinstance(barrier, NamedBarrier)
    return Token(t.value("sync_named", barrier.value, shape.zero().value, token.value))


def _meeting(shape: BlockShape) -> NamedBarrier:
    kind = NamedBarrierType(1, 128 * shape.replicas)
    return NamedBarrier(shape.trace.value("alloc_named_barrier", types=[kind]))


def is_first(t: Trace) -> Tile | None:
    """Whether this is the first warpgroup; None if there is one only."""
    shape = shape_of(t)
    if shape.replica is None:
        return None
    return arithmetic.compare(t, "equal", shape.replica, 0)


def by_first(t: Trace, build: Callable[[], Token], otherwise: Token) -> Token:
    """What the first warpgroup does; the others go on with `otherwise`."""
    first = is_first(t)
    if first is None:
        return build()
    blocks = (Block(), Block())
    with t.inside(blocks[0]):
        t.op("yield", (build().value,))
    with t.inside(blocks[1]):
        t.op("yield", (otherwise.value,))
    return Token(t.structure("if", blocks, first.value, types=[TOKEN]).results[0])
