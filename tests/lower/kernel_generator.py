"""Random small kernels of the `pipe` level: straight lines, loops, branches, reductions, views.

A kernel follows from its seed. It is legal, and each of its results has one right answer: divisors
are not zero, shifts are shorter than the word, sums of floats are of small whole numbers, and no
operation is approximate.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np

from reftile.ir.ops import OPS
from reftile.lower.ptx import table
from tests.lower.kernel_text import KINDS, KernelText, Program, Tile
from tests.lower.test_table import instances, is_legal, make, spelled

Form = tuple[str, dict[str, str], dict[str, object]]
NOT_DRAWN = {"bitcast", "divi", "remi", "shli", "shri"}
"""Elementwise operations with conditions that their operands must meet: not for any operand."""
REDUCTIONS = (
    *((dtype, "addi", "0") for dtype in ("i16", "i32", "i64")),
    *((dtype, "addf", "0.0") for dtype in ("f16", "f32", "f64")),
    *(("f32", "maxf", "neg_inf"), ("bf16", "maxf", "neg_inf"), ("f16", "minf", "pos_inf")),
    *(("i32", "maxi", str(-(2**31))), ("i64", "mini", str(2**63 - 1)), ("i32", "xori", "0")),
    *(("i1", "ori", "false"), ("i1", "andi", "true")),
)
LONGEST_SUM = {"f16": 64, "f32": 2048, "f64": 2048}
"""Of numbers from -8 to 8, so that every partial sum is exact."""


def dtypes_of(name: str, types: dict[str, str]) -> list[str]:
    """The element types of the operands and of the result, last."""
    definition = OPS[name].definition
    ports = (*definition.operands, definition.results[0])
    terms = [port.pattern.element for port in ports]
    texts = [term.text for term in terms if term is not None]
    return [types.get(text, text) for text in texts]


@cache
def forms(target: str) -> dict[str, list[Form]]:
    """The exact elementwise operations that a target has rows for, in each form."""
    found: dict[str, list[Form]] = {}
    for name in sorted(set(table.rows()) - NOT_DRAWN):
        if OPS[name].definition.accuracy not in ("exact", "rounded", "div", "sqrt"):
            continue
        for types, attributes in instances(name):
            if (
                set(dtypes_of(name, types)) <= {*KINDS, "i1", "tf32"}
                and attributes.get("rounding") not in ("approx", "full")
                and attributes.get("overflow", "none") == "none"
                and (name != "ftoi" or attributes["saturating"])
                and is_legal(make(name, types, attributes, (32,)))
                and table.matching(name, spelled(name, types, attributes, target), False)
            ):
                found.setdefault(name, []).append((name, types, attributes))
    return found


def attribute_text(name: str, attributes: dict[str, object]) -> str:
    """The attributes of an operation as a kernel's text has them."""
    specs = OPS[name].definition.attribute_specs
    said = [
        key if specs[key].kind == "unit" else f"{key} = {value}"
        for key, value in attributes.items()
        if value is not None and value is not False
    ]
    return f" {{{', '.join(said)}}}" if said else ""


def generate(seed: int, steps: int, target: str | None = None) -> Program:
    """The kernel of a seed, of about so many steps; `target`: for another than it draws."""
    generator = _Generator(seed, target)
    generator.load(generator.random.choice(list(KINDS)), generator.shape)
    for _ in range(steps):
        generator.step(0)
    generator.store_unread()
    return generator.program()


