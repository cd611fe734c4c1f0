"""`reftile show`, `explain` and `cache`: every level, what is refused, and that the sums add up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import reftile
import reftile.cli.explain as explaining
import reftile.cli.show as showing
import reftile.lower.disassemble as disassembling
from reftile.cli.app import execute
from reftile.ir.parse import parse
from reftile.ir.verify import verify
from reftile.lower.ptx.assemble import find_ptxas
from reftile.rt.cache import Cache
from reftile.rt.cpu.code import CodeCache

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipe"
GEMM80, GEMM90 = str(EXAMPLES / "gemm_sm80.tile"), str(EXAMPLES / "gemm_sm90.tile")
TILE = "tile kernel @k(%n: tile<i32>) {\n  return\n}\n"
needs_tools = pytest.mark.skipif(
    find_ptxas() is None or disassembling.find_nvdisasm() is None,
    reason="needs ptxas and nvdisasm (extra `ptxas`)",
)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert execute(["show", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert execute([*arguments, "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    return error


def test_the_default_is_the_kernels_own_level(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, GEMM80)
    assert found["text"] == Path(GEMM80).read_text("utf-8")
    assert (found["level"], found["target"], found["passes"]) == ("pipe", "sm_80", [])


@pytest.mark.parametrize("name", showing.PASSES)
def test_the_kernel_after_every_pass_parses_and_verifies(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    found = shown(capsys, GEMM80, "--after", name)
    kernel = parse(found["text"]).kernel()
    verify(kernel)
    assert kernel.level == found["level"]
    assert [p["name"] for p in found["passes"]] == [
        *showing.PASSES[: showing.PASSES.index(name) + 1]
    ]
    assert all(p["ms"] > 0 and p["verify_ms"] > 0 for p in found["passes"])


def test_levels_follow_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    simt = shown(capsys, GEMM80, "--level", "simt")
    assert simt["text"].split("kernel @")[0].split()[-1] == "simt"
    assert simt["text"] == shown(capsys, GEMM80, "--after", showing.PASSES[-1])["text"]
    ptx = shown(capsys, GEMM80, "--level", "ptx")
    assert ".visible .entry gemm(" in ptx["text"]


def test_a_person_reads_the_text_on_stdout_and_the_passes_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["show", GEMM80, "--level", "ptx"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(".version") and out.endswith("}\n")
    assert [line.split()[0] for line in err.splitlines()] == [*showing.PASSES]
    assert all(re.search(r"\d\.\d ms, verified in \d+\.\d ms$", x) for x in err.splitlines())


def test_another_target_with_the_same_operations(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, GEMM80, "--level", "ptx", "--target", "sm_89")
    assert ".target sm_89\n" in found["text"]


MATMUL = (str(EXAMPLES / "matmul.py:matmul"), *["f16[64,64]"] * 3)


def test_a_kernel_in_python_is_traced_for_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    for target, instruction in (("sm_80", "mma.sync"), ("sm_90a", "wgmma.mma_async")):
        found = shown(capsys, *MATMUL, "--level", "ptx", "--target", target)
        assert found["target"] == target
        assert instruction in found["text"]
    assert execute(["explain", *MATMUL, "--target", "sm_80"]) == 0
    assert "matmul for sm_80" in capsys.readouterr().out
    assert execute(["show", *MATMUL, "--target", "sm_75"]) == 2
    assert "sm_75" in capsys.readouterr().err


def test_a_kernel_for_another_maker_is_not_lowered(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["show", str(EXAMPLES / "gemm_gfx942.tile"), "--level", "ptx"]) == 2
    assert "`gemm` is for gfx942, and kernels are lowered for NVIDIA's" in capsys.readouterr().err


def test_a_pass_that_leaves_another_level_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["show", GEMM80, "--level", "simt", "--after", "unroll_loops"]) == 2
    assert "`unroll_loops` leaves pipe, not simt" in capsys.readouterr().err


@needs_tools
@pytest.mark.parametrize(("file", "instruction"), [(GEMM80, "HMMA"), (GEMM90, "HGMMA")])
def test_machine_code_is_disassembled(
    capsys: pytest.CaptureFixture[str], file: str, instruction: str
) -> None:
    lines = shown(capsys, file, "--level", "sass")["text"].splitlines()
    assert sum(instruction in line for line in lines) >= 4
    assert any("EXIT" in line for line in lines)
    assert not any("/*" in line for line in lines)


@pytest.mark.parametrize(
    ("module", "name"), [(showing, "find_ptxas"), (disassembling, "find_nvdisasm")]
)
def test_a_missing_tool_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    if name == "find_nvdisasm" and find_ptxas() is None:
        pytest.skip("needs ptxas")
    monkeypatch.setattr(module, name, lambda: None)
    error = refused(capsys, "show", GEMM80, "--level", "sass")
    assert error["rule"].startswith("sass.no_")
    assert "reftile[ptxas]" in error["hint"]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["show", GEMM80, "--level", "tile"], "show.level"),
        (["show", GEMM80, "--level", "llvm"], "cli.input"),
        (["show", GEMM80, "--after", "no_pass"], "cli.input"),
        (["show", GEMM80, "--plan", "stages=3"], "cli.input"),
        (["show", GEMM80, "--target", "sm_90a", "--level", "ptx"], "show.target"),
        (["show", GEMM80, "--target", "sm_1"], "cli.input"),
        (["show", str(EXAMPLES / "gemm_gfx942.tile"), "--level", "ptx"], "lower.target"),
        (["explain", GEMM80, "--target", "gfx942"], "show.target"),
        (["cache", "drop"], "cli.input"),
    ],
)
def test_what_is_not_possible_is_a_diagnosis(
    capsys: pytest.CaptureFixture[str], arguments: list[str], rule: str
) -> None:
    error = refused(capsys, *arguments)
    assert error["rule"] == rule


@pytest.mark.parametrize("command", [["show", "--level", "simt"], ["explain"]])
def test_a_tile_kernel_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "k.tile"
    path.write_text(TILE)
    error = refused(capsys, command[0], str(path), *command[1:])
    assert error["rule"].endswith(".level")
    assert "tile kernel" in error["message"]


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert execute(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_gemm_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys, GEMM90)
    by_op = {(s["op"], s["role"]): s for s in found["steps"]}
    load, product = by_op["copy_in", "producer"], by_op["mma_start", "consumer"]
    assert load["engine"] == "bulk copy engine (TMA)"
    assert any("cp.async.bulk.tensor" in name for name, _ in load["instructions"])
    assert product["instructions"] == [["wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", 4]]
    assert all(s["reason"] and s["place"]["line"] > 1 for s in found["steps"])
    assert [(r["name"], r["stages"]) for r in found["rings"]][:2] == [("a_ring", 4), ("b_ring", 4)]
    roles = {r["label"]: r for r in found["roles"]}
    assert (roles["consumer"]["registers"], roles["producer"]["registers"]) == (240, 24)
    assert found["blocks"] == 1
    assert "shared memory" in found["limiter"]
    assert any("persistent" in text for text in found["launch"])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.tile")), ids=lambda p: p.stem)
def test_the_sums_of_an_explanation_add_up(path: Path) -> None:
    kernel = parse(path.read_text("utf-8"), path.name).kernel()
    found = reftile.explain_kernel(kernel)
    end = 0
    for row in found.shared:
        assert row.offset == end + row.padding
        end = row.offset + row.bytes
    assert end == found.shared_bytes <= found.shared_limit
    assert sum(r.warps * r.replicas for r in found.roles) == found.warps
    if found.target.startswith("sm_"):
        assert found.blocks == min(limit.blocks for limit in found.occupancy) >= 1
        assert found.registers > 0 or find_ptxas() is None
        for step in found.steps:
            assert step.instructions, f"{step.op} at {step.place} has no instruction"
        for limit in found.occupancy:
            text = re.sub(" for the system| at most", "", limit.sum).replace(" warps x ", " * ")
            assert limit.blocks == eval(text.replace("/", "//")), limit
    text = "\n".join(explaining.lines_of(found))
    assert f"= {found.shared_bytes} of {found.shared_limit} bytes" in text
    assert path.name in text


def test_shared_memory_over_the_limit_is_refused_with_the_sum_written_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = Path(GEMM90).read_text("utf-8").replace("ring<4,", "ring<6,")
    path = tmp_path / "gemm.tile"
    path.write_text(text)
    for command in ("explain", "show"):
        error = refused(capsys, command, str(path), *(["--level", "ptx"] * (command == "show")))
        assert error["rule"] == "pipe.shared_memory"
        assert "6 x 16384 for %a_ring + 6 x 32768 for %b_ring" in error["message"]
        (total,) = re.findall(r"= (\d+) bytes", error["message"])
        terms = error["message"].split("need ")[1].split(" = ")[0]
        assert int(total) == eval(re.sub(r" for \S+", "", terms).replace("x", "*"))
        assert "sm_90a has 232448" in error["message"]


def test_the_cache_is_listed_and_cleared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    Cache(tmp_path).store("a" * 40, b"code", {"kernel": "gemm", "kind": "ptx"})

    def asked(action: str) -> dict[str, Any]:
        assert execute(["cache", action, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert asked("path") == {"path": str(tmp_path)}
    info = asked("info")
    assert (info["entries"], info["limit_bytes"]) == (1, 1 << 30)
    assert info["bytes"] == Cache(tmp_path).place("a" * 40).stat().st_size
    (entry,) = asked("list")["entries"]
    assert (entry["kernel"], entry["kind"], entry["key"]) == ("gemm", "ptx", "a" * 40)
    CodeCache().keep("b" * 40, b"more code", "kernel", "softmax")
    assert asked("info")["entries"] == 2
    assert {e["kernel"]: e["target"] for e in asked("list")["entries"]} == {
        "gemm": "?",
        "softmax": "cpu",
    }
    assert execute(["cache", "list"]) == 0
    shown = capsys.readouterr().out
    assert "gemm" in shown and "softmax" in shown
    assert asked("clear")["removed"] == 2
    assert asked("info")["entries"] == 0
