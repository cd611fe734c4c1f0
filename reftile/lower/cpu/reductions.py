"""Reductions, scans and what orders elements along an axis.

A reduction goes through the axis from its first element on: the region may be any associative
function. A sum or product of floats alone may be taken in any order, and a sum of 16-bit floats is
kept in f32 and rounded once (spec/accuracy.md, `reduce`).
"""

from __future__ import annotations

from collections.abc import Sequence

from reftile.ir.core import Block, Op
from reftile.ir.dtypes import F32
from reftile.ir.types import TileType
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.formats import rounded_single
from reftile.lower.cpu.literals import literal
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.pure import region_texts
from reftile.lower.cpu.tiles import Buffer, Held, Literal_, Shape, Tile, permute


def _single(op: Op) -> Op | None:
    """The operation of a region that yields one operation on element and accumulator."""
    block = op.regions[0].block
    if len(block.arguments) != 2 or len(block.ops) != 2:
        return None
    inner = block.ops[0]
    pair = tuple(block.arguments)
    if inner.operands not in (pair, pair[::-1]) or tuple(block.ops[1].operands) != inner.results:
        return None
    return inner if inner.definition.meaning and not inner.regions else None


class Step:
    """How the accumulators of a reduction begin, and go on with one more element."""

    def __init__(self, b: Builder, op: Op, sources: Sequence[Tile]) -> None:
        self.b, self.op, self.sources = b, op, sources
        self.kinds = [s.kind for s in sources]
        self.starts: list[str] | None = None
        self.quick = ""
        self.dtype = sources[0].element
        inner = _single(op)
        if inner is not None and len(sources) == 1:
            self._find_quick(inner, sources[0])

    def _find_quick(self, inner: Op, source: Tile) -> None:
        if not set(inner.attributes) <= {"signedness", "propagate_nan"}:
            return
        element = source.element
        nan = bool(inner.attributes.get("propagate_nan"))
        match inner.name:
            case "addf":
                # -0 changes no sum, +0 would change that of zeros.
                self.quick, start = "addf_any_order", -0.0
            case "mulf" if element in (F32,) or element.bits == 64:  # type: ignore[union-attr]
                self.quick, start = "mulf_any_order", 1.0
            case "maxf":
                self.quick, start = ("maximum", -float("inf")) if nan else ("maxnum", float("nan"))
            case "minf":
                self.quick, start = ("minimum", float("inf")) if nan else ("minnum", float("nan"))
            case _:
                return
        self.starts = [literal(start, element)]

    def go_on(self, nest: Nest, elements: Sequence[str], accumulators: Sequence[str]) -> list[str]:
        """The texts of the new accumulators."""
        if self.quick:
            return [f"{self.quick}({accumulators[0]}, {elements[0]})"]
        pairs = [t for pair in zip(elements, accumulators, strict=True) for t in pair]
        return region_texts(self.b, self.op.regions[0].block, pairs, nest)

    def finish(self, text: str) -> str:
        """The result of a last accumulator."""
        if self.quick == "addf_any_order" and self.dtype.bits == 16:  # type: ignore[union-attr]
            return rounded_single(text, self.dtype)  # type: ignore[arg-type]
        return text


