"""One function being traced: its names, where its source is, and how control can leave it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from reftile.ir.core import Block
from reftile.ir.diagnostics import ReftileError, Span
from reftile.lang.source import FunctionSource
from reftile.lang.trace import Trace
from reftile.lang.values import Tile

Environment: TypeAlias = dict[str, object]


class Flow(Enum):
    """What happened at the end of some statements.

    NEXT: control goes on. ENDED: the block is closed, by a terminator or a recorded exit.
    BREAK, CONTINUE: an unrolled loop is left, or its next iteration begins.
    """

    NEXT = "next"
    ENDED = "ended"
    BREAK = "break"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    """The function returns `value`."""

    value: object


@dataclass(frozen=True, slots=True, eq=False)
class MayReturn:
    """The function returns `value` if `condition` holds, and goes on otherwise."""

    condition: Tile
    value: object


Outcome: TypeAlias = Flow | Returned | MayReturn


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """A way out of a loop's body: the block it closes, and the names at that point.

    returned: what the function around the loop returns there, when it does.
    """

    kind: str
    block: Block
    names: Environment
    span: Span
    returned: Returned | None = None


@dataclass(slots=True, eq=False)
class RunTimeLoop:
    """A loop of the IR under construction."""

    exits: list[Exit] = field(default_factory=list[Exit])
    may_break: bool = True


@dataclass(slots=True, eq=False)
class UnrolledLoop:
    """A loop that is unrolled; `block` is where its body is traced."""

    block: Block


@dataclass(slots=True, eq=False)
class Frame:
    """A function in the course of being traced.

    lookup: reads a name from outside the function; None when there is none.
    """

    trace: Trace
    source: FunctionSource
    names: Environment
    lookup: Callable[[str], object]
    called_from: Span | None = None
    is_kernel: bool = False
    loop: RunTimeLoop | UnrolledLoop | None = None
    local_names: frozenset[str] = frozenset()
    globals: Mapping[str, object] = field(default_factory=dict[str, object])

    def span(self, node: ast.AST) -> Span:
        """Where `node` stands, with the chain of calls that led here."""
        return self.source.span(node, self.called_from)

    def error(self, node: ast.AST, rule: str, message: str, hint: str = "") -> ReftileError:
        """Return (to be raised) a diagnosis about `node`."""
        return self.trace.error(rule, message, hint, self.span(node))

    def unsupported(self, node: ast.AST, what: str, hint: str = "") -> ReftileError:
        """Return (to be raised) the diagnosis for Python that kernels do not have."""
        return self.error(node, "syntax", f"{what} cannot be used in a kernel", hint)


UNKNOWN = object()
"""What `lookup` returns for a name that does not exist."""
