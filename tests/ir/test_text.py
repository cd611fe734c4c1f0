"""The text form: canonical, and the same after a round trip."""

from __future__ import annotations

import pytest

from reftile.ir.compare import same
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import DEEPEST, parse
from reftile.ir.print import show
from reftile.ir.verify import diagnose, verify, verify_unless_known
from tests.work import calls_in

SUM = """\
// sums the numbers below n
tile kernel @sum(%n: tile<i32> {access = "x"}) attributes {target = "sm_90a"} {
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %sum = for %zero, %n, %one, [%zero] : tile<i32> body(%i: tile<i32>, %acc: tile<i32>) {
    %next = addi %acc, %i {overflow = nsw} : tile<i32>
    // the next one
    continue %next
  }
  %c = constant {value = [[1.5, -0.0], [0.10000000149011612, 0x7FC00000]]} : tile<2x2xf32>
  %b = constant {value = true} : tile<i1>
  %r = if %b : tile<i32> then {
    yield %sum
  } otherwise {
    yield %zero
  }
  return
}
"""


def test_canonical_text_prints_as_it_was_read() -> None:
    assert show(parse(SUM)) == SUM


def test_a_printed_kernel_reads_back_as_the_same_kernel() -> None:
    module = parse(SUM)
    assert same(parse(show(module)), module)


def test_the_sum_verifies() -> None:
    verify(parse(SUM))


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("yield %zero", "yield %b", "yield.types"),
        ("continue %next", "yield %next", "for.body.ending"),
        ("  return\n", "", "kernel.no_return"),
        ("overflow = nsw", "overflow = never", "addi.overflow.kind"),
        ("%acc, %i {", "%acc, %acc {", None),
        ("%sum = for %zero, %n", "%sum = for %zero, %zero", None),
    ],
)
def test_the_verifier_names_the_rule(old: str, new: str, rule: str | None) -> None:
    assert old in SUM
    found = [d.rule for d in diagnose(parse(SUM.replace(old, new)))]
    assert found == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("addi", "addj", "text.unknown_op"),
        ("%one, [%zero]", "%two, [%zero]", "text.undefined"),
        ("%next = addi", "%acc = addi", "text.redefined"),
        ("tile<2x2xf32>", "tile<2x2xf33>", "text.type"),
        ("tile<2x2xf32>", "tile<99999999x9999999xf32>", "text.type"),
        ("[[1.5, -0.0]", "[[1.5]", "text.attribute"),
        ("[[1.5", "[[" + "9" * 500, "text.number"),
        ("value = true", "value = " + "[" * 5000, "text.too_deep"),
        ("value = 0}", "value = 3000000000000}", "text.attribute"),
        ("addi %acc, %i", "addi %acc", "text.operands"),
        ("addi %acc, %i", "addi %acc, %i, %i", "text.operands"),
        ("addi %acc, %i", "addi %acc, mask=%i", "text.operands"),
        ("\n}\n", "\n", "text.syntax"),
        ("tile kernel", "tile kernal", "text.syntax"),
    ],
)
def test_bad_text_is_diagnosed_with_a_place(old: str, new: str, rule: str) -> None:
    assert old in SUM
    with pytest.raises(ReftileError) as error:
        parse(SUM.replace(old, new))
    assert error.value.diagnosis.rule == rule
    assert error.value.diagnosis.span.line > 0


def test_deeply_nested_regions_are_refused_not_overflowed() -> None:
    opening = "".join("if %b then {\n" for _ in range(DEEPEST * 50))
    text = f"tile kernel @deep(%b: tile<i1>) {{\n{opening}"
    with pytest.raises(ReftileError) as error:
        parse(text)
    assert error.value.diagnosis.rule == "text.too_deep"


def test_deeply_nested_attributes_are_refused_not_overflowed() -> None:
    for opening in ("{a = ", "["):
        text = f"tile kernel @deep() {{\n%c = constant {{value = {opening * 5000}"
        with pytest.raises(ReftileError) as error:
            parse(text)
        assert error.value.diagnosis.rule == "text.too_deep"


def test_a_tile_of_many_axes_is_refused() -> None:
    text = f"tile kernel @k() {{\n%c = iota : tile<{'1x' * 200}i32>\nreturn\n}}"
    with pytest.raises(ReftileError) as error:
        parse(text)
    assert error.value.diagnosis.rule == "text.type"


def test_every_truncation_of_a_program_is_diagnosed() -> None:
    for end in range(len(SUM) - 3):
        try:
            parse(SUM[:end])
        except ReftileError:
            continue


def test_each_of_twenty_thousand_operations_parses_in_a_few_calls() -> None:
    lines = "".join(f"  %d{i} = addi %a, %a : tile<8xi32>\n" for i in range(20_000))
    text = f"tile kernel @k(%a: tile<8xi32>) {{\n{lines}  return\n}}\n"
    assert show(parse(text)) == text
    # About 45 for each, which take half a second in all.
    assert calls_in(lambda: parse(text)) < 60 * 20_000


def test_a_changed_kernel_is_verified_again() -> None:
    kernel = parse(SUM).kernel()
    verify_unless_known(kernel)
    verify_unless_known(kernel)
    kernel.body.block.ops.pop()
    with pytest.raises(ReftileError):
        verify_unless_known(kernel)
