"""Causal attention in bf16 for sm_90a: everything that the pipe level has, in one kernel.

[heads, length, 128], heads a multiple of `together`: three consumer warpgroups of 64 rows, blocks
of 80 keys so that scores, result and probabilities fit 160 registers, and tiles taken from a
counter, the longest first. Row maxima are kept while they are nearly right, which spares most
rescaling.
`scale` includes log2(e); `counter` is zero before and after the launch.
"""

import math

from reftile import pipe
from reftile.pipe import Constant, Pointer, bfloat16, f32, float32, i32, int32, quotient, remainder

DEPTH, BLOCK_M, BLOCK_N, GROUPS = 128, 192, 80, 3
INFINITY = float("inf")


def place_of(tile, rows, together):
    """Head and row of a tile, the last row first."""
    group_tiles = rows * together
    first, within = quotient(tile, group_tiles), remainder(tile, group_tiles)
    head = first * together + remainder(within, together)
    return head, rows - quotient(within, together) - 1


def last_block(row, length):
    """The last block of keys that a row of tiles sees."""
    seen = pipe.minimum(row * BLOCK_M + BLOCK_M, length)
    return pipe.ceildiv(seen, BLOCK_N) - 1


def fill(tiles, index, ring, full, slot, free):
    """Let one bulk copy fill a slot."""
    full.arrive(slot, bytes=math.prod(ring.shape) * 2)
    pipe.copy_in(tiles, index, ring[slot], barrier=full, slot=slot, token=free)


def exponentials(scores, high, scale):
    """2 ** (scale * (scores - high)) as one fma and ex2 for each element."""
    return pipe.exp2(pipe.fma(scores, scale, -(high * scale)[:, None]), flush_to_zero=True)


