"""Which accesses a kernel makes, and which of them tokens order: the fuzzer's own judge of races.

Each block is walked once; its accesses become `Instance`s with the bytes that they touch and, as a
set of bits, the instances that their token waits for. Nothing here is shared with the interpreter.

Branches that depend on a flag or counter are not taken at first; then, one at a time, each is taken
with each load that may have seen the message. Blocks are independent but for that, so this covers
all executions of the kernels that the generator writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from reftile.conformance.fuzz.evaluate import Guard, Looked, evaluate_op, unsigned
from reftile.conformance.fuzz.memory import Buffer

from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.dtypes import DType
from reftile.ir.types import (
    GatherScatterViewType,
    PartitionViewType,
    PointerType,
    StridedViewType,
    TensorViewType,
    TileType,
    TileViewType,
    TokenType,
)

Coordinates = tuple[int, int, int]
ACCESSES = frozenset(
    "load_ptr_tko store_ptr_tko load_view_tko store_view_tko atomic_rmw_tko atomic_cas_tko "
    "atomic_red_view_tko".split()
)
SPACE = 32
"""Bits of an address below the number of its buffer."""
MOST_STEPS = 20_000
FULL_SCOPE = ("device", "sys")


class Untraceable(Exception):
    """An address, a mask or a branch with accesses is not known beforehand."""


@dataclass(slots=True, eq=False)
class Instance:
    """One execution of an access.

    bytes: by buffer, a bit for each byte. token: the numbers of what it waits for, as bits.
    """

    op: Op
    block: int
    number: int
    bytes: dict[int, int]
    size: int
    reads: bool
    writes: bool
    scope: str
    ordering: str
    token: int
    repeats: bool

    @property
    def releases(self) -> bool:
        """True if others may synchronise with it."""
        return self.ordering in ("release", "acq_rel")

    @property
    def acquires(self) -> bool:
        """True if it may synchronise with others."""
        return self.ordering in ("acquire", "acq_rel")


@dataclass(slots=True)
class View:
    """A view at run time; for a view of tiles, in the order of the tile's axes."""

    base: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: TileViewType | None = None


@dataclass
class Walk:
    """What a block did. guards: by their order, the loads that each looked at."""

    block: int
    instances: list[Instance] = field(default_factory=list)
    guards: list[tuple[int, ...]] = field(default_factory=list)
    taken: int | None = None
    seen: int | None = None


def addresses_of(buffers: list[Buffer]) -> list[int]:
    """A number for the start of each buffer."""
    return [(i + 1) << SPACE for i in range(len(buffers))]


