"""Products in flight: `mma_open` and `mma_start`; their wait is in `waits`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reftile.interp.machine import Block
from reftile.interp.pipe.actions import agent_of
from reftile.interp.pipe.flights import Flight, Pending
from reftile.interp.pipe.machine import Agent
from reftile.interp.pipe.places import Place, read_place, touch_place
from reftile.interp.pipe.tokens import PipeToken, token_of
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.values import Mask, Tile
from reftile.interp.vocabulary.matrix import dot, dot_int
from reftile.ir.core import Op
from reftile.ir.dtypes import DType
from reftile.ir.types import BufferType, PendingType, TileType


def _make_open(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, PendingType)
    empty = Tile(
        np.zeros(type.tile.shape, type.tile.dtype.carrier), np.ones(type.tile.shape, np.bool_)
    )
    return lambda block, values: (Pending(None, empty),)


def _make_start(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, PendingType)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        lhs, rhs, acc, accumulate, token = values
        agent = agent_of(block)
        keeps = acc is not None
        if accumulate is not None:
            keeps = bool(agent.scalar(accumulate, "branch", "`accumulate` of `mma_start`"))
        flight = Flight(agent, op)
        flight.token = flight.free_token = _touch_operands(agent, op, (lhs, rhs), token_of(token))
        result = Pending(flight, None)

        def multiply() -> None:
            start = acc.tile if isinstance(acc, Pending) else acc
            result.tile = _product(
                op, type.tile, _value(lhs), _value(rhs), start if keeps else None
            )

        flight.stages.append(multiply)
        _queue(agent, flight)
        return (result,)

    return apply


def _touch_operands(
    agent: Agent, op: Op, operands: Sequence[Place | Tile], token: PipeToken
) -> PipeToken:
    """Record that a product reads its operands in shared memory; give the token of its wait."""
    order = agent.pipe.pipe_order
    for place in operands:
        if isinstance(place, Place):
            read = order.record(agent, op, token, True, False, is_async=True, in_flight=True)
            touch_place(order, read, place)
            token = token | order.completed(read)
    return token | agent.base


def _queue(agent: Agent, flight: Flight) -> None:
    """Products of one role run one behind another."""
    last = agent.newest
    agent.newest = flight
    agent.products.append(flight)
    if last is None or last.is_done:
        agent.pipe.fly(flight)
    else:
        last.next = flight


def _value(operand: Place | Tile) -> Tile:
    return read_place(operand) if isinstance(operand, Place) else operand


def _product(op: Op, type: TileType, lhs: Tile, rhs: Tile, acc: Tile | None) -> Tile:
    """Multiply and add, with the numbers of `mmaf` and `mmai`."""
    start = np.zeros((), type.dtype.carrier) if acc is None else acc.data
    if type.dtype.is_int:
        left, right = (op.attributes.get(f"signedness_{side}") for side in ("lhs", "rhs"))
        element = _element(op)
        data = dot_int(lhs.data, rhs.data, start, element, str(left), str(right))
    else:
        data = dot(lhs.data, rhs.data, start, type.dtype)
    poison: Mask | None = None
    for bad in (
        None if lhs.poison is None else lhs.poison.any(axis=1, keepdims=True),
        None if rhs.poison is None else rhs.poison.any(axis=0, keepdims=True),
        None if acc is None else acc.poison,
    ):
        if bad is not None:
            poison = np.asarray(bad if poison is None else poison | bad)
    if poison is None or not poison.any():
        return Tile(data)
    return Tile(data, np.broadcast_to(poison, type.shape))


def _element(op: Op) -> DType:
    type = op.operands[0].type
    assert isinstance(type, TileType | BufferType)
    return type.dtype


PRODUCTS: dict[str, Maker[Block]] = {"mma_open": _make_open, "mma_start": _make_start}
"""How to start a product."""
