"""Helper functions are inlined; closures are captured by value and belong to the cache key."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile import KernelFunction, ReftileError


def scale(x, factor=2):
    return x * factor


def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x


def first_power_above(n):
    power = 1
    for _ in range(30):
        if power > n:
            return power
        power *= 2
    return 0


@reftile.kernel
def use_helpers(x, out):
    i = ct.bid(0)
    value = ct.gather(x, i)
    ct.scatter(out, i, clamp(scale(value, factor=10), 5, 25))


def run(kernel: KernelFunction, *args: object, blocks: int = 4) -> list[int]:
    out = np.zeros(blocks, np.int32)
    kernel[blocks](*args, out)
    return out.tolist()


def test_helpers_are_inlined_with_defaults_and_keywords() -> None:
    assert run(use_helpers, np.arange(4, dtype=np.int32)) == [5, 10, 20, 25]


@reftile.kernel
def powers(out):
    i = ct.bid(0)
    ct.scatter(out, i, first_power_above(i * 3))


def test_a_helper_returns_from_inside_a_loop() -> None:
    assert run(powers) == [1, 4, 8, 16]


def make_adder(amount: int) -> KernelFunction:
    @reftile.kernel
    def add(out):
        ct.scatter(out, 0, amount)

    return add


def test_closures_are_captured_by_value() -> None:
    one, two = make_adder(1), make_adder(2)
    assert (run(one, blocks=1), run(two, blocks=1)) == ([1], [2])


LIMIT = 3


@reftile.kernel
def read_global(out):
    ct.scatter(out, 0, LIMIT)


def test_a_global_that_changes_gives_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    out = np.zeros(1, np.int32)
    before = read_global.trace(out)
    assert read_global.trace(out) is before
    monkeypatch.setitem(globals(), "LIMIT", 4)
    assert read_global.trace(out) is not before
    assert run(read_global, blocks=1) == [4]
    monkeypatch.undo()
    assert read_global.trace(out) is before


def test_a_captured_variable_that_changes_gives_another_kernel() -> None:
    amount = 1

    @reftile.kernel
    def add(out):
        ct.scatter(out, 0, amount)

    assert run(add, blocks=1) == [1]
    amount = 5
    assert run(add, blocks=1) == [5]


def test_a_helper_whose_closure_changes_gives_another_kernel() -> None:
    def make(n: int):
        return lambda x: x + n

    helper = make(1)

    @reftile.kernel
    def use(out):
        ct.scatter(out, 0, helper(10))

    assert run(use, blocks=1) == [11]
    helper = make(2)
    assert run(use, blocks=1) == [12]


def test_constants_and_dtypes_are_part_of_the_key() -> None:
    @reftile.kernel
    def fill(n: ct.Constant[int], x):
        ct.scatter(x, 0, n)

    a = np.zeros(1, np.int32)
    assert fill.trace(1, a) is fill.trace(1, a)
    assert fill.trace(1, a) is not fill.trace(2, a)
    assert fill.trace(1, a) is not fill.trace(1, a.astype(np.int64))


# Local functions, records, functions of reductions


@reftile.kernel
def local_functions(out):
    n = 1

    def add(x):
        return x + n

    ct.scatter(out, 0, add(10))
    n = 2
    ct.scatter(out, 1, add(10))
    twice = lambda x: add(add(x))  # noqa: E731
    ct.scatter(out, 2, twice(10))


def test_local_functions_see_the_names_around_them() -> None:
    out = np.zeros(3, np.int32)
    local_functions[1](out)
    assert out.tolist() == [11, 12, 14]


class Range(NamedTuple):
    low: Any
    high: Any


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any

    def sum(self):
        return self.x + self.y

    def __mul__(self, other):
        return Point(self.x * other, self.y * other)


@reftile.kernel
def records(out):
    i = ct.bid(0)
    point = Point(i, 1) * 10
    bounds = Range(low=i, high=i + 1)
    if i == 2:
        point = Point(100, i)
    ct.scatter(out, i, point.sum() + bounds.high)


def test_dataclasses_and_named_tuples_hold_values() -> None:
    assert run(records) == [11, 22, 105, 44]


@reftile.kernel
def custom_reductions(x, out):
    t = ct.load(x, (0,), (8,))
    ct.scatter(out, 0, ct.reduce(t, 0, operator.add, 0))
    ct.scatter(out, 1, ct.reduce(t, 0, lambda a, b: ct.where(a > b, a, b), -100))
    total, count = ct.reduce((t, 1), 0, lambda s, n, v, m: (s + v, n + m), (0, 0))
    ct.scatter(out, 2, total + count)
    ct.scatter(out, 3, ct.extract(ct.scan(t, 0, operator.add, 0), (3,), ()))


def test_reductions_take_functions() -> None:
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)
    out = np.zeros(4, np.int32)
    custom_reductions[1](x, out)
    assert out.tolist() == [x.sum(), 9, x.sum() + 8, x[:4].sum()]


# Diagnoses


def inner(x):
    return ct.load(x, (0, 0), (4,))


def outer(x):
    return inner(x)


@reftile.kernel
def wrong_inside(x):
    ct.store(x, (0,), outer(x))


def test_a_mistake_in_a_helper_shows_the_chain_of_calls() -> None:
    with pytest.raises(ReftileError) as error:
        wrong_inside.trace(np.zeros(4, np.int32))
    text = str(error.value)
    assert error.value.diagnosis.rule == "lang.index.rank"
    assert "return ct.load(x, (0, 0), (4,))" in text
    assert "inlined into kernel `wrong_inside`" in text
    calls = [line for line in text.splitlines() if "called from" in line]
    assert len(calls) == 2
    assert all("test_functions.py" in line for line in calls)


def endless(n):
    return endless(n + 1)


@reftile.kernel
def recursion(out):
    ct.scatter(out, 0, endless(0))


def test_recursion_without_end_is_diagnosed() -> None:
    with pytest.raises(ReftileError) as error:
        recursion.trace(np.zeros(1, np.int32))
    assert error.value.diagnosis.rule == "lang.recursion"


def test_calling_a_kernel_or_a_name_outside_a_kernel_is_diagnosed() -> None:
    with pytest.raises(ReftileError, match="cannot be called"):
        use_helpers(1, 2)
    with pytest.raises(ReftileError, match="only be called in a kernel"):
        ct.bid(0)
    assert ct.cdiv(9, 4) == 3


def test_wrong_arguments_are_diagnosed_with_the_signature() -> None:
    @reftile.kernel
    def wrong(x):
        ct.load(x, (0,), shape=(4,), padding=0)  # pyright: ignore[reportCallIssue]

    with pytest.raises(ReftileError) as error:
        wrong.trace(np.zeros(4, np.int32))
    assert error.value.diagnosis.rule == "lang.arguments"
    assert "padding_mode" in error.value.diagnosis.hint


def test_nothing_is_executed_when_a_kernel_is_defined() -> None:
    @reftile.kernel
    def never(x):
        raise RuntimeError("executed")

    with pytest.raises(ReftileError) as error:
        never.trace(np.zeros(1))
    assert error.value.diagnosis.rule == "lang.syntax"
