"""The verifier keeps what it found of an operation's form, and still tells every fault."""

from __future__ import annotations

from reftile.ir.ops import OPS
from reftile.ir.parse import parse
from reftile.ir.verify import diagnose

KERNEL = """\
tile kernel @k(%a: tile<8xi32>, %b: tile<8xi32>, %f: tile<8xf32>) {
  %s = addi %a, %b : tile<8xi32>
  %r = permute %a {permutation = [0]} : tile<8xi32>
  return
}
"""


def rules_broken(*changes: tuple[str, str]) -> list[str]:
    """The rules that the kernel breaks after some changes of its text."""
    text = KERNEL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return [d.rule for d in diagnose(parse(text))]


def test_a_form_that_is_right_does_not_hide_its_like() -> None:
    assert rules_broken() == []
    assert rules_broken(("addi %a, %b", "addi %a, %f")) == ["addi.rhs.dtype"]
    assert rules_broken() == []


def test_a_fault_that_stands_twice_is_told_twice() -> None:
    again = "addi %a, %f : tile<8xi32>\n  %t = addi %a, %f"
    assert rules_broken(("addi %a, %b", again)) == ["addi.rhs.dtype"] * 2


def test_equal_attributes_of_other_classes_are_told_apart() -> None:
    assert rules_broken() == []
    assert rules_broken(("[0]", "[0.0]")) == ["permute.permutation.kind"]
    assert rules_broken(("[0]", "[false]")) == ["permute.permutation.kind"]


def test_a_dictionary_in_a_list_is_a_fault_like_others() -> None:
    assert rules_broken(("[0]", "[{axis = 0}]")) == ["permute.permutation.kind"]


def test_a_use_of_a_right_form_before_its_definition_is_told() -> None:
    kernel = parse(KERNEL).kernel()
    block = kernel.body.block
    first = block.ops[0]
    block.ops[1].arguments = (first.results[0],)
    assert [d.rule for d in diagnose(kernel)] == []
    block.ops[:2] = block.ops[1], first
    assert [d.rule for d in diagnose(kernel)] == ["value.undefined"]


def test_no_record_reads_the_layout_of_a_tile() -> None:
    """Forms that differ in it alone are equal, and only one of them is looked at."""
    reading = {
        rule.check_text
        for cls in OPS.values()
        for rule in cls.definition.rules
        if ".layout" in rule.check_text
    }
    of_buffers = {
        "sliced_layout(S, D.shape) in ('', D.layout)",
        "D.layout == transposed_layout(S)",
        "bits(element(L)) == 16 or "
        "((is_kind(L, 'tile') or '.t' not in L.layout) and '.t' in R.layout)",
        "(is_kind(L, 'tile') or 'swizzle' in L.layout) and 'swizzle' in R.layout",
    }
    assert reading == of_buffers
