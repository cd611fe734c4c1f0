"""`reftile explore`: every execution that the memory model permits a small kernel."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reftile.cli.inputs import bad
from reftile.cli.output import FOUND, Exit, Output, print_diagnosis
from reftile.cli.run import Request, load
from reftile.interp.model.event_set import EventSet
from reftile.interp.model.execution import Execution, Outcome, Race, Result
from reftile.interp.model.explain import missing_edge
from reftile.interp.model.explore import explore
from reftile.interp.model.render import render_html
from reftile.interp.model.smt import Solver
from reftile.interp.model.translate import Translation, translate
from reftile.interp.model.values import BinaryOp, Const, Expr, Reg, binary, evaluate, negate
from reftile.interp.model.view import ViewMachine
from reftile.ir.diagnostics import NOWHERE, Diagnosis

if TYPE_CHECKING:
    from rich.console import Console

Seen = tuple[tuple[str, str], ...]
"""What the host finds: places with their values, as text."""


RACE_STEPS = 1_000
"""Candidates looked at for other races and outcomes once a race is known."""
CANDIDATES = 50_000
"""Candidate executions looked at before a kernel counts as too large: about a minute."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to explore.

    unroll: iterations of loops that end by a loaded value. sample: executions of the view machine
    instead of all. smt: ask a solver. exists: the outcome asked for, or "".
    """

    unroll: int = 3
    sample: int = 0
    smt: bool = False
    exists: str = ""
    html: Path | None = None
    limit: int = CANDIDATES


@dataclass(slots=True)
class Findings:
    """What was found. how: by which means. complete: whether everything was looked at."""

    how: str
    outcomes: Counter[Seen] = field(default_factory=Counter[Seen])
    races: list[Race] = field(default_factory=list[Race])
    diagnoses: list[Diagnosis] = field(default_factory=list[Diagnosis])
    complete: bool = True
    cut: int = 0
    shown: Execution | None = None
    answer: bool | None = None


def run(output: Output, request: Request, options: Options) -> None:
    """Explore a kernel and print what was found.

    Raises:
        Exit: with code 1, if there is a race or another error.
    """
    loaded = load(request)
    kernel, values = loaded.kernel(loaded.values)
    translation = translate(kernel, loaded.grid, values, options.unroll)
    wanted = parse_condition(options.exists, translation) if options.exists else None
    if options.smt:
        found = _solve(translation, wanted)
    elif options.sample:
        found = _sample(translation, options.sample, request.seed, wanted)
    else:
        found = _search(translation, options.limit, wanted)
    if options.html is not None and found.shown is not None:
        try:
            options.html.write_text(render_html(found.shown), encoding="utf-8")
        except OSError as error:
            raise bad(f"{options.html}: {error.strerror or error}") from None
    found.diagnoses[:0] = _race_diagnoses(found.races)
    output.result(
        _as_data(loaded.name, translation, found),
        lambda console: _render(console, loaded.name, translation, found, options),
    )
    if any(d.severity == "error" for d in found.diagnoses):
        raise Exit(FOUND)


# Engines


def _search(translation: Translation, limit: int, wanted: Expr | None) -> Findings:
    # A question is answered by all executions, even of a program that races.
    race_steps = RACE_STEPS if wanted is None else None
    result = explore(translation.program, step_limit=limit, race_steps=race_steps)
    found = Findings(f"{result.steps} candidates", complete=result.complete)
    for outcome, execution in result.outcomes.items():
        _take(found, translation, outcome, execution, wanted)
    found.races = result.races
    found.diagnoses += _problems(translation, result)
    if found.races:
        found.shown = found.races[0].execution
    return found


def _sample(translation: Translation, count: int, seed: int, wanted: Expr | None) -> Findings:
    machine = ViewMachine(translation.program)
    found = Findings(f"{count} samples, seeds {seed} to {seed + count - 1}", complete=False)
    for number in range(seed, seed + count):
        execution = machine.run(number)
        _take(found, translation, execution.outcome, execution, wanted)
        if not found.races and execution.race:
            found.races, found.shown = execution.races(), execution
    return found


def _solve(translation: Translation, wanted: Expr | None) -> Findings:
    solver = Solver(translation.program)
    found = Findings("a solver", complete=True)
    racing = solver.find_race()
    if racing is not None:
        found.races, found.shown = racing.races(), racing
    for execution in solver.outcomes():
        _take(found, translation, execution.outcome, execution, wanted)
    found.complete = solver.is_complete
    return found


def _take(
    found: Findings,
    translation: Translation,
    outcome: Outcome,
    execution: Execution,
    wanted: Expr | None,
) -> None:
    """Count an execution's outcome, unless it was cut; keep one that answers the question."""
    values = dict(outcome)
    if any(evaluate(cut.guard, values) == 1 for cut in translation.cuts):
        found.cut += 1
        return
    exits = {leave.register for leave in translation.program.exits}
    seen = tuple((k, translation.show(k, v)) for k, v in outcome if k in exits)
    found.outcomes[seen] += 1
    if wanted is not None:
        hit = evaluate(wanted, values) == 1
        found.answer = bool(found.answer) or hit
        if hit and not found.races:
            found.shown = execution
    found.shown = found.shown or execution
    for check in translation.checks:
        broken = evaluate(check.guard, values) == 1 and evaluate(check.condition, values) == 0
        if broken and not any(d.span == check.span for d in found.diagnoses):
            found.diagnoses.append(
                Diagnosis("assert.failed", f"{check.message}: fails in some execution", check.span)
            )


# Findings


