"""`reftile cache`: what compiled kernels the disk keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reftile.cli.inputs import bad
from reftile.cli.output import Output
from reftile.rt.cache import Cache

if TYPE_CHECKING:
    from rich.console import Console

ACTIONS = ("info", "list", "path", "clear")


def run(output: Output, action: str) -> None:
    """Say what is there, or remove it."""
    if action not in ACTIONS:
        raise bad(f"`cache` does not know `{action}`", f"one of {', '.join(ACTIONS)}")
    cache = Cache()
    if action == "path":
        output.result({"path": str(cache.folder)}, lambda console: print(cache.folder))
    elif action == "clear":
        removed = cache.clear()
        data: dict[str, object] = {"path": str(cache.folder), "removed": removed}
        output.result(data, lambda console: console.print(f"{removed} entries removed"))
    elif action == "list":
        _list(output, cache)
    else:
        _info(output, cache)


def _info(output: Output, cache: Cache) -> None:
    entries = cache.entries()
    total = sum(entry.bytes for entry in entries)
    data: dict[str, object] = {
        "path": str(cache.folder),
        "entries": len(entries),
        "bytes": total,
        "limit_bytes": cache.limit_bytes,
    }

    def render(console: Console) -> None:
        console.print(f"{cache.folder} (REFTILE_CACHE names another folder)", markup=False)
        console.print(f"{len(entries)} entries, {total} of at most {cache.limit_bytes} bytes")

    output.result(data, render)


def _list(output: Output, cache: Cache) -> None:
    """Entries, the most recently used first; looking does not count as use."""
    rows: list[dict[str, object]] = []
    for stored in reversed(cache.entries()):
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
