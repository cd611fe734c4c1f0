"""Convolution in two dimensions as a matrix product whose left matrix is never stored.

Row m of that matrix is one place of the result, (image, y, x); column k is one weight of a filter,
(dy, dx, channel). A block computes for its tile which element of the input each pair of row and
column means, and gathers it. Where the filter sticks out of the image the index is outside the
array, and gives 0; that is the padding.

Layouts: images are [n, height, width, channels], filters [rows * columns * channels, out channels].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from bounds import Estimate, estimate
from harness import Case, main, normal, output, seeded
from matmul import sizes

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


@dataclass(frozen=True)
class Window:
    """How a filter lies on an image. Kernels read the fields of constants."""

    rows: int
    columns: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def extent(self, size: int, filter_size: int) -> int:
        """The size of the result along an axis."""
        reach = self.dilation * (filter_size - 1) + 1
        return (size + 2 * self.padding - reach) // self.stride + 1


@reftile.kernel
def conv2d(
    image,
    filters,
    out,
    window: ct.Constant[Window],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """out: [n * out height * out width, out channels], of an image [n, height, width, channels]
    whose result has the extents `window` gives. Grid: (cdiv(rows of out, tile_m), cdiv(channels,
    tile_n)).
    """
    i, j = ct.bid(0), ct.bid(1)
    channels = image.shape[3]
    reach_y = window.dilation * (window.rows - 1) + 1
    reach_x = window.dilation * (window.columns - 1) + 1
    height = (image.shape[1] + 2 * window.padding - reach_y) // window.stride + 1
    width = (image.shape[2] + 2 * window.padding - reach_x) // window.stride + 1

    place = i * tile_m + ct.arange(tile_m, dtype=ct.int32)[:, None]
    n, rest = place // (height * width), place % (height * width)
    top = rest // width * window.stride - window.padding
    left = rest % width * window.stride - window.padding

    acc = ct.zeros((tile_m, tile_n), ct.float32)
    for k in range(ct.num_tiles(filters, 0, (tile_k, tile_n))):
        weight = k * tile_k + ct.arange(tile_k, dtype=ct.int32)[None, :]
        tap, channel = weight // channels, weight % channels
        y = top + tap // window.columns * window.dilation
        x = left + tap % window.columns * window.dilation
        patch = ct.gather(image, (n, y, x, channel), mask=tap < window.rows * window.columns)
        f = ct.load(filters, (k, j), (tile_k, tile_n), padding_mode=ZERO)
        acc = ct.mma(patch, f, acc)
    ct.store(out, (i, j), acc.astype(out.dtype))


def unfold(image: Any, window: Window) -> np.ndarray:
    """The left matrix, [n * out height * out width, rows * columns * channels], by slices."""
    p, s, d = window.padding, window.stride, window.dilation
    padded = np.pad(image, ((0, 0), (p, p), (p, p), (0, 0)))
    height = window.extent(image.shape[1], window.rows)
    width = window.extent(image.shape[2], window.columns)
    taps = [
        padded[:, r * d : r * d + (height - 1) * s + 1 : s, c * d : c * d + (width - 1) * s + 1 : s]
        for r in range(window.rows)
        for c in range(window.columns)
    ]
    return np.concatenate(taps, axis=-1).reshape(-1, len(taps) * image.shape[3])


def reference(image: Any, filters: Any, window: Window) -> Estimate:
    """The product in float64, with its bound."""
    return estimate(unfold(image, window)) @ estimate(filters)


def case(name: str, shape: tuple[int, int, int, int], out: int, window: Window, dtype: str) -> Case:
    """An image and `out` filters."""
    rng, tiles = seeded(sum(shape)), (16, 16, 16)
    image = normal(rng, shape, dtype)
    taps = window.rows * window.columns * shape[3]
    filters = normal(rng, (taps, out), dtype)
    expected = reference(image, filters, window).astype(dtype)
    places = expected.value.shape[0]
    arrays = {"image": image, "filters": filters, "out": output((places, out), dtype)}
    return Case(
        f"conv2d-{name}",
        conv2d,
        (-(-places // tiles[0]), -(-out // tiles[1])),
        {**arrays, "window": window, **sizes(tiles)},
        {"out": expected},
    )


def cases() -> list[Case]:
    """Padding, stride, dilation; channels that fill no tile."""
    return [
        case("3x3", (2, 7, 6, 5), 9, Window(3, 3, padding=1), "float16"),
        case("stride", (1, 9, 11, 3), 18, Window(3, 2, stride=2), "bfloat16"),
        case("dilated", (1, 8, 8, 4), 4, Window(2, 3, padding=2, dilation=2), "float16"),
    ]


if __name__ == "__main__":
    main(cases)
