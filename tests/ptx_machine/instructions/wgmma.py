"""wgmma: asynchronous products of four warps, with operands in shared memory.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (matrix
descriptor, shared memory layouts, wgmma.fence, commit_group, wait_group).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.clocks import BEFORE
from tests.ptx_machine.errors import AccessError, DivergenceError, InFlightError
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction
from tests.ptx_machine.tensormap import swizzle
from tests.ptx_machine.warp import Wait, Warp

from .access import elements
from .fragments import WIDTH, accumulator, elements_of, operand_a, to_registers

DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
SWIZZLES = {0: "none", 1: "128B", 2: "64B", 3: "32B"}
SPAN = {"none": 16, "32B": 32, "64B": 64, "128B": 128}


@dataclass(frozen=True, slots=True)
class Shape:
    """What one instruction multiplies."""

    n: int
    out: str
    kind_a: str
    kind_b: str
    negate_a: bool
    negate_b: bool
    transpose_a: bool
    transpose_b: bool
    saturate: bool

    @property
    def depth(self) -> int:
        return DEPTH[self.kind_a]


@lru_cache(maxsize=4096)
def operand_addresses(
    descriptor: int, outer: int, depth: int, width: int, mn_major: bool
) -> np.ndarray:
    """Return shared byte offsets [outer, depth] of an operand's elements of `width` bytes.

    K-major: rows of the swizzle span, eight rows per group, groups a stride offset apart.
    MN-major: spans of mn a leading offset apart, eight k per group, groups a stride offset apart.
    """
    start, leading = (descriptor & 0x3FFF) << 4, (descriptor >> 16 & 0x3FFF) << 4
    stride, base, mode = (
        (descriptor >> 32 & 0x3FFF) << 4,
        descriptor >> 49 & 7,
        SWIZZLES[descriptor >> 62],
    )
    if descriptor & ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62):
        raise AccessError(f"matrix descriptor {descriptor:#x} sets reserved bits")
    if base:
        raise AccessError("a matrix base offset is not modelled")
    span = SPAN[mode]
    mn, k = np.meshgrid(np.arange(outer), np.arange(depth), indexing="ij")
    if not mn_major:
        byte = k * width
        if mode == "none":
            address = start + mn % 8 * 16 + mn // 8 * stride + byte // 16 * leading + byte % 16
        else:
            address = start + mn % 8 * span + mn // 8 * stride + byte
    else:
        byte = mn * width
        if mode == "none":
            address = start + byte % 16 + byte // 16 * stride + k % 8 * 16 + k // 8 * leading
        else:
            address = start + byte % span + byte // span * leading + k % 8 * span + k // 8 * stride
    return swizzle(address, mode)


@lru_cache(maxsize=4096)
def footprint(descriptor: int, outer: int, depth: int, width: int, mn_major: bool) -> np.ndarray:
    """Return the sorted byte offsets that an operand covers."""
    address = operand_addresses(descriptor, outer, depth, width, mn_major).reshape(-1)
    return np.unique(address[:, None] + np.arange(width))


@dataclass(eq=False)
class Product:
    """One wgmma of a warpgroup: it runs some time after all four warps have issued it."""

    signature: tuple
    shape: Shape
    d_slots: tuple[int, ...]
    a_slots: tuple[int, ...]
    descriptor_a: int | None
    descriptor_b: int
    accumulate: bool
    queue: list
    text: str
    epoch: int
    warps: dict[int, Warp] = field(default_factory=dict)
    done: bool = False

    def ready(self) -> bool:
        return self.queue[0] is self

    def describe(self) -> str:
        return f"wgmma: {self.text}"

    def run(self) -> bool:
        """Compute the whole 64-row product and write the accumulators."""
        shape, some = self.shape, next(iter(self.warps.values()))
        shared = some.cta.shared
        right = self.fetch(shared, self.descriptor_b, shape.n, shape.kind_b, shape.transpose_b).T
        left = None
        if self.descriptor_a is not None:
            left = self.fetch(shared, self.descriptor_a, 64, shape.kind_a, shape.transpose_a)
        for quarter in range(4):
            w = next(v for v in self.warps.values() if v.index % 4 == quarter)
            if left is not None:
                mine = left[16 * quarter : 16 * quarter + 16]
            else:
                mine = operand_a(
                    [w.registers[s].view(np.uint32) for s in self.a_slots], shape.kind_a, 16
                )
            mine = -mine if shape.negate_a else mine
            total = mine @ (-right if shape.negate_b else right)
            if self.accumulate:
                total = total + accumulator(
                    [w.registers[s].view(np.uint32) for s in self.d_slots], shape.out, 16
                )
            for slot, value in zip(
                self.d_slots, to_registers(total, shape.out, shape.saturate), strict=True
            ):
                w.registers[slot] = value
        self.queue.pop(0)
        self.done = True
        return True

    def fetch(self, shared, descriptor: int, outer: int, kind: str, mn_major: bool) -> np.ndarray:
        width = WIDTH[kind] // 8
        address = operand_addresses(descriptor, outer, self.shape.depth, width, mn_major)
        return elements_of(shared.view(width)[address // width], kind)


@instruction("wgmma")
def build_wgmma(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """wgmma.fence, commit_group, wait_group and mma_async."""
    action = m.one("fence", "commit_group", "wait_group", "mma_async")
    if m.flag("sp"):
        raise m.fail("sparse products are not modelled")
    m.one("sync")
    m.one("aligned")
    d.sync, d.owns_flight = "aligned", True
    if action == "mma_async":
        return build_product(d, ins, m)
    d.count(ins, 1 if action == "wait_group" else 0)
    if action == "fence":
        return fence
    if action == "commit_group":
        return commit
    keep = d.literal(ins, ins.operands[0])
    return lambda w: wait(w, keep)


def fence(w) -> None:
    w.fenced_at = w.steps


def commit(w) -> None:
    w.wgmma_epoch += 1
    w.wgmma_groups.append((w.wgmma_epoch, w.wgmma_open))
    w.wgmma_open = []


def wait(w, keep: int) -> Wait:
    groups = w.wgmma_groups[: max(0, len(w.wgmma_groups) - keep)]

    def left() -> int:
        return sum(not p.done for _, products in groups for p in products)

    def finish() -> None:
        if not groups:
            return
        w.wgmma_groups = w.wgmma_groups[len(groups) :]
        agent = w.cta.cluster.agents.wgmma(w.cta.rank, w.index)
        w.clock.epochs[BEFORE, agent] = max(w.clock.epochs[BEFORE, agent], groups[-1][0])
        w.inflight = {s for p in pending(w) for s in (*p.d_slots, *p.a_slots)}

    return Wait(lambda: left() == 0, finish, lambda: f"{left()} wgmma of its warpgroup")


def pending(w) -> list[Product]:
    return [p for _, products in w.wgmma_groups for p in products] + w.wgmma_open


def parse_shape(ins: t.Instruction, m: Modifiers, a_in_registers: bool) -> tuple[Shape, int]:
    """Consume shape and types; return the Shape and the number of operands used."""
    found = m.match(r"m64n(\d+)k(\d+)")
    types = [w for w in m.left if w in (*DEPTH, "f32", "s32")]
    if not found or len(types) != 3:
        raise m.fail("needs a shape m64nNkK and three types")
    for word in types:
        m.left.remove(word)
    out, kind_a, kind_b = types
    n, integer = int(found[1]), kind_a in ("s8", "u8")
    legal_n = (
        n % 8 == 0 and 8 <= n <= 256
        if not integer
        else n in (8, 16, 24) or (n % 16 == 0 and 32 <= n <= 256)
    )
    if int(found[2]) != DEPTH.get(kind_a) or not legal_n or WIDTH[kind_a] != WIDTH[kind_b]:
        raise m.fail("shape and types do not fit")
    if (
        (out == "s32") != integer
        or (out == "f16" and kind_a in ("bf16", "tf32"))
        or out not in ("f16", "f32", "s32")
    ):
        raise m.fail("the result type does not fit")
    values = [o.value for o in ins.operands[4:] if isinstance(o, t.Integer)]
    expected = 0 if integer else 2 + ((1 if a_in_registers else 2) if WIDTH[kind_a] == 16 else 0)
    if len(values) != expected or len(ins.operands) != 4 + expected:
        raise m.fail(f"needs {expected} immediates after scale-d")
    if any(abs(v) != 1 for v in values[:2]) or any(v not in (0, 1) for v in values[2:]):
        raise m.fail("scales are 1 or -1, transposes 0 or 1")
    scale_a, scale_b = values[:2] or (1, 1)
    transposes = (0, *values[2:]) if a_in_registers else tuple(values[2:])
    transpose_a, transpose_b = (*transposes, 0, 0)[:2]
    saturate = integer and m.flag("satfinite")
    return Shape(
        n,
        out,
        kind_a,
        kind_b,
        scale_a < 0,
        scale_b < 0,
        bool(transpose_a),
        bool(transpose_b),
        saturate,
    ), len(values)


def build_product(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    a_in_registers = isinstance(ins.operands[1], t.Group)
    shape, _ = parse_shape(ins, m, a_in_registers)
    d_count = shape.n // 4 if shape.out == "f16" else shape.n // 2
    d_slots = tuple(d.slot(ins, part, "b32") for part in elements(ins.operands[0], d_count, m))
    d.written.update(d_slots)
    a_slots = (
        tuple(d.slot(ins, part, "b32") for part in elements(ins.operands[1], 4, m))
        if a_in_registers
        else ()
    )
    if len(set(d_slots)) != len(d_slots) or set(d_slots) & set(a_slots):
        raise m.fail("accumulator registers repeat or overlap A")
    descriptor_a = None if a_in_registers else d.uniform(ins, ins.operands[1], "u64")
    descriptor_b = d.uniform(ins, ins.operands[2], "u64")
    scale_d = d.uniform(ins, ins.operands[3], "pred")
    owned = frozenset((*d_slots, *a_slots))
    text = f"line {ins.line} m64n{shape.n}k{shape.depth}"

    def step(w) -> None:
        check_registers(w, shape, d_slots, a_slots)
        first = None if descriptor_a is None else descriptor_a(w)
        second, accumulate = descriptor_b(w), bool(scale_d(w))
        product = issue(
            w,
            (id(ins), first, second, accumulate),
            lambda queue: Product(
                (id(ins), first, second, accumulate),
                shape,
                d_slots,
                a_slots,
                first,
                second,
                accumulate,
                queue,
                text,
                w.wgmma_epoch + 1,
            ),
        )
        check_shared(w, product)
        w.wgmma_open.append(product)
        w.inflight |= owned

    return step


def check_registers(w, shape: Shape, d_slots: tuple[int, ...], a_slots: tuple[int, ...]) -> None:
    """Report registers that a fence should have covered or that another product still owns."""
    if not w.fenced_at:
        raise InFlightError("wgmma.mma_async without a wgmma.fence before it")
    if max(w.written_at[s] for s in (*d_slots, *a_slots)) > w.fenced_at:
        raise InFlightError("an accumulator or A register was written after the last wgmma.fence")
    d_set, a_set = set(d_slots), set(a_slots)
    for other in pending(w):
        same = other.d_slots == d_slots and other.shape.out == shape.out
        if not same and not d_set.isdisjoint(other.d_slots):
            raise InFlightError("accumulators overlap those of an unfinished wgmma of other shape")
        if not d_set.isdisjoint(other.a_slots) or not a_set.isdisjoint(other.d_slots):
            raise InFlightError("A registers and accumulators of unfinished wgmma overlap")


def issue(w, signature: tuple, make) -> Product:
    """Match this warp's wgmma with the one its warpgroup is issuing; the fourth warp starts it."""
    if len(w.cta.warps) < w.index // 4 * 4 + 4:
        raise DivergenceError("wgmma needs a whole warpgroup of four warps")
    queue = w.cta.warpgroup_queues.setdefault(w.index // 4, [])
    for product in queue:
        if w.index in product.warps:
            continue
        if product.signature != signature:
            raise DivergenceError(f"warps of a warpgroup issue different wgmma: {product.text}")
        break
    else:
        product = make(queue)
        queue.append(product)
    product.warps[w.index] = w
    if product.epoch != w.wgmma_epoch + 1:
        raise DivergenceError("warps of a warpgroup commit different wgmma groups")
    if len(product.warps) == 4:
        w.machine.pending.append(product)
    return product


def check_shared(w, product: Product) -> None:
    """Check the operands against the shadow as reads of the asynchronous proxy."""
    shape, shared = product.shape, w.cta.shared
    agent = w.cta.cluster.agents.wgmma(w.cta.rank, w.index)
    operands = [(product.descriptor_b, shape.n, shape.kind_b, shape.transpose_b)]
    if product.descriptor_a is not None:
        operands.append((product.descriptor_a, 64, shape.kind_a, shape.transpose_a))
    for descriptor, outer, kind, mn_major in operands:
        covered = footprint(descriptor, outer, shape.depth, WIDTH[kind] // 8, mn_major)
        shared.check_range(int(covered[0]), int(covered[-1]) + 1)
        if w.machine.check_races:
            shared.shadow.read(covered, agent, product.epoch, w.clock, asynchronous=True)
