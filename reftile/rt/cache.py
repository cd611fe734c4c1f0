"""A cache on disk of what compiling gave: atomic, shared by many processes, bounded.

An entry is one file: a line with a checksum of all that follows, a line of JSON with what is known
of the code, and the code. It is written beside its place and renamed into it, so that a reader sees
the whole of one version or of another; two writers of one key write the same, and the later one
wins. What cannot be read or written (no permission, a full disk, damage) only costs time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, cast

DEFAULT_LIMIT_BYTES = 1 << 30
CPU_FOLDER = "cpu"
"""Where code for CPUs is kept, in the folder of the cache."""
SUFFIX = ".entry"
_SCRATCH = ".new-"
_SCRATCH_SECONDS = 3600.0
"""Age after which a file that some writer left behind is removed."""
_MAGIC = b"reftile 1 "


def default_folder() -> Path:
    """`REFTILE_CACHE`, or `reftile` in the user's cache folder."""
    chosen = os.environ.get("REFTILE_CACHE")
    if chosen:
        return Path(chosen)
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # A user without a home, as in some containers: nothing is kept.
        folder = Path(os.devnull)
    return folder / "reftile"


def key_of(*parts: object) -> str:
    """A key of 40 hexadecimal digits for everything that the code depends on, in order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Entry:
    """Code, and what is known of it (registers, spills, how to launch it, ...)."""

    code: bytes
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as the folder shows it: its size, and when it was last used (seconds since 1970)."""

    key: str
    bytes: int
    used: float


class Cache:
    """The entries of one folder; one that cannot be written to keeps nothing."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = folder if folder is not None else default_folder()
        self.limit_bytes = limit_bytes

    def place(self, key: str) -> Path:
        """The file of an entry."""
        return self.folder / f"{key}{SUFFIX}"

    def find(self, key: str) -> Entry | None:
        """The entry, or None. A damaged one counts as absent, and is removed."""
        place = self.place(key)
        try:
            data = place.read_bytes()
        except OSError:
            return None
        entry = _unpack(data)
        with suppress(OSError):
            if entry is None:
                place.unlink()
            else:
                os.utime(place)
        return entry

    def peek(self, key: str) -> dict[str, Any]:
        """What is known of an entry, {} if there is none; this is no use of it."""
        try:
            entry = _unpack(self.place(key).read_bytes())
        except OSError:
            return {}
        return entry.about if entry is not None else {}

    def store(self, key: str, code: bytes, about: Mapping[str, Any]) -> bool:
        """Keep an entry, then drop the least recently used ones beyond the limit.

        Returns whether it is kept: not if the folder cannot be written to, or the disk is full.
        """
        rest = json.dumps(dict(about)).encode() + b"\n" + code
        data = _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
        scratch = ""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, scratch = tempfile.mkstemp(prefix=_SCRATCH, dir=self.folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(scratch, self.place(key))
            scratch = ""
        except OSError:
            return False
        finally:
            if scratch:
                with suppress(OSError):
                    os.unlink(scratch)
        self.trim()
        return True

    def entries(self) -> list[Stored]:
        """All entries, the least recently used first."""
        found: list[Stored] = []
        with suppress(OSError), os.scandir(self.folder) as listing:
            for item in listing:
                with suppress(OSError):
                    if item.name.endswith(SUFFIX) and item.is_file():
                        status = item.stat()
                        key = item.name.removesuffix(SUFFIX)
                        found.append(Stored(key, status.st_size, status.st_mtime))
                    elif item.name.startswith(_SCRATCH) and _is_left_behind(item):
                        os.unlink(item.path)
        return sorted(found, key=lambda entry: (entry.used, entry.key))

    def trim(self) -> None:
        """Remove the least recently used entries until the limit holds."""
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total <= self.limit_bytes:
                return
            with suppress(OSError):
                self.place(entry.key).unlink()
            total -= entry.bytes

    def clear(self) -> int:
        """Remove all entries and return how many were removed."""
        removed = 0
        for entry in self.entries():
            with suppress(OSError):
                self.place(entry.key).unlink()
                removed += 1
        return removed


def all_caches() -> tuple[Cache, Cache]:
    """That of code for GPUs, and that of code for CPUs; the limit is of each."""
    return Cache(), Cache(default_folder() / CPU_FOLDER)


def _is_left_behind(item: os.DirEntry[str]) -> bool:
    return time() - item.stat().st_mtime > _SCRATCH_SECONDS


def _unpack(data: bytes) -> Entry | None:
    """Read the bytes of an entry; None if they are not what was written."""
    head, _, rest = data.partition(b"\n")
    if head != _MAGIC + hashlib.sha256(rest).hexdigest().encode():
        return None
    line, _, code = rest.partition(b"\n")
    try:
        about: Any = json.loads(line)
    except ValueError:
        return None
    return Entry(code, cast("dict[str, Any]", about)) if isinstance(about, dict) else None
