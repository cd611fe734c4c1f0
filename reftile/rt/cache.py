"""A cache of machine code on disk: atomic, shared by many processes, bounded.

An entry is a folder `<key>` with `code` and `about.json`. It is written beside its place and
renamed into it, so a reader sees all of it or nothing; two writers of one key write the same, and
the later one wins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_LIMIT_BYTES = 1 << 30
_CODE, _ABOUT = "code", "about.json"


def default_folder() -> Path:
    """`REFTILE_CACHE`, or `reftile` in the user's cache folder."""
    chosen = os.environ.get("REFTILE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reftile"


def key_of(*parts: object) -> str:
    """A key of 40 hexadecimal digits for everything that the code depends on, in order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Entry:
    """Machine code, and what is known of it (registers, spills, seconds it took, ...)."""

    code: bytes
    about: dict[str, Any]


class Cache:
    """The entries of one folder; one that cannot be written to keeps nothing."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = folder if folder is not None else default_folder()
        self.limit_bytes = limit_bytes

    def find(self, key: str) -> Entry | None:
        """The entry, or None. A damaged one counts as absent, and is removed."""
        place = self.folder / key
        try:
            about = json.loads((place / _ABOUT).read_bytes())
            code = (place / _CODE).read_bytes()
            os.utime(place)
        except OSError:
            return None
        except ValueError:
            shutil.rmtree(place, ignore_errors=True)
            return None
        if hashlib.sha256(code).hexdigest() != about.get("sha256"):
            shutil.rmtree(place, ignore_errors=True)
            return None
        return Entry(code, about)

    def store(self, key: str, code: bytes, about: Mapping[str, Any]) -> None:
        """Keep an entry, then drop the least recently used ones beyond the limit."""
        described = {**about, "sha256": hashlib.sha256(code).hexdigest()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        except OSError:
            return
        try:
            (scratch / _CODE).write_bytes(code)
            (scratch / _ABOUT).write_text(json.dumps(described))
            _move(scratch, self.folder / key)
        except OSError:
            pass
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self.trim()

    def entries(self) -> list[tuple[str, int, float]]:
        """(key, bytes, time of last use) of every entry, the oldest first."""
        found: list[tuple[str, int, float]] = []
        try:
            places = [p for p in self.folder.iterdir() if not p.name.startswith(".")]
        except OSError:
            return []
        for place in places:
            try:
                size = sum(f.stat().st_size for f in place.iterdir())
                found.append((place.name, size, place.stat().st_mtime))
            except OSError:
                continue
        return sorted(found, key=lambda entry: entry[2])

    def trim(self) -> None:
        """Remove the least recently used entries until the limit holds."""
        entries = self.entries()
        total = sum(size for _, size, _ in entries)
        for key, size, _ in entries:
            if total <= self.limit_bytes:
                return
            shutil.rmtree(self.folder / key, ignore_errors=True)
            total -= size

    def clear(self) -> int:
        """Remove all entries and return how many there were."""
        entries = self.entries()
        for key, _, _ in entries:
            shutil.rmtree(self.folder / key, ignore_errors=True)
        return len(entries)


def _move(source: Path, target: Path) -> None:
    """Rename a folder into place; if another process was first, its entry is as good as ours."""
    try:
        source.rename(target)
    except OSError:
        if not target.is_dir():
            raise
