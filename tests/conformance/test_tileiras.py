"""NVIDIA's compiler as a backend: what can be judged without a GPU, and without the compiler."""

import re
from pathlib import Path

import numpy as np
import pytest
from reftile.conformance.backend import InterpBackend, Unsupported, find_backend
from reftile.conformance.cases import Scalar
from reftile.conformance.runner import run_case, run_suites, select_cases
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.litmus import Question, questions
from reftile.conformance.tileiras import backend as tileiras
from reftile.conformance.tileiras import fuzz
from reftile.conformance.tileiras.build import build
from reftile.conformance.tileiras.bundle import Bundle, key_of, read_bundle
from reftile.conformance.tileiras.compiler import (
    Compiled,
    Target,
    compile_bytecode,
    find_tileiras,
    to_bytecode,
)
from reftile.conformance.tileiras.device import (
    Launch,
    Memories,
    Memory,
    Parameter,
    lay_out,
    take_out,
)
from reftile.conformance.tileiras.litmus import (
    count_hits,
    harness,
    litmus_parameters,
    moved_place,
)

from reftile.interop.read import read_bytecode
from reftile.interp.arguments import Raw
from reftile.interp.launch import interpret
from reftile.interp.model.explore import explore
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.ir.types import PointerType, TileType
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


@pytest.mark.parametrize("question", some_questions(), ids=lambda q: q.id)
def test_the_harness_shows_only_what_the_model_allows(question: Question) -> None:
    """Run on the interpreter, some instances give outcomes, all of them possible."""
    try:
        found = harness(question.test)
    except Unsupported:
        pytest.skip("needs several devices")
    instances, step = 3, 8
    memories: list[np.ndarray] = []
    values: list[object] = []
    buffers = [f"i{8 * b.element_size}" for b in question.test.program.buffers]
    dtypes = iter([*buffers, f"i{8 * found.width}", "i32"])
    for number, parameter in enumerate(litmus_parameters(found, instances, step)):
        if isinstance(parameter, Memory):
            memories.append(parameter.data.copy())
            values.append(Raw(memories[-1], next(dtypes)))
        else:
            assert (number == moved_place(found)) == (parameter.data == bytes(4))
            values.append(int.from_bytes(parameter.data, "little"))
    for (text, kernel), roles in zip(found.texts, found.roles, strict=True):
        module = parse(text, kernel)
        verify(module)
        to_bytecode(text, kernel)
        interpret(module, (roles * instances, 1, 1), values, check=True, name=kernel)
    hits = count_hits(found, memories, step)
    assert 0 <= hits <= instances
    if explore(question.test.program).allows() is None:
        assert hits == 0
    meetings = memories[-1].view("<i4")
    assert meetings.tolist() == [sum(found.roles)] * instances


def test_hits_are_counted() -> None:
    question = next(q for q in questions() if q.id.endswith("MP+weak+rel-acq"))
    found = harness(question.test)
    assert found.outputs == ("r", "s")
    buffers = [np.zeros(8 * 4 * 4, np.uint8)] * 2
    rows = np.array([[1, 0], [1, 1], [0, -77], [1, 0]], "<i4")
    memories = [*buffers, rows.view(np.uint8).reshape(-1), np.zeros(16, np.uint8)]
    assert count_hits(found, memories, 8) == 2


# The whole way, on a device that interprets


class InterpretingDevice:
    """A device whose machine code is bytecode. spoil: the byte of the last buffer to corrupt."""

    def __init__(self, spoil: int | None = None) -> None:
        self.spoil = spoil

    def describe(self) -> str:
        return "an interpreter"

    def run(self, launch: Launch) -> list[Memories]:
        (code,) = launch.kernels
        (kernel,) = read_bytecode(code.cubin).kernels
        memories: list[np.ndarray] = []
        values: list[object] = []
        for argument, parameter in zip(kernel.arguments, launch.parameters, strict=True):
            assert isinstance(argument.type, TileType)
            if isinstance(parameter, Memory):
                assert isinstance(argument.type.element, PointerType)
                memories.append(parameter.data.copy())
                values.append(Raw(memories[-1], argument.type.element.pointee.name))
            else:
                values.append(int.from_bytes(parameter.data, "little", signed=True))
        interpret(kernel, code.grid, values, check=True)
        if self.spoil is not None and memories[-1].size:
            memories[-1][self.spoil % memories[-1].size] ^= 0x10
        return [memories]


def interpreting(spoil: int | None = None) -> tileiras.TileirasBackend:
    """The backend without the compiler and the GPU."""
    backend = tileiras.TileirasBackend()
    backend.bundle.tileiras = "none"
    backend.device = InterpretingDevice(spoil)  # type: ignore[assignment]
    backend.compiled = lambda bytecode: Compiled(bytecode)  # type: ignore[method-assign]
    return backend


@pytest.mark.parametrize("spoil", [None, 3])
def test_cases_are_judged(spoil: int | None) -> None:
    found = run_suites(interpreting(spoil), ["ops"], "wimpy", "^ops/(addf|absi)/")
    counts = found.summary()
    assert counts["error"] == 0
    assert (counts["fail"] > 0) == (spoil is not None)
    assert (counts["pass"] > 10) == (spoil is None)


def test_the_fuzzer_agrees_with_itself_and_finds_a_fault() -> None:
    good = fuzz.compare(interpreting(), 0, 12)
    assert good.counts["agrees"] >= 1
    assert not good.disagreements
    bad = fuzz.compare(interpreting(0), 0, 12)
    assert bad.counts["differs"] == good.counts["agrees"]
    smallest = fuzz.reduce(interpreting(0), bad.disagreements[0], 4.0)
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
