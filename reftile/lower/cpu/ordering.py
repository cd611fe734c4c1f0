"""Sorting, the greatest elements, and histograms."""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir.core import Block, Op
from reftile.ir.types import TileType
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import Buffer, Held, Index, Literal_, Tile, size_of


def _key(tile: Tile, text: str, signedness: str, nan_least: bool = False) -> str:
    """An i64 that is ordered as the elements are."""
    dtype = tile.dtype
    if dtype.is_float:
        kind = "64" if dtype.bits == 64 else "32"
        return f"order_key{kind}({text}, {nan_least})"
    if dtype.bits == 64 and signedness == "unsigned":
        return f"xori({text}, i64(-9223372036854775807) - i64(1))"
    return f"i64_of_{signedness}({text})"


def _result(b: Builder, value: object, block: Block) -> tuple[Held, Buffer]:
    type = value.type  # type: ignore[attr-defined]
    assert isinstance(type, TileType)
    held = b.held(Literal_(type.shape, type.element, "?"), value, block)  # type: ignore[arg-type]
    held.tile, held.buffer = None, b.buffer(type.shape, held.kind, held)
    b.env[value] = held  # type: ignore[index]
    return held, held.buffer


def _lines(
    b: Builder, shape: tuple[int, ...], axis: int, tiles: list[Tile]
) -> tuple[Nest, Callable[[str], Index]]:
    """Loops over all lines along an axis, and the index of a position on the line."""
    outer = (*shape[:axis], *shape[axis + 1 :])
    nest = Nest(b, outer)
    nest.gather(tiles, keeps=False, whole=False)

    def at(place: str) -> Index:
        return (*nest.index[:axis], place, *nest.index[axis:])

    return nest, at


def _temporary(b: Builder, count: int) -> Buffer:
    return b.buffer((count,), "i64", last=b.frames[-1].position)


def _inner(b: Builder, nest: Nest, extent: int, body: Callable[[Nest], None]) -> None:
    """A loop of its own inside the innermost one of a nest."""
    loop = Nest(b, ())
    loop.index = nest.index
    before, b.lines, depth = b.lines, [], b.depth
    b.depth = 0
    body(loop)
    loop.write()
    lines, b.lines, b.depth = b.lines, before, depth
    for line in lines:
        nest.do(line)


def _order(b: Builder, op: Op, tile: Tile, nest: Nest, at: Callable[[str], Index]) -> Buffer:
    """Write what finds the order along the lines; gives the places of positions."""
    axis = int(op.attributes["axis"])  # type: ignore[call-overload]
    count = tile.shape[axis]
    signedness = str(op.attributes.get("signedness", "signed"))
    keys, order, spare = (_temporary(b, count) for _ in range(3))
    flag = (
        op.attributes.get("descending") if op.name == "sort" else not op.attributes.get("smallest")
    )

    def fill(loop: Nest) -> None:
        j = loop.open(str(count))
        key = _key(tile, tile.at(at(j), loop), signedness)
        store = b.access("storer", "i64", keys.scope)
        loop.do(f"{store}({keys.base}, {j} * 8, {f'noti({key})' if flag else key})")

    _inner(b, nest, count, fill)
    nest.do(f"sort_keys({keys.base}, {order.base}, {spare.base}, {count})")
    return order


def _place(b: Builder, order: Buffer, loop: Nest, j: str) -> str:
    load = b.access("loader", "i64", order.scope)
    return loop.once(f"{load}({order.base}, {j} * 8)")


def sort(b: Builder, op: Op, block: Block) -> None:
    """Sort along an axis, and rearrange the other operands alike."""
    axis = int(op.attributes["axis"])  # type: ignore[call-overload]
    tiles = [_there(b, b.tile(v)) for v in op.operands]
    outs = [_result(b, value, block)[1] for value in op.results]
    shape = tiles[0].shape
    nest, at = _lines(b, shape, axis, tiles)
    order = _order(b, op, tiles[0], nest, at)

    def fill(loop: Nest) -> None:
        j = loop.open(str(shape[axis]))
        place = _place(b, order, loop, j)
        for tile, out in zip(tiles, outs, strict=True):
            text = tile.at(at(place), loop)
            store = b.access("storer", out.kind, out.scope)
            loop.do(f"{store}({out.base}, {out.place(at(j))}, {text})")

    _inner(b, nest, shape[axis], fill)
    nest.write()


