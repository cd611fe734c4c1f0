"""The interpreter against the memory model: its runs are executions, its reports are races.

Random event programs become kernels. The explorer knows all their executions and races. Under any
schedule the interpreter must give one of the outcomes, and report a race only if there is one.
"""

from __future__ import annotations

import os

import numpy as np

from reftile.interp.launch import interpret
from reftile.interp.model.events import Access, Op, Program
from reftile.interp.model.explore import explore
from reftile.interp.model.values import TRUE, Bin, Const, Expr, Reg
from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from tests.interp.random_programs import random_program

COUNT = int(os.environ.get("REFTILE_MODEL_PROGRAMS", "60"))
SENTINEL = -99
SCOPES = {"block": "tl_blk", "device": "device", "sys": "sys"}
CALCULATION = {"+": "addi", "==": "cmpi"}


class Writer:
    """Writes an event program as a kernel: a branch for each block, registers stored at the end."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.count = 0
        self.cells: dict[str, int] = {}
        self.values: dict[str, str] = {}
        for block in program.blocks:
            for op in block.ops:
                for access in op.accesses:
                    if access.register:
                        self.cells[access.register] = len(self.cells)

    def emit(self, text: str) -> None:
        self.lines.append(text)

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def define(self, text: str, type: str) -> str:
        name = self.name()
        self.emit(f"{name} = {text} : {type}")
        return name

    def constant(self, value: int) -> str:
        return self.define(f"constant {{value = {value}}}", "tile<i32>")

    def module(self) -> Module:
        self.emit("tile kernel @k(%x: tile<ptr<i32>>, %out: tile<ptr<i32>>) {")
        self.emit("%bx, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>")
        for number, block in enumerate(self.program.blocks):
            mine = self.compare("%bx", self.constant(number))
            self.emit(f"if {mine} then {{")
            tokens: dict[str, str] = {}
            for op in block.ops:
                tokens[op.name] = self.op(op, tokens)
            self.emit("yield\n}")
        self.emit("return\n}")
        return parse("\n".join(self.lines))

    def compare(self, lhs: str, rhs: str) -> str:
        how = "{predicate = equal, signedness = signed}"
        return self.define(f"cmpi {lhs}, {rhs} {how}", "tile<i1>")

    def expression(self, expr: Expr) -> str:
        match expr:
            case Const(value):
                return self.constant(value)
            case Reg(name):
                return self.values[name]
            case Bin("+", lhs, rhs):
                added = f"addi {self.expression(lhs)}, {self.expression(rhs)}"
                return self.define(added, "tile<i32>")
            case Bin("==", lhs, rhs):
                return self.compare(self.expression(lhs), self.expression(rhs))
            case _:
                raise NotImplementedError(str(expr))

    def tile(self, exprs: list[Expr | None]) -> str:
        parts = [
            self.define(f"reshape {self.expression(e)}", "tile<1xi32>")
            for e in exprs
            if e is not None
        ]
        if len(parts) == 1:
            return parts[0]
        return self.define(f"cat {parts[0]}, {parts[1]} {{axis = 0}}", "tile<2xi32>")

    def op(self, op: Op, tokens: dict[str, str]) -> str:
        """Write an operation; give its token, or what it waits for if it is not executed."""
        taken = [tokens[e.op] for e in op.after]
        before = "make_token" if not taken else f"join_tokens {', '.join(taken)}"
        token = self.define(before, "token")
        if op.guard == TRUE:
            return self.access(op, token)
        guard = self.expression(op.guard)
        result = self.name()
        self.emit(f"{result} = if {guard} : token then {{")
        inner = self.access(op, token)
        self.emit(f"yield {inner}\n}} otherwise {{\nyield {token}\n}}")
        return result

    def access(self, op: Op, token: str) -> str:
        accesses = op.accesses
        n = len(accesses)
        places = ", ".join(str(a.location.start // 4) for a in accesses)
        index = self.define(f"constant {{value = [{places}]}}", f"tile<{n}xi32>")
        base = self.define("reshape %x", "tile<1xptr<i32>>")
        wide = self.define(f"broadcast {base}", f"tile<{n}xptr<i32>>") if n > 1 else base
        at = self.define(f"offset {wide}, {index}", f"tile<{n}xptr<i32>>")
        how = f"ordering = {op.order}"
        if op.scope is not None:
            how += f", scope = {SCOPES[op.scope]}"
        result, after = self.name(), self.name()
        tile = f"tile<{n}xi32>"
        if accesses[0].kind == "store":
            value = self.tile([a.value for a in accesses])
            self.emit(f"{after} = store_ptr_tko {at}, {value}, token={token} {{{how}}} : token")
            return after
        if accesses[0].kind == "load":
            text = f"load_ptr_tko {at}, token={token} {{{how}}}"
        elif accesses[0].kind == "rmw":
            value = self.tile([a.value for a in accesses])
            mode = accesses[0].modify
            text = f"atomic_rmw_tko {at}, {value}, token={token} {{{how}, mode = {mode}}}"
        else:
            wanted = self.tile([a.compare for a in accesses])
            value = self.tile([a.value for a in accesses])
            text = f"atomic_cas_tko {at}, {wanted}, {value}, token={token} {{{how}}}"
        self.emit(f"{result}, {after} = {text} : {tile}, token")
        for i, access in enumerate(accesses):
            self.keep(access, result, i)
        return after

    def keep(self, access: Access, result: str, index: int) -> None:
        part = self.define(f"extract {result}, [{self.constant(index)}]", "tile<1xi32>")
        value = self.define(f"reshape {part}", "tile<i32>")
        self.values[access.register] = value
        cell = self.constant(self.cells[access.register])
        place = self.define(f"offset %out, {cell}", "tile<ptr<i32>>")
        self.emit(f"{self.name()} = store_ptr_tko {place}, {value} {{ordering = weak}} : token")


def can_be_written(program: Program) -> bool:
    """One device, and one mode for each read-modify-write."""
    return all(b.device == 0 for b in program.blocks) and all(
        len({a.modify for a in op.accesses}) == 1 for b in program.blocks for op in b.ops
    )


RUNS = [("program", 0), *(("topo", s) for s in range(6)), *(("adversarial", s) for s in range(4))]


def test_random_programs_behave_as_the_model_says() -> None:
    racy = found = 0
    for number in range(COUNT):
        program = random_program(number, 8)
        if not can_be_written(program):
            continue
        legal = explore(program)
        writer = Writer(program)
        module = writer.module()
        cells = len(program.buffers[0].initial)
        caught = False
        for schedule, seed in RUNS:
            memory = np.zeros(cells, np.int32)
            out = np.full(max(len(writer.cells), 1), SENTINEL, np.int32)
            grid = len(program.blocks)
            try:
                interpret(module, grid, [memory, out], schedule=schedule, seed=seed)  # type: ignore[arg-type]
            except ReftileError as error:
                where = number, schedule, seed, str(error)
                assert error.diagnosis.rule.startswith("race."), where
                assert legal.is_racy, where
                caught = True
                continue
            outcome = {n: int(out[c]) for n, c in writer.cells.items() if out[c] != SENTINEL}
            for exit in program.exits:
                outcome[exit.register] = int(memory[exit.location.start // 4])
            if not legal.is_racy:
                assert tuple(sorted(outcome.items())) in {
                    tuple(sorted(o)) for o in legal.outcomes
                }, (number, schedule, seed, outcome)
        racy, found = racy + legal.is_racy, found + caught
    # A race may need a stale value, which an interleaving never shows; few do.
    assert found >= 0.9 * racy
