"""CPU kernels of tests are compiled into a folder that lasts for the session."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def cpu_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REFTILE_CACHE", str(tmp_path_factory.mktemp("cpu_cache")))
        yield
