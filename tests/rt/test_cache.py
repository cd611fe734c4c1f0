"""The cache on disk: whole entries or none, whatever happens around it."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from reftile.rt.cache import Cache, key_of


def test_an_entry_comes_back_with_what_is_known_of_it(tmp_path: Path) -> None:
    Cache(tmp_path).store("k", b"code", {"registers": 168})
    entry = Cache(tmp_path).find("k")
    assert entry is not None
    assert (entry.code, entry.about["registers"]) == (b"code", 168)


def test_an_absent_entry_is_none(tmp_path: Path) -> None:
    assert Cache(tmp_path / "never made").find("k") is None


def test_a_damaged_entry_counts_as_absent_and_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("k", b"code", {})
    (tmp_path / "k" / "code").write_bytes(b"cod")
    assert cache.find("k") is None
    assert not (tmp_path / "k").exists()
    cache.store("k", b"code", {})
    (tmp_path / "k" / "about.json").write_text("{")
    assert cache.find("k") is None


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for i, key in enumerate("abc"):
        cache.store(key, bytes(1000), {})
        os.utime(tmp_path / key, (i, i))
    assert cache.find("a") is not None
    cache.limit_bytes = 2500
    cache.trim()
    assert [key for key, _, _ in cache.entries()] == ["c", "a"]


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = Cache(blocked)
    cache.store("k", b"code", {})
    assert cache.find("k") is None
    assert cache.entries() == []


def test_clear_says_how_many_there_were(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("a", b"1", {})
    cache.store("b", b"2", {})
    assert (cache.clear(), cache.entries()) == (2, [])


def test_keys_depend_on_every_part_and_on_where_parts_end() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of("a", 1) == key_of("a", "1")


def write_often(folder: Path) -> None:
    for _ in range(30):
        Cache(folder).store("k", bytes(5000), {"registers": 1})
        entry = Cache(folder).find("k")
        assert entry is None or entry.code == bytes(5000)


def test_many_processes_write_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_often, args=(tmp_path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
    entry = Cache(tmp_path).find("k")
    assert entry is not None
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".new-")]
