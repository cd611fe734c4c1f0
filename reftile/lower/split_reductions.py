"""Let warps meet where a reduction runs across them.

Needs: a `pipe` kernel whose tiles have layouts (assign_layouts). Leaves: every `reduce` combines
elements that one warp holds. An axis over which warps are spread becomes several: each warp reduces
what it has, a `change_layout` through shared memory brings the parts of all warps together, and
every thread combines those.

Before:

    pipe kernel @sum(%o: tile<ptr<f32>>) attributes {target = "sm_80", warps = 2} {
      %zero = constant {value = 0} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<1xf32, strides=[1]>
      %v = make_partition_view %t : partition_view<tile=(1), tensor_view<1xf32, strides=[1]>>
      %x = constant {value = 2.0} : tile<64xf32, layout=layout<64; lane 32*(1); warp 2*(32)>>
      %s = reduce %x {axis = 0, identities = [0.0]} :
        tile<f32> combine(%e: tile<f32>, %acc: tile<f32>) {
        %more = addf %acc, %e : tile<f32>
        yield %more
      }
      %one = reshape %s : tile<1xf32>
      %w = store_view_tko %one, %v, [%zero] {ordering = weak} : token
      return }

After:

    pipe kernel @sum(%o: tile<ptr<f32>>) attributes {target = "sm_80", warps = 2} {
      %zero = constant {value = 0} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<1xf32, strides=[1]>
      %v = make_partition_view %t : partition_view<tile=(1), tensor_view<1xf32, strides=[1]>>
      %x = constant {value = 2.0} : tile<64xf32, layout=layout<64; lane 32*(1); warp 2*(32)>>
      %x_parts = reshape %x : tile<2x32xf32, layout=layout<2x32; lane 32*(0,1); warp 2*(1,0)>>
      %s_part = reduce %x_parts {axis = 1, identities = [0.0]} :
        tile<2xf32, layout=layout<2; lane 32*(0); warp 2*(1)>> combine(
          %e: tile<f32>, %acc: tile<f32>) {
        %more = addf %acc, %e : tile<f32>
        yield %more
      }
      %s_all = change_layout %s_part :
        tile<2xf32, layout=layout<2; register 2*(1); lane 32*(0); warp 2*(0)>>
      %s = reduce %s_all {axis = 0, identities = [0.0]} :
        tile<f32> combine(%e: tile<f32>, %acc: tile<f32>) {
        %more = addf %acc, %e : tile<f32>
        yield %more
      }
      %one = reshape %s : tile<1xf32>
      %w = store_view_tko %one, %v, [%zero] {ordering = weak} : token
      return }
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from reftile.ir import ops
from reftile.ir.attributes import Dense
from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import I1, I32
from reftile.ir.types import TileType
from reftile.layout.linear import Digit, Layout, LayoutError
from reftile.lower.clone import clone_ops
from reftile.lower.fragments import dropped, layout_of, text_of


def split_reductions(kernel: Kernel, target: str) -> Kernel:
    """Split the reductions whose axis is spread over warps."""
    mapping: dict[Value, Value] = {}
    for op in list(kernel.walk()):
        if mapping:
            op.replace_operands(mapping)
        if isinstance(op, ops.Reduce) and _crosses_warps(op):
            mapping.update(zip(op.results, _split(op), strict=True))
    return kernel


def _crosses_warps(op: ops.Reduce) -> bool:
    kind = op.sources[0].type
    assert isinstance(kind, TileType)
    return bool(kind.layout) and any(d.step[op.axis] for d in layout_of(kind.layout).digits("warp"))


@dataclass(frozen=True, slots=True)
class Parts:
    """An axis cut where warps begin and end.

    extents: the axes it becomes. is_warp: which of those tell warps apart. layout: the operand's.
    """

    extents: tuple[int, ...]
    is_warp: tuple[bool, ...]
    layout: Layout


@cache
def parts_of(layout: Layout, axis: int) -> Parts:
    """Cut an axis so that each part lies over warps, or within them.

    Raises:
        LayoutError: the layout's digits do not cut it so.
    """
    digits = sorted(
        (d.step[axis], d.extent, place == "warp")
        for place in layout.places
        for d in layout.digits(place)
        if d.step[axis]
    )
    extents: list[int] = []
    is_warp: list[bool] = []
    reached = 1
    for step, extent, warp in digits:
        if step < reached:  # A swizzle, or a copy: it adds nothing that is new.
            raise LayoutError(f"its digits along axis {axis} overlap")
        if is_warp and is_warp[-1] == warp:
            extents[-1] *= extent
        else:
            extents.append(extent)
            is_warp.append(warp)
        reached *= extent
    shape = (*layout.shape[:axis], *reversed(extents), *layout.shape[axis + 1 :])
    return Parts(tuple(reversed(extents)), tuple(reversed(is_warp)), layout.reshape(shape))


@cache
def gathered(layout: Layout, axes: tuple[int, ...]) -> Layout:
    """The layout in which every thread holds all elements along some axes that warps told apart."""

    def alone(digit: Digit) -> bool:
        return any(digit.step[a] for a in axes)

    places: dict[str, list[Digit]] = {p: list(layout.digits(p)) for p in layout.places}
    rank = len(layout.shape)
    places["warp"] = [
        Digit(d.extent, (0,) * rank, d.is_bit) if alone(d) else d for d in places["warp"]
    ]
    new: list[Digit] = []
    for axis in reversed(axes):
        unit = tuple(int(k == axis) for k in range(rank))
        made = Layout.of(layout.shape, {"register": [(layout.shape[axis], unit)]})
        new += made.digits("register")
    places["register"] = [*new, *places.get("register", [])]
    return Layout.of(layout.shape, places)


def _split(op: ops.Reduce) -> tuple[Value, ...]:
    """Put the new operations in the place of `op`; return what stands for its results."""
    axis = op.axis
    kinds = [_tile(v) for v in op.sources]
    try:
        parts = parts_of(layout_of(kinds[0].layout), axis)
    except LayoutError as error:
        raise fail(
            "lower.layout",
            f"a reduction across warps of a tile held as {kinds[0].layout}: {error}",
            op.span,
        ) from error
    made: list[Op] = []

    def add(new: Op) -> tuple[Value, ...]:
        made.append(new)
        return new.results

    values = op.sources
    names = [r.name for r in op.results]
    layout = parts.layout
    if len(parts.extents) > 1:
        values = tuple(
            add(_rename(ops.Reshape, v, layout, v.name + "_parts", op))[0] for v in values
        )
    inner = [axis + i for i, warp in enumerate(parts.is_warp) if not warp]
    for at in reversed(inner):
        layout = dropped(layout, at)
        values = add(_reduce(op, values, at, layout, [n + "_part" for n in names]))
    axes = tuple(range(axis, axis + sum(parts.is_warp)))
    layout = gathered(layout, axes)
    values = tuple(
        _bring(op, v, layout, n + "_all", made) for v, n in zip(values, names, strict=True)
    )
    for at in reversed(axes):
        layout = dropped(layout, at)
        last = at == axis
        values = add(
            _reduce(op, values, at, layout, names if last else [n + "_part" for n in names])
        )
    block = op.parent
    assert block is not None
    at = block.ops.index(op)
    block.ops[at : at + 1] = made
    for new in made:
        new.parent = block
    return values


def _tile(value: Value) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type


def _held(value: Value, layout: Layout) -> TileType:
    text = text_of(layout) if layout.shape else ""
    return TileType(layout.shape, _tile(value).element, text)


def _rename(cls: type[Op], value: Value, layout: Layout, name: str, op: Op) -> Op:
    return cls((value,), (_held(value, layout),), {}, (), op.span, (name,))


def _reduce(
    op: ops.Reduce, values: tuple[Value, ...], axis: int, layout: Layout, names: list[str]
) -> Op:
    old = op.combine.block
    block = Block(tuple(a.type for a in old.arguments), tuple(a.name for a in old.arguments))
    for inner in clone_ops(old.ops, dict(zip(old.arguments, block.arguments, strict=True))):
        block.append(inner)
    types = tuple(_held(v, layout) for v in values)
    attributes = {**op.attributes, "axis": axis}
    return ops.Reduce((values,), types, attributes, (Region(block),), op.span, tuple(names))


def _bring(op: Op, value: Value, layout: Layout, name: str, made: list[Op]) -> Value:
    """Put what all warps have into each; truth values travel as numbers."""
    kind = _tile(value)
    if kind.element != I1:
        change = _rename(ops.ChangeLayout, value, layout, name, op)
        made.append(change)
        return change.results[0]
    unsigned = {"signedness": "unsigned"}
    wide = ops.Exti(
        (value,), (replace(kind, element=I32),), dict(unsigned), (), op.span, (value.name,)
    )
    change = _rename(ops.ChangeLayout, wide.result, layout, name, op)
    number = _tile(change.results[0])
    none = Dense.of_bits([0], number)
    zero = ops.Constant((), (number,), {"value": none}, (), op.span, ("none",))
    truth = ops.Cmpi(
        (change.results[0], zero.result),
        (_held(value, layout),),
        {"predicate": "not_equal", **unsigned},
        (),
        op.span,
        (name,),
    )
    made += [wide, change, zero, truth]
    return truth.result
