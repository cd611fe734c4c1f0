"""What a race looks like to a user: both operations, the location, and the edge that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reftile.interp.order import WEAK, Event, happens_before, morally_strong
from reftile.ir.core import Op, Value
from reftile.ir.diagnostics import Diagnosis, Span
from reftile.ir.types import TokenType

if TYPE_CHECKING:
    from reftile.interp.machine import Launch
    from reftile.interp.memory import Buffer

_SCOPE_NAMES = {-1: "weak", 0: "tl_blk", 1: "device", 2: "sys"}


def describe_race(
    launch: Launch, earlier: Event, later: Event, buffer: Buffer, offset: int
) -> Diagnosis:
    """The diagnosis of a race between two events at a byte offset of a buffer."""
    where = f"{buffer.element_at(offset)} (address 0x{buffer.address + offset:x})"
    same_block = earlier.block == later.block
    first, second = _in_program_order(earlier, later) if same_block else (earlier, later)
    if earlier is later:
        rule = "race.within_operation"
        message = f"two elements of one `{later.op.name}` store to {where}"
        hint = "give the elements distinct addresses, mask one off, or use a read-modify-write"
        notes: tuple[tuple[str, Span | None], ...] = ()
    else:
        rule = "race.within_block" if same_block else "race.between_blocks"
        message = f"{_what(first)} and {_what(second)} race at {where}"
        place = launch.block_name(first.block)
        notes = ((f"the other access: {_what(first)}, by block {place}", first.op.span),)
        advise = _advise_within if same_block else _advise_between
        hint = advise(launch, first, second)
    notes = (*notes, (f"in block {launch.block_name(later.block)}", None))
    data: dict[str, object] = {
        "block": launch.block_id(second.block),
        "other_block": launch.block_id(first.block),
        "buffer": buffer.name,
        "offset_bytes": offset,
        "address": buffer.address + offset,
    }
    return Diagnosis(rule, message, second.op.span, hint, notes, data=data)


def _in_program_order(e: Event, f: Event) -> tuple[Event, Event]:
    return (e, f) if e.number <= f.number else (f, e)


def _what(event: Event) -> str:
    ordering = str(event.op.attributes.get("ordering", "weak"))
    scope = "" if event.scope == WEAK else f".{_SCOPE_NAMES[event.scope]}"
    return f"`{event.op.name}` ({ordering}{scope})"


def _token_of(op: Op) -> str:
    for result in op.results:
        if isinstance(result.type, TokenType):
            return f"%{result.name}" if result.name else "its token"
    return "its token"


def _taken_token(op: Op) -> Value | None:
    return next((o for o in op.operands if isinstance(o.type, TokenType)), None)


def _advise_within(launch: Launch, first: Event, second: Event) -> str:
    """The token edge that orders two events of one block."""
    token, line = _token_of(first.op), first.op.span.line
    target = f"the `{second.op.name}` of line {second.op.span.line}"
    if _in_other_iteration(launch, first, second):
        return (
            f"order the iterations: let the loop carry {token} (of line {line}), "
            f"and pass what it carries to {target}"
        )
    taken = _taken_token(second.op)
    if taken is None:
        return f"order them: pass token={token} (of line {line}) to {target}"
    if not taken.name:
        return f"order them: join {token} (of line {line}) with the token that {target} takes"
    name = f"%{taken.name}"
    return f"order them: pass join_tokens({name}, {token}) to {target}, which takes {name} now"


def _in_other_iteration(launch: Launch, first: Event, second: Event) -> bool:
    """True if a loop around both has gone on from the first to the second."""
    if first.op is second.op or first.op.span.start >= second.op.span.start:
        return True
    taken = _taken_token(second.op)
    if taken is not None and taken.owner is first.op:
        return True
    return any(
        e.op is first.op and e.block == first.block and first.number < e.number < second.number
        for e in launch.order.events
    )


def _advise_between(launch: Launch, first: Event, second: Event) -> str:
    """What orders two events of different blocks: the missing half of a message, or all of it."""
    if first.scope != WEAK and second.scope != WEAK:
        if first.size_bytes != second.size_bytes:
            return "strong accesses may meet only if they have the same size: use one element type"
        return "widen the scopes: each must include the other's block (device)"
    for release, acquire in launch.order.synchronised:
        if release.block == first.block and acquire.block == second.block:
            before = first is release or happens_before(first, release)
            after = second is acquire or happens_before(acquire, second)
            if after and not before:
                return (
                    f"block {launch.block_name(first.block)} publishes too early: pass "
                    f"token={_token_of(first.op)} to the release "
                    f"`{release.op.name}` of line {release.op.span.line}"
                )
            if before and not after:
                return (
                    f"block {launch.block_name(second.block)} does not wait: pass the token of the "
                    f"acquire `{acquire.op.name}` of line {acquire.op.span.line}, "
                    f"{_token_of(acquire.op)}, to the "
                    f"`{second.op.name}` of line {second.op.span.line}"
                )
    if first.op is second.op:
        return "give each block elements of its own, or use a read-modify-write"
    if morally_strong(first, second):
        return ""
    return (
        "order them: a release store behind the first, "
        "and before the second an acquire load that reads it"
    )
