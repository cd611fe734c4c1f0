"""What `explain` finds out about a kernel, as plain data with a place in the source each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from reftile.ir.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the source something stands: a file, a line and a column, counted from 1."""

    file: str
    line: int
    column: int

    @staticmethod
    def of(span: Span) -> Place:
        """The begin of a span."""
        line, column = span.source.position(span.start)
        return Place(span.source.name, line, column)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Step:
    """One copy, product or meeting of the program, and the instructions that do it.

    kind: "copy", "product" or "order". engine: what moves or multiplies. bytes: of the tile, 0 if
    nothing moves. instructions: (name, how many in the text of the kernel).
    """

    kind: str
    op: str
    what: str
    role: str
    engine: str
    bytes: int
    instructions: tuple[tuple[str, int], ...]
    reason: str
    place: Place


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of buffers: how many stages, of what."""

    name: str
    stages: int
    buffer: str
    bytes_each: int
    place: Place


@dataclass(frozen=True, slots=True)
class Role:
    """Warps that run one region. registers: the budget of a thread, None if it is not stated."""

    label: str
    first_warp: int
    warps: int
    replicas: int
    registers: int | None
    place: Place

    @property
    def threads(self) -> int:
        """Threads of all replicas together."""
        return 32 * self.warps * self.replicas


@dataclass(frozen=True, slots=True)
class Shared:
    """One allocation of shared memory. padding: bytes in front of it, for its alignment."""

    name: str
    offset: int
    count: int
    bytes_each: int
    padding: int
    place: Place

    @property
    def bytes(self) -> int:
        """All buffers or barriers of it together."""
        return self.count * self.bytes_each


@dataclass(frozen=True, slots=True)
class Limit:
    """What one resource allows: so many blocks on a multiprocessor, by this sum."""

    resource: str
    blocks: int
    sum: str


@dataclass(frozen=True, slots=True)
class Meeting:
    """An array of barriers, and who takes part in it."""

    name: str
    count: int
    kind: str
    who: str
    place: Place


@dataclass(frozen=True, slots=True)
class Explanation:
    """All of it. registers: what a thread has at entry, and where the number is from.

    blocks: how many blocks a multiprocessor holds at a time; None where that is not known.
    launch: sentences about grid, order and cluster. conditions: what a launch must fulfil.
    """

    kernel: str
    target: str
    warps: int
    cluster: tuple[int, ...]
    steps: tuple[Step, ...]
    rings: tuple[Ring, ...]
    roles: tuple[Role, ...]
    barriers: tuple[Meeting, ...]
    shared: tuple[Shared, ...]
    shared_bytes: int
    shared_limit: int
    registers: int
    registers_from: str
    spill_bytes: int | None
    occupancy: tuple[Limit, ...]
    blocks: int | None
    launch: tuple[str, ...]
    conditions: tuple[str, ...]
    place: Place

    @property
    def limiter(self) -> str:
        """The resources that decide how many blocks fit."""
        return " and ".join(o.resource for o in self.occupancy if o.blocks == self.blocks)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "limiter": self.limiter}
