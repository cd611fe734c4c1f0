"""The emitted text of the examples, for each target they are legal on, is the one that is kept.

After a change that is meant to change it: `pytest tests/lower/test_golden.py --bless`, and look at
the difference.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Bug, ReftileError
from reftile.ir.parse import parse
from reftile.ir.targets import TARGETS
from reftile.ir.verify import diagnose
from reftile.lower.pipeline import lower
from reftile.lower.ptx import emit, table
from reftile.lower.ptx.assemble import assemble, find_ptxas, read_log
from reftile.lower.ptx.storage import Storage
from reftile.lower.ptx.writer import Held, Writer, packing
from tests.lower.on_machine import EXAMPLES
from tests.lower.test_table import in_a_register, instances, is_legal, make, rows, targets_of, tile

GOLDEN = Path(__file__).parent / "golden"
NVIDIA = [name for name in TARGETS if name.startswith("sm_")]
HEADER = 2
"""Lines that name the version of the text and the target."""
needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")


def read(name: str, target: str) -> Kernel:
    """An example, said to be for a target."""
    text = (EXAMPLES / f"{name}.tile").read_text(encoding="utf-8")
    return parse(re.sub(r'target = "\w+"', f'target = "{target}"', text, count=1), name).kernel()


def legal() -> list[tuple[str, str]]:
    """Every example with each target that the verifier allows it on."""
    names = sorted(p.stem for p in EXAMPLES.glob("*.tile"))
    return [
        (name, target)
        for name in names
        for target in NVIDIA
        if not diagnose(parse(f"{_text(name, target)}", name))
    ]


def _text(name: str, target: str) -> str:
    text = (EXAMPLES / f"{name}.tile").read_text(encoding="utf-8")
    return re.sub(r'target = "\w+"', f'target = "{target}"', text, count=1)


def own_target(name: str) -> str:
    """The target that the text of an example names."""
    text = (EXAMPLES / f"{name}.tile").read_text(encoding="utf-8")
    found = re.search(r'target = "(\w+)"', text)
    assert found is not None
    return found[1]


LEGAL = legal()


def test_examples_are_legal_where_their_instructions_exist() -> None:
    found = {name: {t for n, t in LEGAL if n == name} for name, _ in LEGAL}
    assert found.pop("gemm_sm80") == {"sm_80", "sm_89", "sm_100", "sm_120", "sm_90a"}
    assert all(targets == {"sm_90a"} for targets in found.values())
    assert "gemm_gfx942" not in found


@pytest.mark.parametrize(("name", "target"), LEGAL)
def test_the_text_is_the_one_that_is_kept(name: str, target: str, bless: bool) -> None:
    ptx = lower(read(name, target), target).ptx
    path = GOLDEN / f"{name}.{target}.ptx"
    if bless:
        path.write_text(ptx, encoding="utf-8")
        return
    kept = path.read_text(encoding="utf-8")
    changes = list(difflib.unified_diff(kept.splitlines(), ptx.splitlines(), "kept", "now", n=1))
    assert not changes, "\n".join(["changed; see --bless", *changes[:40]])


def test_no_text_is_kept_of_what_is_gone(bless: bool) -> None:
    known = {f"{name}.{target}.ptx" for name, target in LEGAL}
    for path in GOLDEN.glob("*.ptx"):
        if bless and path.name not in known:
            path.unlink()
    assert {p.name for p in GOLDEN.glob("*.ptx")} == known


def test_targets_that_share_instructions_share_the_text() -> None:
    texts = {
        tuple(lower(read("gemm_sm80", t), t).ptx.splitlines()[HEADER:])
        for t in NVIDIA
        if TARGETS[t].instructions == "sm_80"
    }
    assert len(texts) == 1


@needs_ptxas
@pytest.mark.parametrize(("name", "target"), LEGAL)
def test_ptxas_takes_every_example_without_a_remark(name: str, target: str) -> None:
    code, report = assemble(lower(read(name, target), target).ptx, target)
    assert code[:4] == b"\x7fELF"
    assert (report.remarks, report.spill_bytes) == ((), 0)


@needs_ptxas
@pytest.mark.parametrize("target", NVIDIA)
def test_ptxas_takes_every_row_of_the_table(target: str) -> None:
    """Each row of a target once, with the first types and attributes it takes, in one kernel."""
    lines = [
        f".version {TARGETS[target].ptx_version}",
        f".target {target}",
        ".address_size 64",
        ".visible .entry rows()",
        "{",
    ]
    for row in rows():
        lines += ["{", *_row_text(row, target), "}"]
    assemble("\n".join([*lines, "ret;", "}", ""]), target)


def _row_text(row: table.Row, target: str) -> list[str]:
    """What a row prints for the first types and attributes that it takes; nothing for others."""
    targets: set[str] = set()
    for types, attributes in instances(row.op):
        count = in_a_register(row, types)
        op = make(row.op, types, attributes, (count,) if row.pair else ())
        if not is_legal(op):
            continue
        targets |= set(targets_of(row, types, attributes))
        if target not in targets:
            continue
        writer = Writer(Storage(), target)
        declared: list[str] = []
        for i, operand in enumerate(op.operands):
            names = [f"x{i}_{k}" for k in range(count)]
            kind = table.register_kind(tile(operand).element)
            declared += [f".reg .{kind} {name};" for name in names]
            each = packing(operand)
            writer.held[operand] = Held(writer.join(names, each), each)
        emit.emit_elementwise(writer, op)
        return [*declared, *writer.declarations(), *writer.lines]
    assert targets, f"nothing takes the row {row.op}: {row.when_text}"
    return []


# The judge can fail


WGMMA = "wgmma.mma_async.sync.aligned"


@needs_ptxas
def test_a_product_that_ptxas_serialises_is_an_error() -> None:
    """Reading an accumulator in flight makes ptxas wait after each product: C7510 or a relative."""
    ptx = lower(read("gemm_sm90", "sm_90a"), "sm_90a").ptx
    lines = ptx.splitlines()
    at = next(i for i, line in enumerate(lines) if WGMMA in line)
    found = re.search(r"\{(%\w+)", lines[at])
    assert found is not None
    lines.insert(at + 1, f"add.f32 {found[1]}, {found[1]}, {found[1]};")
    with pytest.raises(Bug, match="C75"):
        assemble("\n".join(lines), "sm_90a")


@needs_ptxas
def test_registers_that_do_not_fit_are_an_error_unless_declared() -> None:
    ptx = lower(read("gemm_sm80", "sm_80"), "sm_80").ptx
    cramped = ptx.replace(".reqntid 128, 1, 1", ".reqntid 128, 1, 1\n.maxnreg 40")
    assert cramped != ptx
    with pytest.raises(ReftileError) as error:
        assemble(cramped, "sm_80")
    assert error.value.diagnosis.rule == "ptx.spills"
    _, report = assemble(cramped, "sm_80", allow_spills=1 << 20)
    assert report.spill_bytes > 0
    with pytest.raises(ReftileError):
        assemble(cramped, "sm_80", allow_spills=report.spill_bytes - 1)


@needs_ptxas
def test_a_text_that_ptxas_refuses_is_a_fault_of_ours() -> None:
    ptx = lower(read("gemm_sm80", "sm_80"), "sm_80").ptx
    with pytest.raises(Bug, match="refuses"):
        assemble(ptx.replace("cp.async.commit_group;", "cp.async.comit_group;", 1), "sm_80")


@needs_ptxas
@pytest.mark.parametrize(("budgets", "warps"), [((40, 232), 4), ((24, 256), 4), ((24, 240), 8)])
def test_roles_that_need_few_registers_have_their_budgets(
    budgets: tuple[int, int], warps: int
) -> None:
    """ptxas cannot tell by itself how many registers their threads enter with."""
    roles = "".join(
        f"""role {{label = "{label}", warps = {count}, registers = {registers}}} body {{
              %n{label} = constant {{value = 1}} : tile<i32>
              yield
            }}
        """
        for label, count, registers in zip("ab", (4, warps), budgets, strict=True)
    )
    text = f"""
    pipe kernel @few() attributes {{target = "sm_90a", warps = {4 + warps}}} {{
      {roles}
      return
    }}
    """
    found = lower(parse(text).kernel(), "sm_90a", assembled=True)
    assert found.assembly is not None
    assert found.assembly.remarks == ()
    assert ".minnctapersm 1" in found.ptx


def test_the_log_is_read() -> None:
    log = (
        "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized\nptxas info : Used 90 registers, used 3 barriers, 64 bytes smem\n"
        "    0 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
    )
    report = read_log(log)
    assert (report.registers, report.barriers, report.spill_bytes) == (90, 3, 20)
    assert len(report.remarks) == 1
    assert report.shared_bytes == 64