def reduce(b: Builder, op: Op, block: Block) -> None:
    """Combine the elements along an axis."""
    sources = [b.tile(v) for v in op.operands]
    axis = int(op.attributes["axis"])  # type: ignore[call-overload]
    step = Step(b, op, sources)
    shape = sources[0].shape
    outer = shape[:axis] + shape[axis + 1 :]
    inner_size = 1
    for extent in shape[axis + 1 :]:
        inner_size *= extent
    if inner_size > 1 and step.starts is not None and shape[axis] > 1:
        _reduce_rows(b, op, block, step, sources[0], axis, outer)
        return
    results = _places(b, op, block)
    if inner_size > 1:
        # The loop along the axis must be the innermost.
        order = (*(a for a in range(len(shape)) if a != axis), axis)
        sources = [permute(s, order) for s in sources]
        axis, shape = len(shape) - 1, (*outer, shape[axis])

    def fill(nest: Nest) -> None:
        # The axis is the innermost loop, or the only one inside it has an extent of 1.
        nest_index = nest.index
        level = _level_of_axis(nest, axis)
        accumulators = [b.name("acc") for _ in sources]
        elements = [s.at(nest_index, nest) for s in sources]
        for name in accumulators:
            nest.bind(name, level)
        if step.starts is not None:
            for name, start in zip(accumulators, step.starts, strict=True):
                nest.do(f"{name} = {start}", level - 1)
            for name, text in zip(
                accumulators, step.go_on(nest, elements, accumulators), strict=True
            ):
                nest.do(f"{name} = {text}")
        else:
            _first_or_next(nest, step, accumulators, elements, axis, level)
        index = tuple(i for a, i in enumerate(nest_index) if a != axis)
        for name, result in zip(accumulators, results, strict=True):
            _keep(b, nest, result, index, step.finish(name), level - 1)

    if shape[axis] == 1:
        for source, result in zip(sources, results, strict=True):
            _copy(b, source, result, axis)
    else:
        b.sweep(shape, sources, fill)
    _set(b, op, results)


def _first_or_next(
    nest: Nest,
    step: Step,
    accumulators: Sequence[str],
    elements: Sequence[str],
    axis: int,
    level: int,
) -> None:
    """The first element begins the accumulators; the others are combined with them."""
    counter = nest.index[axis]
    for name, kind in zip(accumulators, step.kinds, strict=True):
        nest.do(f"{name} = {'False' if kind == 'b1' else f'{kind}(0)'}", level - 1)
    texts = step.go_on(nest, elements, accumulators)
    new = [nest.once(t) for t in texts]
    is_first = nest.temp(f"ieq(i64({counter}), i64(0))")
    for name, text, element in zip(accumulators, new, elements, strict=True):
        nest.do(f"{name} = choose({is_first}, {element}, {text})")


def _level_of_axis(nest: Nest, axis: int) -> int:
    return nest.level(nest.index[axis])


def _places(b: Builder, op: Op, block: Block) -> list[Held]:
    """The results, each with a place: a variable for one element, else a buffer."""
    found: list[Held] = []
    for value in op.results:
        type = value.type
        assert isinstance(type, TileType)
        held = b.held(Literal_(type.shape, type.element, "?"), value, block)
        if type.size > 1:
            held.buffer = b.buffer(type.shape, held.kind, held)
        else:
            held.variable = b.name("v")
        found.append(held)
    return found


def _set(b: Builder, op: Op, results: Sequence[Held]) -> None:
    for value, held in zip(op.results, results, strict=True):
        held.tile = None
        b.env[value] = held


def _keep(
    b: Builder, nest: Nest, result: Held, index: Sequence[str], text: str, level: int
) -> None:
    if result.variable:
        nest.do_after(f"{result.variable} = {text}", level)
        return
    buffer = result.buffer
    assert buffer is not None
    store = b.access("storer", buffer.kind, buffer.scope)
    nest.do_after(f"{store}({buffer.base}, {buffer.place(index)}, {text})", level)


def _copy(b: Builder, source: Tile, result: Held, axis: int) -> None:
    def fill(nest: Nest) -> None:
        text = source.at(nest.index, nest)
        index = tuple(i for a, i in enumerate(nest.index) if a != axis)
        if result.variable:
            nest.do(f"{result.variable} = {text}")
            return
        buffer = result.buffer
        assert buffer is not None
        store = b.access("storer", buffer.kind, buffer.scope)
        nest.do(f"{store}({buffer.base}, {buffer.place(index)}, {text})")

    b.sweep(source.shape, [source], fill)


