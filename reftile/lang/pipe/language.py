"""The names of pipe kernels: those of tiles that the level has, and its own.

Three groups: operations of the level, one name each (`copy_in`, `mma_start`, ...); constructs that
become several (`Kernel`, `Pipelined`, `copy`, `gemm`, ...); arithmetic of tiles.
"""

from __future__ import annotations

from reftile.lang.annotations import Constant
from reftile.lang.dtypes import (
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    tfloat32,
    uint8,
    uint32,
)
from reftile.lang.enums import MemoryOrder, MemoryScope, RoundingMode
from reftile.lang.names.create import arange, bid, full, num_blocks, zeros
from reftile.lang.names.debug import static_assert, static_eval, static_iter
from reftile.lang.names.math import (
    abs,
    exp,
    exp2,
    fma,
    log2,
    maximum,
    minimum,
    reciprocal,
    rsqrt,
    sqrt,
)
from reftile.lang.names.matrix import mma
from reftile.lang.names.memory import join_tokens, make_token
from reftile.lang.names.reduction import any, max, min, reduce, sum
from reftile.lang.names.shape import broadcast_to, expand_dims, extract, permute, reshape, where
from reftile.lang.pipe.annotations import Pointer, f32, i32, i64
from reftile.lang.pipe.barriers import (
    advance,
    alloc_barrier,
    alloc_named_barrier,
    atomic_inc_wrap,
    cluster_arrive,
    cluster_rank,
    cluster_wait,
    fence_proxy,
    order_fence,
    set_priority,
    step,
    sync,
)
from reftile.lang.pipe.block import Kernel
from reftile.lang.pipe.combining import atomic_add, atomic_max, atomic_min
from reftile.lang.pipe.copies import commit_copies, copy_in, copy_out, prefetch, wait_copies
from reftile.lang.pipe.copying import copy
from reftile.lang.pipe.fragments import alloc_fragment, clear, fill
from reftile.lang.pipe.gemm import gemm
from reftile.lang.pipe.kernels import PipeKernel, kernel
from reftile.lang.pipe.numbers import ceildiv, quotient, remainder
from reftile.lang.pipe.parallel import Parallel, reduce_max, reduce_min, reduce_sum
from reftile.lang.pipe.pipelined import Pipelined
from reftile.lang.pipe.places import alloc_buffer, alloc_ring, rows, tensor, tiles
from reftile.lang.pipe.products import mma_open, mma_start, mma_wait
from reftile.lang.pipe.regions import elected, if_rows, role, stagger
from reftile.lang.pipe.shared import alloc_shared

__all__ = [
    "Constant",
    "Kernel",
    "MemoryOrder",
    "MemoryScope",
    "Parallel",
    "PipeKernel",
    "Pipelined",
    "Pointer",
    "RoundingMode",
    "abs",
    "advance",
    "alloc_barrier",
    "alloc_buffer",
    "alloc_fragment",
    "alloc_named_barrier",
    "alloc_ring",
    "alloc_shared",
    "any",
    "arange",
    "atomic_add",
    "atomic_inc_wrap",
    "atomic_max",
    "atomic_min",
    "bfloat16",
    "bid",
    "broadcast_to",
    "ceildiv",
    "clear",
    "cluster_arrive",
    "cluster_rank",
    "cluster_wait",
    "commit_copies",
    "copy",
    "copy_in",
    "copy_out",
    "elected",
    "exp",
    "exp2",
    "expand_dims",
    "extract",
    "f32",
    "fence_proxy",
    "fill",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "fma",
    "full",
    "gemm",
    "i32",
    "i64",
    "if_rows",
    "int8",
    "int32",
    "int64",
    "join_tokens",
    "kernel",
    "log2",
    "make_token",
    "max",
    "maximum",
    "min",
    "minimum",
    "mma",
    "mma_open",
    "mma_start",
    "mma_wait",
    "num_blocks",
    "order_fence",
    "permute",
    "prefetch",
    "quotient",
    "reciprocal",
    "reduce",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "remainder",
    "reshape",
    "role",
    "rows",
    "rsqrt",
    "set_priority",
    "sqrt",
    "stagger",
    "static_assert",
    "static_eval",
    "static_iter",
    "step",
    "sum",
    "sync",
    "tensor",
    "tfloat32",
    "tiles",
    "uint8",
    "uint32",
    "wait_copies",
    "where",
    "zeros",
]
