"""A launch of a `simt` kernel: its arguments, its clusters, and what must hold when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from reftile.interp.arguments import bind_arguments
from reftile.interp.coroutines import Runner, run
from reftile.interp.machine import Block
from reftile.interp.memory import STORED_POISON, Buffer, Memory
from reftile.interp.plan import Maker, Plan, make_plan
from reftile.interp.schedule import Schedule
from reftile.interp.simt.actions import ACTIONS, make_elementwise
from reftile.interp.simt.barriers import BARRIERS
from reftile.interp.simt.bulk import BULK, TensorMap
from reftile.interp.simt.clocks import LANES, Agents
from reftile.interp.simt.control import CONTROLS, run_region
from reftile.interp.simt.deadlock import bytes_message, describe_deadlock, describe_livelock
from reftile.interp.simt.fragments import tile_type
from reftile.interp.simt.machine import Cluster, Flight, Home, SimtLaunch, Warp
from reftile.interp.simt.products import PRODUCTS, Issued, watched_slots
from reftile.interp.simt.shared import SHARED
from reftile.ir.core import Block as IRBlock
from reftile.ir.core import Kernel, Op, Region, Value
from reftile.ir.define import Definition
from reftile.ir.diagnostics import NOWHERE, Diagnosis, ReftileError, Span
from reftile.ir.dtypes import DTYPES
from reftile.ir.expressions import compile_expression, evaluate
from reftile.ir.type_text import parse_type
from reftile.ir.types import PointerType, TensorMapType, TileType

Index3 = tuple[int, int, int]
Progress = Callable[[int, int], None]
REGISTER_FILE = 65536
"""Registers of a multiprocessor. Source: CUDA programming guide, compute capabilities."""


@dataclass(frozen=True, slots=True)
class BankConflicts:
    """What one operation's accesses to shared memory took, over all warps of a launch.

    accesses: warp instructions. passes: through shared memory; ideal: had no two lanes met in a
    bank.
    """

    span: Span
    op: str
    accesses: int
    passes: int
    ideal: int

    @property
    def extra(self) -> int:
        """The passes that conflicts cost."""
        return self.passes - self.ideal


# Before the launch


def _makers(kernel: Kernel) -> Mapping[str, Maker[Block]]:
    found: dict[str, Maker[Block]] = {**ACTIONS, **BARRIERS, **SHARED, **BULK, **PRODUCTS}
    for op in kernel.walk():
        if op.name in CONTROLS:
            found.setdefault(op.name, _unreached)
        elif op.name not in found and _is_elementwise(op.definition):
            found[op.name] = make_elementwise
    return found


def _is_elementwise(definition: Definition) -> bool:
    return definition.poison in ("elementwise", "select") and bool(definition.meaning)


def _unreached(op: Op, plan: Plan[Block]) -> Callable[[Block, list[Any]], Sequence[Any]]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        raise NotImplementedError(op.name)

    return apply


def signature(kernel: Kernel) -> Kernel:
    """A kernel with the arguments that a caller gives: those of the kernel it was lowered from.

    The attribute `arguments` has them as "name: type"; without it they are the parameters.
    """
    texts = kernel.attributes.get("arguments")
    if not isinstance(texts, tuple):
        return kernel
    names: list[str] = []
    types: list[Any] = []
    for text in texts:
        name, _, type = str(text).partition(": ")
        names.append(name)
        types.append(parse_type(type))
    block = IRBlock(tuple(types), tuple(names))
    attributes = {
        value.name: given
        for value, given in zip(kernel.arguments, kernel.argument_attributes, strict=True)
    }
    given = tuple(attributes.get(name, {}) for name in names)
    return Kernel(kernel.name, Region(block), "simt", given, {}, kernel.span)


def launch_simt(kernel: Kernel, grid: Index3, memory: Memory, checks: bool) -> SimtLaunch:
    """Make a launch of a verified kernel ready; `checks`: look for races."""
    plan = make_plan(kernel, _makers(kernel), shares=False)
    cluster, warps = _cluster_of(kernel), kernel.attributes["warps"]
    shared = kernel.attributes.get("shared_bytes", 0)
    assert isinstance(warps, int) and isinstance(shared, int)
    return SimtLaunch(
        plan,
        grid,
        memory,
        agents=Agents(prod(cluster), warps),
        cluster_extents=cluster,
        warps=warps,
        shared_bytes=shared,
        checks=checks,
        cell_bytes=_cell_bytes(kernel),
        first_threads={n: n * LANES for n in range(prod(cluster) * warps)},
    )


def _cluster_of(kernel: Kernel) -> Index3:
    found = kernel.attributes.get("cluster", ())
    sizes = [e for e in found if isinstance(e, int)] if isinstance(found, tuple) else []
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def _cell_bytes(kernel: Kernel) -> tuple[int, int]:
    """The bytes that all accesses to shared, and to global, memory are multiples of."""
    shared, wide = 16, 16
    for op in kernel.walk():
        match op.name:
            case "load_shared":
                shared = gcd(shared, tile_type(op.results[0].type).dtype.storage.itemsize)
            case "store_shared":
                shared = gcd(shared, tile_type(op.operands[0].type).dtype.storage.itemsize)
            case "store_vector" | "load_vector":
                kind = tile_type((*op.results, *op.operands)[0].type)
                size = kind.dtype.storage.itemsize * _integer(op, "count")
                shared, wide = (
                    (gcd(shared, size), wide)
                    if op.attributes["space"] != "global"
                    else (shared, gcd(wide, size))
                )
            case "copy_async":
                shared, wide = gcd(shared, _integer(op, "bytes")), gcd(wide, _integer(op, "bytes"))
            case _:
                pass
    for given in kernel.argument_attributes:
        if "element" in given:
            wide = gcd(wide, DTYPES[str(given["element"])].storage.itemsize)
    return shared, wide


def _integer(op: Op, name: str) -> int:
    found = op.attributes[name]
    assert isinstance(found, int)
    return found


# Arguments


def _bind(launch: SimtLaunch, kernel: Kernel, args: Sequence[Any]) -> list[Any]:
    """Values of the parameters, from the arguments of a caller."""
    asked = signature(kernel)
    values = bind_arguments(asked, args, launch.memory)
    by_name = {a.name: v for a, v in zip(asked.arguments, values, strict=True)}
    numbers = {n: int(v.data) for n, v in by_name.items() if _is_number(asked, n)}
    _check_requirements(kernel, numbers)
    found: list[Any] = []
    for value, given in zip(kernel.arguments, kernel.argument_attributes, strict=True):
        if isinstance(value.type, TensorMapType):
            found.append(_tensor_map(launch, value, dict(given), numbers))
        else:
            found.append(by_name[value.name])
    _note_written(launch, kernel, by_name)
    return found


def _is_number(kernel: Kernel, name: str) -> bool:
    type = next(a.type for a in kernel.arguments if a.name == name)
    return isinstance(type, TileType) and (
        isinstance(type.element, PointerType) or type.dtype.is_int
    )


def _check_requirements(kernel: Kernel, numbers: Mapping[str, int]) -> None:
    texts = kernel.attributes.get("requirements", ())
    assert isinstance(texts, tuple)
    for text in texts:
        condition, _, why = str(text).partition(": ")
        if not evaluate(compile_expression(condition), numbers):
            message = why.format_map({k: str(v) for k, v in numbers.items()})
            raise ReftileError(Diagnosis("launch.requirement", message, kernel.span))


_FILLS = {"f16": 0x7FF7, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "tf32": 0x7FFFFFFF, "f64": -1}
"""What NaN filling writes. Source: as an H200 fills boxes, seen there."""


def _tensor_map(
    launch: SimtLaunch, value: Value, given: dict[str, Any], numbers: Mapping[str, int]
) -> TensorMap:
    dtype = DTYPES[str(given["element"])]

    def each(name: str) -> tuple[int, ...]:
        texts: tuple[Any, ...] = given[name]
        return tuple(int(evaluate(compile_expression(str(t)), numbers)) for t in texts)  # type: ignore[arg-type]

    base = numbers[str(given["base"])]
    extents, strides = each("extents"), (dtype.storage.itemsize, *each("strides"))
    size = sum((e - 1) * s for e, s in zip(extents, strides, strict=True)) + strides[0]
    buffer = launch.memory.find(base, size)
    wrong = [s for s in strides[1:] if s % 16]
    if buffer is None or wrong or base % 16:
        why = (
            f"%{given['base']} is smaller than the {size} bytes that {value.name} describes"
            if buffer is None
            else f"%{given['base']} and its strides {strides[1:]} must be multiples of 16 bytes"
        )
        raise ReftileError(Diagnosis("launch.tensor_map", why, launch.plan.kernel.span))
    fill = _FILLS.get(dtype.name, 0) if given["fill"] == "nan" else 0
    return TensorMap(
        value.name,
        buffer,
        base - buffer.address,
        dtype,
        extents,
        strides,
        tuple(int(b) for b in given["box"]),
        int(given["swizzle"]),
        fill,
    )


def _note_written(launch: SimtLaunch, kernel: Kernel, by_name: Mapping[str, Any]) -> None:
    """The buffers that the kernel's stores may reach."""
    roots: set[Value] = set()
    names: set[str] = set()
    described = dict(zip(kernel.arguments, kernel.argument_attributes, strict=True))
    for op in kernel.walk():
        if op.name == "store_tensor":
            names.add(str(described[op.operands[0]]["base"]))
        elif op.name == "store_vector" and op.attributes["space"] == "global":
            roots |= _roots(op.operands[1])
    names |= {v.name for v in roots if v in described}
    for name in names:
        buffer = launch.memory.nearest(int(by_name[name].data))
        if buffer is not None:
            launch.written.add(buffer)


