"""NVIDIA's own tools accept what is written and print the same; skipped where they are missing."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from reftile.interop.read import read_bytecode
from reftile.interop.table import codings
from reftile.interop.write import oldest_version, write_bytecode
from reftile.ir.parse import parse
from reftile.ir.print import show
from tests.interop.test_write import EXAMPLES, GLOBAL, MULTIMEM, NOT_IN_TILE_IR, VIEWS, kernel

TOOLS = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
FILES = sorted((Path(__file__).parent / "data").glob("*.tilebc"))

needs_disassembler = pytest.mark.skipif(
    not (TOOLS / "tileirdisasm").exists(), reason="nvidia-cuda-tileiras is not installed"
)
needs_assembler = pytest.mark.skipif(
    not (TOOLS / "tileiras").exists(), reason="nvidia-cuda-tileiras is not installed"
)


def disassemble(path: Path) -> str:
    command = [str(TOOLS / "tileirdisasm"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@needs_disassembler
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_rewritten_file_disassembles_to_the_same_text(path: Path, tmp_path: Path) -> None:
    text = show(read_bytecode(path.read_bytes()))
    again = tmp_path / "again.tilebc"
    again.write_bytes(write_bytecode(parse(text), int(path.stem[-1])))
    assert disassemble(again) == disassemble(path)


@needs_disassembler
@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - NOT_IN_TILE_IR))
def test_the_disassembler_knows_every_operation(name: str, tmp_path: Path) -> None:
    module = parse(kernel(EXAMPLES[name]))
    path = tmp_path / "example.tilebc"
    path.write_bytes(write_bytecode(module, oldest_version(module)))
    assert str(codings()[name].definition.tile_ir["name"]) in disassemble(path)


@needs_assembler
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("version", [1, 3, 5])
def test_the_assembler_accepts_what_is_written(target: str, version: int, tmp_path: Path) -> None:
    module = read_bytecode((Path(__file__).parent / "data" / "matmul-13.2.tilebc").read_bytes())
    for found in module.kernels:
        found.attributes.pop("hints", None)
    for name, program in (("matmul", module), ("views", parse(VIEWS))):
        path = tmp_path / f"{name}.tilebc"
        path.write_bytes(write_bytecode(program, version))
        command = [str(TOOLS / "tileiras"), f"--gpu-name={target}", str(path)]
        command += ["-o", str(tmp_path / f"{name}.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@needs_disassembler
def test_a_global_disassembles(tmp_path: Path) -> None:
    path = tmp_path / "global.tilebc"
    path.write_bytes(write_bytecode(parse(GLOBAL), 3))
    assert "constant @table alignment = 16" in disassemble(path)


@needs_disassembler
def test_multimem_operations_get_multicast_pointers(tmp_path: Path) -> None:
    path = tmp_path / "multimem.tilebc"
    path.write_bytes(write_bytecode(parse(MULTIMEM)))
    assert disassemble(path).count("multimem_") == 3


def test_operations_are_those_of_cuda_tile() -> None:
    encodings = pytest.importorskip("cuda.tile._bytecode.encodings")
    theirs = {n.removeprefix("encode_").removesuffix("Op").lower() for n in dir(encodings)}
    ours = {str(c.definition.tile_ir["name"]) for c in codings().values()}
    # `pow` got a new name with 13.4, and kept its opcode.
    missing = {n for n in ours if n != "pow" and n.replace("_", "") not in theirs}
    assert not missing


PAIRS = """\
tile kernel @k() {
  %a = iota : tile<8xi32>
  %b = reduce %a {axis = 0, identities = [0]} : tile<i32> combine(%n: tile<i32>, %o: tile<i32>) {
    yield %YIELDED
  }
  return
}
"""


@needs_disassembler
@pytest.mark.parametrize(("yielded", "place"), [("o", 0), ("n", 1)])
def test_what_comes_first_is_first_in_tile_ir(yielded: str, place: int, tmp_path: Path) -> None:
    """With us the accumulator is the second of a pair; in Tile IR the earlier one is the first."""
    path = tmp_path / "pairs.tilebc"
    path.write_bytes(write_bytecode(parse(PAIRS.replace("YIELDED", yielded))))
    text = disassemble(path)
    names = re.search(r"\(%(\w+): tile<i32>, %(\w+): tile<i32>\)", text)
    assert names is not None, text
    assert f"yield %{names.groups()[place]} " in text
    again = show(read_bytecode(path.read_bytes()))
    assert again == show(read_bytecode(write_bytecode(parse(again))))
