"""Cases of operations that make, move, choose and order elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import numpy as np
from reftile.conformance import values
from reftile.conformance.cases import Case, Program
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.conversions import CONVERSION_ORACLES
from reftile.conformance.oracle.formats import FORMATS, WIDTHS, Codes, codes, is_float
from reftile.conformance.oracle.random import KNOWN, philox
from reftile.conformance.oracle.tiles import TILE_ORACLES
from reftile.conformance.program import POINTER, Kernel, Shape, attribute_text, tile
from reftile.conformance.suites.common import Attributes, Settings, definition, label, rule_ids

ORACLES = {
    **TILE_ORACLES,
    "pack": CONVERSION_ORACLES["pack"],
    "unpack": CONVERSION_ORACLES["unpack"],
    "philox": philox,
}
"""What gives the expected values of each operation."""


@dataclass
class Form:
    """One way to use an operation.

    operands: (element type, shape) of each. listed: how many of the last are in brackets. named:
    the name of the last one, if it is an optional operand. given: codes of some operands.
    """

    op: str
    operands: list[tuple[str, Shape]]
    results: list[tuple[str, Shape]]
    attributes: Attributes = field(default_factory=dict)
    listed: int = 0
    named: str = ""
    given: dict[int, Codes] = field(default_factory=dict)
    literal: str = ""

    def id(self) -> str:
        """What tells it from other forms."""
        shapes = "_".join("x".join(map(str, s)) or "0" for _, s in self.operands) or "none"
        types = "-".join(dict.fromkeys(d for d, _ in (*self.operands, *self.results)))
        tail = label(self.attributes)
        fixed = "".join(f"@{'.'.join(map(str, c.reshape(-1)[:4]))}" for c in self.given.values())
        return f"{self.op}/{types}/{shapes}-{tail}{fixed}{self.literal and '-literal'}"


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    seen: dict[str, int] = {}
    for form in forms(settings):
        id = f"ops/{form.id()}"
        seen[id] = seen.get(id, 0) + 1
        if seen[id] > 1:
            id += f"#{seen[id]}"
        dtype = (form.operands or form.results)[0][0]
        cell = "i64" if dtype == POINTER else dtype
        yield Case(
            id,
            "ops",
            form.op,
            cell,
            rule_ids(form.op),
            partial(build, settings, id, form),
            (f"op:{form.op}",),
        )


def forms(settings: Settings) -> Iterator[Form]:
    """Every way in which an operation is used, for the element types of its record."""
    for op, makers in MAKERS.items():
        record = definition(op)
        variable = next(iter(record.where), "T")
        allowed = record.where.get(variable, ())
        dtypes = [POINTER if d == "pointer" else d for d in allowed] or ["i32"]
        dtypes = list(KEYS) if op == "sort" else dtypes
        for i, dtype in enumerate(dtypes):
            found = [f for form in makers(dtype) if (f := fitted(settings, form)) is not None]
            if settings.budget == "wimpy" and len(dtypes) > 4:
                # A part of the forms for each type: every form for some type.
                found = [form for j, form in enumerate(found) if (i + j) % 4 == 0 or j == 0]
            yield from found


REARRANGING = frozenset({"reshape", "cat", "extract", "insert", "histogram", "topk"})
"""Operations whose shapes depend on one another: larger ones would be another form."""


def fitted(settings: Settings, form: Form) -> Form | None:
    """A form on shapes that the implementation has tiles of; None if there is none like it."""
    shapes = [s for _, s in (*form.operands, *form.results)]
    if settings.has(*shapes):
        return form
    if form.op in REARRANGING:
        return None
    operands = [(d, settings.fit(s)) for d, s in form.operands]
    results = [(d, settings.fit(s)) for d, s in form.results]
    given = {
        i: np.resize(c, prod(operands[i][1])) if i < len(operands) else c
        for i, c in form.given.items()
    }
    literal = form.literal
    if literal.startswith("value = ["):
        entries = literal.removeprefix("value = [").removesuffix("]").split(", ")
        count = prod(results[0][1])
        literal = f"value = [{', '.join((entries * count)[:count])}]"
        given = {0: np.resize(form.given[0], count)}
    return replace(form, operands=operands, results=results, given=given, literal=literal)


def build(settings: Settings, id: str, form: Form) -> Program:
    """The program of a form, on inputs that the case's name decides."""
    rng = settings.rng(id)
    columns: list[Codes] = []
    for i, (dtype, shape) in enumerate(form.operands):
        bits = form.given.get(i)
        if bits is None:
            bits = some(dtype, prod(shape), rng)
        columns.append(bits.reshape(shape))
    plain = [_plain(d) for d, _ in form.operands]
    call = Call(
        form.op,
        columns,
        plain,
        [_plain(d) for d, _ in form.results],
        dict(form.attributes),
        shape=form.results[0][1],
    )
    if form.literal:
        call.operands = [form.given[0]]
    answers = ORACLES[form.op](call)
    answers = answers if isinstance(answers, list) else [answers]
    return program(form, [] if form.literal else columns, answers)