class _Generator(KernelText):
    def step(self, depth: int) -> None:
        """Compute one more tile; loops and branches nest twice."""
        steps: dict[Callable[[], object], int] = {
            self.elementwise: 42,
            self.divide_or_shift: 6,
            self.reduce: 8,
            self.reshape: 6,
            self.permute: 4,
            self.extract: 4,
            self.broadcast: 4,
            self.iota: 3,
        }
        if depth == 0:
            steps[self.pass_through_buffer] = 8
        if depth < 2:
            steps[lambda: self.loop(depth + 1)] = 8 if depth == 0 else 3
            steps[lambda: self.branch(depth + 1)] = 6 if depth == 0 else 3
        self.random.choices(list(steps), list(steps.values()))[0]()

    def store_unread(self) -> None:
        """Store the last few tiles that nothing reads."""
        mentioned = Counter(re.findall(r"%\w+", "\n".join(self.lines)))
        unread = [tile for tile in self.tiles if mentioned[tile.name] == 1]
        for tile in (unread or self.tiles)[-8:]:
            self.store(tile)

    # Arithmetic

    def elementwise(self) -> None:
        """Any form of any operation."""
        shape = self.draw_shape()
        there = forms(self.target)
        name, types, attributes = self.random.choice(there[self.random.choice(list(there))])
        *dtypes, result = dtypes_of(name, types)
        operands: list[Tile] = []
        for dtype in dtypes:
            operands.append(self.draw(dtype, shape, others=operands))
        names = ", ".join(tile.name for tile in operands)
        self.compute(f"{name} {names}{attribute_text(name, attributes)}", shape, result)

    def divide_or_shift(self) -> None:
        """Divide by odd numbers from 1 to 7, or shift by 0 to 31."""
        shape, dtype = self.draw_shape(), self.random.choice(["i16", "i32", "i64"])
        names = ["divi", "remi"] + ["shli", "shri"] * (dtype == "i32")
        name = self.random.choice(names)
        lhs = self.draw(dtype, shape)
        rhs = self.draw(dtype, shape, others=[lhs])
        is_shift = name.startswith("sh")
        mask = self.number(31 if is_shift else 7, shape, dtype)
        by = self.define(f"andi {rhs.name}, {mask}", shape, dtype)
        if not is_shift:
            by = self.define(f"ori {by.name}, {self.number(1, shape, dtype)}", shape, dtype)
        sign = f" {{signedness = {self.random.choice(['signed', 'unsigned'])}}}"
        self.compute(f"{name} {lhs.name}, {by.name}{'' if name == 'shli' else sign}", shape, dtype)

    def reduce(self) -> None:
        """Reduce an axis, and perhaps spread the result over it again."""
        shape = self.draw_shape()
        dtype, name, identity = self.random.choice(REDUCTIONS)
        is_sum = name == "addf"
        if not shape or (is_sum and math.prod(shape) > LONGEST_SUM[dtype]):
            return
        tile, axis = self.draw(dtype, shape, is_sum), self.random.randrange(len(shape))
        kept = shape[:axis] + shape[axis + 1 :]
        result, one = Tile(self.new(), kept, dtype), f"tile<{dtype}>"
        element, acc, both = self.new(), self.new(), self.new()
        sign = " {signedness = signed}" if name in ("maxi", "mini") else ""
        self.lines.append(
            f"{result.name} = reduce {tile.name} {{axis = {axis}, identities = [{identity}]}} : "
            f"{result.type} combine({element}: {one}, {acc}: {one}) {{\n"
            f"{both} = {name} {acc}, {element}{sign} : {one}\nyield {both}\n}}"
        )
        self.tiles.append(result)
        if self.random.random() < 0.6:
            flat = self.define(f"reshape {result.name}", (*kept[:axis], 1, *kept[axis:]), dtype)
            self.compute(f"broadcast {flat.name}", shape, dtype)

    # Shapes

    def reshape(self) -> None:
        tile = self.random.choice(self.tiles)
        count = math.prod(tile.shape)
        shapes = [(count,)] + [(n, count // n) for n in (1, 2, 3, 4, 8, 16, 32) if count % n == 0]
        if (shape := self.random.choice(shapes)) != tile.shape:
            self.compute(f"reshape {tile.name}", shape, tile.dtype, tile.is_small)

    def permute(self) -> None:
        tile = self.random.choice(self.tiles)
        if len(tile.shape) == 2:
            turned = f"permute {tile.name} {{permutation = [1, 0]}}"
            self.compute(turned, tile.shape[::-1], tile.dtype, tile.is_small)

    def extract(self) -> None:
        """A half or a quarter along each axis, or all of it."""
        tile = self.random.choice(self.tiles)
        parts = [self.random.choice([n for n in (1, 2, 4) if e % n == 0]) for e in tile.shape]
        if math.prod(parts) > 1:
            index = ", ".join(self.number(self.random.randrange(n)) for n in parts)
            shape = tuple(e // n for e, n in zip(tile.shape, parts, strict=True))
            self.compute(f"extract {tile.name}, [{index}]", shape, tile.dtype, tile.is_small)

    def broadcast(self) -> None:
        """A scalar as a tile."""
        scalars = [t for t in self.tiles if not t.shape]
        if scalars:
            tile = self.random.choice(scalars)
            one = self.define(f"reshape {tile.name}", (1,) * len(self.shape), tile.dtype)
            self.compute(f"broadcast {one.name}", self.shape, tile.dtype, tile.is_small)

    def iota(self) -> None:
        """The numbers of the elements of an axis, along it where that is the last."""
        count = self.random.choice([self.shape[0], self.shape[-1], math.prod(self.shape)])
        if self.warps == 3:
            return  # It is refused: the number of a thread is no bits.
        tile = self.compute("iota", (count,), "i32")
        if len(self.shape) == 2 and count == self.shape[-1]:
            row = self.define(f"reshape {tile.name}", (1, count), "i32")
            self.compute(f"broadcast {row.name}", self.shape, "i32")

    def pass_through_buffer(self) -> None:
        """Store a tile to shared memory and load it, perhaps transposed."""
        there = [t for t in self.tiles if t.shape and t.dtype in KINDS]
        if not there:
            return
        tile = self.random.choice(there)
        layout, shape = self.random.choice(self.buffer_layouts(tile)), tile.shape
        buffer, stored, loaded = self.new(), self.new(), self.new()
        extents = "x".join(map(str, shape))
        kind = f"buffer<{extents}x{tile.dtype}, layout={layout}>"
        self.lines.append(f"{buffer} = alloc_buffer : {kind}")
        self.lines.append(f"{stored} = store_buffer {tile.name}, {buffer} : token")
        if len(shape) == 2 and self.random.random() < 0.4:
            name, bracket, pitch = layout.partition("[")
            kind = f"buffer<{shape[1]}x{shape[0]}x{tile.dtype}, layout={name}.t{bracket}{pitch}>"
            transposed, shape = self.new(), shape[::-1]
            self.lines.append(f"{transposed} = transpose_buffer {buffer} : {kind}")
            buffer = transposed
        read = Tile(loaded, shape, tile.dtype, tile.is_small)
        load = f"load_buffer {buffer}, token={stored}"
        self.lines.append(f"{loaded}, {self.new()} = {load} : {read.type}, token")
        self.tiles.append(read)

    def buffer_layouts(self, tile: Tile) -> list[str]:
        """Rows of any length; swizzles of rows that fill them, in groups of 8."""
        layouts = ["row_major"]
        if len(tile.shape) == 2:
            rows, columns = tile.shape
            row_bytes = columns * np.dtype(KINDS[tile.dtype]).itemsize
            layouts.append(f"row_major[{columns + self.random.choice([1, 4, 8])}]")
            layouts += [
                f"swizzle{span}"
                for span in (32, 64, 128)
                if row_bytes % span == 0 and rows % 8 == 0
            ]
        return layouts

    # Control

    def nested(self, depth: int, carried: list[Tile], most: int, last: str) -> list[str]:
        """The lines of a block that ends by passing on tiles of the types of those carried."""
        tiles, lines = list(self.tiles), self.lines
        self.lines = []
        for _ in range(self.random.randint(0, most)):
            self.step(depth)
        passed = [
            self.random.choice([t for t in self.tiles if t.type == c.type][-3:]).name
            for c in carried
        ]
        self.lines.append(f"{last} {', '.join(passed)}".rstrip())
        found, self.lines, self.tiles = self.lines, lines, tiles
        return found

    def carried(self, least: int) -> list[Tile]:
        return [self.random.choice(self.tiles) for _ in range(self.random.randint(least, 3))]

    def give(self, carried: list[Tile]) -> str:
        """Names for what a loop or branch gives: the beginning of its line."""
        results = [Tile(self.new(), t.shape, t.dtype) for t in carried]
        self.tiles += results
        return ", ".join(t.name for t in results) + " = " * bool(results)

    def loop(self, depth: int) -> None:
        """Count up, now and then to the last number there is; carry up to three tiles."""
        carried = self.carried(0)
        first, end = self.random.randint(-2, 3), self.random.randint(-2, 9 // depth)
        if self.random.random() < 0.15:
            end = 2**31 - 1
            first = end - self.random.randint(0, 4)
        bounds = ", ".join(
            self.argument(n) if self.random.random() < 0.6 else self.number(n)
            for n in (first, end, self.random.randint(1, 3))
        )
        counter = Tile(self.new(), (), "i32")
        inside = [Tile(self.new(), t.shape, t.dtype) for t in carried]
        self.tiles += [counter, *inside]
        body = self.nested(depth, carried, 3, "continue")
        del self.tiles[-1 - len(inside) :]
        types = f" : {', '.join(t.type for t in carried)}" if carried else ""
        names = ", ".join(f"{t.name}: {t.type}" for t in (counter, *inside))
        given = ", ".join(t.name for t in carried)
        head = f"{self.give(carried)}for {bounds}, [{given}]{types} body({names}) {{"
        self.lines += [head, *body, "}"]

    def branch(self, depth: int) -> None:
        """Go one of two ways, by an argument."""
        carried = self.carried(1)
        order = "{predicate = less_than, signedness = signed}"
        number = self.argument(self.random.randint(0, 3))
        condition = self.define(f"cmpi {number}, {self.number(2)} {order}", (), "i1")
        one, other = (self.nested(depth, carried, 2, "yield") for _ in range(2))
        types = ", ".join(t.type for t in carried)
        head = f"{self.give(carried)}if {condition.name} : {types} then {{"
        self.lines += [head, *one, "} otherwise {", *other, "}"]