def _roots(value: Value) -> set[Value]:
    """The arguments from which an address is computed."""
    seen: set[Value] = set()
    left = [value]
    while left:
        current = left.pop()
        if current in seen:
            continue
        seen.add(current)
        if isinstance(current.owner, Op):
            left.extend(current.owner.operands)
            left.extend(v for r in current.owner.regions for v in r.block.ops[-1].operands)
        elif current.owner is not None and current.owner.parent is not None:
            owner = current.owner.parent.parent
            if isinstance(owner, Op):
                left.extend(owner.operands)
                left.extend(v for o in owner.walk() if o.name == "continue" for v in o.operands)
    return seen


# The launch


def run_simt(
    launch: SimtLaunch,
    args: Sequence[Any],
    schedule: Schedule,
    seed: int,
    progress: Progress | None,
) -> tuple[BankConflicts, ...]:
    """Run all blocks under a schedule, then look at what the host will see.

    Raises:
        ReftileError: a rule is broken.
    """
    kernel = launch.plan.kernel
    for slot, value in zip(launch.plan.body.arguments, _bind(launch, kernel, args), strict=True):
        launch.plan.template[slot] = value
    if any(g % c for g, c in zip(launch.grid, launch.cluster_extents, strict=True)):
        message = (
            f"the grid {list(launch.grid)} is no multiple of the cluster "
            f"{list(launch.cluster_extents)}"
        )
        raise ReftileError(Diagnosis("launch.grid", message, kernel.span))
    clusters = _clusters(launch)

    def ended(warp: Warp) -> None:
        warp.is_done = True
        _check_warp(warp)
        home = warp.home
        if not all(w.is_done for w in home.warps):
            return
        _check_exit(home)
        launch.done += 1
        home.ended = True
        for done in home.warps:
            done.env = []
        if progress is not None:
            progress(launch.done, launch.block_count)

    runner: Runner[Warp, Flight] = Runner(
        launch,
        lambda: next(clusters, None),
        ended,
        lambda live: describe_deadlock(launch, live),
        lambda spinning: describe_livelock(launch, spinning),
    )
    run(runner, schedule, seed)
    for buffer in launch.memory.buffers:
        if buffer.visible and buffer.state is not None:
            _check_output(buffer)
    return tuple(
        BankConflicts(op.span, op.name, *counts) for op, counts in launch.conflicts.items()
    )


