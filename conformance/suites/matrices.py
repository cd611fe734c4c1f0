"""Cases of matrix products:

exact on small integers, within the computed bound on everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
from reftile.conformance import values
from reftile.conformance.cases import Case, Program
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.formats import FORMATS, Codes, codes
from reftile.conformance.oracle.sums import mma, mma_integers
from reftile.conformance.program import Kernel, Shape, attribute_text, tile
from reftile.conformance.suites.common import (
    Attributes,
    Settings,
    attribute_choices,
    definition,
    label,
    rule_ids,
)

KINDS = ("integers", "positive", "normal", "cancelling", "wide", "one_hot", "special")
"""Of data.

What small integers do not show (precision), positive numbers do, and the other way round.
"""
Extents = tuple[Shape, int, int, int]
"""Batch, m, n and k."""
EXTENTS: tuple[Extents, ...] = (
    ((), 3, 5, 7),
    ((), 4, 8, 16),
    ((), 1, 1, 1),
    ((2,), 3, 2, 33),
    ((2, 3), 2, 4, 5),
    ((), 2, 2, 300),
)
SCALED: tuple[Extents, ...] = (((), 3, 2, 64), ((2,), 2, 3, 32))
SPARSE: tuple[Extents, ...] = (((), 3, 5, 8), ((2,), 2, 3, 24))
ORACLES = {"mmaf": mma, "mmaf_scaled": mma, "mmaf_sparse": mma, "mmai": mma_integers}
FAST_UNIT_BITS = 13
"""What `fast_acc` may keep of a sum where the target does not say:

