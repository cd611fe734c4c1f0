"""Pattern rewriting: functions that look at one operation and replace it, or say why they did not.

def double_negation(op: Op, rewriter: Rewriter) -> None:
    inner = rewriter.defining(op.arguments[0], ops.Negi) or no_match("the operand is not a
    negation")
    rewriter.replace(op, [inner.source])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from reftile.ir.build import Builder
from reftile.ir.core import Block, Kernel, Op, Value

AnyOp = TypeVar("AnyOp", bound=Op)
Pattern = Callable[[Op, "Rewriter"], None]
LARGEST_SWEEP_COUNT = 64


class NoMatch(Exception):
    """A pattern does not apply; the text says why."""


def no_match(why: str) -> NoReturn:
    """Leave a pattern without changing anything."""
    raise NoMatch(why)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why `pattern` did not fire on `op`."""

    pattern: str
    op: Op
    why: str


class Rewriter:
    """Changes one kernel. Uses are replaced everywhere at the end of each sweep."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.changed = False
        self._replaced: dict[Value, Value] = {}
        self._erased: set[Op] = set()

    def defining(self, value: object, cls: type[AnyOp]) -> AnyOp | None:
        """The operation that makes `value`, if it is a `cls`."""
        if isinstance(value, Value):
            owner = self.resolve(value).owner
            if isinstance(owner, cls):
                return owner
        return None

    def resolve(self, value: Value) -> Value:
        """What `value` has been replaced by so far."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def before(self, op: Op) -> Builder:
        """A builder whose operations stand in front of `op`, with its span."""
        assert op.parent is not None
        return _InsertionBuilder(op.parent, op)

    def replace(self, op: Op, values: Sequence[Value]) -> None:
        """Use `values` instead of the results of `op`, and erase it."""
        for old, new in zip(op.results, values, strict=True):
            if old.type != new.type:
                raise TypeError(f"{op.name}: {old.type} cannot be replaced by {new.type}")
            self._replaced[old] = new
        self.erase(op)

    def erase(self, op: Op) -> None:
        """Remove `op`; its results must be unused or replaced."""
        self._erased.add(op)
        self.changed = True

    def is_erased(self, op: Op) -> bool:
        """True if `op` was removed in this sweep."""
        return op in self._erased

    def finish(self) -> None:
        """Apply the replacements and removals of this sweep."""
        mapping = {old: self.resolve(old) for old in self._replaced}
        for op in list(self.kernel.walk()):
            if mapping:
                op.replace_operands(mapping)
        if self._erased:
            self._sweep(self.kernel.body.block)
        self._replaced, self._erased = {}, set()

    def _sweep(self, block: Block) -> None:
        block.ops = [op for op in block.ops if op not in self._erased]
        for op in block.ops:
            for region in op.regions:
                self._sweep(region.block)


class _InsertionBuilder(Builder):
    def __init__(self, block: Block, anchor: Op) -> None:
        super().__init__(_Before(block, anchor), anchor.span)  # type: ignore[arg-type]


class _Before:
    """Stands for a block in a builder: appends in front of an anchor."""

    def __init__(self, block: Block, anchor: Op) -> None:
        self.block, self.anchor = block, anchor

    def append(self, op: Op) -> Op:
        return self.block.insert_before(self.anchor, op)


def rewrite(kernel: Kernel, patterns: Sequence[Pattern]) -> list[Refusal]:
    """Apply `patterns` until none fires; return the refusals of the last sweep.

    Raises:
        RuntimeError: no fixed point after LARGEST_SWEEP_COUNT sweeps; two patterns undo each other.
    """
    for _ in range(LARGEST_SWEEP_COUNT):
        rewriter = Rewriter(kernel)
        refusals: list[Refusal] = []
        for op in list(kernel.walk()):
            for pattern in patterns:
                if rewriter.is_erased(op):
                    break
                try:
                    pattern(op, rewriter)
                except NoMatch as reason:
                    refusals.append(Refusal(pattern.__name__, op, str(reason)))
        changed = rewriter.changed
        rewriter.finish()
        if not changed:
            return refusals
    raise RuntimeError(f"no fixed point: {', '.join(p.__name__ for p in patterns)}")
