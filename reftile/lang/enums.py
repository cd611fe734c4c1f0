"""The small vocabularies of the language: rounding, padding, memory order and scope, targets."""

from __future__ import annotations

import re
from enum import Enum
from typing import Generic, TypeVar

from reftile.ir.diagnostics import fail

T = TypeVar("T")


class RoundingMode(Enum):
    """How a floating-point result is rounded. The values are the IR's words."""

    RN = "nearest_even"
    """To the nearest, ties to even."""
    RZ = "zero"
    """Towards zero."""
    RM = "negative_inf"
    """Downwards."""
    RP = "positive_inf"
    """Upwards."""
    RA = "nearest_away"
    """To the nearest, ties away from zero."""
    FULL = "full"
    """A fast result, accurate over the whole range (float32 only)."""
    APPROX = "approx"
    """A faster result, less accurate (float32 only)."""
    RZI = "nearest_int_to_zero"
    """To the nearest integer towards zero."""


class PaddingMode(Enum):
    """What a load gives where the tile sticks out of the array."""

    UNDETERMINED = "undetermined"
    """Nothing: such an element must not be used (it is poison)."""
    ZERO = "zero"
    """0."""
    NEG_ZERO = "neg_zero"
    """-0.0."""
    NAN = "nan"
    """Not a number."""
    POS_INF = "pos_inf"
    """Infinity."""
    NEG_INF = "neg_inf"
    """Minus infinity."""


class MemoryOrder(Enum):
    """The order of an access; spec/memory_model.md says what each gives."""

    WEAK = "weak"
    """Nobody else touches the location at this time."""
    RELAXED = "relaxed"
    """May meet other strong accesses; orders nothing else."""
    ACQUIRE = "acquire"
    """What the release that was read had behind it happens before what comes after."""
    RELEASE = "release"
    """Publishes what comes before."""
    ACQ_REL = "acq_rel"
    """Both, for read-modify-writes."""


class MemoryScope(Enum):
    """Who may take part in a strong access."""

    NONE = "none"
    """Nobody: the scope of weak accesses."""
    BLOCK = "tl_blk"
    """This block."""
    DEVICE = "device"
    """All blocks on the device."""
    SYS = "sys"
    """Everybody."""


class ByTarget(Generic[T]):
    """A value that depends on the target: `ByTarget(sm_100=2, default=1)`."""

    __slots__ = ("by_target", "default")

    def __init__(self, *, default: T | None = None, **by_target: T) -> None:
        for name in by_target:
            if not re.fullmatch(r"sm_\d+[af]?|gfx\w+", name):
                raise fail(
                    "lang.target",
                    f"`{name}` is no target",
                    hint="targets are written sm_<number> or gfx<number>",
                )
        self.default = default
        self.by_target = by_target

    def value(self, target: str) -> T | None:
        """The value for `target`, or the default."""
        return self.by_target.get(target, self.default)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ByTarget)
            and self.by_target == other.by_target  # type: ignore[reportUnknownMemberType]
            and self.default == other.default  # type: ignore[reportUnknownMemberType]
        )

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.by_target)), self.default))

    def __repr__(self) -> str:
        parts = [f"{k}={v!r}" for k, v in self.by_target.items()]
        if self.default is not None:
            parts.append(f"default={self.default!r}")
        return f"ByTarget({', '.join(parts)})"
