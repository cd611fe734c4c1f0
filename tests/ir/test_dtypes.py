import copy
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from reftile.ir.dtypes import (
    DTYPES,
    F4E2M1,
    F8E4M3,
    F8E8M0,
    F16,
    F32,
    FLOATS,
    I1,
    I4,
    I8,
    I64,
    INTEGERS,
    TF32,
    dtype_named,
    from_numpy,
    numpy_dtype,
)


def test_every_name_has_one_instance():
    for name, dtype in DTYPES.items():
        assert dtype.name == name == str(dtype)
        assert dtype_named(name) is dtype
        assert copy.deepcopy(dtype) is dtype
        assert pickle.loads(pickle.dumps(dtype)) is dtype


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d is not TF32], ids=str)
def test_limits_agree_with_finfo(dtype):
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    assert dtype.max_finite == float(info.max)
    assert dtype.min_normal == float(info.smallest_normal)
    assert dtype.min_subnormal == float(info.smallest_subnormal)
    assert dtype.bits == info.bits


def test_tf32_has_the_range_of_f32_and_the_fraction_of_f16():
    assert TF32.exponent_bits == F32.exponent_bits
    assert TF32.mantissa_bits == F16.mantissa_bits
    assert TF32.max_finite == (2 - 2.0**-10) * 2.0**127
    assert TF32.bits == TF32.storage_bits == 32


def test_carriers_hold_every_limit():
    for dtype in FLOATS:
        for limit in (dtype.max_finite, dtype.min_normal, dtype.min_subnormal):
            assert float(dtype.carrier.type(limit)) == limit


def test_integer_ranges_follow_the_width():
    assert [(d.signed_min, d.signed_max, d.unsigned_max) for d in (I1, I4, I8)] == [
        (-1, 0, 1),
        (-8, 7, 15),
        (-128, 127, 255),
    ]
    assert I64.unsigned_max == 2**64 - 1
    assert all(d.is_int and not d.is_float and d.precision == 0 for d in INTEGERS)


def test_only_four_bit_types_share_a_byte():
    shared = [d for d in DTYPES.values() if d.elements_per_unit == 2]
    assert shared == [I4, F4E2M1]
    assert [d.storage_bits for d in (I1, I4, F4E2M1, F8E4M3, TF32)] == [8, 4, 4, 8, 32]


def test_numpy_dtypes_map_back_to_the_same_type():
    for dtype in DTYPES.values():
        expected = F32 if dtype is TF32 else dtype
        assert from_numpy(numpy_dtype(dtype)) is expected


def test_unsigned_arrays_have_signless_types():
    assert from_numpy(np.uint8) is I8
    assert from_numpy("uint64") is I64
    assert from_numpy(ml_dtypes.uint4) is I4
    assert from_numpy(bool) is I1


def test_rejects_a_numpy_dtype_without_a_counterpart():
    with pytest.raises(TypeError, match="complex64"):
        from_numpy(np.complex64)


def test_scales_have_neither_sign_nor_zero():
    assert not F8E8M0.signed
    assert not F8E8M0.has_zero
    assert F8E8M0.min_normal == 2.0**-127


def test_importing_the_types_does_not_import_ml_dtypes():
    code = "import sys, reftile.ir.arithmetic; sys.exit('ml_dtypes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