class Tracer:
    """Walks one block. `taken`: the number of the guard that is taken, `seen` by which load."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: list[Buffer],
        scalars: list[int],
        grid: Coordinates,
        block: int,
        taken: int | None = None,
    ) -> None:
        self.kernel, self.grid, self.taken = kernel, grid, taken
        self.id = (
            block % grid[0],
            block // grid[0] % grid[1],
            block // (grid[0] * grid[1]),
        )
        self.watched = {i for i, b in enumerate(buffers) if b.role in ("flag", "counter")}
        self.next_buffer = len(buffers) + 1 + 1000 * (block + 1)
        self.walk = Walk(block, taken=taken)
        self.env: dict[Value, Any] = {}
        self.steps = 0
        given = [np.int64(a) for a in addresses_of(buffers)] + [np.int64(s) for s in scalars]
        for value, number in zip(kernel.arguments, given, strict=True):
            self.env[value] = np.asarray(number)

    def run(self) -> Walk:
        """Walk the whole block."""
        self._block(self.kernel.body.block)
        return self.walk

    # Control

    def _block(self, block: Block) -> tuple[str, list[Any]]:
        for op in block.ops:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Untraceable("too many steps")
            if op.definition.is_terminator:
                return op.name, [self.env.get(v) for v in op.operands]
            ending = self._op(op)
            if ending is not None:
                return ending
        return "return", []

    def _op(self, op: Op) -> tuple[str, list[Any]] | None:
        control = {"if": self._if, "for": self._for, "loop": self._loop}.get(op.name)
        if control is not None:
            return control(op)
        values = [self.env.get(v) for v in op.operands]
        if op.name in ACCESSES:
            self._access(op)
        elif op.name == "get_tile_block_id":
            self._set(op, [np.asarray(np.int64(i)) for i in self.id])
        elif op.name == "get_num_tile_blocks":
            self._set(op, [np.asarray(np.int64(i)) for i in self.grid])
        elif op.results and isinstance(op.results[-1].type, TokenType):
            tokens = [v for v, o in zip(values, op.operands, strict=True) if _is_token(o)]
            self.env[op.results[-1]] = _union(tokens)
        elif op.name == "alloca":
            self.env[op.results[0]] = np.asarray(np.int64(self.next_buffer << SPACE))
            self.next_buffer += 1
        elif op.name.startswith("make_"):
            self.env[op.results[0]] = self._view(op, values)
        elif len(op.results) == 1:
            self.env[op.results[0]] = evaluate_op(op, values)
        return None

    def _set(self, op: Op, values: list[Any]) -> None:
        for result, value in zip(op.results, values, strict=True):
            self.env[result] = value

    def _if(self, op: Op) -> tuple[str, list[Any]] | None:
        condition: Any = self.env.get(op.operands[0])
        if isinstance(condition, Guard):
            number, looks = len(self.walk.guards), condition.instances
            self.walk.guards.append(looks)
            condition = np.asarray(np.int64(number == self.taken))
        if condition is None:
            if any(inner.name in ACCESSES for inner in op.walk()):
                raise Untraceable("a branch with accesses depends on data")
            if any(_is_token(r) for r in op.results):
                raise Untraceable("a branch on data yields a token")
            return None
        index = 0 if int(condition) else 1
        if index >= len(op.regions):
            return None
        ending, values = self._block(op.regions[index].block)
        if ending != "yield":
            return ending, values
        self._set(op, values)
        return None

    def _for(self, op: Op) -> tuple[str, list[Any]] | None:
        bounds = [self.env[v] for v in op.operands[:3] if self.env.get(v) is not None]
        if len(bounds) < 3:
            raise Untraceable("a bound depends on data")
        lower, upper, step = (int(b) for b in bounds)
        carried = [self.env.get(v) for v in op.operands[3:]]
        for counter in range(lower, upper, step):
            values = [np.asarray(np.int64(counter)), *carried]
            ending, carried = self._iteration(op.regions[0], values)
            if ending == "return":
                return ending, carried
        self._set(op, carried)
        return None

    def _loop(self, op: Op) -> tuple[str, list[Any]] | None:
        carried = [self.env.get(v) for v in op.operands]
        while True:
            ending, carried = self._iteration(op.regions[0], carried)
            if ending == "return":
                return ending, carried
            if ending == "break":
                self._set(op, carried)
                return None

    def _iteration(self, region: Region, values: list[Any]) -> tuple[str, list[Any]]:
        for argument, value in zip(region.block.arguments, values, strict=True):
            self.env[argument] = value
        return self._block(region.block)

    # Accesses

    def _view(self, op: Op, values: list[Any]) -> View | None:
        type = op.results[0].type
        if isinstance(type, TensorViewType):
            if any(v is None for v in values):
                raise Untraceable("a view depends on data")
            numbers = iter(int(v) for v in values[1:])
            shape = tuple(next(numbers) if d is None else d for d in type.shape)
            strides = tuple(next(numbers) if d is None else d for d in type.strides)
            assert isinstance(type.element, DType)
            return View(int(values[0]), type.element, shape, strides)
        assert isinstance(type, TileViewType)
        tensor: View = values[0]
        order = range(len(tensor.shape))
        if isinstance(type, (PartitionViewType, StridedViewType)):
            order = type.dim_map
        shape = tuple(tensor.shape[d] for d in order)
        strides = tuple(tensor.strides[d] for d in order)
        return View(tensor.base, tensor.dtype, shape, strides, type)

    def _access(self, op: Op) -> None:
        places, size = self._places(op)
        tokens = [self.env[v] for v in op.operands if _is_token(v)]
        token = _union(tokens)
        number = len(self.walk.instances)
        found, repeats = _bytes(places, size)
        reads = not op.name.startswith("store")
        writes = not op.name.startswith("load")
        scope, ordering = str(op.attributes.get("scope", "")), str(op.attributes["ordering"])
        repeats = repeats and not _is_sub_byte(op)
        self.walk.instances.append(
            Instance(
                op,
                self.walk.block,
                number,
                found,
                size,
                reads,
                writes,
                scope,
                ordering,
                token,
                repeats,
            )
        )
        for result in op.results:
            self.env[result] = None
        self.env[op.results[-1]] = token | 1 << number
        if len(op.results) > 1 and any((b - 1) in self.watched for b in found):
            self.env[op.results[0]] = Looked((number,))

    def _places(self, op: Op) -> tuple[Any, int]:
        """The addresses of the elements that are accessed, and the size of each."""
        views = [v for v in op.operands if isinstance(v.type, TileViewType)]
        if views:
            return self._places_in_view(op, self.env[views[0]])
        pointers = self.env.get(op.operands[0])
        type = op.operands[0].type
        assert isinstance(type, TileType) and isinstance(type.element, PointerType)
        mask = getattr(op, "mask", None)
        active = np.ones(type.shape, bool)
        if mask is not None:
            if self.env.get(mask) is None:
                raise Untraceable("a mask depends on data")
            active = np.asarray(self.env[mask]) != 0
        if pointers is None:
            raise Untraceable("an address depends on data")
        return np.broadcast_to(pointers, type.shape)[active], type.element.pointee.storage.itemsize

    def _places_in_view(self, op: Op, view: View) -> tuple[Any, int]:
        index = [self.env.get(v) for v in getattr(op, "index")]  # noqa: B009
        if any(i is None for i in index):
            raise Untraceable("an index depends on data")
        type = view.type
        assert type is not None
        position = np.zeros(type.tile, np.int64)
        inside = np.ones(type.tile, bool)
        for axis, given in enumerate(index):
            operand = getattr(op, "index")[axis].type  # noqa: B009
            rows = _rows(type, axis, unsigned(given, operand.dtype))
            rows = rows.reshape([-1 if a == axis else 1 for a in range(len(type.tile))])
            inside &= (rows >= 0) & (rows < view.shape[axis])
            position = position + rows * view.strides[axis]
        halves, size = view.dtype.elements_per_unit, view.dtype.storage.itemsize
        return view.base + position[inside] // halves * size, size


def _rows(type: TileViewType, axis: int, index: Any) -> Any:
    """The elements of the tensor along an axis of the tile."""
    count = np.arange(type.tile[axis], dtype=np.int64)
    match type:
        case GatherScatterViewType():
            return index if axis == type.sparse_dim else index + count
        case StridedViewType():
            return index * type.traversal[axis] + count
        case _:
            return index * type.tile[axis] + count


def _is_token(value: Value) -> bool:
    return isinstance(value.type, TokenType)


def _union(tokens: list[Any]) -> int:
    total = 0
    for token in tokens:
        total |= token
    return total


def _is_sub_byte(op: Op) -> bool:
    types = [v.type for v in op.operands if isinstance(v.type, TileViewType)]
    return any(isinstance(t.element, DType) and t.element.elements_per_unit > 1 for t in types)


def _bytes(places: Any, size: int) -> tuple[dict[int, int], bool]:
    """By buffer, the bytes that are touched; and whether an element is named twice."""
    flat = np.asarray(places).reshape(-1)
    once = np.unique(flat)
    found: dict[int, int] = {}
    for buffer in np.unique(once >> SPACE):
        begins = once[once >> SPACE == buffer] & ((1 << SPACE) - 1)
        if begins.size and begins[-1] > 1 << 20:
            raise Untraceable("an address outside its buffer")
        marks = np.zeros(int(begins[-1]) + size, np.uint8)
        marks[(begins[:, None] + np.arange(size)).reshape(-1)] = 1
        packed = np.packbits(marks, bitorder="little").tobytes()
        found[int(buffer)] = int.from_bytes(packed, "little")
    return found, once.size < flat.size
