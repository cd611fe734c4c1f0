"""The tokens that are inserted, as text; the switch that inserts none; explicit ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile import KernelFunction, ReftileError
from reftile.ir.core import Op, Value
from reftile.ir.print import show
from reftile.ir.types import TokenType


def order(kernel: KernelFunction, *args: object) -> list[str]:
    """Memory operations and what carries tokens, one a line; tokens are numbered as they appear."""
    names: dict[Value, str] = {}
    lines: list[str] = []

    def write(op: Op) -> None:
        taken = [v for v in op.operands if isinstance(v.type, TokenType)]
        made = [v for v in op.results if isinstance(v.type, TokenType)]
        inside = [v for r in op.regions for v in r.block.arguments if isinstance(v.type, TokenType)]
        for value in (*made, *taken, *inside):
            names.setdefault(value, f"t{len(names)}")
        head = ", ".join(names[v] for v in made)
        carried = f" -> {', '.join(names[v] for v in inside)}" if inside else ""
        text = f"{op.name}({', '.join(names[v] for v in taken)}){carried}"
        if made or taken or op.regions or op.name in ("continue", "break"):
            lines.append(f"{head} = {text}" if made else text)
        for region in op.regions:
            for inner in region.block.ops:
                write(inner)

    for op in kernel.trace(*args).body.block.ops:
        write(op)
    return lines


A, B = np.zeros(16, np.int32), np.zeros(16, np.int32)


@reftile.kernel
def load_load_store(a):
    x = ct.load(a, (0,), (4,))
    y = ct.load(a, (1,), (4,))
    ct.store(a, (0,), x + y)
    ct.store(a, (1,), ct.load(a, (0,), (4,)))


def test_loads_are_unordered_and_a_store_waits_for_them() -> None:
    assert order(load_load_store, A) == [
        "t0 = load_view_tko()",
        "t1 = load_view_tko()",
        "t2 = join_tokens(t0, t1)",
        "t3 = store_view_tko(t2)",
        "t4 = load_view_tko(t3)",
        "t5 = store_view_tko(t4)",
    ]


@reftile.kernel
def copy(a, b):
    ct.store(b, (0,), ct.load(a, (0,), (4,)))
    ct.store(b, (1,), ct.load(a, (1,), (4,)))


def test_memory_that_cannot_overlap_is_unordered() -> None:
    assert order(copy, A, B) == [
        "t0 = load_view_tko()",
        "t1 = store_view_tko()",
        "t2 = load_view_tko()",
        "t3 = store_view_tko(t1)",
    ]


def test_arguments_that_share_memory_are_ordered() -> None:
    assert order(copy, A, A[4:]) == [
        "t0 = load_view_tko()",
        "t1 = store_view_tko(t0)",
        "t2 = load_view_tko(t1)",
        "t3 = store_view_tko(t2)",
    ]


def test_sharing_is_found_at_launch_and_written_on_the_arguments() -> None:
    alone, shared = copy.trace(A, B), copy.trace(A, A[4:])
    assert alone is not shared
    assert show(alone).count("noalias") == 2
    assert show(shared).count("alias = 0") == 2
    assert show(copy.trace(A[:8], A[8:])).count("noalias") == 2


@reftile.kernel
def in_a_loop(a, n):
    for i in range(n):
        ct.store(a, (0,), ct.load(a, (0,), (4,)) + i)


def test_loops_carry_tokens() -> None:
    assert order(in_a_loop, A, 3) == [
        "t0 = make_token()",
        "t1 = for(t0) -> t2",
        "t3 = load_view_tko(t2)",
        "t4 = store_view_tko(t3)",
        "continue(t4)",
    ]


@reftile.kernel
def load_loop(a, b, n):
    total = ct.zeros((4,), ct.int32)
    for i in range(n):
        total += ct.load(a, (i,), (4,))
    ct.store(b, (0,), total)


def test_a_loop_that_only_reads_carries_none() -> None:
    assert order(load_loop, A, B, 2) == [
        "for()",
        "t0 = load_view_tko()",
        "continue()",
        "t1 = store_view_tko()",
    ]


@reftile.kernel
def in_a_branch(a):
    if ct.bid(0) == 0:
        ct.store(a, (0,), 1)
    ct.store(a, (1,), 2)


def test_branches_yield_tokens() -> None:
    assert order(in_a_branch, A) == [
        "t0 = make_token()",
        "t1 = if()",
        "t2 = store_view_tko()",
        "yield(t2)",
        "yield(t0)",
        "t3 = store_view_tko(t1)",
    ]


@reftile.kernel
def publish(a, flag):
    ct.store(a, (0,), ct.ones((4,), ct.int32))
    ct.atomic_xchg(flag, 0, 1, memory_order=ct.MemoryOrder.RELEASE)


@reftile.kernel
def observe(a, flag):
    ct.atomic_add(flag, 0, 0, memory_order=ct.MemoryOrder.ACQUIRE)
    ct.store(a, (0,), ct.load(a, (0,), (4,)))


def test_a_release_waits_for_everything_before_it() -> None:
    assert order(publish, A, B) == ["t0 = store_view_tko()", "t1 = atomic_rmw_tko(t0)"]


def test_everything_waits_for_an_acquire_before_it() -> None:
    assert order(observe, A, B) == [
        "t0 = atomic_rmw_tko()",
        "t1 = load_view_tko(t0)",
        "t2 = store_view_tko(t1)",
    ]


def test_the_switch_inserts_no_tokens() -> None:
    none = load_load_store.with_tokens("none")
    assert not re.search(r"token=|join_tokens|make_token", show(none.trace(A)))
    with pytest.raises(ReftileError) as error:
        none[1](A)
    assert error.value.diagnosis.rule.startswith("race.")
    load_load_store[1](A)


@reftile.kernel(tokens="none")
def explicit(a, b):
    x, t0 = ct.load(a, (0,), (4,), token=ct.make_token())
    y, t1 = ct.load(a, (1,), (4,), token=t0)
    t2 = ct.store(a, (0,), x + y, token=ct.join_tokens(t0, t1))
    z, t3 = ct.gather(a, ct.arange(4, dtype=ct.int32), token=t2)
    ct.store(b, (0,), z, token=t3)


def test_explicit_tokens_order_what_the_author_says() -> None:
    a, b = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    explicit[1](a, b)
    assert b[:4].tolist() == [4, 6, 8, 10]
    assert order(explicit, A, B) == [
        "t0 = make_token()",
        "t1 = load_view_tko(t0)",
        "t2 = load_view_tko(t1)",
        "t3 = join_tokens(t1, t2)",
        "t4 = store_view_tko(t3)",
        "t5 = load_ptr_tko(t4)",
        "t6 = store_view_tko(t5)",
    ]


@reftile.kernel
def partly_explicit(a):
    t = ct.store(a, (0,), 1, token=ct.make_token())
    ct.store(a, (0,), 2)
    ct.store(a, (0,), 3, token=t)


def test_an_operation_with_a_token_waits_for_that_alone_and_others_wait_for_it() -> None:
    assert order(partly_explicit, A) == [
        "t0 = make_token()",
        "t1 = store_view_tko(t0)",
        "t2 = store_view_tko(t1)",
        "t3 = store_view_tko(t1)",
    ]


def test_a_wrong_token_is_diagnosed() -> None:
    @reftile.kernel
    def wrong(a):
        ct.store(a, (0,), 1, token=3)

    with pytest.raises(ReftileError) as error:
        wrong.trace(A)
    assert error.value.diagnosis.rule == "lang.type.token"
