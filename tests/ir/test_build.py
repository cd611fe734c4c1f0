"""The builder computes result types from the records."""

from __future__ import annotations

import pytest

from reftile.ir import ops
from reftile.ir.attributes import Dense
from reftile.ir.build import Builder, make_kernel
from reftile.ir.diagnostics import ReftileError
from reftile.ir.dtypes import DTYPES
from reftile.ir.print import show
from reftile.ir.types import TileType
from reftile.ir.verify import verify

I32 = TileType((), DTYPES["i32"])


def test_a_loop_is_built_with_its_arguments() -> None:
    kernel = make_kernel("sum", [("n", I32)])
    builder = Builder(kernel.body.block)
    zero = builder.create(ops.Constant, types=[I32], names=["zero"], value=Dense.of(0, I32)).result
    one = builder.create(ops.Constant, types=[I32], names=["one"], value=Dense.of(1, I32)).result
    loop = builder.create(ops.For, zero, kernel.arguments[0], one, (zero,), names=["sum"])
    iv, acc = loop.body.block.arguments
    with builder.inside(loop.body):
        total = builder.create(ops.Addi, acc, iv)
        builder.create(ops.Continue, (total.result,))
    builder.create(ops.Return)
    verify(kernel)
    assert "%sum = for %zero, %n, %one, [%zero] : tile<i32> body(%iv: tile<i32>" in show(kernel)


def test_operands_that_do_not_fit_are_refused_with_the_rule() -> None:
    kernel = make_kernel("k", [("a", I32), ("b", TileType((8,), DTYPES["i32"]))])
    with pytest.raises(ReftileError) as error:
        Builder(kernel.body.block).create(ops.Addi, *kernel.arguments)
    assert error.value.diagnosis.rule == "addi.rhs.shape"


def test_a_result_type_that_the_record_leaves_open_must_be_given() -> None:
    kernel = make_kernel("k", [])
    with pytest.raises(ReftileError) as error:
        Builder(kernel.body.block).create(ops.Constant, value=Dense.of(0, I32))
    assert error.value.diagnosis.rule == "constant.results"
