"""Causal linear attention, chunk by chunk: out[i] = sum over j <= i of (q[i] . k[j]) v[j].

Without a softmax the sum over all earlier chunks is a matrix, state = sum of k[j] v[j]^T, which
does not grow with their number. A block takes one head and walks over the chunks: what a query
owes to earlier chunks is q @ state, what it owes to its own is a small causal product, and then
the chunk joins the state. With `decay` below 1, everything is weighted by decay ^ (i - j), as in
retention.

Layouts: [heads, tokens, dim].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bounds import Estimate, Floats, estimate
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


@reftile.kernel
def linear_attention(
    q, k, v, powers, out, chunk: ct.Constant[int], dim: ct.Constant[int], width: ct.Constant[int]
):
    """q, k: [heads, tokens, dim]; v, out: [heads, tokens, width]; powers: float32 [heads, chunk +
    1], the powers of each head's decay. Grid: (heads,).
    """
    head = ct.bid(0)
    step = ct.arange(chunk, dtype=ct.int32)
    distance = step[:, None] - step[None, :]
    # decay ^ (i - j) within a chunk, and 0 for what lies ahead
    within = ct.gather(powers, (head, ct.maximum(distance, 0)), mask=distance >= 0)
    since_start = ct.gather(powers, (head, step + 1))[:, None]
    until_end = ct.gather(powers, (head, chunk - 1 - step))[:, None]
    whole = ct.gather(powers, (head, ct.zeros((1, 1), ct.int32) + chunk))
    state = ct.zeros((dim, width), ct.float32)
    for c in range(ct.num_tiles(q, 1, (1, chunk, dim))):
        index = (head, c, 0)
        query = ct.load(q, index, (1, chunk, dim), padding_mode=ZERO).reshape((chunk, dim))
        key = ct.load(k, index, (1, chunk, dim), padding_mode=ZERO).reshape((chunk, dim))
        value = ct.load(v, index, (1, chunk, width), padding_mode=ZERO).reshape((chunk, width))
        nothing = ct.zeros((chunk, width), ct.float32)
        before = ct.mma(query.astype(ct.float32), state, nothing) * since_start
        scores = ct.mma(query, key.transpose(), ct.zeros((chunk, chunk), ct.float32)) * within
        value = value.astype(ct.float32)
        result = ct.mma(scores, value, before)
        ct.store(out, index, result.astype(out.dtype).reshape((1, chunk, width)))
        late = key.astype(ct.float32) * until_end
        state = ct.mma(late.transpose(), value, state * whole)


def reference(q: Any, k: Any, v: Any, decay: Any) -> Floats:
    """The definition, in float64: every query with every key before it."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    step = np.arange(q.shape[1])
    distance = step[:, None] - step[None, :]
    weights = np.where(
        distance >= 0, np.asarray(decay)[:, None, None] ** np.maximum(distance, 0), 0
    )
    return (q @ k.swapaxes(1, 2) * weights) @ v


def bound(q: Any, k: Any, v: Any, powers: Any, exact: Any, chunk: int) -> Floats:
    """The kernel's steps on numbers with errors, chunk after chunk."""
    heads, tokens, dim = q.shape
    factors = Estimate(exact, np.abs(powers - exact))
    step = np.arange(chunk)
    distance = step[:, None] - step[None, :]
    within = factors[:, np.maximum(distance, 0)].where(distance >= 0)
    since_start, until_end = factors[:, step + 1, None], factors[:, chunk - 1 - step, None]
    state = estimate(np.zeros((heads, dim, v.shape[2])), "float32")
    errors = np.zeros(v.shape)
    for first in range(0, tokens, chunk):
        here = slice(first, min(first + chunk, tokens))
        n = here.stop - first
        query, key, value = (estimate(x[:, here]) for x in (q, k, v))
        wide = value.astype("float32")
        before = (query.astype("float32") @ state) * since_start[:, :n]
        scores = (query @ key.swap()) * within[:, :n, :n]
        errors[:, here] = (scores @ wide + before).astype(str(q.dtype)).error
        late = key.astype("float32") * until_end[:, :n]
        state = late.swap() @ wide + state * factors[:, chunk : chunk + 1, None]
    return errors


def case(name: str, shape: tuple[int, int, int, int], decay: list[float], dtype: str) -> Case:
    """heads, tokens, dim and the width of values."""
    heads, tokens, dim, width = shape
    rng, chunk = seeded(sum(shape)), 16
    q, k = (normal(rng, (heads, tokens, dim), dtype) for _ in range(2))
    v = normal(rng, (heads, tokens, width), dtype)
    exact = np.array(decay)[:, None] ** np.arange(chunk + 1)
    powers = exact.astype(np.float32)
    inputs = {"q": q, "k": k, "v": v, "powers": powers, "out": output(v.shape, dtype)}
    constants = {"chunk": chunk, "dim": dim, "width": width}
    expected = Estimate(reference(q, k, v, decay), bound(q, k, v, powers, exact, chunk))
    return Case(
        f"linear-attention-{name}",
        linear_attention,
        (heads,),
        {**inputs, **constants},
        {"out": expected},
    )


def cases() -> list[Case]:
    """With and without decay; the last chunk is not full."""
    return [
        case("plain", (2, 41, 8, 16), [1.0, 1.0], "bfloat16"),
        case("decay", (2, 37, 16, 8), [0.9, 0.5], "float16"),
    ]


if __name__ == "__main__":
    main(cases)
