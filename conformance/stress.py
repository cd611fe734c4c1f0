"""Litmus tests on machines that show outcomes by chance: how to stress them, and what that proves.

    judged = judge(test, machine, StressConfig(iterations=1000, seed=1))

That a forbidden outcome was not seen proves something only where the machine, under the same
stress, does show it for a *mutant*: the same program with one order taken away. So a test passes if
the outcome was never seen, and a mutant showed it at least three times in as many runs, which is
a chance of 95 in 100 to have seen it here. Where no mutant shows it, the verdict is VACUOUS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from random import Random
from typing import Any, Literal

from reftile.conformance.verdicts import Verdict

from reftile.interp.model.event_set import EventSet
from reftile.interp.model.events import Block, Op, Program
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest
from reftile.interp.model.values import evaluate
from reftile.interp.model.view import ViewMachine

ENOUGH = 3
"""Sightings of a mutant's outcome that make its absence elsewhere mean something."""


@dataclass(frozen=True)
class StressConfig:
    """How a test is run and what else the machine does meanwhile.

    iterations: launches. instances: of the test in one launch; each block has a role in several, by
    a permutation that steps by `permutation`. stride: elements between places of one instance.
    Percentages say how often something is done in a launch: blocks shuffled, a barrier before the
    test, other blocks that store and load (`stress`), and the testing ones before they begin
    (`prestress`). The lines that they use are `stress_line` bytes long, `stress_targets` of them.
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
    if min(config.iterations, config.instances, config.stride, config.permutation) < 1:
        raise ValueError("iterations, instances, stride and permutation are positive")


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


@dataclass
class Histogram:
    """How often each outcome was seen. hits: of the outcome that the test asks for."""

    outcomes: dict[str, int] = field(default_factory=dict)
    hits: int = 0
    runs: int = 0

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


def run_on_views(test: LitmusTest, config: StressConfig) -> Histogram:
    """The view machine as a device: one sample for each iteration; stress does nothing to it."""
    check_config(config)
    machine, found = _view_machine(test.program), Histogram(runs=config.iterations)
    for number in range(config.iterations):
        values = dict(machine.run(config.seed * 1_000_003 + number).outcome)
        text = ", ".join(f"{name}={value}" for name, value in values.items())
        found.outcomes[text] = found.outcomes.get(text, 0) + 1
        wanted = test.program.exists
        found.hits += wanted is not None and evaluate(wanted, values) == 1
    return found


@cache
def _view_machine(program: Program) -> ViewMachine:
    return ViewMachine(EventSet(program))


# Mutants


def mutants(test: LitmusTest) -> Iterator[tuple[str, LitmusTest]]:
    """Yield (what was weakened, test): programs with one order less that reach the outcome.

    Programs without a race come first, as these mean something before they are lowered. A racy one
    is to be weakened in the machine code, where a race still has some behaviour.
    """
    racy: list[tuple[str, LitmusTest]] = []
    for what, program in weakened(test.program):
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
    """Yield (what, program) for every token, order and scope that can be taken away alone."""
    for number, block in enumerate(program.blocks):
        for at, op in enumerate(block.ops):
            for what, changed in _weaker(op):
                ops = (*block.ops[:at], changed, *block.ops[at + 1 :])
                yield f"{block.name}.{op.name}: {what}", _with_block(program, number, ops)


def _with_block(program: Program, number: int, ops: tuple[Op, ...]) -> Program:
    blocks = list(program.blocks)
    blocks[number] = replace(blocks[number], ops=ops)
    return replace(program, blocks=tuple[Block, ...](blocks))


def _weaker(op: Op) -> Iterator[tuple[str, Op]]:
    for edge in op.after:
        rest = tuple(e for e in op.after if e is not edge)
        yield f"no token from {edge.op}", replace(op, after=rest)
    if op.order in ("acquire", "release", "acq_rel"):
        yield f"{op.order} to relaxed", replace(op, order="relaxed")
    if op.scope in ("device", "sys"):
        yield f"scope {op.scope} to block", replace(op, scope="block")


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


def judge(test: LitmusTest, machine: Machine, config: StressConfig) -> Judged:
    """Run a test and, where its outcome is forbidden, mutants until one shows it."""
    where = f"seed {config.seed}, {config.iterations} iterations"
    if test.expected.race:
        why = "the program races: whatever it does proves nothing"
        return Judged(Verdict.VACUOUS, why, Histogram())
    found = machine(test, config)
    if test.expected.outcome == "allow":
        if found.hits:
            return Judged(Verdict.PASS, "", found)
        return Judged(Verdict.VACUOUS, "an allowed outcome was never seen", found)
    if found.hits:
        return Judged(
            Verdict.FAIL, f"a forbidden outcome was seen {found.hits} times: {where}", found
        )
    for what, mutant in mutants(test):
        seen = machine(mutant, config).hits
        if seen >= ENOUGH:
            return Judged(Verdict.PASS, "", found, what, seen)
    return Judged(Verdict.VACUOUS, f"no mutant shows the outcome here: {where}", found)
