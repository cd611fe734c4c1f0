"""Writing: what is written is read back, and what a version lacks is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reftile.interop.attribute_codec import bytes_of_dense, dense_of_bytes
from reftile.interop.read import read_bytecode
from reftile.interop.table import codings, codings_by_code
from reftile.interop.versions import NEWEST, OLDEST, parse_version
from reftile.interop.write import oldest_version, write_bytecode
from reftile.interp.launch import interpret
from reftile.ir.attributes import Dense
from reftile.ir.diagnostics import ReftileError
from reftile.ir.dtypes import DTYPES
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.records import load
from reftile.ir.types import TileType

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("*.tilebc"))


def kernel(body: str, arguments: str = "") -> str:
    return f"tile kernel @k({arguments}) {{\n{body}\n  return\n}}\n"


def anonymous(text: str) -> str:
    """The canonical text with values numbered, as a reader of bytecode names them."""
    module = parse(text)
    for found in module.kernels:
        for i, argument in enumerate(found.arguments):
            argument.name = f"arg{i}"
        for op in found.walk():
            for result in op.results:
                result.name = ""
            for region in op.regions:
                for argument in region.block.arguments:
                    argument.name = ""
    return show(module)


def refusal(text: str, version: int = NEWEST) -> ReftileError:
    with pytest.raises(ReftileError) as caught:
        write_bytecode(parse(text), version)
    return caught.value


def rule_of(text: str, version: int = NEWEST) -> str:
    return refusal(text, version).diagnosis.rule


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_files_of_cuda_tile_come_back(path: Path) -> None:
    text = show(read_bytecode(path.read_bytes()))
    version = int(path.stem[-1])
    assert show(read_bytecode(write_bytecode(parse(text), version))) == text


EXAMPLES = {
    name: record.example
    for name, record in load().ops.items()
    if name in codings() and record.example and "tile" in record.definition.levels
}
NOT_IN_TILE_IR = {"ftof", "mmaf", "mmai", "mmaf_scaled", "cat"}
"""Examples that use what only we have: extents that are no powers of two, `saturating`."""


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - NOT_IN_TILE_IR))
def test_examples_of_the_specification_come_back(name: str) -> None:
    text = kernel(EXAMPLES[name])
    module = parse(text)
    for version in range(oldest_version(module), NEWEST + 1):
        found = read_bytecode(write_bytecode(module, version))
        for hinted in found.kernels:
            hinted.attributes.pop("hints", None)
        assert show(found) == anonymous(text)


@pytest.mark.parametrize("name", sorted(NOT_IN_TILE_IR))
def test_what_tile_ir_lacks_is_refused(name: str) -> None:
    assert rule_of(kernel(EXAMPLES[name])) == "export.unsupported"


def test_an_operation_that_tile_ir_lacks_is_refused_by_name() -> None:
    text = kernel("  %b = erf %a : tile<f32>", "%a: tile<f32>")
    error = refusal(text)
    assert error.diagnosis.rule == "export.unsupported"
    assert "no operation `erf`" in error.diagnosis.message
    assert error.diagnosis.span.line == 2


@pytest.mark.parametrize(
    ("body", "arguments", "needs"),
    [
        ("%b = atan2 %a, %a : tile<f32>", "%a: tile<f32>", 2),
        ("%b = exp %a {rounding = approx} : tile<f32>", "%a: tile<f32>", 3),
        ("%b = tanh %a {rounding = approx} : tile<f32>", "%a: tile<f32>", 2),
        ("%b = negi %a {overflow = nsw} : tile<i32>", "%a: tile<i32>", 2),
        ("%b = constant {value = 1.0} : tile<f8e8m0>", "", 2),
        ("%b = constant {value = 1.0} : tile<8xf4e2m1>", "", 3),
        (
            "for %a, %a, %a, [] {unsigned_cmp} body(%i: tile<i32>) {\ncontinue\n}",
            "%a: tile<i32>",
            2,
        ),
        ("loop body() {\nreturn\n}", "", 4),
        (
            '%t = print_tko [%a] {format = "%d"} : token\n%u = join_tokens %t, %t : token',
            "%a: tile<i32>",
            2,
        ),
        ("%b = ftoi %a {signedness = signed, saturating} : tile<i32>", "%a: tile<f32>", 4),
    ],
)
def test_a_refusal_names_the_version_that_is_needed(body: str, arguments: str, needs: int) -> None:
    text = kernel(body, arguments)
    module = parse(text)
    assert oldest_version(module) == needs
    write_bytecode(module, needs)
    error = refusal(text, needs - 1)
    assert error.diagnosis.rule == "export.version"
    assert error.diagnosis.data == {"needs": needs}
    assert error.diagnosis.hint == f"write version 13.{needs} or newer"


LIMITED = [
    ("%b = ftoi %a {signedness = signed, rounding = nearest_even} : tile<8xi32>", "8xf32"),
    ("%b = itof %a {signedness = signed, rounding = zero} : tile<8xf32>", "8xi32"),
    ("%b = itof %a {signedness = signed} : tile<8xf8e8m0>", "8xi32"),
    ("%b = ftof %a {rounding = zero} : tile<8xf8e4m3>", "8xf32"),
    ("%b = ftof %a {rounding = negative_inf} : tile<8xbf16>", "8xf32"),
    ("%b = ftof %a {rounding = positive_inf} : tile<8xtf32>", "8xf32"),
    ("%b = ftof %a {rounding = nearest_away} : tile<8xf32>", "8xf64"),
    ("%b = ftof %a {rounding = nearest_away} : tile<8xf32>", "8xf8e8m0"),
    ("%b = bitcast %a : tile<8xtf32>", "8xi32"),
    ("%b = negi %a {overflow = nuw} : tile<8xi32>", "8xi32"),
    ("%b = mmaf %a, %a, %a : tile<1x1x2x2xf32>", "1x1x2x2xf32"),
    ("%b = permute %a {permutation = [0]} : tile<8xf32>", "8xf32"),
    ("for %a, %a, %a, [] body(%i: tile<i32>) {\nreturn\n}", "i32"),
]
"""Forms that CUDA Tile IR 13.5.37 refuses, and what `%a` is."""


@pytest.mark.parametrize(("body", "source"), LIMITED)
def test_forms_that_tile_ir_lacks_are_refused(body: str, source: str) -> None:
    error = refusal(kernel(body, f"%a: tile<{source}>"), NEWEST)
    assert error.diagnosis.rule == "export.unsupported"


@pytest.mark.parametrize(
    "body",
    [
        "%b = ftoi %a {signedness = signed} : tile<8xi32>",
        "%b = ftof %a {rounding = zero} : tile<8xbf16>",
        "%b = ftof %a {rounding = nearest_away} : tile<8xtf32>",
        "%b = ftof %a {rounding = positive_inf} : tile<8xf64>",
        "%b = ftof %a {rounding = positive_inf} : tile<8xf8e8m0>",
    ],
)
def test_their_neighbours_are_written(body: str) -> None:
    write_bytecode(parse(kernel(body, "%a: tile<8xf32>")))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("%a: tile<ptr<i4>>", "pointers to i4"),
        ("%a: tile<8xptr<f4e2m1>>", "through views"),
        ("%a: tile<f4e2m1>", "in pairs"),
        ("%a: partition_view<tile=(), tensor_view<f32, strides=[]>>", "one axis or more"),
    ],
)
def test_types_that_tile_ir_lacks_are_refused(arguments: str, said: str) -> None:
    error = refusal(kernel("", arguments), NEWEST)
    assert error.diagnosis.rule == "export.unsupported"
    assert said in error.diagnosis.message


def test_print_without_tokens_fits_the_oldest_version() -> None:
    text = kernel('  %t = print_tko [%a] {format = "%d"} : token', "%a: tile<i32>")
    assert show(read_bytecode(write_bytecode(parse(text), OLDEST))) == anonymous(text)


@pytest.mark.parametrize("text", ["13.0", "13.6", "14.1", "13", "x"])
def test_unknown_versions_are_refused(text: str) -> None:
    with pytest.raises(ReftileError):
        parse_version(text)


def test_empty_hints_do_not_need_a_version() -> None:
    module = read_bytecode((DATA / "vadd-13.4.tilebc").read_bytes())
    old = read_bytecode(write_bytecode(module, 1))
    assert "hints" not in old.kernels[0].attributes


GLOBAL = """\
global {symbol = @table, value = dense(tile<4xf32>, [1.0, 2.0, 3.0, 4.0]), alignment = 16, constant}

