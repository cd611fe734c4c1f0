"""Litmus tests on machines that show outcomes by chance: how to stress them, and what that proves.

    judged = judge(test, machine, StressConfig(iterations=1000, seed=1))

A machine is a function `run_litmus(test, config) -> Histogram`. What a configuration means is fixed
here, so that all machines do the same: `launches` says what happens in each launch, `roles` and
`places` who plays which part of which instance on which memory. `run_on_views` is such a machine:
it carries launches out on the view machine of the memory model.

That a forbidden outcome was not seen proves something only where the machine, under the same
stress, does show it for a *mutant*: the same program with one order taken away. So a test passes if
the outcome was never seen, and a mutant showed it at least three times in as many runs, which is
a chance of 95 in 100 to have seen it here. Where no mutant shows it, the verdict is VACUOUS.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

from reftile.conformance.verdicts import Verdict

from reftile.interp.model.event_set import EventSet
from reftile.interp.model.events import Access, Block, Edge, Op, Order, Program
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest
from reftile.interp.model.values import BinaryOp, Const, Expr, Reg, binary, both, evaluate
from reftile.interp.model.view import Sampling, ViewMachine

ENOUGH = 3
"""Sightings of a mutant's outcome that make its absence elsewhere mean something."""


@dataclass(frozen=True)
class StressConfig:
    """How a test is run and what else the machine does meanwhile.

    iterations: launches. instances: of the test in one launch; each block has a role in several, by
    a permutation that steps by `permutation`. stride: elements between places of one instance.
    Percentages say how often something is done in a launch: blocks shuffled, a barrier before the
    test, other blocks that store and load (`stress`), and the testing ones before they begin
    (`prestress`). The lines that they use are `stress_line` bytes long, `stress_targets` of them,
    in a scratch memory of 32 times that; `assignment` says who uses which.
    """

    iterations: int = 100
    seed: int = 0
    testing_blocks: int = 256
    most_blocks: int = 1024
    threads: int = 128
    instances: int = 256
    permutation: int = 419
    stride: int = 4
    shuffle: int = 50
    barrier: int = 50
    stress: int = 50
    stress_iterations: int = 256
    prestress: int = 50
    prestress_iterations: int = 64
    stress_line: int = 64
    stress_targets: int = 4
    stress_pattern: Literal["store-store", "store-load", "load-store", "load-load"] = "store-load"
    assignment: Literal["round-robin", "chunked"] = "round-robin"


def random_config(seed: int, iterations: int = 100) -> StressConfig:
    """A configuration drawn from the ranges that have been found useful on GPUs."""
    random = Random(f"stress {seed}")
    testing = random.randint(2, 1024)
    return StressConfig(
        iterations=iterations,
        seed=seed,
        testing_blocks=testing,
        most_blocks=random.randint(testing, 1024),
        threads=random.choice((32, 64, 128, 256)),
        instances=testing,
        stride=random.randint(1, 7),
        shuffle=random.randint(0, 100),
        barrier=random.randint(0, 100),
        stress=random.randint(0, 100),
        stress_iterations=random.randint(0, 1024),
        prestress=random.randint(0, 100),
        prestress_iterations=random.randint(0, 128),
        stress_line=2 ** random.randint(2, 10),
        stress_targets=random.randint(1, 16),
        stress_pattern=random.choice(("store-store", "store-load", "load-store", "load-load")),
        assignment=random.choice(("round-robin", "chunked")),
    )


def check_config(config: StressConfig) -> None:
    """Refuse a configuration that no harness can run.

    Raises:
        ValueError: says what is wrong.
    """
    for entry in fields(config):
        value = getattr(config, entry.name)
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{entry.name} is negative")
    if not 0 < config.testing_blocks <= config.most_blocks:
        raise ValueError("testing_blocks lies between 1 and most_blocks")
    for name in ("shuffle", "barrier", "stress", "prestress"):
        if getattr(config, name) > 100:
            raise ValueError(f"{name} is a percentage")
    for name in ("iterations", "instances", "stride", "permutation", "threads", "stress_targets"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name} is positive")
    if config.stress_line < 4:
        raise ValueError("a line to stress has 4 bytes at least")


