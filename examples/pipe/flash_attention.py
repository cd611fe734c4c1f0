"""softmax(Q K^T / sqrt(depth)) V in half precision, in the high-level constructs of `reftile.pipe`.

One block for 64 queries of a head; K and V of a block of keys are copied a stage ahead. Any length.
"""

import math

from reftile import pipe
from reftile.pipe import Constant, float16, float32

LOG2E = math.log2(math.e)


@pipe.kernel
def attention(q, k, v, o, causal: Constant[bool] = False, block_n: Constant[int] = 64):
    heads, length, depth = q.shape[0], q.shape[1], 64
    scale = LOG2E / math.sqrt(depth)
    with pipe.Kernel(pipe.ceildiv(length, 64), heads, threads=128) as (x, head):
        q_shared = pipe.alloc_shared((64, depth), float16)
        k_shared = pipe.alloc_shared((block_n, depth), float16)
        v_shared = pipe.alloc_shared((block_n, depth), float16)
        scores = pipe.alloc_fragment((64, block_n), float32)
        weights = pipe.alloc_fragment((64, block_n), float16)
        total = pipe.alloc_fragment((64, depth), float32)
        high = pipe.alloc_fragment((64,), float32)
        higher = pipe.alloc_fragment((64,), float32)
        decay = pipe.alloc_fragment((64,), float32)
        sums = pipe.alloc_fragment((64,), float32)
        added = pipe.alloc_fragment((64,), float32)

        pipe.copy(q[head, x * 64, 0], q_shared)
        pipe.clear(total)
        pipe.clear(sums)
        pipe.fill(high, -1e30)
        keys = pipe.minimum((x + 1) * 64, length) if causal else length
        for step in pipe.Pipelined(pipe.ceildiv(keys, block_n), num_stages=2):
            pipe.copy(k[head, step * block_n, 0], k_shared)
            pipe.copy(v[head, step * block_n, 0], v_shared)
            pipe.clear(scores)
            pipe.gemm(q_shared, k_shared, scores, transpose_B=True)
            for i, j in pipe.Parallel(64, block_n):
                key = step * block_n + j
                seen = (key <= x * 64 + i) & (key < length) if causal else key < length
                scores[i, j] = pipe.where(seen, scores[i, j] * scale, -1e30)
            pipe.reduce_max(scores, higher, dim=1)
            for i in pipe.Parallel(64):
                higher[i] = pipe.maximum(higher[i], high[i])
                decay[i] = pipe.exp2(high[i] - higher[i])
            pipe.copy(higher, high)
            for i, j in pipe.Parallel(64, block_n):
                scores[i, j] = pipe.exp2(scores[i, j] - high[i])
            pipe.reduce_sum(scores, added, dim=1)
            for i in pipe.Parallel(64):
                sums[i] = sums[i] * decay[i] + added[i]
            for i, j in pipe.Parallel(64, depth):
                total[i, j] *= decay[i]
            pipe.copy(scores, weights)
            pipe.gemm(weights, v_shared, total)
        for i, j in pipe.Parallel(64, depth):
            total[i, j] /= sums[i]
        pipe.copy(total, o[head, x * 64, 0])
