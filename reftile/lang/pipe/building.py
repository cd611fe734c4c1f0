"""Small pieces of operations with regions, for constructs that become several operations."""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir.core import Block, Op, Value
from reftile.ir.types import TOKEN
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token


def elected(t: Trace, build: Callable[[], Token | None]) -> Token | None:
    """What one thread does; the token that `build` gives leaves the region."""
    block = Block()
    with t.inside(block):
        token = build()
        t.op("yield", () if token is None else (token.value,))
    op = t.structure("elected", [block], types=[] if token is None else [TOKEN])
    return None if token is None else Token(op.results[0])


def when(t: Trace, condition: Tile | None, build: Callable[[], None]) -> None:
    """What is done if a scalar is true; None always is."""
    if condition is None:
        build()
        return
    if condition.constant is not None:
        if condition.constant:
            build()
        return
    block = Block()
    with t.inside(block):
        build()
        t.op("yield", ())
    t.structure("if", [block], condition.value, types=[])


def choose(
    t: Trace,
    condition: Tile | None,
    build: Callable[[], tuple[Value, ...]],
    otherwise: Callable[[], tuple[Value, ...]],
) -> tuple[Value, ...]:
    """What one of two gives, by a scalar; None is the first."""
    if condition is None:
        return build()
    blocks, found = (Block(), Block()), list[tuple[Value, ...]]()
    for block, each in zip(blocks, (build, otherwise), strict=True):
        with t.inside(block):
            found.append(each())
            t.op("yield", found[-1])
    types = [v.type for v in found[0]]
    return t.structure("if", blocks, condition.value, types=types).results


def is_computed_from(value: Value, block: Block, allowed: Value) -> bool:
    """True if a value depends on `allowed` and on what stands outside of `block`, and is pure."""
    owner = value.owner
    if isinstance(owner, Block):
        return owner is not block or value is allowed
    if not isinstance(owner, Op) or owner.parent is not block:
        return True
    if owner.regions or not owner.definition.is_pure:
        return False
    return all(is_computed_from(v, block, allowed) for v in owner.operands)


def recompute(t: Trace, value: Value, block: Block, known: dict[Value, Value]) -> Value:
    """Compute a value of `block` again where the trace is, with other values for some of it."""
    if value in known:
        return known[value]
    owner = value.owner
    if not isinstance(owner, Op) or owner.parent is not block:
        return value
    arguments = tuple(
        tuple(recompute(t, v, block, known) for v in a)
        if isinstance(a, tuple)
        else None
        if a is None
        else recompute(t, a, block, known)
        for a in owner.arguments
    )
    types = tuple(r.type for r in owner.results)
    copy = type(owner)(arguments, types, dict(owner.attributes), (), owner.span)
    t.block.append(copy)
    known.update(zip(owner.results, copy.results, strict=True))
    return known[value]
