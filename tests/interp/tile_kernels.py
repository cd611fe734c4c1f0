"""Kernels that several tests run, and helpers to write short ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import Report, interpret
from reftile.ir.core import Module
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.parse import parse

BLOCK_ID = "%bx, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>"


def program(arguments: str, body: str, attributes: str = "") -> Module:
    """A module of one kernel; `%bx` is the block's number, `%zero` and `%one` are i32 constants."""
    head = f"tile kernel @k({arguments}){f' attributes {{{attributes}}}' if attributes else ''} {{"
    prelude = (
        BLOCK_ID,
        "%zero = constant {value = 0} : tile<i32>",
        "%one = constant {value = 1} : tile<i32>",
    )
    return parse("\n".join([head, *prelude, body, "return", "}"]), "kernel.tile")


def vector(name: str, extent: str, tile: int, dtype: str = "f32", padding: str = "") -> str:
    """Text that makes `%name_v`, the partition view of the pointer `%name` into tiles."""
    tensor = f"tensor_view<{extent}x{dtype}, strides=[1]>"
    pad = f", padding={padding}" if padding else ""
    dynamic = "%n" if extent == "?" else ""
    return (
        f"%{name}_t = make_tensor_view %{name}, [{dynamic}], [] : {tensor}\n"
        f"%{name}_v = make_partition_view %{name}_t : partition_view<tile=({tile}), {tensor}{pad}>"
    )


def violation(module: Module, grid: Any, args: list[Any], **options: Any) -> Diagnosis:
    """The diagnosis with which a launch ends."""
    with pytest.raises(ReftileError) as error:
        interpret(module, grid, args, **options)
    assert str(error.value)
    return error.value.diagnosis


def run(module: Module, grid: Any, args: list[Any], **options: Any) -> Report:
    return interpret(module, grid, args, **options)


def zeros(count: int, dtype: Any = np.float32) -> Any:
    return np.zeros(count, dtype)


MATMUL = """
tile kernel @matmul(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>, %o: tile<ptr<f32>>) {
  %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %xt = make_tensor_view %x, [], [] : tensor_view<30x24xf32, strides=[24, 1]>
  %yt = make_tensor_view %y, [], [] : tensor_view<24x20xf32, strides=[20, 1]>
  %ot = make_tensor_view %o, [], [] : tensor_view<30x20xf32, strides=[20, 1]>
  %xv = make_partition_view %xt :
      partition_view<tile=(8x16), tensor_view<30x24xf32, strides=[24, 1]>, padding=zero>
  %yv = make_partition_view %yt :
      partition_view<tile=(16x8), tensor_view<24x20xf32, strides=[20, 1]>, padding=zero>
  %ov = make_partition_view %ot :
      partition_view<tile=(8x8), tensor_view<30x20xf32, strides=[20, 1]>>
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %steps, %unused = get_index_space_shape %yv : tile<i32>, tile<i32>
  %start = constant {value = 0.0} : tile<8x8xf32>
  %sum = for %zero, %steps, %one, [%start] : tile<8x8xf32> body(
      %k: tile<i32>, %acc: tile<8x8xf32>) {
    %a, %ta = load_view_tko %xv, [%i, %k] {ordering = weak} : tile<8x16xf32>, token
    %b, %tb = load_view_tko %yv, [%k, %j] {ordering = weak} : tile<16x8xf32>, token
    %next = mmaf %a, %b, %acc : tile<8x8xf32>
    continue %next
  }
  %t = store_view_tko %sum, %ov, [%i, %j] {ordering = weak} : token
  return
}
"""

SOFTMAX = """
tile kernel @softmax(%x: tile<ptr<f32>>, %o: tile<ptr<f32>>, %rows: tile<i32>) {
  %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %xt = make_tensor_view %x, [%rows], [] : tensor_view<?x60xf32, strides=[60, 1]>
  %ot = make_tensor_view %o, [%rows], [] : tensor_view<?x60xf32, strides=[60, 1]>
  %xv = make_partition_view %xt :
      partition_view<tile=(1x64), tensor_view<?x60xf32, strides=[60, 1]>, padding=neg_inf>
  %ov = make_partition_view %ot :
      partition_view<tile=(1x64), tensor_view<?x60xf32, strides=[60, 1]>>
  %row, %t0 = load_view_tko %xv, [%i, %zero] {ordering = weak} : tile<1x64xf32>, token
  %most = reduce %row {axis = 1, identities = [-inf]} : tile<1xf32> combine(
      %e: tile<f32>, %a: tile<f32>) {
    %m = maxf %a, %e : tile<f32>
    yield %m
  }
  %most2 = reshape %most : tile<1x1xf32>
  %wide = broadcast %most2 : tile<1x64xf32>
  %shifted = subf %row, %wide : tile<1x64xf32>
  %power = exp %shifted : tile<1x64xf32>
  %sum = reduce %power {axis = 1, identities = [0.0]} : tile<1xf32> combine(
      %e: tile<f32>, %a: tile<f32>) {
    %s = addf %a, %e : tile<f32>
    yield %s
  }
  %sum2 = reshape %sum : tile<1x1xf32>
  %below = broadcast %sum2 : tile<1x64xf32>
  %result = divf %power, %below : tile<1x64xf32>
  %t1 = store_view_tko %result, %ov, [%i, %zero] {ordering = weak} : token
  return
}
"""

