"""Blocks that wait for each other, in several launches at once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.rt.cpu import threads


@reftile.kernel(progress="cooperative")
def meet(arrived, out, blocks):
    ct.atomic_add(arrived, 0, 1, memory_order=ct.MemoryOrder.ACQ_REL)
    while ct.atomic_add(arrived, 0, 0, memory_order=ct.MemoryOrder.ACQUIRE) < blocks:
        pass
    ct.store(out, (ct.bid(0),), ct.full((1,), 1, ct.int32))


def test_launches_at_once_all_get_threads_for_all_their_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = threads.MOST_WAITING * 3 // 4
    monkeypatch.setattr(threads, "PATIENCE_SECONDS", 300.0)
    submit = ThreadPoolExecutor.submit

    def submit_in_turn(self: ThreadPoolExecutor, *work: Any) -> Future[Any]:
        time.sleep(0.0005)
        return submit(self, *work)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_in_turn)
    found: list[object] = []

    def work() -> None:
        arrived, out = np.zeros(1, np.int32), np.zeros(blocks, np.int32)
        try:
            reftile.launch(meet, (blocks,), (arrived, out, blocks), backend="cpu", check=False)
            found.append(bool(out.all()))
        except reftile.ReftileError as error:
            found.append(error.diagnosis.rule)

    running = [threading.Thread(target=work) for _ in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert found == [True] * 3
