"""Cases of operations that work on each element by itself, made from their records.

For each combination of element types: one case for each combination of attributes on many values,
and one for each of a few shapes. Inputs for which the operation is undefined are left out here;
they are traps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod

import numpy as np
from reftile.conformance import values
from reftile.conformance.cases import Case, Program
from reftile.conformance.limits import limit_for
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.conversions import CONVERSION_ORACLES
from reftile.conformance.oracle.floats import FLOAT_ORACLES, sums
from reftile.conformance.oracle.formats import FORMATS, Codes, flush
from reftile.conformance.oracle.functions import FUNCTION_ORACLES, UNARY
from reftile.conformance.oracle.integers import INTEGER_ORACLES
from reftile.conformance.program import BLOCK, Kernel, Shape, attribute_text, tile
from reftile.conformance.suites.common import (
    SHAPES,
    Attributes,
    Settings,
    attribute_choices,
    definition,
    label,
    operand_dtypes,
    result_dtypes,
    rule_ids,
    type_choices,
)

Oracle = Callable[[Call], Answer]
ORACLES: dict[str, Oracle] = {
    **FLOAT_ORACLES,
    **FUNCTION_ORACLES,
    **INTEGER_ORACLES,
    **{k: v for k, v in CONVERSION_ORACLES.items() if k not in ("pack", "unpack")},
}
"""What gives the expected values of each operation."""

SLOW = frozenset({"pow", "fpowi", "atan2"})
"""Functions of two numbers, for which mpmath takes its time."""


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    for op in ORACLES:
        record = definition(op)
        for types in type_choices(record):
            for attributes in _attributes(op, types, settings):
                yield _case(settings, op, types, attributes, None)
            if settings.budget == "exhaustive" and types == {"T": "f32"} and op in EVERY_F32:
                for part in range(CHUNKS):
                    yield _chunk(settings, op, part)
            for shape in _shapes(settings, types):
                attributes = next(attribute_choices(record, types))
                yield _case(settings, op, types, attributes, shape)


EVERY_F32 = frozenset({*UNARY, *"sqrt rcp negf absf ceil floor truncf roundf".split()})
"""Operations on one f32 of which `exhaustive` tests all 2**32, in this many cases each."""
CHUNKS = 1024


def _chunk(settings: Settings, op: str, part: int) -> Case:
    id = f"ops/{op}/f32/every-{part:04d}"
    build = partial(_chunk_build, settings, op, part)
    return Case(id, "ops", op, "f32", rule_ids(op), build, (f"op:{op}",))


def _chunk_build(settings: Settings, op: str, part: int) -> Program:
    size = (1 << 32) // CHUNKS
    bits = np.arange(part * size, (part + 1) * size, dtype=np.uint64)
    attributes = next(attribute_choices(definition(op), {"T": "f32"}))
    answer = ask(settings, op, [bits], ["f32"], ["f32"], attributes)
    blocks = size // BLOCK
    return kernel(op, ["f32"], ["f32"], attributes, [bits], [answer], (BLOCK,), blocks)


def _attributes(op: str, types: dict[str, str], settings: Settings) -> Iterator[Attributes]:
    record = definition(op)
    found = [a for a in attribute_choices(record, types) if not _is_empty(types, a)]
    if settings.budget == "wimpy" and op in ("ftof", "ftoi", "itof"):
        # Conversions have hundreds of combinations: some of them, but every mode for some pair of
        # types.
        pick = settings.rng(f"{op}{types}").permutation(len(found))[:2]
        found = [found[i] for i in sorted(pick.tolist())]
    yield from found


def _is_empty(types: dict[str, str], attributes: Attributes) -> bool:
    """Whether no operand has a result: powers of two, rounded up, are no signed i1."""
    upwards = attributes.get("rounding") == "positive_inf" and not attributes.get("saturating")
    signed = attributes.get("signedness") == "signed"
    return upwards and signed and types == {"T": "f8e8m0", "I": "i1"}


def _shapes(settings: Settings, types: dict[str, str]) -> tuple[Shape, ...]:
    shapes = tuple(settings.fit(s) for s in SHAPES)
    if settings.budget != "wimpy":
        return shapes
    names = sorted(types.values())
    return (shapes[len("".join(names)) % len(shapes)],)


def _case(
    settings: Settings, op: str, types: dict[str, str], attributes: Attributes, shape: Shape | None
) -> Case:
    name = "-".join(types.values())
    tail = label(attributes) if shape is None else "shape-" + ("x".join(map(str, shape)) or "0")
    id = f"ops/{op}/{name}/{tail}"
    build = partial(_build, settings, id, op, types, attributes, shape)
    return Case(id, "ops", op, next(iter(types.values())), rule_ids(op), build, (f"op:{op}",))


def _inputs(
    settings: Settings, id: str, op: str, dtypes: list[str], shape: Shape | None
) -> list[Codes]:
    rng = settings.rng(id)
    if shape is not None:
        # More than needed, for operations that are undefined for most of them.
        return [_some(d, 40 + 4 * prod(shape), rng) for d in dtypes]
    if len(dtypes) == 1:
        return [values.unary_inputs(dtypes[0], settings.budget, rng)]
    columns = values.tuples(dtypes, settings.budget, rng)
    if op in SLOW and columns[0].size > 120 and settings.budget != "exhaustive":
        limit = 120 if settings.budget == "wimpy" else 1500
        pick = rng.permutation(columns[0].size)[:limit]
        columns = [c[pick] for c in columns]
    if op in ("addf", "subf", "fma", "divf", "mulf"):
        columns = _with_close_calls(op, dtypes[0], columns, rng)
    return columns


def _some(dtype: str, count: int, rng: np.random.Generator) -> Codes:
    pool = np.concatenate([values.edges(dtype), values.random_codes(dtype, 40, rng)])
    return pool[rng.integers(0, pool.size, count)]


def _with_close_calls(
    op: str, dtype: str, columns: list[Codes], rng: np.random.Generator
) -> list[Codes]:
    """Further inputs at which sums cancel to a few last bits, or products land near a tie."""
    count = min(columns[0].size, 400)
    x, y = columns[0][-count:], columns[1][-count:]
    f = FORMATS[dtype]
    sign = np.uint64(1 << (f.width - 1))
    nearly = np.maximum(x, np.uint64(3)) - rng.integers(0, 3, count, dtype=np.uint64)
    if op == "fma":
        one = Call("mulf", [x, y], [dtype, dtype], [dtype])
        product = FLOAT_ORACLES["mulf"](one).low
        more = [x, y, product ^ sign]
    elif op in ("addf", "subf"):
        more = [x, nearly ^ (sign if op == "addf" else np.uint64(0))]
    elif op == "divf":
        more = [x, nearly]
    else:
        more = [sums(x, y, f, "nearest_even"), y]
    return [np.concatenate([c, m]) for c, m in zip(columns, more, strict=True)]


def _build(
    settings: Settings,
    id: str,
    op: str,
    types: dict[str, str],
    attributes: Attributes,
    shape: Shape | None,
) -> Program:
    record = definition(op)
    dtypes, results = operand_dtypes(record, types), result_dtypes(record, types)
    columns = _inputs(settings, id, op, dtypes, shape)
    answer = ask(settings, op, columns, dtypes, results, attributes)
    good = np.arange(answer.size)
    if answer.undefined is not None:
        good = np.flatnonzero(~answer.undefined)
    if shape is not None and answer.free is not None and not answer.free[good].all():
        # Few elements: let none of them be one about which nothing is said.
        good = good[~answer.free[good]]
    blocks, extent = 1, prod(shape or ())
    if shape is None:
        # Copies of the last element fill the last tile. 4-bit elements fill whole bytes.
        blocks = -(-good.size // BLOCK)
        extent = -(-good.size // blocks)
        extent += extent % 2
        (extent,) = settings.fit((extent,))
    columns, answer = pick(
        columns, answer, good[np.minimum(np.arange(extent * blocks), good.size - 1)]
    )
    part = (extent,) if shape is None else shape
    program = kernel(record.name, dtypes, results, attributes, columns, [answer], part, blocks)
    if set(dtypes) & set(settings.flushes) and not attributes.get("flush_to_zero"):
        # Subnormal operands may count as zeros, whatever becomes of results.
        flushed = [
            flush(c, FORMATS[d]) if d in settings.flushes else c
            for c, d in zip(columns, dtypes, strict=True)
        ]
        program.others["out0"] = [ask(settings, op, flushed, dtypes, results, attributes)]
    return program


def ask(
    settings: Settings,
    op: str,
    columns: list[Codes],
    dtypes: list[str],
    results: list[str],
    attributes: Attributes,
) -> Answer:
    """The oracle's answer, with the limit of the record's accuracy class."""
    record = definition(op)
    call = Call(op, columns, dtypes, results, dict(attributes))
    names = tuple(p.name for p in record.operands)
    claim = settings.claim(op, results[0])
    call.limit = limit_for(record.accuracy, call, names, claim)
    return ORACLES[op](call)


def pick(columns: list[Codes], answer: Answer, where: np.ndarray) -> tuple[list[Codes], Answer]:
    """Some of the inputs with their answers."""
    picked = Answer(answer.dtype, answer.low[where], answer.high[where], answer.same_bits)
    picked.free = None if answer.free is None else answer.free[where]
    return [c[where] for c in columns], picked


def kernel(
    op: str,
    dtypes: list[str],
    results: list[str],
    attributes: Attributes,
    columns: list[Codes],
    answers: list[Answer],
    shape: Shape,
    blocks: int = 1,
) -> Program:
    """A kernel that loads the operands, applies the operation once and stores the results."""
    k = Kernel(grid=(blocks, 1, 1))
    names = [
        k.load(f"in{i}", d, c, shape, blocks)
        for i, (d, c) in enumerate(zip(dtypes, columns, strict=True))
    ]
    found = [k.name("r") for _ in results]
    kinds = ", ".join(tile(shape, d) for d in results)
    k.emit(f"{', '.join(found)} = {op} {', '.join(names)}{attribute_text(attributes)} : {kinds}")
    for i, (value, answer) in enumerate(zip(found, answers, strict=True)):
        k.store(f"out{i}", value, shape, answer, blocks)
    return k.program()
