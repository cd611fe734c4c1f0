"""Rules of `pipe` kernels that no single record can state: sums, counts, uses, places in the text.

spec/pipe.md and its sister chapters define what is checked; each function checks one rule, or a few
that share what they look at. Where a number is not known before the program runs, the rule says
nothing: the interpreter counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TypeAlias

from reftile.ir.attributes import Dense
from reftile.ir.buffer_layout import buffer_alignment, place_bytes
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis
from reftile.ir.pipe_flight import check_flight
from reftile.ir.targets import TARGETS, instructions_of
from reftile.ir.types import (
    BarrierType,
    BufferType,
    NamedBarrierType,
    PendingType,
    RingType,
    TileType,
)

Report: TypeAlias = Callable[..., None]

REGISTERS = 65_536
"""32-bit registers of a multiprocessor of sm_80 and sm_90a."""

ALLOCATIONS = ("alloc_buffer", "alloc_ring", "alloc_barrier", "alloc_named_barrier")
COLLECTIVE = frozenset(
    "role elected if_rows mma_open mma_start mma_wait mmaf mmai sync sync_named arrive_named "
    "stagger step cluster_arrive cluster_wait".split()
)
REMOTE = frozenset({"arrive_barrier", "load_buffer", "store_buffer"})


def check_pipe(kernel: Kernel) -> list[Diagnosis]:
    """Return what is wrong with a `pipe` kernel whose operations fit their records."""
    findings: list[Diagnosis] = []

    def report(rule: str, message: str, at: Op | Kernel, hint: str = "") -> None:
        findings.append(Diagnosis(f"pipe.{rule}", message, at.span, hint))

    target = kernel.attributes.get("target")
    if target not in TARGETS:
        known = ", ".join(TARGETS)
        report("target", f"a pipe kernel names its target ({known}), found {target}", kernel)
        return findings
    survey = _Survey(kernel)
    for check in _CHECKS:
        check(survey, report)
    check_flight(kernel, report)
    return findings


class _Survey:
    """The operations of a kernel in textual order, and what stands around them, found once.

    role: the role that an operation stands in, None outside. elected: those inside `elected`.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.ops: list[Op] = []
        self.role: dict[Op, Op | None] = {}
        self.elected: set[Op] = set()
        self._block(kernel.body.block, None, is_elected=False)

    def _block(self, block: Block, role: Op | None, is_elected: bool) -> None:
        for op in block.ops:
            self.ops.append(op)
            self.role[op] = role
            if is_elected:
                self.elected.add(op)
            for region in op.regions:
                inner = op if op.name == "role" else role
                self._block(region.block, inner, is_elected or op.name == "elected")

    def named(self, *names: str) -> list[Op]:
        """The operations of these names."""
        return [op for op in self.ops if op.name in names]


def _roles(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.body.block.ops if op.name == "role"]


def _number(op: Op, name: str, default: int = 0) -> int:
    value = op.attributes.get(name, default)
    return value if isinstance(value, int) else default


def _operand(op: Op, name: str) -> Value | None:
    """The operand at the port `name`, None if it is absent."""
    for port, argument in zip(op.definition.operands, op.arguments, strict=True):
        if port.name == name and isinstance(argument, Value):
            return argument
    return None


def _target(kernel: Kernel) -> str:
    return str(kernel.attributes["target"])


def _warp_threads(kernel: Kernel) -> int:
    return TARGETS[_target(kernel)].lanes


def _cluster(kernel: Kernel) -> int:
    extents = kernel.attributes.get("cluster", (1,))
    return prod(e for e in extents if isinstance(e, int)) if isinstance(extents, tuple) else 1


def _around(op: Op) -> Iterator[Op]:
    """The operations around `op`, innermost first."""
    while op.parent is not None and op.parent.parent is not None:
        owner = op.parent.parent.parent
        if not isinstance(owner, Op):
            return
        yield owner
        op = owner


def _role_of(op: Op) -> Op | None:
    return next((o for o in _around(op) if o.name == "role"), None)


def constant_value(value: Value) -> int | None:
    """The integer that a scalar constant holds, or None."""
    owner = value.owner
    dense = owner.attributes.get("value") if isinstance(owner, Op) else None
    if not isinstance(dense, Dense) or dense.shape or dense.dtype.kind != "int":
        return None
    return int(dense.bits()[0])


