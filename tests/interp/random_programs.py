"""Random event programs of litmus size, by seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from reftile.interp.model.events import (
    Access,
    Block,
    Buffer,
    Edge,
    Exit,
    Kind,
    Location,
    Op,
    Order,
    Program,
    Scope,
)
from reftile.interp.model.values import MODIFY, TRUE, Bin, Const, Expr, Reg, binary

ORDERS: dict[Kind, tuple[tuple[Order, ...], tuple[int, ...]]] = {
    "load": (("weak", "relaxed", "acquire"), (3, 3, 4)),
    "store": (("weak", "relaxed", "release"), (3, 3, 4)),
    "rmw": (("relaxed", "acquire", "release", "acq_rel"), (1, 1, 1, 2)),
    "cas": (("relaxed", "acquire", "release", "acq_rel"), (1, 1, 1, 2)),
}
SCOPES: tuple[tuple[Scope, ...], tuple[int, ...]] = (("block", "device", "sys"), (1, 7, 2))


class _Maker:
    def __init__(self, seed: int, accesses: int, mixed: bool) -> None:
        self.random = Random(seed)
        self.mixed = mixed
        self.left = self.random.randint(3, accesses)
        self.cells = self.random.randint(2, 3)
        self.fresh = 0
        self.token_rate = self.random.choice((0.4, 0.8, 1.0))

    def program(self, name: str) -> Program:
        blocks: list[Block] = []
        for number in range(self.random.choice((1, 2, 2, 2, 3, 3))):
            device = int(self.random.random() < 0.1)
            blocks.append(Block(f"B{number}", tuple(self.ops(number)), device))
        exits = [
            Exit(f"final x[{i}]", Location("x", 4 * i, 4))
            for i in range(self.cells)
            if self.random.random() < 0.3
        ]
        return Program(name, (Buffer("x", 4, (0,) * self.cells),), tuple(blocks), tuple(exits))

    def ops(self, block: int) -> list[Op]:
        ops: list[Op] = []
        registers: list[str] = []
        for number in range(self.random.randint(1, 4)):
            cells = self.some_cells()
            self.left -= len(cells)
            if self.left < 0:
                break
            ops.append(self.op(f"o{number}", f"r{block}_{number}", cells, ops, registers))
        return ops

    def some_cells(self) -> list[int]:
        count = self.random.choice((1, 1, 1, 2))
        return [self.random.randrange(self.cells) for _ in range(count)]

    def op(
        self, name: str, register: str, cells: list[int], ops: list[Op], registers: list[str]
    ) -> Op:
        random = self.random
        kind: Kind = random.choices(("load", "store", "rmw", "cas"), (4, 4, 2, 1))[0]
        orders, weights = ORDERS[kind]
        order = random.choices(orders, weights)[0]
        scope = None if order == "weak" else random.choices(*SCOPES)[0]
        guard: Expr = TRUE
        if registers and random.random() < 0.35:
            guard = binary("==", Reg(random.choice(registers)), Const(random.randint(0, 3)))
        after = tuple(Edge(o.name) for o in ops if random.random() < self.token_rate)
        accesses = tuple(
            replace(self.access(kind, f"{register}_{i}", cell, registers), element=i)
            for i, cell in enumerate(cells)
        )
        registers += [a.register for a in accesses if a.register and guard == TRUE]
        return Op(name, accesses, order, scope, guard, after)

    def access(self, kind: Kind, register: str, cell: int, registers: list[str]) -> Access:
        location = Location("x", 4 * cell, 4)
        if self.mixed and self.random.random() < 0.3:
            location = Location("x", 4 * cell + 2 * self.random.randrange(2), 2)
        name = str(location)
        if kind == "load":
            return Access(kind, location, register=register, name=name)
        value = self.value(registers)
        if kind == "store":
            return Access(kind, location, value=value, name=name)
        if kind == "cas":
            compare = Const(self.random.randint(0, self.fresh))
            return Access(
                kind, location, value=value, compare=compare, register=register, name=name
            )
        modify = self.random.choice(sorted(MODIFY))
        return Access(kind, location, value=value, modify=modify, register=register, name=name)

    def value(self, registers: list[str]) -> Expr:
        self.fresh += 1
        if registers and self.random.random() < 0.25:
            return Bin("+", Reg(self.random.choice(registers)), Const(self.random.randint(0, 1)))
        # Both halves of a cell tell which store they come from.
        return Const(self.fresh * 65537 if self.mixed else self.fresh)


def random_program(seed: int, accesses: int = 8, mixed: bool = False) -> Program:
    """Return the program of this seed, with at most `accesses` element accesses.

    mixed: some accesses are to one half of a cell.
    """
    return _Maker(seed, accesses, mixed).program(f"random {seed}")


def handing_over(seed: int) -> Program:
    """Return a program of two or three blocks that pass data on, one of them waiting in a loop.

    The loop is unrolled: an iteration happens if those before it have not seen the flag, and waits
    for the token that they carry on. One time in four an order, a token or a guard is missing.
    """
    random = Random(f"handing over {seed}")
    fault = random.choice(("order", "token", "guard", "scope", *("",) * 12))
    cells = random.randint(1, 2)
    release: Order = "relaxed" if fault == "order" and random.random() < 0.5 else "release"
    acquire: Order = "relaxed" if fault == "order" and release == "release" else "acquire"
    scope: Scope = "block" if fault == "scope" else random.choice(("device", "sys"))
    data = [Location("x", 4 * i, 4) for i in range(cells)]
    flag = Location("x", 4 * cells, 4)
    blocks: list[Block] = []
    for number in range(random.choice((1, 1, 2))):
        at = [data[number % cells]] if number else data
        stores = tuple(
            Access("store", d, value=Const(10 * number + i + 1), name=str(d), element=i)
            for i, d in enumerate(at)
        )
        after = () if fault == "token" else (Edge("data"),)
        kind: Kind = "rmw" if number or random.random() < 0.3 else "store"
        order: Order = (
            ("acq_rel" if release == "release" else "relaxed") if kind == "rmw" else release
        )
        raised = Access(
            kind, flag, value=Const(1), modify="add", name="flag", register=f"f{number}"
        )
        if kind == "store":
            raised = replace(raised, register="")
        ops = (Op("data", stores), Op("flag", (raised,), order, scope, TRUE, after))
        # A second producer adds to what the first has handed over.
        if number:
            first = Access("rmw", flag, value=Const(1), modify="add", name="flag", register="turn")
            guard = binary("==", Reg("turn"), Const(1))
            ops = (
                Op("turn", (first,), "acq_rel", scope),
                replace(ops[0], guard=guard, after=(Edge("turn"),)),
                replace(ops[1], guard=guard),
            )
        blocks.append(Block(f"P{number}", ops))
    looks: list[Op] = []
    seen: Expr = TRUE
    wanted = Const(1 if len(blocks) == 1 else 3)
    for i in range(random.randint(1, 2)):
        load = Access("load", flag, register=f"look{i}", name="flag")
        carried = tuple(Edge(o.name) for o in looks)
        looks.append(Op(f"look{i}", (load,), acquire, scope, seen, carried))
        seen = binary("&", seen, binary("!=", Reg(f"look{i}"), wanted))
    got: Expr = Const(0)
    for i in reversed(range(len(looks))):
        mine = binary("==", Reg(f"look{i}"), wanted)
        before: Expr = TRUE
        for j in range(i):
            before = binary("&", before, binary("!=", Reg(f"look{j}"), wanted))
        got = binary("|", got, binary("&", before, mine))
    guard = TRUE if fault == "guard" else got
    reads = tuple(
        Access("load", d, register=f"d{i}", name=str(d), element=i) for i, d in enumerate(data)
    )
    blocks.append(
        Block(
            "C", (*looks, Op("use", reads, guard=guard, after=tuple(Edge(o.name) for o in looks)))
        )
    )
    return Program(f"handing over {seed}", (Buffer("x", 4, (0,) * (cells + 1)),), tuple(blocks))
