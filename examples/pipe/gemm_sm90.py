"""C[m, n] = A[m, k] @ B[n, k]^T in bf16 for sm_90a: gemm_sm90.tile, written in Python.

The persistent GEMM of one producer and two consumer warpgroups. Two blocks of a cluster share B:
each loads half of it and multicasts it to both. One product stays in flight: a slot is released one
iteration after its product was started. The result leaves in pieces of 64 columns, while the next
tile is being multiplied.
"""

from reftile import pipe
from reftile.pipe import Constant, Pointer, bfloat16, i32, quotient, remainder

STAGES = 4


def place_of(tile, columns, group):
    """Row and column of a tile: numbered down groups of rows, so that blocks share loads."""
    group_tiles = columns * group
    first, within = quotient(tile, group_tiles), remainder(tile, group_tiles)
    return first * group + remainder(within, group), quotient(within, group)


@pipe.kernel(target="sm_90a", warps=12, cluster=(2, 1, 1))
def gemm(
    a: Pointer[bfloat16],
    b: Pointer[bfloat16],
    c: Pointer[bfloat16],
    m: i32,
    n: i32,
    k: i32,
    group: Constant[int] = 16,
):
    a_tiles = pipe.tiles(pipe.tensor(a, (m, k), access="read_only"), (128, 64), padding="zero")
    b_halves = pipe.tiles(pipe.tensor(b, (n, k), access="read_only"), (128, 64), padding="zero")
    c_tiles = pipe.tiles(pipe.tensor(c, (m, n), access="write_only"), (64, 64))
    rows = pipe.ceildiv(m, 256) * 2  # in pairs, as blocks are
    columns = pipe.ceildiv(n, 256)
    tiles, steps = rows * columns, pipe.ceildiv(k, 64)
    block, blocks = pipe.bid(0), pipe.num_blocks(0)
    rank = pipe.cluster_rank()
    a_ring = pipe.alloc_ring(STAGES, (128, 64), bfloat16)
    b_ring = pipe.alloc_ring(STAGES, (256, 64), bfloat16)
    c_ring = pipe.alloc_ring(4, (64, 64), bfloat16)
    full = pipe.alloc_barrier(STAGES)
    # Two consumers in each of two blocks release a slot, since both blocks write to it.
    empty = pipe.alloc_barrier(STAGES, arrivals=4, scope="cluster")
    pipe.cluster_arrive(order="relaxed")
    pipe.cluster_wait()

    with pipe.role("consumer", warps=4, replicas=2, registers=240) as w:
        slot, phase = 0, 0
        for tile in range(block, tiles, blocks):
            row, column = place_of(tile, columns, group)
            total, last = pipe.mma_open((64, 256)), 0
            for step in range(steps):
                landed = full.wait(slot, phase)
                a_mine = a_ring[slot].part((w, 0), (64, 64))
                more = step != 0
                total = pipe.mma_start(a_mine, b_ring[slot].T, total, accumulate=more, token=landed)
                # The product before this one is complete, so its slot has been read.
                read = pipe.mma_wait(in_flight=1)
                if more:
                    empty.arrive(last, token=read, everywhere=True, order="relaxed")
                last = slot
                slot, phase = pipe.advance(slot, phase, STAGES)
            result, all_read = pipe.mma_wait(total)
            empty.arrive(last, token=all_read, everywhere=True, order="relaxed")
            rounded = result.astype(bfloat16)
            for piece in range(4):
                with pipe.elected():  # the store before the last has left its buffer
                    free = pipe.wait_copies("bulk", in_flight=1, until="source_free")
                buffer = c_ring[w * 2 + remainder(piece, 2)]
                written = buffer.store(rounded.extract((0, piece), (64, 64)), token=free)
                fenced = pipe.fence_proxy(written)
                with pipe.elected():
                    at = (row * 2 + w, column * 4 + piece)
                    pipe.copy_out(buffer, c_tiles, at, token=fenced)
                    pipe.commit_copies("bulk")
        with pipe.elected():
            pipe.wait_copies("bulk")

    with pipe.role("producer", warps=4, registers=24), pipe.elected():
        slot, phase = 0, 1
        for tile in range(block, tiles, blocks):
            row, column = place_of(tile, columns, group)
            for step in range(steps):
                free = empty.wait(slot, phase, order="relaxed")
                full.arrive(slot, bytes=(128 + 256) * 64 * 2)
                pipe.copy_in(
                    a_tiles, (row, step), a_ring[slot], barrier=full, slot=slot, token=free
                )
                pipe.copy_in(
                    b_halves,
                    (column * 2 + rank, step),
                    b_ring[slot].part((rank, 0), (128, 64)),
                    barrier=full,
                    slot=slot,
                    multicast=3,
                    token=free,
                )
                slot, phase = pipe.advance(slot, phase, STAGES)

    # No block may end while the other still arrives on its barriers.
    pipe.cluster_arrive()
    pipe.cluster_wait()
