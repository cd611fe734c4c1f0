"""softmax(Q K^T * scale) V in bf16 for sm_90a, by roles that take turns.

Two consumer warpgroups take turns at the matrix unit. In each, Q K^T of a block is started while
P V of the block before is in flight, and the softmax runs under the latter. [heads, length, 128],
length a multiple of 128; `scale` includes log2(e). Blocks go from the last to the first.
"""

import math

from reftile import pipe
from reftile.pipe import Pointer, bfloat16, f32, float32, i32, quotient, remainder

DEPTH = 128
BLOCK_N = 128


def place_of(tile, rows, heads_together):
    """Head and row of a tile, the last row first."""
    group_tiles = rows * heads_together
    first, within = quotient(tile, group_tiles), remainder(tile, group_tiles)
    head = first * heads_together + remainder(within, heads_together)
    return head, rows - quotient(within, heads_together) - 1


def fill(tiles, index, ring, full, slot, free):
    """Let one bulk copy fill a slot."""
    buffer = ring[slot]
    full.arrive(slot, bytes=math.prod(ring.shape) * 2)
    pipe.copy_in(tiles, index, buffer, barrier=full, slot=slot, token=free)


def exponentials(scores, high, scale):
    """2 ** (scale * (scores - high)) as one fma and ex2 for each element."""
    shift = -(high * scale)
    return pipe.exp2(pipe.fma(scores, scale, shift[:, None]), flush_to_zero=True)


def partial_sums(weights):
    """The sums of the columns that one lane holds; lanes meet at the end."""
    rows, columns = weights.shape
    pairs = pipe.sum(weights.reshape((rows, columns // 8, 4, 2)), 3)
    return pipe.sum(pairs, 1)


@pipe.kernel(target="sm_90a", warps=12)
def attention(
    q: Pointer[bfloat16],
    k: Pointer[bfloat16],
    v: Pointer[bfloat16],
    o: Pointer[bfloat16],
    heads: i32,
    length: i32,
    scale: f32,
):
    shape, strides = (heads, length, DEPTH), (length * DEPTH, DEPTH, 1)

    def cut(pointer, rows, access):
        whole = pipe.tensor(pointer, shape, strides, access=access)
        return pipe.tiles(whole, (1, rows, DEPTH), padding="zero")

    q_tiles, o_tiles = cut(q, 64, "read_only"), cut(o, 64, "write_only")
    k_tiles, v_tiles = cut(k, BLOCK_N, "read_only"), cut(v, BLOCK_N, "read_only")
    rows = pipe.ceildiv(length, 128)
    tiles = rows * heads
    first = pipe.ceildiv(length, BLOCK_N) - 1
    block, blocks = pipe.bid(0), pipe.num_blocks(0)
    q_ring = pipe.alloc_ring(2, (64, DEPTH), bfloat16)
    k_ring = pipe.alloc_ring(2, (BLOCK_N, DEPTH), bfloat16)
    v_ring = pipe.alloc_ring(2, (BLOCK_N, DEPTH), bfloat16)
    q_full, q_empty = pipe.alloc_barrier(2), pipe.alloc_barrier(2)
    k_full, k_empty = pipe.alloc_barrier(2), pipe.alloc_barrier(2, arrivals=2)
    v_full, v_empty = pipe.alloc_barrier(2), pipe.alloc_barrier(2, arrivals=2)
    turn = pipe.alloc_named_barrier(2, threads=256)

    with pipe.role("producer", warps=4, registers=24), pipe.elected():
        i, phase, q_phase = 0, 1, 1
        for tile in range(block, tiles, blocks):
            head, row = place_of(tile, rows, 1)
            # The first K and V before Q: their slots are free before the last tile is stored.
            fill(k_tiles, (head, first, 0), k_ring, k_full, i, k_empty.wait(i, phase))
            fill(v_tiles, (head, first, 0), v_ring, v_full, i, v_empty.wait(i, phase))
            i, phase = pipe.advance(i, phase, 2)
            for w in range(2):
                free = q_empty.wait(w, q_phase)
                fill(q_tiles, (head, row * 2 + w, 0), q_ring, q_full, w, free)
            q_phase = q_phase ^ 1
            for step in range(1, first + 1):
                j = first - step
                fill(k_tiles, (head, j, 0), k_ring, k_full, i, k_empty.wait(i, phase))
                fill(v_tiles, (head, j, 0), v_ring, v_full, i, v_empty.wait(i, phase))
                i, phase = pipe.advance(i, phase, 2)

    with pipe.role("consumer", warps=4, replicas=2, registers=240) as w:
        next_w = pipe.where(w == 1, 0, w + 1)
        if w == 1:  # the first turn is handed out by the last
            turn.arrive(0)
        ki, kp, vi, vp, q_phase = 0, 0, 0, 0, 0
        for tile in range(block, tiles, blocks):
            head, row = place_of(tile, rows, 1)
            q_landed = q_full.wait(w, q_phase)
            q_phase = q_phase ^ 1
            ready = pipe.join_tokens(q_landed, k_full.wait(ki, kp))
            scores, k_read = pipe.mma_wait(pipe.mma_start(q_ring[w], k_ring[ki].T, token=ready))
            k_empty.arrive(ki, token=k_read)
            ki, kp = pipe.advance(ki, kp, 2)
            high = pipe.max(scores, 1)
            weights = exponentials(scores, high, scale)
            sums, p = partial_sums(weights), weights.astype(bfloat16)
            total = pipe.zeros((64, DEPTH), float32)
            for _step in range(first):
                k_landed = k_full.wait(ki, kp)
                turn.sync(w)
                ready = pipe.join_tokens(q_landed, k_landed)
                s_flying = pipe.mma_start(q_ring[w], k_ring[ki].T, token=ready)
                v_landed = v_full.wait(vi, vp)
                o_flying = pipe.mma_start(p, v_ring[vi], total, token=v_landed)
                turn.arrive(next_w)
                scores, k_read = pipe.mma_wait(s_flying, in_flight=1)
                k_empty.arrive(ki, token=k_read)
                # The softmax runs while the product of the block before is in flight.
                higher = pipe.maximum(pipe.max(scores, 1), high)
                decay = pipe.exp2((high - higher) * scale, flush_to_zero=True)
                weights = exponentials(scores, higher, scale)
                sums = sums * decay[:, None] + partial_sums(weights)
                high = higher
                total, v_read = pipe.mma_wait(o_flying)
                v_empty.arrive(vi, token=v_read)
                p = weights.astype(bfloat16)
                total = total * decay[:, None]
                ki, kp = pipe.advance(ki, kp, 2)
                vi, vp = pipe.advance(vi, vp, 2)
            v_landed = v_full.wait(vi, vp)
            total, read = pipe.mma_wait(pipe.mma_start(p, v_ring[vi], total, token=v_landed))
            v_empty.arrive(vi, token=read)
            vi, vp = pipe.advance(vi, vp, 2)
            inverse = pipe.reciprocal(
                pipe.sum(sums, 1), rounding_mode=pipe.RoundingMode.APPROX, flush_to_zero=True
            )
            # The result leaves through the memory of Q, whose reads are over.
            written = q_ring[w].store((total * inverse[:, None]).astype(bfloat16), token=read)
            fenced = pipe.fence_proxy(written)
            with pipe.elected():
                pipe.copy_out(q_ring[w], o_tiles, (head, row * 2 + w, 0), token=fenced)
                pipe.commit_copies("bulk")
                q_empty.arrive(w, token=pipe.wait_copies("bulk", until="source_free"))
        with pipe.elected():
            pipe.wait_copies("bulk")
