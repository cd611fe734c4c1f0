"""Rewriting and running passes."""

from __future__ import annotations

import pytest

from reftile.ir import ops
from reftile.ir.core import Kernel, Op
from reftile.ir.diagnostics import Bug, ReftileError, fail
from reftile.ir.parse import parse
from reftile.ir.passes import run_passes
from reftile.ir.print import show
from reftile.ir.rewrite import Rewriter, no_match, rewrite
from reftile.ir.type_text import parse_type
from reftile.ir.verify import verify

TEXT = """\
tile kernel @k(%a: tile<8xi32>) {
  %zero = constant {value = 0} : tile<8xi32>
  %b = addi %a, %zero : tile<8xi32>
  %c = addi %b, %zero : tile<8xi32>
  %d = addi %c, %a : tile<8xi32>
  return
}
"""


def drop_sum_with_zero(op: Op, rewriter: Rewriter) -> None:
    if not isinstance(op, ops.Addi):
        no_match("not a sum")
    constant = rewriter.defining(op.rhs, ops.Constant)
    if constant is None or constant.value.values().any():
        no_match("the right operand is not zero")
    rewriter.replace(op, [op.lhs])


def test_a_pattern_fires_until_nothing_changes() -> None:
    kernel = parse(TEXT).kernel()
    refusals = rewrite(kernel, [drop_sum_with_zero])
    verify(kernel)
    assert [op.name for op in kernel.walk()] == ["constant", "addi", "return"]
    assert "%d = addi %a, %a" in show(kernel)
    assert "the right operand is not zero" in {r.why for r in refusals}


def test_a_pattern_inserts_in_front_of_what_it_replaces() -> None:
    def double(op: Op, rewriter: Rewriter) -> None:
        if not isinstance(op, ops.Addi) or op.lhs is op.rhs:
            no_match("not a sum of two values")
        both = rewriter.before(op).create(ops.Addi, op.lhs, op.lhs)
        rewriter.replace(op, [both.result])

    kernel = parse(TEXT).kernel()
    rewrite(kernel, [double])
    verify(kernel)


def test_patterns_that_undo_each_other_are_found() -> None:
    def swap(op: Op, rewriter: Rewriter) -> None:
        if not isinstance(op, ops.Addi):
            no_match("not a sum")
        rewriter.replace(op, [rewriter.before(op).create(ops.Addi, op.rhs, op.lhs).result])

    with pytest.raises(RuntimeError, match="no fixed point: swap"):
        rewrite(parse(TEXT).kernel(), [swap])


def test_a_value_is_not_replaced_by_one_of_another_type() -> None:
    def wrong(op: Op, rewriter: Rewriter) -> None:
        if not isinstance(op, ops.Addi):
            no_match("not a sum")
        one = rewriter.before(op).create(ops.Constant, types=[parse_type("tile<i32>")], value=None)
        rewriter.replace(op, [one.result])

    with pytest.raises(TypeError, match="cannot be replaced"):
        rewrite(parse(TEXT).kernel(), [wrong])


def forget_return(kernel: Kernel, target: str) -> Kernel:
    kernel.body.block.ops.pop()
    return kernel


def crash(kernel: Kernel, target: str) -> Kernel:
    raise KeyError("x")


def refuse(kernel: Kernel, target: str) -> Kernel:
    raise fail("plan.shared_memory", "too much")


def keep(kernel: Kernel, target: str) -> Kernel:
    return kernel


def test_passes_are_timed_and_their_text_kept() -> None:
    report = run_passes(parse(TEXT).kernel(), [keep], keep_text=True)
    assert report.after("keep") == TEXT
    assert report.runs[0].seconds >= 0
    with pytest.raises(KeyError):
        report.after("other")


@pytest.mark.parametrize("bad", [forget_return, crash])
def test_a_broken_pass_is_our_bug_and_shows_the_text_before(bad: object) -> None:
    with pytest.raises(Bug) as error:
        run_passes(parse(TEXT).kernel(), [bad])  # type: ignore[list-item]
    assert f"pass {bad.__name__}" in str(error.value)  # type: ignore[attr-defined]
    assert TEXT in str(error.value)


def test_a_refusal_of_a_pass_reaches_the_user() -> None:
    with pytest.raises(ReftileError):
        run_passes(parse(TEXT).kernel(), [refuse])
