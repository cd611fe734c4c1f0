"""When nobody can go on: who waits for what, or which bytes will never come."""

from __future__ import annotations

from reftile.interp.simt.barriers import Mbarrier
from reftile.interp.simt.machine import Home, SimtLaunch, Warp, lanes_text
from reftile.ir.core import Op
from reftile.ir.diagnostics import Diagnosis, Span

MOST_LINES = 16
"""Waits that a message lists at most."""


def describe_deadlock(launch: SimtLaunch, live: list[Warp]) -> Diagnosis:
    """The diagnosis when nobody can go on: the wait graph, or bytes that never come."""
    waiting = [w for w in live if w.waiting is not None]
    notes = _wait_notes(waiting)
    data: dict[str, object] = {
        "waiting": [
            {"block": w.id, "warp": w.index, "line": w.waiting.op.span.line}
            for w in waiting
            if w.waiting is not None
        ]
    }
    homes = {id(w.home): w.home for w in live}
    wrong = _wrong_bytes(list(homes.values()))
    if wrong is not None:
        op, message = wrong
        hint = "announce what the copies bring: each its box, a multicast to each block"
        return Diagnosis("simt.transaction_bytes", message, op.span, hint, notes, data=data)
    first = waiting[0].waiting if waiting else None
    return Diagnosis(
        "simt.deadlock",
        "nobody can go on: every warp that is left waits",
        first.op.span if first is not None else launch.plan.kernel.span,
        "compare first phases (0 to drain a ring, 1 to fill it) and who arrives how often",
        notes,
        data=data,
    )


def _wait_notes(waiting: list[Warp]) -> tuple[tuple[str, Span | None], ...]:
    """One line for each wait, with the warps that stand in it."""
    groups: dict[tuple[str, str, int], list[Warp]] = {}
    spans: dict[tuple[str, str, int], Span] = {}
    for warp in waiting:
        assert warp.waiting is not None
        key = warp.home.name, warp.waiting.what(), warp.waiting.op.span.line
        groups.setdefault(key, []).append(warp)
        spans[key] = warp.waiting.op.span
    notes: list[tuple[str, Span | None]] = []
    for (block, what, line), warps in list(groups.items())[:MOST_LINES]:
        numbers = ", ".join(str(w.index) for w in warps)
        lanes = "" if warps[0].mask.all() else f", lanes {lanes_text(warps[0].mask)},"
        plural = "s" if len(warps) > 1 else ""
        verb = "wait" if len(warps) > 1 else "waits"
        notes.append(
            (
                f"warp{plural} {numbers}{lanes} of block {block} {verb} for {what}",
                spans[block, what, line],
            )
        )
    if len(groups) > MOST_LINES:
        notes.append((f"and {len(groups) - MOST_LINES} more", None))
    return tuple(notes)


def _wrong_bytes(homes: list[Home]) -> tuple[Op, str] | None:
    for home in homes:
        for barrier in home.mbarriers.values():
            if barrier.bytes_missing and not barrier.coming:
                return barrier.announced or barrier.made_by, bytes_message(barrier)
    return None


def bytes_message(barrier: Mbarrier) -> str:
    """What is wrong with the bytes of a phase, where nothing is under way any more."""
    missing = barrier.bytes_missing
    wrong = f"{missing} bytes never come" if missing > 0 else f"{-missing} bytes more come"
    return f"of the bytes announced for phase {barrier.number} of {barrier.name}, {wrong}"


def describe_livelock(launch: SimtLaunch, spinning: list[Warp]) -> Diagnosis:
    """The diagnosis when warps look at memory for ever and nobody changes it."""
    notes = tuple((f"{w.name} loops", None) for w in spinning[:MOST_LINES])
    step = spinning[0].step
    return Diagnosis(
        "progress.livelock",
        "all who are left look at memory again and again, and nobody changes it",
        step.op.span if step is not None else launch.plan.kernel.span,
        'if another block is to change it, declare progress = "cooperative" on the kernel',
        notes,
        data={"blocks": [w.id for w in spinning]},
    )