def roles(config: StressConfig, blocks: int) -> list[list[tuple[int, int]]]:
    """For each testing block, its (instance, role) pairs: each role of each instance is done once.

    Role r of instance i falls to the block that the permutation moves r steps from i, so that a
    block plays different roles in different instances.
    """
    found: list[list[tuple[int, int]]] = [[] for _ in range(config.testing_blocks)]
    for instance in range(config.instances):
        for role in range(blocks):
            moved = instance + role * config.permutation
            if config.assignment == "chunked":
                moved = moved * config.testing_blocks // max(config.instances, 1)
            found[moved % config.testing_blocks].append((instance, role))
    return found


def places(config: StressConfig, cells: int) -> list[list[int]]:
    """For each instance, the element of the test memory where each of its cells lies.

    Instances are interleaved, and `stride` elements lie between neighbours.
    """
    return [
        [(cell * config.instances + instance) * config.stride for cell in range(cells)]
        for instance in range(config.instances)
    ]


@dataclass(frozen=True)
class Launch:
    """What happens in one launch.

    order: the testing blocks, by the number that the hardware gives them. stressing: for each block
    that stresses, the byte of the scratch memory that it accesses `stress_iterations` times.
    """

    seed: int
    order: tuple[int, ...]
    has_barrier: bool
    has_prestress: bool
    stressing: tuple[int, ...]

    @property
    def has_stress(self) -> bool:
        """Whether any block stresses memory beside the test."""
        return bool(self.stressing)


def scratch_bytes(config: StressConfig) -> int:
    """The size of the memory that is stressed."""
    return 32 * config.stress_line * config.stress_targets


def launches(config: StressConfig) -> Iterator[Launch]:
    """What happens in each launch of a configuration; the same each time."""
    for number in range(config.iterations):
        random = Random(f"launch {config.seed} {number}")

        def happens(percent: int, random: Random = random) -> bool:
            return random.random() * 100 < percent

        order = list(range(config.testing_blocks))
        if happens(config.shuffle):
            random.shuffle(order)
        barrier, stress = happens(config.barrier), happens(config.stress)
        prestress = happens(config.prestress)
        count = random.randint(config.testing_blocks, config.most_blocks) - config.testing_blocks
        lines = random.sample(range(32 * config.stress_targets), config.stress_targets)
        targets = [line * config.stress_line for line in lines]
        stressing: list[int] = []
        if stress and config.stress_iterations:
            for block in range(max(1, count)):
                turn = block % len(targets)
                if config.assignment == "chunked":
                    turn = block * len(targets) // max(1, count)
                stressing.append(targets[turn])
        is_warm = prestress and config.prestress_iterations > 0
        seed = config.seed * 1_000_003 + number
        yield Launch(seed, tuple(order), barrier, is_warm, tuple(stressing))