def partial_sums(weights):
    """The sums of the columns that one lane holds; lanes meet at the end."""
    pairs = pipe.sum(weights.reshape((64, BLOCK_N // 8, 4, 2)), 3)
    return pipe.sum(pairs, 1)


def masked(scores, block, first_row):
    """Scores of keys behind their query are minus infinity."""
    keys = pipe.arange(BLOCK_N, dtype=int32) + block * BLOCK_N
    queries = pipe.arange(64, dtype=int32) + first_row
    return pipe.where(keys[None, :] > queries[:, None], -INFINITY, scores)


@pipe.kernel(target="sm_90a", warps=16)
def attention(
    q: Pointer[bfloat16],
    k: Pointer[bfloat16],
    v: Pointer[bfloat16],
    o: Pointer[bfloat16],
    heads: i32,
    length: i32,
    scale: f32,
    counter: Pointer[int32],
    together: Constant[int] = 8,
):
    shape, strides = (heads, length, DEPTH), (length * DEPTH, DEPTH, 1)

    def cut(pointer, rows, access):
        whole = pipe.tensor(pointer, shape, strides, access=access)
        return pipe.tiles(whole, (1, rows, DEPTH), padding="zero")

    q_tiles, o_tiles = cut(q, 64, "read_only"), cut(o, 64, "write_only")
    k_tiles, v_tiles = cut(k, BLOCK_N, "read_only"), cut(v, BLOCK_N, "read_only")
    rows = pipe.ceildiv(length, BLOCK_M)
    tiles = rows * heads
    block, blocks = pipe.bid(0), pipe.num_blocks(0)
    q_ring = pipe.alloc_ring(GROUPS, (64, DEPTH), bfloat16)
    k_ring = pipe.alloc_ring(2, (BLOCK_N, DEPTH), bfloat16)
    v_ring = pipe.alloc_ring(2, (BLOCK_N, DEPTH), bfloat16)
    q_full, q_empty = pipe.alloc_barrier(GROUPS), pipe.alloc_barrier(GROUPS)
    k_full, k_empty = pipe.alloc_barrier(2), pipe.alloc_barrier(2, arrivals=GROUPS)
    v_full, v_empty = pipe.alloc_barrier(2), pipe.alloc_barrier(2, arrivals=GROUPS)
    turn = pipe.alloc_named_barrier(GROUPS, threads=256)
    next_ring = pipe.alloc_ring(2, (), int32)
    next_full = pipe.alloc_barrier(2)
    # Every thread of the consumers reads the number of the next tile.
    next_empty = pipe.alloc_barrier(2, arrivals=128 * GROUPS)

    with pipe.role("producer", warps=4, registers=32), pipe.elected():
        tile, i, phase, q_phase, s, s_phase = block, 0, 1, 1, 0, 1
        while tile < tiles:
            head, row = place_of(tile, rows, together)
            first = last_block(row, length)
            # The first K and V before Q: their slots are free before the last tile is stored.
            fill(k_tiles, (head, first, 0), k_ring, k_full, i, k_empty.wait(i, phase))
            fill(v_tiles, (head, first, 0), v_ring, v_full, i, v_empty.wait(i, phase))
            i, phase = pipe.advance(i, phase, 2)
            for w in range(GROUPS):
                free = q_empty.wait(w, q_phase)
                fill(q_tiles, (head, row * GROUPS + w, 0), q_ring, q_full, w, free)
            q_phase = q_phase ^ 1
            # Take the next tile while this one is loaded; the counter is back at 0 in the end.
            taken, _taken = pipe.atomic_inc_wrap(counter, tiles - 1)
            tile = taken + blocks
            written = next_ring[s].store(tile, token=next_empty.wait(s, s_phase))
            next_full.arrive(s, token=written)
            s, s_phase = pipe.advance(s, s_phase, 2)
            for step in range(1, first + 1):
                j = first - step
                fill(k_tiles, (head, j, 0), k_ring, k_full, i, k_empty.wait(i, phase))
                fill(v_tiles, (head, j, 0), v_ring, v_full, i, v_empty.wait(i, phase))
                i, phase = pipe.advance(i, phase, 2)

    with pipe.role("consumer", warps=4, replicas=GROUPS, registers=160) as w:
        next_w = pipe.where(w == GROUPS - 1, 0, w + 1)
        if w == GROUPS - 1:  # the first turn is handed out by the last
            turn.arrive(0)
        tile, q_phase, s, s_phase = block, 0, 0, 0
        ki, kp, vi, vp = 0, 0, 0, 0
        while tile < tiles:
            head, row = place_of(tile, rows, together)
            first = last_block(row, length)
            my_first = row * BLOCK_M + w * 64
            q_landed = q_full.wait(w, q_phase)
            q_phase = q_phase ^ 1
            ready = pipe.join_tokens(q_landed, k_full.wait(ki, kp))
            scores, k_read = pipe.mma_wait(pipe.mma_start(q_ring[w], k_ring[ki].T, token=ready))
            k_empty.arrive(ki, token=k_read)
            ki, kp = pipe.advance(ki, kp, 2)
            scores = masked(scores, first, my_first)
            high = pipe.max(scores, 1)
            used = pipe.where(high == -INFINITY, 0.0, high)
            weights = exponentials(scores, used, scale)
            sums, p = partial_sums(weights), weights.astype(bfloat16)
            total = pipe.zeros((64, DEPTH), float32)
            # Blocks that reach past this role's first row are masked; they come first.
            unmasked = pipe.minimum(quotient(my_first + 1, BLOCK_N), first)
            for step in range(first - unmasked):
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
                scores = masked(scores, first - step - 1, my_first)
                higher = pipe.maximum(pipe.max(scores, 1), high)
                used = pipe.where(higher == -INFINITY, 0.0, higher)
                decay = pipe.exp2((high - used) * scale, flush_to_zero=True)
                weights = exponentials(scores, used, scale)
                sums = sums * decay[:, None] + partial_sums(weights)
                high = higher
                total, v_read = pipe.mma_wait(o_flying)
                v_empty.arrive(vi, token=v_read)
                p = weights.astype(bfloat16)
                total = total * decay[:, None]
                ki, kp = pipe.advance(ki, kp, 2)
                vi, vp = pipe.advance(vi, vp, 2)
            for _step in range(unmasked):
                k_landed = k_full.wait(ki, kp)
                turn.sync(w)
                ready = pipe.join_tokens(q_landed, k_landed)
                s_flying = pipe.mma_start(q_ring[w], k_ring[ki].T, token=ready)
                v_landed = v_full.wait(vi, vp)
                o_flying = pipe.mma_start(p, v_ring[vi], total, token=v_landed)
                turn.arrive(next_w)
                scores, k_read = pipe.mma_wait(s_flying, in_flight=1)
                k_empty.arrive(ki, token=k_read)
                # A maximum that grew by less than 8 stays: no factor then exceeds 2^8. Warps
                # decide, each for its 16 rows.
                found = pipe.max(scores, 1)
                grown = ((found - high) * scale > 8.0).reshape((4, 16))
                moves = pipe.any(grown, 1)
                decay = pipe.full((64,), 1.0, float32)
                with pipe.if_rows(moves):
                    higher = pipe.maximum(found, high)
                    decay = pipe.exp2((high - higher) * scale, flush_to_zero=True)
                    sums = sums * decay[:, None]
                    high = higher
                weights = exponentials(scores, high, scale)
                sums = sums + partial_sums(weights)
                total, v_read = pipe.mma_wait(o_flying)
                v_empty.arrive(vi, token=v_read)
                p = weights.astype(bfloat16)
                with pipe.if_rows(moves):
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
                pipe.copy_out(q_ring[w], o_tiles, (head, row * GROUPS + w, 0), token=fenced)
                pipe.commit_copies("bulk")
                q_empty.arrive(w, token=pipe.wait_copies("bulk", until="source_free"))
            tile, next_read = next_ring[s].load(token=next_full.wait(s, s_phase))
            next_empty.arrive(s, token=next_read, by="threads")
            s, s_phase = pipe.advance(s, s_phase, 2)
        with pipe.elected():
            pipe.wait_copies("bulk")