def _there(b: Builder, tile: Tile) -> Tile:
    """A tile that may be read in any order."""
    if isinstance(tile, Held):
        b.hold(tile)
        return tile
    if isinstance(tile, Literal_):
        return tile
    held = Held(tile, 0)
    held.buffer = b.buffer(tile.shape, tile.kind, last=b.frames[-1].position)
    b.store_into(tile, held.buffer)
    held.tile = None
    return held


def topk(b: Builder, op: Op, block: Block) -> None:
    """The first elements in order, and their positions."""
    axis = int(op.attributes["axis"])  # type: ignore[call-overload]
    count = int(op.attributes["count"])  # type: ignore[call-overload]
    tile = _there(b, b.tile(op.operands[0]))
    values, indices = (_result(b, value, block)[1] for value in op.results)
    nest, at = _lines(b, tile.shape, axis, [tile])
    order = _order(b, op, tile, nest, at)

    def fill(loop: Nest) -> None:
        j = loop.open(str(count))
        place = _place(b, order, loop, j)
        for out, text in (
            (values, tile.at(at(place), loop)),
            (indices, f"i32_of_signed({place})"),
        ):
            store = b.access("storer", out.kind, out.scope)
            loop.do(f"{store}({out.base}, {out.place(at(j))}, {text})")

    _inner(b, nest, count, fill)
    nest.write()


def extreme_place(b: Builder, op: Op, block: Block) -> None:
    """The position of the first NaN, or else of the first of the greatest or least."""
    axis = int(op.attributes["axis"])  # type: ignore[call-overload]
    tile = _there(b, b.tile(op.operands[0]))
    _, out = _result(b, op.results[0], block)
    least = op.name == "argmin"
    signedness = str(op.attributes.get("signedness", "signed"))
    nest, at = _lines(b, tile.shape, axis, [tile])
    best, where = b.name("best"), b.name("where")

    def fill(loop: Nest) -> None:
        first = _key(tile, tile.at(at("0"), loop), signedness, least)
        loop.do(f"{best} = {first}", 0)
        loop.do(f"{where} = i64(0)", 0)
        j = loop.open(str(tile.shape[axis]))
        loop.bind(best, 1)
        loop.bind(where, 1)
        key = loop.temp(_key(tile, tile.at(at(j), loop), signedness, least))
        better = loop.temp(f"{'ilt' if least else 'igt'}({key}, {best})")
        loop.do(f"{where} = choose({better}, {j}, {where})")
        loop.do(f"{best} = choose({better}, {key}, {best})")

    _inner(b, nest, tile.shape[axis], fill)
    store = b.access("storer", out.kind, out.scope)
    nest.do(f"{store}({out.base}, {out.place(nest.index)}, i32_of_signed({where}))")
    nest.write()


def histogram(b: Builder, op: Op, block: Block) -> None:
    """How many elements equal each number."""
    source = b.tile(op.operands[0])
    masks = [b.tile(v) for v in op.operands[1:]]
    bins = int(op.attributes["bins"])  # type: ignore[call-overload]
    held, out = _result(b, op.results[0], block)
    b.store_into(Literal_(held.shape, held.element, "i32(0)"), out)
    nest = Nest(b, source.shape)
    nest.gather([source, *masks])
    value = nest.temp(f"i64_of_unsigned({source.at(nest.index, nest)})")
    counted = nest.temp(f"nlt({value}, i64({bins}))")
    for mask in masks:
        counted = nest.temp(f"andi({counted}, {mask.at(nest.index, nest)})")
    at = nest.temp(f"choose({counted}, {value}, i64(0)) * {size_of('i32')}")
    load = b.access("loader", "i32", out.scope)
    store = b.access("storer", "i32", out.scope)
    old = nest.once(f"{load}({out.base}, {at})")
    nest.do(f"{store}({out.base}, {at}, addi({old}, i32_of_unsigned({counted})))")
    nest.write()
