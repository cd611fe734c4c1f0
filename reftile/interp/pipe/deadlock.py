"""Deadlocks in words: who waits for what, who could let them go on, and what those do."""

from __future__ import annotations

from collections.abc import Iterable

from reftile.interp.pipe.barriers import Phases
from reftile.interp.pipe.machine import Agent, Home, PipeLaunch
from reftile.ir.core import Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis, Span

MOST_LINES = 12
"""Agents that a message lists at most."""

Notes = tuple[tuple[str, Span | None], ...]


def describe_deadlock(launch: PipeLaunch, live: list[Agent]) -> Diagnosis:
    """The diagnosis when nobody can go on: a wait graph, or the bytes that will never come."""
    homes = [agent.home for agent in live]
    waiting = [a for home in homes for a in _all_agents(home, live) if _is_blocked(a)]
    notes: list[tuple[str, Span | None]] = []
    for agent in waiting[:MOST_LINES]:
        assert agent.waiting is not None
        text = f"{agent.name} waits for {agent.waiting.what()}{_whom(launch.plan.kernel, agent)}"
        notes.append((text, agent.waiting.op.span))
    if len(waiting) > MOST_LINES:
        notes.append((f"and {len(waiting) - MOST_LINES} more", None))
    data: dict[str, object] = {
        "waiting": [{"role": a.label, "block": a.id, "line": _line(a)} for a in waiting]
    }
    wrong = _wrong_bytes(homes)
    if wrong is not None:
        op, message = wrong
        hint = "announce what the copies bring: each its buffer, a multicast to each block"
        return Diagnosis("pipe.transaction_bytes", message, op.span, hint, tuple(notes), data=data)
    first = waiting[0].waiting if waiting else None
    return Diagnosis(
        "pipe.deadlock",
        "nobody can go on: every role that is left waits",
        first.op.span if first is not None else launch.plan.kernel.span,
        "compare first phases (0 to drain a ring, 1 to fill it) and who arrives how often",
        tuple(notes),
        data=data,
    )


def _all_agents(home: Home, live: list[Agent]) -> Iterable[Agent]:
    yield from (a for a in live if a.home is home)
    yield from home.agents


def _is_blocked(agent: Agent) -> bool:
    wait = agent.waiting
    return not agent.is_done and wait is not None and wait.queue is not agent.home.joining


def _line(agent: Agent) -> int:
    return agent.waiting.op.span.line if agent.waiting is not None else 0


def _whom(kernel: Kernel, agent: Agent) -> str:
    """Who arrives on the barrier that an agent waits for, and what they do instead."""
    wait = agent.waiting
    if wait is None or wait.on is None:
        return ""
    labels = {_role_label(op) for op in kernel.walk() if _lets_go(op, wait.on)}
    found = [a for a in agent.home.agents if a.role in labels and a is not agent]
    texts = [f"{a.label} ({_doing(a)})" for a in found]
    return f"; who arrives there: {', '.join(texts) or 'nobody'}"


def _lets_go(op: Op, barrier: Value) -> bool:
    return op.name in ("arrive_barrier", "arrive_named", "sync_named", "copy_in") and any(
        operand is barrier for operand in op.operands
    )


def _role_label(op: Op) -> str:
    current = op
    while current.parent is not None and current.parent.parent is not None:
        owner = current.parent.parent.parent
        if not isinstance(owner, Op):
            break
        current = owner
    return str(current.attributes["label"]) if current.name == "role" else ""


def _doing(agent: Agent) -> str:
    if agent.is_done:
        return "has ended"
    return f"waits at line {_line(agent)}" if agent.waiting is not None else "goes on"


def _wrong_bytes(homes: list[Home]) -> tuple[Op, str] | None:
    """A phase whose arrivals are complete and whose bytes do not add up."""
    for home in homes:
        for barriers in home.barriers.values():
            for at, element in enumerate(barriers.elements):
                if element.bytes_missing and element.announced is not None:
                    return element.announced, bytes_message(barriers.value.name, at, element)
    return None


def bytes_message(name: str, at: int, element: Phases) -> str:
    """What is wrong with the bytes of a phase, where nothing is under way any more."""
    missing = element.bytes_missing
    wrong = f"{missing} bytes never come" if missing > 0 else f"{-missing} bytes more come"
    return f"of the bytes announced for phase {element.number} of %{name}[{at}], {wrong}"


def describe_livelock(launch: PipeLaunch, spinning: list[Agent]) -> Diagnosis:
    """The diagnosis when agents look at memory for ever and nobody changes it."""
    notes: list[tuple[str, Span | None]] = []
    for agent in spinning[:MOST_LINES]:
        found = launch.waits.get(agent.linear)
        if found is None:
            notes.append((f"{agent.name} loops", None))
        else:
            op, buffer, offset = found
            notes.append((f"{agent.name} waits for {buffer.element_at(offset)}", op.span))
    step = spinning[0].step
    return Diagnosis(
        "progress.livelock",
        "all who are left look at memory again and again, and nobody changes it",
        step.op.span if step is not None else launch.plan.kernel.span,
        'if another block is to change it, declare progress = "cooperative" on the kernel',
        tuple(notes),
        data={"blocks": [a.id for a in spinning]},
    )
