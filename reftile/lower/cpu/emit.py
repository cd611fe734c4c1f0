"""From a verified tile kernel to the source of one function.

    program = generate(kernel)
    program.source      what numba compiles
    program.arguments   how the launch packs what it is given

The function runs blocks until none is left: threads take them in chunks from a shared counter. Its
parameters are one array of 64-bit numbers (see `FIRST_ARGUMENT`) and the address of the thread's
scratch memory; it gives 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.dtypes import DType
from reftile.ir.formatting import check_format
from reftile.ir.types import PointerType, TensorViewType, TileType, TokenType
from reftile.lower.cpu import (
    atomics,
    loads,
    ordering,
    products,
    pure,
    reductions,
    stores,
    views,
)
from reftile.lower.cpu.builder import Builder, Frame, Unsupported
from reftile.lower.cpu.control import Control
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import Buffer, Literal_, Root, kind_of
from reftile.lower.cpu.views import TensorView

FIRST_ARGUMENT = 14
"""Slots of the parameters in front of the arguments: the extents of the grid, the number of blocks,
blocks in a chunk, the next block, the fault that stopped the launch, the addresses of sgemm, dgemm,
sched_yield and the constants, whether more is written than the caches hold, the address of what
prints, and how many neighbours share a product."""


SCRATCH_ALIGNMENT = 4096
"""What the address of scratch memory is a multiple of."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What ends a launch when the function says so: a rule at an operation."""

    op: Op
    rule: str


