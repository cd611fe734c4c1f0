"""Cases of reductions and scans:

exact functions of one and several operands, and sums of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
from reftile.conformance import values
from reftile.conformance.cases import Case, Program
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.floats import FLOAT_ORACLES
from reftile.conformance.oracle.formats import FORMATS, Codes, codes
from reftile.conformance.oracle.integers import INTEGER_ORACLES
from reftile.conformance.oracle.sums import fold, reduce_sum
from reftile.conformance.program import Kernel, Shape, tile
from reftile.conformance.suites.common import Settings, rule_ids

LINES: tuple[tuple[Shape, int], ...] = (
    ((7,), 0),
    ((1,), 0),
    ((3, 5), 0),
    ((3, 5), 1),
    ((2, 9, 3), 1),
    ((2, 1, 3, 4), 3),
    ((96,), 0),
    ((48, 2), 0),
)
FLOATS = ("f16", "bf16", "f32", "f64")
INTS = ("i1", "i8", "i16", "i32", "i64")


@dataclass(frozen=True)
class Function:
    """A function to combine with:

    its body for `%e0 %a0 %e1 ...`, identities, and what it does to codes.
    """

    name: str
    dtypes: tuple[str, ...]
    body: str
    identities: str
    combine: Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]


def _binary(op: str, dtype: str, attributes: str, identity: str, **given: object) -> Function:
    table = {**FLOAT_ORACLES, **INTEGER_ORACLES}

    def combine(element: tuple[int, ...], acc: tuple[int, ...]) -> tuple[int, ...]:
        call = Call(op, [codes([acc[0]]), codes([element[0]])], [dtype] * 2, [dtype], dict(given))
        return (int(table[op](call).low[0]),)

    body = f"%r0 = {op} %a0, %e0{attributes} : tile<{dtype}>\n    yield %r0"
    return Function(
        f"{op}{'-' + '-'.join(map(str, given.values())) if given else ''}",
        (dtype,),
        body,
        identity,
        combine,
    )


def _affine() -> Function:
    """x -> a x + b in i32, first the accumulator's, then the element's:

    associative, not commutative.
    """
    body = (
        "%p = muli %e0, %a0 : tile<i32>\n    %q = muli %e0, %a1 : tile<i32>\n"
        "    %s = addi %q, %e1 : tile<i32>\n    yield %p, %s"
    )

    def combine(element: tuple[int, ...], acc: tuple[int, ...]) -> tuple[int, ...]:
        mask = (1 << 32) - 1
        return element[0] * acc[0] & mask, (element[0] * acc[1] + element[1]) & mask

    return Function("affine", ("i32", "i32"), body, "1, 0", combine)


def _last() -> Function:
    """The later of two, unless it is zero: not commutative."""
    body = (
        "%z = constant {value = 0} : tile<i16>\n"
        "    %t = cmpi %e0, %z {predicate = not_equal, signedness = signed} : tile<i1>\n"
        "    %r = select %t, %e0, %a0 : tile<i16>\n    yield %r"
    )
    return Function("last", ("i16",), body, "0", lambda e, a: e if e[0] else a)


def _argmax() -> Function:
    """The greatest unsigned i8 with an i32 of its own, the earlier one of equals."""
    body = (
        "%t = cmpi %e0, %a0 {predicate = greater_than, signedness = unsigned} : tile<i1>\n"
        "    %v = select %t, %e0, %a0 : tile<i8>\n"
        "    %i = select %t, %e1, %a1 : tile<i32>\n    yield %v, %i"
    )
    return Function("argmax", ("i8", "i32"), body, "0, 0", lambda e, a: e if e[0] > a[0] else a)


def functions() -> Iterator[Function]:
    """Exact ones."""
    for dtype in FLOATS:
        yield _binary("maxf", dtype, "", "-inf")
        yield _binary("maxf", dtype, " {propagate_nan}", "-inf", propagate_nan=True)
        yield _binary("minf", dtype, "", "inf")
    for dtype in INTS:
        yield _binary("addi", dtype, "", "0")
        yield _binary("xori", dtype, "", "0")
        yield _binary("andi", dtype, "", "-1" if dtype != "i1" else "1")
        least = {"i1": "0"}.get(dtype, f"-{1 << (int(dtype[1:]) - 1)}")
        signed = "signed" if dtype != "i1" else "unsigned"
        text = f" {{signedness = {signed}}}"
        yield _binary("maxi", dtype, text, least, signedness=signed)
        yield _binary("muli", dtype, "", "1")
    yield from (_affine(), _last(), _argmax())


def lines(settings: Settings) -> list[tuple[Shape, int]]:
    """Shapes, each with an axis, that the implementation has tiles of."""
    found = [(settings.fit(shape), axis) for shape, axis in LINES]
    return list(dict.fromkeys(found))


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    for op in ("reduce", "scan"):
        for i, function in enumerate(functions()):
            for j, (shape, axis) in enumerate(lines(settings)):
                if settings.budget == "wimpy" and (i + j) % len(lines(settings)):
                    continue
                for reverse in (False, True) if op == "scan" else (False,):
                    yield _case(settings, op, function, shape, axis, reverse)
        yield from _sums(settings, op)


def _case(
    settings: Settings, op: str, function: Function, shape: Shape, axis: int, reverse: bool
) -> Case:
    dtype = function.dtypes[0]
    name = "x".join(map(str, shape))
    id = f"ops/{op}/{dtype}/{function.name}-{name}-axis{axis}{'-reverse' * reverse}"
    build = partial(_build, settings, id, op, function, shape, axis, reverse)
    return Case(id, "ops", op, dtype, rule_ids(op), build, (f"op:{op}",))


def _build(
    settings: Settings,
    id: str,
    op: str,
    function: Function,
    shape: Shape,
    axis: int,
    reverse: bool,
) -> Program:
    rng = settings.rng(id)
    columns = []
    for dtype in function.dtypes:
        pool = np.concatenate([values.edges(dtype), values.random_codes(dtype, 20, rng)])
        columns.append(pool[rng.integers(0, pool.size, prod(shape))].reshape(shape))
    if function.name == "last":
        columns[0][rng.random(shape) < 0.6] = 0
    attributes = {"axis": axis, "reverse": reverse}
    call = Call(op, columns, list(function.dtypes), list(function.dtypes), attributes)
    return _program(op, function, columns, fold(call, function.combine), shape, axis, reverse)


def _program(
    op: str,
    function: Function,
    columns: list[Codes],
    answers: list[Answer],
    shape: Shape,
    axis: int,
    reverse: bool,
) -> Program:
    k = Kernel()
    names = [
        k.load(f"in{i}", d, c, shape)
        for i, (d, c) in enumerate(zip(function.dtypes, columns, strict=True))
    ]
    target = shape if op == "scan" else (*shape[:axis], *shape[axis + 1 :])
    found = [k.name("r") for _ in names]
    pairs = ", ".join(f"%e{i}: tile<{d}>, %a{i}: tile<{d}>" for i, d in enumerate(function.dtypes))
    extra = ", reverse = true" if reverse else ""
    kinds = ", ".join(tile(target, d) for d in function.dtypes)
    k.emit(
        f"{', '.join(found)} = {op} {', '.join(names)} "
        f"{{axis = {axis}{extra}, identities = [{function.identities}]}} : {kinds} "
        f"combine({pairs}) {{\n    {function.body}\n  }}"
    )
    for i, (value, answer) in enumerate(zip(found, answers, strict=True)):
        k.store(f"out{i}", value, target, answer)
    return k.program()


# Sums of floats


KINDS = ("integers", "positive", "normal", "cancelling", "wide", "special")


def _sums(settings: Settings, op: str) -> Iterator[Case]:
    for i, dtype in enumerate(FLOATS):
        for j, kind in enumerate(KINDS):
            for n, (shape, axis) in enumerate(lines(settings)):
                if settings.budget == "wimpy" and (i + j + n) % 4:
                    continue
                if op == "scan" and prod(shape) > 60:
                    continue
                name = "x".join(map(str, shape))
                id = f"ops/{op}/{dtype}/sum-{kind}-{name}-axis{axis}"
                build = partial(_sum, settings, id, op, dtype, kind, shape, axis)
                yield Case(
                    id, "ops", op, dtype, (*rule_ids(op), "accuracy.reduce"), build, (f"op:{op}",)
                )


def _sum(
    settings: Settings, id: str, op: str, dtype: str, kind: str, shape: Shape, axis: int
) -> Program:
    rng = settings.rng(id)
    bits = numbers(dtype, kind, shape, axis, rng)
    attributes = {"axis": axis, "exact": kind == "integers", "profile": settings.profile(dtype)}
    answer = reduce_sum(Call(op, [bits], [dtype], [dtype], attributes))
    body = f"%r0 = addf %a0, %e0 : tile<{dtype}>\n    yield %r0"
    function = Function("sum", (dtype,), body, "0.0", lambda e, a: a)
    return _program(op, function, [bits], [answer], shape, axis, False)


def numbers(dtype: str, kind: str, shape: Shape, axis: int, rng: np.random.Generator) -> Codes:
    """Data of a kind to be added along an axis."""
    f = FORMATS[dtype]
    size = prod(shape)
    if kind == "integers":
        return values.small_integers(dtype, shape, rng, 2 if dtype == "bf16" else 8)
    if kind == "special":
        bits = values.codes_of(rng.standard_normal(size), f)
        places = rng.integers(0, size, 2)
        bits[places[0]] = (f.max_code + 1) << f.unused
        bits[places[1]] = f.nan_code if size > 20 else bits[places[1]]
        return bits.reshape(shape)
    x = rng.standard_normal(size)
    if kind == "positive":
        x = np.abs(x)
    elif kind == "wide":
        x = x * 2.0 ** rng.integers(-10, 5, size)
    elif kind == "cancelling":
        x = x.reshape(shape)
        half = np.roll(x, 1, axis)
        x = np.where(np.arange(size).reshape(shape) % 2 == 0, x, -half * (1 + 2.0**-9)).reshape(-1)
    return values.codes_of(x, f).reshape(shape)
