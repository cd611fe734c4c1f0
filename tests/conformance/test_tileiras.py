"""NVIDIA's compiler as a backend: what can be judged without a GPU, and without the compiler."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reftile.conformance.backend import InterpBackend, Unsupported, find_backend
from reftile.conformance.cases import Argument, Buffer, Scalar
from reftile.conformance.runner import Result, run_case, run_suites, select_cases
from reftile.conformance.stress import Histogram, StressConfig
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.litmus import Question, questions
from reftile.conformance.tileiras import backend as tileiras
from reftile.conformance.tileiras import compiler, fuzz
from reftile.conformance.tileiras.build import build
from reftile.conformance.tileiras.bundle import Bundle, key_of, read_bundle
from reftile.conformance.tileiras.campaign import Seeds
from reftile.conformance.tileiras.compiler import (
    Compiled,
    Target,
    compile_bytecode,
    find_tileiras,
    to_bytecode,
)
from reftile.conformance.tileiras.device import (
    Memory,
    Parameter,
    lay_out,
    take_out,
)
from reftile.conformance.tileiras.interpreted import Uncompiled
from reftile.conformance.tileiras.litmus import (
    INSTANCES,
    MOST_STRESSING,
    PLAIN,
    STRESS_ELEMENTS,
    count_hits,
    harness,
    litmus_parameters,
    settings,
    variation,
)
from reftile.conformance.tileiras.reduce import (
    group,
    reduce_input,
    reduce_litmus,
    smaller_tests,
)
from reftile.conformance.tileiras.workers import do_all
from reftile.conformance.verdicts import Verdict

from reftile.interp.arguments import Raw
from reftile.interp.launch import interpret
from reftile.interp.model.explore import explore
from reftile.ir.diagnostics import Bug, ReftileError
from reftile.ir.parse import parse
from reftile.ir.verify import verify

POWERS = Settings("wimpy", powers_of_two=True)
ONLY_OURS = frozenset("topk histogram sort gather argmax argmin mmaf_sparse philox".split())


# Tiles that the implementation has


def test_no_case_for_it_has_another_extent() -> None:
    odd: list[str] = []
    for case in select_cases(POWERS, ("ops",)):
        if case.op in ONLY_OURS or zlib_bucket(case.id):
            continue
        for extents in re.findall(r"tile<((?:\d+x)+)", case.build().text):
            if any(n & (n - 1) for n in map(int, extents[:-1].split("x"))):
                odd.append(case.id)
    # One case carries a tile through a loop, to be seen with an extent that is no power of two.
    assert set(odd) <= {"ops/for/i32/carries-tiles"}


def zlib_bucket(id: str) -> bool:
    """True for all but a tenth of the ids."""
    return hash_of(id) % 10 != 0


def hash_of(id: str) -> int:
    return sum(ord(c) * (i + 1) for i, c in enumerate(id))


def test_the_interpreter_passes_on_these_extents() -> None:
    cases = [c for c in select_cases(POWERS, ("ops",)) if hash_of(c.id) % 40 == 0]
    assert len(cases) > 50
    verdicts = {c.id: run_case(InterpBackend(), c).verdict.value for c in cases}
    assert set(verdicts.values()) == {"pass"}, verdicts


# Bundles


def test_a_bundle_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    bundle = Bundle(Target("sm_90", 2), "13.5.37")
    bundle.add(b"one", Compiled(b"\x7fELF"))
    bundle.add(b"two", Compiled(refused="tileiras: no"))
    bundle.write(path)
    again = read_bundle(path)
    assert again == bundle
    assert again.find(b"one") == Compiled(b"\x7fELF")
    assert again.find(b"three") is None
    assert key_of(b"one") in again.programs


@pytest.mark.parametrize("content", [b"", b"not a zip archive", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(content)
    with pytest.raises(ReftileError) as caught:
        read_bundle(path)
    assert caught.value.diagnosis.rule == "tileiras.bundle"


def test_a_bundle_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ReftileError) as caught:
        Bundle(Target()).write(tmp_path / "none" / "bundle.zip")
    assert caught.value.diagnosis.rule == "tileiras.bundle"


def test_a_missing_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReftileError) as caught:
        tileiras.TileirasBackend(str(tmp_path / "none.zip"))
    assert caught.value.diagnosis.rule == "tileiras.bundle"


def test_a_program_that_is_not_in_the_bundle_is_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    Bundle(Target()).write(path)
    with pytest.raises(Unsupported, match="not in the bundle"):
        tileiras.TileirasBackend(str(path)).compile("tile kernel @main() {\n  return\n}\n", "main")


# Memory of a launch


def test_buffers_lie_apart_and_come_back() -> None:
    first, second = np.arange(10, dtype=np.uint8), np.arange(7, dtype=np.uint8)
    parameters = [Memory(first), Parameter(b"1234"), Memory(second, 4), Memory(second, 0, 2)]
    places, image = lay_out(parameters)
    assert places[0] % 256 == 0
    assert places[2] % 256 == 4
    assert places[3] == places[2]
    found = take_out(parameters, places, image)
    np.testing.assert_array_equal(found[0], first)
    np.testing.assert_array_equal(found[1], second)


@pytest.mark.parametrize("offset", [-1, 10])
def test_a_write_beside_a_buffer_is_found(offset: int) -> None:
    parameters = [Memory(np.arange(10, dtype=np.uint8))]
    places, image = lay_out(parameters)
    image[places[0] + offset] ^= 1
    with pytest.raises(ReftileError) as caught:
        take_out(parameters, places, image)
    assert caught.value.diagnosis.rule == "tileiras.out_of_bounds"


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("i32", -1, b"\xff" * 4),
        ("i1", 1, b"\1"),
        ("f32", 1.0, b"\0\0\x80\x3f"),
        ("i8", -2, b"\xfe"),
    ],
)
def test_numbers_as_parameters(dtype: str, value: float, expected: bytes) -> None:
    assert tileiras.number_bytes(dtype, value) == expected
    assert Scalar("x", dtype, value).value == value


# Litmus tests


def some_questions() -> list[Question]:
    found = [q for q in questions() if not q.test.expected.race]
    return [q for i, q in enumerate(found) if i % 12 == 0]


@pytest.mark.parametrize(
    ("name", "why"), [("UNINIT+load", "poison"), ("VIEW+masked-load", "poison")]
)
def test_what_a_device_cannot_be_asked_is_said(name: str, why: str) -> None:
    (question,) = (q for q in questions() if q.test.name == name)
    with pytest.raises(Unsupported, match=why):
        harness(question.test)


def test_the_harness_writes_kernels_for_all_but_what_a_device_cannot_be_asked() -> None:
    refused: set[str] = set()
    for question in questions():
        try:
            found = harness(question.test)
        except Unsupported as error:
            refused.add(str(error))
            continue
        for text, kernel in found.texts:
            verify(parse(text, kernel))
    assert refused == {
        "the test needs several devices",
        "the test asks for poison, and compiled code has none",
    }


@pytest.mark.parametrize("stressed", [False, True])
@pytest.mark.parametrize("question", some_questions(), ids=lambda q: q.id)
def test_the_harness_shows_only_what_the_model_allows(question: Question, stressed: bool) -> None:
    """Run on the interpreter, some instances give outcomes, all of them possible."""
    try:
        found = harness(question.test)
    except Unsupported:
        pytest.skip("a device cannot be asked this")
    instances, step, beside = 3, 8, 2 * stressed
    numbers = PLAIN
    if stressed:
        numbers = PLAIN | {"factor": 3011, "first": 5, "rounds": 2, "warm": 1, "pattern": 1}
        numbers |= {"lines": 2, "line": 4, "late": 3, "moved": 1}
    memories: list[np.ndarray] = []
    values: list[object] = []
    buffers = [f"i{8 * b.element_size}" for b in question.test.program.buffers]
    dtypes = iter([*buffers, f"i{8 * found.width}", "i32", "i32"])
    changed = variation(found, numbers)
    for number, parameter in enumerate(litmus_parameters(found, instances, step)):
        if isinstance(parameter, Memory):
            memories.append(parameter.data.copy())
            values.append(Raw(memories[-1], next(dtypes)))
        else:
            values.append(int.from_bytes(changed.get(number, parameter.data), "little"))
    for (text, kernel), roles in zip(found.texts, found.roles, strict=True):
        module = parse(text, kernel)
        verify(module)
        to_bytecode(text, kernel)
        grid = (roles * instances + beside, 1, 1)
        interpret(module, grid, values, check=True, name=kernel)
    hits = count_hits(found, memories, step)
    assert 0 <= hits <= instances
    if explore(question.test.program).allows() is None:
        assert hits == 0
    assert memories[-2].view("<i4").tolist() == [sum(found.roles)] * instances
    assert memories[-1].any() == stressed


def test_each_setting_is_one_that_kernels_can_run() -> None:
    for seed in range(3):
        found = list(settings(seed, 4))
        assert found == list(settings(seed, 4))
        assert not found[0].stressing
        assert all(dict(n)["rounds"] == 0 for n in found[0].numbers)
        assert any(n["rounds"] for s in found for n in s.numbers)
        for numbers in (n for s in found for n in s.numbers):
            assert 0 < numbers["lines"] * numbers["line"] <= STRESS_ELEMENTS
            assert numbers["factor"] == 1 or numbers["factor"] > 4 * INSTANCES + MOST_STRESSING
            most = 4 * INSTANCES + MOST_STRESSING
            assert numbers["factor"] * most + numbers["first"] < 1 << 31


def test_hits_are_counted() -> None:
    question = next(q for q in questions() if q.id.endswith("MP+weak+rel-acq"))
    found = harness(question.test)
    assert found.outputs == ("r", "s")
    buffers = [np.zeros(8 * 4 * 4, np.uint8)] * 2
    rows = np.array([[1, 0], [1, 1], [0, -77], [1, 0]], "<i4")
    memories = [*buffers, rows.view(np.uint8).reshape(-1), np.zeros(16, np.uint8)]
    assert count_hits(found, memories, 8) == 2


# The whole way, on a device that interprets


@pytest.mark.parametrize("spoil", [None, 3])
def test_cases_are_judged(spoil: int | None) -> None:
    found = run_suites(Uncompiled(spoil), ["ops"], "wimpy", "^ops/(addf|absi)/")
    counts = found.summary()
    assert counts["error"] == 0
    assert (counts["fail"] > 0) == (spoil is not None)
    assert (counts["pass"] > 10) == (spoil is None)


def test_the_fuzzer_agrees_with_itself_and_finds_a_fault() -> None:
    good = fuzz.compare(Uncompiled(), 0, 12)
    assert good.counts["agrees"] >= 1
    assert not good.disagreements
    bad = fuzz.compare(Uncompiled(0), 0, 12)
    assert bad.counts["differs"] == good.counts["agrees"]
    smallest = fuzz.reduce(Uncompiled(0), bad.disagreements[0], 4.0)
    assert smallest.what
    assert len(smallest.text) < len(bad.disagreements[0].text)


def test_any_nan_is_as_good_as_another() -> None:
    one, other = np.array([0x7E00, 0x3C00, 0x7E00], "<u2"), np.array([0x7FFF, 0x3C01, 0], "<u2")
    found = fuzz.different("f16", one.view(np.uint8), other.view(np.uint8))
    assert found.tolist() == [1, 2]
    found = fuzz.different("i16", one.view(np.uint8), other.view(np.uint8))
    assert found.tolist() == [0, 1, 2]


def test_the_subset_has_only_what_tile_ir_has() -> None:
    for _, program in fuzz.programs(0, 12):
        assert not {op.name for op in program.kernel.walk()} & fuzz.SUBSET.lacks


# The compiler, where it is installed


def has_tileiras() -> bool:
    try:
        find_tileiras()
    except ReftileError:
        return False
    return True


@pytest.mark.skipif(not has_tileiras(), reason="nvidia-cuda-tileiras is not installed")
@pytest.mark.parametrize("target", [Target("sm_1"), Target("sm_90a"), Target("sm_90", 9)])
def test_a_target_that_the_compiler_lacks_is_said(target: Target, tmp_path: Path) -> None:
    with pytest.raises(ReftileError) as caught:
        build(tmp_path / "bundle.zip", ("kernels",), "wimpy", "nothing", target=target)
    assert caught.value.diagnosis.rule == "tileiras.target"
    assert not (tmp_path / "bundle.zip").exists()


def test_only_backends_that_take_something_are_given_it() -> None:
    with pytest.raises(KeyError, match="takes nothing"):
        find_backend("interp:bundle.zip")


@pytest.mark.skipif(not has_tileiras(), reason="nvidia-cuda-tileiras is not installed")
def test_a_program_is_compiled_and_another_refused() -> None:
    text = """tile kernel @main(%out: tile<ptr<i32>>) {
  %one = constant {value = 1} : tile<i32>
  %t = store_ptr_tko %out, %one {ordering = weak} : token
  return
}
"""
    assert compile_bytecode(to_bytecode(text, "main"), Target("sm_90")).cubin[:4] == b"\x7fELF"
    refused = compile_bytecode(b"\x7fTileIR\0 nothing", Target("sm_90"))
    assert refused.refused.startswith("tileiras: ")
    assert not refused.cubin


# Campaigns, on a device with a planted fault


def campaign(tmp_path: Path, *options: str) -> tuple[int, list[dict[str, object]]]:
    """Run one in two processes; its status and findings."""
    command = [sys.executable, "-m", "reftile.conformance.tileiras", str(tmp_path), "--jobs", "2"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    return done.returncode, json.loads((tmp_path / "findings.json").read_text())


def test_a_planted_fault_is_found_and_reduced(tmp_path: Path) -> None:
    options = ["--suite", "ops", "--budget", "wimpy", "--filter", "^ops/(negf/f16|addf/f16)/"]
    status, (found,) = campaign(tmp_path, *options, "--interpreted", "negf=absf", "--reduce", "6")
    assert status == 1
    assert (found["kind"], found["op"], found["dtype"]) == ("wrong", "negf", "f16")
    text = str(found["text"])
    kernel = parse(text, "main")
    verify(kernel)
    assert "negf" in text
    before, after = found["operations"]  # type: ignore[misc]
    assert after < before
    assert "on the interpreter" in str(found["what"])


def test_nothing_is_found_without_a_fault(tmp_path: Path) -> None:
    options = ["--suite", "ops", "--budget", "wimpy", "--filter", "^ops/negf/f16/"]
    assert campaign(tmp_path, *options, "--interpreted", "") == (0, [])
    (line, *_) = (tmp_path / "ops.jsonl").read_text().splitlines()[-1:]
    assert json.loads(line)["verdict"] == "pass"


def test_input_is_made_zero_where_it_does_not_matter() -> None:
    bits = np.arange(1, 9, dtype=np.uint64)
    given = (Buffer("x", "i32", bits), Buffer("y", "i32", bits, written=True))

    def fails(arguments: Sequence[Argument]) -> bool:
        x = arguments[0]
        assert isinstance(x, Buffer)
        return x.bits[5] == 6

    small, untouched = reduce_input(given, fails, 5.0)
    assert isinstance(small, Buffer)
    assert small.bits.tolist() == [0, 0, 0, 0, 0, 6, 0, 0]
    assert untouched is given[1]


def test_a_litmus_test_is_reduced_to_what_shows_the_outcome() -> None:
    """On a machine without atomicity, which is what shows a lost update."""
    question = next(q for q in questions() if q.id.endswith("ATOM+lost-update"))

    class Broken:
        def run_litmus(self, test: object, config: object) -> Histogram:
            return Histogram({}, 1, 1)

    backend: Any = Broken()
    test = question.test
    smaller = list(smaller_tests(test))
    found = reduce_litmus(backend, test, StressConfig(iterations=1), inf)
    assert explore(found.program).allows() is None
    for one in smaller_tests(found):
        result = explore(one.program)
        assert result.is_racy or result.allows() is not None
    assert all(t.program != test.program for t in smaller)


def test_results_that_disagree_alike_are_one_group() -> None:
    def result(id: str, verdict: Verdict, message: str = "") -> Result:
        return Result(id, "ops", "addf", "f32", verdict, message)

    refused = "tileiras: error at 1"
    found = group(
        [
            result("a", Verdict.FAIL, "3 of 8"),
            result("b", Verdict.FAIL, "4 of 8"),
            result("c", Verdict.PASS),
            result("d", Verdict.UNSUPPORTED, refused),
            result("e", Verdict.UNSUPPORTED, "Tile IR: has none"),
            result("f", Verdict.ERROR, "tileiras.timeout: it did not end"),
        ]
    )
    assert sorted([r.id for r in members] for members in found) == [["a", "b"], ["d"], ["f"]]


class _Deadly:
    """What kills the process that is given it, before it can say anything."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)

    def __call__(self) -> tileiras.TileirasBackend:
        raise NotImplementedError


