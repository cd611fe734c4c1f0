"""The text of a kernel while it is drawn: its tiles, and the arrays that they come from.

A kernel is a text that grows line by line. A tile that is wanted is one that is there, or a
constant, or loaded from a new array through a view whose extents and strides are drawn too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np

Shape = tuple[int, ...]
Numbers = list[tuple[int, bool]]
"""Extents or strides, each with whether it is given at the launch."""
KINDS: dict[str, Any] = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}
"""What arrays hold. Tiles of i1 and tf32 are computed from others."""
SHAPES: tuple[Shape, ...] = (
    *((n,) for n in (16, 32, 64, 256)),
    *((1, 64), (64, 1), (4, 2), (16, 4), (8, 8), (16, 16), (64, 8), (128, 4)),
    *((2, 128), (16, 32), (32, 16), (32, 64), (3, 5), (6, 20), (48, 8)),
)
CONSTANTS = ("i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
SPECIAL = (0.0, -0.0, 1.0, 2.5, 0.5, np.inf, -np.inf, np.nan, 1e-42, 6e-8, 65504, 2.0**31, 2.0**63)


@dataclass(frozen=True, slots=True)
class Tile:
    """A value; `is_small`: whole numbers from -8 to 8."""

    name: str
    shape: Shape
    dtype: str
    is_small: bool = False

    @property
    def type(self) -> str:
        """Its type as a kernel's text has it."""
        return f"tile<{'x'.join([*map(str, self.shape), self.dtype])}>"


@dataclass(frozen=True)
class Program:
    """A kernel and what it is launched with; `results` are the arrays that it writes."""

    text: str
    target: str
    arguments: dict[str, np.ndarray | int]
    results: tuple[str, ...]


