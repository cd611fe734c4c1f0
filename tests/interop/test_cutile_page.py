"""The blocks of docs/cutile.md run in order, and the finding is the one that is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reftile.interop import cutile_hooks

ct = pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")
pytest.importorskip("torch")
if ct.__version__ not in cutile_hooks.PINNED:
    pytest.skip(f"cuda-tile {ct.__version__} is not one that is known", allow_module_level=True)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cutile.md"


def test_the_page_runs(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    [shown] = re.findall(r"^error\[.+$", text, re.M)
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False
    )
    assert re.sub(r"\(address .*", "", shown) in done.stderr
    assert str(program) in done.stderr.splitlines()[-10:].__repr__()


def test_the_versions_are_those_that_are_known() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"Versions {' and '.join(cutile_hooks.PINNED)} of cuda-tile" in text
    assert f"cuda-tile=={cutile_hooks.newest_version()}" in text
