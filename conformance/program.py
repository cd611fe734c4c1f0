"""Write kernels that load operands through views, do something, and store results through views."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from reftile.conformance.cases import Argument, Buffer, Program
from reftile.conformance.oracle.answer import Answer
from reftile.conformance.oracle.formats import WIDTHS, Codes, codes

Shape = tuple[int, ...]
POINTER = "pointer"
"""The element type of tiles of pointers; in memory they are i64."""
BLOCK = 4096
"""Elements of one tile of a vector case at most."""


def tile(shape: Shape, dtype: str) -> str:
    """A tile type as text."""
    element = "ptr<i8>" if dtype == POINTER else dtype
    return f"tile<{''.join(f'{n}x' for n in shape)}{element}>"


def row_major(shape: Shape) -> Shape:
    """The strides of a dense array."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def tensor_view(shape: Shape, dtype: str, strides: Shape | None = None, access: str = "") -> str:
    """A tensor view type as text."""
    steps = ", ".join(map(str, row_major(shape) if strides is None else strides))
    mode = f", access={access}" if access else ""
    return f"tensor_view<{''.join(f'{n}x' for n in shape)}{dtype}, strides=[{steps}]{mode}>"


def partition(view: str, shape: Shape, padding: str = "") -> str:
    """A partition view type as text."""
    extra = f", padding={padding}" if padding else ""
    return f"partition_view<tile=({'x'.join(map(str, shape))}), {view}{extra}>"


@dataclass
class Kernel:
    """A kernel being written. `arguments` are in order; `lines` its body."""

    arguments: list[Argument] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    grid: tuple[int, int, int] = (1, 1, 1)
    attributes: str = ""
    before: list[str] = field(default_factory=list)
    _count: int = 0
    _zero: str = ""
    _block: str = ""

    def name(self, stem: str) -> str:
        """A value name that is not in use."""
        self._count += 1
        return f"%{stem}{self._count}"

    def emit(self, line: str) -> None:
        """Append a line."""
        self.lines.append(line)

    def let(self, stem: str, text: str) -> str:
        """Append an operation with one result, and give the result's name."""
        name = self.name(stem)
        self.emit(f"{name} = {text}")
        return name

    def zero(self) -> str:
        """The index 0."""
        if not self._zero:
            self._zero = self.let("zero", "constant {value = 0} : tile<i32>")
        return self._zero

    def block(self) -> str:
        """The first coordinate of the block."""
        if not self._block:
            self._block = self.name("block")
            self.emit(
                f"{self._block}, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>"
            )
        return self._block

    def constant(self, dtype: str, value: object, shape: Shape = ()) -> str:
        """A literal tile."""
        return self.let("c", f"constant {{value = {value}}} : {tile(shape, dtype)}")

    def view(self, name: str, total: Shape, part: Shape, dtype: str) -> str:
        """A partition view of a buffer."""
        whole = tensor_view(total, dtype)
        tensor = self.let("v", f"make_tensor_view %{name}, [], [] : {whole}")
        return self.let("p", f"make_partition_view {tensor} : {partition(whole, part)}")

    def index(self, rank: int, blocks: int) -> str:
        """The index of this block's tile: along the first axis if there are several blocks."""
        if rank == 0:
            return ""
        first = self.block() if blocks > 1 else self.zero()
        return ", ".join([first] + [self.zero()] * (rank - 1))

    def load(self, name: str, dtype: str, bits: Codes, shape: Shape, blocks: int = 1) -> str:
        """Add an input buffer and load a tile of it:

        the whole, or the block's part along axis 0.
        """
        if dtype == POINTER:
            number = self.load(name, "i64", bits, shape, blocks)
            return self.let("ptr", f"int_to_ptr {number} : {tile(shape, dtype)}")
        self.arguments.append(Buffer(name, dtype, codes(bits).reshape(-1)))
        value, token = self.name("x"), self.name("t")
        if not shape and dtype not in ("i4", "f4e2m1"):
            self.emit(
                f"{value}, {token} = load_ptr_tko %{name} {{ordering = weak}} : "
                f"{tile((), dtype)}, token"
            )
            return value
        part = shape or (1,)
        view = self.view(name, (part[0] * blocks, *part[1:]), part, dtype)
        index = self.index(len(part), blocks)
        self.emit(
            f"{value}, {token} = load_view_tko {view}, [{index}] {{ordering = weak}} : "
            f"{tile(part, dtype)}, token"
        )
        return value if shape else self.let("x", f"reshape {value} : {tile((), dtype)}")

    def store(self, name: str, value: str, shape: Shape, answer: Answer, blocks: int = 1) -> None:
        """Add an output buffer and store a tile into it."""
        dtype = answer.dtype
        if dtype == POINTER:
            value = self.let("n", f"ptr_to_int {value} : {tile(shape, 'i64')}")
            answer = Answer.moved("i64", answer.low)
            dtype = "i64"
        self.output(name, answer)
        if not shape and dtype not in ("i4", "f4e2m1"):
            self.let("t", f"store_ptr_tko %{name}, {value} {{ordering = weak}} : token")
            return
        part = shape or (1,)
        if not shape:
            value = self.let("x", f"reshape {value} : {tile(part, dtype)}")
        view = self.view(name, (part[0] * blocks, *part[1:]), part, dtype)
        index = self.index(len(part), blocks)
        self.let("t", f"store_view_tko {value}, {view}, [{index}] {{ordering = weak}} : token")

    def output(self, name: str, answer: Answer) -> None:
        """Add an output buffer, filled with a pattern that no answer is likely to be."""
        flat = answer.low.reshape(-1)
        fill = codes([0x5A5A5A5A5A5A5A5A & _mask(answer.dtype)] * flat.size)
        self.arguments.append(Buffer(name, answer.dtype, fill, written=True))
        self.answers[name] = answer

    def text(self) -> str:
        """The kernel as text."""
        arguments: list[str] = []
        for a in self.arguments:
            kind = f"ptr<{a.dtype}>" if isinstance(a, Buffer) else a.dtype
            arguments.append(f"%{a.name}: tile<{kind}>")
        body = "\n".join(f"  {line}" for line in self.lines)
        head = f" attributes {{{self.attributes}}}" if self.attributes else ""
        before = "".join(f"{line}\n" for line in self.before)
        return f"{before}tile kernel @main({', '.join(arguments)}){head} {{\n{body}\n  return\n}}\n"

    def program(self, rules: tuple[str, ...] = ()) -> Program:
        """The finished case."""
        answers = {} if rules else self.answers
        return Program(self.text(), self.grid, tuple(self.arguments), answers, rules)


def _mask(dtype: str) -> int:
    return (1 << WIDTHS[dtype]) - 1 if dtype != "i1" else 0


def attribute_text(attributes: dict[str, object]) -> str:
    """Attributes in braces, or nothing. A unit attribute that is False is left out."""
    parts: list[str] = []
    for name, value in attributes.items():
        if value is False or value is None:
            continue
        if value is True:
            parts.append(name)
        elif isinstance(value, (tuple, list)):
            parts.append(f"{name} = [{', '.join(map(str, value))}]")
        else:
            parts.append(f"{name} = {value}")
    return f" {{{', '.join(parts)}}}" if parts else ""
