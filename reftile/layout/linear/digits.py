"""Digits: the parts that the inputs of a map are made of, and their one canonical form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Step = tuple[int, ...]
"""What one unit of a digit contributes to each output."""
Run = tuple[int, Step]
"""An extent and a step: a digit, or several that continue each other, as `extent*(step)` reads."""


class LayoutError(ValueError):
    """A layout that cannot be built, or an operation it does not admit; the message says why."""


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of an input: its extent, and what each unit of it contributes per output.

    A bit has extent 2 and combines by exclusive or with the other bits. A repeat adds.
    """

    extent: int
    step: Step
    is_bit: bool = False

    def __str__(self) -> str:
        sign = "*" if split(self.extent, self.step) == [self] else "+"
        return f"{self.extent}{sign}({','.join(map(str, self.step))})"


Part = Run | Digit


def as_digits(part: Part) -> list[Digit]:
    """Return a digit as it is, a run split."""
    return [part] if isinstance(part, Digit) else split(*part)


def split(extent: int, step: Step) -> list[Digit]:
    """Split a run into bits and repeats, lowest first.

    The power of two in the extent becomes bits where exclusive or and addition agree for the step.
    """
    bits = (extent & -extent).bit_length() - 1
    digits = list[Digit]()
    if bits <= 1 or all(s & (s - 1) == 0 for s in step):
        digits += [Digit(2, tuple(s << i for s in step), is_bit=True) for i in range(bits)]
        extent, step = extent >> bits, tuple(s << bits for s in step)
    if extent > 1:
        digits.append(Digit(extent, step))
    return digits


def follows(low: Digit, high: Digit) -> bool:
    """Does `high` count on where `low` ends, as the two halves of one number do?"""
    return all(h == low.extent * s for s, h in zip(low.step, high.step, strict=True))


def normalise(row: list[Digit], elsewhere: Sequence[Digit]) -> list[Digit]:
    """Bring digits to the one form that `split` gives them, where that keeps the meaning.

    elsewhere: the digits of the other inputs. A digit may trade addition for exclusive or only if
    its steps share no bit with those of any other bit.
    """
    for i, digit in enumerate(row):
        for old in ([digit], row[i : i + 2]):
            if all(d.is_bit for d in old) or (len(old) == 2 and not follows(*old)):
                continue
            extent = prod(d.extent for d in old)
            new = split(extent, digit.step)
            rest = (*row[:i], *row[i + len(old) :], *elsewhere)
            if _share_a_bit([*old, *new], rest):
                if any(d.is_bit for d in old):
                    continue
                new = [Digit(extent, digit.step)]
            if new != old:
                return normalise(row[:i] + new + row[i + len(old) :], elsewhere)
    return row


def _share_a_bit(digits: Sequence[Digit], others: Sequence[Digit]) -> bool:
    masks = [0] * len(digits[0].step)
    for other in others:
        if other.is_bit:
            masks = [m | s for m, s in zip(masks, other.step, strict=True)]
    return any(s & m for d in digits if d.is_bit for s, m in zip(d.step, masks, strict=True))


def join(row: Sequence[Digit]) -> list[list[Digit]]:
    """Group neighbours into the longest runs that split into the same digits again."""
    groups = list[list[Digit]]()
    for digit in row:
        if groups:
            longer = [*groups[-1], digit]
            if split(prod(d.extent for d in longer), longer[0].step) == longer:
                groups[-1] = longer
                continue
        groups.append([digit])
    return groups
