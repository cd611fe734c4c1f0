"""`copy`: between global memory, shared memory and fragments, whatever the two sides are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from reftile.ir.core import Value
from reftile.lang import arithmetic
from reftile.lang.dtypes import int32
from reftile.lang.names.registry import name
from reftile.lang.pipe.arrays import Region, as_region, history_of
from reftile.lang.pipe.block import BlockShape, LoopState, join, shape_of
from reftile.lang.pipe.building import choose, elected, is_computed_from
from reftile.lang.pipe.common import error
from reftile.lang.pipe.fragments import Fragment
from reftile.lang.pipe.shared import Shared, fill_at_once
from reftile.lang.pipe.values import Buffer, TileView
from reftile.lang.pipe.warpgroups import by_first, meet
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token, describe

Change = Callable[[Tile, TileView, tuple[Value, ...], Value], tuple[Value, ...]]
"""Makes the operation that a tile changes memory by, from a view, an index and a token."""


@name
def copy(t: Trace, source: object, target: object, /) -> None:
    """Copy a tile; the side that is no region of an array says how large it is.

    Regions begin at a multiple of the tile. Elements outside an array are zero when copied from it,
    and are not written. Elements are converted where one side is a fragment.
    """
    left, right = as_region(t, source), as_region(t, target)
    match left, right:
        case Region(), Shared():
            _region_to_shared(t, left, right)
        case Region(), Fragment():
            right.write(t, _load_region(t, left, right.own, further_of(t, right)))
        case Shared(), Fragment():
            _need_shape(t, left.kind.shape, right.shape, left, right)
            right.write(t, left.read(t, right.replicated))
        case Fragment(), Shared():
            _need_shape(t, left.shape, right.kind.shape, left, right)
            need_share(t, left)
            right.write(t, left.read(t))
        case Fragment(), Fragment():
            _need_shape(t, left.own, right.own, left, right)
            right.write(t, left.read(t))
        case Shared(), Shared():
            _need_shape(t, left.kind.shape, right.kind.shape, left, right)
            right.write(t, left.read(t))
        case Fragment(), Region():
            need_share(t, left)
            _store_region(t, left.read(t), right, further_of(t, left))
        case Shared(), Region():
            _shared_to_region(t, left, right)
        case _:
            raise error(
                t,
                "copy_places",
                f"{describe(left)} cannot be copied to {describe(right)}",
                "one side is shared memory or a fragment, the other may be a region A[row, column]",
            )


def _need_shape(
    t: Trace, ours: tuple[int, ...], theirs: tuple[int, ...], source: object, target: object
) -> None:
    if ours != theirs:
        raise error(
            t,
            "copy_shape",
            f"{describe(source)} does not fit {describe(target)}",
            "both sides of a copy have one shape",
        )


def further_of(t: Trace, fragment: Fragment) -> Tile | None:
    """Tiles between the first warpgroup's share and this one's."""
    return None if fragment.replicated else shape_of(t).replica


def need_share(t: Trace, fragment: Fragment) -> None:
    """Refuse to store a fragment that every warpgroup holds."""
    if fragment.replicated and shape_of(t).replicas > 1:
        raise error(
            t,
            "rows",
            "every warpgroup holds this fragment, and all would store it",
            "store one that is dealt out: without replicated=True",
        )


def _need_dtype(t: Trace, region: Region, shared: Shared) -> None:
    if region.dtype is not shared.dtype:
        raise error(
            t,
            "copy_dtype",
            f"{region.describe()} holds {region.dtype}, and {shared.describe()} is no place for it",
            "copies between global and shared memory do not convert; a fragment between them does",
        )


def _region_to_shared(t: Trace, source: Region, target: Shared) -> None:
    _need_dtype(t, source, target)
    view, index = source.view(t, target.kind.shape)
    shape = shape_of(t)
    if shape.loop is not None and _take_ahead(t, shape.loop, source, view, index, target):
        return
    history = history_of(shape, source.array)
    written = cast("Token", history.written())
    if shape.target == "sm_90a" and written.value is not shape.start().value:
        # Bulk copies are of another proxy than stores of threads.
        written = Token(t.value("fence_proxy", written.value, space="global"))

    def load(buffer: Buffer, token: Token) -> None:
        start_copy(t, shape, view, index, buffer, token, (target.barrier, shape.zero()))

    fill_at_once(t, target, load, written)
    history.has_read(cast("Token", target.history.written()))


def _take_ahead(
    t: Trace,
    loop: LoopState,
    source: Region,
    view: TileView,
    index: tuple[Value, ...],
    target: Shared,
) -> bool:
    """Leave a copy to the loop, which does it iterations ahead; False if that is not possible.

    It is, if the copy is done in every iteration, where it begins follows from the loop's counter,
    the memory was not used before in the iteration, and the array is not written in the loop. Bulk
    copies of what threads have written need a fence, and are done at once.
    """
    shape = shape_of(t)
    written = history_of(shape, source.array).written()
    possible = (
        t.block is loop.block
        and target not in loop.touched
        and isinstance(written, Token)
        and is_computed_from(written.value, loop.block, loop.counter)
        and written.value not in loop.block.arguments
        and (shape.target != "sm_90a" or written.value is shape.start().value)
        and all(is_computed_from(v, loop.block, loop.counter) for v in index)
    )
    if not possible:
        return False
    loop.copies.append(CopyAhead(source, view, index, target))
    target.touch(t)
    t.set_cell(target.slot_cell, loop.slot)
    target.history.has_landed(loop.landed)
    return True


@dataclass(frozen=True, slots=True, eq=False)
class CopyAhead:
    """A copy that a loop does ahead."""

    source: Region
    view: TileView
    index: tuple[Value, ...]
    target: Shared


def start_copy(
    t: Trace,
    shape: BlockShape,
    view: TileView,
    index: tuple[Value, ...],
    buffer: Buffer,
    token: Token,
    barrier: tuple[Value | None, Tile],
) -> None:
    """Issue a copy by the target's engine."""
    bulk = shape.target == "sm_90a"
    where = (barrier[0], barrier[1].value) if bulk else (None, None)
    t.op(
        "copy_in",
        view.value,
        index,
        buffer.value,
        *where,
        None,
        token.value,
        engine="bulk" if bulk else "thread",
    )


