"""Random kernels do the same at every level, and a fault that is planted is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from reftile.ir.parse import parse
from reftile.lower.ptx import storage, table
from reftile.lower.ptx.assemble import find_ptxas
from tests.lower.kernel_generator import generate
from tests.lower.random_kernels import judge, main


@pytest.mark.parametrize(("first", "count", "size"), [(0, 20, 6), (20, 12, 14), (32, 5, 30)])
def test_levels_agree(first: int, count: int, size: int) -> None:
    verdicts = {s: judge(generate(s, size), s) for s in range(first, first + count)}
    assert not [(s, v) for s, v in verdicts.items() if v.kind == "fails"]
    assert sum(v.kind == "agrees" for v in verdicts.values()) >= count * 3 // 4


@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
def test_ptxas_takes_the_text(target: str) -> None:
    verdicts = [judge(generate(s, 8, target), s, assembles=True) for s in range(100, 103)]
    assert [v.kind for v in verdicts] == ["agrees"] * 3


def test_a_seed_makes_one_kernel() -> None:
    first, again, other = (generate(seed, 20) for seed in (7, 7, 8))
    assert first.text == again.text != other.text
    assert str(first.arguments) == str(again.arguments)


# Planted faults


def _forget_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The greater of unsigned numbers is that of signed ones."""
    rows = dict(table.rows())
    rows["maxi"] = tuple(replace(r, text=r.text.replace("{s}", "s")) for r in rows["maxi"])
    monkeypatch.setattr(table, "rows", lambda: rows)


def _share_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values share registers though one is wanted when the other is written."""
    monkeypatch.setattr(storage._Assigner, "_apart", lambda *_: True)


@pytest.fixture
def without_kept_rows() -> Iterator[None]:
    table.instruction_of_form.cache_clear()
    yield
    table.instruction_of_form.cache_clear()


@pytest.mark.usefixtures("without_kept_rows")
@pytest.mark.parametrize("plant", [_forget_signs, _share_registers])
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(judge(generate(seed, 14), seed).kind == "fails" for seed in range(60))


@pytest.mark.usefixtures("without_kept_rows")
def test_a_kernel_that_fails_is_made_smaller(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _forget_signs(monkeypatch)
    likely = (s for s in range(400) if re.search("maxi .*= unsigned", generate(s, 3).text))
    seed = next(s for s in likely if judge(generate(s, 3), s).kind == "fails")
    assert main([str(seed), str(seed + 1), "--size", "3", "--reduce"]) == 1
    line, _, rest = capsys.readouterr().out.partition("\n")
    assert line.startswith(f"{seed}: ptx differs")
    smaller = rest[: rest.rindex("}") + 1]
    before, after = (
        [op.name for op in parse(text).kernel().walk()]
        for text in (generate(seed, 3).text, smaller)
    )
    assert "maxi" in after and len(after) < len(before)
