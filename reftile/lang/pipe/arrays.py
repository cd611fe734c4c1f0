"""Arrays of the kernel's, and regions of them that copies name by their first element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from reftile.ir.attributes import Dense
from reftile.ir.core import Op, Value
from reftile.ir.types import PartitionViewType
from reftile.lang.dtypes import DType, int32
from reftile.lang.foreign import ForeignValue
from reftile.lang.pipe.block import BlockShape, History, shape_of
from reftile.lang.pipe.common import error, scalar
from reftile.lang.pipe.places import WholeArray, make_tensor
from reftile.lang.pipe.values import TensorView, TileView, named_view
from reftile.lang.trace import Trace
from reftile.lang.values import Array, Tile, as_items, describe


@dataclass(frozen=True, slots=True, eq=False)
class GlobalArray(WholeArray):
    """An array in global memory. `a[row, column]` is the region that begins there."""

    array: Array

    def describe(self) -> str:
        """Name the value in a message."""
        return describe(self.array)

    def _known(self) -> Mapping[str, object]:
        array = self.array
        return {
            "shape": array.shape,
            "strides": array.strides,
            "dtype": array.dtype,
            "ndim": array.ndim,
        }

    def attributes(self) -> tuple[str, ...]:
        """Those of an array."""
        return tuple(self._known())

    def attribute(self, t: Trace, name: str) -> object:
        """Shape, strides, dtype, rank."""
        return self._known()[name]

    def set_item(self, t: Trace, index: object, value: object) -> None:
        """Elements are not written one by one."""
        raise error(
            t,
            "region",
            f"elements of {self.describe()} are not assigned",
            "write a fragment, and copy it: copy(fragment, C[row, column])",
        )

    def item(self, t: Trace, index: object) -> object:
        """The region that begins at an element; axes left out begin at 0."""
        items = as_items(index)
        if any(isinstance(i, slice) for i in items):
            raise error(
                t,
                "region",
                "a region is named by its first element, found a slice",
                "the other side of the copy says how large it is: A[row, column]",
            )
        if len(items) > self.array.ndim:
            raise error(t, "region", f"{self.describe()} has no element at {len(items)} indices")
        padded = (*items, *(0,) * (self.array.ndim - len(items)))
        return Region(self, padded)


@dataclass(frozen=True, slots=True, eq=False)
class Region(ForeignValue):
    """A part of an array from an element on; the other side of a copy says how large it is."""

    array: GlobalArray
    start: tuple[object, ...]

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a region of `{self.array.array.name}`"

    def advice(self) -> str:
        """It is memory."""
        return "copy it to a fragment first: copy(A[row, column], fragment)"

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.array.array.dtype

    def view(
        self, t: Trace, extents: tuple[int, ...], further: Tile | None = None
    ) -> tuple[TileView, tuple[Value, ...]]:
        """The array cut into tiles of `extents`, aligned at the last axis, and this one's index.

        further: how many tiles further it is along the tile's first axis.
        """
        rank = self.array.array.ndim
        if len(extents) > rank:
            raise error(
                t,
                "copy_shape",
                f"{extents} elements do not fit {self.array.describe()}",
                "the array needs as many axes as the tile",
            )
        tile = (1,) * (rank - len(extents)) + extents
        view = tile_view(t, self.array, tile)
        index = [
            self._index(t, axis, start, extent)
            for axis, (start, extent) in enumerate(zip(self.start, tile, strict=True))
        ]
        if further is not None:
            first = rank - len(extents)
            index[first] = t.value("addi", index[first], further.value)
        return view, tuple(index)

    def _index(self, t: Trace, axis: int, start: object, extent: int) -> Value:
        found = quotient(t, scalar(t, start, "the start of a region"), extent)
        if found is None:
            raise error(
                t,
                "copy_offset",
                f"axis {axis} of `{self.array.array.name}` is copied in tiles of {extent}, and "
                "where this one begins is not seen to be a multiple of that",
                f"write the offset as a product with {extent}: A[row * {extent}, ...]",
            )
        return found


def as_region(t: Trace, value: object) -> object:
    """A whole array is the region from its first element on."""
    if isinstance(value, GlobalArray):
        return value.item(t, 0)
    return value


def tile_view(t: Trace, source: GlobalArray, tile: tuple[int, ...]) -> TileView:
    """The array cut into tiles; made once, at the top of the kernel. Zeros lie outside."""
    shape = shape_of(t)
    array = source.array

    def whole() -> object:
        return make_tensor(t, array.pointer, array.dtype, array.shape, array.strides, "read_write")

    def cut() -> object:
        tensor = cast("TensorView", shape.once(("tensor", array.pointer), whole))
        kind = PartitionViewType(tile, tensor.type, tuple(range(len(tile))), "zero")
        value = t.value("make_partition_view", tensor.value, types=[kind])
        return TileView(named_view(t, value, array.name), array.dtype)

    shape.once(("tensor", array.pointer), whole)
    return cast("TileView", shape.once(("tiles", array.pointer, tile), cut))


def history_of(shape: BlockShape, array: GlobalArray) -> History:
    """What the memory of an array has been through."""
    key = ("history", array.array.pointer)
    return cast(
        "History", shape.once(key, lambda: History.of(shape, array.array.name, shape.start))
    )


def quotient(t: Trace, value: Value, by: int) -> Value | None:
    """`value / by`, if `value` is seen to be a multiple of it: by products and sums of such."""
    if by == 1:
        return value
    op = value.owner
    if not isinstance(op, Op):
        return None
    number = _constant(value)
    if number is not None:
        return t.constant(number // by, int32) if number % by == 0 else None
    if op.name in ("addi", "subi"):
        parts = [quotient(t, v, by) for v in op.operands]
        if parts[0] is None or parts[1] is None:
            return None
        return t.value(op.name, parts[0], parts[1])
    if op.name == "muli":
        return _quotient_of_product(t, op, by)
    return None


def _quotient_of_product(t: Trace, op: Op, by: int) -> Value | None:
    for one, other in (op.operands, op.operands[::-1]):
        factor = _constant(one)
        if factor is not None and factor % by == 0:
            rest = factor // by
            return other if rest == 1 else t.value("muli", other, t.constant(rest, int32))
        if factor is not None and by % factor == 0 and factor > 0:
            found = quotient(t, other, by // factor)
            if found is not None:
                return found
    for one, other in (op.operands, op.operands[::-1]):
        found = quotient(t, one, by)
        if found is not None:
            return t.value("muli", found, other)
    return None


def _constant(value: Value) -> int | None:
    op = value.owner
    dense = op.attributes.get("value") if isinstance(op, Op) else None
    if not isinstance(dense, Dense) or dense.shape:
        return None
    return int(cast("int", dense.values().reshape(-1)[0]))
