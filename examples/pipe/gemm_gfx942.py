"""C[m, n] = A[m, k] @ B[n, k]^T, bf16 into f32, for gfx942: gemm_gfx942.tile, written in Python.

Two halves of a block, four waves each, run the same text one step apart, so that one loads from
shared memory while the other multiplies. m and n are multiples of 256, k of 32, at least 64.
"""

from reftile import pipe
from reftile.pipe import Pointer, bfloat16, float32, i32, quotient, remainder


@pipe.kernel(target="gfx942", warps=8)
def gemm(a: Pointer[bfloat16], b: Pointer[bfloat16], c: Pointer[float32], m: i32, n: i32, k: i32):
    a_tiles = pipe.tiles(pipe.tensor(a, (m, k), access="read_only"), (128, 32))
    b_tiles = pipe.tiles(pipe.tensor(b, (n, k), access="read_only"), (128, 32))
    c_tiles = pipe.tiles(pipe.tensor(c, (m, n), access="write_only"), (128, 256))
    steps = quotient(k, 32)
    column, row = pipe.bid(0), pipe.bid(1)
    a_ring = pipe.alloc_ring(2, (256, 32), bfloat16)
    b_ring = pipe.alloc_ring(2, (256, 32), bfloat16)
    with pipe.role("half", warps=4, replicas=2) as h:

        def share(ring, slot):
            return ring[slot].part((h, 0), (128, 32))

        def copy(step, slot, token=None):
            pipe.copy_in(a_tiles, (row * 2 + h, step), share(a_ring, slot), token=token)
            pipe.copy_in(b_tiles, (column * 2 + h, step), share(b_ring, slot), token=token)

        copy(0, 0)
        pipe.commit_copies("thread")
        if h == 1:  # the second half is a tile further with its copies
            copy(1, 1)
            pipe.commit_copies("thread")
            landed = pipe.wait_copies("thread", in_flight=1)
        else:
            landed = pipe.wait_copies("thread")
        seen = pipe.step(token=landed)
        total = pipe.zeros((128, 256), float32)
        with pipe.stagger():
            for step in range(steps):
                slot = remainder(step, 2)
                # Load.
                if (h == 0) & (step + 1 < steps):
                    copy(step + 1, 1 - slot, seen)
                pipe.commit_copies("thread")
                lhs, a_read = share(a_ring, slot).load(token=seen)
                rhs, b_read = b_ring[slot].T.load(token=seen)
                landed = seen
                if h == 1:
                    landed = pipe.wait_copies("thread")
                met = pipe.step(token=(a_read, b_read, landed))
                # Multiply.
                if (h == 1) & (step + 2 < steps):
                    copy(step + 2, slot, met)
                pipe.commit_copies("thread")
                pipe.set_priority(1)
                total = pipe.mma(lhs, rhs, total)
                pipe.set_priority(0)
                landed = met
                if h == 0:
                    landed = pipe.wait_copies("thread")
                seen = pipe.step(token=(met, landed))
        c_tiles.store((row * 2 + h, column), total)
