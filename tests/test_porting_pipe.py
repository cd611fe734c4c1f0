"""The listings of the porting page run, and every name it gives exists."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from reftile import pipe
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import find_ptxas

PAGE = Path(__file__).resolve().parent.parent / "docs" / "porting_pipe.md"
LISTING = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def test_the_listings_run(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    listings = LISTING.findall(page)
    assert len(listings) == 4
    file = tmp_path / "porting_listings.py"
    file.write_text("\n\n".join(listings), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("porting_listings", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert module.matmul.parameters
    if find_ptxas() is not None:
        for kernel in (module.product, module.early, module.add_product):
            target = kernel.shape.target
            found = lower(kernel.build(), target, assembled=True).assembly
            assert found is not None
            assert (found.remarks, found.spill_bytes) == ((), 0), kernel.__name__


def test_names_of_the_right_columns_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [line.split(" | ")[-1] for line in page.splitlines() if line.startswith("| `")]
    methods = {"load", "store", "part", "reinterpret", "arrive", "wait", "sync", "astype"}
    own = {"range", "float", "T", "place_of"} | methods
    called = {name for row in rows for name in re.findall(r"(?<![.\w])(\w+)\(", row)}
    missing = {n for n in called if n not in own and not hasattr(pipe, n)}
    assert not missing


def test_the_matmul_has_as_many_lines_as_tilelangs() -> None:
    """From the grid to the result TileLang's quick start, without its activation, has ten."""
    body = LISTING.findall(PAGE.read_text(encoding="utf-8"))[0].split("def check")[0]
    lines = [line for line in body[body.index("with pipe.Kernel") :].splitlines() if line.strip()]
    assert len([line for line in lines if "Parallel" not in line and "maximum" not in line]) == 10
