"""A NaN that is moved keeps its bits in every format; one that is computed is the canonical one."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.arguments import HostBytes
from reftile.ir.dtypes import FLOATS, DType
from reftile.ir.parse import parse

FORMATS = [d for d in FLOATS if 8 <= d.bits <= 16]
MOVE = """tile kernel @move(%p: tile<ptr<{T}>>, %q: tile<ptr<{T}>>, %r: tile<ptr<i{bits}>>) {{
  %t = make_token : token
  %v = make_tensor_view %p, [], [] : tensor_view<256x{T}, strides=[1]>
  %vs = make_partition_view %v : partition_view<tile=(256), tensor_view<256x{T}, strides=[1]>>
  %i = constant {{value = 0}} : tile<i32>
  %a, %t1 = load_view_tko %vs, [%i], token=%t {{ordering = weak}} : tile<256x{T}>, token
  %b = reshape %a : tile<2x128x{T}>
  %c = permute %b {{permutation = [1, 0]}} : tile<128x2x{T}>
  %yes = constant {{value = true}} : tile<128x2xi1>
  %no = constant {{value = 1.0}} : tile<128x2x{T}>
  %d = select %yes, %c, %no : tile<128x2x{T}>
  %e = permute %d {{permutation = [1, 0]}} : tile<2x128x{T}>
  %one = constant {{value = 1}} : tile<i32>
  %f = extract %e, [%i, %i] : tile<1x128x{T}>
  %g = extract %e, [%one, %i] : tile<1x128x{T}>
  %h = cat %f, %g {{axis = 0}} : tile<2x128x{T}>
  %k = insert %g, %h, [%one, %i] : tile<2x128x{T}>
  %l = reshape %k : tile<256x{T}>
  %w = make_tensor_view %q, [], [] : tensor_view<256x{T}, strides=[1]>
  %ws = make_partition_view %w : partition_view<tile=(256), tensor_view<256x{T}, strides=[1]>>
  %t2 = store_view_tko %l, %ws, [%i], token=%t1 {{ordering = weak}} : token
  %x = bitcast %l : tile<256xi{bits}>
  %bytes = {pack} %l : tile<{bytes}xi8>
  %again = {unpack} %bytes : tile<256x{T}>
  %y = bitcast %again : tile<256xi{bits}>
  %z = andi %x, %y : tile<256xi{bits}>
  %u = make_tensor_view %r, [], [] : tensor_view<256xi{bits}, strides=[1]>
  %us = make_partition_view %u : partition_view<tile=(256), tensor_view<256xi{bits}, strides=[1]>>
  %t3 = store_view_tko %z, %us, [%i], token=%t1 {{ordering = weak}} : token
  return
}}
"""
COMPUTE = """tile kernel @compute(%p: tile<ptr<{T}>>, %q: tile<ptr<{T}>>) {{
  %t = make_token : token
  %v, %t1 = load_ptr_tko %p, token=%t {{ordering = weak}} : tile<{T}>, token
  %s = addf %v, %v : tile<{T}>
  %t2 = store_ptr_tko %q, %s, token=%t1 {{ordering = weak}} : token
  return
}}
"""


def move(dtype: DType) -> str:
    """A kernel that moves 256 elements in every way, and writes their bits too."""
    pack, unpack = ("bitcast", "bitcast") if dtype.bits == 8 else ("pack", "unpack")
    size = 256 * dtype.bits // 8
    return MOVE.format(T=dtype.name, bits=dtype.bits, bytes=size, pack=pack, unpack=unpack)


def all_nans(dtype: DType) -> np.ndarray:
    """256 codes, the NaNs of the format among them, signalling ones too."""
    if dtype.bits == 8:
        return np.arange(256, dtype=np.uint8)
    infinity = dtype.max_finite_code + 1
    fractions = np.linspace(1, (1 << dtype.mantissa_bits) - 1, 128).astype(np.uint16)
    return np.concatenate([infinity + fractions, 0x8000 + infinity + fractions]).astype(np.uint16)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_moving_keeps_the_bits_of_every_nan(dtype: DType, check: bool) -> None:
    codes = all_nans(dtype)
    out, bits = np.zeros_like(codes), np.zeros_like(codes)
    arrays = [
        HostBytes(array.view(np.uint8), name, name)
        for array, name in ((codes, dtype.name), (out, dtype.name), (bits, f"i{dtype.bits}"))
    ]
    interpret(parse(move(dtype)), 1, arrays, check=check)
    assert (out == codes).all()
    assert (bits == codes).all()


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_a_sum_is_the_canonical_nan(name: str, check: bool) -> None:
    code, canonical = {"f16": (0xFD01, 0x7E00), "bf16": (0xFF81, 0x7FC0)}[name]
    given, out = np.array([code], np.uint16), np.zeros(1, np.uint16)
    arrays = [HostBytes(array.view(np.uint8), name, name) for array in (given, out)]
    interpret(parse(COMPUTE.format(T=name)), 1, arrays, check=check)
    assert out[0] == canonical
