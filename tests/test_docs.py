"""The committed reference pages are what docs/generate.py writes, and records read well there."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

CHAPTER = """# Matrices

See [order](memory_model.md#order) and [the code](../reftile/ir).

```toml op
name = "mmaf"
summary = "Multiply and accumulate."
operands = "lhs: tile[m k; F], acc?: tile[m n; A]"
where = { F = "f16 | bf16" }
tile_ir = { name = "mmaf", code = 0x49 }
invented_later = 3

[rule.wide_accumulator]
check = "F != 'bf16' or A | 1"
say = "{F} products need an f32 accumulator, found {A}"
```

```relations ptx-6.0
fr = rf^-1 ; co
```
"""


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: python docs/generate.py"


def test_a_record_becomes_a_table(generate: ModuleType) -> None:
    page = generate.chapter_page(CHAPTER)
    assert "| operand | `lhs` | `tile[m k; F]` |" in page
    assert "| operand | `acc?` | `tile[m n; A]` |" in page
    assert "| where | `F` | `f16`, `bf16` |" in page
    assert "| CUDA Tile IR |  | `mmaf` 0x49 |" in page
    assert "- Rule `mmaf.wide_accumulator`: <code>F != 'bf16' or A &#124; 1</code>." in page
    assert "toml" not in page


def test_a_field_it_does_not_know_is_shown(generate: ModuleType) -> None:
    assert "| invented_later |  | 3 |" in generate.chapter_page(CHAPTER)


def test_other_blocks_stay_as_they_are(generate: ModuleType) -> None:
    assert "```relations\nfr = rf^-1 ; co\n```" in generate.chapter_page(CHAPTER)


def test_links_that_leave_the_spec_lose_their_target(generate: ModuleType) -> None:
    page = generate.chapter_page(CHAPTER)
    assert "[order](memory_model.md#order) and the code." in page


def test_an_api_page_follows_exports_to_their_definition(
    generate: ModuleType, tmp_path: Path
) -> None:
    package = tmp_path / "__init__.py"
    package.write_text('"""A package."""\nfrom .inner import add\n__all__ = ["add"]\n')
    (tmp_path / "inner.py").write_text(
        "def add(x: int, y: int = 1) -> int:\n"
        '    """Return the sum.\n\n    Raises:\n        Bug: never.\n    """\n'
    )
    page = generate.api_page("package", package, ["add"])
    assert "## `add`\n\n```python\ndef add(x: int, y: int=1) -> int\n```" in page
    assert "**Raises**\n\n- Bug: never." in page
