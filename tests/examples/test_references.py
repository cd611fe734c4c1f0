"""What examples compare with is right: references against other ways to the same numbers."""

from __future__ import annotations

from importlib import import_module

import numpy as np


def test_gradient_of_attention_is_that_of_small_steps():
    backward = import_module("attention_backward")
    rng = np.random.default_rng(0)
    q, k, v, dout = (rng.standard_normal((1, 5, 3)) for _ in range(4))
    scale = 0.5
    out, lse = backward.forward(q, k, v, scale)
    found = backward.reference(q, k, v, dout, lse, (out * dout).sum(-1), scale)
    for which, gradient in enumerate(found):
        for place in ((0, 0, 0), (0, 2, 1), (0, 4, 2)):
            sums = []
            for step in (1e-6, -1e-6):
                moved = [x.copy() for x in (q, k, v)]
                moved[which][place] += step
                sums.append((backward.forward(*moved, scale)[0] * dout).sum())
            assert abs((sums[0] - sums[1]) / 2e-6 - gradient[place]) < 1e-7


def test_unfolded_images_give_the_convolution():
    conv2d = import_module("conv2d")
    rng = np.random.default_rng(1)
    image, filters = rng.standard_normal((1, 5, 6, 2)), rng.standard_normal((3, 2, 2, 4))
    window = conv2d.Window(3, 2, stride=2, padding=1)
    found = conv2d.reference(image, filters.reshape(-1, 4), window).value
    height, width = window.extent(5, 3), window.extent(6, 2)
    expected = np.zeros((height, width, 4))
    for y, x, r, c in np.ndindex(height, width, 3, 2):
        top, left = y * 2 + r - 1, x * 2 + c - 1
        if 0 <= top < 5 and 0 <= left < 6:
            expected[y, x] += image[0, top, left] @ filters[r, c]
    assert np.allclose(found, expected.reshape(-1, 4), rtol=1e-14, atol=1e-14)


def test_philox_is_the_published_one():
    """The known answers of Random123 for counters of zeros and of ones, key zero."""
    dropout = import_module("dropout")
    assert [hex(w) for w in dropout.philox(np.array([0]), 0)[0].tolist()] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]
