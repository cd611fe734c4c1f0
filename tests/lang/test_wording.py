"""What is said of numbers that do not fit, of None for a number, and of parameters with stars."""

from __future__ import annotations

from typing import Optional

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.ir.diagnostics import ReftileError


def refusal(kernel: reftile.KernelFunction, *args: object) -> str:
    with pytest.raises(ReftileError) as error:
        kernel[(1,)](*args)
    return str(error.value)


@reftile.kernel
def huge_integer(x):
    ct.store(x, (0,), ct.full((4,), 2**200, ct.float32))


@reftile.kernel
def huger_integer(x):
    ct.store(x, (0,), ct.full((4,), 10**400, ct.float32))


@reftile.kernel
def huge_float(x):
    ct.store(x, (0,), ct.astype(ct.full((4,), 1e5, ct.float16), ct.float32))


@reftile.kernel
def infinite(x):
    ct.store(x, (0,), ct.full((4,), float("-inf"), ct.float32))


@reftile.kernel
def nearly_too_great(x):
    # Half a unit in the last place above the greatest: it is rounded to it.
    ct.store(x, (0,), ct.astype(ct.full((4,), 65519.0, ct.float16), ct.float32))


@pytest.mark.parametrize("kernel", [huge_integer, huger_integer, huge_float])
def test_a_finite_number_that_would_become_infinite_is_refused(
    kernel: reftile.KernelFunction,
) -> None:
    text = refusal(kernel, np.zeros(4, np.float32))
    assert text.startswith("error[lang.constant.range]") or "constant.range" in text
    assert "does not fit float" in text
    assert 'float("inf")' in text
    assert "test_wording.py" in text


def test_infinity_and_what_is_rounded_to_the_greatest_are_welcome() -> None:
    x = np.zeros(4, np.float32)
    infinite[(1,)](x)
    assert (x == -np.inf).all()
    nearly_too_great[(1,)](x)
    assert (x == 65504).all()


@reftile.kernel
def scale(x, factor: float):
    ct.store(x, (0,), ct.load(x, (0,), (4,)) * factor)


@reftile.kernel
def maybe_scale(x, factor: Optional[float] = None):  # noqa: UP045
    tile = ct.load(x, (0,), (4,))
    if factor is not None:
        tile = tile * factor
    ct.store(x, (0,), tile)


def test_none_for_a_number_is_diagnosed_at_the_launch() -> None:
    text = refusal(scale, np.zeros(4, np.float32), None)
    assert "`factor` is annotated as float, found None" in text
    x = np.ones(4, np.float32)
    maybe_scale[(1,)](x)
    maybe_scale[(1,)](x, 3.0)
    assert (x == 3).all()


@reftile.kernel
def many(x, *rest: int):
    pass


def test_annotations_are_not_printed() -> None:
    text = refusal(many, np.zeros(4, np.float32))
    assert "has the parameter `*rest`" in text


@reftile.kernel(tokens="none")
def unnamed(x):
    tile = ct.load(x, (0,), (4,))
    ct.store(x, (0,), tile + 1)


def test_hints_for_races_name_every_token() -> None:
    text = refusal(unnamed, np.zeros(4, np.float32))
    assert "race.within_block" in text
    assert "%," not in text and "% " not in text and "%)" not in text
