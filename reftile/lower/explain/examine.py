"""Find out what a `pipe` kernel becomes: the program gives the decisions, the PTX what they cost.

Every instruction of the PTX is attributed to the operation that it was printed for, by the place in
the source that both carry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reftile.ir import ops
from reftile.ir.buffer_layout import buffer_alignment, buffer_bytes, place_bytes
from reftile.ir.core import Kernel, Op, Value
from reftile.ir.diagnostics import Span, fail
from reftile.ir.pipe_rules import REGISTERS
from reftile.ir.targets import TARGETS
from reftile.ir.types import (
    BarrierType,
    BufferType,
    NamedBarrierType,
    PendingType,
    RingType,
    TileType,
    Type,
)
from reftile.ir.verify import verify
from reftile.layout.linear import LayoutError
from reftile.lower.explain.facts import Explanation, Meeting, Place, Ring, Role, Shared, Step
from reftile.lower.explain.occupancy import occupancy
from reftile.lower.host import TensorMapParameter
from reftile.lower.lower_copies import boxes_of
from reftile.lower.pipeline import Lowered, lower_copy
from reftile.lower.ptx.assemble import Report, assemble, find_ptxas
from reftile.lower.ptx.emit import instructions_of

Instructions = Mapping[tuple[str, int, int], "Counter[str]"]
_COPIES = (
    "copy_in copy_out load_buffer store_buffer load_view_tko store_view_tko load_ptr_tko "
    "store_ptr_tko atomic_rmw_tko atomic_cas_tko atomic_inc_wrap_tko prefetch_view"
).split()
_COUNTERS = ("atomic_inc_wrap_tko",)
_PRODUCTS = ("mma_start", "mmaf", "mmai")
_MOVES = re.compile(r"(cp|prefetch|red|atom|ldmatrix|stmatrix|(ld|st)\.(global|shared))\b")
_MULTIPLIES = re.compile(r"(wgmma\.mma_async|mma\.sync)")


def explain_kernel(kernel: Kernel) -> Explanation:
    """Explain a kernel; ptxas is asked for registers and spills where it is installed.

    Raises:
        ReftileError: the kernel is wrong, or not of the level `pipe`.
    """
    if kernel.level != "pipe":
        raise fail(
            "explain.level",
            f"`{kernel.name}` is a {kernel.level} kernel, and pipe kernels are explained",
            kernel.span,
            "a tile kernel says nothing of engines and stages yet: no pass decides them",
        )
    verify(kernel)
    found, lowered = explain(kernel)
    if lowered is None or find_ptxas() is None:
        return found
    _, report = assemble(lowered.ptx, found.target, allow_spills=1 << 20)
    return explain(kernel, report)[0]


def explain(kernel: Kernel, assembly: Report | None = None) -> tuple[Explanation, Lowered | None]:
    """Explain a verified `pipe` kernel; the kernel is left as it is.

    assembly: what an assembler said of it, if one was asked. Also returns what it was lowered to,
    or None if nothing lowers for its target.
    """
    target = str(kernel.attributes["target"])
    lowered: Lowered | None = None
    instructions: Instructions = {}
    if target.startswith("sm_"):
        lowered = lower_copy(kernel, target)
        instructions = _by_place(lowered.passes.kernel)
    warps = kernel.attributes["warps"]
    assert isinstance(warps, int)
    cluster = kernel.attributes.get("cluster", (1, 1, 1))
    assert isinstance(cluster, tuple)
    roles = _roles(kernel, warps)
    shared, total = _shared(kernel)
    registers, source = _registers(warps, roles, assembly)
    found = Explanation(
        kernel=kernel.name,
        target=target,
        warps=warps,
        cluster=tuple(int(str(c)) for c in cluster),
        steps=tuple(_steps(kernel, instructions)),
        rings=tuple(_rings(kernel)),
        roles=roles,
        barriers=tuple(_meetings(kernel)),
        shared=shared,
        shared_bytes=total,
        shared_limit=TARGETS[target].shared_bytes,
        registers=registers,
        registers_from=source,
        spill_bytes=None if assembly is None else assembly.spill_bytes,
        occupancy=occupancy(target, warps, total, registers),
        blocks=None,
        launch=(),
        conditions=tuple(_conditions(lowered)) if lowered is not None else (),
        place=Place.of(kernel.span),
    )
    blocks = min((limit.blocks for limit in found.occupancy), default=None)
    return replace(found, blocks=blocks, launch=tuple(_launch(kernel, found, blocks))), lowered


def _key(span: Span) -> tuple[str, int, int]:
    return span.source.name, span.start, span.end


def _by_place(kernel: Kernel) -> Instructions:
    found: dict[tuple[str, int, int], Counter[str]] = {}
    for op, lines in instructions_of(kernel):
        counter = found.setdefault(_key(op.span), Counter())
        for line in lines:
            words = line.split()
            word = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
            if not word.endswith(":"):
                counter[word.rstrip(";")] += 1
    return found


# Copies and products


def _steps(kernel: Kernel, instructions: Instructions) -> list[Step]:
    found: list[Step] = []
    for op in kernel.walk():
        counted = instructions.get(_key(op.span), Counter[str]())
        if op.name in _COPIES:
            found.append(_copy(op, _kept(counted, _MOVES)))
        elif op.name in _PRODUCTS:
            found.append(_product(op, _kept(counted, _MULTIPLIES)))
    return found


def _kept(counted: Counter[str], which: re.Pattern[str]) -> tuple[tuple[str, int], ...]:
    return tuple((name, count) for name, count in counted.items() if which.match(name))


def _role_of(op: Op) -> str:
    around: Op | None = op
    while around is not None:
        if isinstance(around, ops.Role):
            return around.label
        block = around.parent
        owner = block.parent.parent if block is not None and block.parent is not None else None
        around = owner if isinstance(owner, Op) else None
    return "all warps"


def _is_elected(op: Op) -> bool:
    around: Op | None = op
    while around is not None:
        if isinstance(around, ops.Elected):
            return True
        block = around.parent
        owner = block.parent.parent if block is not None and block.parent is not None else None
        around = owner if isinstance(owner, Op) else None
    return False


def _tile_bytes(kind: Type) -> int:
    if isinstance(kind, BufferType):
        return buffer_bytes(kind)
    if isinstance(kind, TileType):
        return kind.size * getattr(kind.element, "bits", 64) // 8
    return 0


def _copy(op: Op, instructions: tuple[tuple[str, int], ...]) -> Step:
    names = [name for name, _ in instructions]
    kinds = [v.type for v in (*op.operands, *op.results)]
    moved = next((k for k in kinds if isinstance(k, BufferType)), None)
    moved = moved or next((k for k in kinds if isinstance(k, TileType) and k.shape), kinds[0])
    if op.name == "copy_out" or op.attributes.get("engine") == "bulk":
        engine, reason = "bulk copy engine (TMA)", _bulk_reason(op, moved)
    elif op.name == "copy_in":
        engine = "threads, asynchronously"
        reason = "`engine = thread`: each thread of the role copies a part; groups end in order"
    else:
        engine, reason = "threads", _thread_reason(op, names)
    return Step(
        "copy",
        op.name,
        _what(op),
        _role_of(op),
        engine,
        _tile_bytes(moved),
        instructions,
        reason,
        Place.of(op.span),
    )


def _what(op: Op) -> str:
    """From where to where."""
    by_port = dict(zip((p.name for p in op.definition.operands), op.arguments, strict=False))

    def name(*ports: str) -> str:
        found = next((by_port[p] for p in ports if isinstance(by_port.get(p), Value)), None)
        if not isinstance(found, Value):
            return ""
        return f"%{found.name}" if found.name else "a tile"

    source = name("view", "source") if op.name != "copy_out" else name("source")
    target = name("destination") if op.name != "copy_out" else name("view", "destination")
    if op.name.startswith("store"):
        source, target = name("tile", "value"), name("destination", "view", "pointer")
    elif op.name.startswith("load"):
        source = name("source", "view", "pointer")
    if not target and op.results:
        target = f"%{op.results[0].name}"
    return f"{source} -> {target}" if source and target else source or target


def _bulk_reason(op: Op, moved: Type) -> str:
    parts = ["`engine = bulk`: one thread starts it"] if op.name == "copy_in" else ["always bulk"]
    if isinstance(moved, BufferType):
        try:
            boxes = boxes_of(moved)
        except LayoutError:
            pass
        else:
            box = "x".join(map(str, reversed(boxes.extents)))
            pattern = f" with the {boxes.span}-byte pattern" if boxes.span > 16 else ""
            parts.append(f"{len(boxes.boxes)} box(es) of {box} elements{pattern}")
    if isinstance(op, ops.CopyIn):
        if op.barrier is not None:
            parts.append(f"its bytes arrive on %{op.barrier.name}")
        if op.multicast is not None:
            parts.append(f"every block of the mask %{op.multicast.name} receives it")
    else:
        parts.append("complete in groups of the thread that started it")
    return "; ".join(parts)


def _thread_reason(op: Op, names: Sequence[str]) -> str:
    if any(n.startswith(("ldmatrix", "stmatrix")) for n in names):
        return "the tile is a fragment of a product, whose 8x8 parts matrix instructions move"
    widest = max((int(m[1]) for n in names if (m := re.search(r"\.v(\d)", n))), default=1)
    if op.name.startswith("atomic"):
        return "atomics are done where the memory is"
    if not names:
        return "no instruction is known"
    inside = "inside `elected`, one thread" if _is_elected(op) else "each thread"
    return f"{inside} moves its own elements, {widest} register(s) at a time"


def _product(op: Op, instructions: tuple[tuple[str, int], ...]) -> Step:
    lhs, rhs = op.operands[0].type, op.operands[1].type
    result = op.results[0].type
    tile = result.tile if isinstance(result, PendingType) else result
    assert isinstance(tile, TileType)
    assert isinstance(rhs, (TileType, BufferType))
    element = rhs.dtype.name
    shape = "x".join(map(str, (*tile.shape, rhs.shape[-2])))
    count = sum(n for _, n in instructions)
    if isinstance(result, PendingType):
        engine = "tensor cores, asynchronously (wgmma)"
        left = "registers" if isinstance(lhs, TileType) else "shared memory"
        reason = (
            f"a role of 4 warps on sm_90a; A from {left}, B from shared memory"
            f"{' (transposed in place)' if '.t' in str(rhs) else ''}; {count} instruction(s), each "
            f"64 rows by 32 bytes of k; in flight until `mma_wait`"
        )
    else:
        engine = "matrix cores, synchronously"
        reason = f"both operands are in registers; {count} instruction(s) for each warp"
        if not count:
            reason = "both operands are in registers; no instruction is known"
    what = f"{shape} {element} into {tile.element}"
    return Step(
        "product", op.name, what, _role_of(op), engine, 0, instructions, reason, Place.of(op.span)
    )


# Places


def _rings(kernel: Kernel) -> list[Ring]:
    found: list[Ring] = []
    for op in kernel.body.block.ops:
        kind = op.results[0].type if op.results else None
        if op.name == "alloc_ring" and isinstance(kind, RingType):
            each = place_bytes(kind) // kind.stages
            ring = Ring(op.results[0].name, kind.stages, str(kind.buffer), each, Place.of(op.span))
            found.append(ring)
    return found


def _shared(kernel: Kernel) -> tuple[tuple[Shared, ...], int]:
    """Allocations in textual order at their alignments, barriers behind (spec/pipe.md)."""
    rows: list[Shared] = []
    total = 0
    behind: list[Op] = []
    for op in kernel.body.block.ops:
        kind = op.results[0].type if op.results else None
        if isinstance(kind, BarrierType):
            behind.append(op)
        elif op.name in ("alloc_ring", "alloc_buffer") and isinstance(kind, (RingType, BufferType)):
            align = buffer_alignment(kind.buffer if isinstance(kind, RingType) else kind)
            padding = -total % align
            count = kind.stages if isinstance(kind, RingType) else 1
            each = place_bytes(kind) // count
            name, place = op.results[0].name, Place.of(op.span)
            rows.append(Shared(name, total + padding, count, each, padding, place))
            total += padding + count * each
    for op in behind:
        kind = op.results[0].type
        assert isinstance(kind, BarrierType)
        padding = -total % 8
        name = op.results[0].name
        rows.append(Shared(name, total + padding, kind.count, 8, padding, Place.of(op.span)))
        total += padding + 8 * kind.count
    return tuple(rows), total


# Roles and barriers


def _roles(kernel: Kernel, warps: int) -> tuple[Role, ...]:
    found: list[Role] = []
    first = 0
    for op in kernel.body.block.ops:
        if isinstance(op, ops.Role):
            role = Role(op.label, first, op.warps, op.replicas, op.registers, Place.of(op.span))
            found.append(role)
            first += op.warps * op.replicas
    return tuple(found) or (Role("all warps", 0, warps, 1, None, Place.of(kernel.span)),)


def _registers(warps: int, roles: Sequence[Role], assembly: Report | None) -> tuple[int, str]:
    if assembly is not None:
        return assembly.registers, "the assembler"
    if any(role.registers for role in roles):
        entry = min(255, REGISTERS // (32 * warps)) // 8 * 8
        return entry, f"{REGISTERS} / {32 * warps} threads, in eights, since roles have budgets"
    return 0, "known once it is assembled"


def _meetings(kernel: Kernel) -> list[Meeting]:
    found: list[Meeting] = []
    for op in kernel.body.block.ops:
        kind = op.results[0].type if op.results else None
        if not isinstance(kind, (BarrierType, NamedBarrierType)):
            continue
        value = op.results[0]
        uses: dict[str, set[str]] = {}
        for user in kernel.walk():
            if user is not op and user.operands and value in user.operands:
                verb = {
                    "wait_barrier": "waits",
                    "arrive_barrier": "arrives",
                    "copy_in": "brings bytes",
                    "sync_named": "meets",
                    "arrive_named": "arrives",
                }.get(user.name, user.name)
                uses.setdefault(_role_of(user), set()).add(verb)
        who = "; ".join(f"{role} {' and '.join(sorted(verbs))}" for role, verbs in uses.items())
        if isinstance(kind, BarrierType):
            scope = " of the cluster" if kind.scope == "cluster" else ""
            text = f"mbarrier, {kind.arrivals} arrival(s) a phase{scope}"
        else:
            text = f"named barrier of {kind.threads} threads"
        found.append(Meeting(value.name, kind.count, text, who, Place.of(op.span)))
    return found


# The launch


def _launch(kernel: Kernel, found: Explanation, blocks: int | None) -> list[str]:
    threads = TARGETS[found.target].lanes * found.warps
    said = [f"blocks of {threads} threads"]
    if not found.target.startswith("sm_"):
        said.append(f"nothing lowers for {found.target} yet, so that no instruction is known")
    if any(c > 1 for c in found.cluster):
        extents = "x".join(map(str, found.cluster))
        said.append(f"clusters of {extents} blocks: the grid is a multiple of that")
    loop = next((op for op in kernel.walk() if _is_persistent(op)), None)
    if loop is not None:
        fits = f", {blocks} for each multiprocessor" if blocks else ""
        said.append(
            f"persistent ({Place.of(loop.span)}): block i takes tiles i, i + blocks, ...; launch "
            f"as many blocks as run at a time{fits}"
        )
    elif (counter := next((o for o in kernel.walk() if o.name in _COUNTERS), None)) is not None:
        said.append(f"persistent ({Place.of(counter.span)}): blocks take tiles off a counter")
    else:
        used = _used_axes(kernel)
        said.append(f"one block for each index along {', '.join(used) or 'no axis'}")
    said.append("the order of tiles is that in which the program numbers them")
    return said


def _is_persistent(op: Op) -> bool:
    if not isinstance(op, ops.For):
        return False
    return isinstance(op.step.owner, ops.GetNumTileBlocks)


def _used_axes(kernel: Kernel) -> list[str]:
    used = {v for op in kernel.walk() for v in op.operands}
    for op in kernel.walk():
        if isinstance(op, ops.GetTileBlockId):
            return [axis for axis, v in zip("xyz", op.results, strict=True) if v in used]
    return []


def _conditions(lowered: Lowered) -> list[str]:
    said = [why for _, why in lowered.host.requirements]
    for parameter in lowered.host.parameters:
        if isinstance(parameter, TensorMapParameter):
            strides = ", ".join(parameter.strides)
            multiples = f" and its strides ({strides}) bytes" if strides else ""
            said.append(f"the address of `{parameter.base}`{multiples} are multiples of 16")
    return list(dict.fromkeys(said))
