"""Cases of arithmetic on pointers, by their addresses as integers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from reftile.conformance.cases import Case, Program
from reftile.conformance.oracle.answer import Answer
from reftile.conformance.oracle.formats import WIDTHS, codes
from reftile.conformance.oracle.integers import read, wrap
from reftile.conformance.program import Kernel, Shape, tile
from reftile.conformance.suites.common import Settings, definition, rule_ids

SHAPES: tuple[Shape, ...] = ((), (7,), (3, 5))
ORACLES = ("int_to_ptr", "ptr_to_int", "ptr_to_ptr", "offset")
"""The operations that these cases test, here and in the same breath."""


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    pointees = definition("offset").where["P"]
    for pointee in pointees:
        for shape in map(settings.fit, SHAPES if settings.budget != "wimpy" else SHAPES[1:2]):
            name = "x".join(map(str, shape)) or "0"
            id = f"ops/ptr_to_ptr/{pointee}/{name}"
            covers = tuple(i for op in ORACLES[:3] for i in rule_ids(op))
            for op in ORACLES[:3]:
                id = f"ops/{op}/{pointee}/{name}"
                yield Case(
                    id, "ops", op, pointee, covers, partial(_casts, settings, id, pointee, shape)
                )
            if WIDTHS[pointee] == 4:
                continue
            for index in definition("offset").where["I"]:
                id = f"ops/offset/{pointee}/{index}-{name}"
                build = partial(_offset, settings, id, pointee, index, shape)
                yield Case(id, "ops", "offset", pointee, rule_ids("offset"), build)


def _addresses(rng: np.random.Generator, count: int) -> np.ndarray:
    return codes(rng.integers(1 << 40, 1 << 46, count))


def _casts(settings: Settings, id: str, pointee: str, shape: Shape) -> Program:
    k = Kernel()
    bits = _addresses(settings.rng(id), int(np.prod(shape, dtype=int)))
    number = k.load("in0", "i64", bits, shape)
    pointer = k.let("p", f"int_to_ptr {number} : {tile(shape, f'ptr<{pointee}>')}")
    other = k.let("q", f"ptr_to_ptr {pointer} : {tile(shape, 'ptr<i16>')}")
    for i, value in enumerate((pointer, other)):
        back = k.let("n", f"ptr_to_int {value} : {tile(shape, 'i64')}")
        k.store(f"out{i}", back, shape, Answer.exactly("i64", bits))
    return k.program()


def _offset(settings: Settings, id: str, pointee: str, index: str, shape: Shape) -> Program:
    k = Kernel()
    rng = settings.rng(id)
    count = int(np.prod(shape, dtype=int))
    bits = _addresses(rng, count)
    width = WIDTHS[index]
    steps = codes(rng.integers(0, 1 << min(width, 30), count))
    if width > 30:
        # Numbers of moderate size, some of them negative.
        signed = read(steps, "i32", "unsigned")
        steps = wrap([s if i % 2 else -s for i, s in enumerate(signed)], index)
    number = k.load("in0", "i64", bits, shape)
    step = k.load("in1", index, steps, shape)
    pointer = k.let("p", f"int_to_ptr {number} : {tile(shape, f'ptr<{pointee}>')}")
    moved = k.let("q", f"offset {pointer}, {step} : {tile(shape, f'ptr<{pointee}>')}")
    back = k.let("n", f"ptr_to_int {moved} : {tile(shape, 'i64')}")
    size = max(WIDTHS[pointee], 8) // 8
    places = zip(read(bits, "i64", "signed"), read(steps, index, "signed"), strict=True)
    k.store(
        "out0", back, shape, Answer.exactly("i64", wrap([a + s * size for a, s in places], "i64"))
    )
    return k.program()
