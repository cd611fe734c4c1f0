"""The passes: what they refuse, with reasons; the text between them; the rules of simt."""

from __future__ import annotations

import pytest

from reftile.ir.diagnostics import ReftileError, ReftileErrors
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.verify import diagnose, verify
from reftile.lower.host import evaluate_expression, host_expression
from reftile.lower.pipeline import lower
from tests.lower.on_machine import lowered, read_kernel

KERNELS = [
    "gemm_sm90",
    "gemm_nn_sm90",
    "gemm_cut_sm90",
    "attention_sm90",
    "attention_d64_sm90",
    "gemm_sm80",
]


@pytest.mark.parametrize("name", KERNELS)
def test_simt_text_reads_back(name: str) -> None:
    kernel = lowered(name).passes.kernel
    text = show(kernel)
    again = parse(text).kernel()
    verify(again)
    assert show(again) == text


def test_lowering_twice_gives_the_same_text() -> None:
    assert lowered("gemm_sm90").ptx == lowered("gemm_sm90").ptx


def test_two_layouts_of_one_value_are_explained() -> None:
    change = (
        "%rounded = ftof %result : tile<64x256xbf16>",
        "%other = mma_start %lent, %tall, token=%all_read : pending<64x64xf32>\n"
        "      %sixty, %taken = mma_wait %other : tile<64x64xf32>, token\n"
        "      %turned = permute %sixty {permutation = [1, 0]} : tile<64x64xf32>\n"
        "      %mixed = addf %turned, %sixty : tile<64x64xf32>\n"
        "      %again = mma_start %lent, %tall, acc=%mixed, token=%taken : pending<64x64xf32>\n"
        "      %last_sum, %last_token = mma_wait %again : tile<64x64xf32>, token\n"
        "      %rounded = ftof %result : tile<64x256xbf16>",
    )
    places = (
        "  cluster_arrive {order = relaxed}\n  %ready",
        "  %lent = alloc_buffer : buffer<64x16xbf16, layout=swizzle32>\n"
        "  %flat = alloc_buffer : buffer<64x16xbf16, layout=swizzle32>\n"
        "  %tall = transpose_buffer %flat : buffer<16x64xbf16, layout=swizzle32.t>\n"
        "  cluster_arrive {order = relaxed}\n  %ready",
    )
    fewer = ("ring<4, buffer<64x64", "ring<3, buffer<64x64")
    kernel = read_kernel("gemm_sm90", change, places, fewer)
    with pytest.raises(ReftileError) as error:
        lower(kernel, "sm_90a")
    diagnosis = error.value.diagnosis
    assert diagnosis.rule == "lower.layout_conflict"
    assert diagnosis.message.startswith("%turned is held as ")
    assert diagnosis.message.endswith("and `addf` needs wgmma.m64n64.d<64x64>")
    assert [n for n, _ in diagnosis.notes] == [
        "`permute` makes it so",
        "its elements would move between warps: the way through shared memory needs 259072 bytes "
        "of the 232448",
    ]


def test_a_kernel_for_another_target_is_refused() -> None:
    with pytest.raises(ReftileError, match="sm_80") as error:
        lower(read_kernel("gemm_sm90"), "sm_80")
    assert error.value.diagnosis.rule == "lower.target"


def test_a_kernel_that_breaks_rules_is_a_diagnosis_not_a_bug() -> None:
    kernel = read_kernel("gemm_sm80")
    kernel.attributes["warps"] = 0
    for check_each in (True, False):
        with pytest.raises(ReftileErrors):
            lower(kernel, "sm_80", check_each=check_each)


def test_an_unknown_part_of_a_tile_is_refused() -> None:
    kernel = read_kernel(
        "gemm_sm90", ("for %zero, %four, %one, [] body(%part", "for %zero, %m, %one, [] body(%part")
    )
    with pytest.raises(ReftileError) as error:
        lower(kernel, "sm_90a")
    assert error.value.diagnosis.rule == "lower.extract_index"


def test_host_expressions_follow_the_prologue() -> None:
    kernel = read_kernel("attention_sm90")
    strides = next(op for op in kernel.body.block.ops if op.name == "muli")
    text = host_expression(strides.results[0])
    assert text == "(length * 128)"
    assert evaluate_expression(text, {"length": 5}) == 640


def test_layouts_that_differ_are_refused() -> None:
    text = show(lowered("attention_short_sm90").passes.kernel)
    assert diagnose(parse(text)) == []
    line = "%first_p = exp2 %first_scaled {flush_to_zero} : tile<64x128xf32, layout="
    broken = text.replace(
        f"{line}wgmma.m64n128.d<64x128>>", f"{line}wgmma.m64n64.d<64x128; register 1x2>>"
    )
    assert broken != text
    assert {d.rule for d in diagnose(parse(broken))} == {"simt.layouts_differ"}
