"""Counts of what was generated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from reftile.conformance.fuzz.program import Program
from reftile.conformance.fuzz.races import Findings

from reftile.ir.core import Block
from reftile.ir.ops import OPS
from reftile.ir.types import TileType

_STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def _bucket(number: int) -> str:
    """The range of powers of two that a number lies in."""
    above = [s for s in _STEPS if s <= number]
    low = above[-1]
    following = _STEPS.index(low) + 1
    if following == len(_STEPS):
        return f"{low} and more"
    high = _STEPS[following] - 1
    return str(low) if high <= low else f"{low} to {high}"


@dataclass
class Histograms:
    """By property, how many programs have it; of operations and types, how many uses there are."""

    tables: dict[str, Counter[str]] = field(default_factory=dict)

    def count(self, table: str, key: str, times: int = 1) -> None:
        """Count one more of a kind."""
        self.tables.setdefault(table, Counter())[key] += times

    def add(self, program: Program, findings: Findings) -> None:
        """Count what a program has."""
        kernel = program.kernel
        ops = list(kernel.walk())
        for op in ops:
            self.count("ops", op.name)
            for result in op.results:
                if isinstance(result.type, TileType):
                    self.count("dtypes", str(result.type.element))
                    self.count("ranks", str(result.type.rank))
                    self.count("tile sizes", _bucket(prod(result.type.shape)))
        for name, times in program.accesses.items():
            self.count(
                "element types in memory" if name.startswith("element ") else "accesses",
                name.removeprefix("element "),
                times,
            )
        for name in program.seen:
            self.count("constructs", name)
        self.count("operations", _bucket(len(ops)))
        self.count("loop depth", str(depth(kernel.body.block, ("for", "loop"))))
        self.count("branch depth", str(depth(kernel.body.block, ("if",))))
        self.count("blocks", str(program.blocks))
        self.count("executed accesses", _bucket(findings.accesses))
        self.count("conflicts", _bucket(findings.conflicts))
        kind = "racy" if findings.is_racy else "race-free"
        self.count("policies", f"{program.policy}, {kind}")
        self.count("roles", "+".join(sorted({b.role for b in program.buffers})))

    def unused(self) -> list[str]:
        """Operations of tile kernels that no program had."""
        tile = [n for n, c in OPS.items() if "tile" in c.definition.levels]
        return [n for n in tile if n not in self.tables.get("ops", {})]

    def to_json(self) -> dict[str, dict[str, int]]:
        """As plain data, the most frequent first."""
        return {name: dict(table.most_common()) for name, table in self.tables.items()}

    def lines(self) -> Iterator[str]:
        """A text for people: a line for each table, in natural order."""
        for name, table in self.tables.items():
            if name in ("ops", "accesses", "roles", "constructs", "dtypes"):
                items = table.most_common()
            else:
                items = sorted(table.items(), key=lambda i: _natural(i[0]))
            yield f"  {name}: " + ", ".join(f"{k} {n}" for k, n in items)
        unused = self.unused()
        yield f"  operations used: {len(self.tables.get('ops', {}))}; unused: {', '.join(unused)}"


def _natural(key: str) -> tuple[int, str]:
    head = key.split(" ")[0]
    return (int(head), "") if head.isdigit() else (1 << 30, key)


def depth(block: Block, names: tuple[str, ...]) -> int:
    """How deep operations of these names lie inside one another."""
    deepest = 0
    for op in block.ops:
        inside = max((depth(r.block, names) for r in op.regions), default=0)
        deepest = max(deepest, inside + (op.name in names))
    return deepest
