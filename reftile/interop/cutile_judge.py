"""How results of cuTile's tests are held against torch when both computed on a CPU.

The tests demand the bits that torch computes on a GPU. Here torch computes on a CPU, with other
functions: its square root of f32 is not always the nearest. Where a test demands equal bits of
floats, and a kernel of the case used operations whose accuracy class allows more than one answer,
two answers within the class are held to be equal: each may be off by the class's limit, and so they
may differ by twice that. Every such case is marked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reftile.interop.cutile import Host
from reftile.ir.core import Kernel
from reftile.ir.enums import ACCURACY

DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
UNITS = {8: np.int64, 4: np.int32, 2: np.int16}


class Judge:
    """Watches the launches of a case, and what its tests compare.

    launches: of the case so far. judged: what was held to be equal although bits differ.
    """

    def __init__(self, host: Host) -> None:
        self.launches = 0
        self.judged: list[str] = []
        self._classes: set[tuple[str, str]] = set()
        self._host = host
        host.on_launch = self._launched
        self._testing: Any = import_module("torch.testing")
        self._assert_close: Callable[..., None] = self._testing.assert_close
        self._testing.assert_close = self.assert_close

    def begin(self) -> None:
        """Forget the last case."""
        self.launches, self.judged, self._classes = 0, [], set()
        self._host.forgiven.clear()

    @property
    def forgiven(self) -> list[str]:
        """The rules that were broken and only warned of."""
        return sorted(self._host.forgiven)

    def close(self) -> None:
        """Put torch's comparison back."""
        self._testing.assert_close = self._assert_close

    def _launched(self, kernel: Kernel, _grid: tuple[int, ...]) -> None:
        self.launches += 1
        for op in kernel.walk():
            name = op.definition.accuracy
            if name and ACCURACY[name]["kind"] == "ulp":
                self._classes.add((name, str(op.attributes.get("rounding", ""))))

    def assert_close(self, actual: Any, expected: Any, **options: Any) -> None:
        """torch.testing.assert_close, with the classes in mind where it demands equal bits."""
        try:
            self._assert_close(actual, expected, **options)
        except AssertionError:
            if options.get("rtol") != 0 or options.get("atol") != 0:
                raise
            names = unit_names(self._classes, str(getattr(actual, "dtype", "")))
            units = distance(actual, expected)
            most = max(names.values(), default=0)
            if units is None or units > most:
                raise
            classes = ", ".join(sorted(names))
            self.judged.append(f"{units} of {most} units apart ({classes})")


def unit_names(classes: set[tuple[str, str]], dtype: str) -> dict[str, int]:
    """By class, how many units two answers of a dtype of torch may be apart.

    classes: with the rounding that an operation asked for. Limits that depend on operands, which
    are not known here, count as 0.
    """
    found: dict[str, int] = {}
    key = DTYPES.get(dtype.removeprefix("torch."), "")
    for name, rounding in classes:
        table = ACCURACY[name]
        limit: object = table.get(rounding, {}).get(key, table["limits"].get(key, 0))
        if isinstance(limit, dict):
            limit = cast("dict[str, object]", limit).get("ulp", 0)
        if isinstance(limit, int | float) and limit:
            found[name] = max(math.floor(2 * limit), found.get(name, 0))
    return found


def distance(actual: Any, expected: Any) -> int | None:
    """The most units between elements of two tensors of floats.

    None if they cannot be compared: another dtype or shape, or NaN in one where the other has none.
    """
    same = getattr(actual, "dtype", None) == getattr(expected, "dtype", None)
    if not same or actual.shape != expected.shape or not actual.dtype.is_floating_point:
        return None
    if actual.element_size() not in UNITS or not actual.numel():
        return None
    lhs, rhs = _ordered(actual), _ordered(expected)
    nan = np.asarray(actual.isnan().cpu()), np.asarray(expected.isnan().cpu())
    if not np.array_equal(*nan):
        return None
    gap = np.where(nan[0], 0, np.abs(lhs - rhs))
    return int(gap.max())


def _ordered(tensor: Any) -> NDArray[Any]:
    """Integers in the order of the floats, neighbours one apart; both zeros are 0."""
    torch: Any = import_module("torch")
    unit: Any = UNITS[tensor.element_size()]
    bits: Any = tensor.detach().contiguous().cpu().view(getattr(torch, np.dtype(unit).name)).numpy()
    wide = bits.astype(object) if unit is np.int64 else bits.astype(np.int64)
    least = int(np.iinfo(unit).max) + 1
    return cast("NDArray[Any]", np.where(bits < 0, -(wide + least), wide))
