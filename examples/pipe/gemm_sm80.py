"""C[m, n] = A[m, k] @ B[n, k]^T, bf16 into f32, for sm_80: gemm_sm80.tile, written in Python.

One role of four warps, a ring of four slots filled by copies that each thread makes its part of,
three of them ahead. m, n are multiples of 128, k of 32.
"""

from reftile import pipe
from reftile.pipe import Pointer, bfloat16, float32, i32, quotient, remainder

STAGES = 4


@pipe.kernel(target="sm_80", warps=4)
def gemm(a: Pointer[bfloat16], b: Pointer[bfloat16], c: Pointer[float32], m: i32, n: i32, k: i32):
    a_tiles = pipe.tiles(pipe.tensor(a, (m, k), access="read_only"), (128, 32))
    b_tiles = pipe.tiles(pipe.tensor(b, (n, k), access="read_only"), (128, 32))
    c_tiles = pipe.tiles(pipe.tensor(c, (m, n), access="write_only"), (128, 128))
    steps = quotient(k, 32)
    column, row = pipe.bid(0), pipe.bid(1)
    a_ring = pipe.alloc_ring(STAGES, (128, 32), bfloat16)
    b_ring = pipe.alloc_ring(STAGES, (128, 32), bfloat16)

    def copy(step, slot, token):
        if step < steps:
            pipe.copy_in(a_tiles, (row, step), a_ring[slot], token=token)
            pipe.copy_in(b_tiles, (column, step), b_ring[slot], token=token)
        pipe.commit_copies("thread")

    for step in range(STAGES - 1):
        copy(step, step, None)
    total = pipe.zeros((128, 128), float32)
    read = pipe.make_token()
    for step in range(steps):
        landed = pipe.wait_copies("thread", in_flight=STAGES - 2)
        # One meeting serves both: this slot is full, and that of the step before has been read.
        met = pipe.sync(token=(landed, read))
        later = step + (STAGES - 1)
        copy(later, remainder(later, STAGES), met)
        slot = remainder(step, STAGES)
        lhs, a_read = a_ring[slot].load(token=met)
        rhs, b_read = b_ring[slot].T.load(token=met)
        total = pipe.mma(lhs, rhs, total)
        read = pipe.join_tokens(a_read, b_read)
    c_tiles.store((row, column), total)
