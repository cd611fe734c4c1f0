"""Write the litmus tests as tile kernels, and read them back.

python -m conformance.litmus_tile.generate            # write the files
python -m conformance.litmus_tile.generate --check    # say whether they are current
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.litmus_tile.write import Inexpressible, kernel_name, write_test
from reftile.interp.arguments import Uninitialized
from reftile.interp.model.events import Buffer, Program
from reftile.interp.model.litmus import LitmusTest, parse_litmus
from reftile.interp.model.translate import translate_launches
from reftile.interp.model.values import POISON, Bin, Expr, IsUninit, Reg
from reftile.ir.core import Module
from reftile.ir.diagnostics import Source

HERE = Path(__file__).parent
TESTS = HERE.parent / "litmus"


def tests() -> Iterator[tuple[str, LitmusTest]]:
    """Every litmus test with the name of the file of its kernels."""
    for path in sorted(TESTS.glob("*.litmus")):
        for test in parse_litmus(Source(path.name, path.read_text(encoding="utf-8"))):
            yield f"{path.stem}.tile", test


def files() -> dict[str, str]:
    """The text of each file."""
    found: dict[str, list[str]] = {}
    for name, test in tests():
        question = " ".join(str(test.program.exists).split())
        head = f'// litmus "{test.name}" family {test.family}\n'
        if len(set(devices := [b.device for b in test.program.blocks])) > 1:
            head += f"// devices {' '.join(map(str, devices))}\n"
        try:
            text = f"{head}// exists {question}\n// expect {test.expected}\n{write_test(test)}"
        except Inexpressible as error:
            text = f"{head}// not expressible: {error}\n"
        found.setdefault(name, []).append(text)
    head = "// Written by conformance/litmus_tile/generate.py from the litmus tests.\n\n"
    return {name: head + "\n".join(texts) for name, texts in found.items()}


def read_back(test: LitmusTest, module: Module) -> Program:
    """The event program of a test's kernels, with the test's own question.

    Raises:
        KeyError: the module has no kernel of that test.
    """
    launches = sorted({b.launch for b in test.program.blocks})
    kernels = [module.kernel(kernel_name(test.name, launch)) for launch in launches]
    blocks = [[b for b in test.program.blocks if b.launch == n] for n in launches]
    grid = max(len(b) for b in blocks)
    args = [_array(b) for b in test.program.buffers]
    devices = [b.device for b in max(blocks, key=len)]
    program = translate_launches(kernels, (grid,), args, devices=devices).program
    defined = {a.register for b in program.blocks for op in b.ops for a in op.accesses}
    names: dict[str, Expr] = {}
    for launch, mine in zip(launches, blocks, strict=True):
        for number, block in enumerate(mine):
            prefix = f"b{number}" + (f"_launch{launch}" if len(launches) > 1 else "")
            for access in (a for op in block.ops for a in op.accesses):
                name = f"{prefix}.{access.register}"
                # An element that is known to be masked off has no access, and its padding is known.
                padding = access.otherwise or POISON
                names[access.register] = Reg(name) if name in defined else padding
    known = {b.name for b in program.buffers}
    buffers = (*program.buffers, *(b for b in test.program.buffers if b.name not in known))
    exists = test.program.exists
    return replace(
        program,
        buffers=buffers,
        exits=test.program.exits,
        exists=_renamed(exists, names) if exists is not None else None,
    )


def _array(buffer: Buffer) -> Any:
    values = [v if isinstance(v, int) else 0 for v in buffer.initial]
    array = np.array(values, f"int{8 * buffer.element_size}")
    is_fresh = not all(isinstance(v, int) for v in buffer.initial)
    return Uninitialized(array) if is_fresh else array


def _renamed(expr: Expr, names: dict[str, Expr]) -> Expr:
    match expr:
        case Reg(name):
            return names.get(name, expr)
        case Bin(op, lhs, rhs):
            return Bin(op, _renamed(lhs, names), _renamed(rhs, names))
        case IsUninit(arg):
            return IsUninit(_renamed(arg, names))
        case _:
            return expr


def main() -> int:
    """Write or check."""
    wanted = files()
    if "--check" in sys.argv:
        stale = [
            name
            for name, text in wanted.items()
            if not (HERE / name).exists() or (HERE / name).read_text(encoding="utf-8") != text
        ]
        print("\n".join(f"{name} is not what generate.py writes" for name in stale))
        return int(bool(stale))
    for name, text in wanted.items():
        (HERE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