def _reduce_rows(
    b: Builder, op: Op, block: Block, step: Step, source: Tile, axis: int, outer: Shape
) -> None:
    """Along an axis that is not the last: whole rows of accumulators go on together."""
    result = _places(b, op, block)[0]
    assert step.starts is not None
    buffer = result.buffer
    assert buffer is not None
    b.store_into(Literal_(outer, result.element, step.starts[0]), buffer)

    def fill(nest: Nest) -> None:
        index = tuple(i for a, i in enumerate(nest.index) if a != axis)
        element = source.at(nest.index, nest)
        _combine_in_place(b, nest, step, buffer, index, element)

    b.sweep(source.shape, [source], fill)
    if step.finish("?") != "?":
        _finish_in_place(b, step, buffer, outer)
    _set(b, op, [result])


def _combine_in_place(
    b: Builder, nest: Nest, step: Step, buffer: Buffer, index: Sequence[str], element: str
) -> None:
    load = b.access("loader", buffer.kind, buffer.scope)
    store = b.access("storer", buffer.kind, buffer.scope)
    old = nest.once(f"{load}({buffer.base}, {buffer.place(index)})")
    (new,) = step.go_on(nest, [element], [old])
    nest.do(f"{store}({buffer.base}, {buffer.place(index)}, {new})")


def _finish_in_place(b: Builder, step: Step, buffer: Buffer, shape: Shape) -> None:
    nest = Nest(b, shape)
    load = b.access("loader", buffer.kind, buffer.scope)
    store = b.access("storer", buffer.kind, buffer.scope)
    old = nest.once(f"{load}({buffer.base}, {buffer.place(nest.index)})")
    nest.do(f"{store}({buffer.base}, {buffer.place(nest.index)}, {step.finish(old)})")
    nest.write()


def scan(b: Builder, op: Op, block: Block) -> None:
    """All prefixes along an axis, one after the other."""
    sources = [b.tile(v) for v in op.operands]
    axis = int(op.attributes["axis"])  # type: ignore[call-overload]
    reverse = bool(op.attributes.get("reverse"))
    shape = sources[0].shape
    results: list[Held] = []
    buffers: list[Buffer] = []
    for value, source in zip(op.results, sources, strict=True):
        held = b.held(Literal_(shape, source.element, "?"), value, block)
        held.buffer = b.buffer(shape, held.kind, held)
        results.append(held)
        buffers.append(held.buffer)
    step = Step(b, op, sources)
    step.quick, step.starts = "", None

    def fill(nest: Nest) -> None:
        index = list(nest.index)
        counter = index[axis]
        if counter == "0":
            for source, buffer in zip(sources, buffers, strict=True):
                _put(b, nest, buffer, index, source.at(tuple(index), nest))
            return
        at = nest.temp(f"i64({shape[axis] - 1}) - {counter}") if reverse else counter
        index[axis] = at
        elements = [s.at(tuple(index), nest) for s in sources]
        is_first = nest.temp(f"ieq(i64({counter}), i64(0))")
        before = list(index)
        towards = "+ 1" if reverse else "- 1"
        before[axis] = nest.temp(f"choose({is_first}, {at}, {at} {towards})")
        olds: list[str] = []
        for buffer in buffers:
            load = b.access("loader", buffer.kind, buffer.scope)
            olds.append(nest.once(f"{load}({buffer.base}, {buffer.place(before)})"))
        new = step.go_on(nest, elements, olds)
        for buffer, text, element in zip(buffers, new, elements, strict=True):
            _put(b, nest, buffer, index, f"choose({is_first}, {element}, {nest.temp(text)})")

    b.sweep(shape, sources, fill, whole=not reverse)
    _set(b, op, results)


def _put(b: Builder, nest: Nest, buffer: Buffer, index: Sequence[str], text: str) -> None:
    store = b.access("storer", buffer.kind, buffer.scope)
    nest.do(f"{store}({buffer.base}, {buffer.place(index)}, {text})")
