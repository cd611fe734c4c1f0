"""Reading files that cuda-tile wrote: they verify, run, and point into their Python source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reftile.interop.cursor import Cursor
from reftile.interop.debug_read import NOT_HERE
from reftile.interop.emit import put_number, put_signed
from reftile.interop.read import bytecode_version, read_bytecode
from reftile.interop.write import write_bytecode
from reftile.interp.launch import interpret
from reftile.ir.core import Kernel, Module
from reftile.ir.diagnostics import ReftileError, Source
from reftile.ir.parse import parse
from reftile.ir.print import show

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("*.tilebc"))


def read(name: str) -> Module:
    return read_bytecode((DATA / name).read_bytes(), name)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**64 - 1])
def test_numbers_come_back(value: int) -> None:
    data = bytearray()
    put_number(data, value)
    put_signed(data, -value // 2)
    cursor = Cursor(bytes(data), Source("x", ""), "a test")
    assert cursor.number() == value
    assert cursor.signed() == -value // 2
    assert cursor.remaining == 0


@pytest.mark.parametrize("data", ["ff" * 9 + "02", "ff" * 10 + "01", "80"])
def test_a_number_has_at_most_64_bits(data: str) -> None:
    with pytest.raises(ReftileError):
        Cursor(bytes.fromhex(data), Source("x", ""), "a test").number()


def test_a_count_is_bounded_by_the_bytes_that_are_left() -> None:
    cursor = Cursor(bytes.fromhex("ffff7f00"), Source("x", ""), "a test")
    with pytest.raises(ReftileError, match="do not fit"):
        cursor.count("items")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_file_says_its_version(path: Path) -> None:
    assert bytecode_version(path.read_bytes()) == int(path.stem[-1])


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_text_form_of_a_file_is_canonical(path: Path) -> None:
    text = show(read(path.name))
    assert show(parse(text)) == text


@pytest.mark.parametrize("name", ["vadd-13.1.tilebc", "vadd-13.4.tilebc"])
def test_vadd_adds(name: str) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 200)).astype(np.float32)
    out = np.zeros_like(x)
    interpret(read(name), 4, [x, 200, 1, y, 200, 1, out, 200, 1])
    assert np.array_equal(out, x + y)


@pytest.mark.parametrize("name", ["matmul-13.2.tilebc", "matmul-13.4.tilebc"])
def test_matmul_multiplies(name: str) -> None:
    x, y = np.random.default_rng(1).integers(-4, 5, (2, 40, 40)).astype(np.float16)
    out = np.zeros((40, 40), np.float32)
    array = [40, 40, 40, 1]
    interpret(read(name), (2, 2), [x, *array, y, *array, out, *array])
    assert np.array_equal(out, x.astype(np.float32) @ y.astype(np.float32))


@pytest.mark.parametrize("name", ["softmax-13.1.tilebc", "softmax-13.3.tilebc"])
def test_softmax_gives_shares(name: str) -> None:
    x = np.random.default_rng(2).standard_normal((3, 50)).astype(np.float32)
    out = np.zeros_like(x)
    array = [3, 50, 50, 1]
    interpret(read(name), 3, [x, *array, out, *array])
    shares = np.exp(x.astype(np.float64))
    assert np.allclose(out, shares / shares.sum(1, keepdims=True), rtol=1e-5, atol=0)


def test_a_finding_points_into_the_author_s_file() -> None:
    kernel = read("vadd-13.1.tilebc").kernels[0]
    load = next(op for op in kernel.walk() if op.name == "load_view_tko")
    lines = (DATA / "kernels.py").read_text().splitlines()
    assert load.span.file.endswith("/kernels.py")
    assert load.span.source.text == NOT_HERE
    assert lines[load.span.line - 1][load.span.column - 1 :] == "ct.load(a, (i,), (TILE,))"


def test_an_inlined_function_knows_who_called_it() -> None:
    lines = (DATA / "kernels.py").read_text().splitlines()
    kernel = read("softmax-13.1.tilebc").kernels[0]
    divide = next(op for op in kernel.walk() if op.name == "divf")
    assert "return p / ct.sum" in lines[divide.span.line - 1]
    assert divide.span.called_from is not None
    assert "share(p)" in lines[divide.span.called_from.line - 1]


TEXT = """\
tile kernel @k(%n: tile<i32>) {
  %a = addi %n, %n : tile<i32>
  return
}
"""


def _from_file(path: Path) -> Kernel:
    return read_bytecode(write_bytecode(parse(path.read_text(), str(path)))).kernels[0]


def test_a_span_quotes_a_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(TEXT)
    op = next(_from_file(path).walk())
    assert str(op.span) == f"{path}:2:8"
    assert op.span.source.text == TEXT
    assert op.span.end - op.span.start == len("addi")


def test_no_file_is_read_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    path.write_text(TEXT)
    assert next(_from_file(path).walk()).span.source.text == NOT_HERE