tile kernel @k(%arg0: tile<ptr<f32>>) attributes {hints = {sm_90 = {occupancy = 2}}} {
  %0 = get_global {symbol = @table} : tile<ptr<f32>>
  return
}
"""


def test_globals_and_hints_come_back() -> None:
    assert show(read_bytecode(write_bytecode(parse(GLOBAL)))) == GLOBAL
    assert rule_of(GLOBAL, 2) == "export.version"


VIEWS = """\
tile kernel @double(%x: tensor_view<?x16xf32, strides=[?, 1]>, %n: tile<i32> {div_by = 8}) {
  %p = make_partition_view %x : partition_view<tile=(4x16), tensor_view<?x16xf32, strides=[?, 1]>>
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %a, %t = load_view_tko %p, [%i, %zero] {ordering = weak} : tile<4x16xf32>, token
  %b = addf %a, %a : tile<4x16xf32>
  %u = store_view_tko %b, %p, [%i, %zero], token=%t {ordering = weak} : token
  return
}
"""


def test_a_view_argument_becomes_pointer_extents_and_strides() -> None:
    module = parse(VIEWS)
    found = read_bytecode(write_bytecode(module))
    assert [str(a.type) for a in found.kernels[0].arguments] == [
        "tile<ptr<f32>>",
        "tile<i64>",
        "tile<i64>",
        "tile<i32>",
    ]
    assert show(module) == show(parse(VIEWS)), "the program itself is left as it was"
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    y = x.copy()
    interpret(module, 2, [x, 8])
    interpret(found, 2, [y, 8, 16, 8])
    assert np.array_equal(x, y)
    with pytest.raises(ReftileError, match="multiple"):
        interpret(found, 2, [y, 8, 16, 7])


MULTIMEM = """\
tile kernel @k(%arg0: tile<ptr<f32>>, %arg1: tile<i32>) attributes {hints = {}} {
  %0 = make_tensor_view %arg0, [%arg1], [] : tensor_view<?xf32, strides=[1]>
  %1 = make_partition_view %0 : partition_view<tile=(16), tensor_view<?xf32, strides=[1]>>
  %2, %3 = multimem_load_reduce_view_tko %1, [%arg1] {ordering = relaxed, scope = sys, reduction = add} : tile<16xf32>, token
  %4 = multimem_reduce_view_tko %1, %2, [%arg1], token=%3 {ordering = relaxed, scope = sys, reduction = add, inbounds = [true]} : token
  %5 = multimem_store_view_tko %1, %2, [%arg1], token=%4 {ordering = weak} : token
  return
}
"""  # noqa: E501


def test_multimem_operations_come_back() -> None:
    assert show(read_bytecode(write_bytecode(parse(MULTIMEM)))) == MULTIMEM


def test_a_pointer_is_multicast_or_not() -> None:
    error = refusal(MULTIMEM.replace("return", "%6 = ptr_to_int %arg0 : tile<i64>\n  return"))
    assert error.diagnosis.rule == "export.unsupported"
    assert "`ptr_to_int` uses a pointer" in error.diagnosis.message


@pytest.mark.parametrize(
    "text",
    [
        kernel("", "").replace("tile kernel", "simt kernel").replace("return", "exit"),
        kernel("", "").replace("() {", '() attributes {progress = "cooperative"} {'),
        kernel("", "%a: tile<f8e4m3fnuz>"),
        kernel("", "%a: tile<3xf32>"),
    ],
)
def test_kernels_without_a_form_are_refused(text: str) -> None:
    try:
        module = parse(text)
        write_bytecode(module)
    except ReftileError as error:
        assert error.diagnosis.rule.startswith(("export.unsupported", "exit", "text", "kernel"))
    else:
        pytest.fail("was written")


# Constants


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if "fnuz" not in d.name], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (2, 8)])
def test_constants_of_every_type_come_back(dtype: object, shape: tuple[int, ...]) -> None:
    found = DTYPES[str(dtype)]
    type = TileType(shape, found)
    rng = np.random.default_rng(3)
    unused = 13 if found.name == "tf32" else 0
    for count in {1, type.size}:
        bits = [int(b) << unused for b in rng.integers(0, 1 << min(found.bits - unused, 62), count)]
        constant = Dense.of_bits(bits, type)
        assert dense_of_bytes(bytes_of_dense(constant), type) == constant


def test_booleans_are_packed_but_a_splat_is_a_byte() -> None:
    type = TileType((16,), DTYPES["i1"])
    values = np.arange(16) % 3 == 0
    assert (
        bytes_of_dense(Dense.of(values, type)) == np.packbits(values, bitorder="little").tobytes()
    )
    assert bytes_of_dense(Dense.of(True, type)) == b"\xff"


# Layouts: facts of the format that must follow from the records


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("load_ptr_tko", ["scope", "hints", "mask", "padding_value", "token"]),
        ("store_ptr_tko", ["scope", "hints", "mask", "token"]),
        ("load_view_tko", ["scope", "hints", "token"]),
        ("atomic_cas_tko", ["mask", "token"]),
        ("atomic_red_view_tko", ["token"]),
        ("maxf", ["propagate_nan", "flush_to_zero"]),
        ("ftof", []),
        ("ftoi", ["saturating"]),
        ("cmpf", []),
        ("alloca", ["shared"]),
        ("assume", []),
    ],
)
def test_flags_follow_from_the_record(name: str, flags: list[str]) -> None:
    assert [s.name for s in codings()[name].flags] == flags


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("load_view_tko", ["ordering", "scope", "hints", "inbounds"]),
        ("atomic_red_view_tko", ["ordering", "scope", "mode", "inbounds"]),
        ("multimem_load_reduce_view_tko", ["ordering", "scope", "reduction", "inbounds"]),
        ("scan", ["axis", "reverse", "identities"]),
        ("divi", ["signedness", "rounding"]),
    ],
)
def test_later_attributes_stand_last(name: str, attributes: list[str]) -> None:
    assert [s.name for s in codings()[name].attributes] == attributes


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("addi", (False, False)),
        ("extract", (True, True)),
        ("for", (True, True)),
        ("if", (True, False)),
        ("make_tensor_view", (True, False)),
        ("print_tko", (True, False)),
        ("load_ptr_tko", (False, False)),
        ("get_index_space_shape", (True, False)),
        ("return", (True, True)),
    ],
)
def test_counts_follow_from_the_record(name: str, counted: tuple[bool, bool]) -> None:
    coding = codings()[name]
    assert (coding.counts_results, coding.counts_operands) == counted


def test_every_operation_with_an_opcode_has_a_layout() -> None:
    assert len(codings_by_code()) == len(codings()) - 1
    assert len(codings()) >= 105
