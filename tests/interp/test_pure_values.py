"""What single operations give, where the spec had to choose."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.interp.prepared import prepare_meaning
from reftile.interp.pure import EVALUATORS, evaluate, has_meaning
from reftile.interp.values import Array, Tile
from reftile.interp.vocabulary import ENVIRONMENT, WORDS
from reftile.ir.core import Op
from reftile.ir.define import port_names
from reftile.ir.expressions import free_names
from reftile.ir.records import SPEC, load
from tests.interp.pure_cases import bits, kernel_of, region_runner

CHAPTERS = "conversion floating integer matrix order random reduction shape".split()


def op_of(text: str) -> Op:
    return kernel_of(text).body.block.ops[-2]


def run(line: str, *operands: tuple[str, Array]) -> list[Array]:
    """Results of the operation that `line` writes, of operands %0, %1, ... of these types."""
    given = [f"%{i} = constant {{value = 0}} : {type}" for i, (type, _) in enumerate(operands)]
    tiles = [Tile(np.asarray(data)) for _, data in operands]
    results = evaluate(op_of("\n".join([*given, line])), tiles, region_runner({}))
    assert all(tile.poison is None for tile in results)
    return [tile.data for tile in results]


# The records


def test_every_record_of_these_chapters_has_a_meaning_or_an_evaluator() -> None:
    for name, record in load().ops.items():
        if record.chapter.removesuffix(".md") in CHAPTERS:
            definition = record.definition
            assert bool(definition.meaning) != (name in EVALUATORS), name
            assert record.example and definition.accuracy and definition.poison, name


def test_meanings_use_the_vocabulary_and_their_own_names_only() -> None:
    for record in load().ops.values():
        definition = record.definition
        own = {*port_names(definition.operands), *port_names(definition.results)}
        own |= {*definition.attribute_specs, *definition.where}
        for port in (*definition.operands, *definition.results):
            own |= {term.text for term in port.pattern.shape}
        texts = [definition.meaning, *(case.when_text for case in definition.undefined)]
        for text in filter(None, texts):
            assert free_names(text) - own <= set(ENVIRONMENT), record.definition.name


def test_the_spec_lists_every_word_and_uses_it() -> None:
    chapter = (SPEC / "records.md").read_text()
    meanings = " ".join(
        " ".join([r.definition.meaning, *(c.when_text for c in r.definition.undefined)])
        for r in load().ops.values()
    )
    for word in WORDS:
        assert f"`{word}`" in chapter, word
        assert f"{word}(" in meanings, word


# Floats


def test_computed_nans_are_canonical_and_signs_of_nans_flip() -> None:
    odd = np.array([0xFFC12345], np.uint32).view(np.float32)
    (total,) = run("%r = addf %0, %1 : tile<1xf32>", ("tile<1xf32>", odd), ("tile<1xf32>", odd))
    assert bits(total).tolist() == [0x7FC00000]
    (opposite,) = run("%r = negf %0 : tile<1xf32>", ("tile<1xf32>", odd))
    assert bits(opposite).tolist() == [0x7FC12345]


def test_extremes_order_zeros_and_pass_over_nan() -> None:
    lhs = np.array([0.0, -0.0, np.nan, np.nan, -0.0, 2.0], np.float32)
    rhs = np.array([-0.0, -0.0, 1.0, np.nan, np.nan, -3.0], np.float32)
    pair = ("tile<6xf32>", lhs), ("tile<6xf32>", rhs)
    (greater,) = run("%r = maxf %0, %1 : tile<6xf32>", *pair)
    assert np.array_equal(bits(greater), bits(np.array([0, -0.0, 1, np.nan, -0.0, 2], np.float32)))
    (lesser,) = run("%r = minf %0, %1 {propagate_nan} : tile<6xf32>", *pair)
    expected = np.array([-0.0, -0.0, np.nan, np.nan, np.nan, -3], np.float32)
    assert np.array_equal(bits(lesser), bits(expected))


@pytest.mark.parametrize(
    ("predicate", "answers"),
    [
        ("equal", [False, True, False]),
        ("not_equal", [True, False, True]),
        ("less_than", [True, False, False]),
        ("less_than_or_equal", [True, True, False]),
        ("greater_than", [False, False, True]),
        ("greater_than_or_equal", [False, True, True]),
    ],
)
def test_comparison_with_nan_is_what_the_ordering_says(predicate: str, answers: list[bool]) -> None:
    pair = (
        ("tile<4xf32>", np.array([1, 0.0, 2, np.nan], np.float32)),
        ("tile<4xf32>", np.array([2, -0.0, 1, 1], np.float32)),
    )
    for ordering in ("ordered", "unordered"):
        line = f"%r = cmpf %0, %1 {{predicate = {predicate}, ordering = {ordering}}} : tile<4xi1>"
        assert run(line, *pair)[0].tolist() == [*answers, ordering == "unordered"]


def test_powers_have_the_special_cases_of_c() -> None:
    base = np.array([1, np.nan, -8, -8, 0, np.inf], np.float32)
    exponent = np.array([np.nan, 0, 1 / 3, 3, -1, -1], np.float32)
    (power,) = run(
        "%r = pow %0, %1 : tile<6xf32>", ("tile<6xf32>", base), ("tile<6xf32>", exponent)
    )
    assert np.array_equal(power, np.array([1, 1, np.nan, -512, np.inf, 0]), equal_nan=True)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_powers_and_logarithms_of_two_are_exact(dtype: str) -> None:
    exponents = np.arange(-14, 15, dtype=np.float64 if dtype == "f64" else np.float32)
    (powers,) = run(f"%r = exp2 %0 : tile<29x{dtype}>", (f"tile<29x{dtype}>", exponents))
    assert np.array_equal(powers, np.ldexp(1.0, np.arange(-14, 15)))
    (logarithms,) = run(f"%r = log2 %0 : tile<29x{dtype}>", (f"tile<29x{dtype}>", powers))
    assert np.array_equal(logarithms, exponents)


# Conversions


def test_conversion_past_the_largest_number_is_what_the_format_has() -> None:
    values = np.array([1e6, -1e6, np.inf, np.nan], np.float32)
    source = ("tile<4xf32>", values)
    for dtype, expected in [
        ("f16", [np.inf, -np.inf, np.inf, np.nan]),
        ("f8e4m3", [np.nan, np.nan, np.nan, np.nan]),
        ("f8e5m2", [np.inf, -np.inf, np.inf, np.nan]),
        ("f4e2m1", [6, -6, 6, 6]),
    ]:
        (result,) = run(f"%r = ftof %0 : tile<4x{dtype}>", source)
        assert np.array_equal(result, np.array(expected), equal_nan=True), dtype
    (result,) = run("%r = ftof %0 {saturating} : tile<4xf8e4m3>", source)
    assert np.array_equal(result, np.array([448, -448, 448, np.nan]), equal_nan=True)


def test_bytes_are_the_memory_image_and_come_back() -> None:
    values = np.array([0x1234, -2], np.int16)
    (packed,) = run("%r = pack %0 : tile<4xi8>", ("tile<2xi16>", values))
    assert packed.view(np.uint8).tolist() == [0x34, 0x12, 0xFE, 0xFF]
    (unpacked,) = run("%r = unpack %0 : tile<2xi16>", ("tile<4xi8>", packed))
    assert np.array_equal(unpacked, values)
    (nibbles,) = run("%r = pack %0 : tile<1xi8>", ("tile<2xi4>", np.array([1, -2], np.int8)))
    assert nibbles.view(np.uint8).tolist() == [0xE1]


# Matrix products


def test_a_product_has_the_same_bits_alone_and_in_a_batch() -> None:
    rng = np.random.default_rng(0)
    text = (
        "%a = constant {value = 0.0} : tile<MxKxf32>\n%b = constant {value = 0.0} : tile<KxNxf32>\n"
        "%c = constant {value = 0.0} : tile<MxNxf64>\n"
        "%d = mmaf %a, %b, %c : tile<MxNxf64>"
    ).replace("f32", "f64")
    for m, k, n in [(1, 33, 1), (1, 64, 17), (16, 48, 1), (37, 70, 19), (64, 128, 64)]:
        sizes = text.replace("M", str(m)).replace("K", str(k)).replace("N", str(n))
        op = op_of(sizes)
        lhs, rhs = rng.normal(size=(5, m, k)), rng.normal(size=(5, k, n))
        acc = rng.normal(size=(m, n))
        (batch,) = evaluate(op, [Tile(lhs), Tile(rhs), Tile(acc)])
        for i in range(5):
            (alone,) = evaluate(op, [Tile(lhs[i]), Tile(rhs[i]), Tile(acc)])
            assert np.array_equal(bits(alone.data), bits(batch.data[i]))
            (turned,) = evaluate(op, [Tile(np.asfortranarray(lhs[i])), Tile(rhs[i]), Tile(acc)])
            assert np.array_equal(bits(alone.data), bits(turned.data))


def test_products_of_narrow_floats_are_exact_until_the_end() -> None:
    # 2048 + 1 + ... would stay 2048 in f16; in f64 nothing is lost before the one rounding.
    lhs, rhs = np.full((1, 16), 1, np.float32), np.full((16, 1), 1, np.float32)
    acc = np.full((1, 1), 2048, np.float32)
    (result,) = run(
        "%r = mmaf %0, %1, %2 : tile<1x1xf16>",
        ("tile<1x16xf16>", lhs),
        ("tile<16x1xf16>", rhs),
        ("tile<1x1xf16>", acc),
    )
    assert result.item() == 2064


def test_integer_products_wrap_in_32_bits() -> None:
    lhs, rhs = np.full((1, 4), -128, np.int8), np.full((4, 1), -1, np.int8)
    acc = np.array([[np.iinfo(np.int32).max]], np.int32)
    signs = "signedness_lhs = signed, signedness_rhs = unsigned"
    (result,) = run(
        f"%r = mmai %0, %1, %2 {{{signs}}} : tile<1x1xi32>",
        ("tile<1x4xi8>", lhs),
        ("tile<4x1xi8>", rhs),
        ("tile<1x1xi32>", acc),
    )
    assert result.item() == np.iinfo(np.int32).max - 128 * 255 * 4


def test_a_sparse_product_is_that_of_the_expanded_matrix() -> None:
    kept = np.arange(1, 9, dtype=np.float32).reshape(1, 8)
    # Places 0 1, 2 3, 0 3 and 1 2, two bits each, the first in the low ones.
    metadata = np.array([[0b1110_0100, 0b1001_1100]], np.uint8).view(np.int8)
    (result,) = run(
        "%r = mmaf_sparse %0, %1, %2, %3 : tile<1x16xf32>",
        ("tile<1x8xf16>", kept),
        ("tile<1x2xi8>", metadata),
        ("tile<16x16xf16>", np.eye(16, dtype=np.float32)),
        ("tile<1x16xf32>", np.zeros((1, 16), np.float32)),
    )
    assert result[0].tolist() == [1, 2, 0, 0, 0, 0, 3, 4, 5, 0, 0, 6, 0, 7, 8, 0]


# Order statistics


def test_order_puts_nan_last_and_keeps_equal_elements_in_place() -> None:
    keys = np.array([2, np.nan, -0.0, 0.0, -np.inf, 2], np.float32)
    places = ("tile<6xi32>", np.arange(6, dtype=np.int32))
    source = ("tile<6xf32>", keys)
    line = "%s, %p = sort %0, %1 {{axis = 0{}}} : tile<6xf32>, tile<6xi32>"
    assert run(line.format(""), source, places)[1].tolist() == [4, 2, 3, 0, 5, 1]
    assert run(line.format(", descending"), source, places)[1].tolist() == [1, 0, 5, 2, 3, 4]
    line = "%v, %p = topk %0 {{axis = 0, count = 3{}}} : tile<3xf32>, tile<3xi32>"
    assert run(line.format(""), source)[1].tolist() == [1, 0, 5]
    assert run(line.format(", smallest"), source)[1].tolist() == [4, 2, 3]
    assert run("%p = argmax %0 {axis = 0} : tile<i32>", source)[0].item() == 1
    assert run("%p = argmin %0 {axis = 0} : tile<i32>", source)[0].item() == 1


def test_unsigned_order_differs_from_signed() -> None:
    source = ("tile<3xi8>", np.array([1, -1, 0], np.int8))
    assert run("%p = argmax %0 {axis = 0} : tile<i32>", source)[0].item() == 0
    line = "%p = argmax %0 {axis = 0, signedness = unsigned} : tile<i32>"
    assert run(line, source)[0].item() == 1


def test_a_histogram_counts_what_is_in_range_and_not_masked() -> None:
    values = ("tile<6xi32>", np.array([0, 1, 1, 5, -1, 1], np.int32))
    mask = ("tile<6xi1>", np.array([1, 1, 0, 1, 1, 1], np.bool_))
    assert run("%c = histogram %0 {bins = 3} : tile<3xi32>", values)[0].tolist() == [1, 3, 0]
    line = "%c = histogram %0, mask=%1 {bins = 3} : tile<3xi32>"
    assert run(line, values, mask)[0].tolist() == [1, 2, 0]


# Random numbers


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # The known answers published with the Random123 library.
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_words(
    counter: list[int], key: list[int], words: list[int]
) -> None:
    given = [("tile<2xi32>", np.full(2, c, np.uint32).view(np.int32)) for c in counter]
    given += [("tile<i32>", np.array(k, np.uint32).view(np.int32)) for k in key]
    types = ", ".join(["tile<2xi32>"] * 4)
    results = run(f"%a, %b, %c, %d = philox %0, %1, %2, %3, %4, %5 : {types}", *given)
    assert [word.view(np.uint32).tolist() for word in results] == [[w, w] for w in words]


# Reductions

SUM = """
%r = reduce %0 {axis = 0, identities = [0.0]} : tile<f32> combine(%e: tile<f32>, %a: tile<f32>) {
  %s = addf %a, %e : tile<f32>
  yield %s
}"""


def tree(values: list[np.float32]) -> np.float32:
    """The sum of neighbours in pairs, as the spec says it."""
    while len(values) > 1:
        pairs = [values[i] + values[i + 1] for i in range(0, len(values) - 1, 2)]
        values = [*pairs, *values[len(values) // 2 * 2 :]]
    return values[0]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 13, 64, 100])
def test_a_sum_is_the_tree_of_pairs(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count).astype(np.float32) * 100
    (result,) = run(SUM, (f"tile<{count}xf32>", values))
    assert bits(result) == bits(np.asarray(tree(list(values))))


@pytest.mark.parametrize(
    ("op", "dtype", "extra"),
    [
        ("addf", "f32", ""),
        ("maxf", "f32", ""),
        ("minf", "bf16", " {propagate_nan}"),
        ("maxf", "f32", " {propagate_nan}"),
        ("maxf", "bf16", ""),
        ("mulf", "f16", ""),
        ("mulf", "f64", ""),
        ("addf", "bf16", ""),
        ("addi", "i8", ""),
        ("muli", "i32", ""),
        ("xori", "i16", ""),
        ("maxi", "i32", " {signedness = unsigned}"),
        ("ori", "i1", ""),
        ("addi", "i1", ""),
    ],
)
@pytest.mark.parametrize("kind", ["reduce", "scan"])
def test_the_quick_way_equals_the_region_bit_for_bit(
    kind: str, op: str, dtype: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    values: Array = rng.integers(-20, 20, (5, 3, 9))
    if dtype == "i1":
        values = values > 0
    elif dtype[0] == "i":
        values = (values * 5).astype(f"int{dtype[1:]}")
    else:
        values = values.astype(np.float64 if dtype == "f64" else np.float32) / 4
        values[0, 1], values[1, 2, 3] = np.negative(np.abs(values[0, 1])), np.nan
        values[2, 0] = np.where(values[2, 0] > 0, 0.0, -0.0)
    result = f"tile<3x{dtype}>" if kind == "reduce" else f"tile<3x9x{dtype}>"
    arguments = f"%e: tile<{dtype}>, %a: tile<{dtype}>"
    region_op = op_of(
        f"%0 = constant {{value = 0}} : tile<3x9x{dtype}>\n"
        f"%r = {kind} %0 {{axis = 1, identities = [0]}} : {result} combine({arguments}) {{\n"
        f"  %s = {op} %e, %a{extra} : tile<{dtype}>\n  yield %s\n}}"
    )
    (quick,) = evaluate(region_op, [Tile(values)], region_runner({}))

    assert prepare_meaning(region_op).single is not None
    monkeypatch.setattr("reftile.interp.prepared._single_op", lambda op: None)
    (slow,) = evaluate(region_op, [Tile(values)], region_runner({}))
    assert np.array_equal(bits(quick.data), bits(slow.data))
    assert quick.data.dtype == slow.data.dtype


FIRST_AND_LAST = """
%r, %q = {} %0, %1 {{axis = 0, identities = [0, 0]{}}} : {}, {} combine({}) {{
  yield %a, %f
}}"""

PAIRS = "%e: tile<i32>, %a: tile<i32>, %f: tile<i32>, %b: tile<i32>"


def test_accumulators_stand_for_what_comes_before() -> None:
    # Yielding one accumulator and one element gives the first and the last of what is combined.
    values = np.arange(10, 17, dtype=np.int32)
    given = ("tile<7xi32>", values), ("tile<7xi32>", values)
    first, last = run(FIRST_AND_LAST.format("reduce", "", "tile<i32>", "tile<i32>", PAIRS), *given)
    assert (first.item(), last.item()) == (10, 16)
    whole = "tile<7xi32>"
    first, last = run(FIRST_AND_LAST.format("scan", "", whole, whole, PAIRS), *given)
    assert first.tolist() == [10] * 7
    assert last.tolist() == values.tolist()
    first, last = run(
        FIRST_AND_LAST.format("scan", ", reverse = true", whole, whole, PAIRS), *given
    )
    assert first.tolist() == [16] * 7
    assert last.tolist() == values.tolist()


def test_a_region_may_use_values_from_outside_that_differ_between_blocks() -> None:
    kernel = kernel_of(
        "%0 = constant {value = 0} : tile<3x5xi32>\n%k = constant {value = 0} : tile<i32>\n"
        "%r = reduce %0 {axis = 1, identities = [0]} : tile<3xi32> "
        "combine(%e: tile<i32>, %a: tile<i32>) {\n"
        "  %s = addi %e, %a : tile<i32>\n  %t = addi %s, %k : tile<i32>\n  yield %t\n}"
    )
    source, outside, op, _ = kernel.body.block.ops
    values = np.arange(30, dtype=np.int32).reshape(2, 3, 5)
    each_block = Tile(np.array([0, 1000], np.int32))
    runner = region_runner({outside.results[0]: each_block})
    (result,) = evaluate(op, [Tile(values)], runner)
    expected = values.sum(axis=-1) + np.array([[0], [4000]])
    assert np.array_equal(result.data, expected)
    assert has_meaning(source)
