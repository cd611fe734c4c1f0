"""How poison spreads: far enough that nothing defined depends on it, and no further."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from reftile.interp.pure import evaluate
from reftile.interp.values import Array, Mask, Tile
from reftile.ir.core import Op
from tests.interp.pure_cases import (
    example_ops,
    kernel_of,
    random_mask,
    random_values,
    region_runner,
    same_defined,
    tile_type,
)

NAMES = [name for name, ops in example_ops().items() if ops[0].operands]


def op_of(text: str) -> Op:
    """The last operation of a kernel of these lines, before its return."""
    return kernel_of(text).body.block.ops[-2]


def poison_of(tile: Tile) -> Array:
    mask = False if tile.poison is None else tile.poison
    return np.broadcast_to(mask, tile.data.shape)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_defined_depends_on_what_is_poisoned(name: str) -> None:
    for op in example_ops()[name]:
        for seed in range(20):
            rng = np.random.default_rng(zlib.crc32(name.encode()) + seed)
            types = [tile_type(v) for v in op.operands]
            first = [Tile(random_values(t, (), rng), random_mask(t.shape, rng)) for t in types]
            second = [
                Tile(np.where(poison_of(f), random_values(t, (), rng), f.data), f.poison)
                for f, t in zip(first, types, strict=True)
            ]
            results = evaluate(op, first, region_runner({}))
            others = evaluate(op, second, region_runner({}))
            for left, right in zip(results, others, strict=True):
                assert same_defined(left, right), seed


@pytest.mark.parametrize("name", NAMES)
def test_poison_in_any_operand_reaches_a_result(name: str) -> None:
    for op in example_ops()[name]:
        clean = clean_operands(op)
        assert all(t.poison is None for t in evaluate(op, clean, region_runner({})))
        for i, tile in enumerate(clean):
            spoiled = list(clean)
            spoiled[i] = Tile(tile.data, np.ones(tile.data.shape, np.bool_))
            results = evaluate(op, spoiled, region_runner({}))
            # A select takes one of two, and here always the first.
            expected = not (name == "select" and i == 2)
            assert any(poison_of(t).any() for t in results) == expected, i


def clean_operands(op: Op) -> list[Tile]:
    """Operands for which the operation is defined: ones, and places 2 and 3 for sparse metadata."""
    tiles: list[Tile] = []
    for i, value in enumerate(op.operands):
        type = tile_type(value)
        number = -18 if op.name == "mmaf_sparse" and i == 1 else 1
        carrier = getattr(type.element, "carrier", np.dtype(np.int64))
        tiles.append(Tile(np.full(type.shape, number, carrier)))
    return tiles


def test_only_the_poisoned_element_of_a_sum_is_poison() -> None:
    op = op_of("%a = iota : tile<4xi32>\n%b = addi %a, %a : tile<4xi32>")
    tile = Tile(np.arange(4, dtype=np.int32), np.array([False, True, False, False]))
    (result,) = evaluate(op, [tile, Tile(tile.data)])
    assert poison_of(result).tolist() == [False, True, False, False]


def test_a_select_drops_the_poison_it_does_not_choose() -> None:
    (op,) = example_ops()["select"]
    chosen = np.array([True, False] * 4)
    values = np.arange(8, dtype=np.int32)
    spoiled = Tile(values, np.ones(8, np.bool_))
    (result,) = evaluate(op, [Tile(chosen), spoiled, Tile(values)])
    assert poison_of(result).tolist() == chosen.tolist()


def test_poison_spoils_its_row_and_column_of_a_product() -> None:
    (op,) = example_ops()["mmaf"]
    lhs, rhs, acc = clean_operands(op)
    lhs.poison = np.zeros((4, 8), np.bool_)
    lhs.poison[1, 3] = True
    rhs.poison = np.zeros((8, 6), np.bool_)
    rhs.poison[3, 5] = True
    (result,) = evaluate(op, [lhs, rhs, acc])
    expected = np.zeros((4, 6), np.bool_)
    expected[1, :] = expected[:, 5] = True
    assert np.array_equal(poison_of(result), expected)


def test_a_poisoned_index_spoils_the_whole_part() -> None:
    (op,) = example_ops()["extract"]
    source, *indices = clean_operands(op)
    indices[1].poison = np.array(True)
    (result,) = evaluate(op, [source, *indices])
    assert poison_of(result).all()


def test_poison_is_moved_with_its_element() -> None:
    op = op_of(
        "%a = constant {value = 1} : tile<2x3xi32>\n"
        "%b = permute %a {permutation = [1, 0]} : tile<3x2xi32>"
    )
    mask = np.array([[True, False, False], [False, False, True]])
    (result,) = evaluate(op, [Tile(np.ones((2, 3), np.int32), mask)])
    assert np.array_equal(poison_of(result), mask.T)


def test_a_byte_is_poison_if_either_half_is() -> None:
    op = op_of("%a = constant {value = 1} : tile<4xi4>\n%b = pack %a : tile<2xi8>")
    mask = np.array([False, False, False, True])
    (result,) = evaluate(op, [Tile(np.ones(4, np.int8), mask)])
    assert poison_of(result).tolist() == [False, True]


# What is undefined


@pytest.mark.parametrize(
    ("line", "lhs", "rhs", "rule", "where"),
    [
        ("addi %a, %b {overflow = nsw}", [100, -1], [100, 1], "addi.overflow", [True, False]),
        ("addi %a, %b {overflow = nuw}", [100, -1], [100, 1], "addi.overflow", [False, True]),
        ("addi %a, %b", [100, -1], [100, 1], None, [False, False]),
        ("subi %a, %b {overflow = nw}", [-100, 3], [100, 1], "subi.overflow", [True, False]),
        ("muli %a, %b {overflow = nsw}", [16, 8], [8, 8], "muli.overflow", [True, False]),
        (
            "divi %a, %b {signedness = signed}",
            [1, 1],
            [0, 1],
            "divi.division_by_zero",
            [True, False],
        ),
        ("divi %a, %b {signedness = signed}", [-128, 1], [-1, 1], "divi.quotient", [True, False]),
        ("divi %a, %b {signedness = unsigned}", [-128, 1], [-1, 1], None, [False, False]),
        (
            "remi %a, %b {signedness = signed}",
            [-128, 1],
            [-1, 0],
            "remi.division_by_zero",
            [True, True],
        ),
        ("shli %a, %b", [1, 1], [8, 7], "shli.shift_amount", [True, False]),
        ("shri %a, %b {signedness = signed}", [1, 1], [-1, 0], "shri.shift_amount", [True, False]),
        ("shli %a, %b {overflow = nuw}", [3, 1], [7, 7], "shli.overflow", [True, False]),
    ],
)
def test_undefined_elements_are_reported_and_poisoned(
    line: str, lhs: list[int], rhs: list[int], rule: str | None, where: list[bool]
) -> None:
    text = "%a = iota : tile<2xi8>\n%b = iota : tile<2xi8>\n%c = " + line + " : tile<2xi8>"
    tiles = [Tile(np.array(v, np.int8)) for v in (lhs, rhs)]
    reported: list[tuple[str, str, Mask]] = []
    (result,) = evaluate(
        op_of(text), tiles, None, lambda rule, say, mask: reported.append((rule, say, mask))
    )
    assert poison_of(result).tolist() == where
    assert [r[0] for r in reported][:1] == ([rule] if rule else [])
    (silent,) = evaluate(op_of(text), tiles)
    assert poison_of(silent).tolist() == where


def test_what_comes_of_poison_is_not_reported() -> None:
    text = "%a = iota : tile<2xi8>\n%c = divi %a, %a {signedness = signed} : tile<2xi8>"
    zeros = np.zeros(2, np.int8)
    reported: list[Mask] = []
    evaluate(
        op_of(text),
        [Tile(zeros + 1), Tile(zeros, np.array([True, False]))],
        None,
        lambda rule, say, mask: reported.append(mask),
    )
    assert [mask.tolist() for mask in reported] == [[False, True]]


def test_a_float_that_no_integer_holds_is_undefined_unless_saturating() -> None:
    values = Tile(np.array([np.nan, 1e9, -1.5, 255.0], np.float32))
    a = "%a = constant {value = 1.0} : tile<4xf32>\n"
    plain = op_of(a + "%b = ftoi %a {signedness = unsigned} : tile<4xi8>")
    (result,) = evaluate(plain, [values])
    assert poison_of(result).tolist() == [True, True, True, False]
    clamped = op_of(a + "%b = ftoi %a {signedness = unsigned, saturating} : tile<4xi8>")
    (result,) = evaluate(clamped, [values])
    assert result.poison is None
    assert result.data.tolist() == [0, -1, 0, -1]


def test_a_part_that_does_not_exist_is_undefined() -> None:
    (op,) = example_ops()["extract"]
    source, row, column = clean_operands(op)
    row.data = np.array(8, np.int32)
    reported: list[str] = []
    (result,) = evaluate(
        op, [source, row, column], None, lambda rule, say, mask: reported.append(rule)
    )
    assert reported == ["extract.out_of_range"]
    assert poison_of(result).all()


def test_an_address_that_wraps_is_undefined() -> None:
    (op,) = example_ops()["offset"]
    pointers = np.array([16, 16, -16, 1 << 62], np.int64)
    offsets = np.array([-4, -5, 4, 5], np.int32)
    (result,) = evaluate(op, [Tile(pointers), Tile(offsets)])
    assert poison_of(result).tolist() == [False, True, True, False]
