"""A persistent matrix product: a fixed number of blocks, each of which computes many tiles.

On hardware a block stays where it is and overlaps the end of one tile with the beginning of the
next. The order of tiles matters for caches: instead of whole rows, groups of `group` rows of tiles
are walked column by column, so that tiles computed at the same time share rows of `a` and columns
of `b`.
"""

from __future__ import annotations

from bounds import Estimate, estimate
from harness import Case, main, normal, output, seeded
from matmul import reference, sizes

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


def grouped_order(number, rows, columns, group):
    """The row and column of tile `number`. The last group may have fewer rows."""
    per_group = group * columns
    top = number // per_group * group
    height = min(rows - top, group)
    within = number % per_group
    return top + within % height, within // height


@reftile.kernel(num_ctas=1)
def matmul_persistent(
    a,
    b,
    c,
    group: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """Grid: any number of blocks."""
    rows, columns = ct.num_tiles(c, 0, (tile_m, tile_n)), ct.num_tiles(c, 1, (tile_m, tile_n))
    for number in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        i, j = grouped_order(number, rows, columns, group)
        acc = ct.zeros((tile_m, tile_n), ct.float32)
        for k in range(ct.num_tiles(a, 1, (tile_m, tile_k))):
            x = ct.load(a, (i, k), (tile_m, tile_k), padding_mode=ZERO)
            y = ct.load(b, (k, j), (tile_k, tile_n), padding_mode=ZERO)
            acc = ct.mma(x, y, acc)
        ct.store(c, (i, j), acc.astype(c.dtype))


def case(shape: tuple[int, int, int], blocks: int, dtype: str) -> Case:
    """More tiles than blocks, in no round number."""
    m, n, k = shape
    rng = seeded(m + n + k)
    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)
    expected = (estimate(a) @ estimate(b)).astype(dtype)
    constants = {"group": 2, **sizes((16, 16, 32))}
    return Case(
        f"persistent-{dtype}",
        matmul_persistent,
        (blocks,),
        {"a": a, "b": b, "c": output((m, n), dtype), **constants},
        {"c": Estimate(reference(a, b), expected.error)},
    )


def cases() -> list[Case]:
    """Tiles that do not divide among the blocks."""
    return [case((75, 50, 40), 3, "float16"), case((40, 33, 70), 4, "bfloat16")]


if __name__ == "__main__":
    main(cases)