class KernelText:
    """What there is of a kernel; steps that follow draw from `tiles`."""

    def __init__(self, seed: int, target: str | None) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.shape = self.random.choice(SHAPES)
        self.warps = self.random.choice([1, 1, 2, 4, 4, 8, 3])
        drawn = self.random.choice(["sm_80", "sm_80", "sm_89", "sm_90a"])
        self.target = target or drawn
        self.is_ragged = self.random.random() < 0.4
        self.count = 0
        self.lines: list[str] = []
        self.tiles: list[Tile] = []
        self.parameters: list[str] = []
        self.arguments: dict[str, np.ndarray | int] = {}
        self.results: list[str] = []

    def program(self) -> Program:
        """The kernel as it stands."""
        settings = f'target = "{self.target}", warps = {self.warps}'
        head = f"pipe kernel @k({', '.join(self.parameters)}) attributes {{{settings}}} {{"
        text = "\n".join([head, *self.lines, "return", "}", ""])
        return Program(text, self.target, self.arguments, tuple(self.results))

    def new(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def define(self, operation: str, shape: Shape, dtype: str, is_small: bool = False) -> Tile:
        """The result of an operation; later steps do not draw it."""
        tile = Tile(self.new(), shape, dtype, is_small)
        self.lines.append(f"{tile.name} = {operation} : {tile.type}")
        return tile

    def compute(self, operation: str, shape: Shape, dtype: str, is_small: bool = False) -> Tile:
        """The result of an operation, which later steps may draw."""
        self.tiles.append(self.define(operation, shape, dtype, is_small))
        return self.tiles[-1]

    def number(self, value: int, shape: Shape = (), dtype: str = "i32") -> str:
        return self.define(f"constant {{value = {value}}}", shape, dtype).name

    def argument(self, value: int) -> str:
        name = f"n{len(self.arguments)}"
        self.arguments[name] = value
        self.parameters.append(f"%{name}: tile<i32>")
        return f"%{name}"

    def draw_shape(self) -> Shape:
        """That of the kernel mostly, or of some tile that is there."""
        return self.shape if self.random.random() < 0.75 else self.random.choice(self.tiles).shape

    def draw(
        self, dtype: str, shape: Shape, is_small: bool = False, others: Sequence[Tile] = ()
    ) -> Tile:
        """A tile that is there and none of `others`, or a new one."""
        there = [t for t in self.tiles if (t.shape, t.dtype) == (shape, dtype)]
        there = [t for t in there if t not in others and (t.is_small or not is_small)]
        if there and self.random.random() < 0.85:
            return self.random.choice(there)
        if dtype in CONSTANTS and (not shape or self.random.random() < 0.25):
            return self.constant(dtype, shape)
        if not shape:
            return self.compute(f"reshape {self.draw(dtype, (1,), is_small).name}", (), dtype)
        return self.load(dtype, shape, is_small)

    def constant(self, dtype: str, shape: Shape) -> Tile:
        end = "" if dtype.startswith("i") else ".0"

        def values(axes: Shape) -> str:
            if not axes:
                return f"{self.random.randint(-5, 5)}{end}"
            return f"[{', '.join(values(axes[1:]) for _ in range(axes[0]))}]"

        is_uniform = self.random.random() < 0.6 or math.prod(shape) > 64
        value = values(() if is_uniform else shape)
        return self.compute(f"constant {{value = {value}}}", shape, dtype, True)

    # Memory

    def load(self, dtype: str, shape: Shape, is_small: bool = False) -> Tile:
        """A tile of a new array; i1 and tf32 are computed from one."""
        if dtype == "i1":
            number, limit = self.load("i32", shape), self.number(2, shape)
            order = "{predicate = less_than, signedness = signed}"
            return self.compute(f"cmpi {number.name}, {limit} {order}", shape, dtype)
        if dtype == "tf32":
            return self.compute(f"ftof {self.load('f32', shape).name}", shape, dtype)
        array, part, index = self.view(shape, dtype, self.padding(dtype))
        is_small = is_small or self.random.random() < 0.4
        self.fill(array, is_small)
        tile = Tile(self.new(), shape, dtype, is_small)
        load = f"load_view_tko {part}, [{index}] {{ordering = weak}}"
        self.lines.append(f"{tile.name}, {self.new()} = {load} : {tile.type}, token")
        self.tiles.append(tile)
        return tile

    def store(self, tile: Tile) -> None:
        """Write a tile to a new array, in a type that arrays hold."""
        if not tile.shape:
            tile = self.define(f"reshape {tile.name}", (1,), tile.dtype)
        if tile.dtype == "i1":
            tile = self.define(f"exti {tile.name} {{signedness = unsigned}}", tile.shape, "i32")
        if tile.dtype == "tf32":
            tile = self.define(f"ftof {tile.name}", tile.shape, "f32")
        array, part, index = self.view(tile.shape, tile.dtype, "")
        self.results.append(array)
        store = f"store_view_tko {tile.name}, {part}, [{index}] {{ordering = weak}}"
        self.lines.append(f"{self.new()} = {store} : token")

    def padding(self, dtype: str) -> str:
        values = ["zero"]
        if dtype[0] != "i" and dtype != "f8e4m3":
            values += ["nan", "neg_inf", "pos_inf", "neg_zero"]
        return f", padding={self.random.choice(values)}"

    def view(self, shape: Shape, dtype: str, padding: str) -> tuple[str, str, str]:
        """A new array, its view in tiles of `shape`, and the index of one of them.

        Extents and strides that only the launch knows are whole vectors, as it asks for.
        """
        extents, strides, index = self.lay_out(shape)
        array = f"{'x' if padding else 'o'}{len(self.arguments)}"
        self.arguments[array] = np.zeros(extents[0][0] * strides[0][0], KINDS[dtype])
        self.parameters.append(f"%{array}: tile<ptr<{dtype}>>")
        known = ["?" if at_launch else str(n) for n, at_launch in extents]
        steps = ["?" if at_launch else str(n) for n, at_launch in strides]
        view = f"tensor_view<{'x'.join(known)}x{dtype}, strides=[{', '.join(steps)}]>"
        given = [
            ", ".join(self.argument(n) for n, at_launch in numbers if at_launch)
            for numbers in (extents, strides)
        ]
        tensor, part = self.new(), self.new()
        made = f"make_tensor_view %{array}, [{given[0]}], [{given[1]}]"
        self.lines.append(f"{tensor} = {made} : {view}")
        kind = f"partition_view<tile=({'x'.join(map(str, shape))}), {view}{padding}>"
        self.lines.append(f"{part} = make_partition_view {tensor} : {kind}")
        return array, part, ", ".join(self.number(i) for i in index)

    def lay_out(self, shape: Shape) -> tuple[Numbers, Numbers, Shape]:
        """Extents and strides, each with whether the launch gives it, and the index of a tile."""
        draws = self.random.random() < 0.5

        def at_launch() -> bool:
            return draws and self.random.random() < 0.6

        extents = [(self.extent(n) if self.is_ragged else n, at_launch()) for n in shape]
        vector = math.gcd(16, shape[-1])
        last, is_given = extents[-1]
        if is_given:
            extents[-1] = (last + -last % vector, True)
        vector = math.gcd(vector, extents[-1][0])
        strides, pitch = [(1, False)], extents[-1][0]
        for extent, _ in reversed(extents[:-1]):
            pitch += vector * self.random.choice([0, 0, 1, 3])
            strides.insert(0, (pitch, at_launch()))
            pitch *= extent
        counts = [-(-e // n) for (e, _), n in zip(extents, shape, strict=True)]
        return extents, strides, tuple(self.random.randrange(n) for n in counts)

    def extent(self, tile: int) -> int:
        """An extent of up to two tiles, of which the last may be in part."""
        last = self.random.randint(1, tile) if self.random.random() < 0.5 else tile
        return last + tile * self.random.choice([0, 0, 1])

    def fill(self, name: str, is_small: bool) -> None:
        """Small numbers, or any: half small for integers, special and of all sizes for floats."""
        array = self.arguments[name]
        assert isinstance(array, np.ndarray)
        numbers = np.random.default_rng([self.seed, len(self.arguments)])
        small = numbers.integers(-8, 9, array.shape)
        coin = numbers.random(array.shape)
        if is_small:
            array[...] = small.astype(array.dtype)
        elif array.dtype.kind == "i":
            info = np.iinfo(array.dtype)
            large = numbers.integers(info.min, info.max, array.shape, endpoint=True)
            array[...] = np.where(coin < 0.5, small, large)
        else:
            scale = 10.0 ** numbers.integers(-6, 6, array.shape)
            usual = numbers.normal(size=array.shape) * scale
            with np.errstate(all="ignore"):
                any_ = np.where(coin < 0.6, usual, numbers.choice(SPECIAL, array.shape))
                array[...] = any_.astype(array.dtype)
