"""Run the listings of the tutorial, and hold what they print against the page.

python docs/run_tutorial.py            # rewrite the outputs and the pictures
python docs/run_tutorial.py --check    # say whether they are current
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from reftile.cli.app import execute
from reftile.cli.run import Request, load
from reftile.interp.model.explore import explore
from reftile.interp.model.render import render_svg
from reftile.interp.model.translate import translate

HERE = Path(__file__).parent
PAGE = HERE / "memory_model_tutorial.md"
LISTING = re.compile(r"^```(?:python|text)\n((?:#|//) (\S+)\n.*?)^```$", re.M | re.S)
SESSION = re.compile(r"^```console\n\$ reftile (.*?)\n(.*?)^```$", re.M | re.S)
PICTURES = {
    "memory_model_handover.svg": ("handover.py:handover", "out[0]"),
    "memory_model_relaxed.svg": ("wrong.py:relaxed_flag", ""),
}
"""By file: the kernel, and the place that must hold 1 at the end, or "" for a racing execution."""


def build(page: str) -> tuple[str, dict[str, str]]:
    """Return the page as it should be, and the pictures."""
    with TemporaryDirectory() as folder, chdir(folder):
        for text, name in LISTING.findall(page):
            Path(name).write_text(text, encoding="utf-8")
        os.environ["COLUMNS"] = "100"
        here = f"{Path.cwd()}/"
        page = SESSION.sub(
            lambda m: f"```console\n$ reftile {m[1]}\n{output(m[1])}```", page
        ).replace(here, "")
        pictures = {name: picture(*found) for name, found in PICTURES.items()}
    return page, pictures


def output(command: str) -> str:
    """What a command prints."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        execute(shlex.split(command))
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


def picture(where: str, place: str) -> str:
    """One execution as SVG."""
    loaded = load(Request(where, ["i32[1]=zeros"] * 3, "2", [], 0))
    kernel, values = loaded.kernel(loaded.values)
    result = explore(translate(kernel, loaded.grid, values).program)
    if not place:
        return render_svg(result.races[0].execution) + "\n"
    found = [e for o, e in result.outcomes.items() if dict(o)[place] == 1]
    return render_svg(found[0]) + "\n"


def main() -> int:
    """Rewrite or check."""
    page, pictures = build(PAGE.read_text(encoding="utf-8"))
    wanted = {PAGE: page, **{HERE / name: text for name, text in pictures.items()}}
    if "--check" in sys.argv:
        stale = [p.name for p, text in wanted.items() if not p.exists() or p.read_text() != text]
        print("\n".join(f"docs/{name} is not what docs/run_tutorial.py writes" for name in stale))
        return int(bool(stale))
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
