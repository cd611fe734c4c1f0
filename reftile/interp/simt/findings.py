"""Races of `simt` kernels in words: both accesses, and what is missing between."""

from __future__ import annotations

from reftile.interp.simt.shadow import Origin, Raced
from reftile.ir.diagnostics import Diagnosis, Span


def describe_race(race: Raced, where: str, data: dict[str, object]) -> Diagnosis:
    """The diagnosis of a race: both accesses, the cell, and what is missing between."""
    a, b = race.earlier, race.later
    rule, message, hint = _case(race)
    what = (_what(a, race.writes[0]), _what(b, race.writes[1]))
    notes: tuple[tuple[str, Span | None], ...] = (
        (f"the earlier access: {what[0]}, by {a.who}", a.op.span),
        (f"in {where}", None),
    )
    return Diagnosis(
        f"simt.race.{rule}",
        f"{what[0]} and then {what[1]}: {message}",
        b.op.span,
        hint,
        notes,
        data={**data, "cell": race.cell},
    )


def _what(origin: Origin, writes: bool) -> str:
    verb = "writes" if writes else "reads"
    return f"`{origin.op.name}` of line {origin.op.span.line} {verb}"


def _case(race: Raced) -> tuple[str, str, str]:
    a, b = race.earlier, race.later
    line = a.op.span.line
    wrote, writes = race.writes
    if wrote and race.done:
        if b.is_async and race.shown:
            return (
                "proxy",
                "the asynchronous proxy need not see what the generic one wrote",
                _missing_fence(race),
            )
        return (
            "relaxed",
            "the write is known to be done, but not shown",
            "an arrival or wait on the way is `relaxed`, or lacks `cluster`",
        )
    if wrote and a.in_flight:
        return (
            "unlanded",
            "nothing says that the copy has landed",
            f"wait for the copy of line {line} first: its barrier, or its group",
        )
    if a.in_flight:
        what = "product" if a.op.name == "multiply_async" else "copy"
        return (
            "in_flight",
            f"nothing says that the {what} has read what is overwritten",
            f"wait for the {what} of line {line}, and let a barrier tell those who write",
        )
    if wrote or not writes:
        return (
            "unwritten",
            "nothing orders them",
            f"put a barrier behind line {line} that both pass",
        )
    return (
        "reused",
        "nothing says that the read is over",
        f"put a barrier behind line {line} that both pass",
    )


def _missing_fence(race: Raced) -> str:
    """Which fence shows a write to the asynchronous proxy."""
    writer = race.earlier
    own = race.rank == writer.rank
    space = "global" if race.rank is None else "shared" if own else "all"
    hint = f"put `fence_proxy_async {{space = {space}}}` behind line {writer.op.span.line}"
    hint += ", in the threads that wrote"
    if space == "all":
        hint += ", or `{space = shared}` in those of the other block that are told of it"
    return hint