def program(form: Form, columns: list[Codes], answers: list[Answer]) -> Program:
    """Load the operands, apply the operation, store the results."""
    k = Kernel()
    names = [
        k.load(f"in{i}", dtype, bits, shape)
        for i, ((dtype, shape), bits) in enumerate(zip(form.operands, columns, strict=False))
    ]
    if form.named:
        names[-1] = f"{form.named}={names[-1]}"
    if form.listed or form.op in ("extract", "insert"):
        cut = len(names) - form.listed
        names = [*names[:cut], f"[{', '.join(names[cut:])}]"]
    found = [k.name("r") for _ in form.results]
    kinds = ", ".join(tile(shape, dtype) for dtype, shape in form.results)
    text = attribute_text(form.attributes) or (f" {{{form.literal}}}" if form.literal else "")
    k.emit(f"{', '.join(found)} = {form.op} {', '.join(names)}{text} : {kinds}")
    for i, (value, answer) in enumerate(zip(found, answers, strict=True)):
        dtype, shape = form.results[i]
        answer.dtype = POINTER if dtype == POINTER else answer.dtype
        k.store(f"out{i}", value, shape, answer)
    return k.program()


def _plain(dtype: str) -> str:
    return "i64" if dtype == POINTER else dtype


def some(dtype: str, count: int, rng: np.random.Generator) -> Codes:
    """Elements of a type: edges among random ones, with repetitions."""
    dtype = _plain(dtype)
    pool = np.concatenate([values.edges(dtype), values.random_codes(dtype, 20, rng)])
    return pool[rng.integers(0, pool.size, count)]


# Making and moving


def constants(dtype: str) -> Iterator[Form]:
    literals: list[str] = []
    numbers: list[int] = []
    if dtype == "f8e8m0":
        literals, numbers = ["0.5", "4.0", "0x7F"], [126, 129, 127]
    elif is_float(dtype):
        f = FORMATS[dtype]
        given = [0.1, -2.5, 1e-8, 1 / 3, 0.0, 3.0, -0.75]
        literals = [repr(v) for v in given] + ["0x3", "-0.0"]
        numbers = [*values.codes_of(given, f).tolist(), 3, int(values.codes_of([-0.0], f)[0])]
        numbers[7] = 3 & ~((1 << f.unused) - 1)
        zero = values.codes_of([0.0], f)
        numbers[-1] = (
            int(zero[0] | np.uint64(1 << (f.width - 1))) if f.nan != "negative_zero" else 0
        )
    elif dtype == "i1":
        literals, numbers = ["true", "false", "1", "0"], [1, 0, 1, 0]
    else:
        width = WIDTHS[dtype]
        numbers = [0, 1, -1, (1 << (width - 1)) - 1, -(1 << (width - 1)), (1 << width) - 1]
        literals = [str(n) for n in numbers]
        numbers = [n & ((1 << width) - 1) for n in numbers]
    n = len(numbers)
    text = f"value = [{', '.join(literals)}]"
    yield Form("constant", [], [(dtype, (n,))], given={0: codes(numbers)}, literal=text)
    for shape in ((), (3, 5), (2, 1, 2, 3)):
        literal = f"value = {literals[1]}"
        yield Form(
            "constant", [], [(dtype, shape)], given={0: codes([numbers[1]])}, literal=literal
        )


def iotas(dtype: str) -> Iterator[Form]:
    most = min(1 << WIDTHS[dtype], 300)
    for n in sorted({1, min(7, most), most}):
        yield Form("iota", [], [(dtype, (n,))])


def selects(dtype: str) -> Iterator[Form]:
    for shape in ((), (7,), (3, 5), (2, 1, 3), (2, 3, 1, 2)):
        yield Form("select", [("i1", shape), (dtype, shape), (dtype, shape)], [(dtype, shape)])


