import ml_dtypes
import numpy as np
import pytest

from reftile.ir.dtypes import BF16, DTYPES, F4E2M1, F16, F32, I1, I4, I32
from reftile.ir.numbers import decode
from reftile.ir.packing import (
    from_bytes,
    from_units,
    pack_nibbles,
    to_bytes,
    to_units,
    unpack_nibbles,
)


def test_the_first_element_lies_in_the_low_nibble():
    assert pack_nibbles(np.array([1, 2, 3, 0xF4], np.uint8)).tolist() == [0x21, 0x43]
    assert unpack_nibbles(np.array([0x21, 0x43], np.uint8)).tolist() == [1, 2, 3, 4]


def test_an_odd_count_pads_with_a_zero_nibble():
    packed = pack_nibbles(np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    assert packed.tolist() == [[0x21, 0x03], [0x54, 0x06]]
    assert unpack_nibbles(packed, 3).tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_type_survives_memory(dtype):
    bits = np.arange(48, dtype=dtype.storage).reshape(6, 8) % np.uint8(16)
    values = decode(bits, dtype)
    units = to_units(values, dtype)
    assert units.dtype == dtype.storage
    assert units.shape == (6, 8 // dtype.elements_per_unit)
    assert (from_units(units, dtype) == values).all()
    data = to_bytes(values, dtype)
    assert len(data) == 48 * dtype.storage_bits // 8
    assert (from_bytes(data, dtype, (6, 8)) == values).all()


def test_bytes_are_little_endian():
    assert to_bytes(np.array([1], np.int32), I32) == b"\x01\0\0\0"
    assert to_bytes(np.array([1.0], np.float32), BF16) == b"\x80\x3f"
    assert to_bytes(np.array([1.0], np.float32), F16) == b"\x00\x3c"
    assert to_bytes(np.array([True, False]), I1) == b"\x01\x00"
    assert to_bytes(np.array([-1, 2, 3], np.int8), I4) == b"\x2f\x03"


def test_bytes_agree_with_arrays_of_ml_dtypes():
    values = np.array([0.5, -6.0, 1.5, 0.0], np.float32)
    codes = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert to_bytes(values, F4E2M1) == bytes(pack_nibbles(codes))
    assert to_bytes(values, BF16) == values.astype(ml_dtypes.bfloat16).tobytes()
    assert to_bytes(values, F32) == values.tobytes()


def test_a_scalar_tile_takes_one_unit():
    assert to_bytes(np.array(3, np.int8), I4) == b"\x03"
    assert from_bytes(b"\x03", I4, ()).shape == ()
