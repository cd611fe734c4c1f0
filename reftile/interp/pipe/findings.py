"""Races of `pipe` kernels in words: both operations, the bytes, and what is missing between."""

from __future__ import annotations

from dataclasses import dataclass

from reftile.interp.memory import Memory
from reftile.interp.pipe.places import RacedAt, element_at
from reftile.interp.pipe.tokens import Touch
from reftile.ir.diagnostics import Diagnosis, Span


def describe_shared_race(race: RacedAt) -> Diagnosis:
    """The diagnosis of a race in shared memory."""
    place = race.place
    block = place.allocation.block
    element = element_at(place, race.offset)
    byte = place.offset + race.offset
    name = place.allocation.buffer.name
    where = f"byte {byte} of {name} in block {block}"
    data: dict[str, object] = {
        "buffer": name,
        "offset_bytes": byte,
        "element": element,
        "block": block,
    }
    notes: tuple[tuple[str, Span | None], ...] = (
        (f"the access touches {place}; they meet at its element {list(element)}", None),
    )
    return _describe(race.earlier, race.later, block, where, notes, data)


def describe_global_race(memory: Memory, raced: tuple[Touch, Touch], found: Diagnosis) -> Diagnosis:
    """The diagnosis of a race in global memory, from what `tile` operations say of it."""
    earlier, later = raced
    data = {k: v for k, v in found.data.items() if k in ("buffer", "offset_bytes", "address")}
    address = found.data.get("address")
    where = f"memory of `{found.data.get('buffer')}`"
    if isinstance(address, int):
        buffer = memory.nearest(address)
        if buffer is not None:
            where = f"{buffer.element_at(address - buffer.address)} (address 0x{address:x})"
    data["block"] = later.agent.id
    return _describe(earlier, later, None, where, (), data)


def _describe(
    earlier: Touch,
    later: Touch,
    block: tuple[int, int, int] | None,
    where: str,
    notes: tuple[tuple[str, Span | None], ...],
    data: dict[str, object],
) -> Diagnosis:
    case = _case(earlier, later, block)
    message = f"{what_of(earlier)} and then {what_of(later)}: {case.message}, at {where}"
    notes = (
        (f"the earlier access: {what_of(earlier)}, by {earlier.agent.name}", earlier.op.span),
        *notes,
        (f"in {later.agent.name}", None),
    )
    data["role"], data["other_role"] = later.agent.label, earlier.agent.label
    return Diagnosis(f"pipe.race.{case.rule}", message, later.op.span, case.hint, notes, data=data)


def what_of(touch: Touch) -> str:
    """An access in words: what it does, as which operation, where in the text."""
    kind = "reads" if not touch.is_write else "updates" if touch.is_read else "writes"
    return f"`{touch.op.name}` of line {touch.op.span.line} {kind}"


@dataclass(frozen=True, slots=True)
class _Case:
    rule: str
    message: str
    hint: str


def _case(a: Touch, b: Touch, block: tuple[int, int, int] | None) -> _Case:
    """Which rule a race in a block's shared memory, or global memory, breaks; how to mend it."""
    known = b.before
    is_done = bool((known.done | known.shown | known.fenced) >> a.id & 1)
    if is_done and a.is_write:
        return _unseen(a, b, block)
    if a.in_flight and a.is_write:
        return _Case(
            "unlanded",
            "nothing says that the copy has landed",
            f"pass `{b.op.name}` the token of the wait for the copy of line {a.op.span.line} "
            f"({_wait_of(a)})",
        )
    if a.in_flight:
        return _Case(
            "in_flight",
            f"nothing says that the {_noun(a)} has read what is overwritten",
            f"pass `{b.op.name}` a token that comes from the wait for the {_noun(a)} of line "
            f"{a.op.span.line} ({_wait_of(a)}){_by_barrier(a, b)}",
        )
    if a.agent.cluster is not b.agent.cluster:
        return _Case(
            "unwritten" if a.is_write or not b.is_write else "reused",
            "nothing orders blocks",
            "give each block elements of its own, combine them by atomics, or hand them over by a "
            "release and an acquire",
        )
    if a.is_write or not b.is_write:
        return _Case(
            "unwritten",
            "nothing orders them",
            f"pass `{b.op.name}` a token that comes from `{a.op.name}` of line "
            f"{a.op.span.line}{_by_barrier(a, b)}",
        )
    return _Case(
        "reused",
        "nothing says that the read is over",
        f"pass `{b.op.name}` a token that comes from `{a.op.name}` of line "
        f"{a.op.span.line}{_by_barrier(a, b)}",
    )


def _unseen(a: Touch, b: Touch, block: tuple[int, int, int] | None) -> _Case:
    """A write that is known to be done, but is not shown to the proxy that comes to it."""
    if b.is_async and b.before.shown >> a.id & 1:
        space = "global" if block is None else "shared" if block == a.agent.id else "all"
        hint = (
            f"put `fence_proxy {{space = {space}}}` behind the write of line {a.op.span.line}, "
            "before the token goes to others"
        )
        if space == "all":
            hint += ", or `{space = shared}` in the other block, behind its wait"
        message = "the asynchronous proxy need not see what the generic one wrote"
        return _Case("proxy", message, hint)
    return _Case(
        "relaxed",
        "the write is known to be done, but not shown",
        "an arrival or wait on the way is `relaxed`: leave that out",
    )


def _noun(touch: Touch) -> str:
    return "product" if touch.op.name == "mma_start" else "copy"


def _wait_of(touch: Touch) -> str:
    match touch.op.name:
        case "mma_start":
            return "`mma_wait`"
        case "copy_in" if touch.is_async:
            return "`wait_barrier`"
        case "copy_out":
            return "`wait_copies {engine = bulk}`"
        case _:
            return "`wait_copies {engine = thread}`"


def _by_barrier(a: Touch, b: Touch) -> str:
    if a.agent is b.agent:
        return ""
    return f", by a barrier between {a.agent.label} and {b.agent.label}"
