from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.rt.fake_driver import _CACHED, FakeDriver, install  # pyright: ignore


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeDriver]:
    """A driver that records what it is given, in place of the real one."""
    fake = FakeDriver()
    install(monkeypatch, fake)
    yield fake
    for function in _CACHED:
        function.cache_clear()
