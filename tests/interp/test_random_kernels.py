"""Random kernels whose tokens order everything: every way to run them gives the same bits."""

from __future__ import annotations

import os
from random import Random

import numpy as np

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse

COUNT = int(os.environ.get("REFTILE_RANDOM_KERNELS", "40"))
CELLS = 4
BLOCKS = 5


class _Maker:
    """Writes a kernel over `CELLS` cells of each block, with one chain of tokens through it all."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.left = self.random.randint(4, 16)

    def emit(self, text: str) -> None:
        self.lines.append(text)

    def define(self, text: str, type: str = "tile<i32>") -> str:
        self.count += 1
        self.emit(f"%v{self.count} = {text} : {type}")
        return f"%v{self.count}"

    def text(self) -> str:
        self.emit("tile kernel @k(%x: tile<ptr<i32>>) {")
        self.emit("%bx, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>")
        values = ["%bx"]
        for number in range(4):
            values.append(self.define(f"constant {{value = {number}}}"))
        cells = self.define(f"constant {{value = {CELLS}}}")
        first = self.define(f"muli %bx, {cells}")
        self.base = self.define(f"offset %x, {first}", "tile<ptr<i32>>")
        self.numbers = values[1:]
        token = self.define("make_token", "token")
        values, token = self.block(values, token, 0, "")
        for cell in self.numbers:
            token = self.store(self.random.choice(values), cell, token, adding=True)
        self.emit("return\n}")
        return "\n".join(self.lines)

    def block(
        self, values: list[str], token: str, depth: int, around: str
    ) -> tuple[list[str], str]:
        """Write some operations; `around` is how control may leave the loop around them."""
        values = list(values)
        for _ in range(self.random.randint(1, 4)):
            self.left -= 1
            kind = self.random.choice(["load", "store", "math", "math", "if", "for", "loop", "rmw"])
            if kind in ("if", "for", "loop") and (depth == 3 or self.left < 0):
                kind = "math"
            value, token = getattr(self, f"write_{kind}")(values, token, depth, around)
            values.append(value)
        return values, token

    def pick(self, values: list[str]) -> str:
        return self.random.choice(values[-6:])

    def place(self, values: list[str]) -> str:
        index = self.pick(values)
        mask = self.define(f"andi {index}, {self.numbers[3]}")
        return self.define(f"offset {self.base}, {mask}", "tile<ptr<i32>>")

    def write_math(self, values: list[str], token: str, depth: int, around: str) -> tuple[str, str]:
        how = self.random.choice(["addi", "subi", "xori", "muli", "andi"])
        return self.define(f"{how} {self.pick(values)}, {self.pick(values)}"), token

    def write_load(self, values: list[str], token: str, depth: int, around: str) -> tuple[str, str]:
        place = self.place(values)
        self.count += 1
        value, after = f"%l{self.count}", f"%t{self.count}"
        load = f"load_ptr_tko {place}, token={token} {{ordering = weak}}"
        self.emit(f"{value}, {after} = {load} : tile<i32>, token")
        return value, after

    def write_rmw(self, values: list[str], token: str, depth: int, around: str) -> tuple[str, str]:
        place = self.place(values)
        self.count += 1
        value, after = f"%r{self.count}", f"%t{self.count}"
        how = "{ordering = relaxed, scope = device, mode = add}"
        update = f"atomic_rmw_tko {place}, {self.pick(values)}, token={token} {how}"
        self.emit(f"{value}, {after} = {update} : tile<i32>, token")
        return value, after

    def store(self, value: str, cell: str, token: str, adding: bool = False) -> str:
        place = self.define(f"offset {self.base}, {cell}", "tile<ptr<i32>>")
        if adding:
            self.count += 1
            load = f"load_ptr_tko {place}, token={token} {{ordering = weak}}"
            self.emit(f"%l{self.count}, %t{self.count} = {load} : tile<i32>, token")
            token, old = f"%t{self.count}", f"%l{self.count}"
            value = self.define(f"addi {value}, {old}")
        return self.define(
            f"store_ptr_tko {place}, {value}, token={token} {{ordering = weak}}", "token"
        )

    def write_store(
        self, values: list[str], token: str, depth: int, around: str
    ) -> tuple[str, str]:
        place, value = self.place(values), self.pick(values)
        text = f"store_ptr_tko {place}, {value}, token={token} {{ordering = weak}}"
        return value, self.define(text, "token")

    def condition(self, values: list[str]) -> str:
        how = self.random.choice(["less_than", "equal", "greater_than"])
        both = f"{self.pick(values)}, {self.pick(values)}"
        return self.define(f"cmpi {both} {{predicate = {how}, signedness = signed}}", "tile<i1>")

    def write_if(self, values: list[str], token: str, depth: int, around: str) -> tuple[str, str]:
        condition = self.condition(values)
        self.count += 1
        value, after = f"%i{self.count}", f"%t{self.count}"
        self.emit(f"{value}, {after} = if {condition} : tile<i32>, token then {{")
        self.arm(values, token, depth, around)
        self.emit("} otherwise {")
        self.arm(values, token, depth, "")
        self.emit("}")
        return value, after

    def arm(self, values: list[str], token: str, depth: int, around: str) -> None:
        inner, last = self.block(values, token, depth + 1, around)
        leave = around if around and self.random.random() < 0.4 else "yield"
        self.emit(f"{leave} {self.pick(inner)}, {last}")

    def write_for(self, values: list[str], token: str, depth: int, around: str) -> tuple[str, str]:
        bound = self.define(f"andi {self.pick(values)}, {self.numbers[3]}")
        self.count += 1
        n = self.count
        start = f"[{self.pick(values)}, {token}]"
        head = f"for {self.numbers[0]}, {bound}, {self.numbers[1]}, {start}"
        arguments = f"%k{n}: tile<i32>, %a{n}: tile<i32>, %c{n}: token"
        self.emit(f"%f{n}, %g{n} = {head} : tile<i32>, token body({arguments}) {{")
        inner, last = self.block([*values, f"%k{n}", f"%a{n}"], f"%c{n}", depth + 1, "continue")
        self.emit(f"continue {self.pick(inner)}, {last}\n}}")
        return f"%f{n}", f"%g{n}"

    def write_loop(self, values: list[str], token: str, depth: int, around: str) -> tuple[str, str]:
        """A loop of at most 3 rounds, which an arm inside may leave."""
        bound = self.define(f"andi {self.pick(values)}, {self.numbers[3]}")
        self.count += 1
        n = self.count
        arguments = f"%d{n}: tile<i32>, %a{n}: tile<i32>, %c{n}: token"
        head = f"loop {self.numbers[0]}, {self.pick(values)}, {token}"
        self.emit(f"%f{n}, %g{n} = {head} : tile<i32>, token body({arguments}) {{")
        less = "{predicate = less_than, signedness = signed}"
        more = self.define(f"cmpi %d{n}, {bound} {less}", "tile<i1>")
        self.emit(f"if {more} then {{\nyield\n}} otherwise {{\nbreak %a{n}, %c{n}\n}}")
        next_round = self.define(f"addi %d{n}, {self.numbers[1]}")
        inner, last = self.block([*values, f"%a{n}"], f"%c{n}", depth + 1, "break")
        self.emit(f"continue {next_round}, {self.pick(inner)}, {last}\n}}")
        return f"%f{n}", f"%g{n}"


WAYS = [
    {"check": False},
    *({"schedule": "topo", "seed": seed} for seed in range(3)),
    *({"schedule": "adversarial", "seed": seed} for seed in range(2)),
]


def test_every_way_to_run_a_random_kernel_gives_the_same_bits() -> None:
    for seed in range(COUNT):
        text = _Maker(seed).text()
        module = parse(text)
        initial = np.arange(BLOCKS * CELLS, dtype=np.int32)
        expected = initial.copy()
        interpret(module, BLOCKS, [expected])
        for options in WAYS:
            found = initial.copy()
            try:
                interpret(module, BLOCKS, [found], **options)  # type: ignore[arg-type]
            except ReftileError as error:
                # Atomics in a loop look like waiting.
                assert error.diagnosis.rule == "batched.unsupported", (seed, text, str(error))
                continue
            assert found.tobytes() == expected.tobytes(), (seed, options, text)
