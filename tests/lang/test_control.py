"""Branches and loops: what is decided while tracing, and what when the kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile import ReftileError
from reftile.ir.print import show


def run(
    kernel: reftile.KernelFunction, *args: object, blocks: int = 1, length: int = 4
) -> list[int]:
    out = np.zeros(length, np.int32)
    kernel[blocks](*args, out)
    return out.tolist()


def rule_of(call: Callable[[], object]) -> str:
    with pytest.raises(ReftileError) as error:
        call()
    return error.value.diagnosis.rule


@reftile.kernel
def choose(flag: ct.Constant[bool], out):
    if flag:
        value = 1
    else:
        value = ct.undefined_name  # never traced
    ct.scatter(out, 0, value)


def test_a_branch_not_taken_is_not_traced() -> None:
    assert run(choose, True)[0] == 1
    assert "if" not in show(choose.trace(True, np.zeros(4, np.int32)))


@reftile.kernel
def by_block(out):
    i = ct.bid(0)
    if i % 2 == 0:
        value, step = i * 10, 1
    elif i == 1:
        value, step = 100, 2
    else:
        value, step = 200 + i, 3
    ct.scatter(out, i, value + step)


def test_branches_at_run_time_join_their_values() -> None:
    assert run(by_block, blocks=4) == [1, 102, 21, 206]


@reftile.kernel
def one_path(out):
    if ct.bid(0) == 0:
        value = 3
    ct.scatter(out, 0, value)  # pyright: ignore[reportPossiblyUnboundVariable]


def test_a_name_defined_on_one_path_only_is_diagnosed() -> None:
    with pytest.raises(ReftileError) as error:
        one_path.trace(np.zeros(4, np.int32))
    assert error.value.diagnosis.rule == "lang.undefined"
    assert "only one branch of the `if`" in error.value.diagnosis.message


@reftile.kernel
def two_dtypes(out):
    if ct.bid(0) == 0:
        value = ct.int32(3)
    else:
        value = ct.float32(3)
    ct.scatter(out, 0, value)


def test_branches_of_two_dtypes_are_diagnosed_where_the_name_is_used() -> None:
    assert rule_of(lambda: two_dtypes.trace(np.zeros(4, np.int32))) == "lang.undefined"


@reftile.kernel
def leave_early(n, out):
    i = ct.bid(0)
    if i >= n:
        return
    ct.scatter(out, i, i + 1)


def test_a_kernel_returns_early() -> None:
    assert run(leave_early, 2, blocks=4) == [1, 2, 0, 0]


@reftile.kernel
def fibonacci(n, out):
    a, b = 0, 1
    for i in range(n):
        ct.scatter(out, i, a)
        a, b = b, a + b


def test_a_loop_carries_what_it_assigns() -> None:
    assert run(fibonacci, 8, length=8) == [0, 1, 1, 2, 3, 5, 8, 13]


@reftile.kernel
def break_and_continue(n, out):
    total = 0
    for i in range(n):
        if i == 2:
            continue
        if i == 5:
            break
        total += i
    ct.scatter(out, 0, total)


def test_break_and_continue_in_a_counted_loop() -> None:
    assert run(break_and_continue, 9)[0] == 0 + 1 + 3 + 4
    assert run(break_and_continue, 2)[0] == 1


@reftile.kernel
def collatz(n, out):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    ct.scatter(out, 0, steps)


def test_while_runs_until_its_condition_is_false() -> None:
    assert run(collatz, 6)[0] == 8


@reftile.kernel
def widen(n, out):
    total: Any = 0
    for _ in range(n):
        total = total + 0.5
    ct.scatter(out, 0, total.astype(ct.int32))


def test_a_carried_number_takes_the_dtype_that_it_gets_in_the_loop() -> None:
    assert run(widen, 4)[0] == 2


@reftile.kernel
def grow(n, out):
    x = ct.zeros((2,), ct.int32)
    for _ in range(n):
        x = ct.cat((x, x), 0)
    ct.store(out, (0,), x)


def test_a_carried_tile_that_changes_shape_is_diagnosed() -> None:
    with pytest.raises(ReftileError) as error:
        grow.trace(3, np.zeros(4, np.int32))
    assert error.value.diagnosis.rule == "lang.undefined"
    assert "before the loop" in error.value.diagnosis.message


@reftile.kernel
def after_loop(n, out):
    for i in range(n):
        last = i
    ct.scatter(out, 0, last)  # pyright: ignore[reportPossiblyUnboundVariable]


def test_a_name_that_only_the_loop_defines_is_not_defined_after_it() -> None:
    assert rule_of(lambda: after_loop.trace(3, np.zeros(4, np.int32))) == "lang.undefined"


@reftile.kernel
def unrolled(out):
    tiles = ()
    for i in ct.static_iter(range(3)):
        if i == 1:
            continue
        tiles += (ct.full((2,), i, ct.int32),)
    for i, tile in enumerate(tiles):
        ct.store(out, (i,), tile + len(tiles))


def test_static_loops_are_unrolled() -> None:
    assert run(unrolled) == [2, 2, 4, 4]
    assert "for" not in show(unrolled.trace(np.zeros(4, np.int32)))


@reftile.kernel
def break_unrolled(out):
    for i in ct.static_iter(range(3)):
        if ct.bid(0) == i:
            break


def test_leaving_an_unrolled_loop_at_run_time_is_diagnosed() -> None:
    assert rule_of(lambda: break_unrolled.trace(np.zeros(4, np.int32))) == "lang.unrolled"


@reftile.kernel
def guarded(n, out):
    i = ct.bid(0)
    if n != 0 and 12 // n == i:
        ct.scatter(out, i, 1)


def test_and_does_not_compute_what_python_would_not() -> None:
    assert run(guarded, 0, blocks=4) == [0, 0, 0, 0]
    assert run(guarded, 6, blocks=4) == [0, 0, 1, 0]


@reftile.kernel
def conditional_expression(out):
    i = ct.bid(0)
    ct.scatter(out, i, 10 if i < 2 else i)


def test_conditional_expressions_at_run_time() -> None:
    assert run(conditional_expression, blocks=4) == [10, 10, 2, 3]


@reftile.kernel
def chosen_array(a, b, out):
    i = ct.bid(0)
    source = a if i == 0 else b
    ct.scatter(out, i, ct.gather(source, i))


def test_arrays_can_be_chosen_at_run_time() -> None:
    a, b = np.full(4, 7, np.int32), np.arange(6, dtype=np.int32)
    assert run(chosen_array, a, b, blocks=2)[:2] == [7, 1]


@reftile.kernel
def choose_from_list(arrays, out):
    i = ct.bid(0)
    ct.scatter(out, i, ct.gather(arrays[i], i))


def test_a_list_of_arrays_is_indexed_at_run_time() -> None:
    arrays = [np.full(4, 10 * i, np.int32) for i in range(4)]
    assert run(choose_from_list, arrays, blocks=4) == [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("try:\n        pass\n    finally:\n        pass", "`try`"),
        ("import math", "`import`"),
        ("del out", "`del`"),
        ("out[0] = 1", "assignment to"),
        ("yield 1", "`yield`"),
        ("x = {1, 2}", "a set"),
    ],
)
def test_python_that_kernels_do_not_have_is_named(
    statement: str, words: str, tmp_path: object
) -> None:
    path = f"{tmp_path}/kernel.py"
    source = f"def f(out):\n    {statement}\n"
    with open(path, "w") as file:
        file.write(source)
    names: dict[str, object] = {}
    exec(compile(source, path, "exec"), names)
    with pytest.raises(ReftileError) as error:
        reftile.kernel(names["f"]).trace(np.zeros(4, np.int32))  # type: ignore[arg-type]
    assert error.value.diagnosis.rule == "lang.syntax"
    assert words in error.value.diagnosis.message
