"""Every rule of the pure operations rejects what it is about, under its own name."""

from __future__ import annotations

import pytest

from reftile.ir.parse import parse
from reftile.ir.records import load
from reftile.ir.verify import diagnose

CHAPTERS = "conversion floating integer matrix order random reduction shape".split()

HALVES = "tile<4xf16>"
NARROW = [  # Lines that ask for what exists in f32 only, after the name of the operation.
    *((f"{op}.flush_to_zero", f"{op} %0, %0 {{flush_to_zero}}") for op in "addf subf mulf".split()),
    *((f"{op}.flush_to_zero", f"{op} %0, %0 {{flush_to_zero}}") for op in "divf maxf minf".split()),
    *(
        (f"{op}.flush_to_zero", f"{op} %0 {{flush_to_zero}}")
        for op in "rcp sqrt rsqrt exp2".split()
    ),
    *((f"{op}.approx", f"{op} %0 {{rounding = approx}}") for op in "rcp sqrt exp tanh".split()),
    ("divf.approx", "divf %0, %0 {rounding = full}"),
    ("fma.flush_to_zero", "fma %0, %0, %0 {flush_to_zero}"),
]
COMBINE = "combine(%e: tile<i32>, %a: tile<i32>) {\n  yield %a\n}"
PAIR = "combine(%e: tile<i32>, %a: tile<i32>, %f: tile<i32>, %b: tile<i32>) {\n  yield %a, %b\n}"


def reductions(op: str, result: str) -> list[tuple[str, list[str], str]]:
    r = f"%r = {op}"
    two = f"%r, %q = {op} %0, %1"
    return [
        (f"{op}.operands", [], f"{op} {{axis = 0, identities = []}} combine {{\n  yield\n}}"),
        (
            f"{op}.shape",
            ["tile<4xi32>", "tile<5xi32>"],
            f"{two} {{axis = 0, identities = [0, 0]}} : {result}, "
            f"{result.replace('4x', '5x')} {PAIR}",
        ),
        (
            f"{op}.axis",
            ["tile<4xi32>"],
            f"{r} %0 {{axis = 1, identities = [0]}} : tile<4xi32> {COMBINE}",
        ),
        (
            f"{op}.identities",
            ["tile<4xi32>"],
            f"{r} %0 {{axis = 0, identities = []}} : {result} {COMBINE}",
        ),
        (
            f"{op}.integer_identity",
            ["tile<4xi32>"],
            f"{r} %0 {{axis = 0, identities = [0.5]}} : {result} {COMBINE}",
        ),
    ]


