"""Executions of event programs, and what a set of them says."""

from __future__ import annotations

from dataclasses import dataclass, field

from reftile.interp.model.evaluate import Relation
from reftile.interp.model.event_set import EventSet
from reftile.interp.model.events import Program
from reftile.interp.model.values import Expr, Value, evaluate

Outcome = tuple[tuple[str, Value], ...]
"""Registers with their values, by name; a register of a branch not taken is absent."""


@dataclass(frozen=True, slots=True)
class Execution:
    """A consistent candidate.

    reads_from: the write event of each read event. exists: bit set of the events that happen.
    race: the pairs of events that race, both ways round.
    """

    events: EventSet
    reads_from: dict[int, int]
    rf: Relation
    co: Relation
    tok: Relation
    exists: int
    outcome: Outcome
    race: Relation

    def value(self, register: str) -> Value | None:
        """Return the value of a register, or None if it has none."""
        return dict(self.outcome).get(register)

    def races(self) -> list[Race]:
        """Return the racing pairs, each once."""
        pairs = sorted({(min(p), max(p)) for p in self.events.space.pairs(self.race)})
        return [Race(first, second, self) for first, second in pairs]


@dataclass(frozen=True, slots=True)
class Race:
    """Two events that race in an execution."""

    first: int
    second: int
    execution: Execution

    def __str__(self) -> str:
        events = self.execution.events
        return f"race between `{events.describe(self.first)}` and `{events.describe(self.second)}`"


@dataclass(slots=True)
class Result:
    """What an exploration found.

    complete: False if it stopped after a race; then nothing is said about other outcomes.
    races: every pair that races in some execution looked at, with the first such execution.
    problems: what is wrong in some execution besides races: an access out of bounds, poison that
    decides a branch, an address, a mask or a comparison.
    steps: candidates looked at, finished or not.
    """

    program: Program
    outcomes: dict[Outcome, Execution] = field(default_factory=dict[Outcome, Execution])
    races: list[Race] = field(default_factory=list[Race])
    problems: list[str] = field(default_factory=list[str])
    complete: bool = True
    steps: int = 0
    executions: int = 0

    @property
    def is_racy(self) -> bool:
        """Whether some consistent execution races."""
        return bool(self.races)

    @property
    def is_race_free(self) -> bool:
        """Whether no consistent execution races, all having been seen."""
        return self.complete and not self.races

    def allows(self, condition: Expr | None = None) -> Execution | None:
        """Return an execution whose outcome meets the condition (the program's own by default)."""
        wanted = condition if condition is not None else self.program.exists
        if wanted is None:
            return None
        for outcome, execution in self.outcomes.items():
            if evaluate(wanted, dict(outcome)) == 1:
                return execution
        return None
