"""Files and options of every wrong kind: one diagnosis on stderr, exit code 2, nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reftile.cli.app import execute


def kernel(body: str) -> str:
    return f"tile kernel @k(%p: tile<ptr<f32>>) {{\n{body}\n  return\n}}\n"


def constant(value: str, type: str) -> str:
    return kernel(f"%c = constant {{value = {value}}} : {type}")


FILES: dict[str, tuple[str | bytes, str]] = {
    "regions nested deeply": (
        kernel("%c = constant {value = true} : tile<i1>\n" + "if %c then {\n" * 20000),
        "text.too_deep",
    ),
    "types nested deeply": (constant("0.0", "tile<" * 50000 + "f32"), "text.type"),
    "lists nested deeply": (constant("[" * 50000, "tile<1xf32>"), "text.too_deep"),
    "a huge tile": (constant("0.0", "tile<1048576x1048576xf32>"), "text.type"),
    "a huge extent": (constant("0.0", f"tile<{'9' * 40}xf32>"), "text.type"),
    "a negative extent": (constant("0.0", "tile<-4xf32>"), "text.type"),
    "no extent": (constant("0.0", "tile<0xf32>"), "text.type"),
    "a hundred axes": (constant("0.0", f"tile<{'1x' * 100}f32>"), "text.type"),
    "two points": (constant("1.2.3", "tile<f32>"), "text.syntax"),
    "a word for a number": (constant("nope", "tile<f32>"), "text.attribute"),
    "a long integer": (constant("9" * 100000, "tile<i32>"), "text.number"),
    "a long exponent": (constant("1e" + "9" * 5000, "tile<f32>"), "text.number"),
    "too many values": (constant(f"[{'1.0, ' * 999}1.0]", "tile<4xf32>"), "text.attribute"),
    "nothing": ("", "cli.input"),
    "a comment": ("// nothing", "cli.input"),
    "zeros": ("\0" * 100, "text.syntax"),
    "not UTF-8": (b"\xff\xfe\x00tile", "cli.input"),
    "noise": (np.random.default_rng(0).bytes(100000), "cli.input"),
    "half a kernel": ("tile kernel @k(", "text.syntax"),
    "a long line": ("a" * 1_000_000, "text.syntax"),
    "a view too large": (
        kernel(
            "%v = make_tensor_view %p, [], [] : "
            f"tensor_view<{(1 << 63) - 1}xf32, strides=[{(1 << 63) - 1}]>"
        ),
        "text.type",
    ),
    "too much memory": (
        kernel("%a = alloca {num_elem = 100000000000, alignment = 4} : tile<ptr<f32>>"),
        "alloca.memory",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_hold_no_kernel(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, rule = FILES[name]
    path = tmp_path / "kernel.tile"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code = execute(["run", str(path), "--grid", "1", "f32[4]=zeros"])
    out, error = capsys.readouterr()
    assert error.startswith(f"error[{rule}]")
    assert code == 2
    assert out == ""
    assert "Traceback" not in error
    assert len(error) < 4000


COPY = kernel("%x, %t = load_ptr_tko %p {ordering = weak} : tile<f32>, token")
GOOD = ["--grid", "1", "f32[4]=zeros"]
OPTIONS: list[list[str]] = [
    ["run", "/nowhere.tile", *GOOD],
    ["run", "/", *GOOD],
    ["run", "/dev/null", *GOOD],
    ["run", "FILE:other", *GOOD],
    ["run", "FILE", "--grid", "x", "f32[4]=zeros"],
    ["run", "FILE", "--grid", "0", "f32[4]=zeros"],
    ["run", "FILE", "--grid", "9" * 30, "f32[4]=zeros"],
    ["run", "FILE", "--grid", "1,2,3,4", "f32[4]=zeros"],
    ["run", "FILE", "--grid", "1", "f32[99999999999999]=zeros"],
    ["run", "FILE", "--grid", "1", "f32[-4]=zeros"],
    ["run", "FILE", "--grid", "1", "q32[4]=zeros"],
    ["run", "FILE", "--grid", "1", "f32[4]=zzz"],
    ["run", "FILE", "--grid", "1", "nan"],
    ["run", "FILE", "--grid", "1", "@/nowhere.npy"],
    ["run", "FILE", "--grid", "1", "@FILE"],
    ["run", "FILE", *GOOD, "--backend", "zz"],
    ["run", "FILE", *GOOD, "--save", "/"],
    ["run", "FILE", *GOOD, "--save", "/nowhere/x.npz"],
    ["run", "/nowhere.py:k", *GOOD],
    ["check", "/", *GOOD],
    ["show", "/"],
    ["fuzz", "--programs", "0"],
    ["fuzz", "--seconds", "-1"],
    ["conformance", "run", "--suite", "zz"],
    ["conformance", "run", "--backend", "zz"],
    ["conformance", "report", "/"],
    ["conformance", "report", "FILE"],
    ["conformance", "compare", "FILE", "FILE"],
]


@pytest.mark.parametrize("arguments", OPTIONS, ids=lambda a: " ".join(a)[:60])
def test_options_that_cannot_be(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "copy.tile"
    path.write_text(COPY)
    code = execute([a.replace("FILE", str(path)) for a in arguments])
    out, error = capsys.readouterr()
    assert code == 2, (out, error)
    assert out == ""
    assert error.startswith("error[")
    assert "Traceback" not in error


def test_a_byte_order_mark_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "copy.tile"
    path.write_bytes(b"\xef\xbb\xbf" + COPY.encode())
    assert execute(["show", str(path)]) == 0
    assert capsys.readouterr().out.startswith("tile kernel")
