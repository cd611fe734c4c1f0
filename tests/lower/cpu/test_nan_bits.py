"""Compiled for a CPU, a NaN that is moved keeps its bits too."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.ir.arguments import HostBytes
from reftile.ir.dtypes import DType
from reftile.ir.parse import parse
from reftile.rt.cpu import launch_cpu
from tests.interp.test_nan_bits import FORMATS, all_nans, move


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_moving_keeps_the_bits_of_every_nan(dtype: DType) -> None:
    codes = all_nans(dtype)
    out, bits = np.zeros_like(codes), np.zeros_like(codes)
    arrays = [
        HostBytes(array.view(np.uint8), name, name)
        for array, name in ((codes, dtype.name), (out, dtype.name), (bits, f"i{dtype.bits}"))
    ]
    launch_cpu(parse(move(dtype)), (1,), arrays)
    assert (out == codes).all()
    assert (bits == codes).all()
