"""Packages that are there and cannot be imported: numba beside a NumPy it does not know, say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import reftile
import reftile.lang as ct

HERE = str(Path(__file__).resolve().parent)
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[2]:
            raise ImportError(f"{name} does not like this machine")

sys.meta_path.insert(0, Refuse())
import numpy as np
import reftile
from test_missing_packages import multiply
a = np.arange(256, dtype=np.float32).reshape(16, 16) % 7
for backend in (None, "cpu"):
    out = np.zeros_like(a)
    try:
        report = reftile.launch(multiply, (1,), (a, out), check=False, backend=backend)
        print(report.backend, (out == a @ a).all())
    except reftile.ReftileError as error:
        print(error.diagnosis.rule, error.diagnosis.message)
"""


@reftile.kernel
def multiply(a, out):
    total = ct.zeros((16, 16), ct.float32)
    for k in range(2):
        total = ct.mma(ct.load(a, (0, k), (16, 8)), ct.load(a, (k, 0), (8, 16)), total)
    ct.store(out, (0, 0), total)


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("numba", ["interp True", "cpu.missing the CPU backend needs numba: numba does not"]),
        ("llvmlite", ["interp True", "cpu.missing the CPU backend needs numba: llvmlite does not"]),
        ("scipy", ["cpu True", "cpu True"]),
    ],
)
def test_a_package_that_cannot_be_imported_is_missing(package: str, expected: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, HERE, package]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = found.stdout.splitlines()
    assert found.returncode == 0 and len(lines) == 2, found.stderr
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True)), lines
