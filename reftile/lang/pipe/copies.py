"""Copies between views and buffers that run beside other work, and their groups."""

from __future__ import annotations

from reftile.ir.core import Value
from reftile.lang.names.registry import name
from reftile.lang.pipe.common import need, scalar, token_of, word
from reftile.lang.pipe.places import view_index
from reftile.lang.pipe.values import Barrier, Buffer, TileView
from reftile.lang.trace import Trace
from reftile.lang.values import Token

EVICTION = ("normal", "first", "last")


@name
def copy_in(
    t: Trace,
    view: object,
    index: object,
    buffer: object,
    /,
    *,
    barrier: object = None,
    slot: object = 0,
    multicast: object = None,
    token: object = None,
    evict: object = "normal",
) -> None:
    """Start copying a tile of a view into a buffer.

    With a barrier it is a bulk copy, by one thread inside `elected`; without one, each thread of
    the role copies a part. multicast: a mask of cluster ranks that get the same bytes.
    """
    source = need(t, view, TileView, "view")
    target = need(t, buffer, Buffer, "buffer")
    at: tuple[Value | None, Value | None] = (None, None)
    if barrier is not None:
        at = need(t, barrier, Barrier, "barrier").value, scalar(t, slot, "slot")
    t.op(
        "copy_in",
        source.value,
        view_index(t, source, index),
        target.value,
        *at,
        None if multicast is None else scalar(t, multicast, "multicast"),
        token_of(t, token),
        engine="thread" if barrier is None else "bulk",
        evict=word(t, evict, EVICTION, "evict"),
    )


@name
def copy_out(
    t: Trace,
    buffer: object,
    view: object,
    index: object,
    /,
    *,
    token: object = None,
    mode: object = "store",
    evict: object = "normal",
) -> None:
    """Start storing a buffer as a tile of a view, by one thread inside `elected`.

    mode: "add", "min" and "max" combine it with what is there.
    """
    source = need(t, buffer, Buffer, "buffer")
    target = need(t, view, TileView, "view")
    t.op(
        "copy_out",
        source.value,
        target.value,
        view_index(t, target, index),
        token_of(t, token),
        mode=word(t, mode, ("store", "add", "min", "max"), "mode"),
        evict=word(t, evict, EVICTION, "evict"),
    )


@name
def commit_copies(t: Trace, engine: object, /) -> None:
    """Close the group of the copies by `engine` ("bulk" or "thread") since the last one."""
    t.op("commit_copies", engine=word(t, engine, ("bulk", "thread"), "engine"))


@name
def wait_copies(
    t: Trace, engine: object, /, *, in_flight: object = 0, until: object = "visible"
) -> Token:
    """Wait until at most the newest `in_flight` groups are under way.

    until: "source_free" is enough to write the source again.
    """
    value = t.value(
        "wait_copies",
        engine=word(t, engine, ("bulk", "thread"), "engine"),
        in_flight=t.static_int(in_flight, "in_flight"),
        until=word(t, until, ("source_free", "visible"), "until"),
    )
    return Token(value)


@name
def prefetch(t: Trace, view: object, index: object, /) -> None:
    """Bring a tile of a view nearer."""
    source = need(t, view, TileView, "view")
    t.op("prefetch_view", source.value, view_index(t, source, index))