def broadcasts(dtype: str) -> Iterator[Form]:
    pairs: list[tuple[Shape, Shape]] = [
        ((1,), (5,)),
        ((1, 3), (4, 3)),
        ((2, 1, 3), (2, 4, 3)),
        ((1, 1, 1, 1), (2, 3, 1, 2)),
        ((), ()),
        ((3, 1), (3, 7)),
    ]
    for source, target in pairs:
        yield Form("broadcast", [(dtype, source)], [(dtype, target)])


def reshapes(dtype: str) -> Iterator[Form]:
    pairs: list[tuple[Shape, Shape]] = [
        ((6,), (2, 3)),
        ((2, 3), (3, 2)),
        ((2, 3, 4), (4, 1, 6)),
        ((), (1, 1)),
        ((1,), ()),
        ((2, 1, 5, 2), (20,)),
        ((8,), (2, 4)),
        ((2, 4, 8), (8, 1, 8)),
        ((4, 1, 2, 2), (16,)),
    ]
    for source, target in pairs:
        yield Form("reshape", [(dtype, source)], [(dtype, target)])


def permutes(dtype: str) -> Iterator[Form]:
    table: list[tuple[Shape, Shape]] = [
        ((3, 5), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 3, 4), (1, 2, 0)),
        ((2, 3, 1, 5), (3, 1, 0, 2)),
        ((3,), (0,)),
        ((), ()),
    ]
    for shape, order in table:
        target = tuple(shape[a] for a in order)
        yield Form("permute", [(dtype, shape)], [(dtype, target)], {"permutation": order})


def cats(dtype: str) -> Iterator[Form]:
    table: list[tuple[Shape, Shape, int]] = [
        ((3,), (2,), 0),
        ((2, 3), (2, 5), 1),
        ((2, 3), (1, 3), 0),
        ((2, 1, 3, 2), (2, 4, 3, 2), 1),
        ((4,), (4,), 0),
        ((2, 4), (2, 4), 1),
        ((2, 1, 4, 2), (2, 1, 4, 2), 1),
    ]
    for x, y, axis in table:
        joined = (*x[:axis], x[axis] + y[axis], *x[axis + 1 :])
        yield Form("cat", [(dtype, x), (dtype, y)], [(dtype, joined)], {"axis": axis})


PARTS: list[tuple[Shape, Shape, Shape]] = [
    ((4, 6), (2, 3), (1, 0)),
    ((4, 6), (2, 3), (0, 1)),
    ((4, 6), (4, 1), (0, 5)),
    ((6,), (2,), (2,)),
    ((2, 3, 4), (1, 3, 2), (1, 0, 1)),
    ((3, 5), (3, 5), (0, 0)),
    ((), (), ()),
    ((4, 8), (2, 4), (1, 0)),
    ((4, 8), (4, 1), (0, 5)),
    ((8,), (2,), (2,)),
    ((2, 4, 4), (1, 4, 2), (1, 0, 1)),
]


def _indices(where: Shape, first: int) -> dict[int, Codes]:
    return {first + i: codes([n]) for i, n in enumerate(where)}


def extracts(dtype: str) -> Iterator[Form]:
    for shape, part, where in PARTS:
        operands: list[tuple[str, Shape]] = [(dtype, shape), *[("i32", ())] * len(where)]
        yield Form(
            "extract", operands, [(dtype, part)], listed=len(where), given=_indices(where, 1)
        )


def inserts(dtype: str) -> Iterator[Form]:
    for shape, part, where in PARTS:
        operands: list[tuple[str, Shape]] = [
            (dtype, part),
            (dtype, shape),
            *[("i32", ())] * len(where),
        ]
        yield Form(
            "insert", operands, [(dtype, shape)], listed=len(where), given=_indices(where, 2)
        )


def gathers(dtype: str) -> Iterator[Form]:
    table: list[tuple[Shape, Shape, int, str]] = [
        ((3, 5), (3, 7), 1, "i32"),
        ((3, 5), (4, 5), 0, "i64"),
        ((6,), (9,), 0, "i8"),
        ((2, 3, 4), (2, 5, 4), 1, "i16"),
        ((250,), (8,), 0, "i8"),
    ]
    for shape, places, axis, index in table:
        rng = np.random.default_rng(prod(places))
        drawn = codes(rng.integers(0, shape[axis], prod(places)))
        drawn[0], drawn[-1] = shape[axis] - 1, 0
        yield Form(
            "gather",
            [(dtype, shape), (index, places)],
            [(dtype, places)],
            {"axis": axis},
            given={1: drawn},
        )


