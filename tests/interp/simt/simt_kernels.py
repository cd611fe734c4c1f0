"""Short kernels of threads, and a small product in two roles that tests break in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reftile.interp.launch import Report, interpret
from reftile.ir.core import Kernel, Op
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.parse import parse
from reftile.ir.passes import run_passes
from reftile.lower.pipeline import PIPE_TO_SIMT

SCHEDULES: list[dict[str, Any]] = [
    {},
    {"schedule": "topo", "seed": 1},
    {"schedule": "topo", "seed": 2},
    {"schedule": "adversarial"},
    {"schedule": "adversarial", "seed": 3},
]
BF16 = ml_dtypes.bfloat16


def threads(
    body: str,
    arguments: str = "",
    warps: int = 2,
    shared_bytes: int = 4096,
    target: str = "sm_90a",
    more: str = "",
) -> Kernel:
    """A kernel of threads with constants `%c0` to `%c4`, who they are, and `return`."""
    head = (
        f'simt kernel @k({arguments}) attributes {{target = "{target}", warps = {warps}, '
        f"shared_bytes = {shared_bytes}{more}}} {{"
    )
    names = [f"%c{i} = constant {{value = {i}}} : tile<i32>" for i in range(5)]
    who = [
        "%thread = thread_id : tile<i32>",
        "%lane = lane_id : tile<i32>",
        "%warp = warp_id : tile<i32>",
    ]
    return parse("\n".join([head, *names, *who, body, "return", "}"]), "k.simt").kernel()


def fails(kernel: Kernel, grid: int, args: list[Any], **options: Any) -> Diagnosis:
    """The diagnosis with which a launch ends."""
    with pytest.raises(ReftileError) as error:
        interpret(kernel, grid, args, **options)
    assert str(error.value)
    return error.value.diagnosis


def compare(value: str, other: str, name: str, predicate: str = "equal") -> str:
    """Text that compares two signed scalars."""
    return (
        f"%{name} = cmpi {value}, {other} {{predicate = {predicate}, signedness = signed}} "
        ": tile<i1>"
    )


PRODUCT = """\
pipe kernel @product(%a: tile<ptr<bf16>>, %b: tile<ptr<bf16>>, %c: tile<ptr<f32>>, %k: tile<i32>) attributes {target = "sm_90a", warps = 5} {
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %tile_k = constant {value = 64} : tile<i32>
  %steps = divi %k, %tile_k {signedness = unsigned} : tile<i32>
  %a_view = make_tensor_view %a, [%k], [%k] : tensor_view<64x?xbf16, strides=[?, 1]>
  %b_view = make_tensor_view %b, [%k], [%k] : tensor_view<64x?xbf16, strides=[?, 1]>
  %c_view = make_tensor_view %c, [], [] : tensor_view<64x64xf32, strides=[64, 1]>
  %a_tiles = make_partition_view %a_view : partition_view<tile=(64x64), tensor_view<64x?xbf16, strides=[?, 1]>>
  %b_tiles = make_partition_view %b_view : partition_view<tile=(64x64), tensor_view<64x?xbf16, strides=[?, 1]>>
  %c_tiles = make_partition_view %c_view : partition_view<tile=(64x64), tensor_view<64x64xf32, strides=[64, 1]>>
  %a_ring = alloc_ring : ring<2, buffer<64x64xbf16, layout=swizzle128>>
  %b_ring = alloc_ring : ring<2, buffer<64x64xbf16, layout=swizzle128>>
  %out = alloc_buffer : buffer<64x64xf32, layout=swizzle128>
  %full = alloc_barrier : barrier<2, arrivals=1>
  %empty = alloc_barrier : barrier<2, arrivals=1>
  role {label = "consumer", warps = 4} body {
    %nothing = mma_open : pending<64x64xf32>
    %sum, %slot_end, %phase_end, %last = for %zero, %steps, %one, [%nothing, %zero, %zero, %zero] : pending<64x64xf32>, tile<i32>, tile<i32>, tile<i32> body(%step: tile<i32>, %acc: pending<64x64xf32>, %i: tile<i32>, %phase: tile<i32>, %before: tile<i32>) {
      %landed = wait_barrier %full, %i, %phase : token
      %a_slot = slot %a_ring, %i : buffer<64x64xbf16, layout=swizzle128>
      %b_slot = slot %b_ring, %i : buffer<64x64xbf16, layout=swizzle128>
      %b_t = transpose_buffer %b_slot : buffer<64x64xbf16, layout=swizzle128.t>
      %more = cmpi %step, %zero {predicate = not_equal, signedness = signed} : tile<i1>
      %next = mma_start %a_slot, %b_t, acc=%acc, accumulate=%more, token=%landed : pending<64x64xf32>
      %read = mma_wait {in_flight = 1} : token
      if %more then {
        arrive_barrier %empty, %before, token=%read
        yield
      }
      %i_next, %phase_after = advance %i, %phase {stages = 2} : tile<i32>, tile<i32>
      continue %next, %i_next, %phase_after, %i
    }
    %result, %all_read = mma_wait %sum : tile<64x64xf32>, token
    %written = store_buffer %result, %out : token
    %fenced = fence_proxy %written : token
    elected body {
      copy_out %out, %c_tiles, [%zero, %zero], token=%fenced
      commit_copies {engine = bulk}
      %done = wait_copies {engine = bulk} : token
      yield
    }
    yield
  }
  role {label = "producer", warps = 1} body {
    elected body {
      %slot_end, %phase_end = for %zero, %steps, %one, [%zero, %one] : tile<i32>, tile<i32> body(%step: tile<i32>, %i: tile<i32>, %phase: tile<i32>) {
        %free = wait_barrier %empty, %i, %phase : token
        arrive_barrier %full, %i {bytes = 16384}
        %a_slot = slot %a_ring, %i : buffer<64x64xbf16, layout=swizzle128>
        copy_in %a_tiles, [%zero, %step], %a_slot, barrier=%full, slot=%i, token=%free {engine = bulk}
        %b_slot = slot %b_ring, %i : buffer<64x64xbf16, layout=swizzle128>
        copy_in %b_tiles, [%zero, %step], %b_slot, barrier=%full, slot=%i, token=%free {engine = bulk}
        %i_next, %phase_after = advance %i, %phase {stages = 2} : tile<i32>, tile<i32>
        continue %i_next, %phase_after
      }
      yield
    }
    yield
  }
  return
}
"""  # noqa: E501
"""C[64, 64] = A[64, k] @ B[64, k]^T: a ring of two slots, one product in flight."""


def product(change: Callable[[Kernel], None] | None = None) -> Kernel:
    """The product as threads, changed in one place."""
    kernel = run_passes(parse(PRODUCT, "product.tile").kernel(), PIPE_TO_SIMT, "sm_90a").kernel
    if change is not None:
        change(kernel)
    return kernel


def run_product(kernel: Kernel, **options: Any) -> tuple[Report, bool]:
    """Run it on small whole numbers; tells whether the result is exact."""
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-4, 5, (64, 320)).astype(BF16) for _ in range(2))
    c = np.full((64, 64), np.nan, np.float32)
    report = interpret(kernel, 1, [a, b, c, 320], **options)
    return report, np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


def breaks(change: Callable[[Kernel], None], **options: Any) -> Diagnosis:
    """The diagnosis with which the changed product ends."""
    with pytest.raises(ReftileError) as error:
        run_product(product(change), **options)
    assert str(error.value)
    return error.value.diagnosis


def find(kernel: Kernel, name: str, number: int = 0) -> Op:
    """The `number`-th operation of a name."""
    return [op for op in kernel.walk() if op.name == name][number]


def drop(name: str, number: int = 0) -> Callable[[Kernel], None]:
    """Remove an operation without results."""

    def change(kernel: Kernel) -> None:
        op = find(kernel, name, number)
        assert op.parent is not None and not op.results
        op.parent.ops.remove(op)

    return change


def give(name: str, number: int = 0, **attributes: Any) -> Callable[[Kernel], None]:
    """Change attributes of an operation."""
    return lambda kernel: find(kernel, name, number).attributes.update(attributes)
