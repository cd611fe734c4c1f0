"""Streams and events of any library."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.rt.streams import Event, current_stream, is_capturing, read_stream
from tests.rt.fake_driver import FakeDriver

PROTOCOL = SimpleNamespace(__cuda_stream__=lambda: (0, 77))


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (12, 12),
        (PROTOCOL, 77),
        (SimpleNamespace(__cuda_stream__=(0, 78)), 78),
        (SimpleNamespace(cuda_stream=5), 5),
        (SimpleNamespace(ptr=6), 6),
        (SimpleNamespace(handle=ctypes.c_void_p(7)), 7),
        (SimpleNamespace(handle=ctypes.c_void_p(None)), 0),
    ],
)
def test_streams_of_every_library_have_a_handle(stream: Any, handle: int) -> None:
    assert read_stream(stream) == handle


@pytest.mark.parametrize("stream", ["0", -1, True, 1.5, object()])
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    with pytest.raises(ReftileError) as error:
        read_stream(stream)
    assert error.value.diagnosis.rule == "cuda.stream"


def test_a_library_that_is_not_loaded_has_the_default_stream() -> None:
    assert current_stream("no_such_library", 0) == 0


def test_events_are_recorded_held_and_measured(fake: FakeDriver) -> None:
    start, end = Event().record(5), Event().record(PROTOCOL)
    end.hold(9)
    end.synchronize()
    assert end.milliseconds_since(start) == 1.5
    assert (start.handle, end.handle) == ([5], [77, ("held", 9)])
    del start, end
    assert fake.calls.count("cuEventDestroy") == 2


def test_an_event_belongs_to_the_device_of_its_stream(fake: FakeDriver) -> None:
    fake.context, fake.streams = 1, {5: 1, 6: 2}
    event = Event().record(6)
    assert fake.event_contexts == [2]
    assert fake.context == 1
    event.record(6)
    assert fake.event_contexts == [2]
    event.record(5)
    assert fake.event_contexts == [2, 1]
    assert fake.calls.count("cuEventDestroy") == 1


def test_an_event_that_was_never_recorded_is_refused(fake: FakeDriver) -> None:
    with pytest.raises(ReftileError) as error:
        Event().synchronize()
    assert error.value.diagnosis.rule == "cuda.event"


def test_a_failure_before_an_event_is_diagnosed(fake: FakeDriver) -> None:
    event = Event().record()
    fake.fail["cuEventSynchronize"] = "ILLEGAL_ADDRESS"
    with pytest.raises(ReftileError) as error:
        event.synchronize()
    assert error.value.diagnosis.rule == "cuda.illegal_address"


@pytest.mark.parametrize("capturing", [False, True])
def test_captures_are_seen(fake: FakeDriver, capturing: bool) -> None:
    fake.capturing = capturing
    assert is_capturing(3) is capturing