def packs(dtype: str) -> Iterator[Form]:
    for n in (2, 6, 64):
        yield Form("pack", [(dtype, (n,))], [("i8", (n * WIDTHS[dtype] // 8,))])


def unpacks(dtype: str) -> Iterator[Form]:
    for n in (2, 6, 64):
        size = n * WIDTHS[dtype] // 8
        yield Form("unpack", [("i8", (size,))], [(dtype, (n,))])


# Order


LINES: list[tuple[Shape, int]] = [
    ((7,), 0),
    ((3, 5), 1),
    ((3, 5), 0),
    ((2, 9, 2), 1),
    ((1,), 0),
    ((48,), 0),
]


def _orders(dtype: str) -> list[Attributes]:
    return [{}] if is_float(dtype) else [{}, {"signedness": "unsigned"}]


def sorts(dtype: str) -> Iterator[Form]:
    for shape, axis in LINES:
        for order in _orders(dtype):
            for down in ({}, {"descending": True}):
                attributes = {"axis": axis, **down, **order}
                yield Form("sort", [(dtype, shape)], [(dtype, shape)], attributes)
    both: list[tuple[str, Shape]] = [(dtype, (3, 9)), ("i32", (3, 9)), ("f32", (3, 9))]
    yield Form("sort", both, both, {"axis": 1})
    yield Form("sort", both, both, {"axis": 1, "descending": True})


def topks(dtype: str) -> Iterator[Form]:
    for shape, axis in LINES:
        for order in _orders(dtype):
            for small in ({}, {"smallest": True}):
                for count in sorted({1, min(3, shape[axis]), shape[axis]}):
                    target = (*shape[:axis], count, *shape[axis + 1 :])
                    attributes = {"axis": axis, "count": count, **small, **order}
                    yield Form(
                        "topk", [(dtype, shape)], [(dtype, target), ("i32", target)], attributes
                    )


def extremes(op: str, dtype: str) -> Iterator[Form]:
    for shape, axis in LINES:
        for order in _orders(dtype):
            target = (*shape[:axis], *shape[axis + 1 :])
            yield Form(op, [(dtype, shape)], [("i32", target)], {"axis": axis, **order})
    if is_float(dtype):
        f = FORMATS[dtype]
        nan, one, six = f.nan_code, *values.codes_of([1.0, 6.0], f).tolist()
        for line in ([nan, six, one], [six, nan, nan], [nan, nan, nan], [one, six, six]):
            yield Form(op, [(dtype, (3,))], [("i32", ())], {"axis": 0}, given={0: codes(line)})


def histograms(dtype: str) -> Iterator[Form]:
    for shape in ((7,), (3, 5), (), (64,)):
        for bins in (1, 4, 130):
            rng = np.random.default_rng(prod(shape) + bins)
            top = min(200, 1 << WIDTHS[dtype])
            drawn = codes(rng.integers(0, min(top, bins + 3), prod(shape)))
            if drawn.size > 2:
                drawn[1] = (1 << WIDTHS[dtype]) - 1
            yield Form(
                "histogram", [(dtype, shape)], [("i32", (bins,))], {"bins": bins}, given={0: drawn}
            )
            operands: list[tuple[str, Shape]] = [(dtype, shape), ("i1", shape)]
            yield Form(
                "histogram",
                operands,
                [("i32", (bins,))],
                {"bins": bins},
                named="mask",
                given={0: drawn},
            )


def randoms(dtype: str) -> Iterator[Form]:
    for shape in ((), (7,), (3, 5)):
        for rounds in (10, 7, 1, 16):
            operands: list[tuple[str, Shape]] = [("i32", shape)] * 4 + [("i32", ())] * 2
            attributes = {} if rounds == 10 else {"rounds": rounds}
            yield Form("philox", operands, [("i32", shape)] * 4, attributes)
    for counter, key, _ in KNOWN:
        given = {i: codes([v]) for i, v in enumerate((*counter, *key))}
        operands = [("i32", (1,))] * 4 + [("i32", ())] * 2
        yield Form("philox", operands, [("i32", (1,))] * 4, given=given)


MAKERS = {
    "constant": constants,
    "iota": iotas,
    "select": selects,
    "broadcast": broadcasts,
    "reshape": reshapes,
    "permute": permutes,
    "cat": cats,
    "extract": extracts,
    "insert": inserts,
    "gather": gathers,
    "pack": packs,
    "unpack": unpacks,
    "sort": sorts,
    "topk": topks,
    "argmax": partial(extremes, "argmax"),
    "argmin": partial(extremes, "argmin"),
    "histogram": histograms,
    "philox": randoms,
}
KEYS = ("i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
"""What `sort` orders; its record says so in a rule."""
