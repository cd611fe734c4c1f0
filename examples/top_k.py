"""The k greatest elements of each row and where they are; and routing to experts with it.

`top_k` walks over rows of any length. It keeps the best k so far, and lets them compete with the
next tile: first come the kept ones, so that of equal elements the one further left wins. `route`
is what a mixture of experts does with each token: the k best scores, and their softmax.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from bounds import Estimate, estimate
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

NEGATIVE = ct.PaddingMode.NEG_INF


@reftile.kernel
def top_k(x, values, places, k: ct.Constant[int], rows: ct.Constant[int], tile: ct.Constant[int]):
    """values, places: [rows of x, k]. Grid: (cdiv(x.shape[0], rows),). k is at most `tile`."""
    i = ct.bid(0)
    best, where = ct.topk(ct.load(x, (i, 0), (rows, tile), padding_mode=NEGATIVE), k)
    for j in range(1, ct.num_tiles(x, 1, (rows, tile))):
        part = ct.load(x, (i, j), (rows, tile), padding_mode=NEGATIVE)
        column = j * tile + ct.arange(tile, dtype=ct.int32)[None, :].broadcast_to((rows, tile))
        best, chosen = ct.topk(ct.cat((best, part), axis=1), k)
        where = ct.gather_axis(ct.cat((where, column), axis=1), chosen, axis=1)
    ct.store(values, (i, 0), best)
    ct.store(places, (i, 0), where)


@reftile.kernel
def route(
    scores, weights, experts, k: ct.Constant[int], rows: ct.Constant[int], width: ct.Constant[int]
):
    """weights: float32 [tokens, k]; experts: int32 [tokens, k]. width: at least scores.shape[1]."""
    i = ct.bid(0)
    row = ct.load(scores, (i, 0), (rows, width), padding_mode=NEGATIVE).astype(ct.float32)
    best, chosen = ct.topk(row, k)
    powers = ct.exp(best - ct.max(best, axis=1, keepdims=True))
    ct.store(weights, (i, 0), powers / ct.sum(powers, axis=1, keepdims=True))
    ct.store(experts, (i, 0), chosen)


def reference(x: Any, k: int) -> tuple[Any, Any]:
    """The k greatest by a stable sort: equal elements from left to right."""
    exact = np.asarray(x, np.float64)
    places = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(exact, places, axis=1), places


def case_top_k(
    name: str, shape: tuple[int, int], k: int, tiles: tuple[int, int], dtype: str, step: float = 0
) -> Case:
    """step: numbers are multiples of it, so that some are equal."""
    x = normal(seeded(sum(shape)), shape, "float32")
    x = (np.round(x / step) * step if step else x).astype(normal(seeded(0), (1,), dtype).dtype)
    values, places = reference(x, k)
    outputs = {"values": output((shape[0], k), dtype), "places": output((shape[0], k), "int32")}
    return Case(
        f"top-k-{name}",
        top_k,
        (-(-shape[0] // tiles[0]),),
        {"x": x, **outputs, "k": k, "rows": tiles[0], "tile": tiles[1]},
        {"values": estimate(values), "places": estimate(places)},
    )


def case_route(tokens: int, experts: int, k: int) -> Case:
    """Scores in bfloat16, as a network gives them."""
    scores = normal(seeded(tokens), (tokens, experts), "bfloat16")
    values, places = reference(scores, k)
    best = estimate(values, "float32")
    powers = (best - values.max(1, keepdims=True)).exp()
    shares = powers / powers.sum(1, keepdims=True)
    exact = np.exp(values) / np.exp(values).sum(1, keepdims=True)
    outputs = {"weights": output((tokens, k), "float32"), "experts": output((tokens, k), "int32")}
    return Case(
        "top-k-route",
        route,
        (-(-tokens // 8),),
        {
            "scores": scores,
            **outputs,
            "k": k,
            "rows": 8,
            "width": 1 << math.ceil(math.log2(experts)),
        },
        {"weights": Estimate(exact, shares.error), "experts": estimate(places)},
    )


def cases() -> list[Case]:
    """Rows longer than a tile, rows with equal elements."""
    return [
        case_top_k("float32", (7, 150), 5, (4, 32), "float32"),
        case_top_k("equal", (6, 70), 8, (4, 16), "float16", step=0.5),
        case_route(19, 24, 3),
    ]


if __name__ == "__main__":
    main(cases)
