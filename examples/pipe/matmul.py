"""C = A @ B in half precision, in the high-level constructs of `reftile.pipe`.

The loop's copies run a stage ahead: cp.async and mma.sync on sm_80, bulk copies, barriers and
asynchronous products on sm_90a. Any sizes with rows that begin at multiples of 16 bytes.
"""

from reftile import pipe
from reftile.pipe import Constant, float16, float32


@pipe.kernel
def matmul(
    a,
    b,
    c,
    block_m: Constant[int] = 128,
    block_n: Constant[int] = 128,
    block_k: Constant[int] = 32,
    stages: Constant[int] = 2,
    threads: Constant[int] = 128,
):
    (m, k), n = a.shape, b.shape[1]
    grid = pipe.ceildiv(n, block_n), pipe.ceildiv(m, block_m)
    with pipe.Kernel(*grid, threads=threads) as (x, y):
        a_shared = pipe.alloc_shared((block_m, block_k), float16)
        b_shared = pipe.alloc_shared((block_k, block_n), float16)
        total = pipe.alloc_fragment((block_m, block_n), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(pipe.ceildiv(k, block_k), num_stages=stages):
            pipe.copy(a[y * block_m, step * block_k], a_shared)
            pipe.copy(b[step * block_k, x * block_n], b_shared)
            pipe.gemm(a_shared, b_shared, total)
        pipe.copy(total, c[y * block_m, x * block_n])