def _depends_on(value: Value, argument: Value) -> bool:
    """True if `value` is computed from `argument` by pure operations."""
    seen: set[Value] = set()
    todo = [value]
    while todo:
        current = todo.pop()
        if current is argument:
            return True
        if (
            current not in seen
            and isinstance(current.owner, Op)
            and current.owner.definition.is_pure
        ):
            todo.extend(current.owner.operands)
        seen.add(current)
    return False


def _is_replica_dependent(op: Op, value: Value) -> bool:
    role = _role_of(op)
    arguments = role.regions[0].block.arguments if role is not None else []
    return any(_depends_on(value, a) for a in arguments)


# Roles


def check_structure(survey: _Survey, report: Report) -> None:
    """Roles stand together at the top; allocations before them; only scalars enter a role."""
    kernel = survey.kernel
    phase = "prologue"
    for op in kernel.body.block.ops:
        if op.name == "role":
            if phase == "epilogue":
                report("structure", "roles stand together, found operations between two", op)
            phase = "roles"
        elif phase == "roles":
            phase = "epilogue"
        if op.name in ALLOCATIONS and phase != "prologue":
            report("alloc_place", f"`{op.name}` stands in the prologue", op, "move it up")
    top = set(kernel.body.block.ops)
    outside = {r for op in top for r in op.results if r.type.kind == "tile"}
    for op in survey.ops:
        if op not in top and op.name == "role":
            report("structure", "a role stands directly in the kernel", op)
        if op not in top and op.name in ALLOCATIONS:
            report("alloc_place", f"`{op.name}` stands in the prologue", op, "move it up")
        if survey.role[op] is None:
            continue
        for value in op.operands:
            if value in outside and isinstance(value.type, TileType) and value.type.shape:
                owner = value.owner
                if isinstance(owner, Op) and owner.name != "constant":
                    report(
                        "captured_tile",
                        f"%{value.name} is a tile of the prologue and cannot enter a role",
                        op,
                        "only scalars, places, views, tokens and constants are seen inside",
                    )


def check_warps(survey: _Survey, report: Report) -> None:
    """The roles' warps add up; warpgroups are whole."""
    kernel = survey.kernel
    roles, target = _roles(kernel), _target(kernel)
    warps = kernel.attributes.get("warps")
    if not isinstance(warps, int) or not 1 <= warps * _warp_threads(kernel) <= 1024:
        limit = 1024 // _warp_threads(kernel)
        report("warps", f"the kernel's `warps` must be from 1 to {limit}, found {warps}", kernel)
        return
    total = sum(_number(r, "warps") * _number(r, "replicas", 1) for r in roles)
    if roles and total != warps:
        report(
            "role_warps",
            f"the roles have {total} warps together, and the kernel {warps}",
            roles[0],
            f"write warps = {total} on the kernel, or change a role",
        )
    if target == "gfx942" and len(roles) > 1:
        report(
            "single_role",
            f"gfx942 has one barrier for the whole block and so one role, found {len(roles)}",
            roles[1],
            "use replicas of one role, and `stagger`",
        )
    begin = 0
    for role in roles:
        size = _number(role, "warps")
        multiplies = any(op.name in ("mma_open", "mma_start") for op in role.walk())
        if multiplies and size != 4:
            report("warpgroup", f"products need a role of 4 warps, found {size}", role)
        elif (multiplies or "registers" in role.attributes) and (size % 4 or begin % 4):
            report(
                "warpgroup", f"4 warps at a multiple of 4 are needed, found {size} at {begin}", role
            )
        begin += size * _number(role, "replicas", 1)
    if not roles and any(op.name == "mma_start" for op in survey.ops) and warps != 4:
        report("warpgroup", f"products need a role of 4 warps, found a kernel of {warps}", kernel)