@dataclass
class Histogram:
    """How often each outcome was seen.

    hits: of the outcome that the test asks for. racy: whether a race was found; only machines that
    look at all executions can say so. forbidden: outcomes besides, that the model does not have;
    machines need not look for them.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    hits: int = 0
    runs: int = 0
    racy: bool = False
    forbidden: list[str] = field(default_factory=list[str])

    @property
    def rate(self) -> float:
        """Hits by runs."""
        return self.hits / self.runs if self.runs else 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "hits": self.hits,
            "runs": self.runs,
            "outcomes": dict(sorted(self.outcomes.items())),
        }


Machine = Callable[[LitmusTest, StressConfig], Histogram]


VIEW_CONFIG = StressConfig(
    testing_blocks=4,
    most_blocks=8,
    instances=1,
    shuffle=100,
    barrier=100,
    stress=100,
    prestress=100,
)
"""One instance in each launch, as stale as can be: what the view machine is good at."""


def staleness(config: StressConfig, launch: Launch) -> float:
    """How often a load of the view machine finds an old value, of the times that it may.

    As on a device, pressure on memory makes it likelier: the more accesses beside the test and
    before it, the more lines they spread over; stores press more than loads.
    """
    if not launch.has_stress and not launch.has_prestress:
        return 0.05
    found = 0.05
    if launch.has_stress:
        stores = config.stress_pattern.count("store") / 2
        spread = min(1.0, config.stress_targets / 4)
        found += (0.5 + 0.25 * stores) * min(1.0, config.stress_iterations / 256) * spread
    if launch.has_prestress:
        found += 0.2 * min(1.0, config.prestress_iterations / 64)
    return min(1.0, found)


def run_on_views(test: LitmusTest, config: StressConfig) -> Histogram:
    """The view machine as a device: each launch runs every instance of the test once.

    Behind a barrier blocks run interleaved, else mostly one after another, in the order that the
    launch gives them; stress decides how stale loads are.
    """
    check_config(config)
    machine, found = _view_machine(test.program), Histogram()
    players = _players(config, len(test.program.blocks))
    wanted = test.program.exists
    for launch in launches(config):
        turn = {block: at for at, block in enumerate(launch.order)}
        stale = staleness(config, launch)
        for instance, blocks in enumerate(players):
            # The role whose block comes first in the launch goes first.
            order = sorted(range(len(blocks)), key=lambda role: turn[blocks[role]])
            sampling = Sampling(1.0 if launch.has_barrier else 0.1, stale, tuple(order))
            execution = machine.run(launch.seed * 65_537 + instance, sampling)
            values = dict(execution.outcome)
            text = ", ".join(f"{name}={value}" for name, value in values.items())
            found.outcomes[text] = found.outcomes.get(text, 0) + 1
            found.hits += wanted is not None and evaluate(wanted, values) == 1
            found.runs += 1
    return found


def _players(config: StressConfig, blocks: int) -> list[list[int]]:
    """For each instance, the testing block that plays each role."""
    found = [[0] * blocks for _ in range(config.instances)]
    for block, pairs in enumerate(roles(config, blocks)):
        for instance, role in pairs:
            found[instance][role] = block
    return found


@cache
def _view_machine(program: Program) -> ViewMachine:
    return ViewMachine(EventSet(program))


# Mutants


def mutants(test: LitmusTest, keeps_order: bool = False) -> Iterator[tuple[str, LitmusTest]]:
    """Yield (what was weakened, test): programs with one order less that reach the outcome.

    Programs without a race come first, as these mean something before they are lowered. A racy one
    is to be weakened in the machine code, where a race still has some behaviour.

    keeps_order: for machines that do what is written in that order, whatever its orders and scopes:
    only programs that may be written otherwise, as a token is missing or as they have a
    read-modify-write in two steps.
    """
    racy: list[tuple[str, LitmusTest]] = []
    for what, program in weakened(test.program):
        if keeps_order and not what.endswith(IN_TWO_STEPS) and NO_TOKEN not in what:
            continue
        result = explore(program)
        if result.allows() is None:
            continue
        expected = replace(test.expected, outcome="allow", race=result.is_racy)
        found = what, replace(test, program=program, expected=expected)
        if result.is_racy:
            racy.append(found)
        else:
            yield found
    yield from racy


def weakened(program: Program) -> Iterator[tuple[str, Program]]:
    """Yield (what, program) for every token, order and scope that can be taken away alone,

    and for every operation that may be done in two steps.
    """
    for weaker in (_less_ordered, _in_steps):
        for number, block in enumerate(program.blocks):
            for at, op in enumerate(block.ops):
                for what, changed in weaker(op):
                    ops = (*block.ops[:at], *changed, *block.ops[at + 1 :])
                    yield f"{block.name}.{op.name}: {what}", _with_block(program, number, ops)


def _with_block(program: Program, number: int, ops: tuple[Op, ...]) -> Program:
    blocks = list(program.blocks)
    blocks[number] = replace(blocks[number], ops=ops)
    return replace(program, blocks=tuple[Block, ...](blocks))


NO_TOKEN, IN_TWO_STEPS = "no token from", "in two steps"


def _less_ordered(op: Op) -> Iterator[tuple[str, tuple[Op, ...]]]:
    for edge in op.after:
        rest = tuple(e for e in op.after if e is not edge)
        yield f"{NO_TOKEN} {edge.op}", (replace(op, after=rest),)
    if op.order in ("acquire", "release", "acq_rel"):
        yield f"{op.order} to relaxed", (replace(op, order="relaxed"),)
    if op.scope in ("device", "sys"):
        yield f"scope {op.scope} to block", (replace(op, scope="block"),)


def _in_steps(op: Op) -> Iterator[tuple[str, tuple[Op, ...]]]:
    """What a machine does that is not atomic, or writes what it should leave alone."""
    if not op.accesses:
        return
    if all(_can_be_apart(access) for access in op.accesses):
        yield f"read and written {IN_TWO_STEPS}", _apart(op)
    elif all(access.kind == "store" for access in op.accesses):
        if len(op.accesses) == 1 and op.accesses[0].location.size in (4, 8):
            yield f"written {IN_TWO_STEPS}", _torn(op)
        if any(access.guard != op.guard for access in op.accesses):
            yield f"masked elements written back {IN_TWO_STEPS}", _widened(op)


_STEPS: Mapping[str, BinaryOp] = {"add": "+", "and": "&", "or": "|", "xor": "^"}
_KEEPS: Mapping[str, BinaryOp] = {"max": ">=", "min": "<="}
"""When the old value stays."""


def _can_be_apart(access: Access) -> bool:
    is_known = access.modify in (*_STEPS, *_KEEPS, "xchg")
    return access.kind == "cas" or (access.kind == "rmw" and is_known and not access.combine)


def _combined(modify: str, old: Expr, value: Expr) -> Expr:
    """What a read-modify-write stores."""
    if modify in _KEEPS:
        keeps = binary(_KEEPS[modify], old, value)
        kept = binary("*", old, keeps)
        return binary("+", kept, binary("*", value, binary("==", keeps, Const(0))))
    return value if modify == "xchg" else binary(_STEPS[modify], old, value)


def _apart(op: Op) -> tuple[Op, Op]:
    """A load and a store, ordered as the read and the write of a read-modify-write are."""
    stores: list[Access] = []
    for access in op.accesses:
        old, value, guard = _old(op, access), access.value, access.guard
        assert value is not None
        if access.kind == "cas":
            assert access.compare is not None
            guard = both(guard, binary("==", old, access.compare))
        else:
            value = _combined(access.modify, old, value)
        write = replace(access, kind="store", value=value, compare=None, register="", guard=guard)
        stores.append(replace(write, otherwise=None))
    reads: Order = "acquire" if op.order in ("acquire", "acq_rel") else "relaxed"
    writes: Order = "release" if op.order in ("release", "acq_rel") else "relaxed"
    return _two_steps(op, _reading(op), reads, stores, writes)


def _widened(op: Op) -> tuple[Op, Op]:
    """A masked store that stores what was there where it is masked off."""
    stores: list[Access] = []
    for access in op.accesses:
        old, value = _old(op, access), access.value
        assert value is not None
        kept = binary("*", old, binary("==", access.guard, Const(0)))
        given = binary("+", binary("*", value, binary("!=", access.guard, Const(0))), kept)
        stores.append(replace(access, value=given, guard=op.guard))
    loads = [replace(access, guard=op.guard) for access in _reading(op)]
    reads: Order = "weak" if op.order == "weak" else "relaxed"
    return _two_steps(op, loads, reads, stores, op.order)


def _torn(op: Op) -> tuple[Op, Op]:
    """A store that writes the lower and the upper half of its element by themselves."""
    (access,) = op.accesses
    place, half = access.location, access.location.size // 2
    assert access.value is not None
    low = binary("&", access.value, Const((1 << (8 * half)) - 1))
    high = binary(">>", access.value, Const(8 * half))
    lower = replace(access, location=replace(place, size=half), value=low)
    upper = replace(access, location=replace(place, start=place.start + half, size=half))
    upper = replace(upper, value=high)
    return _two_steps(op, [lower], op.order, [upper], op.order)


def _old(op: Op, access: Access) -> Reg:
    return Reg(access.register or f"{op.name}_old[{access.element}]")


def _reading(op: Op) -> list[Access]:
    """Loads of what the accesses of an operation touch."""
    loads: list[Access] = []
    for access in op.accesses:
        read = replace(access, kind="load", value=None, compare=None)
        loads.append(replace(read, register=_old(op, access).name))
    return loads


def _two_steps(
    op: Op, one: Sequence[Access], order: Order, other: Sequence[Access], then: Order
) -> tuple[Op, Op]:
    """An operation done as two; the second is what others know by its name."""
    first = replace(op, name=f"{op.name}_first", accesses=tuple(one), order=order)
    second = replace(op, accesses=tuple(other), order=then, after=(Edge(first.name),))
    return first, second


# Judging


@dataclass(frozen=True)
class Judged:
    """A verdict with what it rests on. mutant: what was weakened in the one that was seen."""

    verdict: Verdict
    why: str
    found: Histogram
    mutant: str = ""
    seen: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        shown: Mapping[str, Any] = {"mutant": self.mutant, "seen": self.seen}
        return {"verdict": self.verdict.value, "why": self.why, **shown, **self.found.to_json()}


def judge(
    test: LitmusTest, machine: Machine, config: StressConfig, keeps_order: bool = False
) -> Judged:
    """Run a test and, where its outcome is forbidden, mutants until one shows it.

    keeps_order: see `mutants`.
    """
    where = f"seed {config.seed}, {config.iterations} iterations"
    if test.expected.race:
        why = "the program races: whatever it does proves nothing"
        return Judged(Verdict.VACUOUS, why, Histogram())
    found = machine(test, config)
    if found.forbidden:
        what = "; ".join(found.forbidden[:4])
        return Judged(Verdict.FAIL, f"the model has no outcome {what}: {where}", found)
    if test.expected.outcome == "allow":
        if found.hits:
            return Judged(Verdict.PASS, "", found)
        return Judged(Verdict.VACUOUS, "an allowed outcome was never seen", found)
    if found.hits:
        return Judged(
            Verdict.FAIL, f"a forbidden outcome was seen {found.hits} times: {where}", found
        )
    for what, mutant in mutants(test, keeps_order):
        seen = machine(mutant, config).hits
        if seen >= ENOUGH:
            return Judged(Verdict.PASS, "", found, what, seen)
    return Judged(Verdict.VACUOUS, f"no mutant shows the outcome here: {where}", found)


# Tuning


@dataclass(frozen=True)
class Tuned:
    """The configuration under which a mutant is seen most, and how often it is."""

    config: StressConfig
    rate: float


def tune(
    mutant: LitmusTest,
    machine: Machine,
    configs: int = 50,
    iterations: int = 50,
    seconds: float = 64,
) -> Tuned:
    """Try random configurations on a mutant, and give the best.

    Stops after `configs`, or after `seconds`. What it gives is worth keeping: see `save_profile`.
    """
    best = Tuned(random_config(0, iterations), 0.0)
    end = time.monotonic() + seconds
    for seed in range(configs):
        config = random_config(seed, iterations)
        rate = machine(mutant, config).rate
        if rate > best.rate:
            best = Tuned(config, rate)
        if time.monotonic() > end:
            break
    return best


def save_profile(path: Path, device: str, tuned: Mapping[str, Tuned]) -> None:
    """Write the configurations found for a device, by test."""
    data = {name: {"rate": t.rate, **asdict(t.config)} for name, t in sorted(tuned.items())}
    path.write_text(json.dumps({"device": device, "tests": data}, indent=1) + "\n", "utf-8")


def load_profile(path: Path, device: str) -> dict[str, Tuned]:
    """Read what `save_profile` wrote.

    Raises:
        ValueError: it is for another device.
    """
    data = json.loads(path.read_text("utf-8"))
    if data["device"] != device:
        raise ValueError(f"{path} is for {data['device']}, and this is {device}")
    found: dict[str, Tuned] = {}
    for name, entry in data["tests"].items():
        rate = entry.pop("rate")
        found[name] = Tuned(StressConfig(**entry), rate)
    return found
