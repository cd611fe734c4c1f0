"""A case: a program, what it is run on, and what must come out.

Cases are made when they are needed (`Case.build`), from nothing but their own parameters and a
seed, so that listing them is cheap and a single one can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.oracle.answer import Answer
from reftile.conformance.oracle.formats import WIDTHS, Codes, codes

Bytes = NDArray[np.uint8]
Budget = Literal["wimpy", "default", "exhaustive"]
BUDGETS: tuple[Budget, ...] = ("wimpy", "default", "exhaustive")
"""Seconds, minutes, hours."""


@dataclass(frozen=True)
class Buffer:
    """An array that a program is given by pointer.

    bits: the code of each element. written: the program writes it. fresh: its contents must not be
    read before they are written. shift_bytes: the array begins that far behind an aligned address.
    same_as: the name of an earlier buffer whose memory it is.
    """

    name: str
    dtype: str
    bits: Codes
    written: bool = False
    fresh: bool = False
    shift_bytes: int = 0
    same_as: str = ""

    def memory(self) -> Bytes:
        """The array as bytes."""
        return to_memory(self.bits, self.dtype)


@dataclass(frozen=True)
class Scalar:
    """A number that a program is given. value: an integer, or a float that its type has."""

    name: str
    dtype: str
    value: int | float


Argument = Buffer | Scalar


@dataclass
class Program:
    """What a case runs, and what it expects.

    answers: by buffer, what it holds at the end; others: further answers, each element of which is
    as good. rules: if any, one of these diagnoses must stop the program, before it runs (`reject`)
    or while it does. output: what it must print, if that is looked at.
    """

    text: str
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    answers: dict[str, Answer] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    kernel: str = "main"
    output: str | None = None
    others: dict[str, list[Answer]] = field(default_factory=dict)

    @property
    def checked(self) -> int:
        """How many elements have an expected value."""
        return sum(a.size - excused(a) for a in self.answers.values())


def excused(answer: Answer) -> int:
    """How many elements of an answer nothing is said about."""
    none = np.zeros(answer.low.size, bool)
    for mask in (answer.free, answer.undefined):
        if mask is not None:
            none |= mask.reshape(-1)
    return int(none.sum())


@dataclass(frozen=True)
class Case:
    """One test.

    `op` and `dtype` name the cell that it counts for; `covers` the ids of spec/ that it tests.
    """

    id: str
    suite: str
    op: str
    dtype: str
    covers: tuple[str, ...]
    build: Callable[[], Program] = field(compare=False)
    needs: tuple[str, ...] = ()


def to_memory(bits: Codes, dtype: str) -> Bytes:
    """Codes as bytes in memory:

    little-endian, elements of 4 bits packed with the first in the low half.
    """
    flat = bits.reshape(-1)
    width = WIDTHS[dtype]
    if width == 4:
        even = np.concatenate([flat, np.zeros(flat.size % 2, np.uint64)]).astype(np.uint8)
        return even[0::2] | (even[1::2] << np.uint8(4))
    unit = np.dtype(f"<u{max(width, 8) // 8}")
    return np.frombuffer(flat.astype(unit).tobytes(), np.uint8).copy()


def from_memory(data: Bytes, dtype: str, count: int) -> Codes:
    """The inverse of `to_memory`; any byte but 0 is a true i1."""
    width = WIDTHS[dtype]
    if width == 4:
        both = np.stack([data & np.uint8(15), data >> np.uint8(4)], axis=-1)
        return codes(both.reshape(-1)[:count])
    values = data.view(np.dtype(f"<u{max(width, 8) // 8}"))[:count]
    return codes(values != 0) if dtype == "i1" else codes(values)