CASES: list[tuple[str, list[str], str]] = [
    *((rule, [HALVES], f"%r = {line} : {HALVES}") for rule, line in NARROW),
    ("ftof.same_type", ["tile<f32>"], "%r = ftof %0 : tile<f32>"),
    ("ftof.scale_rounding", ["tile<f32>"], "%r = ftof %0 : tile<f8e8m0>"),
    ("exti.wider", ["tile<i32>"], "%r = exti %0 {signedness = signed} : tile<i32>"),
    ("trunci.narrower", ["tile<i8>"], "%r = trunci %0 : tile<i32>"),
    ("bitcast.width", ["tile<i8>"], "%r = bitcast %0 : tile<f16>"),
    ("pack.whole_bytes", ["tile<3xi4>"], "%r = pack %0 : tile<1xi8>"),
    ("unpack.size", ["tile<3xi8>"], "%r = unpack %0 : tile<2xi16>"),
    (
        "offset.whole_bytes",
        ["tile<ptr<i4>>", "tile<i32>"],
        "%r = offset %0, %1 : tile<ptr<i4>>",
    ),
    (
        "divi.unsigned_floor",
        ["tile<i32>"],
        "%r = divi %0, %0 {signedness = unsigned, rounding = negative_inf} : tile<i32>",
    ),
    (
        "mmaf.wide_accumulator",
        ["tile<2x2xbf16>", "tile<2x2xf16>"],
        "%r = mmaf %0, %0, %1 : tile<2x2xf16>",
    ),
    (
        "mmaf.fast_acc",
        ["tile<2x2xf16>", "tile<2x2xf32>"],
        "%r = mmaf %0, %0, %1 {fast_acc} : tile<2x2xf32>",
    ),
    (
        "mmaf_scaled.block",
        ["tile<32x32xf8e4m3>", "tile<32x32xf32>", "tile<32x2xf8e8m0>", "tile<2x32xf8e8m0>"],
        "%r = mmaf_scaled %0, %0, %1, %2, %3 : tile<32x32xf32>",
    ),
    (
        "mmaf_scaled.scale_type",
        ["tile<32x32xf4e2m1>", "tile<32x32xf32>", "tile<32x1xf8e4m3>", "tile<1x32xf8e4m3>"],
        "%r = mmaf_scaled %0, %0, %1, %2, %3 : tile<32x32xf32>",
    ),
    (
        "mmaf_sparse.wide_accumulator",
        ["tile<4x4xbf16>", "tile<4x1xi8>", "tile<8x4xbf16>", "tile<4x4xf16>"],
        "%r = mmaf_sparse %0, %1, %2, %3 : tile<4x4xf16>",
    ),
    (
        "mmaf_sparse.shape",
        ["tile<4x4xf16>", "tile<4x2xi8>", "tile<8x4xf16>", "tile<4x4xf16>"],
        "%r = mmaf_sparse %0, %1, %2, %3 : tile<4x4xf16>",
    ),
    ("sort.operands", [], "sort {axis = 0}"),
    (
        "sort.shape",
        ["tile<4xi32>", "tile<5xi32>"],
        "%r, %q = sort %0, %1 {axis = 0} : tile<4xi32>, tile<5xi32>",
    ),
    ("sort.axis", ["tile<4xi32>"], "%r = sort %0 {axis = 1} : tile<4xi32>"),
    ("sort.key_type", ["tile<4xf8e4m3>"], "%r = sort %0 {axis = 0} : tile<4xf8e4m3>"),
    (
        "topk.axis",
        ["tile<4xi32>"],
        "%r, %i = topk %0 {axis = 1, count = 2} : tile<4x2xi32>, tile<4x2xi32>",
    ),
    (
        "topk.count",
        ["tile<4xi32>"],
        "%r, %i = topk %0 {axis = 0, count = 5} : tile<5xi32>, tile<5xi32>",
    ),
    ("argmax.axis", ["tile<4xi32>"], "%r = argmax %0 {axis = 1} : tile<4xi32>"),
    ("argmin.axis", ["tile<4xi32>"], "%r = argmin %0 {axis = 1} : tile<4xi32>"),
    (
        "philox.rounds",
        ["tile<i32>"],
        "%r, %s, %t, %u = philox %0, %0, %0, %0, %0, %0 {rounds = 0} : "
        "tile<i32>, tile<i32>, tile<i32>, tile<i32>",
    ),
    *reductions("reduce", "tile<i32>"),
    *reductions("scan", "tile<4xi32>"),
    ("iota.fits", [], "%r = iota : tile<257xi8>"),
    ("broadcast.shape", ["tile<2x1xi32>"], "%r = broadcast %0 : tile<3x1xi32>"),
    ("reshape.size", ["tile<4xi32>"], "%r = reshape %0 : tile<5xi32>"),
    ("permute.permutation", ["tile<i32>"], "%r = permute %0 {permutation = [0]} : tile<i32>"),
    ("cat.axis", ["tile<i32>"], "%r = cat %0, %0 {axis = 0} : tile<i32>"),
    (
        "cat.shape",
        ["tile<2x2xi32>", "tile<2x3xi32>"],
        "%r = cat %0, %1 {axis = 0} : tile<4x2xi32>",
    ),
    ("extract.shape", ["tile<4xi32>", "tile<i32>"], "%r = extract %0, [%1] : tile<3xi32>"),
    ("extract.indices", ["tile<4xi32>", "tile<i32>"], "%r = extract %0, [] : tile<2xi32>"),
    (
        "insert.shape",
        ["tile<3xi32>", "tile<4xi32>", "tile<i32>"],
        "%r = insert %0, %1, [%2] : tile<4xi32>",
    ),
    (
        "insert.indices",
        ["tile<2xi32>", "tile<4xi32>", "tile<i32>"],
        "%r = insert %0, %1, [%2, %2] : tile<4xi32>",
    ),
    ("gather.axis", ["tile<4xi32>"], "%r = gather %0, %0 {axis = 1} : tile<4xi32>"),
    (
        "gather.shape",
        ["tile<4x2xi32>", "tile<4x3xi32>"],
        "%r = gather %0, %1 {axis = 0} : tile<4x3xi32>",
    ),
    (
        "reduce.impure",
        ["tile<4xi32>"],
        "%r = reduce %0 {axis = 0, identities = [0]} : tile<i32> "
        + COMBINE.replace("yield", '%t = print_tko [] {format = "x"} : token\n  yield'),
    ),
]


@pytest.mark.parametrize(("rule", "types", "line"), CASES, ids=[case[0] for case in CASES])
def test_a_rule_rejects_under_its_name(rule: str, types: list[str], line: str) -> None:
    arguments = ", ".join(f"%{i}: {type}" for i, type in enumerate(types))
    found = diagnose(parse(f"tile kernel @bad({arguments}) {{\n{line}\nreturn\n}}\n"))
    assert rule in [d.rule for d in found], [d.message for d in found]


def test_every_rule_has_a_case() -> None:
    rules = {
        f"{name}.{rule.name}"
        for name, record in load().ops.items()
        if record.chapter.removesuffix(".md") in CHAPTERS
        for rule in record.definition.rules
    }
    # `histogram.bins` cannot be written: a tile without elements is no type.
    assert rules - {case[0] for case in CASES} == {"histogram.bins"}
