"""Small programs written out, with the numbers that their buffers hold at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from reftile.conformance.cases import Argument, Buffer, Case, Program, Scalar
from reftile.conformance.oracle.answer import Answer
from reftile.conformance.oracle.formats import WIDTHS, codes


@dataclass
class Script:
    """A program and what its buffers hold afterwards.

    head: in front of the kernel. outputs: (name, element type, expected). inputs: (name, element
    type, contents). prints: the text that the program must print.
    """

    op: str
    name: str
    body: str
    outputs: Sequence[tuple[str, str, Sequence[int]]]
    inputs: Sequence[tuple[str, str, Sequence[int]]] = ()
    scalars: Sequence[tuple[str, str, int | float]] = ()
    grid: tuple[int, int, int] = (1, 1, 1)
    head: str = ""
    covers: Sequence[str] = ()
    attributes: str = ""
    dtype: str = "i32"
    prints: str | None = None
    initial: dict[str, Sequence[int]] = field(default_factory=dict)


def cases_of(scripts: Iterable[Script]) -> Iterator[Case]:
    """A case for each script."""
    for script in scripts:
        id = f"ops/{script.op}/{script.dtype}/{script.name}"
        covers = (f"{script.op}.meaning", *script.covers)
        yield Case(
            id, "ops", script.op, script.dtype, covers, partial(build, script), (f"op:{script.op}",)
        )


def build(script: Script) -> Program:
    """The program of a script."""
    arguments: list[Argument] = []
    answers: dict[str, Answer] = {}
    for name, dtype, contents in script.inputs:
        arguments.append(Buffer(name, dtype, _codes(contents, dtype)))
    for name, dtype, contents in script.outputs:
        bits = _codes(contents, dtype)
        before = script.initial.get(name)
        fill = codes([0x5A] * bits.size) if before is None else _codes(before, dtype)
        arguments.append(Buffer(name, dtype, fill, written=True))
        answers[name] = Answer.moved(dtype, bits)
    for name, dtype, value in script.scalars:
        arguments.append(Scalar(name, dtype, value))
    types = [
        f"%{a.name}: tile<{a.dtype}>"
        if isinstance(a, Scalar)
        else f"%{a.name}: tile<ptr<{a.dtype}>>"
        for a in arguments
    ]
    head = f" attributes {{{script.attributes}}}" if script.attributes else ""
    signature = f"{script.head}tile kernel @main({', '.join(types)}){head}"
    text = f"{signature} {{\n{script.body}\n  return\n}}\n"
    return Program(text, script.grid, tuple(arguments), answers, output=script.prints)


def _codes(contents: Sequence[int], dtype: str) -> np.ndarray:
    mask = (1 << WIDTHS[dtype]) - 1
    return codes([int(v) & mask for v in contents])


CONSTANTS = """  %c0 = constant {value = 0} : tile<T>
  %c1 = constant {value = 1} : tile<T>
  %c2 = constant {value = 2} : tile<T>
  %c3 = constant {value = 3} : tile<T>
  %c10 = constant {value = 10} : tile<T>"""


def typed(text: str, dtype: str) -> str:
    """A body with the constants in front, for an element type."""
    return (CONSTANTS + "\n" + text).replace("<T>", f"<{dtype}>")


STORE = "\n  %stored = store_ptr_tko %out, %result {ordering = weak} : token"