13 bits, as some matrix units do.
"""


def sizes(settings: Settings, table: Sequence[Extents] = EXTENTS) -> list[Extents]:
    """Batch, m, n and k, of tiles that the implementation has."""
    found = [(settings.fit(b), *settings.fit((m, n, k))) for b, m, n, k in table]
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    yield from _plain(settings)
    yield from _integers(settings)
    yield from _scaled(settings)
    yield from _sparse(settings)


def _wanted(settings: Settings, number: int, every: int) -> bool:
    return settings.budget != "wimpy" or number % every == 0


def _plain(settings: Settings) -> Iterator[Case]:
    record = definition("mmaf")
    number = 0
    for F in record.where["F"]:
        for A in record.where["A"]:
            for attributes in attribute_choices(record, {"F": F, "A": A}):
                for kind in KINDS:
                    for extents in sizes(settings):
                        number += 1
                        if _wanted(settings, number, 5):
                            yield _case(settings, "mmaf", F, A, kind, extents, attributes)


def _case(
    settings: Settings,
    op: str,
    F: str,
    A: str,
    kind: str,
    extents: tuple[Shape, int, int, int],
    attributes: Attributes,
    scale: str = "",
    block: int = 0,
) -> Case:
    batch, m, n, k = extents
    size = "x".join(map(str, (*batch, m, n, k)))
    more = f"-{scale}-{block}" if scale else ""
    id = f"ops/{op}/{F}-{A}/{kind}-{size}-{label(attributes)}{more}"
    build = partial(_build, settings, id, op, F, A, kind, extents, attributes, scale, block)
    return Case(id, "ops", op, F, (*rule_ids(op), "accuracy.dot"), build, (f"op:{op}",))


def _build(
    settings: Settings,
    id: str,
    op: str,
    F: str,
    A: str,
    kind: str,
    extents: tuple[Shape, int, int, int],
    attributes: Attributes,
    scale: str,
    block: int,
) -> Program:
    batch, m, n, k = extents
    rng = settings.rng(id)
    lhs, rhs, acc = operands(F, A, kind, extents, rng)
    dtypes, columns = [F, F, A], [lhs, rhs, acc]
    if op == "mmaf_sparse":
        dtypes = [F, "i8", F, A]
        columns = [lhs[..., : k // 2], metadata(batch, m, k, rng), rhs, acc]
    if scale:
        dtypes += [scale, scale]
        for shape in ((*batch, m, k // block), (*batch, k // block, n)):
            columns.append(scales(scale, shape, kind, rng))
    profile = settings.profile(F)
    if attributes.get("fast_acc"):
        profile = replace(profile, unit_bits=FAST_UNIT_BITS)
    asked = {**attributes, "exact": kind in ("integers", "one_hot"), "profile": profile}
    answer = mma(Call(op, columns, dtypes, [A], asked))
    return _program(op, dtypes, A, attributes, columns, answer)


def _program(
    op: str,
    dtypes: list[str],
    target: str,
    attributes: Attributes,
    columns: list[Codes],
    answer: Answer,
) -> Program:
    k = Kernel()
    names = [
        k.load(f"in{i}", d, c, c.shape)
        for i, (d, c) in enumerate(zip(dtypes, columns, strict=True))
    ]
    shape = columns[3 if op == "mmaf_sparse" else 2].shape
    text = f"{op} {', '.join(names)}{attribute_text(attributes)} : {tile(shape, target)}"
    k.store("out0", k.let("r", text), shape, answer)
    return k.program()


def operands(
    F: str, A: str, kind: str, extents: tuple[Shape, int, int, int], rng: np.random.Generator
) -> tuple[Codes, Codes, Codes]:
    """lhs, rhs and acc of a kind of data."""
    batch, m, n, k = extents
    left, right, start = (*batch, m, k), (*batch, k, n), (*batch, m, n)
    f, g = FORMATS[F], FORMATS[A]
    if kind == "integers":
        # Sums that even an f16 accumulator holds exactly.
        top = 2 if A == "f16" else 8
        return tuple(
            values.small_integers(d, s, rng, top) for d, s in ((F, left), (F, right), (A, start))
        )  # type: ignore[return-value]
    if kind == "one_hot":
        x = np.zeros(left)
        x[..., np.arange(m), rng.integers(0, k, m)] = 1.0
        y, z = rng.standard_normal(right), np.zeros(start)
    elif kind == "special":
        x, y, z = (rng.standard_normal(s) for s in (left, right, start))
    else:
        x, y, z = (rng.standard_normal(s) for s in (left, right, start))
        if kind == "positive":
            x, y, z = np.abs(x), np.abs(y), np.abs(z)
        elif kind == "wide":
            x = x * 2.0 ** rng.integers(-6, 3, left)
            y = y * 2.0 ** rng.integers(-6, 3, right)
        elif kind == "cancelling" and k > 1:
            x[..., 1::2] = -x[..., : k // 2 * 2 : 2]
            y[..., 1::2, :] = y[..., : k // 2 * 2 : 2, :] * (1 + 2.0**-6)
    bits = [values.codes_of(v.reshape(-1), t).reshape(v.shape) for v, t in ((x, f), (y, f), (z, g))]
    if kind == "special":
        if f.infinity:
            bits[0].reshape(-1)[rng.integers(0, bits[0].size)] = (f.max_code + 1) << f.unused
        if f.nan != "none":
            bits[1].reshape(-1)[rng.integers(0, bits[1].size)] = f.nan_code
        bits[2].reshape(-1)[0] = (g.max_code + 1) << g.unused
    return bits[0], bits[1], bits[2]


def metadata(batch: Shape, m: int, k: int, rng: np.random.Generator) -> Codes:
    """Places of the two elements kept of every four, in ascending order."""
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    shape = (*batch, m, k // 8)
    drawn = rng.integers(0, len(pairs), (prod(shape), 2))
    nibble = [a | b << 2 for a, b in pairs]
    return codes([nibble[x] | nibble[y] << 4 for x, y in drawn.tolist()]).reshape(shape)


def scales(dtype: str, shape: Shape, kind: str, rng: np.random.Generator) -> Codes:
    """Scales: powers of two, or for f8e4m3 any small numbers."""
    size = prod(shape)
    if dtype == "f8e8m0":
        bits = codes(rng.integers(125, 130, size))
    else:
        drawn = rng.choice(
            [0.5, 1.0, 2.0, -1.0] if kind in ("integers", "one_hot") else [0.75, 1.5, 3.0], size
        )
        bits = values.codes_of(drawn, FORMATS[dtype])
    if kind == "special":
        bits[0] = 0xFF if dtype == "f8e8m0" else 0x7F
    return bits.reshape(shape)


def _scaled(settings: Settings) -> Iterator[Case]:
    record = definition("mmaf_scaled")
    number = 0
    for F in record.where["F"]:
        for S in record.where["S"]:
            for block in (32, 16):
                if (block == 16 and F != "f4e2m1") or (S == "f8e4m3" and block != 16):
                    continue
                for kind in KINDS:
                    for extents in sizes(settings, SCALED):
                        number += 1
                        if _wanted(settings, number, 4):
                            yield _case(
                                settings, "mmaf_scaled", F, "f32", kind, extents, {}, S, block
                            )


def _sparse(settings: Settings) -> Iterator[Case]:
    record = definition("mmaf_sparse")
    number = 0
    for F in record.where["F"]:
        for A in record.where["A"]:
            if A == "f16" and F == "bf16":
                continue
            for kind in KINDS:
                for extents in sizes(settings, SPARSE):
                    number += 1
                    if _wanted(settings, number, 4):
                        yield _case(settings, "mmaf_sparse", F, A, kind, extents, {})


# Integers


def _integers(settings: Settings) -> Iterator[Case]:
    record = definition("mmai")
    for F in record.where["F"]:
        for attributes in attribute_choices(record, {"F": F}):
            for i, extents in enumerate(sizes(settings)):
                if _wanted(settings, i, 3):
                    batch, m, n, k = extents
                    size = "x".join(map(str, (*batch, m, n, k)))
                    id = f"ops/mmai/{F}/{label(attributes)}-{size}"
                    build = partial(_integer_build, settings, id, F, extents, attributes)
                    yield Case(id, "ops", "mmai", F, rule_ids("mmai"), build, ("op:mmai",))


def _integer_build(
    settings: Settings,
    id: str,
    F: str,
    extents: tuple[Shape, int, int, int],
    attributes: Attributes,
) -> Program:
    batch, m, n, k = extents
    rng = settings.rng(id)
    columns: list[Codes] = []
    for dtype, shape in ((F, (*batch, m, k)), (F, (*batch, k, n)), ("i32", (*batch, m, n))):
        pool = np.concatenate([values.edges(dtype), values.random_codes(dtype, 30, rng)])
        columns.append(pool[rng.integers(0, pool.size, prod(shape))].reshape(shape))
    answer = mma_integers(Call("mmai", columns, [F, F, "i32"], ["i32"], dict(attributes)))
    return _program("mmai", [F, F, "i32"], "i32", attributes, columns, answer)
