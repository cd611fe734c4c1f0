"""Operations that may block: waits for barriers, copies and products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reftile.interp.coroutines import Control, Wait
from reftile.interp.machine import Block
from reftile.interp.pipe.barriers import (
    Barriers,
    Meeting,
    Misuse,
    NamedBarrier,
    NamedBarriers,
    Rounds,
)
from reftile.interp.pipe.flights import Flight, Pending
from reftile.interp.pipe.machine import Agent
from reftile.interp.pipe.tokens import PipeToken, join_all, token_of
from reftile.interp.plan import Step
from reftile.ir.core import Op


def _finish(agent: Agent, step: Step[Block], *values: Any) -> None:
    for slot, value in zip(step.outputs, values, strict=True):
        agent.env[slot] = value
        if type(value) is PipeToken:
            agent.performed = agent.performed | value


def element_of(agent: Agent, elements: list[Any], index: Any, name: str, op: Op) -> int:
    """An index of an array of barriers, checked."""
    found = agent.integer(index, f"the index of `{op.name}`")
    if not 0 <= found < len(elements):
        agent.fault("pipe.slot", f"index {found} is outside %{name}, which has {len(elements)}")
    return found


# Barriers with phases


def _wait_barrier(agent: Agent, step: Step[Block]) -> Control:
    op = step.op
    barriers: Barriers = agent.env[step.inputs[0]]
    at = element_of(agent, barriers.elements, agent.env[step.inputs[1]], op.operands[0].name, op)
    parity = agent.integer(agent.env[step.inputs[2]], "the phase of `wait_barrier`") & 1
    element = barriers.elements[at]
    wanted = element.number - int(element.is_passed(parity))

    def what() -> str:
        name = f"%{barriers.value.name}[{at}]"
        return f"phase {wanted} of {name} ({element.state()})"

    wait = Wait(op, element.queue, what, barriers.value)
    while not element.is_passed(parity):
        yield wait
        if element.number > wanted + 1:
            agent.step = step
            agent.fault(
                "pipe.phase_missed",
                f"phase {wanted} of %{barriers.value.name}[{at}] is over and so is the one behind "
                "it: a waiter cannot tell them apart",
                hint="let those who arrive wait for this role before they go on",
            )
    token = element.completed
    element.waited()
    if op.attributes.get("order") == "relaxed":
        token = token.only_done()
    _finish(agent, step, token | agent.base)
    return None


# Named barriers, steps, clusters


def _sync_named(agent: Agent, step: Step[Block]) -> Control:
    op = step.op
    barriers: NamedBarriers = agent.env[step.inputs[0]]
    at = element_of(agent, barriers.elements, agent.env[step.inputs[1]], op.operands[0].name, op)
    barrier = barriers.elements[at]
    token = token_of(agent.env[step.inputs[2]]) | agent.base
    meeting = _come(agent, op, barrier, token)

    def what() -> str:
        there = ", ".join(a.label for a in meeting.members)
        return (
            f"meeting {meeting.number} at %{barriers.value.name}[{at}] ({meeting.present} of "
            f"{barrier.threads} threads are there: {there})"
        )

    wait = Wait(op, barrier.queue, what, barriers.value)
    while not meeting.is_over:
        yield wait
    _finish(agent, step, meeting.token | agent.base)
    return None


def _come(agent: Agent, op: Op, barrier: NamedBarrier, token: PipeToken) -> Meeting:
    try:
        return barrier.come(agent, agent.threads, token)
    except Misuse as misuse:
        agent.misuse(misuse, op)


def count_step(agent: Agent, op: Op, token: PipeToken) -> Control:
    """Execute one step of the block-wide barrier; what it hands over is in the block's `steps`."""
    rounds = agent.home.steps
    for member in agent.members:
        member.step_count += 1
        rounds.come(member.step_count, member.threads, token)
    number = max(member.step_count for member in agent.members)

    def what() -> str:
        late = [
            f"{a.label} {'ended' if a.is_done else 'is'} at step {a.step_count}"
            for a in agent.home.agents
            if a.step_count < number
        ]
        return f"step {number} of its block ({', '.join(late)})"

    wait = Wait(op, rounds.queue, what)
    while not rounds.is_over(number):
        yield wait
    return None


def _step(agent: Agent, step: Step[Block]) -> Control:
    token = token_of(agent.env[step.inputs[0]]) | agent.base
    yield from count_step(agent, step.op, token)
    number = max(member.step_count for member in agent.members)
    _finish(agent, step, agent.home.steps.tokens[number] | agent.base)
    return None


def _cluster_wait(agent: Agent, step: Step[Block]) -> Control:
    barrier, token = agent.home.cluster.barrier, agent.base
    for member in agent.members:
        member.cluster_waits += 1
        number = member.cluster_waits
        if member.cluster_arrivals < number:
            agent.fault(
                "pipe.cluster_order",
                f"wait {number} for the cluster comes before this thread's arrival {number}",
                hint="each thread does `cluster_arrive` before `cluster_wait`",
                op=step.op,
            )
        wait = Wait(step.op, barrier.queue, lambda n=number: _round(barrier, n))
        while not barrier.is_over(number):
            yield wait
        token = token | barrier.tokens[number]
    _finish(agent, step, token)
    return None


def _round(barrier: Rounds, number: int) -> str:
    present = barrier.present.get(number, 0)
    return f"round {number} of its cluster ({present} of {barrier.threads} threads have come)"


# Copies and products


def _wait_copies(agent: Agent, step: Step[Block]) -> Control:
    op = step.op
    groups = agent.copies(op.attributes["engine"])
    in_flight = op.attributes.get("in_flight", 0)
    assert isinstance(in_flight, int)
    free = op.attributes.get("until") == "source_free"
    for flight in groups.covered(in_flight, free):
        wait = _wait_for(op, flight)
        while not (flight.is_free if free else flight.is_done):
            yield wait
    _finish(agent, step, groups.settle(in_flight, free) | agent.base)
    return None


def _wait_for(op: Op, flight: Flight) -> Wait:
    return Wait(op, flight.queue, lambda: f"`{flight.op.name}` of line {flight.op.span.line}")


def _mma_wait(agent: Agent, step: Step[Block]) -> Control:
    op, products = step.op, agent.products
    in_flight = op.attributes.get("in_flight", 0)
    assert isinstance(in_flight, int)
    end = max(0, len(products) - in_flight)
    left = products[end:]
    pending: list[Pending] = [agent.env[s] for s in step.inputs]
    for value, operand in zip(pending, op.operands, strict=True):
        if value.flight in left:
            agent.fault(
                "pipe.mma_unfinished",
                f"%{operand.name} is among the {in_flight} products that stay in flight",
                hint="wait for fewer to remain, or take it later",
                op=op,
            )
    for flight in products[:end]:
        wait = _wait_for(op, flight)
        while not flight.is_done:
            yield wait
    agent.settled = join_all([agent.settled, *(f.token for f in products[:end])])
    del products[:end]
    _finish(agent, step, *(p.tile for p in pending), agent.settled | agent.base)
    return None


WAITS: Mapping[str, Callable[[Agent, Step[Block]], Control]] = {
    "wait_barrier": _wait_barrier,
    "sync_named": _sync_named,
    "step": _step,
    "cluster_wait": _cluster_wait,
    "wait_copies": _wait_copies,
    "mma_wait": _mma_wait,
}
"""The operations that may block."""
