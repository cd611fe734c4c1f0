"""What agents do to barriers without waiting: make them and arrive. Fences and tokens, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reftile.interp.coroutines import when_landed
from reftile.interp.machine import Block
from reftile.interp.pipe.actions import agent_of, home_of, note_reach, reached
from reftile.interp.pipe.barriers import Barriers, Misuse, NamedBarriers, Phases
from reftile.interp.pipe.flights import Landing
from reftile.interp.pipe.machine import Agent
from reftile.interp.pipe.tokens import NOTHING, PipeToken, join_all, sets, token_of
from reftile.interp.pipe.waits import element_of
from reftile.interp.plan import Apply, Maker, Plan
from reftile.ir.core import Op
from reftile.ir.types import BarrierType, NamedBarrierType


def _make_alloc_barrier(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, BarrierType)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        home = agent_of(block).home
        made = home.barriers[op.results[0]] = Barriers(op.results[0], type)
        return (made,)

    return apply


def _make_alloc_named(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, NamedBarrierType)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        home = agent_of(block).home
        made = home.named[op.results[0]] = NamedBarriers(op.results[0], type)
        return (made,)

    return apply


def _make_arrive(op: Op, plan: Plan[Block]) -> Apply[Block]:
    by, relaxed = op.attributes.get("by", "elected"), op.attributes.get("order") == "relaxed"
    bytes = op.attributes.get("bytes", 0)
    assert isinstance(bytes, int)
    everywhere = bool(op.attributes.get("everywhere"))
    after_copies = bool(op.attributes.get("after_copies"))
    name = op.operands[0].name

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        barriers, slot, rank, token = values
        agent = agent_of(block)
        at = element_of(agent, barriers.elements, slot, name, op)
        count = {"elected": 1, "warps": agent.warps, "threads": agent.threads}[str(by)]
        handed = token_of(token) | agent.base
        if relaxed:
            handed = handed.only_done()
        if after_copies:
            _arrive_after(agent, op, barriers.elements[at], count, handed)
            return ()
        homes = [reached(agent, h) for h in agent.home.cluster.homes] if everywhere else None
        for home in homes or [home_of(agent, rank, op)]:
            element = home.barriers[barriers.value].elements[at]
            note_reach(agent, op, element.reaches, home)
            element.arrive(op, count, bytes, handed)
        return ()

    return apply


def _arrive_after(agent: Agent, op: Op, element: Phases, count: int, token: PipeToken) -> None:
    """Arrive once the thread copies issued so far are done, and hand their writes over too."""
    groups = agent.thread_copies
    copies = [flight for group in (*groups.closed, groups.open) for flight in group]
    token = join_all([token, *(flight.token for flight in copies)])
    landings = [Landing(flight, agent.home.landings) for flight in copies if not flight.handed]
    agent.home.landings.update(landings)
    for flight in copies:
        flight.handed = True

    def arrive() -> None:
        element.landings.extend(landings)
        try:
            element.arrive(op, count, 0, token)
        except Misuse as misuse:
            agent.misuse(misuse, op)

    when_landed(copies, arrive)


def _make_arrive_named(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        barriers, index, token = values
        agent = agent_of(block)
        at = element_of(agent, barriers.elements, index, op.operands[0].name, op)
        barriers.elements[at].come(agent, agent.threads, token_of(token) | agent.base)
        return ()

    return apply


def _make_cluster_arrive(op: Op, plan: Plan[Block]) -> Apply[Block]:
    relaxed = op.attributes.get("order") == "relaxed"

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        agent = agent_of(block)
        token = token_of(values[0]) | agent.base
        handed = token.only_done() if relaxed else token
        for member in agent.members:
            member.cluster_arrivals += 1
            if member.cluster_arrivals > member.cluster_waits + 1:
                message = "a thread arrives twice without waiting in between"
                block.fault("pipe.cluster_order", message)
            barrier = member.home.cluster.barrier
            barrier.come(member.cluster_arrivals, member.threads, handed)
        return ()

    return apply


def _make_sync(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: (token_of(values[0]) | agent_of(block).base,)


def _make_fence(op: Op, plan: Plan[Block]) -> Apply[Block]:
    space = op.attributes.get("space", "shared")

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        agent, token = agent_of(block), token_of(values[0])
        shared = agent.pipe.pipe_order.shared
        seen = token.shown
        if space == "shared":
            seen &= shared.get(agent.home.id, 0)
        elif space == "global":
            for elsewhere in shared.values():
                seen &= ~elsewhere
        return (sets(token.done | seen, token.shown, token.fenced | seen) | agent.base,)

    return apply


def _make_token(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: (NOTHING,)


def _make_join(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: (join_all(token_of(v) for v in values),)


def _make_pass_token(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: (token_of(values[0]),)


ARRIVALS: dict[str, Maker[Block]] = {
    "alloc_barrier": _make_alloc_barrier,
    "alloc_named_barrier": _make_alloc_named,
    "arrive_barrier": _make_arrive,
    "arrive_named": _make_arrive_named,
    "cluster_arrive": _make_cluster_arrive,
    "sync": _make_sync,
    "fence_proxy": _make_fence,
    "make_token": _make_token,
    "join_tokens": _make_join,
    "memory_fence_alias_tko": _make_pass_token,
    "gdc_launch_dependents_tko": _make_pass_token,
    "gdc_wait_tko": _make_pass_token,
}
"""How to run each of these operations."""