ADD_BY_POINTERS = """
tile kernel @add(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>, %o: tile<ptr<f32>>, %n: tile<i32>) {
  %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %width = constant {value = 32} : tile<i32>
  %first = muli %i, %width : tile<i32>
  %first1 = reshape %first : tile<1xi32>
  %base = broadcast %first1 : tile<32xi32>
  %lanes = iota : tile<32xi32>
  %at = addi %base, %lanes : tile<32xi32>
  %n1 = reshape %n : tile<1xi32>
  %limit = broadcast %n1 : tile<32xi32>
  %mask = cmpi %at, %limit {predicate = less_than, signedness = signed} : tile<32xi1>
  %pad = constant {value = 0.0} : tile<32xf32>
  %x1 = reshape %x : tile<1xptr<f32>>
  %xs = broadcast %x1 : tile<32xptr<f32>>
  %xp = offset %xs, %at : tile<32xptr<f32>>
  %y1 = reshape %y : tile<1xptr<f32>>
  %ys = broadcast %y1 : tile<32xptr<f32>>
  %yp = offset %ys, %at : tile<32xptr<f32>>
  %o1 = reshape %o : tile<1xptr<f32>>
  %os = broadcast %o1 : tile<32xptr<f32>>
  %op = offset %os, %at : tile<32xptr<f32>>
  %a, %ta = load_ptr_tko %xp, mask=%mask, padding_value=%pad {ordering = weak} : tile<32xf32>, token
  %b, %tb = load_ptr_tko %yp, mask=%mask, padding_value=%pad {ordering = weak} : tile<32xf32>, token
  %c = addf %a, %b : tile<32xf32>
  %t = store_ptr_tko %op, %c, mask=%mask {ordering = weak} : token
  return
}
"""

HISTOGRAM = """
tile kernel @histogram(%x: tile<ptr<i32>>, %bins: tile<ptr<i32>>) {
  %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %xt = make_tensor_view %x, [], [] : tensor_view<128xi32, strides=[1]>
  %xv = make_partition_view %xt : partition_view<tile=(16), tensor_view<128xi32, strides=[1]>>
  %bin, %t0 = load_view_tko %xv, [%i] {ordering = weak} : tile<16xi32>, token
  %bins1 = reshape %bins : tile<1xptr<i32>>
  %start = broadcast %bins1 : tile<16xptr<i32>>
  %at = offset %start, %bin : tile<16xptr<i32>>
  %one = constant {value = 1} : tile<16xi32>
  %old, %t1 = atomic_rmw_tko %at, %one {ordering = relaxed, scope = device, mode = add} :
      tile<16xi32>, token
  return
}
"""

COLLATZ = """
tile kernel @collatz(%o: tile<ptr<i32>>) {
  %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %two = constant {value = 2} : tile<i32>
  %three = constant {value = 3} : tile<i32>
  %start = addi %i, %one : tile<i32>
  %last, %count = loop %start, %zero : tile<i32>, tile<i32> body(%n: tile<i32>, %k: tile<i32>) {
    %done = cmpi %n, %one {predicate = equal, signedness = signed} : tile<i1>
    if %done then {
      break %n, %k
    }
    %odd = remi %n, %two {signedness = signed} : tile<i32>
    %is_odd = cmpi %odd, %one {predicate = equal, signedness = signed} : tile<i1>
    %next = if %is_odd : tile<i32> then {
      %a = muli %n, %three : tile<i32>
      %b = addi %a, %one : tile<i32>
      yield %b
    } otherwise {
      %c = divi %n, %two {signedness = signed} : tile<i32>
      yield %c
    }
    %k1 = addi %k, %one : tile<i32>
    continue %next, %k1
  }
  %p = offset %o, %i : tile<ptr<i32>>
  %t = store_ptr_tko %p, %count {ordering = weak} : token
  return
}
"""

TRIANGLE = """
tile kernel @triangle(%o: tile<ptr<i32>>) {
  %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %seven = constant {value = 7} : tile<i32>
  %sum = for %zero, %i, %one, [%zero] : tile<i32> body(%k: tile<i32>, %acc: tile<i32>) {
    %next = addi %acc, %k : tile<i32>
    continue %next
  }
  %many = cmpi %i, %seven {predicate = greater_than, signedness = signed} : tile<i1>
  if %many then {
    return
  }
  %p = offset %o, %i : tile<ptr<i32>>
  %t = store_ptr_tko %p, %sum {ordering = weak} : token
  return
}
"""


def cases() -> dict[str, tuple[str, tuple[int, ...], list[Any], Any]]:
    """(text, grid, arguments, output) of each kernel above, with seeded inputs."""
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    product, rows, total = zeros(30 * 20), zeros(5 * 60), zeros(100)
    bins, steps, sums = zeros(8, np.int32), zeros(20, np.int32), zeros(12, np.int32)
    numbers = rng.integers(0, 8, 128).astype(np.int32)
    return {
        "matmul": (MATMUL, (4, 3), [normal(30, 24), normal(24, 20), product], product),
        "softmax": (SOFTMAX, (5,), [normal(5, 60), rows, 5], rows),
        "add": (ADD_BY_POINTERS, (4,), [normal(100), normal(100), total, 100], total),
        "histogram": (HISTOGRAM, (8,), [numbers, bins], bins),
        "collatz": (COLLATZ, (20,), [steps], steps),
        "triangle": (TRIANGLE, (12,), [sums], sums),
    }