def test_a_campaign_whose_processes_all_die_is_no_campaign_without_findings() -> None:
    with pytest.raises(Bug, match=r"all 2 processes of the campaign died \(exit codes \[3\]\)"):
        list(do_all(_Deadly(), Seeds(0, 4), 4, jobs=2))


def test_a_compiler_that_compiles_nothing_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "tileiras"
    script.write_text("#!/bin/sh\necho 'error: failed to compile Tile IR program' >&2\nexit 5\n")
    script.chmod(0o755)
    for function in (compiler.find_tileiras, compiler.check_tileiras, compiler.environment):
        function.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    try:
        with pytest.raises(ReftileError) as error:
            compiler.compile_bytecode(b"", compiler.Target("sm_90"))
        assert error.value.diagnosis.rule == "tileiras.broken"
        assert "failed to compile" in error.value.diagnosis.message
    finally:
        for function in (compiler.find_tileiras, compiler.check_tileiras, compiler.environment):
            function.cache_clear()


def test_a_compiler_with_its_own_assembler_is_shown_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiler, "find_tileiras", lambda: tmp_path / "tileiras")
    monkeypatch.setenv("CUDA_HOME", "elsewhere")
    compiler.environment.cache_clear()
    try:
        assert compiler.environment()["CUDA_HOME"] == "elsewhere"
        (tmp_path / "ptxas").write_text("")
        compiler.environment.cache_clear()
        found = compiler.environment()
        assert "CUDA_HOME" not in found
        assert found["PATH"].split(os.pathsep)[0] == str(tmp_path.resolve())
    finally:
        compiler.environment.cache_clear()


@pytest.mark.parametrize(
    ("given", "unknown"),
    [
        ("negf:absf", "negf:absf"),
        ("negf=nosuch", "nosuch"),
        ("nosuch=absf", "nosuch"),
        ("negf", ""),
    ],
)
def test_a_planted_fault_is_one_of_known_operations(
    given: str, unknown: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "reftile.conformance.tileiras", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--interpreted", given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"there is no operation `{unknown}`")
