"""Latent attention (MLA), decoding: all tokens, and the chosen few.

What is cached of a token is one vector for all heads: `rank` latent numbers, which serve as keys
and as values, and `rope` numbers that carry the position, which serve as keys only. The matrices
that would make keys and values of them are multiplied into the queries before and into the result
after. So a block takes all heads at once, and the cache is read once:

    score = (q_latent . latent + q_rope . position) * scale,    out = softmax(score) @ latent

`decode_sparse` reads only the tokens that an index chose for each query; -1 stands for none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attention import LOG2_E, ZERO, bound, reference, softmax_step
from bounds import Estimate, stack
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct


def attend(latent_query, rope_query, latent, position, seen, scale, highest, total, acc):
    """One tile of tokens. latent: [tokens, rank]; position: [tokens, rope]; seen: [1, tokens]."""
    nothing = ct.zeros((latent_query.shape[0], latent.shape[0]), ct.float32)
    scores = ct.mma(latent_query, latent.transpose(), nothing)
    scores = ct.mma(rope_query, position.transpose(), scores) * (scale * LOG2_E)
    scores = ct.where(seen, scores, -math.inf)
    return softmax_step(scores, latent, highest, total, acc)


@reftile.kernel
def decode(
    q_latent,
    q_rope,
    cache,
    lengths,
    out,
    scale: float,
    heads: ct.Constant[int],
    rank: ct.Constant[int],
    rope: ct.Constant[int],
    tile: ct.Constant[int],
):
    """q_latent: [batch, heads, rank]; q_rope: [batch, heads, rope]; cache: [batch, tokens,
    rank + rope], of which the first lengths[b] count. Grid: (batch,).
    """
    b = ct.bid(0)
    length = ct.load(lengths, (b,), ())
    latent_query = ct.load(q_latent, (b, 0, 0), (1, heads, rank)).reshape((heads, rank))
    rope_query = ct.load(q_rope, (b, 0, 0), (1, heads, rope)).reshape((heads, rope))
    # Arrays of their own: tiles are numbered from the beginning of each part.
    latents = cache.slice(2, 0, rank).slice(1, 0, length)
    positions = cache.slice(2, rank, rank + rope).slice(1, 0, length)
    highest = ct.full((heads, 1), -math.inf, ct.float32)
    total = ct.zeros((heads, 1), ct.float32)
    acc = ct.zeros((heads, rank), ct.float32)
    for j in range(ct.cdiv(length, tile)):
        latent = ct.load(latents, (b, j, 0), (1, tile, rank), padding_mode=ZERO)
        position = ct.load(positions, (b, j, 0), (1, tile, rope), padding_mode=ZERO)
        latent, position = latent.reshape((tile, rank)), position.reshape((tile, rope))
        seen = j * tile + ct.arange(tile, dtype=ct.int32)[None, :] < length
        highest, total, acc = attend(
            latent_query, rope_query, latent, position, seen, scale, highest, total, acc
        )
    ct.store(out, (b, 0, 0), (acc / total).astype(out.dtype).reshape((1, heads, rank)))


@reftile.kernel
def decode_sparse(
    q_latent,
    q_rope,
    cache,
    chosen,
    out,
    scale: float,
    heads: ct.Constant[int],
    rank: ct.Constant[int],
    rope: ct.Constant[int],
    tile: ct.Constant[int],
):
    """cache: [tokens, rank + rope]; chosen: int32 [queries, count]. Grid: (queries,)."""
    b = ct.bid(0)
    latent_query = ct.load(q_latent, (b, 0, 0), (1, heads, rank)).reshape((heads, rank))
    rope_query = ct.load(q_rope, (b, 0, 0), (1, heads, rope)).reshape((heads, rope))
    highest = ct.full((heads, 1), -1e30, ct.float32)
    total = ct.zeros((heads, 1), ct.float32)
    acc = ct.zeros((heads, rank), ct.float32)
    for j in range(ct.num_tiles(chosen, 1, (1, tile))):
        place = j * tile + ct.arange(tile, dtype=ct.int32)
        rows = ct.gather(chosen, (b, place), padding_value=-1)
        seen = (rows >= 0).reshape((1, tile))
        rows = ct.maximum(rows, 0)
        latent = ct.load_advanced_indexing(cache, (rows, ct.Slice(0, rank)))
        position = ct.load_advanced_indexing(cache, (rows, ct.Slice(rank, rope)))
        highest, total, acc = attend(
            latent_query, rope_query, latent, position, seen, scale, highest, total, acc
        )
    ct.store(out, (b, 0, 0), (acc / total).astype(out.dtype).reshape((1, heads, rank)))


# Cases


def expect(q: Any, k: Any, rank: int, scale: float, tile: int) -> Estimate:
    """Attention of [heads, rank + rope] over [tokens, rank + rope]."""
    seen = np.ones((1, k.shape[0]), bool)
    arguments = (q, k, k[:, :rank], scale, seen)
    return Estimate(reference(*arguments), bound(*arguments, tile))


def case_decode(lengths: list[int], heads: int, dtype: str) -> Case:
    """A batch of requests with caches of different lengths, and infinities behind their ends."""
    rank, rope, tile, batch, capacity = 32, 8, 16, len(lengths), max(lengths) + 3
    rng = seeded(sum(lengths))
    q = normal(rng, (batch, heads, rank + rope), dtype)
    cache = normal(rng, (batch, capacity, rank + rope), dtype)
    scale = 1 / math.sqrt(rank + rope)
    parts = [expect(q[b], cache[b, :n], rank, scale, tile) for b, n in enumerate(lengths)]
    for b, n in enumerate(lengths):
        cache[b, n:] = np.inf
    arguments = {
        "q_latent": np.ascontiguousarray(q[..., :rank]),
        "q_rope": np.ascontiguousarray(q[..., rank:]),
        "cache": cache,
        "lengths": np.array(lengths, np.int32),
        "out": output((batch, heads, rank), dtype),
    }
    constants = {"scale": scale, "heads": heads, "rank": rank, "rope": rope, "tile": tile}
    expected = stack(parts)
    return Case(
        f"mla-decode-{dtype}", decode, (batch,), {**arguments, **constants}, {"out": expected}
    )


def case_sparse(queries: int, tokens: int, count: int, heads: int, dtype: str) -> Case:
    """Each query has chosen some tokens, not all of its places are used."""
    rank, rope, tile = 32, 8, 16
    rng = seeded(tokens)
    q = normal(rng, (queries, heads, rank + rope), dtype)
    cache = normal(rng, (tokens, rank + rope), dtype)
    scale = 1 / math.sqrt(rank + rope)
    chosen = np.stack([rng.permutation(tokens)[:count] for _ in range(queries)]).astype(np.int32)
    for b in range(queries):
        chosen[b, count - 3 * b :] = -1
    chosen[-1, :tile] = -1  # a tile in which nothing is chosen
    parts = [expect(q[b], cache[c[c >= 0]], rank, scale, tile) for b, c in enumerate(chosen)]
    arguments = {
        "q_latent": np.ascontiguousarray(q[..., :rank]),
        "q_rope": np.ascontiguousarray(q[..., rank:]),
        "cache": cache,
        "chosen": chosen,
        "out": output((queries, heads, rank), dtype),
    }
    constants = {"scale": scale, "heads": heads, "rank": rank, "rope": rope, "tile": tile}
    expected = stack(parts)
    return Case(
        f"mla-sparse-{dtype}",
        decode_sparse,
        (queries,),
        {**arguments, **constants},
        {"out": expected},
    )


def cases() -> list[Case]:
    """Lengths and counts that fill no tile."""
    return [
        case_decode([19, 1, 40], 4, "bfloat16"),
        case_sparse(3, 50, 37, 4, "float16"),
    ]


if __name__ == "__main__":
    main(cases)