def _race_diagnoses(races: list[Race]) -> list[Diagnosis]:
    """One for each pair of places in the text that race, whichever blocks come there."""
    found: dict[frozenset[object], Diagnosis] = {}
    others: Counter[frozenset[object]] = Counter()
    for race in races:
        events = race.execution.events
        units = [events.units[events.events[e].unit] for e in (race.first, race.second)]
        ops = [events.ops[u.op][1] if u.op >= 0 else None for u in units]
        spans = [op.span if op is not None else NOWHERE for op in ops]
        places: list[object] = [
            (span.start, span.end) if span is not NOWHERE else unit.op
            for span, unit in zip(spans, units, strict=True)
        ]
        key = frozenset(places)
        if key in found:
            others[key] += 1
            continue
        texts = [events.describe(race.first), events.describe(race.second)]
        found[key] = Diagnosis(
            "model.race",
            str(race),
            spans[1],
            missing_edge(race),
            ((f"`{texts[0]}` is here", spans[0]),),
            data={
                "events": texts,
                "lines": [span.line for span in spans],
                "missing": missing_edge(race),
            },
        )
    return [_with_others(diagnosis, others[key]) for key, diagnosis in found.items()]


def _with_others(diagnosis: Diagnosis, count: int) -> Diagnosis:
    if not count:
        return diagnosis
    pairs = "1 more pair" if count == 1 else f"{count} more pairs"
    note = f"the same two operations race in {pairs} of accesses", None
    data = {**diagnosis.data, "more": count}
    return replace(diagnosis, notes=(*diagnosis.notes, note), data=data)


def _problems(translation: Translation, result: Result) -> list[Diagnosis]:
    ops = [op for block in translation.program.blocks for op in block.ops]
    found: list[Diagnosis] = []
    for problem in dict.fromkeys(result.problems):
        spans = [op.span for op in ops for a in op.accesses if a.name and a.name in problem]
        found.append(Diagnosis("model.problem", problem, spans[0] if spans else NOWHERE))
    return found


# The question


_COMPARISONS: dict[type[ast.cmpop], BinaryOp] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_ARITHMETIC: dict[type[ast.operator], BinaryOp] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


def parse_condition(text: str, translation: Translation) -> Expr:
    """Read `out[0] == 1 and (flag[0] == 0 or not b1.load[0] == 2)`.

    Raises:
        ReftileError: it is no such condition, or names what nothing reads or writes.
    """
    program = translation.program
    known = {leave.register for leave in program.exits}
    known |= {a.register for b in program.blocks for op in b.ops for a in op.accesses}

    def read(node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=int(value)):
                return Const(value)
            case ast.BoolOp(op=op, values=parts):
                found = read(parts[0])
                for part in parts[1:]:
                    found = binary("&" if isinstance(op, ast.And) else "|", found, read(part))
                return found
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return negate(read(inner))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return binary("-", Const(0), read(inner))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                return binary(_COMPARISONS[type(op)], read(left), read(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return binary(_ARITHMETIC[type(op)], read(left), read(right))
            case ast.Name() | ast.Attribute() | ast.Subscript():
                name = ast.unparse(node).replace(", ", ",").replace("(", "").replace(")", "")
                if name in known:
                    return Reg(name)
                shown = ", ".join(sorted(n for n in known if n)[:12])
                raise bad(f"nothing is called `{name}`", f"there are {shown}")
            case _:
                raise bad(f"`{ast.unparse(node)}` is no part of a condition")

    try:
        return read(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise bad(f"`{text}` is not a condition", "write `out[0] == 1 and x[1] != 0`") from None


# Output


def _as_data(name: str, translation: Translation, found: Findings) -> dict[str, object]:
    return {
        "kernel": name,
        "blocks": len(translation.program.blocks),
        "events": len(EventSet(translation.program).events),
        "how": found.how,
        "complete": found.complete,
        "race_free": _is_race_free(translation, found),
        "outcomes": [{"values": dict(o), "seen": n} for o, n in sorted(found.outcomes.items())],
        "cut": found.cut,
        "exists": found.answer,
        "findings": [d.to_json() for d in found.diagnoses],
    }


def _is_race_free(translation: Translation, found: Findings) -> bool:
    """Said only where every execution was looked at, to its end."""
    return found.complete and not found.races and not (translation.cuts and found.cut)


def _render(
    console: Console, name: str, translation: Translation, found: Findings, options: Options
) -> None:
    program = translation.program
    count = len(EventSet(program).events)
    console.print(f"{name}: {len(program.blocks)} blocks, {count} events, {found.how}")
    for diagnosis in found.diagnoses:
        print_diagnosis(console, diagnosis)
    if found.races:
        among = "" if found.complete else ", among other ways"
        console.print(
            f"the program races, so nothing is promised; without that it could end with{among}"
        )
    for outcome, times in sorted(found.outcomes.items()):
        values = ", ".join(f"{place} = {value}" for place, value in outcome) or "nothing written"
        console.print(f"  {values}" + (f"  ({times}x)" if options.sample else ""))
    if found.answer is not None:
        console.print(f"{options.exists}: {'possible' if found.answer else 'impossible'}")
    for cut in {(c.span, c.count): c for c in translation.cuts}.values():
        console.print(f"the loop at {cut.span} was followed for {cut.count} iterations")
    if _is_race_free(translation, found):
        console.print("race-free: every execution was looked at")
    elif not found.races:
        console.print("no race found, but not every execution was looked at")
    if options.html is not None:
        console.print(f"drawn in {options.html}")
