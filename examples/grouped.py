"""Grouped matrix product: the experts of a mixture, each with the tokens that were sent to it.

Tokens are not moved. `order` lists the tokens expert by expert, and the tokens of expert e stand
from starts[e] up to starts[e + 1]. A block takes a tile of one expert's part of the list, gathers
these rows, and stores its result at their places in the list. Parts are slices, so nothing reaches
into the next expert's rows; an expert without tokens costs blocks that end at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bounds import Estimate, concatenate, estimate
from harness import Case, main, normal, output, seeded
from matmul import sizes

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


@reftile.kernel
def grouped_matmul(
    x,
    weights,
    order,
    starts,
    out,
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """x: [tokens, k]; weights: [experts, k, n]; order: int32 [assigned]; starts: int32 [experts +
    1]; out: [assigned, n]. Grid: (cdiv(longest part, tile_m), cdiv(n, tile_n), experts).
    """
    i, j, expert = ct.bid(0), ct.bid(1), ct.bid(2)
    first, end = ct.load(starts, (expert,), ()), ct.load(starts, (expert + 1,), ())
    if i * tile_m < end - first:
        part = order.slice(0, first, end)
        # Places behind the end of the part give token 0, whose result is not stored.
        tokens = ct.load(part, (i,), (tile_m,), padding_mode=ZERO)
        acc = ct.zeros((tile_m, tile_n), ct.float32)
        for k in range(ct.num_tiles(x, 1, (tile_m, tile_k))):
            columns = ct.Slice(k * tile_k, tile_k)
            rows = ct.load_advanced_indexing(x, (tokens, columns), padding_mode=ZERO)
            w = ct.load(weights, (expert, k, j), (1, tile_k, tile_n), padding_mode=ZERO)
            acc = ct.mma(rows, w.reshape((tile_k, tile_n)), acc)
        ct.store(out.slice(0, first, end), (i, j), acc.astype(out.dtype))


def reference(x: Any, weights: Any, order: Any, starts: Any) -> Estimate:
    """Row by row, in float64, with the bound of a product."""
    experts = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    products = [
        estimate(x[t][None, :]) @ estimate(weights[e]) for t, e in zip(order, experts, strict=True)
    ]
    return concatenate(products)


def case(name: str, counts: list[int], shape: tuple[int, int, int], dtype: str) -> Case:
    """counts: tokens for each expert. shape: tokens, n, k."""
    tokens, n, k = shape
    rng = seeded(sum(counts))
    x, weights = normal(rng, (tokens, k), dtype), normal(rng, (len(counts), k, n), dtype)
    order = np.concatenate([rng.permutation(tokens)[:c] for c in counts]).astype(np.int32)
    starts = np.cumsum([0, *counts]).astype(np.int32)
    tiles = (8, 16, 16)
    inputs = {"x": x, "weights": weights, "order": order, "starts": starts}
    return Case(
        f"grouped-{name}",
        grouped_matmul,
        (-(-max(counts) // tiles[0]), -(-n // tiles[1]), len(counts)),
        {**inputs, "out": output((len(order), n), dtype), **sizes(tiles)},
        {"out": reference(x, weights, order, starts).astype(dtype)},
    )


def cases() -> list[Case]:
    """Uneven experts, one of them idle."""
    return [
        case("uneven", [13, 0, 3, 9], (20, 27, 40), "float16"),
        case("one", [5], (6, 16, 50), "bfloat16"),
    ]


if __name__ == "__main__":
    main(cases)
