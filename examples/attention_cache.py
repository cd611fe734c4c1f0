"""Decoding with a cache: append the new key and value, then attend over all of them.

One block serves one kv head and all query heads that share it. It writes the row of the new token
into the cache and reads the cache back, tile by tile, so the loads must come after the stores.
Nothing but a token says so: `tokens="none"` switches the automatic order off, and the kernel
passes its tokens itself. With the default, `tokens="auto"`, the same order is inserted from the
order of the text.

Layouts: q is [kv heads, group, dim], new_k and new_v are [kv heads, 1, dim], the caches are [kv
heads, capacity, dim] and hold `length` tokens before the launch.
"""

from __future__ import annotations

import math

import numpy as np
from attention import LOG2_E, ZERO, bound, reference, softmax_step
from bounds import Estimate, estimate
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct


@reftile.kernel(tokens="none")
def attend_appending(
    q,
    new_k,
    new_v,
    k_cache,
    v_cache,
    out,
    length: int,
    scale: float,
    group: ct.Constant[int],
    head_dim: ct.Constant[int],
    tile_n: ct.Constant[int],
):
    """Grid: (kv heads,). `group` and `head_dim` are q.shape[1] and q.shape[2]."""
    head = ct.bid(0)
    start = ct.make_token()
    row = ct.load(new_k, (head, 0, 0), (1, 1, head_dim))
    k_stored = ct.store(k_cache, (head, length, 0), row, token=start)
    row = ct.load(new_v, (head, 0, 0), (1, 1, head_dim))
    v_stored = ct.store(v_cache, (head, length, 0), row, token=start)

    query = ct.load(q, (head, 0, 0), (1, group, head_dim)).reshape((group, head_dim))
    highest = ct.full((group, 1), -math.inf, ct.float32)
    total = ct.zeros((group, 1), ct.float32)
    acc = ct.zeros((group, head_dim), ct.float32)
    for j in range(ct.cdiv(length + 1, tile_n)):
        index, shape = (head, j, 0), (1, tile_n, head_dim)
        key, _ = ct.load(k_cache, index, shape, padding_mode=ZERO, token=k_stored)
        value, _ = ct.load(v_cache, index, shape, padding_mode=ZERO, token=v_stored)
        key = key.reshape((tile_n, head_dim)).transpose()
        value = value.reshape((tile_n, head_dim))
        scores = ct.mma(query, key, ct.zeros((group, tile_n), ct.float32)) * (scale * LOG2_E)
        column = j * tile_n + ct.arange(tile_n, dtype=ct.int32)[None, :]
        # Behind the new token the cache holds what an earlier request left: neither its scores nor
        # its values may count. A weight of 0 would not do, as 0 times infinity is not 0.
        scores = ct.where(column <= length, scores, -math.inf)
        value = ct.where(column.reshape((tile_n, 1)) <= length, value, 0.0)
        highest, total, acc = softmax_step(scores, value, highest, total, acc)
    ct.store(out, (head, 0, 0), (acc / total).astype(out.dtype).reshape((1, group, head_dim)))


def case(name: str, kv_heads: int, group: int, length: int, capacity: int, dtype: str) -> Case:
    """A cache that holds `length` tokens, and infinities behind them."""
    rng, dim, tile_n = seeded(length), 16, 16
    q = normal(rng, (kv_heads, group, dim), dtype)
    new_k, new_v = (normal(rng, (kv_heads, 1, dim), dtype) for _ in range(2))
    k_cache, v_cache = (normal(rng, (kv_heads, capacity, dim), dtype) for _ in range(2))
    k_cache[:, length:], v_cache[:, length:] = np.inf, np.inf
    scale, seen = 1 / math.sqrt(dim), np.ones((1, length + 1), bool)
    k_after, v_after = k_cache.copy(), v_cache.copy()
    k_after[:, length : length + 1], v_after[:, length : length + 1] = new_k, new_v
    k, v = k_after[:, : length + 1], v_after[:, : length + 1]
    result = Estimate(reference(q, k, v, scale, seen), bound(q, k, v, scale, seen, tile_n))
    arrays = {"q": q, "new_k": new_k, "new_v": new_v, "k_cache": k_cache, "v_cache": v_cache}
    sizes = {"group": group, "head_dim": dim, "tile_n": tile_n}
    return Case(
        f"attention-cache-{name}",
        attend_appending,
        (kv_heads,),
        {**arrays, "out": output(q.shape, dtype), "length": length, "scale": scale, **sizes},
        {"out": result, "k_cache": estimate(k_after), "v_cache": estimate(v_after)},
        starts=("k_cache", "v_cache"),
    )


def cases() -> list[Case]:
    """An empty cache, one that is cut within a tile, one that becomes full."""
    return [
        case("empty", 1, 4, 0, 20, "float16"),
        case("gqa", 2, 3, 37, 50, "bfloat16"),
        case("full", 1, 2, 31, 32, "float16"),
    ]


if __name__ == "__main__":
    main(cases)
