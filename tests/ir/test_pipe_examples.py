"""The pipe kernels of examples/: canonical, accepted, and refused when one rule is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reftile.ir.buffer_layout import bit_offset, layout_fault, sliced_layout, transposed_layout
from reftile.ir.dtypes import DTYPES
from reftile.ir.ops import OPS
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.records import load
from reftile.ir.types import BufferType
from reftile.ir.verify import diagnose
from reftile.layout import atoms_memory

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "pipe"
EXAMPLES = sorted(FOLDER.glob("*.tile"))
GEMM, SM80, GFX942 = "gemm_sm90", "gemm_sm80", "gemm_gfx942"
ATTENTION, TURNS = "attention_sm90", "attention_d64_sm90"


def read(name: str) -> str:
    return (FOLDER / f"{name}.tile").read_text(encoding="utf-8")


def rules_of(text: str) -> set[str]:
    return {d.rule for d in diagnose(parse(text))}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_prints_as_it_was_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert show(parse(text, path.name)) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_verifies(path: Path) -> None:
    assert [str(d) for d in diagnose(parse(path.read_text(encoding="utf-8"), path.name))] == []


# One broken rule each. (example, pattern, replacement, rule): the first match is replaced.
BROKEN = [
    (GEMM, r'target = "sm_90a", ', "", "pipe.target"),
    (GEMM, r'target = "sm_90a"', 'target = "sm_80"', "mma_start.target"),
    (GEMM, r"warps = 12", "warps = 16", "pipe.role_warps"),
    (GEMM, r"warps = 12", "warps = 0", "pipe.warps"),
    (GEMM, r"registers = 240", "registers = 256", "pipe.registers"),
    (GEMM, r"registers = 240", "registers = 242", "role.registers"),
    (GEMM, r", registers = 240", "", "pipe.registers"),
    (GEMM, r"warps = 4, replicas = 2", "warps = 8, replicas = 1", "pipe.warpgroup"),
    (GEMM, r"ring<4, buffer<64x64", "ring<5, buffer<64x64", "pipe.shared_memory"),
    (GEMM, r"arrivals=4, scope=cluster", "arrivals=2, scope=cluster", "pipe.arrivals"),
    (GEMM, r"arrivals=4, scope=cluster", "arrivals=4", "arrive_barrier.remote"),
    (GEMM, r"bytes = 49152", "bytes = 32768", "pipe.transaction_bytes"),
    (GEMM, r", multicast=%both", "", "pipe.transaction_bytes"),
    (GEMM, r", cluster = \[2, 1, 1\]", "", "pipe.cluster"),
    (GEMM, r"  cluster_arrive {order = relaxed}\n", "", "pipe.cluster_entry"),
    (GEMM, r"  cluster_arrive .*\n(  %over)", r"\1", "pipe.cluster_exit"),
    (GEMM, r"mma_wait %sum :", "mma_wait %sum {in_flight = 1} :", "pipe.mma_unfinished"),
    (GEMM, r"continue %next, %i_next", "continue %acc, %i_next", "pipe.pending_affine"),
    (GEMM, r"%result, %all_read = mma_wait %sum : tile<64x256xf32>, token",
     "%all_read = mma_wait : token\n      %result = constant {value = 0.0} : tile<64x256xf32>",
     "pipe.pending_affine"),
    (GEMM, r"elected : token body {(\s+)%left = (.*)\n\s+yield %left\n\s+}",
     r"if %truth : token then {\1%left = \2\n yield %left\n } otherwise {\n yield %ready\n }",
     "pipe.bulk_elected"),
    (GEMM, r"slot %c_ring, %which", "slot %c_ring, %four", "pipe.slot"),
    (GEMM, r"\n  role {label = \"producer",
     "\n  %late = alloc_barrier : barrier<1, arrivals=1>\\g<0>", "pipe.alloc_place"),
    (GEMM, r"\n  role {label = \"producer", "\n  %late = cluster_rank : tile<i32>\\g<0>",
     "pipe.structure"),
    (GEMM, r"swizzle128>>", "swizzle96>>", "alloc_ring.layout"),
    (GEMM, r"subview %a_slot, \[%w, %zero\]", "subview %a_slot, [%w]", "subview.index"),
    (GEMM, r"%b_t = transpose_buffer %b_slot : buffer<64x256xbf16, layout=swizzle128.t>",
     "%b_t = transpose_buffer %b_slot : buffer<64x256xbf16, layout=swizzle128>",
     "transpose_buffer.layout"),
    (GEMM, r"mma_start %a_mine, %b_t", "mma_start %a_mine, %b_slot", "mma_start.shape"),
    (GEMM, r"copy_in %b_halves, \[%half, %step\], %b_half,",
     "copy_in %b_halves, [%half, %step], %b_slot,", "copy_in.shape"),
    (GEMM, r"%i_next, %phase_after = advance %i, %phase {stages = 4}",
     "%i_next, %phase_after = advance %i, %phase {stages = 0}", "advance.stages"),
    (TURNS, r"named_barrier<3, threads=256>", "named_barrier<3, threads=384>",
     "pipe.participants"),
    (TURNS, r"named_barrier<3, threads=256>", "named_barrier<14, threads=256>",
     "pipe.named_barriers"),
    (ATTENTION,
     r"(%o_sum, %v_read = mma_wait %o_flying .*\n)(\s+arrive_barrier.*\n)(\s+%p_out = .*\n)",
     r"\3\1\2", "pipe.operand_in_flight"),
    (ATTENTION, r"%o_less = mulf %o_sum, %factors", "%o_less = mulf %o_acc, %factors",
     "pipe.accumulator_reused"),
    (ATTENTION, r"\n      yield\n    }\n    yield\n  }\n  role",
     "\n      %met = sync : token\\g<0>", "pipe.elected"),
    (ATTENTION, r"(  role {label = \"producer\".*\n)",
     "  %tile_1 = reshape %scale : tile<1xf32>\n\\1    %inside_1 = negf %tile_1 : tile<1xf32>\n",
     "pipe.captured_tile"),
    (GEMM, r"  %a_view = make_tensor_view %a, \[%m,",
     "  %mine = cluster_rank : tile<i32>\n  %a_view = make_tensor_view %a, [%mine,",
     "pipe.tensor_map"),
    (ATTENTION, r"by = threads", "by = warps", "pipe.arrivals"),
    (ATTENTION, r"%o_less = mulf", "elected body {\n yield\n }\n%o_less = mulf", "pipe.if_rows"),
    (SM80, r"commit_copies {engine = thread}", "commit_copies {engine = bulk}",
     "pipe.bulk_elected"),
    (SM80, r"(%met = )sync token=%both", r"\1step token=%both", "step.target"),
    (SM80, r"commit_copies {engine = thread}", "commit_copies {engine = bulk}", "pipe.bulk_engine"),
    (GFX942, r"warps = 4, replicas = 2", "warps = 8", "pipe.stagger"),
    (GFX942, r"ring<2, buffer<256x32", "ring<3, buffer<256x32", "pipe.shared_memory"),
    (GFX942, r"\n  return", '\n  role {label = "more", warps = 1} body {\n    yield\n  }\n  return',
     "pipe.single_role"),
    (GFX942, r"level = 1", "level = 9", "set_priority.level"),
]  # fmt: skip


def broken(example: str, pattern: str, replacement: str) -> str:
    text = read(example)
    if "%truth" in replacement:
        truth = "  %truth = constant {value = true} : tile<i1>\n"
        text = text.replace("  %zero =", f"{truth}  %zero =", 1)
    changed = re.sub(pattern, replacement, text, count=1)
    assert changed != text
    return changed


@pytest.mark.parametrize(
    ("example", "pattern", "replacement", "rule"),
    BROKEN,
    ids=[f"{rule}-{i}" for i, (_, _, _, rule) in enumerate(BROKEN)],
)
def test_a_broken_rule_is_named(example: str, pattern: str, replacement: str, rule: str) -> None:
    assert rule in rules_of(broken(example, pattern, replacement))


def test_a_wide_product_does_not_fit_what_512_threads_enter_with() -> None:
    text = read(GEMM).replace("warps = 12", "warps = 16").replace("replicas = 2", "replicas = 3")
    assert "pipe.entry_registers" in rules_of(text.replace("registers = 240", "registers = 160"))


def test_every_rule_of_whole_kernels_has_a_broken_example() -> None:
    source = (Path(__file__).resolve().parents[2] / "reftile" / "ir").glob("pipe_*.py")
    named = {
        f"pipe.{rule}"
        for path in source
        for rule in re.findall(r'report\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    covered = {rule for _, _, _, rule in BROKEN} | {"pipe.entry_registers"}
    assert named - covered == set()
    chapter = (FOLDER.parents[1] / "spec" / "pipe.md").read_text(encoding="utf-8")
    table = chapter[chapter.index("| rule `pipe.` |") : chapter.index("## A counter that wraps")]
    listed = {
        f"pipe.{rule}"
        for line in table.splitlines()
        if line.startswith("| `")
        for rule in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert listed == named


PIPE_OPS = [n for n, r in load().ops.items() if r.chapter.startswith("pipe") and r.example]


@pytest.mark.parametrize("name", PIPE_OPS)
def test_the_example_of_a_record_fits_its_target(name: str) -> None:
    record = load().ops[name]
    target = (record.definition.targets or ("sm_90a",))[-1]
    text = (
        f'pipe kernel @example() attributes {{target = "{target}", warps = 4}} {{\n'
        f"{record.example}  return\n}}\n"
    )
    # A snippet need not add up as a kernel; its operations must fit their records.
    found = {rule for rule in rules_of(text) if not rule.startswith("pipe.")}
    assert found == set()
    assert name in OPS


# Layouts: the names mean what the linear maps of reftile.layout mean.


@pytest.mark.parametrize("layout", ["swizzle128", "swizzle64", "swizzle32", "swizzle16"])
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f8e4m3"])
def test_a_named_layout_is_the_linear_map_of_that_name(layout: str, dtype: str) -> None:
    buffer = BufferType((24, 128), DTYPES[dtype], layout)
    bits = buffer.dtype.bits
    linear = atoms_memory.swizzled(buffer.shape, bits, int(layout[7:]))
    for row in range(24):
        for column in range(0, 128, 5):
            offset = bit_offset(buffer, (row, column)) // bits
            assert tuple(int(i) for i in linear.index(offset=offset)) == (row, column)


def test_a_slice_lies_where_its_elements_lay() -> None:
    buffer = BufferType((128, 128), DTYPES["bf16"], "swizzle128")
    part = BufferType((64, 128), DTYPES["bf16"], sliced_layout(buffer, (64, 128)))
    assert part.layout == "swizzle128[128]" and layout_fault(part) == ""
    base = bit_offset(buffer, (64, 0))
    for row, column in ((0, 0), (5, 63), (63, 64), (17, 127)):
        assert bit_offset(part, (row, column)) + base == bit_offset(buffer, (64 + row, column))


def test_a_transpose_lies_where_its_source_lies() -> None:
    buffer = BufferType((80, 128), DTYPES["bf16"], "swizzle128")
    turned = BufferType((128, 80), DTYPES["bf16"], transposed_layout(buffer))
    assert bit_offset(turned, (100, 33)) == bit_offset(buffer, (33, 100))
    assert transposed_layout(turned) == buffer.layout
