"""What diagnoses name: the operands that broke a rule, and the operation that made the poison."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.interp.launch import Uninitialized, interpret
from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError
from tests.interp.tile_kernels import program, violation, zeros


def test_an_index_of_extract_is_named_with_the_extents() -> None:
    body = """
    %t = iota : tile<8xi32>
    %three = constant {value = 3} : tile<i32>
    %i = addi %three, %n : tile<i32>
    %p = extract %t, [%i] : tile<2xi32>
    """
    found = violation(program("%n: tile<i32>", body), 1, [4])
    assert found.rule == "extract.out_of_range"
    assert (
        found.message
        == "a tile of 8 has no such part of 2: indices count parts, found indices = [7]"
    )


def test_a_division_names_both_numbers() -> None:
    body = "%q = divi %n, %zero {signedness = signed} : tile<i32>"
    found = violation(program("%n: tile<i32>", body), 1, [7])
    assert "lhs = 7, rhs = 0" in found.message


LOAD = "%w, %u = load_ptr_tko %p {ordering = weak} : tile<i32>, token\n"


@pytest.mark.parametrize(
    ("body", "rule", "origin", "line"),
    [
        (
            LOAD + "%s = addi %w, %one : tile<i32>\n"
            "%c = cmpi %s, %one {predicate = equal, signedness = signed} : tile<i1>\n"
            "if %c then {\nyield\n}",
            "poison.branch",
            "load_ptr_tko",
            5,
        ),
        (
            LOAD + "%q = offset %p, %w : tile<ptr<i32>>\n"
            "%v, %t = load_ptr_tko %q {ordering = weak} : tile<i32>, token",
            "poison.address",
            "load_ptr_tko",
            5,
        ),
        (
            LOAD + "%e = for %zero, %w, %one, [%zero] : tile<i32> body("
            "%i: tile<i32>, %a: tile<i32>) {\ncontinue %a\n}",
            "poison.bound",
            "load_ptr_tko",
            5,
        ),
        (
            LOAD + "%s = addi %w, %one : tile<i32>\n"
            "%t = store_ptr_tko %o, %s {ordering = weak} : token",
            "poison.output",
            "load_ptr_tko",
            5,
        ),
    ],
)
@pytest.mark.parametrize("schedule", ["program", "topo"])
def test_poison_names_the_operation_that_made_it(
    body: str, rule: str, origin: str, line: int, schedule: str
) -> None:
    module = program("%p: tile<ptr<i32>>, %o: tile<ptr<i32>>", body)
    buffer = Uninitialized(zeros(4, np.int32))
    found = violation(module, 1, [buffer, zeros(4, np.int32)], schedule=schedule)
    assert found.rule == rule
    notes = [(text, span) for text, span in found.notes if "the poison comes from" in text]
    assert len(notes) == 1
    text, span = notes[0]
    assert text == f"the poison comes from `{origin}`"
    assert span is not None and span.line == line
    assert f"the poison comes from `{origin}`" in str(found)


def test_the_poison_of_a_view_without_padding_names_the_load() -> None:
    body = """
    %t = make_tensor_view %p, [], [] : tensor_view<6xi32, strides=[1]>
    %v = make_partition_view %t : partition_view<tile=(4), tensor_view<6xi32, strides=[1]>>
    %a, %u = load_view_tko %v, [%one] {ordering = weak} : tile<4xi32>, token
    %ot = make_tensor_view %o, [], [] : tensor_view<4xi32, strides=[1]>
    %ov = make_partition_view %ot : partition_view<tile=(4), tensor_view<4xi32, strides=[1]>>
    %s = store_view_tko %a, %ov, [%zero] {ordering = weak} : token
    """
    module = program("%p: tile<ptr<i32>>, %o: tile<ptr<i32>>", body)
    found = violation(module, 1, [zeros(6, np.int32), zeros(4, np.int32)])
    assert found.rule == "poison.output"
    assert any("`load_view_tko`" in text for text, _ in found.notes)


def test_a_module_without_kernels_says_so() -> None:
    with pytest.raises(ReftileError) as error:
        interpret(Module([]), 1, [])
    assert error.value.diagnosis.message == "the module has no kernel"


def test_an_empty_array_for_a_view_has_a_hint() -> None:
    module = program("%x: tensor_view<?xf32, strides=[1]>", "")
    found = violation(module, 1, [zeros(0)])
    assert "is empty" in found.message
    assert "skip the launch" in found.hint
