"""Conflicts, races and loose ends among the accesses of a kernel, from a trace of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

from reftile.conformance.fuzz.memory import Buffer
from reftile.conformance.fuzz.trace import FULL_SCOPE, Coordinates, Instance, Tracer, Walk

from reftile.ir.core import Kernel, Op

Pair = tuple[Instance, Instance]
UNORDERED_ROLES = ("sum", "flag", "counter")
"""Buffers whose strong accesses may come in any order: what is computed does not show it."""


@dataclass
class Findings:
    """What a trace shows.

    accesses: executions of memory operations. conflicts: pairs of them of which one writes what the
        other touches. races: those that nothing orders, and that are not strong towards each other.
        loose: those that nothing orders although results depend on it.
    guarded: a branch depends on a message. certain: every execution has a race, whatever loads see.
    """

    accesses: int = 0
    conflicts: int = 0
    races: list[Pair] = field(default_factory=list)
    loose: list[Pair] = field(default_factory=list)
    guarded: bool = False
    certain: bool = False

    @property
    def is_racy(self) -> bool:
        """True if some execution has a race."""
        return bool(self.races)

    @property
    def is_determinate(self) -> bool:
        """True if every execution gives the same results."""
        return not self.races and not self.loose


def examine(
    kernel: Kernel, buffers: list[Buffer], scalars: list[int], grid: Coordinates
) -> Findings:
    """Trace a kernel and look at all pairs of its accesses.

    Raises:
        Untraceable: what it accesses depends on data.
    """
    blocks = grid[0] * grid[1] * grid[2]
    walks = [Tracer(kernel, buffers, scalars, grid, b).run() for b in range(blocks)]
    found = Findings(accesses=sum(len(w.instances) for w in walks))
    relaxed = {i + 1 for i, b in enumerate(buffers) if b.role in UNORDERED_ROLES}
    for walk in walks:
        _within(found, walk, relaxed)
    for left, right in combinations(walks, 2):
        _between(found, left, right, None, relaxed)
    found.certain = any(_is_certain(pair, walks) for pair in found.races)
    for walk in walks:
        for number in range(len(walk.guards)):
            found.guarded = True
            retrace = Tracer(kernel, buffers, scalars, grid, walk.block, number)
            _take_guard(found, retrace.run(), walks, number, relaxed)
    return found


def _is_certain(pair: Pair, walks: list[Walk]) -> bool:
    """True if no acquire comes before either access, which might order them in some executions."""
    for instance in pair:
        waited = instance.token | 1 << instance.number
        acquires = sum(1 << i.number for i in walks[instance.block].instances if i.acquires)
        if waited & acquires:
            return False
    return True


def _take_guard(
    found: Findings, walk: Walk, walks: list[Walk], number: int, relaxed: set[int]
) -> None:
    """Look at the executions in which one block takes one guarded branch."""
    extra = Findings()
    _within(extra, walk, relaxed)
    found.races += extra.races
    found.loose += extra.loose
    for seen in walk.guards[number]:
        look = walk.instances[seen]
        later = [i for i in walk.guards[number] if walk.instances[i].token >> seen & 1]
        for other in walks:
            if other.block == walk.block:
                continue
            extra = Findings()
            _between(extra, other, walk, _Message(look, [seen, *later], other), relaxed)
            found.races += extra.races
            found.loose += extra.loose
            found.conflicts += extra.conflicts if seen == walk.guards[number][0] else 0


@dataclass
class _Message:
    """The block of `sender` released something that loads of another block have seen."""

    look: Instance
    looks: list[int]
    sender: Walk

    def orders(self, first: Instance, second: Instance) -> bool:
        """True if `first`, of the sender, happens before `second`."""
        if not any(second.token >> i & 1 for i in self.looks):
            return False
        return any(
            release.releases
            and self.look.acquires
            and _strong_together(release, self.look)
            and _overlap(release, self.look)
            and (release is first or release.token >> first.number & 1)
            for release in self.sender.instances
        )


def _overlap(first: Instance, second: Instance) -> bool:
    return any(mask & second.bytes.get(buffer, 0) for buffer, mask in first.bytes.items())


def _strong_together(first: Instance, second: Instance) -> bool:
    if first.ordering == "weak" or second.ordering == "weak" or first.size != second.size:
        return False
    if first.block == second.block:
        return True
    return first.scope in FULL_SCOPE and second.scope in FULL_SCOPE


def _conflict(first: Instance, second: Instance) -> bool:
    return (first.writes or second.writes) and _overlap(first, second)


def _within(found: Findings, walk: Walk, relaxed: set[int]) -> None:
    for instance in walk.instances:
        if instance.repeats and instance.ordering == "weak" and instance.writes:
            found.races.append((instance, instance))
    for first, second in combinations(walk.instances, 2):
        if not _conflict(first, second):
            continue
        found.conflicts += 1
        if not second.token >> first.number & 1:
            _unordered(found, first, second, relaxed)


def _unordered(found: Findings, first: Instance, second: Instance, relaxed: set[int]) -> None:
    if not _strong_together(first, second):
        found.races.append((first, second))
    elif not set(first.bytes) <= relaxed:
        found.loose.append((first, second))


def _between(
    found: Findings, left: Walk, right: Walk, message: _Message | None, relaxed: set[int]
) -> None:
    """Pairs of two blocks; a message goes from `left` to `right`."""
    shared = _shared(left, right)
    if not shared:
        return
    for first in _touching(left.instances, shared):
        for second in _touching(right.instances, shared):
            if not _conflict(first, second):
                continue
            found.conflicts += 1
            if message is None or not message.orders(first, second):
                _unordered(found, first, second, relaxed)


def _shared(left: Walk, right: Walk) -> dict[int, int]:
    """Bytes that two blocks touch and one of them writes."""
    touched, written = _footprint(left.instances)
    others, written_by_others = _footprint(right.instances)
    shared = {
        b: (m & written_by_others.get(b, 0)) | (written.get(b, 0) & others.get(b, 0))
        for b, m in touched.items()
    }
    return {b: m for b, m in shared.items() if m}


def _footprint(instances: Iterable[Instance]) -> tuple[dict[int, int], dict[int, int]]:
    touched: dict[int, int] = {}
    written: dict[int, int] = {}
    for instance in instances:
        for buffer, mask in instance.bytes.items():
            touched[buffer] = touched.get(buffer, 0) | mask
            if instance.writes:
                written[buffer] = written.get(buffer, 0) | mask
    return touched, written


def _touching(instances: list[Instance], shared: dict[int, int]) -> list[Instance]:
    return [i for i in instances if any(m & shared.get(b, 0) for b, m in i.bytes.items())]


def dependences(
    kernel: Kernel, buffers: list[Buffer], scalars: list[int], grid: Coordinates
) -> set[tuple[Op, Op]]:
    """Pairs of operations, first before second, that must be ordered within a block."""
    relaxed = {i + 1 for i, b in enumerate(buffers) if b.role in UNORDERED_ROLES}
    blocks = grid[0] * grid[1] * grid[2]
    needed: set[tuple[Op, Op]] = set()
    for block in range(blocks):
        walk = Tracer(kernel, buffers, scalars, grid, block).run()
        for taken in (None, *range(len(walk.guards))):
            if taken is not None:
                walk = Tracer(kernel, buffers, scalars, grid, block, taken).run()
            for first, second in combinations(walk.instances, 2):
                free = set(first.bytes) <= relaxed and _strong_together(first, second)
                if not free and _conflict(first, second):
                    needed.add((first.op, second.op))
    return needed