def _load_region(t: Trace, source: Region, shape: tuple[int, ...], further: Tile | None) -> Tile:
    view, index = source.view(t, shape, further)
    history = history_of(shape_of(t), source.array)
    before = cast("Token", history.written())
    if before.value is not shape_of(t).start().value:
        before = meet(t, before)
    kind = view.type.tile_type

    def load() -> tuple[Value, ...]:
        return t.op("load_view_tko", view.value, index, before.value, ordering="weak").results

    def nothing() -> tuple[Value, ...]:
        return t.constant(0, source.dtype, kind.shape), before.value

    inside = _begins_inside(t, source, view, index, len(shape), further)
    tile, token = choose(t, inside, load, nothing)
    history.has_read(Token(token))
    return arithmetic.reshape(t, Tile(tile, source.dtype), shape)


def _begins_inside(
    t: Trace,
    region: Region,
    view: TileView,
    index: tuple[Value, ...],
    rank: int,
    further: Tile | None,
) -> Tile | None:
    """Whether a warpgroup's share begins inside the array; None where it always does."""
    if further is None:
        return None
    axis = len(index) - rank
    extent = region.array.array.shape[axis]
    first = t.value("muli", index[axis], t.constant(view.type.tile[axis], int32))
    return arithmetic.compare(t, "less_than", Tile(first, int32), extent)


def _store_region(t: Trace, tile: Tile, target: Region, further: Tile | None = None) -> None:
    def store(
        tile: Tile, view: TileView, index: tuple[Value, ...], before: Value
    ) -> tuple[Value, ...]:
        return t.op(
            "store_view_tko", tile.value, view.value, index, before, ordering="weak"
        ).results

    change_region(t, arithmetic.convert(t, tile, target.dtype), target, store, further)


def change_region(
    t: Trace, tile: Tile, target: Region, change: Change, further: Tile | None
) -> None:
    """Change a region of an array by a tile of its dtype, behind all that touched it before.

    further: see `further_of`.
    """
    view, index = target.view(t, tile.shape, further)
    value = arithmetic.reshape(t, tile, view.type.tile)
    history = history_of(shape_of(t), target.array)
    before = history.all().value
    inside = _begins_inside(t, target, view, index, len(tile.shape), further)
    (token,) = choose(t, inside, lambda: change(value, view, index, before), lambda: (before,))
    history.has_written(Token(token))


def _shared_to_region(t: Trace, source: Shared, target: Region) -> None:
    shape = shape_of(t)
    if shape.target != "sm_90a":
        _store_region(t, source.read(t), target)
        return
    _need_dtype(t, target, source)
    view, index = target.view(t, source.kind.shape)
    history = history_of(shape, target.array)
    before = join(t, source.written(t), history.all())
    fenced = meet(t, Token(t.value("fence_proxy", before.value)))
    buffer = source.buffer(t)

    def issue() -> Token:
        t.op("copy_out", buffer.value, view.value, index, fenced.value)
        t.op("commit_copies", engine="bulk")
        return Token(t.value("wait_copies", engine="bulk", in_flight=0))

    left = meet(t, by_first(t, lambda: elected(t, issue) or fenced, fenced))
    source.history.has_read(left)
    history.has_written(left)
