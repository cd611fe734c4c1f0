"""The cache on disk: whole entries or none, whatever happens around it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import time
from pathlib import Path

import pytest

from reftile.rt import cache as caching
from reftile.rt.cache import Cache, key_of


def test_an_entry_comes_back_with_what_is_known_of_it(tmp_path: Path) -> None:
    assert Cache(tmp_path).store("k", b"co\nde", {"registers": 168})
    entry = Cache(tmp_path).find("k")
    assert entry is not None
    assert (entry.code, entry.about["registers"]) == (b"co\nde", 168)


def test_an_absent_entry_is_none(tmp_path: Path) -> None:
    assert Cache(tmp_path / "never made").find("k") is None


def test_a_later_entry_takes_the_place_of_an_earlier(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("k", b"text", {"kind": "ptx"})
    cache.store("k", b"code", {"kind": "cubin"})
    entry = cache.find("k")
    assert entry is not None
    assert (entry.code, entry.about) == (b"code", {"kind": "cubin"})


def test_any_damage_counts_as_absent_and_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("k", bytes(range(256)), {"registers": 1})
    whole = cache.place("k").read_bytes()
    source = random.Random(0)
    damaged = [whole[:n] for n in range(0, len(whole), 7)]
    for _ in range(60):
        at = source.randrange(len(whole))
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << source.randrange(8)]) + whole[at + 1 :])
    for data in (*damaged, b"", b"\n", b"{}", whole + b"x"):
        cache.place("k").write_bytes(data)
        assert cache.find("k") is None
        assert not cache.place("k").exists()
    assert cache.store("k", b"code", {})
    assert cache.find("k") is not None


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for i, key in enumerate("abc"):
        cache.store(key, bytes(1000), {})
        os.utime(cache.place(key), (i, i))
    assert cache.find("a") is not None
    cache.limit_bytes = 2500
    cache.trim()
    assert [entry.key for entry in cache.entries()] == ["c", "a"]


def test_storing_keeps_the_size_below_the_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=5000)
    for i in range(20):
        cache.store(str(i), bytes(1000), {})
    assert sum(entry.bytes for entry in cache.entries()) <= 5000
    assert cache.find("19") is not None


def test_a_folder_that_is_a_file_keeps_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = Cache(blocked)
    assert not cache.store("k", b"code", {})
    assert cache.find("k") is None
    assert cache.entries() == []
    assert cache.clear() == 0


def deny(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_a_folder_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cache(tmp_path).store("k", b"code", {})
    for name in ("utime", "replace", "unlink"):
        monkeypatch.setattr(caching.os, name, deny)
    monkeypatch.setattr(caching.tempfile, "mkstemp", deny)
    entry = Cache(tmp_path).find("k")
    assert entry is not None
    assert entry.code == b"code"
    assert not Cache(tmp_path).store("other", b"code", {})


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fdopen(descriptor: int, mode: str) -> object:
        os.close(descriptor)
        return open("/dev/full", mode)

    monkeypatch.setattr(caching.os, "fdopen", fdopen)
    assert not Cache(tmp_path).store("k", bytes(1 << 16), {})
    assert list(tmp_path.iterdir()) == []
    assert Cache(tmp_path).find("k") is None


def test_what_a_killed_writer_left_is_removed_later(tmp_path: Path) -> None:
    old, new = tmp_path / ".new-old", tmp_path / ".new-now"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (0, time.time() - 7200))
    Cache(tmp_path).store("k", b"code", {})
    assert not old.exists()
    assert new.exists()


def test_clear_says_how_many_there_were(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("a", b"1", {})
    cache.store("b", b"2", {})
    assert (cache.clear(), cache.entries()) == (2, [])


def test_keys_depend_on_every_part_and_on_where_parts_end() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of("a", 1) == key_of("a", "1")


def hammer(folder: Path, number: int) -> None:
    """Store, find, damage, trim and clear; what is found is always whole."""
    source = random.Random(number)
    cache = Cache(folder, limit_bytes=60_000)
    for _ in range(60):
        key = str(source.randrange(6))
        action = source.random()
        if action < 0.5:
            cache.store(key, key.encode() * source.randrange(1, 20_000), {"key": key})
        elif action < 0.9:
            entry = cache.find(key)
            assert entry is None or (
                entry.about == {"key": key} and set(entry.code) == set(key.encode())
            )
        elif action < 0.96:
            try:
                data = cache.place(key).read_bytes()
                cache.place(key).write_bytes(data[: source.randrange(len(data))])
            except (OSError, ValueError):
                pass
        else:
            cache.clear()


def test_eight_processes_hammer_one_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=hammer, args=(tmp_path, i)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0] * 8
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".new-")]
    Cache(tmp_path, limit_bytes=60_000).trim()
    assert sum(entry.bytes for entry in Cache(tmp_path).entries()) <= 60_000


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("REFTILE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    cache = Cache()
    assert not cache.store("key", b"code", {})
    assert cache.find("key") is None
    assert cache.entries() == []


def test_a_folder_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / "folder.entry").mkdir()
    cache = Cache(tmp_path)
    cache.store("key", b"code", {})
    assert [entry.key for entry in cache.entries()] == ["key"]
    assert cache.clear() == 1
