"""Unroll the loops whose counter says which part of a tile in registers is meant.

Needs: a `pipe` kernel. Leaves: every index of an `extract` is a constant.

Before:

    pipe kernel @parts(%o: tile<ptr<f32>>) attributes {target = "sm_90a", warps = 4} {
      %zero = constant {value = 0} : tile<i32>
      %one = constant {value = 1} : tile<i32>
      %two = constant {value = 2} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<8x16xf32, strides=[16, 1]>
      %v = make_partition_view %t :
        partition_view<tile=(8x8), tensor_view<8x16xf32, strides=[16, 1]>>
      %x = constant {value = 2.0} : tile<8x16xf32>
      for %zero, %two, %one, [] body(%part: tile<i32>) {
        %piece = extract %x, [%zero, %part] : tile<8x8xf32>
        %s = store_view_tko %piece, %v, [%zero, %part] {ordering = weak} : token
        continue
      }
      return }

After:

    pipe kernel @parts(%o: tile<ptr<f32>>) attributes {target = "sm_90a", warps = 4} {
      %zero = constant {value = 0} : tile<i32>
      %one = constant {value = 1} : tile<i32>
      %two = constant {value = 2} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<8x16xf32, strides=[16, 1]>
      %v = make_partition_view %t :
        partition_view<tile=(8x8), tensor_view<8x16xf32, strides=[16, 1]>>
      %x = constant {value = 2.0} : tile<8x16xf32>
      %part = constant {value = 0} : tile<i32>
      %piece = extract %x, [%zero, %part] : tile<8x8xf32>
      %s = store_view_tko %piece, %v, [%zero, %part] {ordering = weak} : token
      %part_0 = constant {value = 1} : tile<i32>
      %piece_1 = extract %x, [%zero, %part_0] : tile<8x8xf32>
      %s_2 = store_view_tko %piece_1, %v, [%zero, %part_0] {ordering = weak} : token
      return }
"""

from __future__ import annotations

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import fail
from reftile.lower.clone import clone_ops, substitute
from reftile.lower.constants import constant_int, constant_op

LARGEST_COUNT = 64
"""Iterations at most: registers are few, so that more parts than this are a mistake."""


def unroll_loops(kernel: Kernel, target: str) -> Kernel:
    """Replace loops with constant bounds whose counter indexes an `extract`."""
    _unroll(kernel.body.block)
    for op in kernel.walk():
        if isinstance(op, ops.Extract) and any(constant_int(i) is None for i in op.indices):
            raise fail(
                "lower.extract_index",
                "the part of a tile in registers must be known when compiling",
                op.span,
                "index with constants, or with the counter of a `for` with constant bounds",
            )
    return kernel


def _unroll(block: Block) -> None:
    result: list[Op] = []
    mapping: dict[Value, Value] = {}
    for op in block.ops:
        op.replace_operands(mapping)
        for region in op.regions:
            substitute(region.block, mapping)
            _unroll(region.block)
        counts = _iterations(op) if isinstance(op, ops.For) else None
        if counts is None or not _indexes_parts(op):
            result.append(op)
            continue
        if len(counts) > LARGEST_COUNT:
            raise fail("lower.unroll", f"{len(counts)} parts are too many to unroll", op.span)
        assert isinstance(op, ops.For)
        result.extend(_iterate(op, counts, mapping))
    block.ops = result
    for op in result:
        op.parent = block


def _iterate(op: ops.For, counts: range, mapping: dict[Value, Value]) -> list[Op]:
    body = op.body.block
    carried: tuple[Value, ...] = op.init
    unrolled: list[Op] = []
    for count in counts:
        counter = constant_op(count, body.arguments[0], body.arguments[0].name)
        inner = dict(zip(body.arguments, (counter.results[0], *carried), strict=True))
        copies = clone_ops(body.ops, inner)
        carried = copies[-1].operands
        unrolled += [counter, *copies[:-1]]
    mapping.update(zip(op.results, carried, strict=True))
    return unrolled


def _iterations(op: ops.For) -> range | None:
    lower, upper, step = (constant_int(v) for v in (op.lower, op.upper, op.step))
    if lower is None or upper is None or step is None or op.unsigned_cmp:
        return None
    return range(lower, upper, step)


def _indexes_parts(op: Op) -> bool:
    counter = op.regions[0].block.arguments[0]
    return any(isinstance(o, ops.Extract) and counter in o.indices for o in op.walk())
