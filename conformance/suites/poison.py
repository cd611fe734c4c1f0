"""Cases of poison: for each operand of each pure operation, what one bad element spoils.

One element of one operand is a masked lane without padding. Four programs follow from it: the whole
result is stored (a fault), the same with a padding value (no fault), all elements but those that
must be poison are stored (no fault), and one of those that must be is stored alone (a fault).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np
from reftile.conformance.cases import Buffer, Case, Program
from reftile.conformance.oracle.answer import Call
from reftile.conformance.oracle.formats import FORMATS, WIDTHS, Codes, Mask, codes, is_float
from reftile.conformance.oracle.tiles import TILE_ORACLES
from reftile.conformance.program import Kernel, Shape, attribute_text, tile
from reftile.conformance.suites import elementwise
from reftile.conformance.suites.common import (
    Attributes,
    Settings,
    attribute_choices,
    definition,
    operand_dtypes,
    result_dtypes,
    type_choices,
)
from reftile.conformance.suites.memory import emit_pointers
from reftile.conformance.values import codes_of

Spoils = Callable[[int, Mask], Mask]
"""`spoils(operand, bad)`:

which elements of the first result are poison when `bad` ones of the operand are.
"""
PREFERRED = ("f32", "i32", "i64", "i16", "f16", "i8", "f64", "bf16", "tf32", "f8e4m3", "i1")
SHAPE: Shape = (3, 4)


@dataclass
class Form:
    """An operation on ones. `region`: what follows the types."""

    op: str
    operands: list[tuple[str, Shape]]
    result: tuple[str, Shape]
    spoils: Spoils
    attributes: Attributes = field(default_factory=dict)
    more: tuple[tuple[str, Shape], ...] = ()
    listed: int = 0
    region: str = ""
    values: dict[int, int] = field(default_factory=dict)


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    for form in (*_elementwise(), *_structural(), *_lines(), *_products()):
        record = definition(form.op)
        names = [p.name for p in record.operands]
        for operand, (dtype, _) in enumerate(form.operands):
            name = names[min(operand, len(names) - 1)]
            label = f"{name}{operand}" if names.count(name) and operand >= len(names) else name
            spoiled = _spoiled(form, operand)
            for kind in ("stored", "padded", "elsewhere", "there"):
                if (kind == "elsewhere" and spoiled.all()) or (
                    kind == "there" and not spoiled.any()
                ):
                    continue
                build = partial(_build, form, operand, kind)
                id = f"trap/poison/{form.op}/{label}/{kind}"
                covers = (f"{form.op}.poison.{name}",)
                yield Case(id, "trap", form.op, dtype, covers, build, (f"op:{form.op}",))


def _bad(shape: Shape) -> Mask:
    bad = np.zeros(shape, bool)
    bad.reshape(-1)[bad.size // 2] = True
    return bad


def _spoiled(form: Form, operand: int) -> Mask:
    _, shape = form.operands[operand]
    spoiled = form.spoils(operand, _bad(shape))
    return np.broadcast_to(spoiled, form.result[1])


def _one(dtype: str) -> int:
    return int(codes_of([1.0], FORMATS[dtype])[0]) if is_float(dtype) else 1


def _build(form: Form, operand: int, kind: str) -> Program:
    k = Kernel()
    names: list[str] = []
    for i, (dtype, shape) in enumerate(form.operands):
        bits = codes([form.values.get(i, _one(dtype))] * prod(shape))
        if i == operand:
            names.append(_spoil(k, dtype, shape, bits, padded=kind == "padded"))
        else:
            names.append(k.load(f"in{i}", dtype, bits, shape))
    if form.listed:
        cut = len(names) - form.listed
        names = [*names[:cut], f"[{', '.join(names[cut:])}]"]
    results = [form.result, *form.more]
    found = [k.name("r") for _ in results]
    kinds = ", ".join(tile(s, d) for d, s in results)
    text = attribute_text(form.attributes)
    k.emit(f"{', '.join(found)} = {form.op} {', '.join(names)}{text} : {kinds}{form.region}")
    spoiled = _spoiled(form, operand)
    keep = np.ones(spoiled.shape, bool)
    if kind == "elsewhere":
        keep = ~spoiled
    elif kind == "there":
        keep = np.zeros(spoiled.shape, bool)
        keep.reshape(-1)[int(np.argmax(spoiled.reshape(-1)))] = True
    _store(k, found[0], form.result, keep)
    rules = ("poison.output",) if kind in ("stored", "there") and spoiled.any() else ()
    program = k.program(rules)
    program.answers = {}
    return program


def _spoil(k: Kernel, dtype: str, shape: Shape, bits: Codes, padded: bool) -> str:
    """Load an operand with one masked lane."""
    k.arguments.append(Buffer("bad", dtype, bits))
    pointers = emit_pointers(k, "bad", dtype, np.arange(bits.size).reshape(shape))
    mask = k.load("mask", "i1", codes(~_bad(shape)), shape)
    operands = [pointers, f"mask={mask}"]
    if padded:
        operands.append(f"padding_value={k.load('pad', dtype, bits, shape)}")
    value, token = k.name("x"), k.name("t")
    k.emit(
        f"{value}, {token} = load_ptr_tko {', '.join(operands)} {{ordering = weak}} : "
        f"{tile(shape, dtype)}, token"
    )
    return value


def _store(k: Kernel, value: str, result: tuple[str, Shape], keep: Mask) -> None:
    dtype, shape = result
    if WIDTHS[dtype] == 4:
        raise ValueError("elements of 4 bits cannot be stored one by one")
    k.arguments.append(Buffer("out", dtype, codes([0] * prod(shape)), written=True))
    pointers = emit_pointers(k, "out", dtype, np.arange(prod(shape)).reshape(shape))
    mask = k.load("keep", "i1", codes(keep), shape)
    k.let("t", f"store_ptr_tko {pointers}, {value}, mask={mask} {{ordering = weak}} : token")


# Which elements are spoiled


def _rank(types: dict[str, str]) -> list[int]:
    return [PREFERRED.index(t) if t in PREFERRED else 99 for t in types.values()]


def _elementwise() -> Iterator[Form]:
    for op in elementwise.ORACLES:
        record = definition(op)
        types = min(type_choices(record), key=_rank)
        attributes = next(attribute_choices(record, types))
        dtypes, results = operand_dtypes(record, types), result_dtypes(record, types)
        yield Form(
            op, [(d, SHAPE) for d in dtypes], (results[0], SHAPE), lambda _, bad: bad, attributes
        )
    yield Form(
        "philox",
        [("i32", SHAPE)] * 4 + [("i32", ())] * 2,
        ("i32", SHAPE),
        lambda _, bad: bad,
        more=(("i32", SHAPE),) * 3,
    )


def _moved(form: Form, results: Shape) -> Spoils:
    """By moving marks instead of elements: 1 where it is bad."""

    def spoils(operand: int, bad: Mask) -> Mask:
        columns = [codes(np.zeros(s)) for _, s in form.operands]
        if form.operands[operand][0] == "i32" and form.op in ("extract", "insert"):
            # An index that is unknown leaves open where everything comes from.
            return np.ones(results, bool)
        if form.op == "gather" and operand == 1:
            return bad
        for i, value in form.values.items():
            columns[i] = np.full(form.operands[i][1], value, np.uint64)
        columns[operand] = codes(bad)
        dtypes = [d for d, _ in form.operands]
        call = Call(
            form.op, columns, dtypes, [form.result[0]], dict(form.attributes), shape=results
        )
        answer = TILE_ORACLES[form.op](call)
        assert not isinstance(answer, list)
        return answer.low.reshape(results) != 0

    return spoils


def _structural() -> Iterator[Form]:
    index: tuple[str, Shape] = ("i32", ())
    table: list[tuple[str, list[tuple[str, Shape]], Shape, Attributes, int, dict[int, int]]] = [
        ("broadcast", [("f32", (3, 1))], (3, 4), {}, 0, {}),
        ("reshape", [("f32", (3, 4))], (2, 6), {}, 0, {}),
        ("permute", [("f32", (2, 3, 4))], (4, 2, 3), {"permutation": (2, 0, 1)}, 0, {}),
        ("cat", [("f32", (2, 3)), ("f32", (2, 1))], (2, 4), {"axis": 1}, 0, {}),
        ("extract", [("f32", (4, 6)), index, index], (2, 3), {}, 2, {1: 1, 2: 0}),
        ("insert", [("f32", (2, 3)), ("f32", (4, 6)), index, index], (4, 6), {}, 2, {2: 0, 3: 1}),
        ("gather", [("f32", (3, 4)), ("i16", (3, 2))], (3, 2), {"axis": 1}, 0, {1: 2}),
    ]
    for op, operands, results, attributes, listed, values in table:
        form = Form(
            op,
            operands,
            ("f32", results),
            lambda _, bad: bad,
            attributes,
            listed=listed,
            values=values,
        )
        form.spoils = _moved(form, results)
        yield form

    yield from _selects()
    yield Form("pack", [("i16", (6,))], ("i8", (12,)), lambda _, bad: np.repeat(bad, 2))
    yield Form(
        "unpack", [("i8", (12,))], ("i16", (6,)), lambda _, bad: bad.reshape(6, 2).any(axis=1)
    )


def _selects() -> Iterator[Form]:
    """The condition is true everywhere: what is not chosen spoils nothing."""
    operands: list[tuple[str, Shape]] = [("i1", SHAPE), ("f32", SHAPE), ("f32", SHAPE)]
    yield Form("select", operands, ("f32", SHAPE), lambda i, bad: bad & (i < 2))


def _lines() -> Iterator[Form]:
    """What one bad element of a line spoils."""

    def line(_: int, bad: Mask) -> Mask:
        return np.broadcast_to(bad.any(axis=1, keepdims=True), bad.shape)

    def gone(_: int, bad: Mask) -> Mask:
        return bad.any(axis=1)

    yield Form("sort", [("f32", SHAPE)], ("f32", SHAPE), line, {"axis": 1})
    yield Form(
        "topk",
        [("f32", SHAPE)],
        ("f32", (3, 2)),
        lambda o, b: line(o, b)[:, :2],
        {"axis": 1, "count": 2},
        more=(("i32", (3, 2)),),
    )
    for op in ("argmax", "argmin"):
        yield Form(op, [("f32", SHAPE)], ("i32", (3,)), gone, {"axis": 1})
    yield Form(
        "histogram", [("i32", SHAPE)], ("i32", (5,)), lambda _, bad: np.ones(5, bool), {"bins": 5}
    )
    body = (
        " combine(%e: tile<f32>, %a: tile<f32>) {\n"
        "    %s = addf %a, %e : tile<f32>\n    yield %s\n  }"
    )
    yield Form(
        "reduce",
        [("f32", SHAPE)],
        ("f32", (3,)),
        gone,
        {"axis": 1, "identities": (0.0,)},
        region=body,
    )
    yield Form(
        "scan",
        [("f32", SHAPE)],
        ("f32", SHAPE),
        lambda _, bad: np.logical_or.accumulate(bad, axis=1),
        {"axis": 1, "identities": (0.0,)},
        region=body,
    )


def _products() -> Iterator[Form]:
    """A bad element of `lhs` spoils its row, one of `rhs` its column, one of `acc` its place."""

    def spoils(op: str, operand: int, bad: Mask) -> Mask:
        rows = {"mmaf_sparse": (0, 1), "mmaf_scaled": (0, 3)}.get(op, (0,))
        columns = {"mmaf_sparse": (2,), "mmaf_scaled": (1, 4)}.get(op, (1,))
        if operand in rows:
            return np.broadcast_to(bad.any(axis=1)[:, None], (3, 4))
        if operand in columns:
            return np.broadcast_to(bad.any(axis=0)[None, :], (3, 4))
        return bad

    def form(op: str, operands: list[tuple[str, Shape]], dtype: str, **more: object) -> Form:
        return Form(op, operands, (dtype, (3, 4)), partial(spoils, op), **more)  # type: ignore[arg-type]

    yield form("mmaf", [("f16", (3, 5)), ("f16", (5, 4)), ("f32", (3, 4))], "f32")
    signs = {"signedness_lhs": "signed", "signedness_rhs": "unsigned"}
    yield form("mmai", [("i8", (3, 5)), ("i8", (5, 4)), ("i32", (3, 4))], "i32", attributes=signs)
    scaled: list[tuple[str, Shape]] = [("f8e4m3", (3, 64)), ("f8e4m3", (64, 4)), ("f32", (3, 4))]
    yield form("mmaf_scaled", [*scaled, ("f8e8m0", (3, 2)), ("f8e8m0", (2, 4))], "f32")
    sparse: list[tuple[str, Shape]] = [
        ("f16", (3, 8)),
        ("i8", (3, 2)),
        ("f16", (16, 4)),
        ("f32", (3, 4)),
    ]
    yield form("mmaf_sparse", sparse, "f32", values={1: 0x44})