@dataclass(frozen=True, slots=True)
class Printed:
    """An operation that prints, and where its tiles are in scratch memory when it does."""

    format: str
    types: tuple[TileType, ...]
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel as source.

    source: of the function `run`. accessors: the functions that a factory makes, by name.
    scratch_bytes: of each thread. constants: their bytes. faults: by number, from 1.
    waits: a block may wait for another. globals: symbols, in the order of their slots, which follow
    those of the arguments. uses_blas: it calls sgemm or dgemm. written: groups of arrays that it
    writes to. prints: what prints, by number from 0. most_shared: how many blocks, one behind the
    other along x, may share a product; 0 if none do.
    """

    source: str
    scratch_bytes: int
    constants: bytes
    faults: tuple[Fault, ...]
    waits: bool
    globals: tuple[str, ...]
    uses_blas: bool
    written: frozenset[int]
    prints: tuple[Printed, ...]
    most_shared: int


def generate(kernel: Kernel, groups: tuple[int, ...] = (), blas: bool = True) -> Program:
    """Write the source of a verified kernel.

    groups: for each argument that is a pointer or a view, a number that it shares with those whose
    memory it may overlap; all different if not given. blas: call it for products.

    Raises:
        ReftileError: rule `cpu.unsupported`, with the operation and why.
    """
    if kernel.level != "tile":
        message = f"`{kernel.name}` is a {kernel.level} kernel, and the CPU runs tile kernels"
        raise ReftileError(Diagnosis("cpu.unsupported", message, kernel.span))
    return _Generator(kernel, groups, blas).run()


class _Generator:
    def __init__(self, kernel: Kernel, groups: tuple[int, ...], blas: bool) -> None:
        self.kernel = kernel
        self.b = Builder(blas)
        self.control = Control(self.b, self.emit)
        self.groups = groups
        self.globals: list[str] = []
        self.head: list[str] = []

    def run(self) -> Program:
        b, block = self.b, self.kernel.body.block
        b.survey(block)
        self._arguments()
        self._global_roots()
        find_roots(b, block)
        b.depth = 3
        b.frames.append(Frame(block))
        b.loop_depth = 0
        self.emit(block)
        b.line("continue")
        return self._finish()

    # Arguments

    def _arguments(self) -> None:
        b, slot, number = self.b, FIRST_ARGUMENT, 0
        for value in self.kernel.arguments:
            type = value.type
            if isinstance(type, TensorViewType):
                root = self._root(slot, number)
                number += 1
                texts: list[str] = []
                for place, size in enumerate((*type.shape, *type.strides)):
                    name = b.name("n")
                    self.head.append(f"{name} = get(params, {slot + 1 + place})")
                    texts.append(name if size is None else str(size))
                rank = type.rank
                shape, strides = tuple(texts[:rank]), tuple(texts[rank:])
                b.env[value] = TensorView(type, root, root.base, "0", shape, strides)
                slot += 1 + 2 * rank
                continue
            assert isinstance(type, TileType)
            if isinstance(type.element, PointerType):
                root = self._root(slot, number)
                number += 1
                b.env[value] = Literal_((), type.element, "i64(0)", root)
                b.roots[value] = root
            else:
                name = b.name("a")
                self.head.append(f"{name} = {_unpacked(f'get(params, {slot})', type.dtype)}")
                b.env[value] = Literal_((), type.element, name)
            slot += 1
        self.next_slot = slot

    def _root(self, slot: int, number: int) -> Root:
        b = self.b
        base = b.name("m")
        self.head.append(f"{base} = pointer(get(params, {slot}))")
        group = self.groups[number] if self.groups else number
        alone = not self.groups or self.groups.count(group) == 1
        return Root(base, b.scope() if alone else -1, group)

    def _global_roots(self) -> None:
        b = self.b
        for op in self.kernel.walk():
            if op.name == "get_global":
                symbol = str(op.attributes["symbol"])
                if symbol not in self.globals:
                    self.globals.append(symbol)
                    slot = self.next_slot + len(self.globals) - 1
                    self.head.append(f"g_{symbol} = pointer(get(params, {slot}))")
                b.roots[op.results[0]] = Root(f"g_{symbol}", -1, -2 - self.globals.index(symbol))
            elif op.name == "alloca":
                b.roots[op.results[0]] = Root(b.name("s_alloca"), b.scope(), -1000 - b.scopes)

    # Operations

    def emit(self, block: Block) -> None:
        """Write all operations of a block but its terminator."""
        b = self.b
        for place, op in enumerate(block.ops[:-1]):
            b.frames[-1].position = place
            self.operation(op, block)
            b.frames[-1].position = place
            b.release()

    def operation(self, op: Op, block: Block) -> None:
        """Write one operation."""
        b = self.b
        for result in op.results:
            if isinstance(result.type, TokenType):
                b.env[result] = None
        match op.name:
            case "get_tile_block_id":
                for value, name in zip(op.results, ("bx", "by", "bz"), strict=True):
                    b.env[value] = Literal_((), value.type.element, name)  # type: ignore[attr-defined]
            case "get_num_tile_blocks":
                for value, name in zip(op.results, ("gx", "gy", "gz"), strict=True):
                    b.env[value] = Literal_((), value.type.element, name)  # type: ignore[attr-defined]
            case "make_token" | "join_tokens" | "gdc_launch_dependents_tko" | "gdc_wait_tko":
                pass
            case "memory_fence_alias_tko":
                b.settle(None)
            case "assume":
                b.env[op.results[0]] = b.env[op.operands[0]]
            case "assert":
                self._assert(op)
            case "make_tensor_view":
                views.make_tensor_view(b, op)
            case "make_partition_view" | "make_strided_view" | "make_gather_scatter_view":
                views.make_tile_view(b, op)
            case "get_index_space_shape" | "get_tensor_shape":
                views.get_extents(b, op)
            case "load_view_tko":
                loads.load_view(b, op, block)
            case "load_ptr_tko":
                loads.load_ptr(b, op, block)
            case "store_view_tko":
                stores.store_view(b, op, block)
            case "store_ptr_tko":
                stores.store_ptr(b, op, block)
            case "atomic_rmw_tko":
                atomics.atomic_rmw(b, op, block)
            case "atomic_cas_tko":
                atomics.atomic_cas(b, op, block)
            case "atomic_red_view_tko":
                atomics.atomic_red_view(b, op, block)
            case "get_global":
                self._pointer(op)
            case "alloca":
                self._alloca(op)
            case "if":
                self.control.run_if(op, block)
            case "for":
                self.control.run_for(op, block)
            case "loop":
                self.control.run_loop(op, block)
            case "reduce":
                reductions.reduce(b, op, block)
            case "scan":
                reductions.scan(b, op, block)
            case "sort":
                ordering.sort(b, op, block)
            case "topk":
                ordering.topk(b, op, block)
            case "argmax" | "argmin":
                ordering.extreme_place(b, op, block)
            case "histogram":
                ordering.histogram(b, op, block)
            case "mmaf" | "mmaf_scaled" | "mmaf_sparse":
                products.mmaf(b, op, block)
            case "mmai":
                products.mmai(b, op, block)
            case "print_tko":
                self._print(op)
            case _:
                if not op.definition.meaning:
                    raise Unsupported(op, "it needs several devices")
                pure.define(b, op, block)

    def _assert(self, op: Op) -> None:
        b = self.b
        condition = b.tile(op.operands[0])
        if not condition.shape:
            b.fail_if(op, f"noti({b.text(op.operands[0])})", "assert.failed")
            return
        good = b.scalar("True", "good")

        def fill(nest: Nest) -> None:
            nest.bind(good, len(nest.levels) - 1)
            nest.do(f"{good} = andi({good}, {condition.at(nest.index, nest)})")

        b.sweep(condition.shape, [condition], fill)
        b.fail_if(op, f"noti({good})", "assert.failed")

    def _print(self, op: Op) -> None:
        """Put the tiles into scratch memory, and call the host, which reads them there."""
        b = self.b
        values = [v for v in op.operands if isinstance(v.type, TileType)]
        try:
            check_format(str(op.attributes["format"]), len(values))
        except ValueError as error:
            raise ReftileError(Diagnosis("print_tko.format", str(error), op.span)) from None
        buffers: list[Buffer] = []
        for value in values:
            tile = views.absolute(b.tile(value))
            buffers.append(b.buffer(tile.shape, tile.kind, last=b.frames[-1].position))
            b.store_into(tile, buffers[-1])
        b.prints.append((op, tuple(buffers)))
        b.line(f"say(get(params, 12), {len(b.prints) - 1}, block, scratch)")

    def _pointer(self, op: Op) -> None:
        value = op.results[0]
        type = value.type
        assert isinstance(type, TileType)
        self.b.env[value] = Literal_((), type.element, "i64(0)", self.b.roots[value])

    def _alloca(self, op: Op) -> None:
        b = self.b
        type = op.results[0].type
        assert isinstance(type, TileType) and isinstance(type.element, PointerType)
        count = int(op.attributes["num_elem"])  # type: ignore[call-overload]
        dtype = type.element.pointee
        size = -(-count // dtype.elements_per_unit) * dtype.storage.itemsize
        alignment = int(op.attributes["alignment"])  # type: ignore[call-overload]
        size = -(-size // 64) * 64
        root = b.roots[op.results[0]]
        assert root is not None
        if alignment <= SCRATCH_ALIGNMENT:
            offset = -(-b.scratch_bytes // max(64, alignment)) * max(64, alignment)
            b.scratch_bytes = offset + size
            self.head.append(f"{root.base} = pointer(scratch + {offset})")
        else:
            last = b.scratch_bytes + alignment - 1
            b.scratch_bytes += alignment + size
            place = f"andi(addi(scratch, i64({last})), i64({-alignment}))"
            self.head.append(f"{root.base} = pointer({place})")
        self._pointer(op)

    # The whole

    def _finish(self) -> Program:
        b = self.b
        head = [
            "total = get(params, 3)",
            "chunk = get(params, 4)",
            "gx = i32_of_signed(get(params, 0))",
            "gy = i32_of_signed(get(params, 1))",
            "gz = i32_of_signed(get(params, 2))",
            "blas_sgemm = get(params, 7)",
            "blas_dgemm = get(params, 8)",
            "constants = pointer(get(params, 10))",
            "streams = ine(get(params, 11), 0)",
            "run = get(params, 13)",
            *(f"{name} = i64(0)" for name in b.lasting),
            "nowhere = pointer(0)",
            *self.head,
            *(f"{name} = {text}" for text, name in b.constants_of_launch.items()),
            *(f"{s.base} = pointer(scratch + {s.offset})" for s in b.slots),
        ]
        coordinates = [
            "bx = i32_of_signed(urem_by(block, i64_of_signed(gx)))",
            "by = i32_of_signed(urem_by(udiv_by(block, i64_of_signed(gx)), i64_of_signed(gy)))",
            "bz = i32_of_signed(udiv_by(block, muli(i64_of_signed(gx), i64_of_signed(gy))))",
            *(["left = False"] if b.leaves else []),
        ]
        coordinates = _used(coordinates, b.lines)
        lines = [
            "def run(params, scratch):",
            *(f"    {line}" for line in _used(head, [*coordinates, *b.lines, "total, chunk"])),
            "    while True:",
            "        first = take(params, 5, chunk)",
            "        if first >= total or stopped(params):",
            "            break",
            "        for block in range(first, min(first + chunk, total)):",
            *(f"            {line}" for line in coordinates),
        ]
        names: list[str] = []
        for (factory, *key), name in b.accessors.items():
            arguments = ", ".join(repr(k) for k in key)
            total = f", {b.scopes}" if factory in SCOPED else ""
            names.append(f"{name} = {factory}({arguments}{total})")
        source = "\n".join([*names, "", "", *lines, *b.lines, "    return 0", ""])
        # A literal has the type of positions as it stands.
        source = _WIDE.sub("(", source)
        return Program(
            source,
            b.scratch_bytes,
            bytes(b.constants),
            tuple(Fault(op, rule) for op, rule in b.faults),
            b.waits,
            tuple(self.globals),
            any(f"blas_{k}gemm" in line for line in b.lines for k in "sd"),
            frozenset(b.written),
            tuple(_printed(op, buffers) for op, buffers in b.prints),
            b.most_shared,
        )


def _printed(op: Op, buffers: tuple[Buffer, ...]) -> Printed:
    types = tuple(v.type for v in op.operands if isinstance(v.type, TileType))
    return Printed(str(op.attributes["format"]), types, buffers)


SCOPED = frozenset({"loader", "storer", "masked_loader", "masked_storer", "half_storer"})


_WIDE = re.compile(r"\bi64\(")


def _used(assignments: list[str], below: list[str]) -> list[str]:
    """Those of some assignments that something below reads."""
    names = set(_NAME.findall("\n".join(below)))
    kept: list[str] = []
    for line in reversed(assignments):
        if line.split(" = ", 1)[0] in names:
            kept.append(line)
            names.update(_NAME.findall(line))
    return kept[::-1]


_NAME = re.compile(r"[A-Za-z_]\w*")


def _unpacked(text: str, dtype: DType) -> str:
    """A scalar out of 64 bits."""
    kind = kind_of(dtype)
    match kind:
        case "f64":
            return f"float64_of_bits({text})"
        case "f32":
            return f"float32_of_bits(i32_of_signed({text}))"
        case "b1":
            return f"ine({text}, i64(0))"
        case _:
            return f"{kind}_of_signed({text})"


def find_roots(b: Builder, block: Block) -> None:
    """Find the memory that the pointers of loops and branches lead to, where it is one alone."""
    known: dict[Value, Root | None] = dict(b.roots)
    changed = True
    while changed:
        changed = False
        for op in block.walk():
            changed |= _propagate(op, known)
    b.roots.update(known)


def _propagate(op: Op, known: dict[Value, Root | None]) -> bool:
    changed = False

    def join(value: Value, sources: list[Value]) -> None:
        nonlocal changed
        if not isinstance(value.type, TileType) or not isinstance(value.type.element, PointerType):
            return
        found = [known[s] for s in sources if s in known]
        if not found:
            return
        root = found[0] if all(f is found[0] for f in found) else None
        if value not in known or (known[value] is not None and root is None):
            known[value] = root
            changed = True

    if op.name in ("int_to_ptr", "load_view_tko", "load_ptr_tko", "atomic_rmw_tko"):
        for result in op.results:
            if isinstance(result.type, TileType) and isinstance(result.type.element, PointerType):
                known.setdefault(result, None)
    elif op.name in ("for", "loop"):
        body = op.regions[0].block
        initial = op.operands[3:] if op.name == "for" else op.operands
        arguments = body.arguments[1:] if op.name == "for" else body.arguments
        ends = [o for o in body.walk() if o.name == "continue" and _loop_of(o) is op]
        for place, argument in enumerate(arguments):
            join(argument, [initial[place], *(e.operands[place] for e in ends)])
        exits = [o for o in body.walk() if o.name == "break" and _loop_of(o) is op]
        for place, result in enumerate(op.results):
            if op.name == "for":
                join(result, [arguments[place]])
            else:
                join(result, [e.operands[place] for e in exits])
    elif op.name == "if":
        ends = [r.block.ops[-1] for r in op.regions if r.block.ops[-1].name == "yield"]
        for place, result in enumerate(op.results):
            join(result, [e.operands[place] for e in ends])
    elif not op.regions:
        for result in op.results:
            pointers = [
                v
                for v in op.operands
                if isinstance(v.type, TileType) and isinstance(v.type.element, PointerType)
            ]
            join(result, pointers)
    return changed


def _loop_of(op: Op) -> Op | None:
    """The innermost loop around an operation."""
    at: Op | None = op
    while at is not None:
        region = at.parent.parent if at.parent is not None else None
        above = region.parent if region is not None else None
        at = above if isinstance(above, Op) else None
        if at is not None and at.name in ("for", "loop"):
            return at
    return None
