"""Barriers: with phases, named, of clusters and of steps; the turns of roles."""

from __future__ import annotations

from typing import Literal, cast

from reftile.ir.types import BarrierType, NamedBarrierType
from reftile.lang.dtypes import int32
from reftile.lang.names.registry import name
from reftile.lang.pipe.common import error, flag, need, scalar, token_of, word
from reftile.lang.pipe.values import METHODS, Barrier, NamedBarrier, Pointer
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token


@name
def alloc_barrier(
    t: Trace, count: object = 1, /, arrivals: object = 1, *, scope: object = "cta"
) -> Barrier:
    """An array of barriers with phases.

    arrivals: those that complete a phase. scope: "cluster" if other blocks arrive.
    """
    where = cast("Literal['cta', 'cluster']", word(t, scope, ("cta", "cluster"), "scope"))
    kind = BarrierType(t.static_int(count, "count"), t.static_int(arrivals, "arrivals"), where)
    if kind.count < 1 or kind.arrivals < 1:
        raise error(t, "barrier", f"a barrier awaits one arrival at least, found {kind}")
    return Barrier(t.value("alloc_barrier", types=[kind]))


@name
def arrive(
    t: Trace,
    barrier: Barrier,
    slot: object = 0,
    /,
    *,
    token: object = None,
    bytes: object = 0,
    by: object = "elected",
    rank: object = None,
    everywhere: object = False,
    order: object = "release",
    after_copies: object = False,
) -> None:
    """Arrive at element `slot`, handing over what `token` waits for.

    bytes: what copies will bring. by: one arrival of the role ("elected"), or of each of its warps
    or threads. rank: the block of the cluster; everywhere: all of them. order: "relaxed" says that
    accesses are done, and shows no writes. after_copies: each thread's copies come first.
    """
    t.op(
        "arrive_barrier",
        barrier.value,
        scalar(t, slot, "slot"),
        None if rank is None else scalar(t, rank, "rank"),
        token_of(t, token),
        by=word(t, by, ("elected", "warps", "threads"), "by"),
        bytes=t.static_int(bytes, "bytes"),
        everywhere=flag(t, everywhere, "everywhere"),
        order=word(t, order, ("release", "relaxed"), "order"),
        after_copies=flag(t, after_copies, "after_copies"),
    )


@name
def wait(
    t: Trace, barrier: Barrier, slot: object, phase: object, /, *, order: object = "acquire"
) -> Token:
    """Wait until a phase of element `slot` is complete; the token of what was handed over."""
    found = word(t, order, ("acquire", "relaxed"), "order")
    at, parity = scalar(t, slot, "slot"), scalar(t, phase, "phase")
    return Token(t.value("wait_barrier", barrier.value, at, parity, order=found))


@name
def advance(t: Trace, slot: object, phase: object, stages: object, /) -> tuple[Tile, Tile]:
    """The next slot of a ring of `stages`, and the phase to wait for there."""
    count = t.static_int(stages, "stages")
    op = t.op("advance", scalar(t, slot, "slot"), scalar(t, phase, "phase"), stages=count)
    return Tile(op.results[0], int32), Tile(op.results[1], int32)


# Named barriers


@name
def alloc_named_barrier(t: Trace, count: object = 1, /, *, threads: object) -> NamedBarrier:
    """Barriers without phases at which `threads` threads meet."""
    kind = NamedBarrierType(t.static_int(count, "count"), t.static_int(threads, "threads"))
    return NamedBarrier(t.value("alloc_named_barrier", types=[kind]))


@name
def sync_named(
    t: Trace, barrier: NamedBarrier, index: object = 0, /, *, token: object = None
) -> Token:
    """Arrive at a named barrier and wait for the others."""
    at = scalar(t, index, "index")
    return Token(t.value("sync_named", barrier.value, at, token_of(t, token)))


@name
def arrive_named(
    t: Trace, barrier: NamedBarrier, index: object = 0, /, *, token: object = None
) -> None:
    """Arrive at a named barrier without waiting."""
    t.op("arrive_named", barrier.value, scalar(t, index, "index"), token_of(t, token))


@name
def sync(t: Trace, /, *, token: object = None) -> Token:
    """All threads of the role meet."""
    return Token(t.value("sync", token_of(t, token)))


@name
def step(t: Trace, /, *, token: object = None) -> Token:
    """The block's barrier on gfx942, which each role counts for itself."""
    return Token(t.value("step", token_of(t, token)))


@name
def set_priority(t: Trace, level: object, /) -> None:
    """How much this role's warps are preferred from here on (gfx942)."""
    t.op("set_priority", level=t.static_int(level, "level"))


# Counters


@name
def atomic_inc_wrap(
    t: Trace,
    pointer: object,
    limit: object,
    /,
    *,
    ordering: object = "relaxed",
    scope: object = "device",
    token: object = None,
) -> tuple[Tile, Token]:
    """Add one to a counter, or set it to 0 at its limit; its old value, and the token.

    pointer: a parameter annotated as Pointer[int32].
    """
    counter = need(t, pointer, Pointer, "pointer", "annotate the parameter: Pointer[int32]")
    words = ("relaxed", "acquire", "release", "acq_rel")
    op = t.op(
        "atomic_inc_wrap_tko",
        counter.value,
        scalar(t, limit, "limit"),
        token_of(t, token),
        ordering=word(t, ordering, words, "ordering"),
        scope=word(t, scope, ("block", "device", "sys"), "scope"),
    )
    return Tile(op.results[0], int32), Token(op.results[1])


# Clusters and order


@name
def cluster_rank(t: Trace, /) -> Tile:
    """The number of this block in its cluster."""
    return Tile(t.value("cluster_rank"), int32)


@name
def cluster_arrive(t: Trace, /, *, token: object = None, order: object = "release") -> None:
    """Tell the cluster that this block has come."""
    t.op(
        "cluster_arrive", token_of(t, token), order=word(t, order, ("release", "relaxed"), "order")
    )


@name
def cluster_wait(t: Trace, /) -> Token:
    """Wait until all threads of the cluster have come."""
    return Token(t.value("cluster_wait"))


@name
def fence_proxy(t: Trace, token: object, /, *, space: object = "shared") -> Token:
    """Let the asynchronous proxy meet what `token` covers: bulk copies and products see it then."""
    found = word(t, space, ("shared", "global", "all"), "space")
    return Token(t.value("fence_proxy", token_of(t, token), space=found))


@name
def order_fence(t: Trace, /) -> None:
    """Nothing moves across here in the assembler."""
    t.op("order_fence")


METHODS[Barrier] = {"arrive": arrive, "wait": wait}
METHODS[NamedBarrier] = {"sync": sync_named, "arrive": arrive_named}