def check_registers(survey: _Survey, report: Report) -> None:
    """Budgets fit the register file, and what a product needs fits what a thread enters with."""
    kernel = survey.kernel
    roles = _roles(kernel)
    budgets = [_number(r, "registers") for r in roles]
    if any(budgets):
        if _target(kernel) != "sm_90a":
            report("registers", f"{_target(kernel)} cannot move registers between roles", roles[0])
            return
        if not all(budgets):
            report("registers", "some roles have a register budget and some have none", roles[0])
            return
        used = sum(
            32 * _number(r, "warps") * _number(r, "replicas", 1) * b
            for r, b in zip(roles, budgets, strict=True)
        )
        if used > REGISTERS:
            report("registers", f"the roles need {used} registers of {REGISTERS}", roles[0])
    threads = _number_of(kernel, "warps") * 32
    if not threads or _target(kernel) != "sm_90a":
        return
    entry = min(255, REGISTERS // threads // 8 * 8)
    for op in survey.ops:
        if op.name == "mma_start" and isinstance(op.results[0].type, PendingType):
            tile = op.results[0].type.tile
            # A thread holds n/2 accumulators of 32 bits for 64 rows; ptxas (C7602) wants 26 more.
            need = tile.shape[1] * tile.dtype.bits // 64 + 26 if len(tile.shape) == 2 else 0
            if need > entry:
                report(
                    "entry_registers",
                    f"a product of {tile.shape[1]} columns needs {need} registers, and {threads} "
                    f"threads enter with {entry}, whatever their budget later",
                    op,
                    "use fewer threads or a narrower product",
                )


def _number_of(kernel: Kernel, name: str) -> int:
    value = kernel.attributes.get(name)
    return value if isinstance(value, int) else 0


def check_elected(survey: _Survey, report: Report) -> None:
    """Nothing collective inside `elected`, nothing of one thread outside."""
    for op in survey.ops:
        inside = op in survey.elected
        engine = op.attributes.get("engine")
        one_thread = op.name == "copy_out" or engine == "bulk"
        if one_thread and not inside:
            report(
                "bulk_elected", f"`{op.name}` is issued by one thread", op, "put it in `elected`"
            )
        if not inside:
            continue
        tiles = [r for r in op.results if isinstance(r.type, TileType) and r.type.shape]
        if op.name in COLLECTIVE or engine == "thread" or (tiles and not op.definition.is_pure):
            report("elected", f"`{op.name}` is for the whole role, found in `elected`", op)
        if op.name == "arrive_barrier" and op.attributes.get("by", "elected") != "elected":
            report("elected", "one thread cannot arrive for the others", op, "drop `by`")


# Places


def check_shared_memory(survey: _Survey, report: Report) -> None:
    """All allocations, in order and aligned, fit the block's shared memory."""
    kernel = survey.kernel
    total = barriers = 0
    terms: list[str] = []
    last: Op | Kernel = kernel
    for op in kernel.body.block.ops:
        if op.name not in ALLOCATIONS:
            continue
        type = op.results[0].type
        if isinstance(type, BarrierType):
            barriers += type.count
        elif isinstance(type, (BufferType, RingType)):
            align = buffer_alignment(type if isinstance(type, BufferType) else type.buffer)
            padding, count = -total % align, type.stages if isinstance(type, RingType) else 1
            total += padding + place_bytes(type)
            terms += [f"{padding} to align"] if padding else []
            each = f"{count} x " if count > 1 else ""
            terms.append(f"{each}{place_bytes(type) // count} for %{op.results[0].name}")
        last = op
    if barriers:
        terms.append(f"8 x {barriers} for barriers")
    total = -(-total // 8) * 8 + 8 * barriers
    limit = TARGETS[_target(kernel)].shared_bytes
    if total > limit:
        report(
            "shared_memory",
            f"the places need {' + '.join(terms)} = {total} bytes of shared memory, and "
            f"{_target(kernel)} has {limit}",
            last,
            "use fewer stages or smaller tiles",
        )


def check_slots(survey: _Survey, report: Report) -> None:
    """Constant indices lie inside their ring or array."""
    for op in survey.ops:
        if op.name in ("slot", "arrive_barrier", "wait_barrier", "sync_named", "arrive_named"):
            place, index = op.operands[0].type, op.operands[1]
            extent = place.stages if isinstance(place, RingType) else getattr(place, "count", 0)
            value = constant_value(index)
            if value is not None and not 0 <= value < extent:
                report("slot", f"index {value} is outside {place}", op)


def check_tensor_maps(survey: _Survey, report: Report) -> None:
    """The host can describe every view that bulk copies use."""
    kernel = survey.kernel
    for op in survey.ops:
        if op.name not in ("copy_in", "copy_out", "prefetch_view"):
            continue
        if op.name == "copy_in" and op.attributes.get("engine") != "bulk":
            continue
        view = op.operands[1] if op.name == "copy_out" else op.operands[0]
        if not _is_known_to_host(view, kernel):
            report(
                "tensor_map",
                f"%{view.name} cannot be described by the host",
                op,
                "make the view in the prologue, from arguments and constants",
            )


def _is_known_to_host(value: Value, kernel: Kernel) -> bool:
    owner = value.owner
    if owner is kernel.body.block:
        return True
    if not isinstance(owner, Op) or owner.parent is not kernel.body.block:
        return False
    if not owner.definition.is_pure or owner.name in ("get_tile_block_id", "cluster_rank"):
        return False
    return all(_is_known_to_host(v, kernel) for v in owner.operands)


# Barriers


def check_arrivals(survey: _Survey, report: Report) -> None:
    """A phase's arrivals add up. The sites of one role are alternatives: a phase meets one."""
    kernel = survey.kernel
    arrivals = survey.named("arrive_barrier")
    for barrier in _results(kernel, BarrierType):
        type = barrier.type
        assert isinstance(type, BarrierType)
        by_role: dict[Op | None, dict[int, Op]] = {}
        for op in arrivals:
            if op.operands[0] is barrier:
                if _operand(op, "rank") is not None or _is_of_some_replicas(op):
                    break  # who arrives where is decided at run time
                by_role.setdefault(survey.role[op], {})[_arrivals_of(op, kernel)] = op
        else:
            found = sum(max(sites) for sites in by_role.values())
            differ = any(len(sites) > 1 for sites in by_role.values())
            if by_role and (found != type.arrivals or differ):
                counts = " + ".join(
                    " or ".join(map(str, sorted(sites))) for sites in by_role.values()
                )
                at = next(iter(next(iter(by_role.values())).values()))
                report(
                    "arrivals",
                    f"%{barrier.name} awaits {type.arrivals} arrivals in a phase, found {counts}",
                    at,
                )


def _is_of_some_replicas(op: Op) -> bool:
    """True if a branch that looks at the replica's number stands around."""
    return any(o.name == "if" and _is_replica_dependent(op, o.operands[0]) for o in _around(op))


def _arrivals_of(op: Op, kernel: Kernel) -> int:
    role = _role_of(op)
    warps = _number(role, "warps") if role is not None else _number_of(kernel, "warps")
    by = op.attributes.get("by", "elected")
    count = {"elected": 1, "warps": warps, "threads": warps * _warp_threads(kernel)}[str(by)]
    if role is not None and not _is_replica_dependent(op, op.operands[1]):
        count *= _number(role, "replicas", 1)
    return count * (_cluster(kernel) if op.attributes.get("everywhere") else 1)


def _results(kernel: Kernel, kind: type) -> list[Value]:
    return [r for op in kernel.body.block.ops for r in op.results if isinstance(r.type, kind)]


def check_participants(survey: _Survey, report: Report) -> None:
    """Who syncs and who arrives at a named barrier are as many threads as it counts."""
    kernel = survey.kernel
    named = 0
    meetings = survey.named("sync_named", "arrive_named")
    for barrier in _results(kernel, NamedBarrierType):
        type = barrier.type
        assert isinstance(type, NamedBarrierType)
        named += type.count
        parts: dict[tuple[Op | None, str], int] = {}
        first: Op | None = None
        for op in meetings:
            if op.operands[0] is barrier:
                role = survey.role[op]
                warps = _number(role, "warps") if role else _number_of(kernel, "warps")
                if role is not None and not _is_replica_dependent(op, op.operands[1]):
                    warps *= _number(role, "replicas", 1)
                if constant_value(op.operands[1]) is not None and any(
                    o.name == "if" for o in _around(op)
                ):
                    continue  # the first turn, handed out by one
                parts[role, op.name] = 32 * warps
                first = first or op
        if first is not None and sum(parts.values()) != type.threads:
            report(
                "participants",
                f"%{barrier.name} counts {type.threads} threads, found "
                + " + ".join(map(str, parts.values())),
                first,
            )
    replicas = sum(_number(r, "replicas", 1) for r in _roles(kernel))
    if named + replicas > 15:
        report("named_barriers", f"{named} named barriers and {replicas} roles exceed 15", kernel)


def check_transactions(survey: _Survey, report: Report) -> None:
    """Announced bytes are those of the copies that signal the barrier, block by block of text."""
    kernel = survey.kernel
    for block in _blocks(kernel.body.block):
        for op in block.ops:
            if op.name != "arrive_barrier" or not op.attributes.get("bytes"):
                continue
            copies = [
                c
                for c in block.ops
                if c.name == "copy_in"
                and (_operand(c, "barrier"), _operand(c, "slot")) == op.arguments[:2]
            ]
            sizes = [_received_bytes(c) for c in copies]
            if not copies or None in sizes:
                continue
            found, announced = sum(s for s in sizes if s is not None), op.attributes["bytes"]
            if found != announced:
                report(
                    "transaction_bytes",
                    f"{announced} bytes are announced, and the copies bring {found}",
                    op,
                    "a multicast brings as much from each block of its mask",
                )


def _received_bytes(copy: Op) -> int | None:
    """Bytes that a block receives when every block of the cluster does this copy."""
    destination, mask = _operand(copy, "destination"), _operand(copy, "multicast")
    assert destination is not None and isinstance(destination.type, BufferType)
    if mask is None:
        return destination.type.size_bytes
    value = constant_value(mask)
    return None if value is None else destination.type.size_bytes * value.bit_count()


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region.block)


# Clusters and halves


def check_bulk_engine(survey: _Survey, report: Report) -> None:
    """The engine of bulk copies, and barriers that count bytes, came with sm_90."""
    kernel = survey.kernel
    target = _target(kernel)
    if instructions_of(target) == "sm_90a":
        return
    for op in survey.ops:
        is_bulk = op.attributes.get("engine") == "bulk"
        if not is_bulk and not (op.name == "arrive_barrier" and _number(op, "bytes")):
            continue
        what = f"`{op.name}` by the bulk engine" if is_bulk else "an arrival that announces bytes"
        hint = "copy with engine = thread, and wait with `wait_copies` or `after_copies`"
        report("bulk_engine", f"{what} does not exist on {target}", op, hint)


def check_cluster(survey: _Survey, report: Report) -> None:
    """Blocks reach each other only in a cluster, after it has met and before it parts."""
    kernel = survey.kernel
    size, block = _cluster(kernel), kernel.body.block
    remote = [op for op in survey.ops if _reaches_other_blocks(op)]
    if not remote:
        return
    if size < 2:
        report(
            "cluster",
            f"`{remote[0].name}` reaches other blocks, and there is no cluster",
            remote[0],
        )
        return
    if size > 16:
        report("cluster", f"a cluster has at most 16 blocks, found {size}", kernel)
    begin = next((i for i, op in enumerate(block.ops) if op.name == "role"), len(block.ops))
    names = [op.name for op in block.ops]
    made = max((i for i, n in enumerate(names) if n == "alloc_barrier"), default=0)
    if "cluster_arrive" not in names[made:begin] or "cluster_wait" not in names[made:begin]:
        report(
            "cluster_entry",
            "blocks reach each other's barriers before they are known to exist",
            remote[0],
            "end the prologue with `cluster_arrive` and `cluster_wait`",
        )
    if "cluster_arrive" not in names[begin:] or "cluster_wait" not in names[begin:]:
        report(
            "cluster_exit",
            "a block may end while another still reaches its shared memory",
            block.ops[-1],
            "begin the epilogue with `cluster_arrive` and `cluster_wait`",
        )


def _reaches_other_blocks(op: Op) -> bool:
    if op.name in REMOTE and _operand(op, "rank") is not None:
        return True
    if op.name == "copy_in":
        return _operand(op, "multicast") is not None
    return bool(op.attributes.get("everywhere"))


def check_stagger(survey: _Survey, report: Report) -> None:
    """Halves need replicas."""
    for op in survey.ops:
        if op.name == "stagger":
            role = survey.role[op]
            if role is None or _number(role, "replicas", 1) < 2:
                report("stagger", "`stagger` needs a role with two replicas or more", op)


def check_rows(survey: _Survey, report: Report) -> None:
    """Only pure operations are skipped by rows."""
    for op in survey.ops:
        if op.name == "if_rows":
            for inner in op.regions[0].block.walk():
                if not inner.definition.is_pure and inner.name != "yield":
                    report(
                        "if_rows", f"`{inner.name}` has effects, and `if_rows` skips rows", inner
                    )


_CHECKS: tuple[Callable[[_Survey, Report], None], ...] = (
    check_structure,
    check_warps,
    check_registers,
    check_elected,
    check_shared_memory,
    check_slots,
    check_tensor_maps,
    check_arrivals,
    check_participants,
    check_transactions,
    check_bulk_engine,
    check_cluster,
    check_stagger,
    check_rows,
)
