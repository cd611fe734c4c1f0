"""What an oracle is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.oracle.formats import FORMATS, Codes, Mask, is_float, is_nan, key


@dataclass
class Limit:
    """How far from the exact result an implementation may lie, for each element.

    An error is accepted up to `ulp` units of the result, up to `absolute`, or up to `relative`
    times the exact value, whichever allows most. Where `anything`, every result is accepted.
    """

    ulp: NDArray[np.float64]
    absolute: NDArray[np.float64] | None = None
    relative: NDArray[np.float64] | None = None
    anything: Mask | None = None

    @staticmethod
    def of(ulp: float, shape: tuple[int, ...]) -> Limit:
        """The same number of units everywhere."""
        return Limit(np.full(shape, ulp))


@dataclass
class Call:
    """One operation on tiles of codes.

    operands: the codes of each operand, in the order of the record; dtypes: their element types.
    results: the element types of the results. limit: None where one answer is right.
    """

    op: str
    operands: list[Codes]
    dtypes: list[str]
    results: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    limit: Limit | None = None
    shape: tuple[int, ...] = ()

    @property
    def flush(self) -> bool:
        """Whether subnormal operands and results count as zeros."""
        return bool(self.attributes.get("flush_to_zero", False))

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute, or its default."""
        return self.attributes.get(name, default)


@dataclass
class Answer:
    """The accepted codes of one result.

    low, high: the least and the greatest accepted number, as codes; equal where one answer is
    right. A NaN in `low` asks for a NaN.
    same_bits: NaN are compared bit by bit. undefined: elements without a value (poison). free:
    elements about which nothing is said.
    """

    dtype: str
    low: Codes
    high: Codes
    same_bits: bool = False
    undefined: Mask | None = None
    free: Mask | None = None

    @staticmethod
    def exactly(dtype: str, bits: Codes, undefined: Mask | None = None) -> Answer:
        """One right answer."""
        return Answer(dtype, bits, bits, undefined=undefined)

    @staticmethod
    def moved(dtype: str, bits: Codes) -> Answer:
        """Elements that an operation only moves:

        those of f32 and f64 keep their bits, of NaN too.
        """
        return Answer(dtype, bits, bits, same_bits=dtype in ("f32", "f64") or not is_float(dtype))

    def wrong(self, found: Codes) -> Mask:
        """Which elements of `found` are not accepted."""
        bad = self._wrong(found.reshape(-1), self.low.reshape(-1), self.high.reshape(-1))
        for mask in (self.free, self.undefined):
            if mask is not None:
                bad &= ~mask.reshape(-1)
        return bad

    def _wrong(self, found: Codes, low: Codes, high: Codes) -> Mask:
        if not is_float(self.dtype):
            return found != low
        f = FORMATS[self.dtype]
        wants_nan, has_nan = is_nan(low, f), is_nan(found, f)
        shift = np.uint64(f.unused)
        outside = (key(found, f) < key(low, f)) | (key(found, f) > key(high, f))
        bad = np.where(wants_nan, ~has_nan, has_nan | outside)
        if self.same_bits:
            bad |= (found >> shift) != (low >> shift)
        return bad

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.low.size)