def _clusters(launch: SimtLaunch) -> Iterator[list[Warp]]:
    """Make the warps of one cluster after another, the first axis fastest."""
    kernel, extents = launch.plan.kernel, launch.cluster_extents
    counts = [g // c for g, c in zip(launch.grid, extents, strict=True)]
    inner = [range(e) for e in reversed(extents)]
    entry = min(255, REGISTER_FILE // (LANES * launch.warps)) // 8 * 8
    watched = watched_slots(launch.plan, list(kernel.walk()))
    for at in product(*(range(n) for n in reversed(counts))):
        cluster = Cluster(launch, [])
        warps: list[Warp] = []
        for rank, within in enumerate(product(*inner)):
            z, y, x = (a * e + w for a, e, w in zip(at, reversed(extents), within, strict=True))
            linear = (z * launch.grid[1] + y) * launch.grid[0] + x
            home = Home(launch, cluster, linear, rank, (x, y, z))
            home.free_registers = REGISTER_FILE - entry * LANES * launch.warps
            cluster.homes.append(home)
            for index in range(launch.warps):
                warp = Warp(home, index, list(launch.plan.template))
                warp.registers = entry
                warp.stamps = dict.fromkeys(watched, -1)
                warp.coroutine = run_region(warp, launch.plan.body)
                home.warps.append(warp)
                warps.append(warp)
        yield warps


# What must hold when a warp and a block end


def _check_warp(warp: Warp) -> None:
    issued: Issued | None = warp.products
    if issued is not None:
        products = [p for group, _ in issued.groups for p in group] + issued.open
        if products:
            message = "the warp ends, and nobody has waited for this product"
            _raise("simt.exit", message, warp.home, products[0].op, "end with `wait_products`")
    for groups in warp.bulk.values():
        for store in (*(s for g in groups.closed[groups.freed :] for s in g), *groups.open):
            message = "the warp ends, and has not waited until this copy has read its source"
            hint = "end with `wait_bulk {until = source_free}`"
            _raise("simt.exit", message, warp.home, store.flight.op, hint)


def _check_exit(home: Home) -> None:
    for flight, hint in home.landings.items():
        message = f"the block ends, and nobody has waited for this `{flight.op.name}`"
        _raise("simt.exit", message, home, flight.op, hint)
    for barrier in home.mbarriers.values():
        if barrier.bytes_missing and barrier.announced is not None:
            _raise("simt.transaction_bytes", bytes_message(barrier), home, barrier.announced, "")
    passed = max((int(w.cluster_waits.max()) for w in home.warps), default=0)
    for warp, op, round in home.reaches:
        if round > passed:
            message = f"block {home.name} ends without waiting for this `{op.name}` of {warp.name}"
            _raise(
                "simt.exit", message, home, op, "meet at the end: `arrive_cluster`, `wait_cluster`"
            )


def _raise(rule: str, message: str, home: Home, op: Op, hint: str) -> None:
    notes = ((f"in block {home.name}", None),)
    raise ReftileError(Diagnosis(rule, message, op.span, hint, notes, data={"block": home.id}))


def _check_output(buffer: Buffer) -> None:
    """Poison that was stored must not be left where the host looks."""
    assert buffer.state is not None
    bad = np.flatnonzero(buffer.state & STORED_POISON)
    if bad.size:
        offset = int(bad[0])
        raise ReftileError(
            Diagnosis(
                "poison.output",
                f"{buffer.element_at(offset)} is poison when the launch ends",
                NOWHERE,
                "stored here was memory that was never written, or an undefined result",
                data={"buffer": buffer.name, "address": buffer.address + offset},
            )
        )
