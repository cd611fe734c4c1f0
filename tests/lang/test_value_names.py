"""Values of the IR are called what the kernel calls them."""

from __future__ import annotations

import numpy as np

import reftile
import reftile.lang as ct
from reftile import BACKENDS
from reftile.ir.print import show


@reftile.kernel(tokens="none")
def keep(a):
    start = ct.make_token()
    tile, loaded = ct.load(a, (0,), (4,), token=start)
    alias = tile
    ct.store(a, (0,), alias + 1, token=loaded)


def test_results_have_the_first_name_they_are_given():
    text = show(keep.trace(np.zeros(4, np.int32)))
    assert "%start = make_token" in text
    assert "%tile, %loaded = load_view_tko" in text
    assert "token=%loaded" in text
    assert "%alias" not in text


def test_backends_are_listed():
    assert BACKENDS.names[0] == "interp"
