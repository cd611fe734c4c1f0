"""Moving data: transpose, gather and scatter rows, gather elements. Nothing is rounded."""

from __future__ import annotations

import numpy as np
from bounds import estimate
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct


@reftile.kernel
def transpose(x, out, tile_m: ct.Constant[int], tile_n: ct.Constant[int]):
    """out = x.T. Grid: (cdiv(m, tile_m), cdiv(n, tile_n))."""
    i, j = ct.bid(0), ct.bid(1)
    ct.store(out, (j, i), ct.load(x, (i, j), (tile_m, tile_n)).transpose())


@reftile.kernel
def transpose_by_view(x, out, tile_m: ct.Constant[int], tile_n: ct.Constant[int]):
    """The same by the order of axes: axis 0 of the tile is axis 1 of the array ("F")."""
    i, j = ct.bid(0), ct.bid(1)
    ct.store(out, (i, j), ct.load(x, (i, j), (tile_n, tile_m), order="F"))


@reftile.kernel
def gather_rows(table, rows, out, count: ct.Constant[int], width: ct.Constant[int]):
    """out[i] = table[rows[i]], as in an embedding. Grid: (cdiv(rows.shape[0], count),).

    Rows are named by a tile of numbers; columns are a slice. width: at least table.shape[1].
    """
    i = ct.bid(0)
    numbers = ct.load(rows, (i,), (count,), padding_mode=ct.PaddingMode.ZERO)
    found = ct.load_advanced_indexing(table, (numbers, ct.Slice(0, width)))
    ct.store(out, (i, 0), found)


@reftile.kernel
def scatter_rows(x, rows, out, count: ct.Constant[int], width: ct.Constant[int]):
    """out[rows[i]] = x[i]; no number occurs twice, or it would be a race.

    The numbers behind the end are those of rows that do not exist, so nothing is stored for them.
    """
    i = ct.bid(0)
    part = ct.load(x, (i, 0), (count, width))
    place = i * count + ct.arange(count, dtype=ct.int32)
    numbers = ct.gather(rows, place, padding_value=-1)
    column = ct.arange(width, dtype=ct.int32)[None, :]
    ct.scatter(out, (numbers[:, None], column), part)


@reftile.kernel
def gather_elements(x, rows, columns, out, tile: ct.Constant[int]):
    """out[i] = x[rows[i], columns[i]], and 0 where that is outside. Grid: (cdiv(size, tile),)."""
    i = ct.bid(0)
    row = ct.load(rows, (i,), (tile,), padding_mode=ct.PaddingMode.ZERO)
    column = ct.load(columns, (i,), (tile,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (i,), ct.gather(x, (row, column), padding_value=0))


# Cases


def case_transpose(kernel: reftile.KernelFunction, dtype: str) -> Case:
    """A ragged matrix."""
    m, n, tile_m, tile_n = 37, 50, 16, 32
    x = normal(seeded(1), (m, n), dtype)
    by_view = kernel is transpose_by_view
    tiles = {"tile_m": tile_m, "tile_n": tile_n}
    grid = (-(-n // tile_n), -(-m // tile_m)) if by_view else (-(-m // tile_m), -(-n // tile_n))
    arguments = {"x": x, "out": output((n, m), dtype), **tiles}
    name = kernel.__name__.replace("_", "-")
    return Case(f"{name}-{dtype}", kernel, grid, arguments, {"out": estimate(x.T)})


def case_gather_rows() -> Case:
    """Some rows of a table, some twice."""
    rng = seeded(2)
    table, rows = normal(rng, (20, 27), "float16"), rng.integers(0, 20, 13).astype(np.int32)
    arguments = {"table": table, "rows": rows, "out": output((13, 27), "float16")}
    sizes = {"count": 8, "width": 32}
    expected = {"out": estimate(table[rows])}
    return Case("gather-rows", gather_rows, (2,), {**arguments, **sizes}, expected)


def case_scatter_rows() -> Case:
    """A permutation of rows."""
    rng = seeded(3)
    x, rows = normal(rng, (13, 27), "float32"), rng.permutation(13).astype(np.int32)
    expected = np.zeros(x.shape)
    expected[rows] = x
    arguments = {"x": x, "rows": rows, "out": output(x.shape, "float32")}
    sizes = {"count": 8, "width": 32}
    return Case(
        "scatter-rows", scatter_rows, (2,), {**arguments, **sizes}, {"out": estimate(expected)}
    )


def case_gather_elements() -> Case:
    """Places inside, behind the end and before the beginning."""
    rng = seeded(4)
    x = rng.integers(1, 100, (6, 7)).astype(np.int32)
    rows, columns = (rng.integers(-2, 9, 50).astype(np.int32) for _ in range(2))
    inside = (rows >= 0) & (rows < 6) & (columns >= 0) & (columns < 7)
    expected = np.where(inside, x[rows.clip(0, 5), columns.clip(0, 6)], 0)
    arguments = {"x": x, "rows": rows, "columns": columns, "out": output((50,), "int32")}
    return Case(
        "gather-elements",
        gather_elements,
        (4,),
        {**arguments, "tile": 16},
        {"out": estimate(expected)},
    )


def cases() -> list[Case]:
    """One or two of each kernel."""
    return [
        case_transpose(transpose, "float16"),
        case_transpose(transpose_by_view, "float32"),
        case_gather_rows(),
        case_scatter_rows(),
        case_gather_elements(),
    ]


if __name__ == "__main__":
    main(cases)
