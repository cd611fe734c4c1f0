"""Write random kernels that are valid by construction.

A kernel is written without tokens first; `tokens` then places them by a policy. No address leaves
its buffer, no index its view, no operand is where an operation is undefined, and poison never
reaches what must be defined. What a kernel computes does not depend on the order in which blocks
run, if its tokens order what they must.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reftile.conformance.fuzz import handover
from reftile.conformance.fuzz.access import MODES, Accesses, update
from reftile.conformance.fuzz.choices import Choices, drawn, replayed, seeded
from reftile.conformance.fuzz.memory import Buffer, Role, make_route, pointer_route
from reftile.conformance.fuzz.program import Grid, Program, make_contents
from reftile.conformance.fuzz.statements import (
    Scope,
    write_results,
    write_return,
    write_statements,
)
from reftile.conformance.fuzz.subset import ALL, Subset
from reftile.conformance.fuzz.tokens import POLICIES, place_tokens
from reftile.conformance.fuzz.values import COMMON, SCALAR_I32, STORED, Writer

from reftile.ir import ops
from reftile.ir.build import Builder, make_kernel
from reftile.ir.core import Value
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import PointerType, TileType

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

GRIDS: tuple[Grid, ...] = ((2, 1, 1), (1, 1, 1), (3, 1, 1), (2, 2, 1), (4, 1, 1), (1, 2, 2))
I8 = DTYPES["i8"]


def make_program(choices: Choices) -> Program:
    """The program that some decisions stand for."""
    grid = choices.pick(GRIDS)
    blocks = grid[0] * grid[1] * grid[2]
    buffers = _declare(choices, blocks)
    arguments = [(b.name, TileType((), PointerType(b.dtype))) for b in buffers]
    scalars = [choices.between(1, 4) for _ in range(choices.below(3))]
    arguments += [(f"n{i}", SCALAR_I32) for i in range(len(scalars))]
    kernel = make_kernel("fuzzed", arguments)
    writer = Writer(choices, Builder(kernel.body.block))
    for buffer, value in zip(buffers, kernel.arguments, strict=False):
        buffer.argument = buffer.base = value
    writer.known[0].extend(kernel.arguments[len(buffers) :])
    accesses = Accesses()
    scope = Scope(writer, accesses, [b for b in buffers if b.role in ("input", "private", "sum")])
    _write_body(scope, buffers, grid)
    contents = make_contents(buffers, choices.below(1 << 16))
    program = Program(kernel, kernel, accesses.must, grid, buffers, contents, scalars)
    program.ops, program.accesses, program.seen = writer.used, accesses.seen, scope.seen
    program.policy = choices.weighted(POLICIES)
    program.kernel = place_tokens(program, program.policy, choices)
    program.recipe = choices.taken
    return program


def programs() -> SearchStrategy[Program]:
    """All programs, as a hypothesis strategy."""
    from hypothesis import strategies

    @strategies.composite
    def program(draw) -> Program:  # type: ignore[no-untyped-def]
        return make_program(drawn(draw))

    return program()


def program_of_seed(seed: int | str, subset: Subset = ALL) -> Program:
    """A program by seed; quicker than through hypothesis, and it cannot be shrunk."""
    return make_program(seeded(seed, subset))


def program_of_recipe(recipe: Sequence[int]) -> Program:
    """The program of decisions taken earlier."""
    return make_program(replayed(recipe))


# Buffers


def _declare(choices: Choices, blocks: int) -> list[Buffer]:
    buffers: list[Buffer] = []
    placeholder = Value(SCALAR_I32)

    def add(
        name: str, dtype: DType, role: Role, part: int, parts: int = 1, zero: bool = False
    ) -> Buffer:
        buffer = Buffer(name, dtype, role, part, placeholder, parts)
        buffer.fill = "zero" if zero else "random"
        buffers.append(buffer)
        return buffer

    parts = (16, 8, 32, 64, 48)
    for i in range(choices.between(1, 2)):
        add(f"private{i}", _dtype(choices), "private", choices.pick(parts), blocks)
    for i in range(choices.between(0, 2)):
        add(f"input{i}", _dtype(choices), "input", choices.pick(parts))
    if choices.chance(35):
        dtype = DTYPES[choices.pick(("i32", "i64", "f32", "f64"))]
        buffer = add("sum", dtype, "sum", choices.pick((8, 16, 1)), zero=dtype.is_float)
        buffer.mode = choices.pick(MODES[dtype.name])
    if choices.chance(25):
        dtype = choices.pick(handover.MESSAGE_TYPES)
        add("message", dtype, "data", choices.pick((4, 1, 8, 3)), blocks)
        add("flag", DTYPES["i32"], "flag", 1, blocks, zero=True)
    if choices.chance(15):
        part = choices.pick((4, 1, 3))
        add("parts", DTYPES["i32"], "data", part, blocks)
        add("counter", DTYPES["i32"], "counter", 1, zero=True)
        add("total", DTYPES["i32"], "data", part)
    return buffers


def _dtype(choices: Choices) -> DType:
    weights = [(DTYPES[n], 5) for n in COMMON]
    weights += [(DTYPES[n], 1) for n in choices.subset.dtypes(STORED)]
    return choices.weighted(weights)


# The body


def _write_body(scope: Scope, buffers: list[Buffer], grid: Grid) -> None:
    writer, choices = scope.writer, scope.writer.choices
    block = _write_block_number(writer, grid)
    for buffer in buffers:
        if buffer.role == "private":
            buffer.base, buffer.number = _own_part(writer, buffer, block), block
    blocks = grid[0] * grid[1] * grid[2]
    named = {b.name: b for b in buffers}
    if choices.below(30) < 29:  # here the simplest is to have some
        _write_conflicts(scope)
    if "message" in named and choices.chance(50):
        _write_message(scope, named, block, blocks)
    write_statements(scope, 9)
    if "message" in named and "message" not in scope.seen:
        _write_message(scope, named, block, blocks)
    write_return(scope)
    if "parts" in named:
        scope.seen["sum by the last block"] += 1
        trio = named["parts"], named["counter"], named["total"]
        handover.write_sum_by_last(writer, scope.accesses, trio, block, blocks)
    write_results(scope)
    writer.op(ops.Return)


def _write_message(scope: Scope, named: dict[str, Buffer], block: Value, blocks: int) -> None:
    scope.seen["message"] += 1
    found = handover.write_message(
        scope.writer, scope.accesses, named["message"], named["flag"], block, blocks
    )
    for value in found:
        scope.writer.keep(value)


def _write_block_number(writer: Writer, grid: Grid) -> Value:
    """The number of the block in the grid, the first axis running fastest."""
    x, y, z = writer.op(ops.GetTileBlockId).results
    writer.known[0].extend((x, y, z))
    if grid[1] * grid[2] == 1:
        return x
    if writer.choices.chance(50):
        width, height, _ = writer.op(ops.GetNumTileBlocks).results
    else:
        width, height = writer.number(grid[0]), writer.number(grid[1])
    row = writer.let(ops.Addi, writer.let(ops.Muli, z, height), y)
    number = writer.let(ops.Addi, writer.let(ops.Muli, row, width), x)
    writer.known[0].append(number)
    return number


def _own_part(writer: Writer, buffer: Buffer, block: Value) -> Value:
    """The pointer to the part of a block."""
    halves = buffer.dtype.elements_per_unit
    pointer = buffer.argument
    bytes_type = TileType((), PointerType(I8))
    if halves > 1:
        pointer = writer.let(ops.PtrToPtr, pointer, type=bytes_type)
    begin = writer.let(ops.Muli, block, writer.number(buffer.part // halves))
    pointer = writer.let(ops.Offset, pointer, begin)
    if halves > 1:
        pointer = writer.let(ops.PtrToPtr, pointer, type=TileType((), PointerType(buffer.dtype)))
    return pointer


def _write_conflicts(scope: Scope) -> None:
    """Two updates of one place: at least two pairs of accesses conflict."""
    writer = scope.writer
    private = [b for b in scope.buffers if b.role == "private"]
    buffer = writer.choices.pick(private)
    if buffer.dtype.elements_per_unit == 1:
        route = pointer_route(writer, buffer, distinct=True)
    else:
        route = make_route(writer, buffer, distinct=True)
    for _ in range(2):
        for value in update(writer, scope.accesses, route):
            writer.keep(value)
