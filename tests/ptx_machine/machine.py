"""The grid: clusters, CTAs, launch arguments, and the seeded scheduler.

`run` maps NumPy arrays in place of device pointers and executes until every thread has exited.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

import numpy as np

from . import text as t
from .barriers import ClusterBarrier, NamedBarrier
from .clocks import BEFORE, EXECUTED, Agents, Clock
from .decode import decode_entry
from .errors import AccessError, DeadlockError, InFlightError, LaunchError, MachineError, RaceError
from .memory import PARAM_WINDOW, SHARED_BASE, GlobalMemory, Region, SharedMemory
from .tensormap import TensorMap
from .warp import Op, Warp

SHARED_LIMIT = SHARED_BASE + 227 * 1024
REGISTER_FILE = 65536
MAP_MARK = b"tensormp"
STALL_STEPS = 2_000_000
Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did: warp instructions, asynchronous operations delivered."""

    instructions: int
    deliveries: int


class Cluster:
    """CTAs that may address each other's shared memory."""

    def __init__(self, machine: Machine, index: Triple) -> None:
        self.machine, self.index = machine, index
        warps = -(-int(np.prod(machine.block)) // 32)
        shape = machine.cluster_shape
        self.agents = Agents(warps, int(np.prod(shape)))
        self.barrier = ClusterBarrier(self)
        self.ctas: list[Cta] = []
        for rank in range(int(np.prod(shape))):
            position = (rank % shape[0], rank // shape[0] % shape[1], rank // (shape[0] * shape[1]))
            self.ctas.append(Cta(machine, self, rank, position))

    @property
    def warps(self) -> list[Warp]:
        return [w for cta in self.ctas for w in cta.warps]


class Cta:
    """One thread block: warps, shared memory, named barriers, register pool."""

    def __init__(self, machine: Machine, cluster: Cluster, rank: int, position: Triple) -> None:
        self.machine, self.cluster, self.rank, self.position = machine, cluster, rank, position
        shape = machine.cluster_shape
        x, y, z = (cluster.index[i] * shape[i] + position[i] for i in range(3))
        self.index = (x, y, z)
        self.number = self.index[0] + machine.grid[0] * (
            self.index[1] + machine.grid[1] * self.index[2]
        )
        self.shared = SharedMemory(
            rank, machine.shared_size, cluster.agents, machine.check_uninitialised
        )
        for offset, data in machine.shared_data:
            self.shared.bytes[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
            self.shared.shadow.mark_initialised(slice(offset, offset + len(data)))
        self.barriers = [NamedBarrier(i, self) for i in range(16)]
        threads = int(np.prod(machine.block))
        self.warps = [
            Warp(machine, self, i, machine.register_names, min(32, threads - 32 * i))
            for i in range(-(-threads // 32))
        ]
        self.free_registers = REGISTER_FILE - machine.entry_registers * 32 * len(self.warps)
        self.warpgroup_queues: dict[int, list] = {}
        self.past = Clock(cluster.agents.count)
        self.outstanding = 0

    def warp_exited(self, w: Warp) -> None:
        """Check what a finished warp leaves behind; the CTA ends with its last warp."""
        if w.wgmma_open or w.wgmma_groups:
            raise InFlightError("a warp exits with wgmma operations it never waited for")
        self.cluster.barrier.reconsider()
        self.past.join(w.clock)
        if any(other.live for other in self.warps):
            return
        known = np.maximum(self.past.epochs[BEFORE], self.past.epochs[EXECUTED])
        for agent, epoch in self.shared.remote.items():
            if self.machine.check_races and known[agent] < epoch:
                who = self.cluster.agents.describe(agent)
                raise RaceError(
                    f"the CTA exits with no barrier after its shared memory's use by {who}"
                )
        if self.outstanding:
            raise AccessError(
                f"the CTA exits while {self.outstanding} asynchronous copies use its shared memory"
            )
        self.shared.exited = True
        self.machine.cta_exited(self)


class Machine:
    """One launch."""

    def __init__(
        self,
        module: t.Module,
        entry: t.Entry,
        grid: Triple,
        block: Triple,
        cluster: Triple | None,
        smem_bytes: int,
        seed: int,
    ) -> None:
        self.module, self.entry = module, entry
        self.grid, self.block, self.seed = grid, block, seed
        self.explicit_cluster = cluster is not None or "reqnctapercluster" in entry.limits
        self.cluster_shape = self._cluster_shape(cluster)
        x, y, z = (g // c for g, c in zip(grid, self.cluster_shape, strict=True))
        self.cluster_grid = (x, y, z)
        self._check_limits()
        self.random = random.Random(seed)
        self.eagerness = self.random.choice((0.0, 0.05, 0.5))
        self.quantum = self.random.choice((4, 32, 256))
        self.impatience = self.random.choice((0.05, 0.5))
        self.memory = GlobalMemory()
        self.maps: list[TensorMap] = []
        self.pending: list = []
        self.steps = self.deliveries = self.last_progress = self.operations = 0
        self.check_races = self.check_uninitialised = True
        self.dynamic_bytes = smem_bytes
        self.code: list[Op] = []
        self.shared_data: list[tuple[int, bytes]] = []
        self.local_bytes = 0
        self.symbols = self._place_variables(smem_bytes)
        self.entry_registers = self._entry_registers()
        self.register_names = [name for _, name in entry.registers]

    def _cluster_shape(self, cluster: Triple | None) -> Triple:
        required = self.entry.limits.get("reqnctapercluster")
        if required and cluster and cluster != triple(required):
            raise LaunchError(f"cluster {cluster} does not match .reqnctapercluster {required}")
        return cluster or triple(required or 1)

    def _check_limits(self) -> None:
        required = self.entry.limits.get("reqntid")
        if required and (*required, 1, 1)[:3] != self.block:
            raise LaunchError(f"block {self.block} does not match .reqntid {required}")
        most = self.entry.limits.get("maxntid")
        if most and np.prod(self.block) > np.prod(most):
            raise LaunchError(f"block {self.block} is over .maxntid {most}")
        if any(g % c for g, c in zip(self.grid, self.cluster_shape, strict=True)):
            raise LaunchError(f"grid {self.grid} is not a multiple of cluster {self.cluster_shape}")
        if not 1 <= np.prod(self.block) <= 1024 or np.prod(self.cluster_shape) > 16:
            raise LaunchError("a block has 1 to 1024 threads, a cluster at most 16 CTAs")

    def _entry_registers(self) -> int:
        warps = -(-int(np.prod(self.block)) // 32)
        most = self.entry.limits.get("maxnreg", (255,))[0]
        return min(REGISTER_FILE // (32 * warps), most) // 8 * 8

    def _place_variables(self, smem_bytes: int) -> dict[str, int]:
        """Give every variable and parameter an address; shared ones the same in all CTAs."""
        symbols, offset = {}, SHARED_BASE
        variables = [*self.module.variables, *self.entry.variables]
        for v in variables:
            if v.space == "shared" and v.size is not None:
                offset = -(-offset // v.align) * v.align
                symbols[v.name] = offset
                if v.data:
                    raise LaunchError("shared variables cannot be initialised")
                offset += v.size
            elif v.space == "local":
                self.local_bytes = -(-self.local_bytes // max(v.align, 8)) * max(v.align, 8)
                symbols[v.name] = self.local_bytes + (1 << 45)
                self.local_bytes += v.size or 0
            elif v.space in ("global", "const"):
                data = np.zeros(v.size or 0, np.uint8)
                data[: len(v.data)] = np.frombuffer(v.data, np.uint8)
                symbols[v.name] = self.memory.add(data, v.name).base
        for v in variables:
            if v.space == "shared" and v.size is None:
                offset = -(-offset // v.align) * v.align
                symbols[v.name] = offset
        self.shared_size = offset + smem_bytes
        if self.shared_size > SHARED_LIMIT:
            raise LaunchError(
                f"{self.shared_size - SHARED_BASE} bytes of shared memory, "
                f"the limit is {SHARED_LIMIT - SHARED_BASE}"
            )
        at = 0
        for p in self.entry.parameters:
            at = -(-at // p.align) * p.align
            symbols[p.name] = PARAM_WINDOW + at
            at += p.size
        return symbols

    def pack_parameters(self, args: list) -> None:
        """Lay the arguments out as the entry declares them."""
        if len(args) != len(self.entry.parameters):
            raise LaunchError(f"{len(args)} arguments for {len(self.entry.parameters)} parameters")
        data = bytearray()
        for value, p in zip(args, self.entry.parameters, strict=True):
            data.extend(bytes(-len(data) % p.align))
            packed = self.pack(value, p)
            if len(packed) != p.size:
                raise LaunchError(f"parameter {p.name} takes {p.size} bytes, found {len(packed)}")
            data.extend(packed)
        self.parameters = Region(
            "parameters", 0, np.frombuffer(bytes(data) + bytes(8), np.uint8).copy()
        )
        self.parameters.kind = "param"

    def pack(self, value: object, p: t.Parameter) -> bytes:
        match value:
            case TensorMap():
                self.memory.add(value.array, f"array of {p.name}")
                return self.map_bytes(value)
            case np.ndarray():
                return struct.pack("<Q", self.memory.add(value, p.name).base)
            case (np.ndarray() as array, int(offset)):
                return struct.pack("<Q", self.memory.add(array, p.name).base + offset)
            case bytes():
                return value
            case float() if p.type == "f32":
                return struct.pack("<f", value)
            case float() if p.type == "f64":
                return struct.pack("<d", value)
            case int() | np.integer():
                return (int(value) % (1 << (8 * p.size))).to_bytes(p.size, "little")
        raise LaunchError(f"cannot pass {value!r} to parameter {p.name} of type .{p.type}")

    def map_bytes(self, tensor_map: TensorMap) -> bytes:
        """Return 128 opaque bytes that stand for a tensor map in this launch."""
        self.maps.append(tensor_map)
        return MAP_MARK + struct.pack("<Q", len(self.maps) - 1) + bytes(112)

    def map_at(self, data: bytes) -> TensorMap:
        """Return the tensor map that 128 bytes stand for."""
        number = struct.unpack("<Q", data[8:16])[0]
        if data[:8] != MAP_MARK or number >= len(self.maps):
            raise AccessError("the address does not hold a tensor map")
        return self.maps[number]

    # --- scheduling

    def count_step(self) -> None:
        self.steps += 1

    def progressed(self) -> None:
        """Note that something other warps can see has happened."""
        self.last_progress = self.steps

    def launch(self, resident: int) -> Report:
        """Run all clusters, at most `resident` CTAs at a time, in block order."""
        indices = [
            (x, y, z)
            for z in range(self.cluster_grid[2])
            for y in range(self.cluster_grid[1])
            for x in range(self.cluster_grid[0])
        ]
        per_cluster = int(np.prod(self.cluster_shape))
        self.waiting_clusters = indices[::-1]
        self.live_warps: list[Warp] = []
        self.resident_ctas = 0
        room = max(resident, per_cluster)
        with np.errstate(all="ignore"):
            while self.waiting_clusters or self.live_warps:
                while self.waiting_clusters and self.resident_ctas + per_cluster <= room:
                    cluster = Cluster(self, self.waiting_clusters.pop())
                    self.resident_ctas += per_cluster
                    self.live_warps.extend(cluster.warps)
                self.turn()
            while self.pending:
                self.deliver()
        return Report(self.steps, self.deliveries)

    def turn(self) -> None:
        """Let one warp or one asynchronous operation go on."""
        if self.pending and self.random.random() < self.eagerness:
            self.deliver()
        stalled = self.steps - self.last_progress
        if stalled > 2000 and self.pending and self.deliver():
            return
        if stalled > STALL_STEPS:
            self.fail("the program spins without progress")
        able = [w for w in self.live_warps if w.can_run()]
        if able:
            w = self.random.choice(able)
            w.run(self.random.randint(1, self.quantum))
            if not w.live:
                self.live_warps.remove(w)
        elif not (self.pending and self.deliver()):
            self.fail("deadlock")

    def deliver(self) -> bool:
        """Let one asynchronous operation take effect; False when none can."""
        ready = [op for op in self.pending if op.ready()]
        if not ready:
            return False
        op = self.random.choice(ready)
        self.deliveries += 1
        try:
            finished = op.run()
        except MachineError as error:
            error.place = error.place or op.describe()
            raise
        if finished:
            self.pending.remove(op)
        self.progressed()
        return True

    def cta_exited(self, cta: Cta) -> None:
        if all(c.shared.exited for c in cta.cluster.ctas):
            self.resident_ctas -= len(cta.cluster.ctas)

    def fail(self, what: str) -> None:
        lines = [line for w in self.live_warps for line in w.describe()]
        shown = lines[:40] + ([f"... and {len(lines) - 40} more"] if len(lines) > 40 else [])
        raise DeadlockError(f"{what} (seed {self.seed}):\n  " + "\n  ".join(shown))


def triple(value: int | tuple[int, ...]) -> Triple:
    """Return a size in three dimensions."""
    x, y, z = (*((value,) if isinstance(value, int) else tuple(value)), 1, 1)[:3]
    return x, y, z


def run(
    ptx: str,
    entry: str,
    grid,
    block,
    cluster=None,
    args=(),
    smem_bytes: int = 0,
    seed: int = 0,
    *,
    resident: int = 16,
    check_races: bool = True,
    check_uninitialised: bool = True,
) -> Report:
    """Execute a kernel of a PTX module; arrays among the arguments are read and written in place.

    grid, block, cluster: an int or up to three; grid counts CTAs; cluster None takes the entry's.
    args: one per parameter: array (its pointer), (array, offset), int, float, TensorMap, bytes.
    resident: CTAs that run at a time; later ones start when earlier ones end, in block order.
    seed: chooses the interleaving of warps and asynchronous operations.

    Raises:
        PtxError: the text cannot be modelled, or the program does something undefined (see errors).
    """
    module = t.parse(ptx)
    if entry not in module.entries:
        raise LaunchError(f"no entry {entry}; the module has {', '.join(module.entries)}")
    shape = None if cluster is None else triple(cluster)
    machine = Machine(
        module, module.entries[entry], triple(grid), triple(block), shape, smem_bytes, seed
    )
    machine.check_races, machine.check_uninitialised = (
        check_races,
        check_uninitialised and check_races,
    )
    machine.pack_parameters(list(args))
    machine.code = decode_entry(module.entries[entry], machine.symbols)
    return machine.launch(resident)
