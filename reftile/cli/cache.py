"""`reftile cache`: what compiled kernels the disk keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reftile.cli.inputs import bad
from reftile.cli.output import Output
from reftile.rt.cache import all_caches, default_folder

if TYPE_CHECKING:
    from rich.console import Console

ACTIONS = ("info", "list", "path", "clear")


def run(output: Output, action: str) -> None:
    """Say what is there, or remove it."""
    if action not in ACTIONS:
        raise bad(f"`cache` does not know `{action}`", f"one of {', '.join(ACTIONS)}")
    folder = default_folder()
    if action == "path":
        output.result({"path": str(folder)}, lambda console: print(folder))
    elif action == "clear":
        removed = sum(cache.clear() for cache in all_caches())
        data: dict[str, object] = {"path": str(folder), "removed": removed}
        output.result(data, lambda console: console.print(f"{removed} entries removed"))
    elif action == "list":
        _list(output)
    else:
        _info(output)


def _info(output: Output) -> None:
    folder, caches = default_folder(), all_caches()
    entries = [entry for cache in caches for entry in cache.entries()]
    total, limit = sum(entry.bytes for entry in entries), caches[0].limit_bytes
    data: dict[str, object] = {
        "path": str(folder),
        "entries": len(entries),
        "bytes": total,
        "limit_bytes": limit,
    }

    def render(console: Console) -> None:
        console.print(f"{folder} (REFTILE_CACHE names another folder)", markup=False)
        text = f"{len(entries)} entries, {total} bytes (at most {limit} for GPUs, and for CPUs)"
        console.print(text)

    output.result(data, render)


def _list(output: Output) -> None:
    """Entries, the most recently used first; looking does not count as use."""
    rows: list[dict[str, object]] = []
    found = [(stored, cache) for cache in all_caches() for stored in cache.entries()]
    for stored, cache in sorted(found, key=lambda pair: pair[0].used, reverse=True):
        about = cache.peek(stored.key)
        rows.append(
            {
                "key": stored.key,
                "kernel": about.get("kernel", "?"),
                "target": about.get("target", "?"),
                "kind": about.get("kind", "?"),
                "driver": about.get("driver", "?"),
                "registers": about.get("registers", 0),
                "bytes": stored.bytes,
                "used": datetime.fromtimestamp(stored.used, UTC).isoformat(timespec="seconds"),
            }
        )

    def render(console: Console) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in ("key", "kernel", "target", "kind", "driver", "registers", "bytes", "used"):
            table.add_column(heading)
        for row in rows:
            table.add_row(str(row["key"])[:10], *(str(v) for k, v in row.items() if k != "key"))
        console.print(table)

    output.result({"entries": rows}, render)
